//! The shortest way of a short SEND: it is posted, and its packet written to where the peer looks,
//! in one.
//!
//! The packets and the state are those of [`RcQp::post_send`] with [`RcQp::poll_short`] after it.
//! The shortest way is open where nothing is under way but other SENDs, and no timer runs. All that
//! is asked once, before the first change; any other case goes the general way.

use crate::ids::Psn;
use crate::mr::{Access, AddrRange, Memory, Opens, Span, Unmapped};
use crate::rc::config::{PACKET_COST, QpShared};
use crate::rc::direct::Moved;
use crate::rc::fault::Reject;
use crate::rc::requester::{Probe, Requester, completion};
use crate::rc::{Cx, Noted, RcQp, Sink};
use crate::verbs::{
    PathMigState, PlainPayload, PlainSend, QpState, QpType, SendFlags, SendWr, Sge,
};
use crate::wire::{BriefSend, Bth, Opcode, Operation, Position, pad_count, padded_len};

/// The opcode of a SEND in one packet.
const SEND_ONLY: Opcode = Opcode::rc(Operation::Send, Position::Only);

/// Header words and limits that all packets of a queue pair on the fast way have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastHead {
    /// First two words of their headers, without what a message adds.
    words: [u32; 2],
    /// Most bytes of a message.
    longest: u32,
}

impl RcQp {
    /// If all that was posted is sent and nothing is owed or timed: then
    /// [`prepare_fast`](Self::prepare_fast) and
    /// [`acknowledge_fast`](Self::acknowledge_fast) can be called. It stays so as long as
    /// nothing else is called than these and [`commit_fast`](Self::commit_fast),
    /// [`take_fast`](Self::take_fast) and [`post_recv_quietly`](Self::post_recv_quietly).
    #[must_use]
    pub fn fast_head(&self) -> Option<FastHead> {
        let (shared, requester) = (&self.shared, &self.requester);
        let is_ready = is_usual(shared)
            // A `PlainSend` may have one scatter/gather element.
            && shared.config.cap.max_send_sge > 0
            // The responder sends first: its answer would come behind the SEND.
            && !self.responder.wants_transmit()
            && requester.is_quiet(shared)
            && requester.queue.is_sent(requester.flight.next())
            // A work request to a process that has ended completes in error.
            && !requester.peer_gone;
        let header = requester.send_header(shared, SendFlags::empty());
        // The third word has the PSN and AckReq, so it belongs to one message.
        let [first, second, _] = header.to_words(0);
        is_ready.then(|| FastHead {
            words: [first, second],
            longest: shared.mtu(),
        })
    }

    /// Whether [`acknowledge_fast`](Self::acknowledge_fast) can be called.
    #[must_use]
    pub fn is_ready_for_acks(&self) -> bool {
        is_usual(&self.shared) && self.requester.is_quiet(&self.shared)
    }

    /// Whether [`take_fast`](Self::take_fast) can be called. It stays so as
    /// [`fast_head`](Self::fast_head) does.
    #[must_use]
    pub fn is_ready_to_take(&self) -> bool {
        let shared = &self.shared;
        let state = shared.attr.qp_state;
        let receives =
            // The first packet in RTR raises COMM_EST, which `on_packet` does.
            state == QpState::Rts || state == QpState::Rtr && self.responder.is_established();
        receives && is_plain(shared) && !self.is_armed() && self.responder.is_between(shared)
    }

    /// Makes the packet of a SEND that could go out now, with what [`fast_head`](Self::fast_head)
    /// gave. Returns its header, as words in memory, and what is behind it, which is in `room`
    /// unless it is the inline data as they are. Nothing has changed: once the packet is where the
    /// peer finds it, call [`commit_fast`](Self::commit_fast).
    #[inline]
    pub fn prepare_fast<'r>(
        &self,
        common: &FastHead,
        (opens, memory): (&mut impl Opens, &impl Memory),
        send: &PlainSend<'r>,
        room: &'r mut [u8],
    ) -> Option<([u32; 3], &'r [u8])> {
        let shared = &self.shared;
        debug_assert_eq!(self.fast_head().as_ref(), Some(common));
        let len = payload_of(shared, send).filter(|len| *len <= common.longest)?;
        let (bytes, end) = (len as usize, padded_len(len as usize));
        // A full queue, a closed window or too little room: the general way refuses, or waits.
        if !self.requester.has_place(shared, len) || end > room.len() {
            return None;
        }
        let rest = match send.payload {
            PlainPayload::Inline(data) if bytes == end => data,
            payload => {
                let (place, pad) = room[..end].split_at_mut(bytes);
                read(shared, opens, memory, payload, place)?;
                if !pad.is_empty() {
                    // Bytes of an earlier message must not reach the peer as pad.
                    pad.fill(0);
                }
                &room[..end]
            }
        };
        let is_solicited = send.flags.contains(SendFlags::SOLICITED);
        let [first, second] = common.words;
        let first = first | Bth::solicited_and_pad(is_solicited, pad_count(bytes));
        // Each message asks for an acknowledgement, as no later packet need come to ask for it.
        let third = Bth::last_word(true, self.requester.next_psn());
        Some(([first, second, third], rest))
    }

    /// PSN of what was sent last.
    #[must_use]
    pub fn last_psn(&self) -> Psn {
        self.requester.next_psn().minus(1)
    }

    /// If [`take_fast`](Self::take_fast) would find a receive for a message behind `ahead`
    /// others, and its memory open: the most bytes that the message may have.
    #[inline]
    pub fn room_for(&self, ahead: usize, opens: &mut impl Opens) -> Option<u32> {
        let recv = self.responder.recv.get(ahead)?;
        let [sge] = recv.sges[..] else {
            return None;
        };
        let range = all_of(sge);
        let opened = opens.open(sge.lkey, self.shared.config.pd, range, Access::LOCAL_WRITE);
        opened.ok().map(|_| sge.length)
    }

    /// Queues a SEND whose packet [`prepare_fast`](Self::prepare_fast) or
    /// [`prepare_long`](Self::prepare_long) has written and the peer can find.
    #[expect(
        clippy::inline_always,
        reason = "a few words, which are not to go through memory"
    )]
    #[inline(always)]
    pub fn commit_fast(&mut self, wr: impl Into<SendWr>) {
        let requester = &mut self.requester;
        let (weight, packets) = requester.queue.push_sent(wr.into(), &self.shared, None);
        requester.on_message_sent(weight, packets);
        self.requester_turn = true;
    }

    /// As [`commit_fast`](Self::commit_fast), for a SEND whose packet says where its bytes are.
    pub fn commit_rendezvous(&mut self, wr: impl Into<SendWr>) {
        let requester = &mut self.requester;
        let token = requester.rendezvous.token;
        let (weight, packets) = requester.queue.push_sent(wr.into(), &self.shared, token);
        requester.on_message_sent(weight, packets);
        self.requester_turn = true;
    }
}

/// Share of the window that a message takes.
#[inline]
pub(super) fn cost_of(length: u32, packets: u32) -> u64 {
    u64::from(PACKET_COST) * u64::from(packets) + u64::from(length)
}

/// Outcome of a step on the fast way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastOutcome {
    /// All of it is done.
    Done,
    /// All of it, or the rest, is for the general way.
    Unusual,
    /// The step is done, but its completion found no room: call [`RcQp::on_recv_overflow`] or
    /// [`RcQp::on_cq_overflow`].
    Overflow,
}

impl RcQp {
    /// As [`on_brief`](Self::on_brief), for a SEND, without the need of all that an error would
    /// take. `write` copies its bytes to where they go.
    #[expect(
        clippy::inline_always,
        reason = "a completion is not to go through memory"
    )]
    #[inline(always)]
    pub fn take_fast(
        &mut self,
        (opens, write): (
            &mut impl Opens,
            impl FnOnce(Span<'_>) -> Result<(), Unmapped>,
        ),
        sink: &mut impl Sink,
        message: &BriefSend,
    ) -> FastOutcome {
        debug_assert!(self.is_ready_to_take());
        match self
            .responder
            .take_brief(&self.shared, opens, write, sink, message)
        {
            None => FastOutcome::Unusual,
            Some(Ok(())) => FastOutcome::Done,
            Some(Err(_)) => FastOutcome::Overflow,
        }
    }

    /// The completion of a message that was received found no room.
    pub fn on_recv_overflow(&mut self, cx: &mut Cx<'_>) {
        self.settle_request(cx, Err(Reject::CQ_OVERFLOW));
    }

    /// An acknowledgement of everything up to a PSN, if nothing is outstanding but messages, all of
    /// whose packets it is about. What was acknowledged before changes nothing.
    #[inline]
    pub fn acknowledge_fast(&mut self, sink: &mut impl Sink, psn: Psn) -> FastOutcome {
        let (shared, requester) = (&self.shared, &mut self.requester);
        debug_assert!(is_usual(shared) && requester.is_quiet(shared));
        let sequence = match requester.flight.sequence_of(psn) {
            Ok(sequence) => sequence,
            // An old acknowledgement could end a wait for a receiver, but none runs here.
            Err(distance) if distance < 0 => return FastOutcome::Done,
            // The PSN was never sent: `on_packet` decides whether that is a report or a forgery.
            Err(_) => return FastOutcome::Unusual,
        };
        let (mut bytes, mut outcome) = (0, FastOutcome::Done);
        while requester.flight.oldest() <= sequence && outcome == FastOutcome::Done {
            match requester.retire_message(shared, sink, sequence) {
                Some((cost, outcome_of_one)) => (bytes, outcome) = (bytes + cost, outcome_of_one),
                None => outcome = FastOutcome::Unusual,
            }
        }
        if bytes > 0 {
            requester.on_quiet_progress(bytes);
        }
        outcome
    }
}

impl Requester {
    /// Whether nothing is under way but what waits for acknowledgements, and no timer runs.
    #[inline]
    pub(super) fn is_quiet(&self, shared: &QpShared) -> bool {
        self.flight.next() == self.flight.limit()
            && self.flight.requests() == 0
            && self.probe == Probe::Idle
            && self.selective_repeat.is_empty()
            && self.stuck.is_none()
            && self.retry.is_at_rest(shared)
    }

    /// As [`on_progress`](Self::on_progress), where nothing is under way but what waits for
    /// acknowledgements.
    #[inline]
    fn on_quiet_progress(&mut self, bytes: u64) {
        self.window.on_progress(bytes);
        self.retry.on_progress_at_rest();
        self.went_back = false;
    }

    /// Takes the oldest work request off the queue, if it is a message and all of it is
    /// acknowledged. `last` is the newest packet that is. Returns what it took of the window.
    #[inline]
    fn retire_message(
        &mut self,
        shared: &QpShared,
        sink: &mut impl Sink,
        last: u64,
    ) -> Option<(u64, FastOutcome)> {
        let wqe = self.queue.front().filter(|wqe| wqe.wr.op.is_send())?;
        let is_whole = wqe.start == self.flight.oldest() && wqe.end() <= last + 1;
        // A longer message that is acknowledged in parts is for the general way.
        if wqe.packets > 1 && !is_whole {
            return None;
        }
        let cost = cost_of(wqe.weight(shared.mtu()), wqe.packets);
        let (packets, is_rendezvous) = (wqe.packets, wqe.rendezvous.is_some());
        // `sq_sig_all` of ibv_create_qp(3) and IBV_SEND_SIGNALED of ibv_post_send(3).
        let signalled = shared.config.sq_sig_all || wqe.wr.flags.contains(SendFlags::SIGNALED);
        let wc = signalled.then(|| completion(shared, &wqe.wr));
        self.queue.drop_front();
        self.moved = Moved::default();
        self.flight.on_message_acknowledged(packets, cost);
        if is_rendezvous {
            self.rendezvous.on_taken();
        }
        if wc.is_some_and(|wc| !sink.send_completion(wc, false)) {
            return Some((cost, FastOutcome::Overflow));
        }
        sink.note(Noted::Sent);
        Some((cost, FastOutcome::Done))
    }

    /// Whether one more work request may be queued, and its packet with so many bytes go.
    #[inline]
    fn has_place(&self, shared: &QpShared, len: u32) -> bool {
        let flight = &self.flight;
        self.queue.len() < shared.config.cap.max_send_wr as usize
            && flight.has_room(flight.next() + 1, cost_of(len, 1), self.most())
    }

    /// A message was sent, all of it, that takes `weight` bytes of the window.
    #[inline]
    pub(super) fn on_message_sent(&mut self, weight: u32, packets: u32) {
        self.waiting.pass();
        self.unasked = 0;
        let to = self.flight.next() + u64::from(packets);
        self.flight.on_sent(to, cost_of(weight, packets), false);
    }

    /// The header of the next packet, if that is a SEND.
    #[inline]
    pub(in crate::rc) fn send_header(&self, shared: &QpShared, flags: SendFlags) -> Bth {
        Bth {
            solicited: flags.contains(SendFlags::SOLICITED),
            ack_req: true,
            ..shared.bth(SEND_ONLY, self.next_psn())
        }
    }
}

/// Whether the queue pair is one that sends, and no packet of it can change its path.
#[inline]
pub(in crate::rc) fn is_usual(shared: &QpShared) -> bool {
    shared.attr.qp_state == QpState::Rts && is_plain(shared)
}

/// Whether it is of the usual type, and stays on its path.
#[inline]
fn is_plain(shared: &QpShared) -> bool {
    shared.config.qp_type == QpType::Rc && shared.attr.path_mig_state != PathMigState::Rearm
}

/// Copies the bytes of a message.
#[inline]
fn read(
    shared: &QpShared,
    opens: &mut impl Opens,
    memory: &impl Memory,
    payload: PlainPayload<'_>,
    to: &mut [u8],
) -> Option<()> {
    match payload {
        PlainPayload::Inline(data) => to.copy_from_slice(data),
        PlainPayload::Sge(sge) => memory.read(open(shared, opens, sge)?, to).ok()?,
    }
    Some(())
}

/// The memory of a message.
#[inline]
pub(super) fn open<'a>(shared: &QpShared, opens: &'a mut impl Opens, sge: Sge) -> Option<Span<'a>> {
    let (pd, none) = (shared.config.pd, Access::empty());
    let span = opens.open(sge.lkey, pd, all_of(sge), none);
    span.ok()
}

/// Bytes of a message, if that may be so long.
#[inline]
pub(super) fn payload_of(shared: &QpShared, send: &PlainSend<'_>) -> Option<u32> {
    match send.payload {
        PlainPayload::Sge(sge) => Some(sge.length),
        PlainPayload::Inline(data) => {
            let may = data.len() <= shared.config.cap.max_inline_data as usize;
            u32::try_from(data.len()).ok().filter(|_| may)
        }
    }
}

/// The bytes of an element.
#[inline]
const fn all_of(sge: Sge) -> AddrRange {
    AddrRange {
        addr: sge.addr,
        len: sge.length as u64,
    }
}
