//! Answers that the responder owes the peer: READ responses and atomic results, then a NAK, then an
//! acknowledgement.
//!
//! Acknowledgements coalesce (IBTA 9.7.5.1.2): only that one is owed is kept, and it speaks of the
//! newest request when it is sent.

use alloc::vec::Vec;

use super::Cx;
use super::config::QpShared;
use super::fault::Reject;
use super::reorder::ReorderBuffer;
use super::resources::{AnswerKind, NextResponse, Resources};
use crate::ids::{Msn, Psn};
use crate::mr::Access;
use crate::wire::{
    Aeth, Bth, ExtHeaders, NakCode, Opcode, Operation, Packet, Position, Syndrome, padded_len,
};

/// Answers that are owed.
#[derive(Debug, Default)]
pub(super) struct Replies {
    pub(super) resources: Resources,
    nak: Option<(Syndrome, Psn)>,
    /// The requester wants to hear of what has arrived.
    ack: bool,
    /// A requester that found no receive may go on.
    resume: bool,
    /// The NAK that ended the queue pair, for a requester that missed it.
    last_words: Option<(Syndrome, Psn)>,
}

impl Replies {
    pub(super) fn owe_ack(&mut self) {
        self.ack = true;
    }

    /// A receive was posted after a receiver-not-ready NAK. The last acknowledgement is to be
    /// repeated, which ends the wait of a requester that knows this sign. Others ignore it.
    pub(super) fn owe_resume(&mut self) {
        self.resume = true;
    }

    /// Owes a NAK: the request with this PSN cannot be taken now, or does not follow what came
    /// before.
    pub(super) fn owe_nak(&mut self, syndrome: Syndrome, psn: Psn) {
        self.nak = Some((syndrome, psn));
    }

    /// Drops a NAK that was not sent yet: a request came in order.
    pub(super) fn drop_nak(&mut self) {
        self.nak = None;
    }

    /// Ends the queue pair with a NAK. Answers to earlier requests still go first.
    pub(super) fn end_with_nak(&mut self, code: NakCode, psn: Psn) {
        self.nak = Some((Syndrome::Nak(code), psn));
        self.last_words = self.nak;
        (self.ack, self.resume) = (false, false);
    }

    /// Ends the queue pair without a word about a request. An acknowledgement that is owed for
    /// finished requests is still sent, unless READ responses would have to go first.
    pub(super) fn end(&mut self) {
        self.ack &= !self.resources.pending();
        self.resume = false;
        self.nak = self.nak.filter(|_| self.last_words.is_some());
        self.resources.clear();
    }

    /// A request came after the end: if it is the one that was refused, the refusal was lost.
    /// Returns whether it was.
    pub(super) fn on_late_request(&mut self, psn: Psn) -> bool {
        let repeated = self.last_words.filter(|&(_, refused)| refused == psn);
        if repeated.is_some() {
            self.nak = repeated;
        }
        repeated.is_some()
    }

    /// Whether [`transmit`](Self::transmit) would send something (or find that it may not).
    pub(super) fn pending(&self) -> bool {
        self.nak.is_some() || self.ack || self.resume || self.resources.pending()
    }

    /// The acknowledgement that was all that was owed is sent.
    pub(super) fn on_ack_sent(&mut self) {
        self.ack = false;
    }

    /// Whether nothing but an acknowledgement is owed.
    pub(super) fn owes_only_ack(&self) -> bool {
        self.ack && self.nak.is_none() && !self.resume && !self.resources.pending()
    }

    /// Whether an acknowledgement or a NAK is owed, and no response before it.
    pub(super) fn owes_word(&self) -> bool {
        (self.nak.is_some() || self.ack || self.resume) && !self.resources.pending()
    }

    /// The answer to a request that came again may not be read any more. The network may have
    /// delayed the request until the program had what it wants and deregistered the memory, so the
    /// queue pair goes on. A requester that still waits hears why it waits in vain; for another one
    /// the NAK is too old to count.
    fn refuse_repeated(&mut self, reject: &Reject) {
        self.resources.refuse();
        let refusal = reject.nak.map(|(code, psn)| (Syndrome::Nak(code), psn));
        self.nak = self.nak.or(refusal);
    }

    /// Whether the next answer reports a gap.
    fn reports_gap(&self) -> bool {
        let gap = Syndrome::Nak(NakCode::Sequence);
        self.nak.is_some_and(|(syndrome, _)| syndrome == gap)
    }

    /// Appends the next answer to `out`, if one is owed. `expected` is the PSN after the last
    /// request that was taken, `reorder` what came ahead of it.
    pub(super) fn transmit(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        expected: Psn,
        msn: Msn,
        reorder: &ReorderBuffer,
        out: &mut Vec<u8>,
    ) -> Result<bool, Reject> {
        while let Some(response) = self.resources.next_response(shared.mtu()) {
            match emit_response(shared, cx, &response, out) {
                Ok(()) => self.resources.sent(),
                Err(reject) if response.repeated => {
                    self.refuse_repeated(&reject);
                    continue;
                }
                Err(reject) => return Err(reject),
            }
            // The AETH of the last response acknowledges all that came.
            if response.ends && response.psn.plus(1) == expected {
                self.ack = false;
            }
            return Ok(true);
        }
        let mut report = Vec::new();
        if self.reports_gap() {
            reorder.report(expected, shared.mtu(), &mut report);
        }
        let (syndrome, psn) = match self.nak.take() {
            Some(nak) => nak,
            None if self.ack || self.resume => {
                self.resume = false;
                // The PSN before the expected one, in 24 bits.
                (Syndrome::ACK, expected.plus(0x00ff_ffff))
            }
            None => return Ok(false),
        };
        self.ack = false;
        let ext = ExtHeaders {
            aeth: Some(Aeth { syndrome, msn }),
            ..ExtHeaders::default()
        };
        let bth = shared.bth(Opcode::RC_ACKNOWLEDGE, psn);
        Packet::emit_headers(&bth, &ext, report.len(), out);
        out.append(&mut report);
        Ok(true)
    }
}

/// Appends a READ response or an atomic result. Rights are checked at each packet: the region may
/// have gone in between.
fn emit_response(
    shared: &QpShared,
    cx: &mut Cx<'_>,
    response: &NextResponse,
    out: &mut Vec<u8>,
) -> Result<(), Reject> {
    let aeth = Aeth {
        syndrome: Syndrome::ACK,
        msn: response.resource.msn,
    };
    let (va, rkey, operation, atomic_ack) = match response.resource.kind {
        AnswerKind::Read { va, rkey, .. } => (va, rkey, Operation::ReadResponse, None),
        // ATOMIC WRITE and FLUSH are answered as a READ of no bytes (IBTA annex A19).
        AnswerKind::Done { reth, .. } => (reth.va, reth.rkey, Operation::ReadResponse, None),
        AnswerKind::Atomic {
            original, request, ..
        } => {
            let operation = Operation::AtomicAcknowledge;
            (request.va, request.rkey, operation, Some(original))
        }
    };
    let len = u64::from(response.len);
    let span = cx
        .rights
        .open_remote(
            rkey,
            response.resource.target.accessor(shared),
            va.wrapping_add(u64::from(response.offset)),
            len,
            Access::REMOTE_READ,
        )
        .map_err(|_| Reject::access(response.psn))?;
    let position = Position::from_ends(response.starts, response.ends);
    let ext = ExtHeaders {
        // A Middle response has no AETH (IBTA volume 1, chapter 9, opcode table).
        aeth: (response.starts || response.ends).then_some(aeth),
        atomic_ack,
        ..ExtHeaders::default()
    };
    let mut bth = shared.bth(Opcode::rc(operation, position), response.psn);
    // The requester believes kept answers only behind this mark: a forged packet has none.
    if response.vouched && shared.selective_repeat() {
        bth.congestion = Bth::VOUCHED;
    }
    let begin = out.len();
    Packet::emit_headers(&bth, &ext, response.len as usize, out);
    let end = out.len() + padded_len(response.len as usize);
    if response.len > 0 && cx.memory.append(span, out).is_err() {
        out.truncate(begin);
        return Err(Reject::operational(response.psn));
    }
    out.resize(end, 0);
    Ok(())
}
