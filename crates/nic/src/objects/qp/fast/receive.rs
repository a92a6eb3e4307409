//! The end that receives: offers, runs, and what is in the short ring.

use std::sync::Arc;

use ferroce_os::ring::{ShortRingAck, ShortRingConsumer, ShortRingReceiver, WaitingMessage};
use ferroce_proto::rc::cut;
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{Mtu, QpState, QpType};

use super::delayed_ack::RingDelayedAck;
use super::early_completion::Checked;
use super::take::{BUDGET, NextMessage, RunTaken, whole};
use super::watched::{Eye, RingEnd, ShortRingOffer};
use crate::base::counters::DropReason;
use crate::link::Origin;
use crate::link::path::{Path, Reach};
use crate::objects::cq::DirectDelivery;
use crate::objects::qp::Qp;
use crate::objects::qp::locked::Locked;
use crate::objects::qp::transport::Transport;

/// The short ring that it receives by.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) receiver: ShortRingReceiver,
    pub(super) eye: Arc<Eye>,
    pub(super) delayed_ack: RingDelayedAck,
    /// The receive that is the first one when one more message is taken.
    pub(super) next: Option<Checked>,
    /// A message has told that the peer's packets are as long as those of this end. If they were
    /// not, a message of several packets would be refused.
    pub(super) cuts_alike: bool,
}

/// Bytes of a message that is one packet whatever the path MTU is.
const ONE_PACKET: u32 = Mtu::B256.bytes();

impl Receiving {
    /// Returns what the next message the other way says of this short ring: up to where it was
    /// read, and the most bytes of the next message that may complete early.
    #[inline]
    pub(super) fn on_answer(
        &mut self,
        early_limit: impl FnOnce(Option<Checked>) -> Option<u32>,
    ) -> Option<ShortRingAck> {
        let read = self.delayed_ack.on_answer()?;
        let early_limit = early_limit(self.next.take()).map(|most| match self.cuts_alike {
            true => most,
            false => most.min(ONE_PACKET),
        });
        self.eye.hold(false);
        self.eye.set_promises(early_limit.is_some());
        Some(ShortRingAck::new(
            self.receiver.short_ring(),
            read,
            early_limit,
        ))
    }

    /// The message did not go, and what it would have said waits.
    pub(super) fn hold(&mut self, read: u32) {
        self.delayed_ack.put_back(read);
        self.eye.hold(true);
        self.eye.set_promises(false);
    }

    /// Takes back what was promised of the next message, if anything was. Returns whether that may
    /// be there: then it is to be taken before anything else is done.
    pub(super) fn withdraw(&mut self) -> bool {
        self.next = None;
        let promises = self.eye.promises();
        if promises {
            self.eye.set_promises(false);
            self.receiver.withdraw();
        }
        promises
    }

    /// Messages were taken up to a position, which is said now.
    fn publish(&mut self, read: u32) {
        self.delayed_ack.end();
        self.eye.hold(false);
        self.receiver.publish(read);
    }

    /// What waits for an answer waits no longer. Returns whether there was something.
    pub(super) fn publish_delayed_ack(&mut self) -> bool {
        let read = self.delayed_ack.end();
        if let Some(read) = read {
            self.eye.hold(false);
            self.receiver.publish(read);
        }
        read.is_some()
    }

    /// `messages` were taken, up to the position `read`, for a program that polls or not. Returns
    /// whether that was said now.
    #[inline]
    fn on_taken(&mut self, messages: u32, read: u32, is_polled: bool) -> bool {
        self.eye.set_promises(false);
        if messages != 1 {
            self.next = None;
        }
        let says = self.delayed_ack.on_taken(read, is_polled);
        if says {
            self.receiver.publish(read);
        }
        self.eye.hold(!says);
        says
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        // Nobody is left to acknowledge anything.
        self.eye.hold(false);
        self.eye.close();
    }
}

impl Qp {
    /// Another process offers a short ring. `None`: it goes on by the ring.
    pub(crate) fn accept_short_ring(&self, offer: &ShortRingOffer) -> Option<Arc<Eye>> {
        let mut locked = self.lock();
        let usual = !locked.retired
            && self.qp_type == QpType::Rc
            && matches!(locked.transport.state(), QpState::Rtr | QpState::Rts)
            && locked.comes_from(offer.origin)
            && !locked.transport.is_armed();
        // A log of every packet sees those of the ring only.
        if !usual || tracing::enabled!(target: "ferroce::packet", tracing::Level::TRACE) {
            return None;
        }
        let eye = Eye::new(&offer.short_ring, RingEnd::Receiving);
        locked.short_rings.into = Some(Box::new(Receiving {
            receiver: ShortRingConsumer::accept(offer.short_ring.clone(), offer.number),
            eye: Arc::clone(&eye),
            delayed_ack: RingDelayedAck::default(),
            next: None,
            cuts_alike: false,
        }));
        Some(eye)
    }

    /// A run of the short ring that the peer sends by begins at a position.
    pub(crate) fn on_run_of_short_ring(&self, origin: Origin, short_ring: u16, at: u32, now: Time) {
        let mut locked = self.lock();
        if locked.retired || !locked.comes_from(origin) {
            return;
        }
        self.drain_short_ring(&mut locked, now, &mut DirectDelivery::default());
        match &mut locked.short_rings.into {
            Some(into) if into.receiver.short_ring() == short_ring && !into.eye.is_closed() => {
                into.receiver.begin_run(at);
                into.eye.look_at(Some(at));
            }
            // Nobody would look at what is put in.
            _ => self.say_end(&mut locked),
        }
        // What was taken before may have made room for what is queued.
        let speaks = locked.transport.wants_transmit();
        drop(locked);
        if speaks {
            self.on_arrivals(now);
        }
    }

    /// Takes what is in the short ring that it receives by. Called before anything that came by the
    /// ring is looked at.
    #[inline]
    pub(in crate::objects::qp) fn drain_short_ring(
        &self,
        locked: &mut Locked,
        now: Time,
        delivery: &mut DirectDelivery<'_>,
    ) {
        let position = |locked: &Locked| {
            let into = locked.short_rings.into.as_deref();
            into.filter(|into| into.eye.has_news())
                .and_then(|into| into.receiver.position())
        };
        let Some(begin) = position(locked) else {
            return;
        };
        // What is to be taken is in the slots, whatever the peer fills meanwhile.
        let mut at = begin;
        while at.wrapping_sub(begin) < BUDGET {
            self.take_in_between(locked, now, delivery);
            match position(locked) {
                Some(next) if next != at => at = next,
                _ => return,
            }
        }
    }

    /// As [`take_from_short_ring`](Self::take_from_short_ring), before something else is done.
    #[cold]
    #[inline(never)]
    fn take_in_between(&self, locked: &mut Locked, now: Time, delivery: &mut DirectDelivery<'_>) {
        self.take_from_short_ring(locked, now, delivery);
    }

    /// As [`drain_short_ring`](Self::drain_short_ring), where there is something.
    #[expect(clippy::inline_always, reason = "each message goes this way")]
    #[inline(always)]
    pub(in crate::objects::qp) fn take_from_short_ring(
        &self,
        locked: &mut Locked,
        now: Time,
        delivery: &mut DirectDelivery<'_>,
    ) {
        let into = locked.short_rings.into.as_deref();
        let Some(begin) = into.and_then(|into| into.receiver.position()) else {
            return;
        };
        locked.seen = now;
        let mut taken = RunTaken::default();
        let next = taken.usual(self, locked, delivery);
        if next != NextMessage::Nothing {
            return self.take_others(locked, taken, begin, next, now, delivery);
        }
        locked.short_rings.will_push();
        self.on_taken(locked, &taken, begin, delivery.is_polled());
        self.grant_next(locked);
    }

    /// Packets were taken; more will come.
    #[expect(
        clippy::inline_always,
        reason = "what was counted is not to go through memory"
    )]
    #[inline(always)]
    fn on_taken(&self, locked: &mut Locked, taken: &RunTaken, begin: u32, is_polled: bool) {
        self.tally.count_rx(taken.packets, taken.bytes);
        let Some(into) = &mut locked.short_rings.into else {
            return;
        };
        into.eye.look_at(into.receiver.position());
        let read = begin.wrapping_add(taken.messages);
        if taken.messages > 0 && into.on_taken(taken.messages, read, is_polled) {
            self.tell_sleeping_peer(locked);
        }
    }

    /// Takes packets until there are no more, or the run ends: then nothing more comes. The `next`
    /// one is not as usual, or nothing that could be taken.
    #[cold]
    fn take_others(
        &self,
        locked: &mut Locked,
        mut taken: RunTaken,
        begin: u32,
        mut next: NextMessage,
        now: Time,
        delivery: &mut DirectDelivery<'_>,
    ) {
        let before = locked.transport.state();
        locked.eligibility.end();
        // They may take more receives than one each, or none.
        if let Some(into) = &mut locked.short_rings.into {
            into.next = None;
        }
        let mut goes_on = true;
        while goes_on && next != NextMessage::Nothing {
            // Should this be the end of the queue pair, then what was taken before must be known by
            // then.
            let read = begin.wrapping_add(taken.messages);
            if let Some(into) = &mut locked.short_rings.into {
                into.publish(read);
            }
            match next {
                NextMessage::Acknowledged(psn, so_far) => {
                    self.on_general_ack(locked, psn, so_far, now)
                }
                other => {
                    goes_on = self.take_other(locked, other, now);
                    taken.messages += u32::from(goes_on);
                }
            }
            if goes_on {
                next = self.take_usual(locked, &mut taken, delivery);
            }
        }
        let is_polled = goes_on && delivery.is_polled();
        if !goes_on && let Some(into) = &mut locked.short_rings.into {
            into.receiver.end_run();
        }
        self.on_taken(locked, &taken, begin, is_polled);
        if locked.transport.state() == before {
            self.grant_next(locked);
        } else {
            self.publish_grant(locked);
            self.say_error(locked, before);
        }
    }

    /// Takes packets that are as usual after one that was not.
    #[cold]
    #[inline(never)]
    fn take_usual(
        &self,
        locked: &mut Locked,
        taken: &mut RunTaken,
        delivery: &mut DirectDelivery<'_>,
    ) -> NextMessage {
        taken.usual(self, locked, delivery)
    }

    /// Takes what is not as usual. Returns false if that is the end of the run.
    fn take_other(&self, locked: &mut Locked, next: NextMessage, now: Time) -> bool {
        match next {
            NextMessage::Unusual(waiting) => self.take_whole(locked, waiting, now),
            NextMessage::Overflow => {
                self.on_recv_overflow(locked, now);
                false
            }
            NextMessage::Nothing | NextMessage::Lost | NextMessage::Acknowledged(..) => false,
        }
    }

    /// Takes a message out of a short ring the general way: packet by packet. Returns false if a
    /// packet was not in its turn, or is to come again.
    fn take_whole(&self, locked: &mut Locked, waiting: WaitingMessage, now: Time) -> bool {
        let Some(into) = &mut locked.short_rings.into else {
            return false;
        };
        let packet = whole(&mut into.receiver, waiting);
        if waiting.packet == 0 {
            return self.take_unusual(locked, &packet, now);
        }
        // Nobody sends packets of other lengths.
        let packets = cut(&packet, waiting.packet).unwrap_or_default();
        !packets.is_empty()
            && packets
                .iter()
                .all(|packet| self.take_unusual(locked, packet, now))
    }

    /// The completion of a message found no room.
    fn on_recv_overflow(&self, locked: &mut Locked, now: Time) {
        self.with_cx(locked, now, |locked, cx| match &mut locked.transport {
            Transport::Rc(rc) => rc.on_recv_overflow(cx),
            Transport::Uc(_) | Transport::Ud(_) | Transport::Iwarp(_) => {}
        });
    }

    /// Owes an acknowledgement by the ring, if the peer does not look at the short ring, where what
    /// was taken is published.
    pub(in crate::objects::qp) fn tell_sleeping_peer(&self, locked: &mut Locked) {
        let must_tell = match &locked.path {
            Some(Path {
                reach: Reach::Link(egress),
                ..
            }) => egress.short_rings().is_none_or(|link| link.must_tell()),
            _ => true,
        };
        if let Transport::Rc(rc) = &mut locked.transport
            && must_tell
        {
            rc.owe_ack();
            locked.eligibility.end();
        }
    }

    /// Takes a packet out of a short ring the general way. Returns false if it was not in its turn,
    /// or is to come again.
    fn take_unusual(&self, locked: &mut Locked, packet: &[u8], now: Time) -> bool {
        let (Some(expected), Some(path)) = (locked.transport.expected(), &locked.path) else {
            return false;
        };
        let addressing = path.addressing.reversed();
        let came = path.by_short_ring(&addressing);
        let taken = self.with_cx(locked, now, |locked, cx| {
            addressing.read(packet, |packet| match packet? {
                packet if packet.bth.dest_qp == self.qpn => self.take(locked, cx, came, packet),
                _ => Err(DropReason::NoQp),
            })
        });
        self.keep_timer(locked);
        match taken {
            Ok(()) => self.tally.count_rx(1, packet.len()),
            Err(why) => self.on_lost_in_short_ring(locked, why),
        }
        locked.transport.expected() != Some(expected)
    }

    /// A packet of the short ring was dropped: as on the ring, its sender is told.
    fn on_lost_in_short_ring(&self, locked: &mut Locked, why: DropReason) {
        self.pd.context().device().counters().count_dropped(why);
        tracing::debug!(target: "ferroce::packet", qpn = self.qpn.get(), ?why, "dropped");
        self.say_end(locked);
    }
}
