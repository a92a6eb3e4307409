//! The sending end of a link.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use ferroce_os::ring::{self, ShortRingSender};
use ferroce_os::unix::{Identity, Relation, SeqSocket};
use ferroce_proto::ids::Qpn;

use super::frame::{Frame, ShortRingNotice};
use super::packets::{MAX_PACKETS, PACKETS_HEAD};
use super::short_rings::FreeShortRings;
use super::way::{Put, RecordWay, Room};
use crate::base::addressing::Addressing;
use crate::base::sync::lock;
use crate::link::{Batch, Sent};

/// Bytes of a frame at most: no packet is nearly as long.
const LONGEST_FRAME: usize = 32 * 1024;

/// Bytes of frames that wait inside a link. Beyond it forwarded packets are lost, as they may be on
/// a network.
const STASH: usize = 256 * 1024;
/// Stash beyond which MADs are lost too. There is about one per connection that is being made or
/// ended, and their senders repeat them only after seconds, so thousands must be able to wait.
const MAD_STASH: usize = 16 << 20;
/// Stash of all processes of other users together. Such a process can ask for answers and not read
/// them, by as many slots as its user may have.
const FOREIGN_STASH: usize = 8 << 20;
/// Notices that wait inside a link to another user's process. One that is lost costs the sender of
/// the packet a timeout.
const FOREIGN_NOTICES: usize = 1024;

/// Bytes of frames that wait inside links to processes of other users.
static FOREIGN: AtomicUsize = AtomicUsize::new(0);

/// The sending end of a link to another process (or to this one). Any thread may send.
#[derive(Debug)]
pub(crate) struct Outgoing {
    way: RecordWay,
    peer: u16,
    pid: i32,
    relation: Relation,
    /// Whether `stash` holds anything: spares packets the lock.
    stashed: AtomicBool,
    stash: Mutex<Stash>,
    short_rings: FreeShortRings,
}

/// Frames that did not fit. They go before packets do.
#[derive(Debug, Default)]
struct Stash {
    records: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Notices by the QPN that they are for. One per queue pair says it all, so these are bounded
    /// without losing any.
    notices: BTreeMap<Qpn, Qpn>,
    /// The link leads to another user's process: `bytes` counts in [`FOREIGN`].
    is_foreign: bool,
}

impl Drop for Stash {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Stash {
    fn of(relation: Relation) -> Self {
        let mut stash = Self::default();
        stash.is_foreign = relation == Relation::Foreign;
        stash
    }

    /// Keeps a record, if there is room below `limit`. Returns whether there is.
    fn push(&mut self, record: Vec<u8>, limit: usize) -> bool {
        let len = record.len();
        if self.bytes + len > limit {
            return false;
        }
        if self.is_foreign && FOREIGN.fetch_add(len, Ordering::Relaxed) + len > FOREIGN_STASH {
            FOREIGN.fetch_sub(len, Ordering::Relaxed);
            return false;
        }
        self.bytes += len;
        self.records.push_back(record);
        true
    }

    /// Keeps a notice, if there is room.
    fn notify(&mut self, qpn: Qpn, by: Qpn) {
        if !self.is_foreign || self.notices.len() < FOREIGN_NOTICES {
            self.notices.insert(qpn, by);
        }
    }

    fn clear(&mut self) {
        self.release(self.bytes);
        self.records.clear();
        self.notices.clear();
    }

    fn release(&mut self, bytes: usize) {
        self.bytes -= bytes;
        if self.is_foreign {
            FOREIGN.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// The next record to send.
    fn next(&self) -> Option<Cow<'_, [u8]>> {
        let notice = || {
            self.notices
                .first_key_value()
                .map(|(qpn, by)| Frame::Dropped { qpn: *qpn, by: *by }.encode())
        };
        self.records
            .front()
            .map(|r| Cow::Borrowed(&r[..]))
            .or_else(|| notice().map(Cow::Owned))
    }

    /// Drops the next record, which was sent.
    fn pop(&mut self) {
        match self.records.pop_front() {
            Some(record) => self.release(record.len()),
            None => drop(self.notices.pop_first()),
        }
    }
}

/// Slots of the processes at both ends of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkSlots {
    pub(super) own: u16,
    pub(super) peer: u16,
}

impl Outgoing {
    /// Greets the peer on a fresh connection.
    pub(super) fn new(
        socket: SeqSocket,
        slots: LinkSlots,
        room: Room,
        identity: Identity,
        board: Option<BorrowedFd<'_>>,
    ) -> io::Result<Self> {
        let there = socket.peer()?;
        let relation = identity.relation(there);
        let takes_descriptors = identity.is_trusted_by(there);
        let ring = match takes_descriptors {
            true => room.ring,
            false => Err("the other process is another user's"),
        };
        let board = board.filter(|_| takes_descriptors && relation == Relation::Own);
        let way = RecordWay::open(socket, slots.own, Room { ring, ..room }, board)?;
        Ok(Self {
            way,
            peer: slots.peer,
            pid: there.pid,
            relation,
            stashed: AtomicBool::new(false),
            stash: Mutex::new(Stash::of(relation)),
            short_rings: FreeShortRings::default(),
        })
    }

    /// The process at the other end; 0 if it is not visible in our PID namespace.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// What the process at the other end is to this one. Only one of our own user takes packets
    /// that came over the wire.
    pub(crate) fn relation(&self) -> Relation {
        self.relation
    }

    /// The descriptor to watch: for writability while the link is blocked, for hang-up always.
    pub(crate) fn fd(&self) -> RawFd {
        self.way.fd()
    }

    /// Whether the process at the other end is known to be gone. It does not come back.
    pub(crate) fn is_dead(&self) -> bool {
        self.way.is_dead()
    }

    /// Takes note that the descriptor has reported a hang-up.
    pub(crate) fn mark_dead(&self) {
        self.way.mark_dead();
    }

    /// Asks the kernel whether the process at the other end is gone, and remembers it.
    pub(crate) fn has_hung_up(&self) -> bool {
        let gone = self.way.socket().has_hung_up();
        if gone {
            self.mark_dead();
        }
        gone
    }

    /// Takes the answers from a descriptor that has become readable: the peer has answered
    /// something, perhaps that there is room again.
    pub(crate) fn take_answers(&self) {
        self.way.take_answers();
    }

    /// Whether a full link tells of room by becoming readable, not writable.
    pub(crate) fn is_on_ring(&self) -> bool {
        self.way.is_on_ring()
    }

    /// Why records go over the socket, if they do.
    pub(crate) fn why_no_ring(&self) -> Option<&str> {
        self.way.why_no_ring()
    }

    /// Sends one packet of a few bytes, if it can go through the ring now and nothing has to go
    /// before it. Returns whether it is sent.
    pub(crate) fn send_at_once(&self, from: Qpn, route: &Addressing, packet: &[u8]) -> bool {
        !self.is_dead()
            && !self.stashed.load(Ordering::Acquire)
            && self.way.put_at_once(from, route, packet)
    }

    /// Says something about a short ring, if that can go through the ring now and nothing has to go
    /// before it. Returns whether it is said.
    pub(crate) fn say_of_short_ring(&self, notice: ShortRingNotice) -> bool {
        !self.is_dead()
            && !self.stashed.load(Ordering::Acquire)
            && self.way.push_at_once(&Frame::ShortRing(notice).encode())
    }

    /// A short ring that nobody uses, and the number of its next offer, if records go through a
    /// ring with short rings that the peer looks at.
    pub(crate) fn take_short_ring(&self) -> Option<(ShortRingSender, u32)> {
        let area = self.way.area().filter(|area| area.has_short_rings())?;
        self.short_rings.take(area)
    }

    /// Takes back a short ring that is not used any more.
    pub(crate) fn give_back(&self, short_ring: &ShortRingSender) {
        self.short_rings.give_back(short_ring);
    }

    /// Something was put into a short ring: wakes the peer if it sleeps.
    #[inline]
    pub(crate) fn wake_for_short_ring(&self) {
        if self.way.area().is_some_and(ring::wakes) {
            self.way.wake();
        }
    }

    /// True if the peer seems to sleep, by a word in shared memory that may be out of date.
    #[inline]
    pub(crate) fn seems_asleep(&self) -> bool {
        self.is_dead() || self.way.area().is_none_or(|area| area.seems_asleep())
    }

    /// Whether the peer has to be told of something by a record: it sleeps, or there is no ring by
    /// which it would have said so.
    pub(crate) fn must_tell(&self) -> bool {
        self.way.area().is_none_or(ring::sleeps)
    }

    /// Sends the packets of a batch from one queue pair, in order. On [`Sent::Blocked`] those that
    /// did not go are still in the batch; call again when the descriptor is writable.
    pub(crate) fn send_packets(&self, src_qpn: Qpn, batch: &mut Batch) -> Sent {
        let mut sent = self.flush();
        let mut done = 0;
        while sent == Sent::All && done < batch.ends.len() {
            let count = self.fitting(batch, done);
            match self.way.put_packets(src_qpn, batch, done..done + count) {
                Put::Done => done += count,
                Put::Full => sent = Sent::Blocked,
                Put::TooBig if count > 1 => self.way.shrink(),
                // A single packet: the kernel is out of memory for now.
                Put::TooBig => sent = Sent::Blocked,
                Put::Gone => sent = Sent::PeerGone,
            }
        }
        match sent {
            Sent::Blocked => batch.discard(done),
            Sent::All | Sent::PeerGone => batch.clear(),
        }
        sent
    }

    /// How many packets from `first` on make the next record: at least one.
    fn fitting(&self, batch: &Batch, first: usize) -> usize {
        if batch.ends.len() == first + 1 {
            return 1;
        }
        let limit = self.way.record();
        let start = batch.start(first);
        let fits = |i: usize, end: usize| PACKETS_HEAD + 2 * (i + 1) + (end - start) <= limit;
        let ends = batch.ends[first..].iter().take(MAX_PACKETS);
        ends.enumerate()
            .take_while(|(i, end)| fits(*i, **end))
            .count()
            .max(1)
    }

    /// Sends a frame. On [`Sent::Blocked`] the link keeps it: call [`flush`](Self::flush) when the
    /// descriptor is writable.
    pub(crate) fn send_frame(&self, frame: &Frame<'_>) -> Sent {
        let mut stash = self.locked();
        match self.drain(&mut stash) {
            Sent::All => {}
            Sent::Blocked => {
                self.keep(&mut stash, frame);
                return Sent::Blocked;
            }
            Sent::PeerGone => return Sent::PeerGone,
        }
        let record = frame.encode();
        if record.len() > LONGEST_FRAME {
            tracing::debug!(target: "ferroce::local", peer = self.peer, "a packet from the wire is too long to pass on");
            return Sent::All;
        }
        match self.way.put(&record) {
            Put::Done => Sent::All,
            Put::Full | Put::TooBig => {
                self.keep(&mut stash, frame);
                Sent::Blocked
            }
            Put::Gone => Sent::PeerGone,
        }
    }

    /// Sends what the link has kept.
    #[inline]
    pub(crate) fn flush(&self) -> Sent {
        if self.is_dead() {
            return Sent::PeerGone;
        }
        if !self.stashed.load(Ordering::Acquire) {
            return Sent::All;
        }
        self.drain(&mut self.locked())
    }

    fn locked(&self) -> MutexGuard<'_, Stash> {
        lock(&self.stash)
    }

    fn keep(&self, stash: &mut Stash, frame: &Frame<'_>) {
        if let Frame::Dropped { qpn, by } = *frame {
            stash.notify(qpn, by);
        } else {
            let record = frame.encode();
            let limit = match frame {
                Frame::Mad { .. } => MAD_STASH,
                Frame::Forwarded(_) | Frame::Dropped { .. } => STASH,
                // A process that asked and hears nothing gives up after a while.
                Frame::Sharing(_) => STASH,
                // A process that does not hear of it finds out when it next maps what has its
                // place.
                Frame::Unshared(_) => STASH,
                // There are never more than the peer has receives for.
                Frame::Lending(_) => usize::MAX,
                // It goes at once or not at all.
                Frame::ShortRing(_) => 0,
            };
            if !stash.push(record, limit) {
                tracing::debug!(target: "ferroce::local", peer = self.peer, "link is full: a packet or MAD is lost");
                return;
            }
        }
        self.stashed.store(true, Ordering::Release);
    }

    fn drain(&self, stash: &mut Stash) -> Sent {
        if self.is_dead() {
            stash.clear();
            return Sent::PeerGone;
        }
        while let Some(put) = stash.next().map(|record| self.way.put(&record)) {
            match put {
                Put::Done => stash.pop(),
                Put::Full | Put::TooBig => return Sent::Blocked,
                Put::Gone => {
                    stash.clear();
                    return Sent::PeerGone;
                }
            }
        }
        self.stashed.store(false, Ordering::Release);
        Sent::All
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_other_users_is_bounded_together() {
        let mut stashes: Vec<Stash> = (0..64).map(|_| Stash::of(Relation::Foreign)).collect();
        let kept: usize = stashes
            .iter_mut()
            .map(|stash| {
                (0..1000)
                    .filter(|_| stash.push(vec![0; 1024], MAD_STASH))
                    .count()
            })
            .sum();
        assert_eq!(kept, FOREIGN_STASH / 1024);
        let mut own = Stash::of(Relation::Own);
        assert!(own.push(vec![0; 1024], MAD_STASH));
        // What was sent, and what was given up, makes room.
        stashes[0].pop();
        assert!(stashes[63].push(vec![0; 1024], MAD_STASH));
        assert!(!stashes[63].push(vec![0; 1], MAD_STASH));
        drop(stashes);
        let mut stash = Stash::of(Relation::Foreign);
        assert!(stash.push(vec![0; FOREIGN_STASH], MAD_STASH));
        stash.clear();
        assert_eq!(FOREIGN.load(Ordering::Relaxed), 0);
        for n in 0..5000 {
            stash.notify(Qpn::new(n), Qpn::new(1));
        }
        assert_eq!(stash.notices.len(), FOREIGN_NOTICES);
    }
}
