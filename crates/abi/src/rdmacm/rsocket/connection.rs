//! The data of a connected stream: sending, receiving, and what ends it.

use std::sync::{Mutex, MutexGuard};

use ferroce_proto::rsocket::outgoing::Sizes;
use ferroce_proto::rsocket::{
    ByteOrder, ConnectionData, Control, Message, Shutdown, Stream, Target,
};
use libc::c_int;

use super::endpoint::{Completion, Polled, StreamEndpoint};
use super::errno::{Errno, Result};
use super::io::Io;
use super::iomap::Iomaps;
use super::post::{Payload, Remote};
use super::wait::Waiters;
use crate::rdmacm::lock;
use crate::types::IBV_WC_RETRY_EXC_ERR;

/// Most bytes that go inline, whatever a program asks for.
pub(super) const MAX_INLINE: u32 = 256;
/// On iWARP, where what comes without a receive ends the connection: credits that are left unused,
/// since librdmacm's control messages and updates take receives that it has given credits for.
const IWARP_SPARE: u16 = 8;

/// A connected stream.
#[derive(Debug)]
pub(super) struct Connection {
    io: Mutex<Io>,
    /// The list in which the peer looks for targets.
    peer_list: Remote,
    peer_order: ByteOrder,
    pub(super) endpoint: StreamEndpoint,
}

impl Connection {
    /// The connection over `endpoint` to the peer that said `peer`.
    pub(super) fn new(endpoint: StreamEndpoint, peer: &ConnectionData) -> Self {
        let sizes = *endpoint.sizes();
        let mut given = *peer;
        if endpoint.is_iwarp() {
            given.credits = given.credits.saturating_sub(IWARP_SPARE);
        }
        let send = Sizes {
            ring: sizes.send_ring,
            queue: sizes.send_queue,
            inline: sizes.inline,
        };
        let stream = Stream::new(send, sizes.half, sizes.credits, &given);
        Self {
            io: Mutex::new(Io::new(stream, Iomaps::new(peer))),
            peer_list: Remote {
                address: peer.list.address,
                key: peer.list.key,
            },
            peer_order: peer.order,
            endpoint,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Io> {
        lock(&self.io)
    }

    pub(super) fn peer_list(&self) -> Remote {
        self.peer_list
    }

    pub(super) fn peer_order(&self) -> ByteOrder {
        self.peer_order
    }

    /// Takes what has completed, and tells the peer what it is owed. Sleeping threads are told if
    /// there was anything.
    pub(super) fn process(&self, io: &mut Io, waiters: &Waiters) {
        let polled = self
            .endpoint
            .poll(|completion| self.on_completion(io, completion, waiters));
        match polled {
            Ok(Polled::Nothing) => {}
            Ok(Polled::All) => waiters.wake_others(),
            // The armed queue says nothing of what it holds already, so no thread may sleep now.
            Ok(Polled::Part) => waiters.wake_all(),
            Err(error) => io.fail(error, waiters),
        }
        self.update(io, waiters);
    }

    fn on_completion(&self, io: &mut Io, completion: Completion, waiters: &Waiters) {
        match completion {
            Completion::Sent => io.stream.outgoing.on_completed(),
            Completion::Received(message) => {
                let message = self.with_spare(message);
                if let Err(violation) = io.stream.on_message(message) {
                    tracing::warn!(target: "ferroce::rdmacm", "an rsocket's connection ends: {violation}");
                    io.fail(Errno(libc::ECONNRESET), waiters);
                }
            }
            Completion::Failed(IBV_WC_RETRY_EXC_ERR) => {
                io.fail(Errno(libc::ETIMEDOUT), waiters);
            }
            Completion::Failed(_) => io.fail(Errno(libc::ECONNRESET), waiters),
        }
    }

    /// See [`IWARP_SPARE`].
    fn with_spare(&self, message: Message) -> Message {
        match message {
            Message::Update { limit } if self.endpoint.is_iwarp() => Message::Update {
                limit: limit.wrapping_sub(IWARP_SPARE),
            },
            other => other,
        }
    }

    /// Tells the peer of room and credits, if that is due.
    pub(super) fn update(&self, io: &mut Io, waiters: &Waiters) {
        // A peer that is told nothing more may be gone.
        if io.is_over() || !io.stream.is_open() {
            return;
        }
        if !io.stream.incoming.owes_update() || !io.stream.outgoing.take_control() {
            return;
        }
        let Some(update) = io.stream.incoming.take_update() else {
            return;
        };
        let message = Message::Update {
            limit: update.limit,
        };
        let posted = match update.half {
            None => self.post_bare(message),
            Some(half) => {
                let target = Target {
                    address: self.endpoint.receive.address(half.offset as usize),
                    key: self.endpoint.receive.remote_key(),
                    length: self.endpoint.sizes().half,
                };
                let slot = (half.slot * Target::LEN) as u64;
                let remote = Remote {
                    address: self.peer_list.address.wrapping_add(slot),
                    key: self.peer_list.key,
                };
                let bytes = target.to_bytes(self.peer_order);
                self.endpoint
                    .post_message(message, remote, Payload::Inline(&bytes))
            }
        };
        io.note(posted, waiters);
    }

    fn post_bare(&self, message: Message) -> Result<()> {
        self.endpoint
            .post_message(message, Remote::default(), Payload::Inline(&[]))
    }

    /// Looks for the peer's next target, if there is none.
    pub(super) fn fetch_target(&self, io: &mut Io) {
        let Some(slot) = io.stream.wants_target() else {
            return;
        };
        let at = self.endpoint.sizes().list_at() + slot * Target::LEN;
        match self.endpoint.receive.take_target(at) {
            Target { length: 0, .. } => io.stream.no_target(),
            target => io.stream.outgoing.set_target(target),
        }
    }

    /// What can be done without waiting, of what is asked for (`poll(2)`).
    pub(super) fn revents(&self, events: i16, waiters: &Waiters) -> i16 {
        let mut io = self.lock();
        self.process(&mut io, waiters);
        self.fetch_target(&mut io);
        let mut revents = 0;
        let at_end = io.is_over() || !io.stream.is_reading();
        let is_drained = io.stream.incoming.unread() == 0;
        if !is_drained || at_end {
            revents |= libc::POLLIN | libc::POLLRDNORM;
        }
        if at_end {
            revents |= libc::POLLRDHUP;
        }
        if io.is_over() || !io.stream.is_writing() || io.stream.outgoing.is_writable() {
            revents |= libc::POLLOUT | libc::POLLWRNORM;
        }
        // Programs take both for the end, so they come after the last byte, as behind a FIN of TCP.
        let mut always = 0;
        if is_drained && io.has_error() {
            always |= libc::POLLERR;
        }
        if is_drained && (io.is_over() || (at_end && !io.stream.is_writing())) {
            always |= libc::POLLHUP;
        }
        revents & events | always
    }

    /// Ends directions for the program, and tells the peer. `false`: it cannot be told yet.
    pub(super) fn try_shutdown(&self, how: Shutdown, waiters: &Waiters) -> bool {
        let mut io = self.lock();
        if !io.is_over() && !io.stream.outgoing.has_control() {
            self.process(&mut io, waiters);
            if !io.is_over() && !io.stream.outgoing.has_control() {
                return false;
            }
        }
        if let Some(control) = io.stream.shutdown(how) {
            self.send_control(&mut io, control, waiters);
        }
        waiters.wake_others();
        true
    }

    fn send_control(&self, io: &mut Io, control: Control, waiters: &Waiters) {
        if !io.is_over() && io.stream.outgoing.take_control() {
            let posted = self.post_bare(Message::Control(control));
            io.note(posted, waiters);
        }
    }

    /// Whether all that was sent has arrived, or never will.
    pub(super) fn is_flushed(&self, waiters: &Waiters) -> bool {
        let mut io = self.lock();
        self.process(&mut io, waiters);
        io.is_over() || io.stream.outgoing.is_idle()
    }

    /// The connection manager says that the connection is over.
    pub(super) fn on_disconnected(&self, waiters: &Waiters) {
        let mut io = self.lock();
        self.process(&mut io, waiters);
        // A peer that has said that it ends may go.
        let said = !io.stream.is_reading();
        io.end((!said).then_some(Errno(libc::ECONNRESET)), waiters);
        drop(io);
        self.endpoint.id().disconnect();
    }

    /// Ends the connection for the program.
    pub(super) fn cut(&self, waiters: &Waiters) {
        self.lock().end(None, waiters);
        self.endpoint.id().disconnect();
    }

    /// Sends a WRITE of nothing, which only the device of the peer answers.
    pub(super) fn keep_alive(&self, waiters: &Waiters) {
        let mut io = self.lock();
        if !io.is_over() && io.stream.outgoing.is_idle() && io.stream.outgoing.take_control() {
            let posted = self
                .endpoint
                .post_write(Remote::default(), Payload::Inline(&[]));
            io.note(posted, waiters);
        }
    }

    /// `SO_ERROR`.
    pub(super) fn take_error(&self) -> c_int {
        self.lock().take_error().map_or(0, |Errno(errno)| errno)
    }
}
