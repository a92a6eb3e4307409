//! The way out over one link, shared by all queue pairs that use it.
//!
//! A link that is full keeps what it could not take; nothing more is pulled from queue pairs until
//! it went out (design D7: back-pressure instead of loss). Queue pairs that want to transmit
//! meanwhile wait here, in turn.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_os::clock;
use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;

use crate::base::addressing::Addressing;
use crate::base::carrier::Carrier;
use crate::base::sync::lock;
use crate::base::waiter::{self, Waiter};
use crate::link::local::{Frame, Outgoing};
use crate::link::{Batch, Sent};

/// Batches that are kept for reuse.
const SPARE: usize = 4;

/// A link as a sender sees it.
pub(crate) trait Outlet: fmt::Debug + Send + Sync {
    /// Returns the carrier that packets take now.
    fn carrier(&self) -> Carrier;
    /// Why nothing better carries them, if anything better could.
    fn why(&self) -> Option<String> {
        None
    }

    /// Room that it needs behind each packet of a batch, in bytes.
    fn trailer(&self) -> usize {
        0
    }

    /// Sends packets of one queue pair. What a full link does not take stays in the batch.
    fn send(&self, from: Qpn, batch: &mut Batch) -> Sent;
    /// Sends one packet of a few bytes, if it can go now without more ado. Returns what carries it.
    fn send_at_once(&self, from: Qpn, route: &Addressing, packet: &[u8]) -> Option<Carrier> {
        let _ = (from, route, packet);
        None
    }

    /// The link, if it may have short rings.
    fn short_rings(&self) -> Option<&Arc<Outgoing>> {
        None
    }

    /// Sends something small beside packets; a full link keeps it (or loses it, if there is too
    /// much).
    fn send_frame(&self, frame: &Frame<'_>) -> Sent;
    /// Sends the frames that a full link has kept.
    fn flush(&self) -> Sent;
    /// Asks the device's poller to tell, or not, when the link is not full any more.
    fn watch_writable(&self, wanted: bool);
    /// Watches the descriptor for what comes, or not; for a socket that also receives.
    fn watch_readable(&self, _wanted: bool) {}
    /// Ends all watching: the process at the other end is gone.
    fn unwatch(&self);
}

/// A process of this host that has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerProcess {
    pub(crate) slot: u16,
    /// 0 if it is not visible in our PID namespace.
    pub(crate) pid: i32,
}

/// The way out over one link.
#[derive(Debug)]
pub(crate) struct Egress {
    outlet: Box<dyn Outlet>,
    /// The process that it leads to; none for the wire.
    peer: Option<PeerProcess>,
    dead: AtomicBool,
    /// The link is dead, and what the process said before its end was read.
    ended: AtomicBool,
    /// The link is full: nothing is sent until it says that it is writable. Changed under the lock
    /// of `inner` only.
    blocked: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// When the link last became full.
    blocked_at: Time,
    /// Packets that it did not take, in order.
    left: VecDeque<(Qpn, Batch)>,
    /// Queue pairs that want to transmit once it is not blocked.
    waiting: Vec<Arc<dyn Waiter>>,
    spare: Vec<Batch>,
}

impl Egress {
    pub(crate) fn new(outlet: Box<dyn Outlet>, peer: Option<PeerProcess>) -> Self {
        Self {
            outlet,
            peer,
            dead: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            inner: Mutex::default(),
        }
    }

    /// The process that it leads to; none for the wire.
    pub(crate) fn peer(&self) -> Option<PeerProcess> {
        self.peer
    }

    /// The slot of the process that it leads to; none for the wire.
    pub(crate) fn slot(&self) -> Option<u16> {
        self.peer.map(|peer| peer.slot)
    }

    /// Lets the device's poller tell, or not, what comes by the socket that sends.
    pub(crate) fn watch_readable(&self, wanted: bool) {
        self.outlet.watch_readable(wanted);
    }

    /// Returns the carrier that packets take now.
    pub(crate) fn carrier(&self) -> Carrier {
        self.outlet.carrier()
    }

    /// The link, if it may have short rings.
    pub(crate) fn short_rings(&self) -> Option<&Arc<Outgoing>> {
        self.outlet.short_rings()
    }

    /// Why nothing better carries them, if anything better could.
    pub(crate) fn why(&self) -> Option<String> {
        self.outlet.why()
    }

    /// Whether the process at its end is gone.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Whether that process is gone and its last words were read: what it has not acknowledged by
    /// now it never will.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// An empty batch, used before if possible.
    pub(crate) fn batch(&self) -> Batch {
        let spare = lock(&self.inner).spare.pop();
        spare.unwrap_or_else(|| self.new_batch())
    }

    /// An empty batch; none if the link is blocked: then `qp` is noted as waiting, and will have
    /// its turn when the link is free.
    pub(crate) fn batch_unless_blocked(
        &self,
        qp: impl FnOnce() -> Arc<dyn Waiter>,
    ) -> Option<Batch> {
        let mut inner = lock(&self.inner);
        if self.is_blocked() {
            inner.waiting.push(qp());
            return None;
        }
        let spare = inner.spare.pop();
        Some(spare.unwrap_or_else(|| self.new_batch()))
    }

    fn new_batch(&self) -> Batch {
        Batch {
            trailer: self.outlet.trailer(),
            ..Batch::default()
        }
    }

    /// Gives back a batch that was not sent.
    pub(crate) fn put_back(&self, batch: Batch) {
        lock(&self.inner).keep(batch);
    }

    /// Whether the link is full.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Since when the link is full, if it is.
    pub(crate) fn blocked_since(&self) -> Option<Time> {
        let inner = lock(&self.inner);
        self.is_blocked().then_some(inner.blocked_at)
    }

    /// If the link is blocked, notes `qp` as waiting and returns true. It will have its turn when
    /// the link is free.
    pub(crate) fn wait_if_blocked(&self, qp: impl FnOnce() -> Arc<dyn Waiter>) -> bool {
        let mut inner = lock(&self.inner);
        let blocked = self.is_blocked();
        if blocked {
            inner.waiting.push(qp());
        }
        blocked
    }

    /// Ends the wait of a queue pair that goes another way now, or nowhere.
    pub(crate) fn leave(&self, one: &dyn Waiter) {
        waiter::remove(&mut lock(&self.inner).waiting, one);
    }

    /// Sends one packet of a few bytes on a route, if it can go now without more ado: then returns
    /// what carries it. If not, nothing has happened, and it goes as others do.
    pub(crate) fn send_at_once(
        &self,
        from: Qpn,
        route: &Addressing,
        packet: &[u8],
    ) -> Option<Carrier> {
        // Without the lock: what a queue pair has sent before is behind it on the link, or the link
        // is blocked.
        if self.is_blocked() || self.is_dead() {
            return None;
        }
        self.outlet.send_at_once(from, route, packet)
    }

    /// Sends packets of one queue pair, or keeps what the link does not take. Returns false if the
    /// process at the other end is gone.
    pub(crate) fn send(&self, from: Qpn, mut batch: Batch) -> bool {
        let mut inner = lock(&self.inner);
        let sent = self.send_locked(&mut inner, from, &mut batch);
        inner.keep(batch);
        sent
    }

    /// As [`send`](Self::send); leaves an empty batch to the caller.
    pub(crate) fn send_from(&self, from: Qpn, batch: &mut Batch) -> bool {
        self.send_locked(&mut lock(&self.inner), from, batch)
    }

    #[inline]
    fn send_locked(&self, inner: &mut Inner, from: Qpn, batch: &mut Batch) -> bool {
        if self.is_dead() {
            batch.clear();
            return false;
        }
        // Otherwise another queue pair was faster since the caller looked.
        let sent = if self.is_blocked() {
            Sent::Blocked
        } else {
            self.outlet.send(from, batch)
        };
        match sent {
            Sent::All => {}
            Sent::Blocked => {
                let left = std::mem::replace(batch, self.new_batch());
                inner.left.push_back((from, left));
                self.block(inner);
            }
            Sent::PeerGone => self.dead.store(true, Ordering::Release),
        }
        sent != Sent::PeerGone
    }

    /// Sends something small beside packets. Returns false if the process at the other end is gone.
    pub(crate) fn send_frame(&self, frame: &Frame<'_>) -> bool {
        let mut inner = lock(&self.inner);
        match self.outlet.send_frame(frame) {
            Sent::All => {}
            Sent::Blocked => self.block(&mut inner),
            Sent::PeerGone => self.dead.store(true, Ordering::Release),
        }
        !self.is_dead()
    }

    /// The link has room again: sends what was left. Returns the queue pairs that waited, once all
    /// went out.
    pub(crate) fn on_writable(&self) -> Vec<Arc<dyn Waiter>> {
        let mut inner = lock(&self.inner);
        if !self.is_blocked() {
            return Vec::new();
        }
        let mut sent = self.outlet.flush();
        while sent == Sent::All
            && let Some((from, mut batch)) = inner.left.pop_front()
        {
            sent = self.outlet.send(from, &mut batch);
            match sent {
                Sent::All => inner.keep(batch),
                Sent::Blocked => inner.left.push_front((from, batch)),
                Sent::PeerGone => {}
            }
        }
        match sent {
            Sent::Blocked => {
                // The link may tell of room by other means now.
                self.outlet.watch_writable(true);
                return Vec::new();
            }
            Sent::All => self.outlet.watch_writable(false),
            Sent::PeerGone => {
                self.dead.store(true, Ordering::Release);
                inner.left.clear();
            }
        }
        self.blocked.store(false, Ordering::Relaxed);
        std::mem::take(&mut inner.waiting)
    }

    /// The process at the other end is gone, and what it said before was read. Returns the queue
    /// pairs that waited.
    pub(crate) fn kill(&self) -> Vec<Arc<dyn Waiter>> {
        let mut inner = lock(&self.inner);
        self.dead.store(true, Ordering::Release);
        self.ended.store(true, Ordering::Release);
        self.outlet.unwatch();
        inner.left.clear();
        self.blocked.store(false, Ordering::Relaxed);
        std::mem::take(&mut inner.waiting)
    }

    fn block(&self, inner: &mut Inner) {
        if !self.blocked.swap(true, Ordering::Relaxed) {
            inner.blocked_at = clock::monotonic();
            self.outlet.watch_writable(true);
        }
    }
}

impl Inner {
    fn keep(&mut self, mut batch: Batch) {
        if self.spare.len() < SPARE {
            batch.clear();
            self.spare.push(batch);
        }
    }
}

#[cfg(test)]
mod tests;
