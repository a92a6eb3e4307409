//! A stream: both directions, and what ends them.

use super::connection::ConnectionData;
use super::incoming::IncomingBytes;
use super::message::{Control, Message};
use super::outgoing::{OutgoingBytes, Sizes};

/// What a peer did that the protocol does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamViolation {
    /// Data without room for it.
    #[error("the peer announced {sent} bytes where it had been given {room}")]
    Room {
        /// Bytes that it announced.
        sent: u32,
        /// Bytes that it could write.
        room: u32,
    },
    /// More messages than it had credits for.
    #[error("the peer sent more than the {0} messages that it had been given")]
    Credits(u16),
}

/// Which directions a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// The program reads no more.
    Read,
    /// The program writes no more.
    Write,
    /// Both.
    Both,
}

/// State of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Open,
    /// The program ended it.
    ByUs,
    /// The peer ended it.
    ByPeer,
}

/// The stream of a connection.
#[derive(Debug)]
pub struct Stream {
    /// What is sent.
    pub outgoing: OutgoingBytes,
    /// What is received.
    pub incoming: IncomingBytes,
    reading: Side,
    writing: Side,
    /// The peer may have written a target to the list.
    list_changed: bool,
}

impl Stream {
    /// A stream to the peer that has said `peer`. This side has said that its ring has two halves
    /// of `half` bytes, and `credits`.
    #[must_use]
    pub fn new(sizes: Sizes, half: u32, credits: u16, peer: &ConnectionData) -> Self {
        Self {
            outgoing: OutgoingBytes::new(sizes, peer.buffer, peer.credits),
            incoming: IncomingBytes::new(half, credits),
            reading: Side::Open,
            writing: Side::Open,
            list_changed: false,
        }
    }

    /// A message came.
    ///
    /// # Errors
    /// The peer broke the protocol; the connection is of no use any more.
    pub fn on_message(&mut self, message: Message) -> Result<(), StreamViolation> {
        match message {
            Message::Data(length) => self.incoming.on_data(length)?,
            Message::Update { limit } => {
                self.outgoing.set_limit(limit);
                self.list_changed = true;
            }
            Message::Iomap(_) => self.incoming.count_done(),
            Message::Control(Control::Disconnect) => self.on_disconnect(),
            Message::Control(Control::Shutdown) => {
                close(&mut self.reading, Side::ByPeer);
            }
            Message::Control(Control::KeepAlive | Control::Other(_)) => {}
        }
        Ok(())
    }

    fn on_disconnect(&mut self) {
        close(&mut self.reading, Side::ByPeer);
        close(&mut self.writing, Side::ByPeer);
    }

    /// The element of the list to look at for a target, if one is needed and may be there.
    #[must_use]
    pub fn wants_target(&self) -> Option<usize> {
        self.outgoing.wants_target().filter(|_| self.list_changed)
    }

    /// Takes note that the element of [`wants_target`](Self::wants_target) holds no target yet.
    pub fn no_target(&mut self) {
        self.list_changed = false;
    }

    /// The program ends directions. Returns the message that the peer is to get.
    pub fn shutdown(&mut self, how: Shutdown) -> Option<Control> {
        let (was_reading, was_writing) = (self.is_reading(), self.is_writing());
        if how != Shutdown::Write {
            close(&mut self.reading, Side::ByUs);
        }
        if how != Shutdown::Read {
            close(&mut self.writing, Side::ByUs);
        }
        if !self.is_open() && (was_reading || was_writing) {
            Some(Control::Disconnect)
        } else if was_writing && !self.is_writing() {
            Some(Control::Shutdown)
        } else {
            None
        }
    }

    /// Whether more can come.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        self.reading == Side::Open
    }

    /// Whether the peer said that no more comes.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.reading == Side::ByPeer
    }

    /// Whether the program may write.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.writing == Side::Open
    }

    /// Whether any direction is left.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_reading() || self.is_writing()
    }

    /// Whether it was the program that ended its writing.
    #[must_use]
    pub fn has_shut_writing(&self) -> bool {
        self.writing == Side::ByUs
    }
}

/// Ends a direction, unless it has ended already.
fn close(side: &mut Side, by: Side) {
    if *side == Side::Open {
        *side = by;
    }
}
