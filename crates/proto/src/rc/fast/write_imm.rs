//! The shortest way of a short WRITE with immediate, at both ends: as [`send`](super::send) and
//! [`receive`](super::receive) have it for a SEND.
//!
//! What differs: its bytes go to memory that the peer names, so the responder asks the key of that
//! memory, and of the receive it takes no more than its place in the queue.

use super::send::{payload_of, read};
use crate::mr::{Access, AddrRange, Memory, Opens, Span, Unmapped};
use crate::rc::config::QpShared;
use crate::rc::execute::allows;
use crate::rc::fault::Reject;
use crate::rc::responder::{Responder, recv_completion};
use crate::rc::{FastHead, FastOutcome, RcQp, Sink};
use crate::verbs::{SendFlags, SendOp, SendTo, SendWr, Wc, WcImm, WcOpcode};
use crate::wire::{BriefWriteImm, Bth, Reth, pad_count, padded_len};

impl RcQp {
    /// As [`prepare_fast`](Self::prepare_fast), for a work request that is a WRITE with immediate
    /// and not posted yet. Its packet is longer: an address, a key, a length and the immediate come
    /// before its bytes.
    pub fn prepare_write_imm<'r>(
        &self,
        common: &FastHead,
        (opens, memory): (&mut impl Opens, &impl Memory),
        wr: &SendWr,
        room: &'r mut [u8],
    ) -> Option<([u32; 3], &'r [u8])> {
        debug_assert_eq!(self.fast_head().as_ref(), Some(common));
        let (SendOp::WriteImm(remote, imm), SendTo::Peer) = (wr.op, wr.to) else {
            return None;
        };
        let (shared, payload) = (&self.shared, wr.payload.as_plain()?);
        let len = payload_of(shared, payload).filter(|len| *len <= common.longest)?;
        let begin = BriefWriteImm::EXT_LEN;
        let end = begin + padded_len(len as usize);
        if !self.requester.has_place(shared, len) || end > room.len() {
            return None;
        }
        let (ext, rest) = room[..end].split_at_mut(begin);
        let (place, pad) = rest.split_at_mut(len as usize);
        read(shared, opens, memory, payload, place)?;
        pad.fill(0);
        let reth = Reth {
            va: remote.addr,
            rkey: remote.rkey,
            length: len,
        };
        ext.copy_from_slice(&BriefWriteImm::ext(&reth, imm));
        let is_solicited = wr.flags.contains(SendFlags::SOLICITED);
        let [first, second] = common.words;
        let first = BriefWriteImm::first_word(first)
            | Bth::solicited_and_pad(is_solicited, pad_count(len as usize));
        let third = Bth::last_word(true, self.next_psn());
        Some(([first, second, third], &room[..end]))
    }

    /// As [`take_fast`](Self::take_fast), for a WRITE with immediate.
    pub fn take_write_imm(
        &mut self,
        (opens, memory): (&mut impl Opens, &impl Memory),
        sink: &mut impl Sink,
        write: &BriefWriteImm<'_>,
    ) -> FastOutcome {
        debug_assert!(self.is_ready_to_take());
        let write_to = |span: Span<'_>| memory.write(span, write.payload);
        match self
            .responder
            .take_write_imm(&self.shared, (opens, write_to), sink, write)
        {
            None => FastOutcome::Unusual,
            Some(Ok(())) => FastOutcome::Done,
            Some(Err(_)) => FastOutcome::Overflow,
        }
    }
}

impl Responder {
    /// Takes a WRITE with immediate between two messages, if it is what is expected, there is a
    /// receive for it, and its key opens its memory: `write` copies its bytes there. All checks
    /// come before the first change.
    fn take_write_imm(
        &mut self,
        shared: &QpShared,
        (opens, write): (
            &mut impl Opens,
            impl FnOnce(Span<'_>) -> Result<(), Unmapped>,
        ),
        sink: &mut impl Sink,
        BriefWriteImm {
            message, reth, imm, ..
        }: &BriefWriteImm<'_>,
    ) -> Option<Result<(), Reject>> {
        let is_whole = message.len == reth.length as usize && reth.length <= shared.mtu();
        let is_next = message.psn == self.expected && !self.recv.is_empty();
        if !is_next || !is_whole || !allows(shared, Access::REMOTE_WRITE) {
            return None;
        }
        if reth.length > 0 {
            let range = AddrRange {
                addr: reth.va,
                len: u64::from(reth.length),
            };
            let opened = opens.open(reth.rkey, shared.config.pd, range, Access::REMOTE_WRITE);
            // A copy that fails half way is made once more, and fails again.
            write(opened.ok()?).ok()?;
        }
        let recv = self.recv.pop_front()?;
        let wc = Wc {
            opcode: WcOpcode::RecvRdmaWithImm,
            byte_len: reth.length,
            imm: Some(WcImm::Imm(*imm)),
            ..recv_completion(shared, &recv)
        };
        self.begin_in_turn();
        if !sink.recv_completion(wc, message.solicited) {
            return Some(Err(Reject::CQ_OVERFLOW));
        }
        self.finish_message();
        self.took(message.ack_req);
        Some(Ok(()))
    }
}
