//! Work requests in C's form, and the memory that they hold until they complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_abi::types::{
    IBV_SEND_SIGNALED, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_send_wr,
    ibv_send_wr_atomic, ibv_send_wr_rdma, ibv_sge,
};
use smallvec::SmallVec;

use super::{Domain, Exclusive, Reader, Region};
use crate::{Error, Operation, RemoteAddress, Result};

/// C's list of the pieces of memory of a work request. Few need more than these, and only they allocate.
pub(super) type Elements = SmallVec<[ibv_sge; 4]>;

/// What a work request is to do with which bytes, and who is told of its end.
pub(crate) struct Request {
    tag: u64,
    reader: Reader,
    elements: Elements,
    held: Held,
}

/// Memory that is held for the device.
#[derive(Default)]
pub(crate) enum Held {
    /// None.
    #[default]
    Nothing,
    /// Regions, whoever else has them.
    Shared(SmallVec<[Arc<Region>; 2]>),
    /// One that the program gave away until the work completes.
    Exclusive(Exclusive),
}

impl Request {
    /// Work on pieces of regions: region, first byte, length.
    pub(crate) fn shared<'r>(
        tag: u64,
        reader: Reader,
        pieces: impl Iterator<Item = (&'r Arc<Region>, usize, u32)>,
    ) -> Self {
        let mut elements = Elements::new();
        let mut held = SmallVec::<[Arc<Region>; 2]>::new();
        for (region, start, length) in pieces {
            elements.push(region.element(start, length));
            // Pieces of one region need it once.
            if held.last().is_none_or(|last| !Arc::ptr_eq(last, region)) {
                held.push(Arc::clone(region));
            }
        }
        let held = Held::Shared(held);
        Self {
            tag,
            reader,
            elements,
            held,
        }
    }

    /// Work on the first `length` bytes of memory that the program gives away until it completes.
    pub(crate) fn exclusive(tag: u64, reader: Reader, memory: Exclusive, length: u32) -> Self {
        Self {
            tag,
            reader,
            elements: Elements::from_iter([memory.region().element(0, length)]),
            held: Held::Exclusive(memory),
        }
    }

    /// Whether all its memory is of a domain.
    pub(super) fn check(&self, domain: &Arc<Domain>) -> Result<()> {
        let fits = match &self.held {
            Held::Nothing => true,
            Held::Shared(regions) => regions.iter().all(|region| region.is_of(domain)),
            Held::Exclusive(memory) => memory.region().is_of(domain),
        };
        // The device would find out when the work runs; here it is still a mistake of one line.
        fits.then_some(()).ok_or(Error::Misuse(
            "the memory region is of another protection domain than the queue pair",
        ))
    }

    /// Its parts: tag, reader, C's list, memory.
    pub(super) fn into_parts(self) -> (u64, Reader, Elements, Held) {
        (self.tag, self.reader, self.elements, self.held)
    }

    /// Its memory, if nothing comes of it.
    pub(crate) fn into_held(self) -> Held {
        self.held
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
