//! Posting messages and WRITEs on a connection's queue pair.

use std::ptr;

use ferroce_proto::rsocket::Message;
use ferroce_proto::rsocket::outgoing::Staged;
use libc::c_int;

use super::endpoint::StreamEndpoint;
use super::errno::{Errno, Result};
use crate::types::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    ibv_send_wr, ibv_send_wr_rdma, ibv_sge,
};
use crate::verbs::post_send;

/// The bytes of a message's WRITE.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payload<'a> {
    /// Copied into the work request.
    Inline(&'a [u8]),
    /// Bytes of the send ring.
    Staged(Staged),
}

/// Where a WRITE goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remote {
    pub(super) address: u64,
    pub(super) key: u32,
}

impl StreamEndpoint {
    /// Posts a message, with a WRITE of `payload` if there is any.
    pub(super) fn post_message(
        &self,
        message: Message,
        remote: Remote,
        payload: Payload<'_>,
    ) -> Result<()> {
        let word = message.encode();
        if !self.is_iwarp {
            let opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
            return self.post(remote, payload, opcode, word.to_be(), None);
        }
        let bytes = word.to_ne_bytes();
        let mut sge = inline_sge(&bytes);
        let mut send = send_wr(&raw mut sge, 1, IBV_WR_SEND);
        send.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
        if matches!(payload, Payload::Inline([])) {
            return self.hand_over(&mut send);
        }
        self.post(remote, payload, IBV_WR_RDMA_WRITE, 0, Some(&mut send))
    }

    /// Posts a plain WRITE.
    pub(super) fn post_write(&self, remote: Remote, payload: Payload<'_>) -> Result<()> {
        self.post(remote, payload, IBV_WR_RDMA_WRITE, 0, None)
    }

    /// Posts a WRITE, then what follows it. Only the last of them is signalled.
    fn post(
        &self,
        remote: Remote,
        payload: Payload<'_>,
        opcode: u32,
        imm_data: u32,
        next: Option<&mut ibv_send_wr>,
    ) -> Result<()> {
        let mut sges = [inline_sge(&[]); 2];
        let (count, inline) = match payload {
            Payload::Inline(bytes) => {
                sges[0] = inline_sge(bytes);
                (c_int::from(!bytes.is_empty()), IBV_SEND_INLINE)
            }
            Payload::Staged(staged) => {
                let part = |at: u32, length| ibv_sge {
                    addr: self.send.address(at as usize),
                    length,
                    lkey: self.send.local_key(),
                };
                sges = [part(staged.at, staged.first), part(0, staged.second)];
                (if staged.second > 0 { 2 } else { 1 }, 0)
            }
        };
        let mut wr = send_wr(sges.as_mut_ptr(), count, opcode);
        let signaled = if next.is_some() { 0 } else { IBV_SEND_SIGNALED };
        wr.send_flags = signaled | inline;
        wr.imm_data = imm_data;
        wr.wr.rdma = ibv_send_wr_rdma {
            remote_addr: remote.address,
            rkey: remote.key,
        };
        wr.next = next.map_or(ptr::null_mut(), |next| &raw mut *next);
        self.hand_over(&mut wr)
    }

    fn hand_over(&self, wr: &mut ibv_send_wr) -> Result<()> {
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair; the chain and its lists live through the call.
        match unsafe { post_send(self.qp(), wr, &raw mut bad) } {
            0 => Ok(()),
            errno => Err(Errno(errno)),
        }
    }
}

fn inline_sge(bytes: &[u8]) -> ibv_sge {
    ibv_sge {
        addr: bytes.as_ptr().expose_provenance() as u64,
        length: u32::try_from(bytes.len()).unwrap_or(0),
        lkey: 0,
    }
}

fn send_wr(sg_list: *mut ibv_sge, num_sge: c_int, opcode: u32) -> ibv_send_wr {
    ibv_send_wr {
        sg_list,
        num_sge,
        opcode,
        ..ibv_send_wr::zeroed()
    }
}
