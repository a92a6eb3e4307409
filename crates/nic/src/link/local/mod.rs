//! The local link: packets between processes of one network namespace, over Unix sockets with
//! abstract names.
//!
//! Every process owns a *process slot*, a number from 1 to 1023, by listening on the abstract name
//! `ferroce/slot/<n>`. The kernel makes it exclusive and frees it when the process ends, however it
//! ends. [`slots`] has what becomes of names that others squat on. A link goes one way: process A
//! connects to B's slot and only A sends on that connection; B's answers go out on B's own link to
//! A. [`LocalLinks`] makes the outgoing links, [`Incoming`] accepts and reads those of others.
//!
//! A link is lossless and keeps the order. When it is full it says
//! [`Sent::Blocked`](super::Sent::Blocked), and the sender waits for its descriptor to become
//! writable; receivers always read, so no cycle of waiting can arise. When the process at the other
//! end is gone, the link hangs up.
//!
//! The records of a link go through a ring in shared memory ([`way`], [`rings`]), where the system
//! has such memory and the peer is of our user, and over the socket otherwise. Small messages of
//! busy queue pairs go beside it, in its [`short_rings`].
//!
//! Nothing that comes in is trusted (see [`frame`] and [`Incoming`]).

mod accepted;
mod attributes;
mod extras;
mod frame;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod incoming;
mod late_wake;
mod lending;
mod local_frame;
mod outgoing;
mod packets;
mod quota;
mod rings;
mod sharing;
mod short_rings;
mod slots;
mod way;

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::environment::is_off;
use ferroce_os::unix::Identity;

use accepted::LinkPolicy;
pub(crate) use accepted::is_vouched;
pub(crate) use attributes::{Encoded, decode as decode_attributes, encode as encode_attributes};
#[cfg(feature = "fuzzing")]
pub use frame::fuzz as fuzz_record;
pub(crate) use frame::{Frame, QUESTION, ShortRingEvent, ShortRingNotice};
#[cfg(feature = "fuzzing")]
pub use fuzz::run as fuzz_strangers;
pub(crate) use incoming::{Accepted, Incoming, LinkRead};
pub(crate) use late_wake::LateWake;
pub(crate) use lending::{LendAnswer, Lending};
pub(crate) use local_frame::LocalFrame;
use outgoing::LinkSlots;
pub(crate) use outgoing::Outgoing;
pub(crate) use quota::foreign_room;
pub(crate) use sharing::{Sharing, SharingRequest};
pub(crate) use slots::slot_number;
use way::Room;

use crate::Error;
use crate::base::counters::Counters;
use crate::base::sync::lock;
use crate::services::direct::Board;

/// Slots that a network namespace has, numbered from 1: ten bits of every queue pair number and
/// key.
const SLOTS: u16 = 1023;

/// Packets from the wire that a notice stands for: as many were passed on, and nobody wanted them.
pub(crate) const RETURNED: usize = 64;

/// All abstract names of Ferroce begin so.
pub(crate) const NAMES: &str = "ferroce/";

/// Send buffer asked for, per link; the kernel gives at most `net.core.wmem_max` (and counts
/// double).
const SEND_BUFFER: usize = 1 << 20;

/// Bytes of the ring of a link: several of the longest records, and little enough to stay in a
/// processor's cache.
const RING: u32 = 256 << 10;

/// Hellos that a peer may turn away before it counts as gone.
const HELLOS: usize = 3;

/// What the abstract names by which processes own their slots begin with, of those that begin with
/// `names`.
pub(crate) fn slot_names(names: &str) -> String {
    format!("{names}slot/")
}

/// Why there is no link to a slot.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// No process owns the slot.
    #[error("no process owns slot {0}")]
    NoSuchProcess(u16),
    /// The owner is there but the link cannot be made now: out of descriptors, or too many wait to
    /// be accepted.
    #[error("no link to slot {slot} for now: {error}")]
    NotNow {
        /// The slot.
        slot: u16,
        /// Error of the kernel.
        error: io::Error,
    },
}

/// The outgoing links of this process, one per slot, and its own slot.
#[derive(Debug)]
pub(crate) struct LocalLinks {
    slot: u16,
    room: Room,
    identity: Identity,
    /// No link leads to another user's process.
    own_user: bool,
    /// Board that every link offers.
    board: Option<Arc<Board>>,
    /// A path that uses a link keeps it: a link that nobody holds is closed.
    links: Mutex<HashMap<u16, Weak<Outgoing>>>,
}

impl LocalLinks {
    /// Claims a free slot, chosen at random: numbers of a process that is gone should not soon mean
    /// another.
    ///
    /// # Errors
    /// ENOSPC when all slots are taken; what the kernel says if it refuses such sockets.
    pub(crate) fn claim(
        counters: &Arc<Counters>,
        own_user: bool,
    ) -> Result<(Self, Incoming), Error> {
        let ring = if is_off("FERROCE_RINGS") {
            Err("FERROCE_RINGS=off")
        } else {
            Ok(RING)
        };
        let short_rings = !is_off("FERROCE_SHORT_RINGS");
        let room = Room {
            send_buffer: SEND_BUFFER,
            ring,
            short_rings,
        };
        Self::claim_with(room, own_user, counters)
    }

    fn claim_with(
        room: Room,
        own_user: bool,
        counters: &Arc<Counters>,
    ) -> Result<(Self, Incoming), Error> {
        let identity = Identity::read();
        let (slot, listener) = slots::claim(identity)?;
        let policy = LinkPolicy {
            identity,
            short_rings: room.short_rings,
            own_user,
        };
        let incoming = Incoming::new(listener, policy, Arc::clone(counters))
            .map_err(|e| Error::system("cannot receive from other processes", &e))?;
        Ok((
            Self {
                slot,
                room,
                identity,
                own_user,
                board: None,
                links: Mutex::default(),
            },
            incoming,
        ))
    }

    /// From now on every link offers the board.
    pub(crate) fn offer_board(&mut self, board: Option<&Arc<Board>>) {
        self.board = board.cloned();
    }

    /// How this process tells users apart.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether links are offered a ring, and why not.
    pub(crate) fn offers_rings(&self) -> Result<(), String> {
        way::ring(self.room).map(drop)
    }

    /// This process's slot.
    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    /// The link to the process that owns a slot now, this one included. Made at the first call and
    /// shared. A link whose peer is gone is replaced, since the slot may have a new owner. A
    /// process that has a conversation with the old one must hold on to the link that it began
    /// with. Waits as long as `patience` where too many others wait to be accepted.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub(crate) fn connect(
        &self,
        slot: u16,
        patience: Duration,
    ) -> Result<Arc<Outgoing>, ConnectError> {
        let mut links = lock(&self.links);
        let known = links.get(&slot).and_then(Weak::upgrade);
        if let Some(link) = known.filter(|l| !l.is_dead() && !l.has_hung_up()) {
            return Ok(link);
        }
        links.remove(&slot);
        let link = open_again(slot, patience, |left| self.open(slot, left))?;
        let link = Arc::new(link);
        links.insert(slot, Arc::downgrade(&link));
        Ok(link)
    }

    fn open(&self, slot: u16, patience: Duration) -> io::Result<Outgoing> {
        let socket = slots::connect(slot, self.identity, patience)?;
        if self.own_user && !self.identity.relation(socket.peer()?).is_own_user() {
            return Err(io::Error::from_raw_os_error(libc::EACCES));
        }
        let board = self.board.as_ref().map(|board| board.as_fd());
        let slots = LinkSlots {
            own: self.slot,
            peer: slot,
        };
        Outgoing::new(socket, slots, self.room, self.identity, board)
    }
}

/// Opens a link. A peer that ends the connection before the hello is gone, or has not waited for
/// it: this thread may have lost its processor in between. Another attempt tells. Each gets what is
/// left of the `patience`.
fn open_again<T>(
    slot: u16,
    patience: Duration,
    mut open: impl FnMut(Duration) -> io::Result<T>,
) -> Result<T, ConnectError> {
    let begun = clock::monotonic();
    for _ in 0..HELLOS {
        let waited = clock::monotonic().since(begun);
        let error = match open(patience.saturating_sub(waited)) {
            Ok(link) => return Ok(link),
            Err(error) => error,
        };
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {}
            io::ErrorKind::ConnectionRefused => break,
            _ => return Err(ConnectError::NotNow { slot, error }),
        }
    }
    Err(ConnectError::NoSuchProcess(slot))
}

#[cfg(test)]
mod tests;
