//! Making queue pairs.

use std::marker::PhantomData;

use ferroce_abi::types::ibv_qp_cap;

use crate::Result;
use crate::cm::Id;
use crate::cq::CompletionQueue;
use crate::mem::ProtectionDomain;
use crate::qp::{QueuePair, QueuePairCapacities};
use crate::srq::{SharedReceiveQueue, XrcDomain};
use crate::sys::{Plan, QueuePairHandle};
use crate::transport::{Managed, Rc, Receives, Sends, XrcTarget};

/// Says what a queue pair is to be, and makes it (`ibv_create_qp(3)`, `struct ibv_qp_init_attr`).
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::qp::QueuePairBuilder;
/// use ferroce::transport::Ud;
/// let pair = pair()?;
/// let queue_pair = QueuePairBuilder::<Ud>::new(&pair.domain, &pair.completions)
///     .send(64)
///     .receive(256)
///     .inline(32)
///     .build()?;
/// assert!(queue_pair.capacities().receive >= 256); // it may be more than was asked for
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it makes nothing until it is told to build"]
pub struct QueuePairBuilder<T: Sends = Rc> {
    domain: ProtectionDomain,
    send: CompletionQueue,
    receive: CompletionQueue,
    shared: Option<SharedReceiveQueue>,
    capacities: QueuePairCapacities,
    inline: u32,
    unsignalled: bool,
    flush: bool,
    transport: PhantomData<T>,
}

impl<T: Sends> QueuePairBuilder<T> {
    /// A queue pair of a domain whose work completes in this queue: 16 work requests each way, of
    /// one piece.
    pub fn new(domain: &ProtectionDomain, completions: &CompletionQueue) -> Self {
        Self {
            domain: domain.clone(),
            send: completions.clone(),
            receive: completions.clone(),
            shared: None,
            capacities: QueuePairCapacities::default(),
            inline: 0,
            unsignalled: false,
            flush: false,
            transport: PhantomData,
        }
    }

    /// Its protection domain.
    #[must_use]
    pub fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// Sets the capacities that it must have.
    pub fn capacities(mut self, capacities: QueuePairCapacities) -> Self {
        self.capacities = capacities;
        self
    }

    /// Work requests of the send queue that have not completed, at least; at most
    /// [`max_qp_wr`](crate::device::DeviceLimits::max_qp_wr).
    pub fn send(mut self, work_requests: u32) -> Self {
        self.capacities.send = work_requests;
        self
    }

    /// Pieces of memory of one work request, at least; at most
    /// [`max_sge`](crate::device::DeviceLimits::max_sge).
    pub fn pieces(mut self, pieces: u32) -> Self {
        self.capacities.pieces = pieces;
        self
    }

    /// Bytes that can be sent [inline](QueuePair::post_inline), at least (`max_inline_data`). No
    /// verb tells a device's limit: what it cannot hold, [`build`](Self::build) refuses.
    pub fn inline(mut self, bytes: u32) -> Self {
        self.inline = bytes;
        self
    }

    /// Whether work may be [unsignalled](crate::qp::Work::unsignalled).
    ///
    /// Unsignalled work keeps its place in the send queue, and its memory, until later signalled
    /// work completes: a send queue full of unsignalled work never becomes free. Post at least one
    /// signalled work request in each [`send`](Self::send).
    pub fn unsignalled(mut self, allowed: bool) -> Self {
        self.unsignalled = allowed;
        self
    }

    /// Makes it. Its state is RESET.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) if the parts are of different contexts; EINVAL for
    /// capacities beyond the device's [limits](crate::device::Context::limits); ENOMEM at its limit
    /// of queue pairs; EOPNOTSUPP for a transport that it does not have.
    pub fn build(self) -> Result<QueuePair<T>> {
        QueuePairHandle::new(&self.plan()).map(QueuePair::adopt)
    }

    pub(crate) fn plan(&self) -> Plan<'_> {
        let receives = T::KIND.receives();
        let own = receives && self.shared.is_none();
        let own = |capacity: u32| if own { capacity } else { 0 };
        Plan {
            kind: T::KIND.number(),
            domain: Some(&self.domain.0),
            send: Some(&self.send.0),
            receive: receives.then_some(&self.receive.0),
            shared: self.shared.as_ref().map(|shared| &shared.0),
            xrc: None,
            cap: ibv_qp_cap {
                max_send_wr: self.capacities.send,
                max_recv_wr: own(self.capacities.receive),
                max_send_sge: self.capacities.pieces,
                max_recv_sge: own(self.capacities.pieces),
                max_inline_data: self.inline,
            },
            silent: self.unsignalled,
            flush: self.flush,
        }
    }
}

impl<T: Sends + Receives> QueuePairBuilder<T> {
    /// Sets how many receives, at least, may be outstanding; the limit is
    /// [`max_qp_wr`](crate::device::DeviceLimits::max_qp_wr).
    pub fn receive(mut self, work_requests: u32) -> Self {
        self.capacities.receive = work_requests;
        self
    }

    /// Where receives complete, if not where sends do.
    pub fn receive_completions(mut self, completions: &CompletionQueue) -> Self {
        self.receive = completions.clone();
        self
    }

    /// Takes receives from a shared queue, and has none of its own.
    pub fn shared_receives(mut self, shared: &SharedReceiveQueue) -> Self {
        self.shared = Some(shared.clone());
        self
    }
}

impl QueuePairBuilder<Rc> {
    /// Whether it must have [FLUSH](QueuePair::post_flush). Not for queue pairs of an identifier.
    /// [`build`](Self::build) then gives EOPNOTSUPP or EINVAL if the device or the library does not
    /// have it.
    pub fn flush(mut self, needed: bool) -> Self {
        self.flush = needed;
        self
    }
}

impl<T: Managed> QueuePairBuilder<T> {
    /// Makes it as the queue pair of an identifier, which takes it through its states
    /// (`rdma_create_qp(3)`). Its state is INIT; RTS of UD, with [`Id::QKEY`].
    ///
    /// # Errors
    /// As [`build`](Self::build); [`Error::Misuse`](crate::Error::Misuse) if the identifier has one
    /// or is for the other transport, EINVAL if it is not bound to a device.
    pub fn build_for(self, id: &Id) -> Result<QueuePair<T>> {
        QueuePairHandle::for_identifier(id.identifier(), &self.plan()).map(QueuePair::adopt)
    }
}

impl QueuePair<XrcTarget> {
    /// Makes an XRC target: what is sent to it goes to the shared receive queues of the domain, and
    /// completes where those complete. Its state is RESET.
    ///
    /// # Errors
    /// ENOMEM at the device's limit; EOPNOTSUPP if it does not have XRC.
    pub fn target(domain: &XrcDomain) -> Result<Self> {
        QueuePairHandle::new(&Plan::of_target(&domain.0)).map(Self::adopt)
    }
}
