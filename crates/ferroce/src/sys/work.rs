//! Work requests in C's form, and the memory that they hold until they complete.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_abi::types::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_send_wr, ibv_send_wr_atomic, ibv_send_wr_rdma,
    ibv_send_wr_ud, ibv_sge,
};
use smallvec::SmallVec;

use super::{AddressObject, BorrowedRegion, Domain, Exclusive, Reader, Region};
use crate::{Error, Operation, RawPiece, RemoteAddress, Result};

/// C's list of the pieces of memory of a work request. Few need more than these, and only they allocate.
pub(super) type Elements = SmallVec<[ibv_sge; 4]>;

/// Something that must not go before a work request has completed.
type Thing = Arc<dyn Any + Send + Sync>;

/// What a work request is to do with which bytes, and who is told of its end.
pub(crate) struct Request {
    pub(super) tag: u64,
    pub(super) reader: Reader,
    pub(super) elements: Elements,
    pub(super) held: Held,
    /// The domain of its memory, by address: none without memory.
    domain: Option<usize>,
    /// Whether there is memory of several domains.
    mixed: bool,
    /// Whether the bytes are copied while it is posted.
    pub(super) inline: bool,
}

/// What is held for the device.
#[derive(Default)]
pub(crate) struct Held {
    /// Things that others may have too: few have more than two.
    things: [Option<Thing>; 2],
    more: Vec<Thing>,
    /// Memory that the program gave away until the work completes.
    exclusive: Option<Exclusive>,
}

impl Held {
    /// The memory that the program gave away.
    pub(crate) fn take_exclusive(&mut self) -> Option<Exclusive> {
        self.exclusive.take()
    }

    /// Holds one thing more.
    #[inline]
    pub(super) fn hold(&mut self, thing: Thing) {
        // Pieces of one region need it once.
        let is_known = |known: &Thing| std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(&thing));
        for place in &mut self.things {
            match place {
                None => {
                    *place = Some(thing);
                    return;
                }
                Some(known) if is_known(known) => return,
                Some(_) => {}
            }
        }
        if !self.more.last().is_some_and(is_known) {
            self.more.push(thing);
        }
    }
}

impl Request {
    #[inline]
    fn new(tag: u64, reader: Reader) -> Self {
        Self {
            tag,
            reader,
            elements: Elements::new(),
            held: Held::default(),
            domain: None,
            mixed: false,
            inline: false,
        }
    }

    /// Work on pieces of regions: region, first byte, length.
    #[inline]
    pub(crate) fn shared<'r>(
        tag: u64,
        reader: Reader,
        pieces: impl Iterator<Item = (&'r Arc<Region>, usize, u32)>,
    ) -> Self {
        let mut new = Self::new(tag, reader);
        for (region, start, length) in pieces {
            new.elements.push(region.element(start, length));
            new.use_domain(region.domain());
            new.held.hold(Arc::clone(region) as Thing);
        }
        new
    }

    /// Work on the first `length` bytes of memory that the program gives away until it completes.
    pub(crate) fn exclusive(tag: u64, reader: Reader, memory: Exclusive, length: u32) -> Self {
        let mut new = Self::new(tag, reader);
        new.elements.push(memory.region().element(0, length));
        new.use_domain(memory.region().domain());
        new.held.exclusive = Some(memory);
        new
    }

    /// Work on memory for which the caller of an unsafe function stands.
    pub(crate) fn raw(tag: u64, pieces: impl Iterator<Item = RawPiece>) -> Self {
        let mut new = Self::new(tag, Reader::Poller);
        new.elements.extend(pieces.map(|piece| ibv_sge {
            addr: piece.address,
            length: piece.length,
            lkey: piece.local_key,
        }));
        new
    }

    /// Work on pieces of borrowed regions.
    pub(crate) fn borrowed<'r>(
        pieces: impl Iterator<Item = (&'r Arc<BorrowedRegion>, usize, u32)>,
    ) -> Self {
        let mut new = Self::new(0, Reader::Future);
        for (region, start, length) in pieces {
            new.elements.push(region.element(start, length));
            new.use_domain(region.domain());
            new.held.hold(Arc::clone(region) as Thing);
        }
        new
    }

    /// Work on bytes that are copied while it is posted, which must happen while they are borrowed.
    pub(crate) fn inline(tag: u64, reader: Reader, bytes: &[u8]) -> Result<Self> {
        let length = u32::try_from(bytes.len())
            .map_err(|_| Error::Misuse("inline data of 4 GiB and more is impossible"))?;
        let mut new = Self::new(tag, reader);
        new.inline = true;
        new.elements.push(ibv_sge {
            addr: bytes.as_ptr().expose_provenance() as u64,
            length,
            lkey: 0,
        });
        Ok(new)
    }

    #[inline]
    fn use_domain(&mut self, domain: &Arc<Domain>) {
        let address = Arc::as_ptr(domain).addr();
        self.mixed |= *self.domain.get_or_insert(address) != address;
    }

    /// Whether all its memory is of a domain.
    #[inline]
    pub(super) fn check(&self, domain: &Arc<Domain>) -> Result<()> {
        let fits = !self.mixed
            && self
                .domain
                .is_none_or(|own| own == Arc::as_ptr(domain).addr());
        // The device would find out when the work runs; here it is still a mistake of one line.
        fits.then_some(()).ok_or(Error::Misuse(
            "the memory region is of another protection domain than the queue pair",
        ))
    }

    /// Its memory, if nothing comes of it.
    pub(crate) fn into_held(self) -> Held {
        self.held
    }
}

/// A queue pair or a shared receive queue, as the owner of work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner(u64);

impl Owner {
    /// One that never was before.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What the send queue is to do, to whom, and how.
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
    Datagram(Arc<AddressObject>, u32, u32),
    /// A shared receive queue of the connected XRC target.
    Shared(u32),
}

/// C's form of a send-queue work request. `wr_id` and the list of elements are filled in by the caller.
#[inline]
pub(super) fn send_request(order: &Order, inline: bool) -> ibv_send_wr {
    let mut request = ibv_send_wr::zeroed();
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    request.send_flags = flag(!order.silent, IBV_SEND_SIGNALED)
        | flag(order.fence, IBV_SEND_FENCE)
        | flag(order.solicited, IBV_SEND_SOLICITED)
        | flag(inline, IBV_SEND_INLINE);
    set_operation(&mut request, order.what);
    match &order.to {
        Destination::Peer => {}
        Destination::Datagram(address, number, key) => {
            request.wr.ud = ibv_send_wr_ud {
                ah: address.raw(),
                remote_qpn: *number,
                remote_qkey: *key,
            };
        }
        // `qp_type.xrc.remote_srqn`
        Destination::Shared(number) => request.qp_type = *number,
    }
    request
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

#[inline]
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
