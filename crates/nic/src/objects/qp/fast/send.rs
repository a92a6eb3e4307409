//! The end that sends: what is in the short ring, and what the receiver has read of it.

use std::collections::VecDeque;
use std::sync::Arc;

use ferroce_os::ring::{Head, LONGEST, Long, ShortRingAck, ShortRingRefusal, ShortRingSender};
use ferroce_proto::ids::{Msn, Psn};
use ferroce_proto::rc::FastOutcome;
use ferroce_proto::time::Time;
use ferroce_proto::wire::{Brief, Bth, Opcode};

use super::take::acknowledge;
use super::watched::Eye;
use crate::base::carrier::Carrier;
use crate::link::local::{LateWake, Outgoing};
use crate::link::path::Reach;
use crate::objects::cq::DirectDelivery;
use crate::objects::qp::Qp;
use crate::objects::qp::locked::Locked;
use crate::objects::qp::results::Results;
use crate::objects::qp::transport::Transport;

/// How far it is with a short ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunStage {
    /// Offered, with a number.
    Offered(u32),
    /// Accepted, and not used now.
    Idle,
    /// Used.
    Runs,
}

/// The short ring that it sends by.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) sender: ShortRingSender,
    pub(super) link: Arc<Outgoing>,
    pub(super) eye: Arc<Eye>,
    pub(super) stage: RunStage,
    /// A position of the last run and the PSN of what is there. The others follow from that, as
    /// long as each message before them has one PSN.
    pub(super) known: Option<(u32, Psn)>,
    /// Positions behind that of messages that have more PSNs, and how many more.
    pub(super) longer: VecDeque<(u32, u32)>,
    /// PSN behind the last message of the last run: the next one must have it.
    pub(super) next: Option<Psn>,
    /// Up to where what the receiver has read, or has promised to, was taken as acknowledged.
    pub(super) seen: u32,
    /// Where it was when idle ones were looked for last.
    pub(super) looked_at: u32,
    /// Whether the receiver has been woken for what was put in.
    pub(super) late: LateWake,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.eye.close();
        self.wake_late();
        if self.sender.has_had_many() {
            self.sender.give_memory_back();
        }
        self.link.give_back(&self.sender);
    }
}

impl Sending {
    /// The last PSN of what is before a position, which is not before one that was asked about.
    #[inline]
    fn psn_before(&mut self, position: u32) -> Option<Psn> {
        let (known, psn) = self.known.as_mut()?;
        let distance = position.wrapping_sub(*known);
        while let Some(&(at, more)) = self.longer.front()
            && at.wrapping_sub(*known) < distance
        {
            *psn = psn.plus(more);
            self.longer.pop_front();
        }
        Some(psn.plus(distance).minus(1))
    }

    /// The receiver has read up to a position. Returns the PSN of the last message that it has
    /// taken, if that is news.
    #[inline]
    fn on_read(&mut self, read: u32) -> Option<Psn> {
        let is_news = read.wrapping_sub(self.seen).cast_signed() > 0;
        if !is_news || self.stage == RunStage::Idle && self.known.is_none() {
            return None;
        }
        self.seen = read;
        self.eye.look_at(Some(read));
        self.psn_before(read)
    }

    /// A message that came the other way says what the receiver has read. Returns as
    /// [`on_read`](Self::on_read).
    #[inline]
    pub(super) fn on_ack(&mut self, ack: ShortRingAck) -> Option<Psn> {
        let read = self.sender.on_ack(ack);
        self.on_read(read)
    }

    /// Something is likely to be put in within as little time as a cache line takes from one
    /// processor to another: asks for its ring slot. If that was done earlier, the peer, which
    /// looks there all the time, would have it back by then; done later, it would keep the message
    /// waiting.
    #[inline]
    pub(super) fn will_push(&self) {
        self.sender.will_push();
    }

    /// Something was put in, see [`LateWake::wake`].
    #[inline]
    pub(super) fn wake(&mut self, again: bool) -> bool {
        self.late.wake(&self.link, again)
    }

    /// Whether what was put in last, with `rest` bytes behind its header, is as good as taken. If
    /// so, it counts as acknowledged.
    #[inline]
    pub(super) fn try_complete_early(&mut self, rest: usize) -> bool {
        let completes_early = self.sender.completes_early(rest);
        if completes_early {
            self.seen = self.sender.position();
            self.eye.look_at(Some(self.seen));
            self.longer.clear();
            self.known = self.next.map(|next| (self.seen, next));
        }
        completes_early
    }

    /// Wakes the receiver, if it sleeps, for what was left.
    pub(super) fn wake_late(&mut self) {
        self.late.finish(&self.link);
    }

    /// Whether what the receiver says is always news, and never true.
    #[inline]
    fn has_nonsense(&mut self) -> bool {
        self.eye.has_news() && self.sender.look() == self.seen
    }

    /// Whether the receiver has read everything that it has acknowledged: what it has promised as
    /// well.
    pub(super) fn has_read_promised(&mut self) -> bool {
        self.sender.look().wrapping_sub(self.seen).cast_signed() >= 0
    }

    /// Whether packets go by it now.
    #[inline]
    pub(super) fn runs(&self) -> bool {
        self.stage == RunStage::Runs
    }

    /// What follows goes by packets.
    pub(super) fn end_run(&mut self) {
        if self.runs() {
            self.stage = RunStage::Idle;
        }
    }

    /// Puts a packet in, if the run goes on with it. Returns whether it is there.
    #[expect(clippy::inline_always, reason = "a head is not to go through memory")]
    #[inline(always)]
    pub(super) fn push(&mut self, packet: (Head, &[u8]), ack: Option<ShortRingAck>) -> bool {
        let psn = Bth::psn_in(packet.0);
        let at = self.sender.position();
        if !self.goes_on_with(psn) || self.sender.push(packet, ack) != Ok(true) {
            return false;
        }
        self.on_pushed(at, psn, 1);
        true
    }

    /// As [`push`](Self::push), for a message as long as `packets` packets.
    ///
    /// # Errors
    /// Why it is not there.
    pub(super) fn push_long(
        &mut self,
        message: &Long<'_>,
        packets: u32,
        ack: Option<ShortRingAck>,
    ) -> Result<(), ShortRingRefusal> {
        let psn = Bth::psn_in(message.head);
        let at = self.sender.position();
        if !self.goes_on_with(psn) {
            return Err(ShortRingRefusal::Broken);
        }
        self.sender.push_long(message, ack)?;
        self.on_pushed(at, psn, packets);
        if packets > 1 {
            self.longer.push_back((at, packets - 1));
        }
        Ok(())
    }

    /// Whether the next message of a run has this PSN.
    #[inline]
    fn goes_on_with(&self, psn: Psn) -> bool {
        self.runs() && self.next.is_none_or(|next| next == psn)
    }

    #[inline]
    fn on_pushed(&mut self, at: u32, psn: Psn, packets: u32) {
        if self.next.is_none() {
            self.known = Some((at, psn));
        }
        self.next = Some(psn.plus(packets));
    }
}

/// The header of a packet, and the rest.
fn split(packet: &[u8]) -> Option<(Head, &[u8])> {
    let (head, rest) = packet.split_first_chunk::<{ Bth::LEN }>()?;
    let (words, []) = head.as_chunks() else {
        return None;
    };
    let head = [words[0], words[1], words[2]].map(u32::from_ne_bytes);
    Some((head, rest))
}

impl Qp {
    /// Sends the short message that was built by the short ring, if there is one, it runs, and its
    /// receiver looks at it. Returns whether it did.
    #[inline]
    pub(in crate::objects::qp) fn send_by_short_ring(&self, locked: &mut Locked) -> bool {
        let (Some(_), Transport::Rc(rc)) = (&locked.short_rings.out, &locked.transport) else {
            return false;
        };
        let may = locked.short_rings.is_open() && !rc.awaits_answers();
        let is_in = may
            && self.send_ack_apart(locked)
            && split(&locked.short.bytes)
                .is_some_and(|packet| locked.short_rings.push(packet, |_| None));
        if !is_in {
            locked.short_rings.pause();
            return false;
        }
        self.wake_receiver(&mut locked.short_rings);
        let bytes = locked.short.bytes.len();
        locked.short.clear();
        self.tally.count_tx(1, bytes);
        self.note_packets(locked, Carrier::ShortRing);
        true
    }

    /// An acknowledgement of what came by the ring, which would go before the message, goes by the
    /// ring as well: or else two that answer each other would not find back to their short rings.
    /// Returns whether the message is all that is left.
    fn send_ack_apart(&self, locked: &mut Locked) -> bool {
        let Locked {
            short,
            path: Some(path),
            ..
        } = locked
        else {
            return false;
        };
        let Reach::Link(egress) = &path.reach else {
            return false;
        };
        let first = short.start(1);
        if short.ends.len() == 1 {
            return first <= LONGEST;
        }
        let fits = short.ends.len() == 2 && short.bytes.len() - first <= LONGEST;
        let send = |ack| egress.send_at_once(self.qpn, &path.addressing, ack);
        if !fits || send(&short.bytes[..first]).is_none() {
            return false;
        }
        self.tally.count_tx(1, first);
        short.discard(1);
        true
    }

    /// Takes what the receiver of the short ring has read as acknowledged.
    #[inline]
    pub(in crate::objects::qp) fn take_short_ring_acks(
        &self,
        locked: &mut Locked,
        now: Time,
        delivery: &mut DirectDelivery<'_>,
    ) {
        let Some(out) = &mut locked.short_rings.out else {
            return;
        };
        let read = out.sender.look();
        let Some(psn) = out.on_read(read) else {
            if out.has_nonsense() {
                self.give_up_short_ring(locked);
            }
            return;
        };
        self.on_short_ring_ack(locked, psn, now, delivery);
    }

    /// Its receiver says that it has read what was not put in.
    #[cold]
    fn give_up_short_ring(&self, locked: &mut Locked) {
        tracing::warn!(target: "ferroce::local", qpn = self.qpn.get(), "a process breaks the rules of a short ring, which is used no more");
        locked.short_rings.close_out();
    }

    #[inline]
    fn on_short_ring_ack(
        &self,
        locked: &mut Locked,
        psn: Psn,
        now: Time,
        delivery: &mut DirectDelivery<'_>,
    ) {
        let Transport::Rc(rc) = &mut locked.transport else {
            return;
        };
        let taken = acknowledge(
            rc,
            &locked.eligibility,
            &mut Results::new(self, delivery),
            psn,
        );
        if taken != FastOutcome::Done {
            self.settle_early_completion(locked);
            self.on_general_ack(locked, psn, taken, now);
        }
    }

    /// The acknowledgement of everything up to a PSN, or the rest of it, the general way: as the
    /// packet that it would be.
    #[cold]
    pub(super) fn on_general_ack(
        &self,
        locked: &mut Locked,
        psn: Psn,
        so_far: FastOutcome,
        now: Time,
    ) {
        if so_far == FastOutcome::Overflow {
            self.with_cx(locked, now, |locked, cx| {
                locked.transport.on_cq_overflow(cx)
            });
        }
        let bth = Bth::new(Opcode::RC_ACKNOWLEDGE, self.qpn, psn);
        let packet = Brief::acknowledgement(&bth, Msn::new(0));
        let Some(path) = &locked.path else {
            return;
        };
        let addressing = path.addressing.reversed();
        let came = path.by_short_ring(&addressing);
        let taken = self.with_cx(locked, now, |locked, cx| {
            addressing.read(&packet, |packet| self.take(locked, cx, came, packet?))
        });
        if let Err(why) = taken {
            tracing::debug!(target: "ferroce::packet", qpn = self.qpn.get(), ?why, "an acknowledgement does not count");
        }
        self.keep_timer(locked);
    }
}
