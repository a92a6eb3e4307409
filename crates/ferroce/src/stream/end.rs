//! One end of a stream: what its program asks of it, its counts, and how each direction ended.

mod traffic;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::credits::Credits;
use super::frame::{Form, HEADER, Kind, Offer};
use super::lost::Lost;
use super::room::{Receives, StreamRoom};
use super::wakers::{Role, Wakers};
use crate::endpoint::Connection;
use crate::mem::Buffer;
use crate::qp::PendingBuffer;

/// Whether a direction goes on.
#[derive(Clone, Debug)]
enum Way {
    Open,
    /// The end was sent or came.
    Ended,
    /// The connection was lost, or the peer broke a rule.
    Lost(io::ErrorKind, Lost),
}

impl Way {
    fn lose(&mut self, kind: io::ErrorKind, reason: &Lost) {
        if matches!(self, Self::Open) {
            *self = Self::Lost(kind, reason.clone());
        }
    }
}

pub(super) struct End {
    connection: Arc<Connection>,
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
    /// Whether data that comes is read for nobody.
    discards: bool,
    wakers: Arc<Wakers>,
    /// Of `wakers`.
    waker: Waker,
    /// Whether the tasks are to be woken, once no lock is held.
    wakes: bool,
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
            connection: Arc::new(connection),
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
            discards: false,
            waker: Waker::from(Arc::clone(&wakers)),
            wakers,
            wakes: false,
        }
    }

    /// Its tasks.
    pub(super) fn wakers(&self) -> &Arc<Wakers> {
        &self.wakers
    }

    /// Acts for a task, which is woken when there is something to do. No lock is held: wakers are
    /// anyone's code.
    pub(super) fn act_for<R>(
        &mut self,
        role: Role,
        context: &Context<'_>,
        act: impl FnOnce(&mut Self) -> R,
    ) -> R {
        self.wakers.set(role, context);
        self.progress();
        let done = act(self);
        self.wake();
        done
    }

    /// Wakes the tasks, if they are to be woken. No lock is held.
    pub(super) fn wake(&mut self) {
        if self.must_wake() {
            self.waker.wake_by_ref();
        }
    }

    /// Whether the tasks are to be woken now.
    pub(super) fn must_wake(&mut self) -> bool {
        std::mem::take(&mut self.wakes)
    }

    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Bytes of one message at most, to the peer.
    pub(super) fn longest(&self) -> usize {
        self.bytes
    }

    /// The bytes that are there; none at the end.
    pub(super) fn poll_fill(&self) -> Poll<io::Result<&[u8]>> {
        self.poll_message().map_ok(Option::unwrap_or_default)
    }

    /// What was not taken of the oldest message; `None` at the end.
    pub(super) fn poll_message(&self) -> Poll<io::Result<Option<&[u8]>>> {
        if let Some(buffer) = self.arrived.front() {
            return Poll::Ready(Ok(Some(&buffer[self.position..])));
        }
        match &self.reading {
            Way::Open => Poll::Pending,
            Way::Ended => Poll::Ready(Ok(None)),
            Way::Lost(kind, reason) => Poll::Ready(Err(reason.error(*kind))),
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

    /// Reads for nobody from now on: what is there and what comes takes no room of the peer's.
    pub(super) fn discard(&mut self) {
        self.discards = true;
        while !self.arrived.is_empty() {
            self.consume(usize::MAX);
        }
    }

    /// Sends as many of the bytes as one message takes, and tells how many.
    pub(super) fn poll_write(&mut self, from: &[u8]) -> Poll<io::Result<usize>> {
        let count = from.len().min(self.bytes);
        if count > 0 {
            return self.poll_send(&from[..count]).map_ok(|()| count);
        }
        self.writable()?;
        Poll::Ready(Ok(0))
    }

    /// Sends bytes as one message, for which they must not be too many.
    pub(super) fn poll_send(&mut self, message: &[u8]) -> Poll<io::Result<()>> {
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
    pub(super) fn poll_flush(&mut self) -> Poll<io::Result<()>> {
        let waiting = self.sending.iter().any(|(kind, _)| *kind != Kind::Count);
        match &self.writing {
            _ if waiting => Poll::Pending,
            Way::Lost(kind, reason) if !self.delivered => Poll::Ready(Err(reason.error(*kind))),
            _ => Poll::Ready(Ok(())),
        }
    }

    pub(super) fn poll_close(&mut self) -> Poll<io::Result<()>> {
        // To a peer that has closed and gone there is nothing to say.
        if !matches!(self.reading, Way::Ended) {
            self.not_lost()?;
        }
        if matches!(self.writing, Way::Open) {
            let end = self.connection.buffer(HEADER).map_err(io::Error::from)?;
            self.send(Kind::End, end);
            if matches!(self.writing, Way::Open) {
                self.writing = Way::Ended;
            }
            // Its completion wakes.
            self.progress();
        }
        self.poll_flush()
    }

    /// Ends the connection, with what is on its way.
    pub(super) fn abort(&mut self) {
        self.lose(&Lost::new("the connection was aborted at this end"));
        self.connection.abort();
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
            Way::Lost(kind, reason) => Err(reason.error(*kind)),
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
            .map_err(io::Error::from)?;
        self.unmade -= 1;
        Ok(Some(new))
    }
}
