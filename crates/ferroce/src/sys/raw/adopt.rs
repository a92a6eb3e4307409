//! Objects of raw handles.

use std::ptr::NonNull;

use crate::cm::{EventChannel, Id};
use crate::cq::CompletionQueue;
use crate::device::Context;
use crate::mem::{MemoryWindow, ProtectionDomain};
use crate::qp::{QueuePair, QueuePairBuilder};
use crate::raw::{
    ibv_ah, ibv_context, ibv_cq, ibv_mw, ibv_pd, ibv_qp, ibv_srq, ibv_xrcd, rdma_cm_id,
    rdma_event_channel,
};
use crate::srq::{SharedReceiveQueue, XrcDomain};
use crate::sys::queue_pair::Kind;
use crate::sys::{
    AddressObject, Channel, Domain, Identifier, OpenDevice, Queue, QueuePairHandle, SharedQueue,
    Window, XrcDomainObject,
};
use crate::transport::{Managed, Sends, XrcTarget};
use crate::ud::AddressHandle;
use crate::{Provider, Result};

/// `from_raw` and `borrow_raw` of an object: its documentation, with what goes wrong behind a
/// comma, what it is made from, what both give, and what the caller promises.
macro_rules! of_raw {
    ($(
        $(#[$what:meta])* , $(#[$errors:meta])*
        $name:ident($from:ident: &$parent:ty, $raw:ident: $c:ident) -> $result:ty,
        $owned:ident => $make:expr,
        $promise:literal;
    )*) => {
        $(impl $name {
            $(#[$what])*
            ///
            /// The C object is destroyed when this, its clones and all that is made from it are
            /// gone.
            ///
            $(#[$errors])*
            /// # Safety
            #[doc = $promise]
            /// Nothing else destroys it.
            pub unsafe fn from_raw($from: &$parent, $raw: NonNull<$c>) -> $result {
                let $owned = true;
                $make
            }

            $(#[$what])*
            ///
            /// The C object stays the caller's.
            ///
            $(#[$errors])*
            /// # Safety
            #[doc = $promise]
            /// It is there until this, its clones and all that is made from it are gone. The caller
            /// destroys it before what it was made from.
            pub unsafe fn borrow_raw($from: &$parent, $raw: NonNull<$c>) -> $result {
                let $owned = false;
                $make
            }
        })*
    };
}

of_raw! {
    /// A context that C has opened.
    #[must_use] ,
    Context(provider: &Provider, raw: ibv_context) -> Self,
    owned => Self(OpenDevice::adopt(provider.verbs(), raw, owned)),
    "A live context, opened by the provider's `ibv_open_device`.";

    /// A protection domain that C has made.
    #[must_use] ,
    ProtectionDomain(context: &Context, raw: ibv_pd) -> Self,
    owned => Self(Domain::adopt(&context.0, raw, owned)),
    "A live domain of the context.";

    /// A completion queue that C has made, with its completion channel, which goes the same way.
    /// One of `ibv_create_cq_ex` is polled by `ibv_poll_cq`, which tells no timestamps. From now on
    /// `O_NONBLOCK` of the channel's descriptor is this crate's.
    ,
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) for a queue without a channel, or of another
    /// context. It stays the caller's then.
    ///
    CompletionQueue(context: &Context, raw: ibv_cq) -> Result<Self>,
    // SAFETY: the caller's promise.
    owned => unsafe { Queue::adopt(&context.0, raw, owned) }.map(Self),
    "A live queue, alone on its channel, of which no event is unacknowledged, and in which nothing \
     was posted that has not been polled. From now on this crate alone polls it, arms it and reads \
     its events, and what completes there was posted by this crate.";

    /// A shared receive queue that C has made. Receives that were not taken when a borrowed one
    /// goes stay allocated for ever.
    ,
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) for a queue of another domain. It stays the caller's
    /// then.
    ///
    SharedReceiveQueue(domain: &ProtectionDomain, raw: ibv_srq) -> Result<Self>,
    // SAFETY: the caller's promise.
    owned => unsafe { SharedQueue::adopt(&domain.0, raw, owned) }.map(Self),
    "A live queue, not of XRC (see [`from_raw_xrc`](Self::from_raw_xrc)), to which nothing was \
     posted, and of which no event is unacknowledged. From now on this crate alone posts to \
     it, and alone polls what its receives complete in.";

    /// An XRC domain that C has opened.
    #[must_use] ,
    XrcDomain(context: &Context, raw: ibv_xrcd) -> Self,
    owned => Self(XrcDomainObject::adopt(&context.0, raw, owned)),
    "A live XRC domain of the context.";

    /// A memory window that C has made. A borrowed one that is bound when it goes stays bound, and
    /// keeps its region registered.
    #[must_use] ,
    MemoryWindow(domain: &ProtectionDomain, raw: ibv_mw) -> Self,
    // SAFETY: the caller's promise.
    owned => Self(unsafe { Window::adopt(&domain.0, raw, owned) }),
    "A live window of the domain, bound to nothing, and from now on bound by this crate alone.";

    /// An address handle that C has made.
    #[must_use] ,
    AddressHandle(domain: &ProtectionDomain, raw: ibv_ah) -> Self,
    owned => Self(AddressObject::adopt(&domain.0, raw, owned)),
    "A live address handle of the domain.";

    /// An event channel that C has made. Its descriptor is non-blocking from now on.
    ,
    /// # Errors
    /// The descriptor cannot be made non-blocking. It stays the caller's then.
    ///
    EventChannel(provider: &Provider, raw: rdma_event_channel) -> Result<Self>,
    // SAFETY: the caller's promise.
    owned => unsafe { Channel::adopt(provider.verbs(), raw, owned) }.map(Self),
    "A live channel of the provider, of which no event is unacknowledged. From now on this crate \
     alone reads its events. Identifiers of C on it are destroyed before it.";

    /// An identifier that C has made. Its queue pair, if it has one, is used by
    /// [`QueuePair::from_raw_id`].
    ,
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) for an identifier of another channel. It stays the
    /// caller's then.
    ///
    Id(channel: &EventChannel, raw: rdma_cm_id) -> Result<Self>,
    // SAFETY: the caller's promise.
    owned => unsafe { Identifier::of_raw(&channel.0, raw, owned) }.map(Self),
    "A live identifier, of which no event is unacknowledged and which nobody uses meanwhile, on a channel that it was made with \
     (not by `rdma_create_ep`). From now on this crate alone uses it.";
}

impl<T: Sends> QueuePair<T> {
    /// A queue pair that C has made. It is destroyed when this and all that is made from it is
    /// gone.
    ///
    /// `parts` says what it was made from: domain, completion queues, shared receive queue, whether
    /// work may be unsignalled, and FLUSH. What it can hold is asked of C.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) if it is of another transport or of other parts. It
    /// stays the caller's then.
    ///
    /// # Safety
    /// A live queue pair, to which nothing was posted and of which no event is unacknowledged, with
    /// FLUSH if `parts` has it; not of an identifier. From now on this crate alone posts to it, and
    /// nothing else destroys it.
    pub unsafe fn from_raw(parts: &QueuePairBuilder<T>, raw: NonNull<ibv_qp>) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { QueuePairHandle::of_raw(&parts.plan(), (raw, Kind::Planned), true) }
            .map(Self::adopt)
    }

    /// A queue pair that stays the caller's. When this goes, work that has not completed is not
    /// flushed: its memory, the domain and the queues then stay allocated for ever.
    ///
    /// # Errors
    /// As [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    /// As [`from_raw`](Self::from_raw), but that it may be of an identifier, and that it is there
    /// until this is gone. The caller destroys it before what it was made from, and keeps the parts
    /// until then.
    pub unsafe fn borrow_raw(parts: &QueuePairBuilder<T>, raw: NonNull<ibv_qp>) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { QueuePairHandle::of_raw(&parts.plan(), (raw, Kind::Planned), false) }
            .map(Self::adopt)
    }

    /// A queue pair of an adapter's own kind (`IBV_QPT_DRIVER`) that C has made: EFA's SRD as
    /// [`Ud`](crate::transport::Ud), say, whose work requests it takes. It is destroyed when this
    /// and all that is made from it is gone.
    ///
    /// # Errors
    /// As [`from_raw`](Self::from_raw); [`Error::Misuse`](crate::Error::Misuse) if it is of a
    /// transport of the specification.
    ///
    /// # Safety
    /// As [`from_raw`](Self::from_raw). Its work requests mean what those of the type's transport
    /// mean: the same fields, and memory that the device leaves alone once they have completed.
    /// Where `parts` lets work be unsignalled, it completes in the order in which it was posted.
    pub unsafe fn from_raw_driver(
        parts: &QueuePairBuilder<T>,
        raw: NonNull<ibv_qp>,
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { QueuePairHandle::of_raw(&parts.plan(), (raw, Kind::Driver), true) }
            .map(Self::adopt)
    }

    /// A queue pair of an adapter's own kind that stays the caller's, as with
    /// [`borrow_raw`](Self::borrow_raw).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pair = pair()?;
    /// # let builder = ferroce::qp::QueuePairBuilder::new(&pair.domain, &pair.completions);
    /// # let made: ferroce::qp::QueuePair<ferroce::transport::Ud> = builder.build()?;
    /// # let efadv_create_driver_qp = |_: *mut _| made.as_raw();
    /// use std::ptr::NonNull;
    /// use ferroce::qp::{QueuePair, QueuePairBuilder};
    /// use ferroce::transport::Ud;
    /// let raw = NonNull::new(efadv_create_driver_qp(pair.domain.as_raw())).ok_or("no memory")?;
    /// let parts = QueuePairBuilder::<Ud>::new(&pair.domain, &pair.completions);
    /// // SAFETY: it was made just now of these parts and is destroyed after `srd` has gone; SRD
    /// // takes the work requests of UD, all of which are signalled here.
    /// let srd = unsafe { QueuePair::borrow_raw_driver(&parts, raw) };
    /// # assert!(srd.is_err(), "one of the transport UD itself");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`from_raw_driver`](Self::from_raw_driver).
    ///
    /// # Safety
    /// As [`from_raw_driver`](Self::from_raw_driver) and [`borrow_raw`](Self::borrow_raw).
    pub unsafe fn borrow_raw_driver(
        parts: &QueuePairBuilder<T>,
        raw: NonNull<ibv_qp>,
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { QueuePairHandle::of_raw(&parts.plan(), (raw, Kind::Driver), false) }
            .map(Self::adopt)
    }
}

impl SharedReceiveQueue {
    /// A queue of XRC that C has made (`ibv_create_srq_ex`). It is destroyed when this, its clones
    /// and all that is made from it are gone.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) for a queue that is not of XRC, if the provider says
    /// so, or of another domain, and for parts of different contexts. It stays the caller's then.
    ///
    /// # Safety
    /// As [`from_raw`](Self::from_raw), but of that XRC domain, and its receives complete in that
    /// queue.
    pub unsafe fn from_raw_xrc(
        domain: &ProtectionDomain,
        xrc: &XrcDomain,
        completions: &CompletionQueue,
        raw: NonNull<ibv_srq>,
    ) -> Result<Self> {
        let parts = (&xrc.0, &completions.0);
        // SAFETY: the caller's promise.
        unsafe { SharedQueue::adopt_xrc(&domain.0, parts, raw, true) }.map(Self)
    }

    /// A queue of XRC that stays the caller's.
    ///
    /// # Errors
    /// As [`from_raw_xrc`](Self::from_raw_xrc).
    ///
    /// # Safety
    /// As [`borrow_raw`](Self::borrow_raw), but of that XRC domain, and its receives complete in
    /// that queue. The caller destroys it before both.
    pub unsafe fn borrow_raw_xrc(
        domain: &ProtectionDomain,
        xrc: &XrcDomain,
        completions: &CompletionQueue,
        raw: NonNull<ibv_srq>,
    ) -> Result<Self> {
        let parts = (&xrc.0, &completions.0);
        // SAFETY: the caller's promise.
        unsafe { SharedQueue::adopt_xrc(&domain.0, parts, raw, false) }.map(Self)
    }
}

impl QueuePair<XrcTarget> {
    /// An XRC target that C has made (`ibv_create_qp_ex`) or opened (`ibv_open_qp`). C's object is
    /// destroyed when this is gone.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) for a queue pair that is no XRC target, or of
    /// another context. It stays the caller's then.
    ///
    /// # Safety
    /// A live queue pair of the XRC domain, of which no event is unacknowledged. Nothing else
    /// destroys it.
    pub unsafe fn from_raw_target(xrc: &XrcDomain, raw: NonNull<ibv_qp>) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { QueuePairHandle::target_of_raw(&xrc.0, raw, true) }.map(Self::adopt)
    }

    /// An XRC target that stays the caller's.
    ///
    /// # Errors
    /// As [`from_raw_target`](Self::from_raw_target).
    ///
    /// # Safety
    /// A live queue pair of the XRC domain, which is there until this is gone. The caller destroys
    /// it before the domain.
    pub unsafe fn borrow_raw_target(xrc: &XrcDomain, raw: NonNull<ibv_qp>) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { QueuePairHandle::target_of_raw(&xrc.0, raw, false) }.map(Self::adopt)
    }
}

impl<T: Managed> QueuePair<T> {
    /// The queue pair that C has made for an identifier (`rdma_create_qp`, `rdma_create_qp_ex`). It
    /// is destroyed when this and all that is made from it is gone.
    ///
    /// # Errors
    /// As [`from_raw`](Self::from_raw); [`Error::Misuse`](crate::Error::Misuse) if the identifier
    /// has none.
    ///
    /// # Safety
    /// As [`from_raw`](Self::from_raw), and no other thread uses the identifier meanwhile.
    pub unsafe fn from_raw_id(id: &Id, parts: &QueuePairBuilder<T>) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { QueuePairHandle::of_raw_identifier(id.identifier(), &parts.plan()) }
            .map(Self::adopt)
    }
}
