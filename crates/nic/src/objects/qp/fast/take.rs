//! Messages in a short ring, in their order: usual ones go straight to the program.

use ferroce_os::ring::{Broken, ShortRingReceiver, WaitingMessage};
use ferroce_proto::ids::Psn;
use ferroce_proto::mr::{Piece, Span, Unmapped};
use ferroce_proto::rc::{FastOutcome, RcQp, Rendezvous};
use ferroce_proto::wire::{AtomicEth, BriefSend, Bth};
use smallvec::SmallVec;

use super::ShortRings;
use super::receive::Receiving;
use crate::objects::cq::DirectDelivery;
use crate::objects::qp::Qp;
use crate::objects::qp::fast::eligibility::Eligibility;
use crate::objects::qp::fast::rights_cache::Remembering;
use crate::objects::qp::locked::Locked;
use crate::objects::qp::results::Results;
use crate::objects::qp::transport::Transport;
use crate::services::direct::KnownPeer;

/// Messages that a receiver takes in one go: as many as fit.
pub(super) const BUDGET: u32 = 256;
/// Bytes that a receiver fetches in one go, and one message more. What is behind them waits for the
/// next look, so that others have their turn, and the sender hears what was taken.
const MOST_FETCHED: usize = 64 << 10;
/// The bit of the last word of a header that asks for an acknowledgement.
const ACK_REQ: u32 = (1_u32 << 31).to_be();

/// What comes next in a short ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextMessage {
    /// Nothing now.
    Nothing,
    /// The general way takes the message, which is still in its ring slot.
    Unusual(WaitingMessage),
    /// A message that is still in its ring slot says that the peer has taken what was sent up to a
    /// PSN, which is not as usual.
    Acknowledged(Psn, FastOutcome),
    /// The completion of a message found no room.
    Overflow,
    /// Nothing that could be taken any more.
    Lost,
}

/// What was taken out of a short ring.
#[derive(Debug, Default)]
pub(super) struct RunTaken {
    /// Slots.
    pub(super) messages: u32,
    /// Packets that were taken the short way, and their bytes.
    pub(super) packets: usize,
    pub(super) bytes: usize,
    /// Bytes that were fetched.
    fetched: usize,
}

impl RunTaken {
    /// Takes packets for which the short way (`brief`) is open, until there is another one, or
    /// none.
    #[expect(
        clippy::inline_always,
        reason = "what it counts is not to go through memory"
    )]
    #[inline(always)]
    pub(super) fn usual(
        &mut self,
        qp: &Qp,
        locked: &mut Locked,
        delivery: &mut DirectDelivery<'_>,
    ) -> NextMessage {
        let Locked {
            transport: Transport::Rc(rc),
            short_rings:
                ShortRings {
                    out,
                    into: Some(into),
                    ..
                },
            memos: [_, memo],
            eligibility,
            known_peer,
            ..
        } = locked
        else {
            return NextMessage::Lost;
        };
        let is_answered = is_answered(into, delivery);
        let receiver = &mut into.receiver;
        if !eligibility.takes() && rc.is_ready_to_take() {
            eligibility.set_takes();
        }
        let (is_ready, mtu) = (eligibility.takes(), rc.mtu());
        let mut opens = Remembering { qp, memo };
        while self.messages < BUDGET {
            let waiting = match receiver.look() {
                Ok(None) => break,
                Ok(Some(waiting)) => waiting,
                Err(broken) => return lost(qp, broken),
            };
            if let (Some(ack), Some(out)) = (waiting.ack, &mut *out)
                && let Some(psn) = out.on_ack(ack)
            {
                let so_far = acknowledge(rc, eligibility, &mut Results::new(qp, delivery), psn);
                if so_far != FastOutcome::Done {
                    return NextMessage::Acknowledged(psn, so_far);
                }
            }
            let message = usual_send(receiver, waiting, qp, mtu);
            let outcome = match message.filter(|_| is_ready) {
                Some(message) => {
                    let sink = &mut Results::new(qp, delivery);
                    let write = |span: Span<'_>| receiver.write_out(waiting, span);
                    rc.take_fast((&mut opens, write), sink, &message)
                }
                None if is_ready => {
                    let sink = &mut Results::new(qp, delivery);
                    let ways = (&mut opens, &mut *known_peer);
                    self.take_rendezvous((qp, rc), (receiver, waiting), ways, sink)
                }
                None => FastOutcome::Unusual,
            };
            match outcome {
                FastOutcome::Done => receiver.pass(waiting),
                FastOutcome::Unusual => return NextMessage::Unusual(waiting),
                FastOutcome::Overflow => {
                    receiver.pass(waiting);
                    return NextMessage::Overflow;
                }
            }
            into.cuts_alike |= waiting.packet != 0;
            self.count(waiting);
            if is_answered {
                break;
            }
            if self.fetched >= MOST_FETCHED {
                break;
            }
        }
        NextMessage::Nothing
    }

    /// Takes the message that waits, if its bytes are to be fetched and can be, at once.
    #[inline(never)]
    fn take_rendezvous(
        &mut self,
        (qp, rc): (&Qp, &mut RcQp),
        (receiver, waiting): (&ShortRingReceiver, WaitingMessage),
        (opens, known): (&mut Remembering<'_>, &mut KnownPeer),
        sink: &mut Results<'_, '_>,
    ) -> FastOutcome {
        let Some((message, rendezvous)) = place_of(receiver, waiting, (qp, rc)) else {
            return FastOutcome::Unusual;
        };
        self.fetched += message.len;
        let fetch = |span: Span<'_>| {
            let is_there = qp.fetch(&rendezvous, known, &[Piece::Registered(span)]);
            is_there.then_some(()).ok_or(Unmapped)
        };
        rc.take_fast((opens, fetch), sink, &message)
    }

    #[expect(
        clippy::inline_always,
        reason = "what it counts is not to go through memory"
    )]
    #[inline(always)]
    fn count(&mut self, waiting: WaitingMessage) {
        let packets = waiting.packets();
        self.messages += 1;
        self.packets += packets;
        self.bytes += Bth::LEN * packets + waiting.rest;
    }
}

/// Whether the program answers the next message before another one comes.
///
/// There is only one then, and a look at where the next one will be would keep the answer waiting:
/// no store is seen before the loads that come earlier, and that line takes as long as a message.
#[inline]
fn is_answered(into: &Receiving, delivery: &DirectDelivery<'_>) -> bool {
    delivery.is_polled() && into.delayed_ack.is_conversation()
}

/// The message that waits, if it is a SEND that is cut as this end would cut it. It asks for no
/// acknowledgement: the short ring itself says that it is taken.
#[expect(
    clippy::inline_always,
    reason = "a message is not to go through memory"
)]
#[inline(always)]
fn usual_send(
    receiver: &ShortRingReceiver,
    waiting: WaitingMessage,
    qp: &Qp,
    mtu: u32,
) -> Option<BriefSend> {
    let head = receiver.head(waiting);
    let is_cut_alike = waiting.packet == 0 || waiting.packet == mtu;
    let message = BriefSend::parse(head, waiting.rest, qp.qpn).filter(|_| is_cut_alike)?;
    Some(BriefSend {
        ack_req: false,
        ..message
    })
}

/// The message that waits, and where its bytes are, if it says that and they can be fetched at
/// once.
fn place_of(
    receiver: &ShortRingReceiver,
    waiting: WaitingMessage,
    (qp, rc): (&Qp, &RcQp),
) -> Option<(BriefSend, Rendezvous)> {
    let mut place = [0; AtomicEth::LEN];
    if waiting.rest != place.len() {
        return None;
    }
    receiver.read(waiting, &mut place);
    let rendezvous = rc.rendezvous_in(AtomicEth::from_bytes(&place))?;
    let len = rendezvous.len as usize;
    let message = BriefSend::parse_rendezvous(receiver.head(waiting), len, qp.qpn)?;
    let message = BriefSend {
        ack_req: false,
        ..message
    };
    Some((message, rendezvous))
}

/// The short ring has nonsense in it, or is a parent's.
#[cold]
fn lost(qp: &Qp, broken: Broken) -> NextMessage {
    tracing::warn!(target: "ferroce::local", qpn = qp.qpn.get(), %broken,
        "a short ring is of no use");
    NextMessage::Lost
}

/// The peer has taken everything up to a PSN: the short way, if that is open.
#[inline]
pub(super) fn acknowledge(
    rc: &mut RcQp,
    eligibility: &Eligibility,
    sink: &mut Results<'_, '_>,
    psn: Psn,
) -> FastOutcome {
    if eligibility.sends().is_some() || rc.is_ready_for_acks() {
        rc.acknowledge_fast(sink, psn)
    } else {
        FastOutcome::Unusual
    }
}

/// Takes a message out as it was sent, without its request for an acknowledgement: the short ring
/// itself says that it is taken.
pub(super) fn whole(
    receiver: &mut ShortRingReceiver,
    waiting: WaitingMessage,
) -> SmallVec<[u8; 128]> {
    let mut packet = SmallVec::from_elem(0, Bth::LEN + waiting.rest);
    let [first, second, third] = receiver.take(waiting, &mut packet[Bth::LEN..]);
    let head = [first, second, third & !ACK_REQ].map(u32::to_ne_bytes);
    packet[..Bth::LEN].copy_from_slice(head.as_flattened());
    packet
}
