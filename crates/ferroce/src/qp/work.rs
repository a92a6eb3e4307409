//! Operations of work requests.

use std::fmt;
use std::marker::PhantomData;

use ferroce_abi::types::{IBV_FLUSH_GLOBAL, IBV_FLUSH_PERSISTENT};

use crate::mem::RemoteAddress;
use crate::srq::SharedReceiveQueueNumber;
use crate::sys::{Addressed, Destination, Order};
use crate::transport::{Rc, Transport, Uc, Ud, XrcInitiator};
use crate::ud::AddressHandle;

/// What a send-queue work request does with its bytes (`enum ibv_wr_opcode`; `ibv_post_send(3)`).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::{Access, MemoryRegion};
/// use ferroce::qp::Operation;
/// let pair = pair()?;
/// let board = MemoryRegion::new(&pair.domain, 64, Access::Remote)?;
/// let place = MemoryRegion::new(&pair.domain, 8, Access::LocalWrite)?;
/// // WRITE takes the bytes from here, READ brings them here.
/// pair.near.post_inline(1, Operation::Write(board.remote().at(0)), b"board")?;
/// pair.near.post_send(2, Operation::Read(board.remote().at(0)), &[place.slice(0..5)?])?;
/// for tag in [1, 2] {
///     let completion = pair.completions.wait()?;
///     completion.result?;
///     assert_eq!(completion.tag, tag);
/// }
/// let mut read = [0; 5];
/// place.read(0, &mut read)?;
/// assert_eq!(&read, b"board");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// SEND: the peer's oldest receive gets them.
    Send,
    /// SEND with immediate: as [`Send`](Self::Send), and 32 bits that appear in the peer's
    /// completion.
    SendImmediate(u32),
    /// SEND with invalidate: as [`Send`](Self::Send), and the peer's memory window of this key is
    /// closed.
    SendInvalidate(u32),
    /// RDMA WRITE: they go to this place in the peer's memory. The peer is not told.
    Write(RemoteAddress),
    /// RDMA WRITE with immediate: as [`Write`](Self::Write); uses up the peer's oldest receive to
    /// tell it.
    WriteImmediate(RemoteAddress, u32),
    /// RDMA READ: they come from this place in the peer's memory.
    Read(RemoteAddress),
    /// Compare and swap: sets 8 bytes of the peer if they have this value. The old value comes to
    /// the work request's 8 bytes.
    CompareSwap {
        /// The place, a multiple of 8.
        target: RemoteAddress,
        /// Value compared with.
        compare: u64,
        /// Value set.
        swap: u64,
    },
    /// Fetch and add: adds to 8 bytes of the peer. The old value comes to the work request's 8
    /// bytes.
    FetchAdd {
        /// The place, a multiple of 8.
        target: RemoteAddress,
        /// Addend.
        add: u64,
    },
    /// ATOMIC WRITE (IBTA 1.5): the work request's 8 bytes go to this place, a multiple of 8, in
    /// one step. Not all devices have it; the others refuse it when it is posted, or with its
    /// completion.
    AtomicWrite(RemoteAddress),
    /// Closes the own type 2 memory window of this key. Takes no bytes.
    Invalidate(u32),
}

impl Operation {
    /// Work for a queue of the peer's XRC domain. READ, WRITE and atomics use no receive, and go to
    /// any.
    #[must_use]
    pub fn to(self, queue: SharedReceiveQueueNumber) -> Work<XrcInitiator> {
        Work::new(self, Destination::Shared(queue.0))
    }
}

/// How far a [FLUSH](crate::qp::QueuePair::post_flush) brings what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlushPlacement {
    /// To where the peer's processors and other devices see it.
    Global,
    /// To memory that keeps it without power.
    Persistent,
}

impl FlushPlacement {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Global => IBV_FLUSH_GLOBAL,
            Self::Persistent => IBV_FLUSH_PERSISTENT,
        }
    }
}

/// What an unreliable connection can do: see the variants of the same names of [`Operation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the variants are those of `Operation`")]
pub enum UcOperation {
    Send,
    SendImmediate(u32),
    Write(RemoteAddress),
    WriteImmediate(RemoteAddress, u32),
    Invalidate(u32),
}

impl From<UcOperation> for Operation {
    fn from(operation: UcOperation) -> Self {
        match operation {
            UcOperation::Send => Self::Send,
            UcOperation::SendImmediate(immediate) => Self::SendImmediate(immediate),
            UcOperation::Write(to) => Self::Write(to),
            UcOperation::WriteImmediate(to, immediate) => Self::WriteImmediate(to, immediate),
            UcOperation::Invalidate(key) => Self::Invalidate(key),
        }
    }
}

/// A datagram: a SEND to any UD queue pair, of at most the path's MTU in bytes (IBTA 1.7, 9.8.3).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::{Access, MemoryRegion};
/// use ferroce::qp::QueuePairBuilder;
/// use ferroce::transport::Ud;
/// use ferroce::ud::{AddressHandle, Datagram, GRH_BYTES};
/// let pair = pair()?;
/// # let gids = pair.context.gids(1)?;
/// # let gid = gids.iter().find(|entry| entry.gid.ipv4().is_some()).ok_or("no address")?;
/// let queue_pair = QueuePairBuilder::<Ud>::new(&pair.domain, &pair.completions).build()?;
/// let place = queue_pair.activate(1, gid, 0x1111)?;
/// // What others would do with the place that they were told; here it sends to itself.
/// let to = AddressHandle::new(&pair.domain, &queue_pair.path_to(&place)?)?;
/// let datagram = Datagram::new(&to, place.queue_pair, place.qkey).immediate(7);
///
/// let room = MemoryRegion::new(&pair.domain, GRH_BYTES + 8, Access::LocalWrite)?;
/// queue_pair.post_receive(1, &[room.slice(0..GRH_BYTES + 8)?])?;
/// queue_pair.post_inline(2, datagram, b"hello")?;
/// for _ in 0..2 {
///     let completion = pair.completions.wait()?;
///     let done = completion.result?;
///     if completion.tag == 1 {
///         assert_eq!((done.bytes, done.immediate), (40 + 5, Some(7)));
///         assert_eq!(done.origin.queue_pair, queue_pair.number());
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Datagram {
    /// The way to the device; held until the work has completed.
    pub to: AddressHandle,
    /// Number of the queue pair there, 24 bits; for a multicast group, [`Datagram::MULTICAST`].
    pub queue_pair: u32,
    /// Its `Q_Key`; the receiver drops what comes with another.
    pub qkey: u32,
    /// 32 bits that appear in the receiver's completion.
    pub immediate: Option<u32>,
}

impl Datagram {
    /// The number that stands for all queue pairs of a multicast group.
    pub const MULTICAST: u32 = 0xff_ffff;

    /// One without immediate.
    #[must_use]
    pub fn new(to: &AddressHandle, queue_pair: u32, qkey: u32) -> Self {
        Self {
            to: to.clone(),
            queue_pair,
            qkey,
            immediate: None,
        }
    }

    /// With these 32 bits.
    #[must_use]
    pub fn immediate(self, immediate: u32) -> Self {
        Self {
            immediate: Some(immediate),
            ..self
        }
    }
}

/// An operation of a transport, with how it is to be done. Made of an [`Operation`],
/// [`UcOperation`] or [`Datagram`] by `into()`, which the methods that take work do themselves.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::{Access, MemoryRegion};
/// use ferroce::qp::{Operation, Work};
/// use ferroce::transport::Rc;
/// let pair = pair()?;
/// let room = MemoryRegion::new(&pair.domain, 8, Access::LocalWrite)?;
/// pair.far.post_receive(1, &[room.slice(0..8)?])?;
/// // Not before earlier READs are done; and a peer that sleeps for solicited messages wakes.
/// let work: Work<Rc> = Operation::Send.into();
/// pair.near.post_inline(2, work.fenced().solicited(), b"urgent")?;
/// for _ in 0..2 {
///     pair.completions.wait()?.result?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Work<T: Transport> {
    pub(crate) order: Order,
    transport: PhantomData<T>,
}

impl<T: Transport> Work<T> {
    #[inline]
    fn new(what: Operation, to: Destination) -> Self {
        Self {
            order: Order {
                what,
                to,
                fence: false,
                solicited: false,
                silent: false,
            },
            transport: PhantomData,
        }
    }

    /// Begins only when earlier READs and atomics of the queue pair have completed
    /// (`IBV_SEND_FENCE`).
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.order.fence = true;
        self
    }

    /// Wakes a peer that asked for solicited completions only (`IBV_SEND_SOLICITED`).
    #[must_use]
    pub fn solicited(mut self) -> Self {
        self.order.solicited = true;
        self
    }

    /// Gives no completion if it succeeds. Its place in the send queue, and its memory, become free
    /// when later work that is signalled completes: see
    /// [`unsignalled`](crate::qp::QueuePairBuilder::unsignalled).
    #[must_use]
    pub fn unsignalled(mut self) -> Self {
        self.order.silent = true;
        self
    }
}

impl<T: Transport> fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("operation", &self.order.what)
            .field("fenced", &self.order.fence)
            .field("solicited", &self.order.solicited)
            .field("unsignalled", &self.order.silent)
            .finish_non_exhaustive()
    }
}

impl From<Operation> for Work<Rc> {
    #[inline]
    fn from(operation: Operation) -> Self {
        Self::new(operation, Destination::Peer)
    }
}

impl From<UcOperation> for Work<Uc> {
    fn from(operation: UcOperation) -> Self {
        Self::new(operation.into(), Destination::Peer)
    }
}

impl From<Datagram> for Work<Ud> {
    fn from(datagram: Datagram) -> Self {
        let what = datagram
            .immediate
            .map_or(Operation::Send, Operation::SendImmediate);
        let to = Destination::Datagram(
            Addressed::new(datagram.to.0),
            datagram.queue_pair,
            datagram.qkey,
        );
        Self::new(what, to)
    }
}

crate::display::shown_in_words!(FlushPlacement);
