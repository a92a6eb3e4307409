//! Work requests in C's form, and the memory that they hold until they complete.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_abi::types::{
    IBV_SEND_SIGNALED, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_send_wr,
    ibv_send_wr_atomic, ibv_send_wr_rdma, ibv_sge,
};

use super::Region;
use crate::{Operation, RemoteAddress};

/// What a work request is to do and with which bytes.
pub(crate) struct Request {
    /// The program's tag.
    pub(crate) tag: u64,
    /// The bytes: region, first byte, length.
    pub(crate) pieces: Vec<(Arc<Region>, usize, u32)>,
}

impl Request {
    /// C's list of the pieces.
    pub(super) fn elements(&self) -> Vec<ibv_sge> {
        let element = |(region, start, length): &(Arc<Region>, usize, u32)| ibv_sge {
            addr: region.address() + *start as u64,
            length: *length,
            lkey: region.lkey(),
        };
        self.pieces.iter().map(element).collect()
    }
}

/// A queue pair, as the owner of work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner(u64);

impl Owner {
    /// One that never was before.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A posted work request.
pub(crate) struct Work {
    /// The program's tag.
    pub(crate) tag: u64,
    owner: Owner,
    /// Held for the device, which works on them until the completion.
    _regions: Vec<Arc<Region>>,
}

/// The work requests whose completions have not been polled, by the `wr_id` that C knows them by.
#[derive(Default)]
pub(super) struct Outstanding {
    next: u64,
    works: HashMap<u64, Work>,
}

impl Outstanding {
    /// Takes note of a request that is about to be posted; its `wr_id`.
    pub(super) fn add(&mut self, request: &Request, owner: Owner) -> u64 {
        let id = self.next;
        self.next += 1;
        let regions = request
            .pieces
            .iter()
            .map(|(region, ..)| Arc::clone(region))
            .collect();
        self.works.insert(
            id,
            Work {
                tag: request.tag,
                owner,
                _regions: regions,
            },
        );
        id
    }

    /// The request that completed, or was refused. `None`: its queue pair is gone.
    pub(super) fn take(&mut self, id: u64) -> Option<Work> {
        self.works.remove(&id)
    }

    /// The requests of a queue pair that was destroyed: the device has let go of their memory.
    pub(super) fn forget(&mut self, owner: Owner) {
        self.works.retain(|_, work| work.owner != owner);
    }
}

/// C's form of a send-queue work request. Its list of elements is filled in by the caller.
pub(super) fn send_request(operation: Operation) -> ibv_send_wr {
    let mut request = ibv_send_wr::zeroed();
    request.send_flags = IBV_SEND_SIGNALED;
    let rdma = |to: RemoteAddress| ibv_send_wr_rdma {
        remote_addr: to.address,
        rkey: to.rkey,
    };
    let atomic = |to: RemoteAddress, compare_add, swap| ibv_send_wr_atomic {
        remote_addr: to.address,
        compare_add,
        swap,
        rkey: to.rkey,
    };
    match operation {
        Operation::Send => request.opcode = IBV_WR_SEND,
        Operation::SendImmediate(immediate) => {
            request.opcode = IBV_WR_SEND_WITH_IMM;
            request.imm_data = immediate.to_be();
        }
        Operation::Write(to) => {
            request.opcode = IBV_WR_RDMA_WRITE;
            request.wr.rdma = rdma(to);
        }
        Operation::WriteImmediate(to, immediate) => {
            request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
            request.imm_data = immediate.to_be();
            request.wr.rdma = rdma(to);
        }
        Operation::Read(from) => {
            request.opcode = IBV_WR_RDMA_READ;
            request.wr.rdma = rdma(from);
        }
        Operation::CompareSwap {
            target,
            compare,
            swap,
        } => {
            request.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
            request.wr.atomic = atomic(target, compare, swap);
        }
        Operation::FetchAdd { target, add } => {
            request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
            request.wr.atomic = atomic(target, add, 0);
        }
    }
    request
}
