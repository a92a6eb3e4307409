//! The ways into the device, under one interface.

mod apart;
mod area;
pub mod c;
mod c_attr;
mod c_cq;
mod c_work;
mod c_xrc;
mod count;
mod memory;
pub mod rust;

use ferroce_proto::ids::{Gid, Key, Qpn, Srqn};
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{AddressHandleAttr, AsyncEvent, AttrMask, QpAttr, RecvWr, SendWr, Wc};

pub use apart::{Apart, serve};
pub use memory::Memory;

/// A refusal: a positive errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// `EINVAL`.
pub const EINVAL: Errno = Errno(libc::EINVAL);
/// `ENOMEM`.
pub const ENOMEM: Errno = Errno(libc::ENOMEM);

/// What an asynchronous event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The side's queue pair.
    Qp,
    /// The side's completion queue.
    Cq,
    /// The side's shared receive queue.
    Srq,
    /// Something else.
    Other,
}

/// A protection domain of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// The queue pair's.
    Own,
    /// A context with nothing else in it.
    Other,
}

/// What [`Side::reregister`] changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Offset in the memory, and length.
    pub range: Option<(usize, usize)>,
    /// To the protection domain that is not the queue pair's.
    pub elsewhere: bool,
    /// Rights.
    pub access: Option<Access>,
}

/// A part of a side's memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPart {
    /// From the memory's first byte on.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
}

/// One queue pair with a context, a protection domain, a completion queue for both directions and
/// memory of its own, on the loopback device. An XRC target has an XRC domain with shared receive
/// queues in place of receives of its own.
pub trait Side: Send + Sync {
    /// Number of the queue pair.
    fn qpn(&self) -> Qpn;
    /// An entry of the port's GID table.
    fn gid(&self, index: u8) -> Option<Gid>;
    /// The memory.
    fn memory(&self) -> &Memory;
    /// Registers a part of the memory, in the queue pair's protection domain or in another one.
    ///
    /// # Errors
    /// As `ibv_reg_mr(3)`.
    fn register_in(
        &mut self,
        domain: Domain,
        part: MemoryPart,
        access: Access,
    ) -> Result<Key, Errno>;
    /// Registers a part of the memory in the queue pair's protection domain.
    ///
    /// # Errors
    /// As `ibv_reg_mr(3)`.
    fn register(&mut self, offset: usize, len: usize, access: Access) -> Result<Key, Errno> {
        self.register_in(Domain::Own, MemoryPart { offset, len }, access)
    }

    /// Registers a part of the memory in a protection domain that is not the queue pair's.
    ///
    /// # Errors
    /// As `ibv_reg_mr(3)`.
    fn register_elsewhere(
        &mut self,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<Key, Errno> {
        self.register_in(Domain::Other, MemoryPart { offset, len }, access)
    }

    /// Changes a registration.
    ///
    /// # Errors
    /// As `ibv_rereg_mr(3)`.
    fn reregister(&mut self, key: Key, change: &Change) -> Result<(), Errno>;
    /// Ends a registration.
    fn deregister(&mut self, key: Key);
    /// `ibv_modify_qp(3)`.
    ///
    /// # Errors
    /// As there.
    fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Errno>;
    /// `ibv_query_qp(3)`, all attributes.
    fn query(&self) -> QpAttr;
    /// `ibv_post_send(3)` of one work request.
    ///
    /// # Errors
    /// As there.
    fn post_send(&self, wr: SendWr) -> Result<(), Errno>;
    /// `ibv_post_recv(3)` of one work request.
    ///
    /// # Errors
    /// As there.
    fn post_recv(&self, wr: RecvWr) -> Result<(), Errno>;
    /// `ibv_poll_cq(3)` for one completion.
    ///
    /// # Errors
    /// The queue overflowed.
    fn poll(&self) -> Result<Option<Wc>, Errno>;
    /// `ibv_req_notify_cq(3)`.
    fn arm(&self, solicited_only: bool);
    /// Takes a completion event from the channel and acknowledges it. Returns false if none waits.
    fn take_cq_event(&self) -> bool;
    /// Delays completion events (`ibv_modify_cq(3)`): `count` completions or `period` microseconds.
    fn moderate(&self, count: u16, period: u16);
    /// Makes an address handle; work requests name it by this number.
    ///
    /// # Errors
    /// As `ibv_create_ah(3)`.
    fn address_handle(&mut self, attr: &AddressHandleAttr) -> Result<u32, Errno>;
    /// Makes an address handle for the sender of a datagram, whose buffer begins at an offset of
    /// the memory (`ibv_create_ah_from_wc(3)`).
    ///
    /// # Errors
    /// As there.
    fn handle_to_sender(&mut self, wc: &Wc, offset: usize) -> Result<u32, Errno>;
    /// `ibv_attach_mcast(3)`.
    ///
    /// # Errors
    /// As there.
    fn attach(&self, group: Gid) -> Result<(), Errno>;
    /// `ibv_detach_mcast(3)`.
    ///
    /// # Errors
    /// As there.
    fn detach(&self, group: Gid) -> Result<(), Errno>;
    /// `ibv_resize_cq(3)`.
    ///
    /// # Errors
    /// As there.
    fn resize_cq(&self, cqe: u32) -> Result<(), Errno>;
    /// Number of the XRC shared receive queue to which receives are posted now.
    fn srqn(&self) -> Srqn;
    /// Makes another shared receive queue in the XRC domain; from now on receives are posted to it.
    fn another_srq(&mut self);
    /// Arms the limit of the shared receive queue (`ibv_modify_srq(3)`).
    ///
    /// # Errors
    /// As there.
    fn arm_srq(&self, limit: u32) -> Result<(), Errno>;
    /// The limit that is armed (`ibv_query_srq(3)`).
    fn srq_limit(&self) -> u32;
    /// Allocates a memory window of type 2: its key, which opens nothing yet.
    ///
    /// # Errors
    /// As `ibv_alloc_mw(3)`.
    fn window(&mut self) -> Result<Key, Errno>;
    /// Takes an asynchronous event, if there is one.
    fn event(&self) -> Option<(AsyncEvent, About)>;
    /// The side, if it lives in another process.
    fn apart(&self) -> Option<&Apart> {
        None
    }
}
