//! Making queue pairs, in all ways that C has.

use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};

use ferroce_abi::types::{
    IBV_QP_EX_WITH_FLUSH, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    IBV_QP_INIT_ATTR_XRCD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, ibv_qp, ibv_qp_cap,
    ibv_qp_init_attr, ibv_qp_init_attr_ex,
};

use super::super::extended::extended;
use super::super::post::{Operations, Turns};
use super::super::shared_queue::{SharedQueue, XrcDomainObject};
use super::super::work::Owner;
use super::super::{Domain, Identifier, OpenDevice, Queue, limits};
use super::QueuePairHandle;
use crate::{Error, Result};

/// Plan of a new queue pair.
pub(crate) struct Plan<'p> {
    /// `IBV_QPT_*`
    pub(crate) kind: u32,
    /// All but XRC targets have one.
    pub(crate) domain: Option<&'p Arc<Domain>>,
    /// Those that send have one.
    pub(crate) send: Option<&'p Arc<Queue>>,
    /// Those that receive have one.
    pub(crate) receive: Option<&'p Arc<Queue>>,
    /// Where receives come from, instead of an own queue.
    pub(crate) shared: Option<&'p Arc<SharedQueue>>,
    /// Of XRC targets.
    pub(crate) xrc: Option<&'p Arc<XrcDomainObject>>,
    pub(crate) cap: ibv_qp_cap,
    /// Whether successful work may complete without a word.
    pub(crate) silent: bool,
    /// Whether it must have FLUSH.
    pub(crate) flush: bool,
}

impl<'p> Plan<'p> {
    /// Plan of an XRC target, which has neither queues nor a protection domain.
    pub(crate) fn of_target(xrc: &'p Arc<XrcDomainObject>) -> Self {
        Self {
            kind: IBV_QPT_XRC_RECV,
            domain: None,
            send: None,
            receive: None,
            shared: None,
            xrc: Some(xrc),
            cap: ibv_qp_cap::zeroed(),
            silent: false,
            flush: false,
        }
    }
}

impl Plan<'_> {
    /// C's form.
    pub(super) fn init(&self) -> ibv_qp_init_attr {
        let mut init = ibv_qp_init_attr::zeroed();
        let queue = |queue: Option<&Arc<Queue>>| queue.map_or(ptr::null_mut(), |q| q.raw.as_ptr());
        init.send_cq = queue(self.send);
        init.recv_cq = queue(self.receive);
        if let Some(shared) = self.shared {
            init.srq = shared.raw.as_ptr();
        }
        init.cap = self.cap;
        init.qp_type = self.kind;
        init
    }

    /// Whether all its parts are of one context.
    pub(super) fn check(&self, device: &OpenDevice) -> Result<()> {
        let queues = [self.send, self.receive].into_iter().flatten();
        if !queues.into_iter().all(|queue| queue.is_of(device)) {
            return Err(Error::Misuse(
                "the completion queues and the protection domain are of different contexts",
            ));
        }
        match (self.shared, self.domain) {
            (Some(shared), _) if shared.is_xrc() => Err(Error::Misuse(
                "an XRC shared receive queue is for XRC targets, whose senders name it",
            )),
            (Some(shared), Some(domain)) if shared.domain().device.raw != domain.device.raw => {
                Err(Error::Misuse(
                    "the shared receive queue and the protection domain are of different contexts",
                ))
            }
            _ => Ok(()),
        }
    }

    fn describe(&self) -> String {
        let ibv_qp_cap {
            max_send_wr,
            max_recv_wr,
            max_send_sge,
            max_recv_sge,
            max_inline_data,
        } = self.cap;
        let limit = self
            .domain
            .map(|domain| limits::of_queue_pair(&domain.device, &self.cap));
        format!(
            "queue pair of {max_send_wr} sends of {max_send_sge} pieces or {max_inline_data} inline bytes, \
             {max_recv_wr} receives of {max_recv_sge} pieces{}",
            limit.unwrap_or_default()
        )
    }
}

impl QueuePairHandle {
    /// `rdma_create_qp`
    pub(crate) fn for_identifier(identifier: &Arc<Identifier>, plan: &Plan<'_>) -> Result<Self> {
        let domain = plan
            .domain
            .ok_or(Error::Misuse("the queue pair needs a protection domain"))?;
        plan.check(&domain.device)?;
        if plan.flush {
            return Err(Error::Misuse(
                "FLUSH is for queue pairs without the connection manager",
            ));
        }
        if let Some(met) = identifier.device()
            && !met.is(&domain.device)
        {
            return Err(Error::Misuse(
                "the protection domain is of another context than the identifier: it is to be made of the identifier's",
            ));
        }
        let mut init = plan.init();
        let raw = identifier
            .create_queue_pair(domain, &mut init)
            .map_err(|e| {
                e.about(|| match identifier.device() {
                    Some(_) => plan.describe(),
                    None => {
                        "the identifier is on no device yet: resolve an address first, and take the event"
                            .to_owned()
                    }
                })
            })?;
        let mut new = Self::adopt(&domain.device, (raw, init.cap), plan);
        new.identifier = Some(Arc::clone(identifier));
        Ok(new)
    }

    /// `ibv_create_qp`, or `ibv_create_qp_ex` for XRC targets.
    pub(crate) fn new(plan: &Plan<'_>) -> Result<Self> {
        if let (IBV_QPT_XRC_RECV, Some(xrc)) = (plan.kind, plan.xrc) {
            return Self::target(xrc, plan);
        }
        let domain = plan
            .domain
            .ok_or(Error::Misuse("the queue pair needs a protection domain"))?;
        plan.check(&domain.device)?;
        if plan.flush {
            return Self::with_flush(domain, plan);
        }
        let mut init = plan.init();
        if plan.kind == IBV_QPT_XRC_SEND {
            // The interface demands one, and does not use it.
            init.recv_cq = init.send_cq;
        }
        // SAFETY: a live domain, and attributes that name live objects.
        let raw =
            unsafe { (domain.device.verbs.ibv_create_qp)(domain.raw.as_ptr(), &raw mut init) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::last("ibv_create_qp").about(|| plan.describe()))?;
        Ok(Self::adopt(&domain.device, (raw, init.cap), plan))
    }

    /// `ibv_create_qp_ex`, and `ibv_qp_to_qp_ex`
    fn with_flush(domain: &Arc<Domain>, plan: &Plan<'_>) -> Result<Self> {
        let device = &domain.device;
        let plain = plan.init();
        let mut init = ibv_qp_init_attr_ex::zeroed();
        (init.send_cq, init.recv_cq, init.srq) = (plain.send_cq, plain.recv_cq, plain.srq);
        (init.cap, init.qp_type) = (plain.cap, plain.qp_type);
        init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.pd = domain.raw.as_ptr();
        init.send_ops_flags = IBV_QP_EX_WITH_FLUSH.into();
        let create = extended!(device, create_qp_ex)?;
        // SAFETY: a live context, and attributes that name live objects.
        let raw = unsafe { create(device.raw.as_ptr(), &raw mut init) };
        let raw = NonNull::new(raw).ok_or_else(|| {
            Error::last("ibv_create_qp_ex").about(|| format!("{}, with FLUSH", plan.describe()))
        })?;
        let mut new = Self::adopt(device, (raw, init.cap), plan);
        new.find_flush();
        Ok(new)
    }

    /// `ibv_qp_to_qp_ex`, of a queue pair that was made with FLUSH.
    pub(super) fn find_flush(&mut self) {
        // SAFETY: a live queue pair. A library that made it with FLUSH has the larger structure.
        let extended = unsafe { (self.device.verbs.ibv_qp_to_qp_ex)(self.raw.as_ptr()) };
        self.extended = NonNull::new(extended.cast());
    }

    fn target(xrc: &Arc<XrcDomainObject>, plan: &Plan<'_>) -> Result<Self> {
        let device = &xrc.device;
        let mut init = ibv_qp_init_attr_ex::zeroed();
        init.qp_type = plan.kind;
        init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
        init.xrcd = xrc.raw.as_ptr();
        let create = extended!(device, create_qp_ex)?;
        // SAFETY: a live context, and attributes that name a live XRC domain.
        let raw = unsafe { create(device.raw.as_ptr(), &raw mut init) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::last("ibv_create_qp_ex").about(|| "XRC target".to_owned()))?;
        Ok(Self::adopt(device, (raw, init.cap), plan))
    }

    pub(super) fn adopt(
        device: &Arc<OpenDevice>,
        (raw, cap): (NonNull<ibv_qp>, ibv_qp_cap),
        plan: &Plan<'_>,
    ) -> Self {
        // SAFETY: a live queue pair, whose number never changes.
        let number = unsafe { (*raw.as_ptr()).qp_num };
        Self {
            identifier: None,
            device: Arc::clone(device),
            domain: plan.domain.cloned(),
            send: plan.send.cloned(),
            receive: plan.receive.cloned(),
            shared: plan.shared.cloned(),
            _xrc: plan.xrc.cloned(),
            raw,
            number,
            kind: plan.kind,
            cap,
            owner: Owner::new(),
            operations: Operations::of(device),
            turns: Turns::new(),
            unsignalled: plan.silent,
            extended: None,
            groups: Mutex::default(),
            owned: true,
        }
    }
}
