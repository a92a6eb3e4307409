//! Lanes: memory that this queue pair and its peer in another process have for their small packets alone (`ferroce_os::ring`).
//!
//! A lane carries the very packets that would go through the ring, so the transport knows nothing of it. Who has sent small
//! messages through the ring for a while, and nothing else, offers a lane; once the other side has accepted it, a *run* begins, by a word
//! behind all packets that went through the ring before. Whatever goes as a packet by the ring ends the run, and the
//! receiver takes all that is in its lane before it looks at a packet from the ring: so both together keep the order in which packets
//! were sent.
//!
//! How far the receiver has read is an acknowledgement, for who looks there. Who does not, since he sleeps, gets an acknowledgement by
//! the ring. A packet that is not taken (no receive is posted, say) ends the run on the receiver's side: what comes after it is not
//! looked at, as it would be dropped, and is sent again by the ring as the transport demands.

use std::sync::Arc;

use ferroce_os::ring::{LONGEST, LaneConsumer, LaneReceiver, LaneSender};
use ferroce_proto::ids::{Msn, Psn, Qpn};
use ferroce_proto::rc::Cx;
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{QpState, QpType};
use ferroce_proto::wire::{Brief, BriefKind, Bth, Opcode};

use super::Qp;
use super::step::Locked;
use super::transport::Transport;
use crate::core::{DropReason, End, Eye, LaneOffer, Watch, lock, slot_of};
use crate::link::local::{Frame, LaneNotice, LaneWord, Outgoing};
use crate::path::{Carrier, Path, Reach};

/// Small messages in a row that make a queue pair worth a lane.
const HABIT: u32 = 32;
/// Small messages in a row, by the ring, after which it goes back to its lane.
const RETURN: u32 = 8;
/// Of so many small messages one repeats an offer that was not accepted.
const OFFER_AGAIN: u32 = 4096;
/// Messages that a receiver takes in one go: as many as fit.
const BUDGET: u32 = 256;

/// Where in a packet the bit is that asks for an acknowledgement, and where its PSN begins.
const ACK_REQ: (usize, u8) = (8, 0x80);
const PSN: usize = 9;

/// The lanes of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    out: Option<Box<Out>>,
    into: Option<Box<Into>>,
    /// Small messages sent by the ring, in a row.
    streak: u32,
}

/// How far it is with a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Offered, with a number.
    Offered(u32),
    /// Accepted, and not used now.
    Idle,
    /// Used: the next packet must have this PSN, if that is known.
    Runs(Option<Psn>),
}

/// The lane that it sends by.
#[derive(Debug)]
struct Out {
    sender: LaneSender,
    link: Arc<Outgoing>,
    eye: Arc<Eye>,
    stage: Stage,
    /// A position of the last run and the PSN of what is there. The others follow from that.
    known: Option<(u32, Psn)>,
    /// Up to where what the receiver has read was taken as acknowledged.
    seen: u32,
}

impl Drop for Out {
    fn drop(&mut self) {
        self.eye.close();
        self.link.give_back(&self.sender);
    }
}

/// The lane that it receives by.
#[derive(Debug)]
struct Into {
    receiver: LaneReceiver,
    eye: Arc<Eye>,
}

impl Drop for Into {
    fn drop(&mut self) {
        self.eye.close();
    }
}

impl Out {
    /// PSN of what is at a position.
    fn psn_at(&self, position: u32) -> Option<Psn> {
        let (known, psn) = self.known?;
        Some(psn.plus(position.wrapping_sub(known)))
    }

    /// Puts a packet in, if the run goes on with it. Returns whether it is there.
    fn push(&mut self, packet: &[u8]) -> bool {
        let Stage::Runs(next) = self.stage else {
            return false;
        };
        let Some(psn) = psn_of(packet).filter(|psn| next.is_none_or(|next| next == *psn)) else {
            return false;
        };
        let at = self.sender.position();
        if self.sender.push(packet) != Ok(true) {
            return false;
        }
        if next.is_none() {
            self.known = Some((at, psn));
        }
        self.stage = Stage::Runs(Some(psn.plus(1)));
        true
    }
}

impl Lanes {
    /// Something goes out by packets: what follows is to come behind it.
    pub(super) fn end_run(&mut self) {
        self.streak = 0;
        if let Some(out) = &mut self.out
            && let Stage::Runs(_) = out.stage
        {
            out.stage = Stage::Idle;
        }
    }

    /// Gives back the lane that it sends by. What is not acknowledged by now is sent again by packets, if that is called for.
    pub(super) fn close_out(&mut self) {
        self.streak = 0;
        self.out = None;
    }

    /// Gives back both. Returns whether the peer must be told, since it may have put something in that nobody will look at.
    pub(super) fn close(&mut self) -> bool {
        self.close_out();
        self.into.take().is_some()
    }
}

/// The PSN of a packet.
fn psn_of(packet: &[u8]) -> Option<Psn> {
    let &[a, b, c] = packet.get(PSN..PSN + 3)? else {
        return None;
    };
    Some(Psn::new(u32::from_be_bytes([0, a, b, c])))
}

impl Qp {
    /// Sends the short message that was built by the lane, if there is one, it runs, and its receiver looks at it. Returns whether it did.
    #[inline]
    pub(super) fn send_by_lane(&self, locked: &mut Locked) -> bool {
        let Some(out) = &mut locked.lanes.out else {
            return false;
        };
        let batch = &mut locked.short;
        let fits = batch.ends.len() == 1 && batch.bytes.len() <= LONGEST;
        let Transport::Rc(rc) = &locked.transport else {
            return false;
        };
        let sent =
            fits && !rc.awaits_answers() && !out.link.seems_asleep() && out.push(&batch.bytes);
        if !sent {
            if let Stage::Runs(_) = out.stage {
                out.stage = Stage::Idle;
            }
            return false;
        }
        out.link.wake_for_lane();
        let bytes = batch.bytes.len();
        batch.clear();
        self.tally.count_tx(1, bytes);
        self.note_packets(locked, Carrier::Lane);
        true
    }

    /// A short message went by the ring: offers a lane, or begins a run, if it is time for that.
    pub(super) fn seek_lane(&self, locked: &mut Locked) {
        let Locked {
            lanes,
            transport,
            path,
            ..
        } = locked;
        lanes.streak = lanes.streak.wrapping_add(1);
        let (Transport::Rc(rc), true) = (&*transport, lanes.streak >= RETURN) else {
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
        match &mut lanes.out {
            None if lanes.streak.is_multiple_of(HABIT) => {
                lanes.out = egress.lanes().and_then(|link| self.offer_lane(link, dest));
            }
            None => {}
            Some(out) => match out.stage {
                Stage::Offered(number) if out.sender.is_accepted(number) => {
                    out.stage = Stage::Idle;
                }
                Stage::Offered(_) if lanes.streak.is_multiple_of(OFFER_AGAIN) => lanes.out = None,
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

    fn offer_lane(&self, link: &Arc<Outgoing>, to: Qpn) -> Option<Box<Out>> {
        let (area, (sender, number)) = (link.area()?, link.take_lane()?);
        let eye = Eye::new(area, sender.lane(), End::Sending);
        let out = Box::new(Out {
            seen: sender.position(),
            sender,
            link: Arc::clone(link),
            eye: Arc::clone(&eye),
            stage: Stage::Offered(number),
            known: None,
        });
        let notice = self.notice(&out, to, LaneWord::Offer(number));
        if !link.say_of_lane(notice) {
            return None;
        }
        let slot = slot_of(to);
        self.nic().watch_lane(Watch {
            qp: self.me(),
            slot,
            eye,
        });
        Some(out)
    }

    fn begin_run(&self, out: &mut Out, to: Qpn) {
        let at = out.sender.begin_run();
        (out.known, out.seen) = (None, at);
        out.eye.look_at(Some(at));
        if out
            .link
            .say_of_lane(self.notice(out, to, LaneWord::Run(at)))
        {
            out.stage = Stage::Runs(None);
        }
    }

    fn notice(&self, out: &Out, to: Qpn, word: LaneWord) -> LaneNotice {
        LaneNotice {
            lane: out.sender.lane(),
            from: self.qpn,
            to,
            word,
        }
    }

    /// Another process offers a lane. `None`: it goes on by the ring.
    pub(crate) fn accept_lane(&self, offer: &LaneOffer) -> Option<Arc<Eye>> {
        let mut locked = lock(&self.locked);
        let usual = !locked.retired
            && self.qp_type == QpType::Rc
            && matches!(locked.transport.state(), QpState::Rtr | QpState::Rts)
            && locked.transport.dest() == offer.from
            && !locked.transport.is_armed()
            && locked
                .path
                .as_ref()
                .is_some_and(|path| path.leads_to(offer.slot));
        // Who wants to read of every packet sees those of the ring.
        if !usual || tracing::enabled!(target: "ferroce::packet", tracing::Level::TRACE) {
            return None;
        }
        let eye = Eye::new(&offer.area, offer.lane, End::Receiving);
        let area = Arc::clone(&offer.area);
        locked.lanes.into = Some(Box::new(Into {
            receiver: LaneConsumer::accept(area, offer.lane, offer.number),
            eye: Arc::clone(&eye),
        }));
        Some(eye)
    }

    /// A run of the lane that the peer sends by begins at a position.
    pub(crate) fn on_run_of_lane(&self, slot: u16, (notice, at): (&LaneNotice, u32), now: Time) {
        let mut locked = lock(&self.locked);
        let leads_there = locked.path.as_ref().is_some_and(|path| path.leads_to(slot));
        if locked.retired || !leads_there || locked.transport.dest() != notice.from {
            return;
        }
        self.drain_lane(&mut locked, now);
        match &mut locked.lanes.into {
            Some(into) if into.receiver.lane() == notice.lane && !into.eye.is_closed() => {
                into.receiver.begin_run(at);
                into.eye.look_at(Some(at));
            }
            // Nobody would look at what is put in.
            _ => self.say_end(&locked),
        }
    }

    /// There is something in one of its lanes.
    pub(crate) fn on_lane(&self, now: Time) {
        let mut locked = lock(&self.locked);
        if locked.retired {
            return;
        }
        self.take_lane_acks(&mut locked, now);
        self.drain_lane(&mut locked, now);
        let speaks = locked.transport.wants_transmit() || locked.transport.next_local().is_some();
        drop(locked);
        if speaks {
            self.on_turn(true, now);
        }
    }

    /// Takes what is in the lane that it receives by. Called before anything that came by the ring is looked at.
    pub(super) fn drain_lane(&self, locked: &mut Locked, now: Time) {
        let Some(into) = &locked.lanes.into else {
            return;
        };
        if into.eye.has_news()
            && let Some(mut into) = locked.lanes.into.take()
        {
            self.take_from_lane(locked, &mut into.receiver, now);
            into.eye.look_at(into.receiver.position());
            locked.lanes.into = Some(into);
        }
    }

    fn take_from_lane(&self, locked: &mut Locked, receiver: &mut LaneReceiver, now: Time) {
        let Some(begin) = receiver.position() else {
            return;
        };
        let (mut taken, mut room) = (Taken::default(), [0; LONGEST]);
        let before = locked.transport.state();
        let mut goes_on = true;
        while goes_on {
            let next = self.run_with_cx(locked, now, |locked, cx| {
                taken.usual(self.qpn, (locked, cx), receiver, &mut room)
            });
            goes_on = match next {
                Next::Nothing => break,
                Next::Unusual(len) => self.take_unusual(locked, &room[..len], now),
                Next::Lost => false,
            };
            taken.messages += u32::from(goes_on);
        }
        if !goes_on {
            receiver.end_run();
        }
        self.tally.count_rx(taken.packets, taken.bytes);
        if locked.transport.state() == before {
            self.grant_next(locked);
        } else {
            self.publish_grant(locked);
            self.say_error(locked, before);
        }
        if taken.messages > 0 {
            receiver.publish(begin.wrapping_add(taken.messages));
            self.tell_who_sleeps(locked);
        }
    }

    /// What was taken is published in the lane: a peer that does not look there is to hear of it by the ring.
    fn tell_who_sleeps(&self, locked: &mut Locked) {
        let must_tell = match &locked.path {
            Some(Path {
                reach: Reach::Link(egress),
                ..
            }) => egress.lanes().is_none_or(|link| link.must_tell()),
            _ => true,
        };
        if let Transport::Rc(rc) = &mut locked.transport
            && must_tell
        {
            rc.owe_ack();
        }
    }

    /// Takes a packet out of a lane the general way. Returns false if it was not in its turn, or is to come again.
    fn take_unusual(&self, locked: &mut Locked, packet: &[u8], now: Time) -> bool {
        let (Some(expected), Some(path)) = (locked.transport.expected(), &locked.path) else {
            return false;
        };
        let addressing = path.addressing.reversed();
        let taken = self.with_cx(locked, now, |locked, cx| {
            addressing.read(packet, |packet| match packet? {
                packet if packet.bth.dest_qp == self.qpn => {
                    self.take(locked, cx, (&addressing, packet))
                }
                _ => Err(DropReason::NoQp),
            })
        });
        self.keep_timer(locked);
        match taken {
            Ok(()) => self.tally.count_rx(1, packet.len()),
            Err(why) => self.on_lost_in_lane(locked, why),
        }
        locked.transport.expected() != Some(expected)
    }

    /// A packet of the lane was dropped: as on the ring, its sender is told.
    fn on_lost_in_lane(&self, locked: &Locked, why: DropReason) {
        self.pd.context().device().counters().count_dropped(why);
        tracing::debug!(target: "ferroce::packet", qpn = self.qpn.get(), ?why, "dropped");
        self.say_end(locked);
    }

    /// Takes what the receiver of the lane has read as acknowledged.
    pub(super) fn take_lane_acks(&self, locked: &mut Locked, now: Time) {
        let Some(out) = &mut locked.lanes.out else {
            return;
        };
        let read = out.sender.look();
        if read == out.seen || out.stage == Stage::Idle && out.known.is_none() {
            return;
        }
        out.seen = read;
        out.eye.look_at(Some(read));
        let Some(psn) = out.psn_at(read.wrapping_sub(1)) else {
            return;
        };
        self.on_lane_ack(locked, psn, now);
    }

    fn on_lane_ack(&self, locked: &mut Locked, psn: Psn, now: Time) {
        let brief = Brief {
            bth: Bth::new(Opcode::RC_ACKNOWLEDGE, self.qpn, psn),
            kind: BriefKind::Ack,
        };
        let before = locked.transport.state();
        let taken = self.run_with_cx(locked, now, |locked, cx| match &mut locked.transport {
            Transport::Rc(rc) => rc.on_brief(cx, &brief),
            Transport::Uc(_) | Transport::Ud(_) => None,
        });
        if taken.is_none() {
            self.on_general_ack(locked, &brief.bth, now);
        } else if locked.transport.state() != before {
            self.publish_grant(locked);
            self.say_error(locked, before);
        }
        if locked.transport.deadline().is_some() {
            self.keep_timer(locked);
        }
    }

    /// An acknowledgement the general way, as the packet that it would be.
    fn on_general_ack(&self, locked: &mut Locked, bth: &Bth, now: Time) {
        let packet = Brief::acknowledgement(bth, Msn::new(0));
        let Some(addressing) = locked.path.as_ref().map(|p| p.addressing.reversed()) else {
            return;
        };
        let taken = self.with_cx(locked, now, |locked, cx| {
            addressing.read(&packet, |packet| {
                self.take(locked, cx, (&addressing, packet?))
            })
        });
        if let Err(why) = taken {
            tracing::debug!(target: "ferroce::packet", qpn = self.qpn.get(), ?why, "an acknowledgement does not count");
        }
    }

    /// The lanes of a path that is left: the peer hears of it, if it may have put something in.
    pub(super) fn frame_of_end(locked: &Locked, qpn: Qpn) -> Frame<'static> {
        Frame::Dropped {
            qpn: locked.transport.dest(),
            by: qpn,
        }
    }
}

/// What comes next in a lane.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Nothing now.
    Nothing,
    /// Bytes of a packet that is not as usual.
    Unusual(usize),
    /// Nothing that could be taken any more.
    Lost,
}

/// What was taken out of a lane.
#[derive(Debug, Default)]
struct Taken {
    /// Slots.
    messages: u32,
    /// Packets that were taken the short way, and their bytes.
    packets: usize,
    bytes: usize,
}

impl Taken {
    /// Takes packets for which the short way (`express`) is open, until there is another one, or none.
    fn usual(
        &mut self,
        qpn: Qpn,
        (locked, cx): (&mut Locked, &mut Cx<'_>),
        receiver: &mut LaneReceiver,
        room: &mut [u8; LONGEST],
    ) -> Next {
        let Transport::Rc(rc) = &mut locked.transport else {
            return Next::Lost;
        };
        while self.messages < BUDGET {
            let len = match receiver.pop(room) {
                Ok(None) => return Next::Nothing,
                Ok(Some(len)) => len,
                Err(broken) => {
                    tracing::warn!(target: "ferroce::local", qpn = qpn.get(), %broken, "a lane is of no use");
                    return Next::Lost;
                }
            };
            // That it is taken is said by the lane itself.
            room[ACK_REQ.0] &= !ACK_REQ.1;
            let brief = Brief::parse(&room[..len]).filter(|brief| {
                let is_send = matches!(brief.kind, BriefKind::Send(_));
                is_send && brief.bth.dest_qp == qpn && !rc.is_armed()
            });
            match brief.and_then(|brief| rc.on_brief(cx, &brief)) {
                Some(true) => {}
                Some(false) => return Next::Lost,
                None => return Next::Unusual(len),
            }
            self.messages += 1;
            self.packets += 1;
            self.bytes += len;
        }
        Next::Nothing
    }
}
