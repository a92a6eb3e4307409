//! The end that connects: it sends the request and reads the reply.

use alloc::vec::Vec;
use core::time::Duration;

use super::agree::{Agreement, Wishes};
use super::frame::{Frame, FrameKind, HEADER_LEN, MAX_PRIVATE, MAX_PROGRAM_DATA, StartupError};
use crate::time::Time;

/// How long a reply may take, as with siw (Linux 6.1 and 6.12).
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// How a set-up ended for the initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The connection stands.
    Accepted {
        /// Terms that both ends have agreed on.
        agreement: Agreement,
        /// The responder's private data.
        private: Vec<u8>,
    },
    /// The responder refused.
    Rejected {
        /// Its private data.
        private: Vec<u8>,
    },
    /// The set-up failed; the connection is to be closed.
    Failed(StartupError),
}

/// A connection whose reply is awaited.
#[derive(Debug)]
pub struct Initiator {
    wishes: Wishes,
    /// The beginning of the reply.
    seen: Vec<u8>,
    /// Until the outcome is known.
    deadline: Option<Time>,
}

impl Initiator {
    /// Begins a set-up. Returns the request, which is to be sent.
    ///
    /// # Errors
    /// [`StartupError::PrivateData`] if the program gave too much of it;
    /// [`StartupError::Revision`] if the wishes have an unknown one.
    pub fn new(now: Time, wishes: Wishes, private: &[u8]) -> Result<(Self, Vec<u8>), StartupError> {
        if private.len() > MAX_PROGRAM_DATA {
            return Err(StartupError::PrivateData(private.len()));
        }
        if !matches!(wishes.revision, 1 | 2) {
            return Err(StartupError::Revision(wishes.revision));
        }
        let request = wishes.request(private).emit();
        let initiator = Self {
            wishes,
            seen: Vec::new(),
            deadline: Some(now + REPLY_TIMEOUT),
        };
        Ok((initiator, request))
    }

    /// When [`on_deadline`](Self::on_deadline) must be called, if ever.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// The deadline has passed (calling it early does nothing).
    pub fn on_deadline(&mut self, now: Time) -> Option<Outcome> {
        self.deadline.filter(|&deadline| deadline <= now)?;
        Some(self.end(Outcome::Failed(StartupError::TimedOut)))
    }

    /// The peer has closed or reset the connection.
    pub fn on_closed(&mut self) -> Option<Outcome> {
        self.deadline?;
        Some(self.end(Outcome::Failed(StartupError::Closed)))
    }

    /// Takes bytes of the stream. Returns how many belong to the reply: the others, after an
    /// accepting reply, are FPDUs.
    pub fn on_bytes(&mut self, bytes: &[u8]) -> (usize, Option<Outcome>) {
        if self.deadline.is_none() {
            return (0, None);
        }
        let before = self.seen.len();
        let room = HEADER_LEN + MAX_PRIVATE - before;
        self.seen.extend_from_slice(&bytes[..bytes.len().min(room)]);
        match Frame::parse(FrameKind::Reply, &self.seen) {
            Ok(None) => (bytes.len(), None),
            Ok(Some((reply, len))) => {
                let outcome = self.on_reply(reply);
                (len.saturating_sub(before), Some(self.end(outcome)))
            }
            Err(error) => (bytes.len(), Some(self.end(Outcome::Failed(error)))),
        }
    }

    fn on_reply(&self, reply: Frame) -> Outcome {
        if reply.reject {
            return Outcome::Rejected {
                private: reply.private,
            };
        }
        if reply.revision != self.wishes.revision {
            return Outcome::Failed(StartupError::NotEnhanced);
        }
        match self.wishes.settle(&reply) {
            Ok(agreement) => Outcome::Accepted {
                agreement,
                private: reply.private,
            },
            Err(error) => Outcome::Failed(error),
        }
    }

    fn end(&mut self, outcome: Outcome) -> Outcome {
        self.deadline = None;
        outcome
    }
}

#[cfg(test)]
mod tests;
