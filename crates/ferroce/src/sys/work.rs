//! What the send queue is to do, and the callers that post work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_abi::types::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_send_wr, ibv_send_wr_atomic, ibv_send_wr_rdma,
    ibv_send_wr_ud,
};

use super::{AddressObject, Addressed};
use crate::mem::RemoteAddress;
use crate::qp::Operation;

/// A queue pair or a shared receive queue, as the owner of work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner(u64);

impl Owner {
    /// Number of slots that were never used.
    pub(super) const NOBODY: Self = Self(0);

    /// One that never was before.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A send work request: its operation, its target, its flags.
pub(crate) struct Order {
    pub(crate) what: Operation,
    pub(crate) to: Destination,
    /// Waits until the queue pair's earlier READs and atomics have completed.
    pub(crate) fence: bool,
    /// Asks for the peer's attention.
    pub(crate) solicited: bool,
    /// No completion if it succeeds.
    pub(crate) silent: bool,
}

/// Whom work of the send queue is for.
pub(crate) enum Destination {
    /// The connected queue pair.
    Peer,
    /// Any queue pair: address, number, key.
    Datagram(Addressed, u32, u32),
    /// A shared receive queue of the connected XRC target.
    Shared(u32),
}

/// Whom a datagram is for: address, number, key.
pub(super) type Addressee = (Addressed, u32, u32);

/// The same, where the handle is held.
pub(super) type Reached = (Arc<AddressObject>, u32, u32);

/// What C is told of an [`Order`] but for whom a datagram is for.
#[derive(Clone, Copy)]
pub(super) struct Command {
    what: Operation,
    /// `IBV_SEND_*`
    flags: u32,
    /// `qp_type.xrc.remote_srqn`
    shared: u32,
}

impl Order {
    /// In parts that are copied and a part that is not.
    #[inline(always)]
    pub(super) fn split(self, inline: bool) -> (Command, Option<Addressee>) {
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let flags = flag(!self.silent, IBV_SEND_SIGNALED)
            | flag(self.fence, IBV_SEND_FENCE)
            | flag(self.solicited, IBV_SEND_SOLICITED)
            | flag(inline, IBV_SEND_INLINE);
        let (shared, addressee) = match self.to {
            Destination::Peer => (0, None),
            Destination::Datagram(address, number, key) => (0, Some((address, number, key))),
            Destination::Shared(number) => (number, None),
        };
        let what = self.what;
        let command = Command {
            what,
            flags,
            shared,
        };
        (command, addressee)
    }
}

impl Command {
    /// C's form of it, but for `wr_id` and what points elsewhere.
    #[inline(always)]
    pub(super) fn fill(self, form: &mut ibv_send_wr, addressee: Option<&Reached>) {
        form.send_flags = self.flags;
        form.qp_type = self.shared;
        set_operation(form, self.what);
        if let Some((address, remote_qpn, remote_qkey)) = addressee {
            form.wr.ud = ibv_send_wr_ud {
                ah: address.raw(),
                remote_qpn: *remote_qpn,
                remote_qkey: *remote_qkey,
            };
        }
    }
}

fn rdma(to: RemoteAddress) -> ibv_send_wr_rdma {
    ibv_send_wr_rdma {
        remote_addr: to.address,
        rkey: to.rkey,
    }
}

fn atomic(to: RemoteAddress, compare_add: u64, swap: u64) -> ibv_send_wr_atomic {
    ibv_send_wr_atomic {
        remote_addr: to.address,
        compare_add,
        swap,
        rkey: to.rkey,
    }
}

#[inline(always)]
fn set_operation(request: &mut ibv_send_wr, operation: Operation) {
    request.opcode = match operation {
        Operation::Send => IBV_WR_SEND,
        Operation::SendImmediate(immediate) => {
            request.imm_data = immediate.to_be();
            IBV_WR_SEND_WITH_IMM
        }
        Operation::SendInvalidate(key) => {
            request.imm_data = key;
            IBV_WR_SEND_WITH_INV
        }
        Operation::Write(to) => {
            request.wr.rdma = rdma(to);
            IBV_WR_RDMA_WRITE
        }
        Operation::WriteImmediate(to, immediate) => {
            request.imm_data = immediate.to_be();
            request.wr.rdma = rdma(to);
            IBV_WR_RDMA_WRITE_WITH_IMM
        }
        Operation::Read(from) => {
            request.wr.rdma = rdma(from);
            IBV_WR_RDMA_READ
        }
        Operation::CompareSwap {
            target,
            compare,
            swap,
        } => {
            request.wr.atomic = atomic(target, compare, swap);
            IBV_WR_ATOMIC_CMP_AND_SWP
        }
        Operation::FetchAdd { target, add } => {
            request.wr.atomic = atomic(target, add, 0);
            IBV_WR_ATOMIC_FETCH_AND_ADD
        }
        Operation::AtomicWrite(to) => {
            request.wr.rdma = rdma(to);
            IBV_WR_ATOMIC_WRITE
        }
        Operation::Invalidate(key) => {
            request.imm_data = key;
            IBV_WR_LOCAL_INV
        }
    };
}
