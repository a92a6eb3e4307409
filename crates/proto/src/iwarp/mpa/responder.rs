//! The end that listens: it reads the request and sends the reply.

use alloc::vec::Vec;
use core::time::Duration;

use super::agree::{Agreement, Wishes};
use super::frame::{
    Frame, FrameKind, HEADER_LEN, MAX_PRIVATE, MAX_PROGRAM_DATA, NOT_NEGOTIATED, StartupError,
};
use crate::time::Time;

/// How long a request may take, as with siw (Linux 6.1 and 6.12).
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// What came of the bytes of an initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A request, which [`Responder::accept`] or [`Responder::reject`] answers.
    Request {
        /// The initiator's private data.
        private: Vec<u8>,
        /// READs and atomics that the initiator can hold, if it says.
        ird: Option<u16>,
        /// READs and atomics that the initiator wants outstanding, if it says.
        ord: Option<u16>,
    },
    /// The set-up failed; the connection is to be closed.
    Failed(StartupError),
}

#[derive(Debug)]
enum State {
    /// The request is awaited until then; its beginning has come.
    Reading { seen: Vec<u8>, deadline: Time },
    /// The program decides.
    Deciding(Frame),
    /// Answered, or failed.
    Over,
}

/// A connection that was accepted from TCP, until its request is answered.
#[derive(Debug)]
pub struct Responder(State);

impl Responder {
    /// A connection that begins now.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self(State::Reading {
            seen: Vec::new(),
            deadline: now + REQUEST_TIMEOUT,
        })
    }

    /// When [`on_deadline`](Self::on_deadline) must be called, if ever. While the program decides
    /// there is no timer: the initiator has its own.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match &self.0 {
            State::Reading { deadline, .. } => Some(*deadline),
            _ => None,
        }
    }

    /// The deadline has passed (calling it early does nothing).
    pub fn on_deadline(&mut self, now: Time) -> Option<Asked> {
        self.deadline().filter(|&deadline| deadline <= now)?;
        Some(self.fail(StartupError::TimedOut))
    }

    /// The peer has closed or reset the connection.
    pub fn on_closed(&mut self) -> Option<Asked> {
        let is_over = matches!(self.0, State::Over);
        (!is_over).then(|| self.fail(StartupError::Closed))
    }

    /// Takes bytes of the stream. An initiator waits for the reply before it sends more
    /// (RFC 5044, 7.1.2), so all of them belong to the request.
    pub fn on_bytes(&mut self, bytes: &[u8]) -> Option<Asked> {
        let seen = match &mut self.0 {
            State::Reading { seen, .. } => seen,
            State::Deciding(_) if !bytes.is_empty() => {
                return Some(self.fail(StartupError::Pipelined));
            }
            _ => return None,
        };
        // A byte more than fits tells that the initiator did not wait.
        let room = HEADER_LEN + MAX_PRIVATE + 1 - seen.len();
        seen.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let len = seen.len();
        match Frame::parse(FrameKind::Request, seen) {
            Ok(None) => None,
            Ok(Some((_, end))) if end < len => Some(self.fail(StartupError::Pipelined)),
            Ok(Some((frame, _))) => Some(self.on_request(frame)),
            Err(error) => Some(self.fail(error)),
        }
    }

    fn on_request(&mut self, frame: Frame) -> Asked {
        let said = |number| Some(number).filter(|&n| n != NOT_NEGOTIATED);
        let asked = Asked::Request {
            private: frame.private.clone(),
            ird: frame.words.and_then(|words| said(words.ird)),
            ord: frame.words.and_then(|words| said(words.ord)),
        };
        self.0 = State::Deciding(frame);
        asked
    }

    /// The program accepts. Returns the reply, which is to be sent, and what holds; `None` if no
    /// request waits for an answer.
    ///
    /// # Errors
    /// [`StartupError::PrivateData`] if the program gave too much of it; the request still waits.
    pub fn accept(
        &mut self,
        wishes: &Wishes,
        private: &[u8],
    ) -> Result<Option<(Vec<u8>, Agreement)>, StartupError> {
        check_private(private)?;
        let State::Deciding(request) = &self.0 else {
            return Ok(None);
        };
        let (reply, agreement) = wishes.reply(request, private);
        self.0 = State::Over;
        Ok(Some((reply.emit(), agreement)))
    }

    /// The program refuses. Returns the reply, which is to be sent before the connection is closed;
    /// `None` if no request waits for an answer.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn reject(&mut self, private: &[u8]) -> Result<Option<Vec<u8>>, StartupError> {
        check_private(private)?;
        let State::Deciding(request) = &self.0 else {
            return Ok(None);
        };
        let reply = Frame {
            kind: FrameKind::Reply,
            reject: true,
            markers: false,
            is_ferroce_peer: false,
            is_within_host: false,
            private: private.to_vec(),
            ..request.clone()
        };
        self.0 = State::Over;
        Ok(Some(reply.emit()))
    }

    fn fail(&mut self, error: StartupError) -> Asked {
        self.0 = State::Over;
        Asked::Failed(error)
    }
}

const fn check_private(private: &[u8]) -> Result<(), StartupError> {
    if private.len() > MAX_PROGRAM_DATA {
        return Err(StartupError::PrivateData(private.len()));
    }
    Ok(())
}
