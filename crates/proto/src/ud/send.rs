//! Posted work to packets.

use alloc::vec::Vec;

use super::UdQp;
use crate::rc::fault::{Cause, Fault};
use crate::rc::post;
use crate::rc::requester::{completion, failed, flush_sends};
use crate::rc::scatter;
use crate::rc::scatter::Extent;
use crate::rc::send_queue::payload_len;
use crate::rc::{Cx, Noted};
use crate::verbs::{Datagram, PostError, QpState, SendFlags, SendOp, SendTo, SendWr, WcStatus};
use crate::wire::{Bth, Deth, ExtHeaders, Opcode, Packet, padded_len};

/// In a work request's `Q_Key`: it is a controlled one, and the queue pair's own is sent instead.
/// (IBTA 10.2.5.)
const CONTROLLED_QKEY: u32 = 1 << 31;

impl UdQp {
    /// Queues a send work request. In ERR it is accepted and flushed.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_send(&mut self, cx: &mut Cx<'_>, wr: SendWr) -> Result<(), PostError> {
        self.check_send(&wr, self.send.len())?;
        self.send.push_back(wr);
        if matches!(self.state(), QpState::Err | QpState::Sqe) {
            self.flush_send(cx);
        }
        Ok(())
    }

    /// Whether all of these send work requests, one after the other, would be accepted now.
    ///
    /// # Errors
    /// Why the first that would not is refused.
    pub fn check_sends(&self, wrs: &[SendWr]) -> Result<(), PostError> {
        let queued = self.send.len();
        wrs.iter()
            .enumerate()
            .try_for_each(|(i, wr)| self.check_send(wr, queued + i))
    }

    fn check_send(&self, wr: &SendWr, queued: usize) -> Result<(), PostError> {
        if !matches!(wr.op, SendOp::Send | SendOp::SendImm(_)) {
            return Err(PostError::Invalid(
                "a UD queue pair sends IBV_WR_SEND and IBV_WR_SEND_WITH_IMM only",
            ));
        }
        if !matches!(wr.to, SendTo::Datagram(_)) {
            return Err(PostError::Invalid(
                "a UD work request needs an address handle in wr.ud.ah",
            ));
        }
        post::check_send(&self.shared, wr, queued)
    }

    /// Where the packet goes that [`poll_transmit`](Self::poll_transmit) makes next; `None` if
    /// there is none.
    #[must_use]
    pub fn next_datagram(&self) -> Option<Datagram> {
        let sends = self.state() == QpState::Rts;
        match self.send.front().filter(|_| sends)?.to {
            SendTo::Datagram(to) => Some(to),
            SendTo::Peer | SendTo::XrcSrq(_) => None,
        }
    }

    /// Whether there is a packet to send.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        self.next_datagram().is_some()
    }

    /// Appends the next packet (BTH through pad) to `out` and completes its work request: nothing
    /// is heard of it any more. Returns false if there is none, or if it cannot be built and the
    /// send queue is in SQE now.
    pub fn poll_transmit(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool {
        let Some(to) = self.next_datagram() else {
            return false;
        };
        let Some(wr) = self.send.pop_front() else {
            return false;
        };
        let before = out.len();
        let built = self.build(cx, &wr, to, out);
        if built.is_err() {
            out.truncate(before);
        }
        self.complete(cx, &wr, built.err());
        built.is_ok()
    }

    fn build(
        &mut self,
        cx: &Cx<'_>,
        wr: &SendWr,
        to: Datagram,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let len = u32::try_from(payload_len(&wr.payload))
            .ok()
            .filter(|len| *len <= self.mtu)
            .ok_or(Fault::new(WcStatus::LocLenErr, Cause::MessageTooLong))?;
        let qkey = if to.qkey & CONTROLLED_QKEY == 0 {
            to.qkey
        } else {
            self.shared.attr.qkey
        };
        let imm = match wr.op {
            SendOp::SendImm(imm) => Some(imm),
            _ => None,
        };
        let ext = ExtHeaders {
            deth: Some(Deth {
                qkey,
                src_qp: self.shared.config.qpn,
            }),
            imm,
            ..ExtHeaders::default()
        };
        let opcode = if imm.is_some() {
            Opcode::UD_SEND_ONLY_IMM
        } else {
            Opcode::UD_SEND_ONLY
        };
        let bth = Bth {
            solicited: wr.flags.contains(SendFlags::SOLICITED),
            ..Bth::new(opcode, to.qpn, self.psn)
        };
        let (start, len) = (out.len(), len as usize);
        Packet::emit_headers(&bth, &ext, len, out);
        let headers = out.len() - start;
        scatter::gather(
            cx,
            self.shared.config.pd,
            &wr.payload,
            Extent {
                offset: 0,
                len: u32::try_from(len).unwrap_or(u32::MAX),
            },
            out,
        )
        .map_err(|_| Fault::LOCAL_KEY)?;
        out.resize(start + headers + padded_len(len), 0);
        self.psn = self.psn.plus(1);
        Ok(())
    }

    fn complete(&mut self, cx: &mut Cx<'_>, wr: &SendWr, fault: Option<Fault>) {
        let wc = completion(&self.shared, wr);
        let signalled = self.shared.config.sq_sig_all || wr.flags.contains(SendFlags::SIGNALED);
        if fault.is_none() {
            cx.sink.note(Noted::Sent);
        }
        match fault {
            None if !signalled || cx.sink.send_completion(wc, false) => {}
            None => self.on_overflow(cx),
            // The send queue stops until the program moves it on; what comes in is received as
            // before.
            Some(fault) => {
                cx.sink.send_completion(failed(wc, fault), true);
                self.shared.attr.qp_state = QpState::Sqe;
                self.flush_send(cx);
            }
        }
    }

    /// Completes all send work as flushed.
    pub(super) fn flush_send(&mut self, cx: &mut Cx<'_>) {
        flush_sends(self.send.drain(..), &self.shared, cx, None);
    }
}
