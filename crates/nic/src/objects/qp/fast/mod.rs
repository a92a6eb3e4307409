//! Short rings: memory that this queue pair and its peer in another process have for their small
//! packets alone (`ferroce_os::ring`).
//!
//! A short ring carries what would go through the ring: packets, a SEND in one piece that takes as
//! many PSNs as it would have packets, or the packet that says where a SEND's bytes are. So the
//! general way can take up after each of them. The first SEND of a queue pair offers a short ring;
//! once the other side has accepted it, a *run* begins, by a word behind all packets that went
//! through the ring before. Whatever goes as a packet by the ring ends the run, and the receiver
//! takes all that is in its short ring before it looks at a packet from the ring. So both together
//! keep the order in which packets were sent. While the short ring is full, SENDs stay in the send
//! queue, and go when the receiver has read.
//!
//! How far the receiver has read is an acknowledgement for a sender that looks there. A sender that
//! sleeps gets an acknowledgement by the ring. Where the program has always answered a message with
//! one of its own, the answer says it (`delayed_ack`). The peer looks at the answer's ring slot
//! anyway, and each further word that it must look at costs as much as the message. A packet that
//! is not taken (no receive is posted, say) ends the run on the receiver's side. What comes after
//! it is not looked at, as it would be dropped, and is sent again by the ring as the transport
//! demands.
//!
//! | module | holds |
//! |---|---|
//! | `send`, `prepare` | the end that sends: what the receiver has read; a SEND from the program's call into a ring slot |
//! | `seek` | offers, runs, and what waits while the short ring is full |
//! | `receive`, `take` | the end that receives; a ring slot's message into the program's memory, and its completion |
//! | `delayed_ack` | what is said with the program's answer |
//! | `eligibility`, `rights_cache` | what need not be looked at again |
//! | `brief`, `short` | short messages by the ring |
//! | `early_completion` | a message that is as good as taken when it is in its ring slot |
//! | `idle` | pages that are given back |

pub(super) mod brief;
pub(super) mod delayed_ack;
pub(super) mod early_completion;
pub(super) mod eligibility;
pub(super) mod idle;
mod prepare;
mod receive;
pub(super) mod rights_cache;
mod seek;
mod send;
mod short;
mod take;
pub(super) mod watched;

use ferroce_os::memory::RawMemory;
use ferroce_os::ring::{Head, LONGEST_IN_SLOT, LONGEST_REST, Long, ShortRingRefusal};
use ferroce_proto::ids::Qpn;
use ferroce_proto::mr::{Memory as _, Piece, Unmapped};
use ferroce_proto::rc::{LongBody, LongMessage};
use ferroce_proto::time::Time;

use self::early_completion::Checked;
pub(super) use self::prepare::PutSend;
use self::receive::Receiving;
use self::seek::HABIT;
pub(super) use self::seek::QueuedSend;
use self::send::Sending;
use self::watched::{Eye, RingEnd, Watch};
use super::Qp;
use super::locked::Locked;
use crate::link::local::Frame;
use crate::objects::cq::DirectDelivery;

/// The short rings of a queue pair.
#[derive(Debug, Default)]
pub(super) struct ShortRings {
    out: Option<Box<Sending>>,
    into: Option<Box<Receiving>>,
    /// Messages in a row that could have gone by a short ring, and went by the ring.
    streak: u32,
}

impl ShortRings {
    /// Something goes out by packets that could not go by a short ring: what follows is to come
    /// behind it.
    pub(super) fn end_run(&mut self) {
        self.streak = 0;
        self.pause();
    }

    /// Whether packets go by the short ring that it sends by. Their receiver looks there, or is
    /// woken.
    #[inline]
    fn is_open(&self) -> bool {
        let open = |out: &Sending| out.runs() && !out.link.is_dead();
        self.out.as_deref().is_some_and(open)
    }

    /// Most bytes of a SEND that goes by a short ring, or by packets until there is one: 0 if it
    /// seems that there will be none.
    pub(super) fn longest(&self) -> u32 {
        if self.out.is_some() || self.streak < HABIT {
            u32::try_from(LONGEST_REST).expect("invariant: some KiB")
        } else {
            0
        }
    }

    /// What follows goes by packets, for a while.
    pub(super) fn pause(&mut self) {
        if let Some(out) = &mut self.out {
            out.end_run();
        }
    }

    /// Something was put into the short ring that it sends by: wakes its receiver, if that sleeps,
    /// see [`LateWake::wake`](crate::link::local::LateWake::wake).
    #[expect(clippy::inline_always, reason = "a look and a word")]
    #[inline(always)]
    fn wake(&mut self, again: bool) -> bool {
        self.out.as_mut().is_some_and(|out| out.wake(again))
    }

    /// See [`Sending::will_push`].
    #[inline]
    fn will_push(&self) {
        if let Some(out) = &self.out {
            out.will_push();
        }
    }

    /// Gives back the short ring that it sends by. What is not acknowledged by now is sent again by
    /// packets, if that is called for.
    pub(super) fn close_out(&mut self) {
        self.streak = 0;
        self.out = None;
    }

    /// Gives back both. Returns whether the peer must be told, since it may have put something in
    /// that nobody will look at.
    pub(super) fn close(&mut self) -> bool {
        self.close_out();
        self.publish_delayed_ack();
        self.into.take().is_some()
    }

    /// What waits for an answer waits no longer. Returns whether there was something.
    pub(super) fn publish_delayed_ack(&mut self) -> bool {
        let into = self.into.as_deref_mut();
        into.is_some_and(Receiving::publish_delayed_ack)
    }

    /// Wakes the receiver of the one that it sends by, if that went to sleep just when something
    /// was put in.
    pub(super) fn wake_late(&mut self) {
        if let Some(out) = &mut self.out {
            out.wake_late();
        }
    }

    /// Puts a packet (its header, and the rest) into the short ring that it sends by, if a run goes
    /// on with it, with what is to be said of the other short ring. `early_limit` is asked only if
    /// there is something to say. Returns whether it is there.
    #[expect(clippy::inline_always, reason = "a head is not to go through memory")]
    #[inline(always)]
    fn push(
        &mut self,
        packet: (Head, &[u8]),
        early_limit: impl FnOnce(Option<Checked>) -> Option<u32>,
    ) -> bool {
        let Some(out) = &mut self.out else {
            return false;
        };
        let into = self.into.as_deref_mut();
        let ack = into.and_then(|into| into.on_answer(early_limit));
        let is_in = out.push(packet, ack);
        if let (false, Some(ack), Some(into)) = (is_in, ack, &mut self.into) {
            into.hold(ack.read());
        }
        is_in
    }
}

impl ShortRings {
    /// As [`push`](Self::push), for a message as long as `packets` packets.
    fn push_long(
        &mut self,
        message: &Long<'_>,
        packets: u32,
        early_limit: impl FnOnce(Option<Checked>) -> Option<u32>,
    ) -> Result<(), ShortRingRefusal> {
        let out = self.out.as_mut().ok_or(ShortRingRefusal::Broken)?;
        let into = self.into.as_deref_mut();
        let ack = into.and_then(|into| into.on_answer(early_limit));
        let pushed = out.push_long(message, packets, ack);
        if let (Err(_), Some(ack), Some(into)) = (pushed, ack, &mut self.into) {
            into.hold(ack.read());
        }
        pushed
    }

    /// Puts a SEND in, whatever its length; `room` is for one that fits into a ring slot.
    fn push_whole(
        &mut self,
        message: &LongMessage<'_>,
        room: &mut [u8; LONGEST_IN_SLOT],
        early_limit: impl FnOnce(Option<Checked>) -> Option<u32>,
    ) -> Result<(), ShortRingRefusal> {
        let bytes = message.body.len();
        let rest = match message.body {
            LongBody::Bytes(rest) if bytes > LONGEST_IN_SLOT => {
                let (head, packet) = (message.head, message.packet);
                let long = Long { head, rest, packet };
                return self.push_long(&long, message.packets, early_limit);
            }
            _ => &mut room[..bytes.next_multiple_of(4)],
        };
        rest.fill(0);
        match message.body {
            LongBody::Place(place) => rest.copy_from_slice(&place),
            LongBody::Bytes(Piece::Inline(data)) => rest[..bytes].copy_from_slice(data),
            LongBody::Bytes(Piece::Registered(span)) => RawMemory
                .read(span, &mut rest[..bytes])
                .map_err(|Unmapped| ShortRingRefusal::Unmapped)?,
        }
        let is_in = self.push((message.head, rest), early_limit);
        is_in.then_some(()).ok_or(ShortRingRefusal::Full)
    }
}

impl Qp {
    /// Something was put into its short ring: wakes the receiver, if that sleeps. While the device
    /// thread naps, that is left to the next look of this process.
    #[expect(clippy::inline_always, reason = "each message goes this way")]
    #[inline(always)]
    fn wake_receiver(&self, short_rings: &mut ShortRings) {
        if short_rings.wake(self.services().looks_again()) {
            self.leave_wake_up(short_rings);
        }
    }

    /// Leaves the wake-up of the receiver to the next look, unless the device thread has ended its
    /// nap: it may have made the last look before its sleep.
    #[inline(never)]
    fn leave_wake_up(&self, short_rings: &mut ShortRings) {
        self.services().late_wake_ups.add(self.me());
        if !self.services().looks_again() {
            short_rings.wake_late();
        }
    }

    /// There is something in one of its short rings, at its end of that. Completions may go to a
    /// program that polls.
    pub(crate) fn on_short_ring(&self, end: RingEnd, now: Time, delivery: &mut DirectDelivery<'_>) {
        let mut fast = self.lock_fast();
        if fast.is_retired() {
            return;
        }
        match end {
            RingEnd::Sending => fast.take_acks(now, delivery),
            RingEnd::Receiving => fast.take_messages(now, delivery),
        }
        let speaks = fast.wants_turn();
        drop(fast);
        if speaks {
            self.on_arrivals(now);
        }
    }

    /// What was taken from its short ring is still to be said, and the program, which was expected
    /// to answer, polls instead; or it does nothing at all, and the device thread looks.
    pub(crate) fn send_delayed_ack(&self, now: Time) {
        let mut locked = self.lock();
        if locked.short_rings.publish_delayed_ack() {
            self.tell_sleeping_peer(&mut locked);
        }
        let speaks = locked.transport.wants_transmit();
        drop(locked);
        if speaks {
            self.on_arrivals(now);
        }
    }

    /// Wakes the receiver of its short ring, if that went to sleep just when something was put in.
    pub(crate) fn wake_late(&self) {
        self.lock_fast().wake_late();
    }

    /// Takes what is in its short rings before something else that came later.
    pub(super) fn run_short_rings(&self, locked: &mut Locked, now: Time) {
        let mut delivery = DirectDelivery::default();
        self.take_short_ring_acks(locked, now, &mut delivery);
        self.drain_short_ring(locked, now, &mut delivery);
    }

    /// The short rings of a path that is left: the peer hears of it, if it may have put something
    /// in.
    pub(super) fn frame_of_end(locked: &Locked, qpn: Qpn) -> Frame<'static> {
        Frame::Dropped {
            qpn: locked.transport.dest(),
            by: qpn,
        }
    }
}
