//! Queue pairs.

mod post;

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Result;
use crate::cm::Id;
use crate::cq::CompletionQueue;
use crate::device::Gid;
use crate::mem::{MemoryRegion, MemoryWindow, ProtectionDomain, RemoteAccess, RemoteRegion};
use crate::qp::QueuePairState;
use crate::qp::atomic::Results;
use crate::qp::exchange::Local;
use crate::qp::{FlushPlacement, QueuePairBuilder};
use crate::qp::{QueuePairAttributes, QueuePairInfo};
use crate::sys::{Bind, QueuePairHandle};
use crate::transport::{Binds, Rc, Transport, Ud};

pub use post::RefusedBuffer;
pub(crate) use post::pending_buffer;

/// What a queue pair must hold (`struct ibv_qp_cap`; `ibv_create_qp(3)`). The device's limits are
/// [`max_qp_wr`](crate::device::DeviceLimits::max_qp_wr) and
/// [`max_sge`](crate::device::DeviceLimits::max_sge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuePairCapacities {
    /// Work requests of the send queue that have not completed.
    pub send: u32,
    /// Receives that have not completed.
    pub receive: u32,
    /// Pieces of memory of one work request.
    pub pieces: u32,
}

impl QueuePairCapacities {
    /// Capacities for `send` sends and `receive` receives, of one piece of memory each.
    #[must_use]
    pub const fn new(send: u32, receive: u32) -> Self {
        Self {
            send,
            receive,
            pieces: 1,
        }
    }

    /// Sets the number of pieces of memory of one work request.
    #[must_use]
    pub const fn with_pieces(self, pieces: u32) -> Self {
        Self { pieces, ..self }
    }
}

impl Default for QueuePairCapacities {
    /// 16 sends and 16 receives, of one piece of memory each.
    fn default() -> Self {
        Self::new(16, 16)
    }
}

/// A queue pair of a [transport](Transport). Made by a [builder](QueuePairBuilder), for an [`Id`]
/// of the connection manager, which then takes it through its states, or on its own: then
/// [`init`](Self::init) and [`connect`](Self::connect), or for UD
/// [`activate`](QueuePair::activate), do.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::cq::CompletionQueue;
/// use ferroce::device::{PortState, devices};
/// use ferroce::mem::{Access, MemoryRegion, ProtectionDomain, RemoteAccess};
/// use ferroce::qp::{LinkParameters, Operation, QueuePair, QueuePairBuilder};
/// use ferroce::transport::Rc;
///
/// let is_up = |device: &ferroce::device::Device| -> Option<_> {
///     let context = device.open().ok()?;
///     let gid = context.gids(1).ok()?.into_iter().find(|entry| entry.gid.ipv4().is_some())?;
///     (context.port(1).ok()?.state == PortState::Active).then_some((context, gid))
/// };
/// let (context, gid) = devices()?.iter().find_map(is_up).ok_or("no port is up")?;
/// let domain = ProtectionDomain::new(&context)?;
/// let completions = CompletionQueue::new(&context, 16)?;
/// let build = || QueuePairBuilder::new(&domain, &completions).build();
/// let (near, far): (QueuePair<Rc>, QueuePair<Rc>) = (build()?, build()?);
/// // Each end tells the other one where it is: here they are in one process.
/// let near_end = near.init(1, &gid, RemoteAccess::NONE)?;
/// let far_end = far.init(1, &gid, RemoteAccess::NONE)?;
/// near.connect(&far_end, &LinkParameters::default())?;
/// far.connect(&near_end, &LinkParameters::default())?;
///
/// let room = MemoryRegion::new(&domain, 64, Access::LocalWrite)?;
/// far.post_receive(1, &[room.slice(0..64)?])?;
/// near.post_inline(2, Operation::Send, b"hello")?;
/// for _ in 0..2 {
///     completions.wait()?.result?;
/// }
/// let mut came = [0; 5];
/// room.read(0, &mut came)?;
/// assert_eq!(&came, b"hello");
/// # Ok(())
/// # }
/// ```
pub struct QueuePair<T: Transport = Rc> {
    pub(crate) handle: Arc<QueuePairHandle>,
    capacities: QueuePairCapacities,
    local: Mutex<Option<Local>>,
    pub(crate) results: Arc<Results>,
    transport: PhantomData<T>,
}

impl QueuePair<Rc> {
    /// Makes the identifier's queue pair. Its state is INIT: receives can be posted.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) if the identifier has one or the parts are of
    /// different contexts; EINVAL for capacities beyond the device's limits or an identifier that
    /// is not bound to a device.
    pub fn new(
        id: &Id,
        domain: &ProtectionDomain,
        send: &CompletionQueue,
        receive: &CompletionQueue,
        capacities: QueuePairCapacities,
    ) -> Result<Self> {
        QueuePairBuilder::new(domain, send)
            .receive_completions(receive)
            .capacities(capacities)
            .build_for(id)
    }
}

impl<T: Transport> QueuePair<T> {
    pub(crate) fn adopt(handle: QueuePairHandle) -> Self {
        let cap = handle.cap();
        let pieces = match (cap.max_send_sge, cap.max_recv_sge) {
            (send, 0) => send,
            (send, receive) => send.min(receive),
        };
        let capacities = QueuePairCapacities {
            send: cap.max_send_wr,
            receive: cap.max_recv_wr,
            pieces,
        };
        Self {
            handle: Arc::new(handle),
            capacities,
            local: Mutex::default(),
            results: Arc::default(),
            transport: PhantomData,
        }
    }

    pub(crate) fn local(&self) -> Option<Local> {
        *self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_local(&self, local: Local) {
        *self.local.lock().unwrap_or_else(PoisonError::into_inner) = Some(local);
    }

    /// Its number: 24 bits.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.handle.number()
    }

    /// What it really holds: at least what was asked for.
    #[must_use]
    pub fn capacities(&self) -> QueuePairCapacities {
        self.capacities
    }

    /// Bytes that can be sent [inline](Self::post_inline).
    #[must_use]
    pub fn inline_capacity(&self) -> u32 {
        self.handle.cap().max_inline_data
    }

    /// Changes attributes, the state among them (`ibv_modify_qp(3)`). To RESET it is a
    /// [`reset`](Self::reset).
    ///
    /// # Errors
    /// EINVAL if the state does not allow it or a value is out of its range; the message names
    /// missing and superfluous attributes.
    pub fn modify(&self, attributes: &QueuePairAttributes) -> Result<()> {
        let mut attr = attributes.attr;
        self.handle.modify(&mut attr, attributes.mask)
    }

    /// Its attributes (`ibv_query_qp(3)`).
    ///
    /// # Errors
    /// ENOMEM; the device is gone.
    pub fn query(&self) -> Result<QueuePairInfo> {
        // All of them: devices may leave out what is not asked for.
        self.handle
            .query(0x001f_ffff)
            .map(|(attr, _)| QueuePairInfo::from(&attr))
    }

    /// Its state (`ibv_query_qp(3)`).
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub fn state(&self) -> Result<QueuePairState> {
        self.query().map(|info| info.state)
    }

    /// Goes to the error state (`IBV_QPS_ERR` of `ibv_modify_qp(3)`; IBTA 1.7, 10.3.1.7): what is
    /// posted completes as flushed.
    ///
    /// # Errors
    /// EINVAL in RESET.
    pub fn flush(&self) -> Result<()> {
        self.handle.flush()
    }

    /// Goes back to RESET (`ibv_modify_qp(3)`; IBTA 1.7, 10.3.1.1): what is posted is forgotten by
    /// the device; futures of it end as flushed, and pollers hear nothing of it.
    ///
    /// A queue pair that takes its receives from a shared receive queue, an XRC target too, is
    /// [flushed](Self::flush) first, so that a receive into which a part of a message came
    /// completes. Pollers hear of what was flushed then; that of an XRC target completes in the
    /// queue of its shared receive queue.
    ///
    /// # Errors
    /// The device is gone; EINVAL over iWARP for a queue pair that had a connection.
    pub fn reset(&self) -> Result<()> {
        self.handle.reset()
    }
}

impl<T: Binds> QueuePair<T> {
    /// Posts the bind of a memory window: once it has completed, peers reach these bytes of the
    /// region with the key of the result, in these ways, until the window is bound again,
    /// invalidated or dropped. The region was made with
    /// [`Access::Windows`](crate::mem::Access::Windows). A type 2 window that is open must be
    /// invalidated before it is bound again: the work fails otherwise (`IBV_WC_MW_BIND_ERR`).
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange); [`Error::Misuse`](crate::Error::Misuse) if
    /// the parts are of different domains; as [`post_send`](Self::post_send).
    pub fn post_bind(
        &self,
        tag: u64,
        window: &MemoryWindow,
        (region, range): (&MemoryRegion, Range<usize>),
        access: RemoteAccess,
    ) -> Result<RemoteRegion> {
        let slice = region.slice(range.clone())?;
        let bind = Bind {
            window: &window.0,
            region: region.region(),
            range,
            access: access.flags(),
        };
        let rkey = self.handle.bind(tag, &bind)?;
        Ok(slice.remote(rkey))
    }
}

impl QueuePair<Rc> {
    /// Posts a FLUSH (IBTA 1.5, annex A19): once it has completed, what was written to these bytes
    /// of the peer before is where `placement` says. The region was registered, and the peer's
    /// queue pair initialised, with the access that it needs.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) unless the queue pair was
    /// [built](QueuePairBuilder::flush) for it; as [`post_send`](Self::post_send).
    pub fn post_flush(
        &self,
        tag: u64,
        range: RemoteRegion,
        placement: FlushPlacement,
    ) -> Result<()> {
        self.handle.post_flush(tag, range, placement)
    }
}

impl QueuePair<Ud> {
    /// Receives what is sent to a multicast group (`ibv_attach_mcast(3)`). Also at the port's
    /// switch the group must be joined, which on `RoCE` the device does. The LID is 0 on Ethernet.
    ///
    /// # Errors
    /// EINVAL for an address that is no multicast group, ENOMEM at the device's limit.
    pub fn attach(&self, group: Gid, lid: u16) -> Result<()> {
        self.handle.attach(group, lid)
    }

    /// Takes [`attach`](Self::attach) back. It is taken back too when the queue pair is dropped.
    ///
    /// # Errors
    /// EINVAL if it is not attached.
    pub fn detach(&self, group: Gid, lid: u16) -> Result<()> {
        self.handle.detach(group, lid)
    }
}

impl<T: Transport> fmt::Debug for QueuePair<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair<{}>({:#08x})", T::KIND, self.number())
    }
}
