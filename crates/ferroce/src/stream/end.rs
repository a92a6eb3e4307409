//! One end of a stream: its messages on the way, its counts, and how each direction ended.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::credits::{Credits, SPARE};
use super::frame::{self, Form, HEADER, Kind, Offer};
use super::room::{Receives, StreamRoom};
use super::wakers::{Role, Wakers};
use crate::cq::{Done, WorkError};
use crate::endpoint::Connection;
use crate::mem::Buffer;
use crate::qp::{Operation, PendingBuffer};

/// Messages besides data that are on their way at most: two counts and the end.
const CONTROL: usize = SPARE as usize;

/// Whether a direction goes on.
#[derive(Clone, Debug)]
enum Way {
    Open,
    /// The end was sent or came.
    Ended,
    /// The connection was lost, or the peer broke a rule.
    Lost(io::ErrorKind, String),
}

impl Way {
    fn lose(&mut self, kind: io::ErrorKind, reason: &str) {
        if matches!(self, Self::Open) {
            *self = Self::Lost(kind, reason.to_owned());
        }
    }
}

pub(super) struct End {
    connection: Connection,
    form: Form,
    credits: Credits,
    receiving: Receives,
    /// Data that came and was not read to its end, oldest first, and how far the oldest was.
    arrived: VecDeque<Buffer>,
    position: usize,
    sending: VecDeque<(Kind, PendingBuffer)>,
    free: Vec<Buffer>,
    control: Vec<Buffer>,
    /// Buffers for data that may still be made.
    unmade: u16,
    /// Data bytes of one message to the peer.
    bytes: usize,
    reading: Way,
    writing: Way,
    /// Whether all data that was sent is with the peer, as far as it is known.
    delivered: bool,
    wakers: Arc<Wakers>,
    /// Of `wakers`.
    waker: Waker,
}

impl End {
    pub(super) fn new(
        connection: Connection,
        receiving: Receives,
        room: StreamRoom,
        (form, peer): (Form, Offer),
    ) -> Self {
        let wakers = Arc::new(Wakers::default());
        Self {
            connection,
            form,
            credits: Credits::new(room.buffers, peer.buffers),
            receiving,
            arrived: VecDeque::new(),
            position: HEADER,
            sending: VecDeque::new(),
            free: Vec::new(),
            control: Vec::new(),
            unmade: room.buffers,
            bytes: room.bytes.min(peer.bytes) as usize,
            reading: Way::Open,
            writing: Way::Open,
            delivered: true,
            waker: Waker::from(Arc::clone(&wakers)),
            wakers,
        }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Bytes of one message at most, to the peer.
    pub(super) fn longest(&self) -> usize {
        self.bytes
    }

    /// The bytes that are there; none at the end.
    pub(super) fn poll_fill(&mut self, context: &Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.poll_message(context).map_ok(Option::unwrap_or_default)
    }

    /// What was not taken of the oldest message; `None` at the end.
    pub(super) fn poll_message(
        &mut self,
        context: &Context<'_>,
    ) -> Poll<io::Result<Option<&[u8]>>> {
        self.wakers.set(Role::Reader, context);
        self.progress();
        if let Some(buffer) = self.arrived.front() {
            return Poll::Ready(Ok(Some(&buffer[self.position..])));
        }
        match &self.reading {
            Way::Open => Poll::Pending,
            Way::Ended => Poll::Ready(Ok(None)),
            Way::Lost(kind, reason) => Poll::Ready(Err(io::Error::new(*kind, reason.clone()))),
        }
    }

    /// Takes bytes of those that are there.
    pub(super) fn consume(&mut self, count: usize) {
        let Some(buffer) = self.arrived.front() else {
            return;
        };
        self.position = self.position.saturating_add(count).min(buffer.len());
        if self.position == buffer.len()
            && let Some(buffer) = self.arrived.pop_front()
        {
            self.position = HEADER;
            self.repost(buffer);
            self.credits.read();
            self.tell();
        }
    }

    /// Sends as many of the bytes as one message takes, and tells how many.
    pub(super) fn poll_write(
        &mut self,
        context: &Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = from.len().min(self.bytes);
        if count > 0 {
            return self.poll_send(context, &from[..count]).map_ok(|()| count);
        }
        self.wakers.set(Role::Writer, context);
        self.progress();
        self.writable()?;
        Poll::Ready(Ok(0))
    }

    /// Sends bytes as one message, for which they must not be too many.
    pub(super) fn poll_send(
        &mut self,
        context: &Context<'_>,
        message: &[u8],
    ) -> Poll<io::Result<()>> {
        self.wakers.set(Role::Writer, context);
        self.progress();
        self.writable()?;
        if !self.credits.may_send() {
            return Poll::Pending;
        }
        let Some(mut buffer) = self.free_buffer()? else {
            return Poll::Pending;
        };
        buffer
            .set_len(HEADER + message.len())
            .expect("invariant: made with this room");
        buffer[HEADER..].copy_from_slice(message);
        self.credits.send();
        self.send(Kind::Data, buffer);
        self.writable()?;
        Poll::Ready(Ok(()))
    }

    /// Ready when nothing of the stream is on its way.
    pub(super) fn poll_flush(&mut self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.wakers.set(Role::Writer, context);
        self.progress();
        let waiting = self.sending.iter().any(|(kind, _)| *kind != Kind::Count);
        match &self.writing {
            _ if waiting => Poll::Pending,
            Way::Lost(kind, reason) if !self.delivered => {
                Poll::Ready(Err(io::Error::new(*kind, reason.clone())))
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    pub(super) fn poll_close(&mut self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.wakers.set(Role::Writer, context);
        self.progress();
        // To a peer that has closed and gone there is nothing to say.
        if !matches!(self.reading, Way::Ended) {
            self.not_lost()?;
        }
        if matches!(self.writing, Way::Open) {
            let end = self.connection.buffer(HEADER).map_err(io::Error::other)?;
            self.send(Kind::End, end);
            if matches!(self.writing, Way::Open) {
                self.writing = Way::Ended;
            }
        }
        self.poll_flush(context)
    }

    /// Whether data may be written.
    fn writable(&self) -> io::Result<()> {
        if matches!(self.writing, Way::Ended) {
            return Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "this direction of the stream was closed",
            ));
        }
        self.not_lost()
    }

    fn not_lost(&self) -> io::Result<()> {
        match &self.writing {
            Way::Lost(kind, reason) => Err(io::Error::new(*kind, reason.clone())),
            _ => Ok(()),
        }
    }

    /// A buffer for data, if one is left.
    fn free_buffer(&mut self) -> io::Result<Option<Buffer>> {
        if let Some(buffer) = self.free.pop() {
            return Ok(Some(buffer));
        }
        if self.unmade == 0 {
            return Ok(None);
        }
        let new = self
            .connection
            .buffer(HEADER + self.bytes)
            .map_err(io::Error::other)?;
        self.unmade -= 1;
        Ok(Some(new))
    }

    /// Takes what the endpoint has brought, in both directions.
    fn progress(&mut self) {
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
                Err(e) => self.lose(&format!("the connection ended: {e}")),
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
            let reason = format!("the connection ended before the peer had all: {e}");
            if needed && matches!(self.writing, Way::Ended) {
                self.writing = Way::Open;
            }
            self.writing.lose(io::ErrorKind::BrokenPipe, &reason);
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
                let reason = "the peer sent what no stream sends";
                self.reading.lose(io::ErrorKind::InvalidData, reason);
                self.writing.lose(io::ErrorKind::InvalidData, reason);
            }
        }
    }

    /// Whether a data message may be like this: a stream has no empty ones.
    fn takes(&self, message: &Buffer) -> bool {
        self.form == Form::Channel || message.len() > HEADER
    }

    /// The queue pair does no more work.
    fn lose(&mut self, reason: &str) {
        self.reading.lose(io::ErrorKind::ConnectionReset, reason);
        self.writing.lose(io::ErrorKind::BrokenPipe, reason);
        // It may have been found by the task in the other direction.
        self.waker.wake_by_ref();
    }

    /// Posts a receive again.
    fn repost(&mut self, mut buffer: Buffer) {
        let capacity = buffer.capacity();
        buffer
            .set_len(capacity)
            .expect("invariant: as long as it can be");
        match self.connection.queue_pair().receive_buffer(buffer) {
            Ok(pending) => self.receiving.push_back(pending),
            Err(refused) => self.lose(&refused.to_string()),
        }
    }

    /// Tells the peer what was read, if it should be told now.
    fn tell(&mut self) {
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
            Err(e) => self.lose(&e.to_string()),
        }
    }

    /// Sends a message whose header is still to be written.
    fn send(&mut self, kind: Kind, mut buffer: Buffer) {
        buffer[..HEADER].copy_from_slice(&frame::header(kind, self.credits.tell()));
        match self
            .connection
            .queue_pair()
            .submit_buffer(Operation::Send, buffer)
        {
            Ok(pending) => self.sending.push_back((kind, pending)),
            Err(refused) => {
                self.delivered &= kind == Kind::Count;
                self.writing
                    .lose(io::ErrorKind::BrokenPipe, &refused.to_string());
            }
        }
    }
}
