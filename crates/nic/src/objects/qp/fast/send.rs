//! The end that sends: whom it is worth to offer a short ring, runs, and what the receiver has
//! read.

use std::sync::Arc;

use ferroce_os::ring::{Head, LONGEST, ShortRingAck, ShortRingSender};
use ferroce_proto::ids::{Msn, Psn, Qpn};
use ferroce_proto::rc::FastOutcome;
use ferroce_proto::time::Time;
use ferroce_proto::wire::{Brief, Bth, Opcode};

use super::take::acknowledge;
use crate::base::numbers::slot_of;
use crate::engine::{End, Eye, Watch};
use crate::link::local::{LateWake, Outgoing, ShortRingEvent, ShortRingNotice};
use crate::link::path::{Carrier, Path, Reach};
use crate::objects::cq::DirectDelivery;
use crate::objects::qp::Qp;
use crate::objects::qp::locked::Locked;
use crate::objects::qp::results::Results;
use crate::objects::qp::transport::Transport;

/// Small messages in a row that make a queue pair worth a short ring.
const HABIT: u32 = 32;
/// Small messages in a row, by the ring, after which it goes back to its short ring.
const RETURN: u32 = 8;
/// Of so many small messages one repeats an offer that was not accepted.
const OFFER_AGAIN: u32 = 4096;

/// How far it is with a short ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Offered, with a number.
    Offered(u32),
    /// Accepted, and not used now.
    Idle,
    /// Used: the next packet must have this PSN, if that is known.
    Runs(Option<Psn>),
}

/// The short ring that it sends by.
#[derive(Debug)]
pub(super) struct Sending {
    sender: ShortRingSender,
    pub(super) link: Arc<Outgoing>,
    eye: Arc<Eye>,
    stage: Stage,
    /// A position of the last run and the PSN of what is there. The others follow from that.
    known: Option<(u32, Psn)>,
    /// Up to where what the receiver has read was taken as acknowledged.
    seen: u32,
    /// Whether the receiver has been woken for what was put in.
    late: LateWake,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.eye.close();
        self.wake_late();
        self.link.give_back(&self.sender);
    }
}

impl Sending {
    /// PSN of what is at a position.
    fn psn_at(&self, position: u32) -> Option<Psn> {
        let (known, psn) = self.known?;
        Some(psn.plus(position.wrapping_sub(known)))
    }

    /// The receiver has read up to a position. Returns the PSN of the last message that it has
    /// taken, if that is news.
    #[inline]
    fn on_read(&mut self, read: u32) -> Option<Psn> {
        if read == self.seen || self.stage == Stage::Idle && self.known.is_none() {
            return None;
        }
        self.seen = read;
        self.eye.look_at(Some(read));
        self.psn_at(read.wrapping_sub(1))
    }

    /// A message that came the other way says what the receiver has read. Returns as
    /// [`on_read`](Self::on_read).
    #[inline]
    pub(super) fn on_ack(&mut self, ack: ShortRingAck) -> Option<Psn> {
        let read = self.sender.on_ack(ack);
        self.on_read(read)
    }

    /// Something is likely to be put in within as little time as a cache line takes from one
    /// processor to another: asks for its slot. If that was done earlier, the peer, which looks
    /// there all the time, would have it back by then; done later, it would keep the message
    /// waiting.
    #[inline]
    pub(super) fn will_push(&self) {
        self.sender.will_push();
    }

    /// Something was put in, see [`LateWake::wake`].
    #[inline]
    pub(super) fn wake(&mut self, again: bool) {
        self.late.wake(&self.link, again);
    }

    /// Whether what was put in last, with so many bytes behind its header, is as good as taken. If
    /// so, it counts as acknowledged.
    #[inline]
    pub(super) fn try_complete_early(&mut self, rest: usize) -> bool {
        let completes_early = self.sender.completes_early(rest);
        if completes_early {
            self.seen = self.sender.position();
            self.eye.look_at(Some(self.seen));
        }
        completes_early
    }

    /// Wakes the receiver, if it sleeps, for what was left.
    pub(super) fn wake_late(&mut self) {
        self.late.finish(&self.link);
    }

    /// Whether packets go by it now.
    #[inline]
    pub(super) fn runs(&self) -> bool {
        matches!(self.stage, Stage::Runs(_))
    }

    /// What follows goes by packets.
    pub(super) fn end_run(&mut self) {
        if let Stage::Runs(_) = self.stage {
            self.stage = Stage::Idle;
        }
    }

    /// Puts a packet in, if the run goes on with it. Returns whether it is there.
    #[expect(clippy::inline_always, reason = "a head is not to go through memory")]
    #[inline(always)]
    pub(super) fn push(&mut self, packet: (Head, &[u8]), ack: Option<ShortRingAck>) -> bool {
        let Stage::Runs(next) = self.stage else {
            return false;
        };
        let psn = Bth::psn_in(packet.0);
        if next.is_some_and(|next| next != psn) {
            return false;
        }
        let at = self.sender.position();
        if self.sender.push(packet, ack) != Ok(true) {
            return false;
        }
        if next.is_none() {
            self.known = Some((at, psn));
        }
        self.stage = Stage::Runs(Some(psn.plus(1)));
        true
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
        locked.short_rings.wake(self.nic().looks_again());
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

    /// A short message went by the ring: offers a short ring, or begins a run, if it is time for
    /// that.
    pub(in crate::objects::qp) fn seek_short_ring(&self, locked: &mut Locked) {
        let Locked {
            short_rings,
            transport,
            path,
            ..
        } = locked;
        short_rings.streak = short_rings.streak.wrapping_add(1);
        let (Transport::Rc(rc), true) = (&*transport, short_rings.streak >= RETURN) else {
            return;
        };
        let Some(Path {
            reach: Reach::Link(egress),
            ..
        }) = path
        else {
            return;
        };
        if egress.is_blocked() || rc.is_armed() {
            return;
        }
        let dest = transport.dest();
        match &mut short_rings.out {
            None if short_rings.streak.is_multiple_of(HABIT) => {
                short_rings.out = egress
                    .short_rings()
                    .and_then(|link| self.offer_short_ring(link, dest));
            }
            None => {}
            Some(out) => match out.stage {
                Stage::Offered(number) if out.sender.is_accepted(number) => {
                    out.stage = Stage::Idle;
                }
                Stage::Offered(_) if short_rings.streak.is_multiple_of(OFFER_AGAIN) => {
                    short_rings.out = None
                }
                Stage::Idle => {
                    let last = out.psn_at(out.sender.position().wrapping_sub(1));
                    // The receiver is done with the last run, in one way or the other.
                    if last.is_none_or(|last| last.distance(rc.oldest_psn()) < 0) {
                        self.begin_run(out, dest);
                    }
                }
                Stage::Offered(_) | Stage::Runs(_) => {}
            },
        }
    }

    fn offer_short_ring(&self, link: &Arc<Outgoing>, to: Qpn) -> Option<Box<Sending>> {
        let (sender, number) = link.take_short_ring()?;
        let eye = Eye::new(sender.area(), End::Sending);
        let out = Box::new(Sending {
            seen: sender.position(),
            sender,
            link: Arc::clone(link),
            eye: Arc::clone(&eye),
            stage: Stage::Offered(number),
            known: None,
            late: LateWake::default(),
        });
        let notice = self.notice(&out, to, ShortRingEvent::Offer(number));
        if !link.say_of_short_ring(notice) {
            return None;
        }
        let slot = slot_of(to);
        self.nic()
            .watch_short_ring(Watch::new(self.me(), slot, eye));
        Some(out)
    }

    fn begin_run(&self, out: &mut Sending, to: Qpn) {
        let at = out.sender.begin_run();
        (out.known, out.seen) = (None, at);
        out.eye.look_at(Some(at));
        if out
            .link
            .say_of_short_ring(self.notice(out, to, ShortRingEvent::Run(at)))
        {
            out.stage = Stage::Runs(None);
        }
    }

    fn notice(&self, out: &Sending, to: Qpn, word: ShortRingEvent) -> ShortRingNotice {
        ShortRingNotice {
            short_ring: out.sender.short_ring(),
            from: self.qpn,
            to,
            word,
        }
    }

    /// Takes what the receiver of the short ring has read as acknowledged.
    #[inline]
    pub(in crate::objects::qp) fn take_short_ring_acks(
        &self,
        locked: &mut Locked,
        (now, delivery): (Time, &mut DirectDelivery<'_>),
    ) {
        let Some(out) = &mut locked.short_rings.out else {
            return;
        };
        let read = out.sender.look();
        let Some(psn) = out.on_read(read) else {
            return;
        };
        self.on_short_ring_ack(locked, psn, (now, delivery));
    }

    #[inline]
    fn on_short_ring_ack(
        &self,
        locked: &mut Locked,
        psn: Psn,
        (now, delivery): (Time, &mut DirectDelivery<'_>),
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
            self.on_general_ack(locked, (psn, taken), now);
        }
    }

    /// The acknowledgement of everything up to a PSN, or the rest of it, the general way: as the
    /// packet that it would be.
    #[cold]
    pub(super) fn on_general_ack(
        &self,
        locked: &mut Locked,
        (psn, so_far): (Psn, FastOutcome),
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
            addressing.read(&packet, |packet| self.take(locked, cx, (came, packet?)))
        });
        if let Err(why) = taken {
            tracing::debug!(target: "ferroce::packet", qpn = self.qpn.get(), ?why, "an acknowledgement does not count");
        }
        self.keep_timer(locked);
    }
}
