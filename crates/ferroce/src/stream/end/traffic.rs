//! The messages of an end that are on their way.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::super::credits::SPARE;
use super::super::frame::{self, Form, HEADER, Kind};
use super::super::lost::Lost;
use super::{End, Way};
use crate::cq::{Done, WorkError};
use crate::mem::Buffer;
use crate::qp::Operation;

/// Messages besides data that are on their way at most: two counts and the end.
const CONTROL: usize = SPARE as usize;

impl End {
    /// Takes what the endpoint has brought, in both directions. The tasks are woken by what comes
    /// next.
    pub(in crate::stream) fn progress(&mut self) {
        let waker = self.waker.clone();
        let mut context = Context::from_waker(&waker);
        self.take_received(&mut context);
        while let Some((kind, pending)) = self.sending.front_mut() {
            let Poll::Ready((result, buffer)) = Pin::new(pending).poll(&mut context) else {
                break;
            };
            let kind = *kind;
            self.sending.pop_front();
            if result.is_err() {
                // The peer's end may have come just before: it tells whether the failure matters.
                self.take_received(&mut context);
            }
            self.sent(kind, result, buffer);
        }
        if self.discards {
            self.discard();
        }
        self.tell();
    }

    fn take_received(&mut self, context: &mut Context<'_>) {
        while let Some(pending) = self.receiving.front_mut() {
            let Poll::Ready((result, buffer)) = Pin::new(pending).poll(context) else {
                break;
            };
            self.receiving.pop_front();
            match result {
                Ok(_) => self.receive(buffer),
                Err(e) => self.lose(&Lost::by(e)),
            }
        }
    }

    /// A message of this end has completed.
    fn sent(&mut self, kind: Kind, result: Result<Done, WorkError>, buffer: Buffer) {
        match kind {
            Kind::Data => self.free.push(buffer),
            Kind::Count => self.control.push(buffer),
            Kind::End => {}
        }
        if let Err(e) = result {
            // A peer that has closed and gone needs neither counts nor the end.
            let needed =
                kind == Kind::Data || (kind == Kind::End && !matches!(self.reading, Way::Ended));
            self.delivered &= !needed;
            if needed && matches!(self.writing, Way::Ended) {
                self.writing = Way::Open;
            }
            self.writing.lose(io::ErrorKind::BrokenPipe, &Lost::by(e));
        }
    }

    /// A message of the peer has come.
    fn receive(&mut self, buffer: Buffer) {
        let parsed = frame::parse(&buffer).filter(|&(_, count)| self.credits.hear(count));
        let open = matches!(self.reading, Way::Open);
        match parsed.map(|(kind, _)| kind) {
            Some(Kind::Data) if open && self.takes(&buffer) => self.arrived.push_back(buffer),
            Some(Kind::Count) => self.repost(buffer),
            Some(Kind::End) if open => self.reading = Way::Ended,
            _ => {
                let reason = Lost::new("the peer sent what no stream sends");
                self.reading.lose(io::ErrorKind::InvalidData, &reason);
                self.writing.lose(io::ErrorKind::InvalidData, &reason);
            }
        }
    }

    /// Whether a data message may be like this: a stream has no empty ones.
    fn takes(&self, message: &Buffer) -> bool {
        self.form == Form::Channel || message.len() > HEADER
    }

    /// The queue pair does no more work.
    pub(super) fn lose(&mut self, reason: &Lost) {
        self.reading.lose(io::ErrorKind::ConnectionReset, reason);
        self.writing.lose(io::ErrorKind::BrokenPipe, reason);
        // It may have been found by the task in the other direction.
        self.wakes = true;
    }

    /// Posts a receive again.
    pub(super) fn repost(&mut self, mut buffer: Buffer) {
        let capacity = buffer.capacity();
        buffer
            .set_len(capacity)
            .expect("invariant: as long as it can be");
        match self.connection.queue_pair().receive_buffer(buffer) {
            Ok(pending) => self.receiving.push_back(pending),
            Err(refused) => self.lose(&Lost::because(refused.error)),
        }
    }

    /// Tells the peer what was read, if it should be told now.
    pub(super) fn tell(&mut self) {
        let counts = self.sending.iter().filter(|(kind, _)| *kind == Kind::Count);
        // A peer that has ended its direction needs no room.
        let pointless = !matches!(self.reading, Way::Open) || matches!(self.writing, Way::Lost(..));
        if pointless || !self.credits.should_tell() || counts.count() >= CONTROL - 1 {
            return;
        }
        let buffer = match self.control.pop() {
            Some(buffer) => Ok(buffer),
            None => self.connection.buffer(HEADER),
        };
        match buffer {
            Ok(buffer) => self.send(Kind::Count, buffer),
            Err(e) => self.lose(&Lost::because(e)),
        }
    }

    /// Sends a message whose header is still to be written.
    pub(super) fn send(&mut self, kind: Kind, mut buffer: Buffer) {
        buffer[..HEADER].copy_from_slice(&frame::header(kind, self.credits.tell()));
        match self
            .connection
            .queue_pair()
            .submit_buffer(Operation::Send, buffer)
        {
            Ok(pending) => self.sending.push_back((kind, pending)),
            Err(refused) => {
                self.delivered &= kind == Kind::Count;
                let reason = Lost::because(refused.error);
                self.writing.lose(io::ErrorKind::BrokenPipe, &reason);
            }
        }
    }
}
