//! The short rings that this process looks at: those that its queue pairs receive by, and those
//! that they send by, whose consumers say there what they have taken.
//!
//! They are looked at wherever watched rings are, and nobody sleeps before a last look at both (see
//! `ferroce_os::ring`).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

use ferroce_os::ring::{SharedShortRing, has_read_past, is_filled};
use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;

use crate::Qp;
use crate::base::sync::lock;
use crate::link::Origin;
use crate::objects::cq::DirectDelivery;
use crate::objects::services::Services;

/// No position: there is nothing to look at now.
const NOWHERE: u64 = 1 << 32;
/// No position: there will never be anything.
const CLOSED: u64 = 1 << 33;

/// End of a short ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingEnd {
    /// Where messages are put in.
    Sending,
    /// Where they are taken out.
    Receiving,
}

/// Looks at short rings of a program that polls in a loop, at one go.
const CLOSE_LOOKS: usize = 64;
/// Number of short rings up to which a poll serves one of them: to look at all of the others takes
/// as long as a message then.
const FEW: usize = 8;
/// Short rings that each poll looks at: those of which one had something last. Polls that make a
/// whole round look at all, and so do all polls as long as others have something.
const LATELY: usize = 64;

/// What a look at a short ring found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    /// Something for the queue pair.
    News,
    /// What was taken is still to be said.
    AckDue,
    /// There will never be anything.
    Closed,
}

/// For a look at a short ring without its queue pair's lock.
#[derive(Debug)]
pub(crate) struct Eye {
    short_ring: SharedShortRing,
    end: RingEnd,
    /// What is news: a message at this position, or that the consumer has read further than to it.
    at: AtomicU64,
    /// What was taken here is still to be said.
    holds: AtomicBool,
    /// The peer may hold the next message for taken when it is there.
    promises: AtomicBool,
}

impl Eye {
    pub(crate) fn new(short_ring: &SharedShortRing, end: RingEnd) -> Arc<Self> {
        Arc::new(Self {
            short_ring: short_ring.clone(),
            end,
            at: AtomicU64::new(NOWHERE),
            holds: AtomicBool::new(false),
            promises: AtomicBool::new(false),
        })
    }

    /// Looks at a position from here on, or nowhere. The caller has the queue pair's lock.
    pub(crate) fn look_at(&self, position: Option<u32>) {
        if !self.is_closed() {
            self.at
                .store(position.map_or(NOWHERE, u64::from), Ordering::Relaxed);
        }
    }

    /// What was taken is still to be said, or was said. The caller has the queue pair's lock.
    #[inline]
    pub(crate) fn hold(&self, holds: bool) {
        self.holds.store(holds, Ordering::Relaxed);
    }

    /// The peer may hold the next message for taken when it is there, or may not any more. The
    /// caller has the queue pair's lock.
    #[inline]
    pub(crate) fn set_promises(&self, promises: bool) {
        self.promises.store(promises, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn promises(&self) -> bool {
        self.promises.load(Ordering::Relaxed)
    }

    #[inline]
    fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }

    /// Whether the queue pair has something to do; `acks`: or something still to be said.
    #[inline]
    fn waits(&self, acks: bool) -> bool {
        match self.look() {
            Seen::News => true,
            Seen::AckDue => acks,
            Seen::Nothing | Seen::Closed => false,
        }
    }

    #[inline]
    fn look(&self) -> Seen {
        let at = self.at.load(Ordering::Relaxed);
        match u32::try_from(at) {
            Ok(at) if self.has_news_at(at) => Seen::News,
            _ if self.holds() => Seen::AckDue,
            _ if at == CLOSED => Seen::Closed,
            _ => Seen::Nothing,
        }
    }

    /// The short ring is not the queue pair's any more.
    pub(crate) fn close(&self) {
        self.at.store(CLOSED, Ordering::Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.at.load(Ordering::Relaxed) == CLOSED
    }

    /// Whether there is something for the queue pair.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        u32::try_from(at).is_ok_and(|at| self.has_news_at(at))
    }

    #[inline]
    fn has_news_at(&self, at: u32) -> bool {
        match self.end {
            RingEnd::Receiving => is_filled(&self.short_ring, at),
            RingEnd::Sending => has_read_past(&self.short_ring, at),
        }
    }
}

/// A short ring that is looked at.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Its short rings close at its end at the latest, and then it is let go.
    pub(crate) qp: Arc<Qp>,
    /// Process slot of the other end.
    pub(crate) process_slot: u16,
    pub(crate) eye: Arc<Eye>,
}

impl Watch {
    pub(crate) fn new(qp: Arc<Qp>, process_slot: u16, eye: Arc<Eye>) -> Self {
        Self {
            qp,
            process_slot,
            eye,
        }
    }

    /// Lets the queue pair take what was seen. Returns whether there was anything.
    #[expect(clippy::inline_always, reason = "each message goes this way")]
    #[inline(always)]
    fn run(
        &mut self,
        services: &Services,
        seen: Seen,
        now: Time,
        delivery: &mut DirectDelivery<'_>,
    ) -> bool {
        match seen {
            Seen::News => {
                if self.eye.end == RingEnd::Receiving && !self.eye.promises() {
                    services.take_completed_early(now);
                }
                self.qp.on_short_ring(self.eye.end, now, delivery);
                return true;
            }
            Seen::AckDue if !delivery.leaves_acks() => self.qp.send_delayed_ack(now),
            Seen::AckDue | Seen::Nothing | Seen::Closed => {}
        }
        false
    }
}

/// Notes the process of a short ring among those `served`, if it `had` something.
#[inline]
fn note(served: &mut Vec<u16>, watch: &Watch, had: bool) {
    if had && served.last() != Some(&watch.process_slot) {
        served.push(watch.process_slot);
    }
}

/// Short rings that are to be looked at from the next look on.
#[derive(Debug, Default)]
pub(crate) struct NewShortRings {
    watches: Mutex<Vec<Watch>>,
    len: AtomicUsize,
}

impl NewShortRings {
    /// Adds one. What is done with the short ring must come later.
    pub(crate) fn add(&self, watch: Watch) {
        let mut watches = lock(&self.watches);
        watches.push(watch);
        self.len.store(watches.len(), Ordering::Release);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    fn take(&self) -> Vec<Watch> {
        let mut watches = lock(&self.watches);
        self.len.store(0, Ordering::Release);
        std::mem::take(&mut *watches)
    }
}

/// Queue pairs that have put something into a short ring, and have left it to the next look whether
/// the receiver sleeps ([`LateWake`](crate::link::local::LateWake)).
///
/// Invariant: what is put in while the device thread naps is looked after by a look that comes
/// later.
/// Enforced by: a thread adds its queue pair and asks again whether the device thread naps; that
/// thread ends its nap and takes the list; a fence stands between the two on each side.
/// If broken: a peer that went to sleep as a message was put in sleeps on.
#[derive(Debug, Default)]
pub(crate) struct LateWakeUps {
    qps: Mutex<Vec<Arc<Qp>>>,
    len: AtomicUsize,
}

impl LateWakeUps {
    /// Adds one. The caller asks again then whether there is a next look.
    pub(super) fn add(&self, qp: Arc<Qp>) {
        let mut qps = lock(&self.qps);
        qps.push(qp);
        self.len.store(qps.len(), Ordering::Relaxed);
        drop(qps);
        fence(Ordering::SeqCst);
    }

    /// Takes all of them, into empty room.
    fn take(&self, to: &mut Vec<Arc<Qp>>) {
        fence(Ordering::SeqCst);
        if self.len.load(Ordering::Relaxed) > 0 {
            let mut qps = lock(&self.qps);
            std::mem::swap(&mut *qps, to);
            self.len.store(0, Ordering::Relaxed);
        }
    }
}

/// A short ring that another process offers for messages to a queue pair of this one.
#[derive(Debug)]
pub(crate) struct ShortRingOffer {
    /// The queue pair that offers it.
    pub(crate) origin: Origin,
    pub(crate) short_ring: SharedShortRing,
    /// What tells the offer from others.
    pub(crate) number: u32,
    /// Whom it is for.
    pub(crate) to: Qpn,
}

/// The short rings that are looked at.
#[derive(Debug, Default)]
pub(crate) struct WatchedShortRings {
    /// The last [`LATELY`] are those that had something last.
    watches: Vec<Watch>,
    /// Others had something when all were looked at.
    is_wide: bool,
    /// Which of the last ones gives its place to the next one that has something.
    turn: usize,
    /// Processes from which there was something since [`take_served`](Self::take_served).
    served: Vec<u16>,
    /// Empty room for [`LateWakeUps::take`].
    late: Vec<Arc<Qp>>,
}

impl WatchedShortRings {
    /// Whether any has something; `acks`: or an acknowledgement that is still to be sent.
    pub(crate) fn look(&mut self, services: &Services, acks: bool) -> bool {
        self.renew(services);
        self.watches.iter().any(|watch| watch.eye.waits(acks))
    }

    /// Looks a few times, until any has something: a program that polls in a loop comes back as
    /// soon as it can, and learns of a message the sooner the less is done between two looks. Lets
    /// that one's queue pair take it. Of a few short rings the others have their turn before it
    /// next time, so that a look at them keeps no answer waiting; of many they have it now. Returns
    /// whether there was anything.
    #[inline]
    pub(crate) fn run_some(
        &mut self,
        services: &Services,
        now: Time,
        delivery: &mut DirectDelivery<'_>,
    ) -> bool {
        let Some((place, seen)) = self.look_closely() else {
            return false;
        };
        if self.watches.len() > FEW {
            return self.run_down(services, self.first()..place + 1, now, delivery);
        }
        if place > 0 {
            self.watches.swap(0, place);
        }
        match self.watches.first_mut() {
            Some(watch) => {
                let had = watch.run(services, seen, now, delivery);
                note(&mut self.served, watch, had);
                had
            }
            None => false,
        }
    }

    /// Where those begin that had something last.
    #[inline]
    fn lately(&self) -> usize {
        self.watches.len().saturating_sub(LATELY)
    }

    /// The first that a poll looks at.
    #[inline]
    fn first(&self) -> usize {
        if self.is_wide { 0 } else { self.lately() }
    }

    /// The place of one that has something, and what.
    #[inline]
    fn look_closely(&self) -> Option<(usize, Seen)> {
        let times = CLOSE_LOOKS
            .checked_div(self.watches.len())
            .map_or(0, |n| n.max(1));
        for _ in 0..times {
            for place in (self.first()..self.watches.len()).rev() {
                match self.watches[place].eye.look() {
                    Seen::Nothing => {}
                    seen => return Some((place, seen)),
                }
            }
        }
        None
    }

    /// Whether any that leads to a process, or comes from there, has something or may have; `acks`:
    /// or an acknowledgement that is still to be sent.
    pub(crate) fn has_news_of(&self, services: &Services, process_slot: u16, acks: bool) -> bool {
        let of_process = |watch: &&Watch| watch.process_slot == process_slot;
        !services.new_short_rings.is_empty()
            || self
                .watches
                .iter()
                .filter(of_process)
                .any(|w| w.eye.waits(acks))
    }

    /// Whether a look is still to be made that no other process wakes this one for: what was taken
    /// is to be said.
    pub(crate) fn owe_looks(&self) -> bool {
        self.watches.iter().any(|watch| watch.eye.holds())
    }

    /// Lets queue pairs take what there is for them. Returns whether there was anything.
    pub(crate) fn run(
        &mut self,
        services: &Services,
        now: Time,
        delivery: &mut DirectDelivery<'_>,
    ) -> bool {
        self.renew(services);
        self.run_down(services, 0..self.watches.len(), now, delivery)
    }

    /// As [`run`](Self::run), for some `places`, the last one first: there was nothing behind it.
    fn run_down(
        &mut self,
        services: &Services,
        places: Range<usize>,
        now: Time,
        delivery: &mut DirectDelivery<'_>,
    ) -> bool {
        let (lately, mut any, mut others, mut closed) = (self.lately(), false, false, false);
        let are_all = places.start == 0;
        for place in places.rev() {
            let watch = &mut self.watches[place];
            let seen = watch.eye.look();
            let had = watch.run(services, seen, now, delivery);
            note(&mut self.served, watch, had);
            closed |= seen == Seen::Closed;
            any |= had;
            if had && place < lately {
                others = true;
                self.turn = (self.turn + 1) % LATELY;
                self.watches.swap(place, lately + self.turn);
            }
        }
        if are_all {
            self.is_wide = others;
        }
        if closed {
            self.watches.retain(|watch| !watch.eye.is_closed());
        }
        any
    }

    /// The processes from which there was something since the last time.
    pub(crate) fn take_served(&mut self, each: impl FnMut(u16)) {
        self.served.drain(..).for_each(each);
    }

    /// Packets that the queue pairs have sent, all told. Of many queue pairs, only those are looked
    /// at that had something last: each costs a line of the cache.
    pub(crate) fn sent(&self) -> u64 {
        let sending = |watch: &&Watch| watch.eye.end == RingEnd::Sending;
        let some = self.watches.iter().rev().filter(sending).take(CLOSE_LOOKS);
        let sent = some.map(|watch| watch.qp.sent());
        sent.fold(0, u64::wrapping_add)
    }

    /// Short rings that were made since are looked at.
    #[inline]
    fn renew(&mut self, services: &Services) {
        if !services.new_short_rings.is_empty() {
            self.take_new(services);
        }
    }

    #[cold]
    fn take_new(&mut self, services: &Services) {
        self.watches.extend(services.new_short_rings.take());
    }

    /// Lets short rings that are idle give their memory back, and looks again later if others have
    /// some.
    pub(crate) fn look_for_idle(&mut self, services: &Services) {
        self.renew(services);
        services.begin_idle_look();
        let sending = |watch: &&Watch| watch.eye.end == RingEnd::Sending;
        let holders = self.watches.iter().filter(sending);
        let holding = holders.filter(|watch| watch.qp.give_idle_memory_back());
        if holding.count() > 0 {
            services.expect_idle_short_rings();
        }
    }

    /// What was put into short rings by this process: wakes the receivers that went to sleep at
    /// that moment.
    pub(crate) fn wake_late(&mut self, services: &Services) {
        services.late_wake_ups.take(&mut self.late);
        for qp in self.late.drain(..) {
            qp.wake_late();
        }
    }

    /// Another process offers a short ring: it is not that of whom it was offered before, but for
    /// what is still in it.
    pub(crate) fn accept(&mut self, services: &Services, offer: &ShortRingOffer, now: Time) {
        let is_same =
            |eye: &Eye| eye.short_ring == offer.short_ring && eye.end == RingEnd::Receiving;
        for watch in self.watches.iter().filter(|watch| is_same(&watch.eye)) {
            watch
                .qp
                .on_short_ring(watch.eye.end, now, &mut DirectDelivery::default());
            watch.eye.close();
        }
        let Some(qp) = services.qps.find(offer.to) else {
            return;
        };
        if let Some(eye) = qp.accept_short_ring(offer) {
            self.watches.push(Watch::new(qp, offer.origin.slot(), eye));
        }
    }
}
