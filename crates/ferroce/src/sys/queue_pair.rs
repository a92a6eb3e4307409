//! Queue pairs.

use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

use ferroce_abi::types::{
    IBV_QP_EX_WITH_FLUSH, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    IBV_QP_INIT_ATTR_XRCD, IBV_QP_STATE, IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPT_XRC_RECV,
    IBV_QPT_XRC_SEND, ibv_gid, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex_flush, ibv_qp_init_attr,
    ibv_qp_init_attr_ex,
};
use smallvec::SmallVec;

use super::extended::extended;
use super::post::Silent;
use super::shared_queue::{SharedQueue, XrcDomainObject};
use super::work::Owner;
use super::{Domain, Identifier, OpenDevice, Queue};
use crate::{Error, Gid, Result};

/// What a queue pair is to be.
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

/// A queue pair.
pub(crate) struct QueuePairHandle {
    maker: Maker,
    pub(super) device: Arc<OpenDevice>,
    pub(super) domain: Option<Arc<Domain>>,
    pub(super) send: Option<Arc<Queue>>,
    pub(super) receive: Option<Arc<Queue>>,
    pub(super) shared: Option<Arc<SharedQueue>>,
    _xrc: Option<Arc<XrcDomainObject>>,
    pub(super) raw: NonNull<ibv_qp>,
    pub(super) number: u32,
    pub(super) kind: u32,
    pub(super) cap: ibv_qp_cap,
    /// Tells its work from that of others. Numbers of queue pairs come again.
    pub(super) owner: Owner,
    /// Only of queue pairs that may have work that completes without a word.
    pub(super) silent: Option<Silent>,
    /// The structure with the function that posts FLUSH, if it was made to have it.
    pub(super) extended: Option<NonNull<ibv_qp_ex_flush>>,
    /// Multicast groups that it is attached to.
    groups: Mutex<Vec<(Gid, u16)>>,
}

/// Who made it, and destroys it.
enum Maker {
    /// `rdma_create_qp`
    Identifier(Arc<Identifier>),
    /// `ibv_create_qp`, or `ibv_create_qp_ex`
    Verbs,
}

// SAFETY: C's queue pairs may be used by several threads at once.
unsafe impl Send for QueuePairHandle {}
// SAFETY: as above.
unsafe impl Sync for QueuePairHandle {}

impl Plan<'_> {
    /// C's form.
    fn init(&self) -> ibv_qp_init_attr {
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
    fn check(&self, device: &OpenDevice) -> Result<()> {
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
        format!(
            "queue pair of {max_send_wr} sends of {max_send_sge} pieces or {max_inline_data} inline bytes, \
             {max_recv_wr} receives of {max_recv_sge} pieces"
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
        let mut init = plan.init();
        let raw = identifier
            .create_queue_pair(domain, &mut init)
            .map_err(|e| e.about(|| plan.describe()))?;
        let maker = Maker::Identifier(Arc::clone(identifier));
        Ok(Self::adopt(maker, &domain.device, (raw, init.cap), plan))
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
        Ok(Self::adopt(
            Maker::Verbs,
            &domain.device,
            (raw, init.cap),
            plan,
        ))
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
        let mut new = Self::adopt(Maker::Verbs, device, (raw, init.cap), plan);
        // SAFETY: a live queue pair. A library that made it with FLUSH has the larger structure.
        let extended = unsafe { (device.verbs.ibv_qp_to_qp_ex)(raw.as_ptr()) };
        new.extended = NonNull::new(extended.cast());
        Ok(new)
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
        Ok(Self::adopt(Maker::Verbs, device, (raw, init.cap), plan))
    }

    fn adopt(
        maker: Maker,
        device: &Arc<OpenDevice>,
        (raw, cap): (NonNull<ibv_qp>, ibv_qp_cap),
        plan: &Plan<'_>,
    ) -> Self {
        // SAFETY: a live queue pair, whose number never changes.
        let number = unsafe { (*raw.as_ptr()).qp_num };
        Self {
            maker,
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
            silent: plan.silent.then(Silent::default),
            extended: None,
            groups: Mutex::default(),
        }
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// What it really holds.
    pub(crate) fn cap(&self) -> &ibv_qp_cap {
        &self.cap
    }

    /// Its domain: of all but XRC targets.
    pub(crate) fn domain(&self) -> Option<&Arc<Domain>> {
        self.domain.as_ref()
    }

    /// Its context.
    pub(crate) fn device(&self) -> &Arc<OpenDevice> {
        &self.device
    }

    /// Where its sends complete.
    pub(crate) fn send_queue(&self) -> &Arc<Queue> {
        self.send
            .as_ref()
            .expect("invariant: only transports that send get here")
    }

    /// Where its receives complete.
    pub(crate) fn receive_queue(&self) -> &Arc<Queue> {
        self.receive
            .as_ref()
            .expect("invariant: only transports that receive get here")
    }

    pub(super) fn describe(&self) -> String {
        format!("queue pair {:#08x}", self.number)
    }

    /// `ibv_modify_qp`
    pub(crate) fn modify(&self, attr: &mut ibv_qp_attr, mask: u32) -> Result<()> {
        // SAFETY: a live queue pair, and attributes.
        let errno = unsafe {
            (self.device.verbs.ibv_modify_qp)(self.raw.as_ptr(), attr, mask.cast_signed())
        };
        Error::check("ibv_modify_qp", errno).map_err(|e| {
            let refused = e.raw_os_error() == Some(libc::EINVAL);
            e.about(|| {
                let about = self.describe();
                match self.state() {
                    Ok(from) if refused => {
                        let why = ferroce_abi::explain::modify(self.kind, from, attr, mask);
                        why.map_or_else(|| about.clone(), |why| format!("{about}: {why}"))
                    }
                    _ => about,
                }
            })
        })
    }

    /// `ibv_query_qp`
    pub(crate) fn query(&self, mask: u32) -> Result<(ibv_qp_attr, ibv_qp_init_attr)> {
        let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
        // SAFETY: a live queue pair, and room for the answers.
        let errno = unsafe {
            (self.device.verbs.ibv_query_qp)(
                self.raw.as_ptr(),
                &raw mut attr,
                mask.cast_signed(),
                &raw mut init,
            )
        };
        Error::check("ibv_query_qp", errno).map_err(|e| e.about(|| self.describe()))?;
        Ok((attr, init))
    }

    pub(super) fn state(&self) -> Result<u32> {
        self.query(IBV_QP_STATE).map(|(attr, _)| attr.qp_state)
    }

    /// `ibv_attach_mcast`
    pub(crate) fn attach(&self, group: Gid, lid: u16) -> Result<()> {
        let gid = ibv_gid { raw: group.0 };
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a live queue pair, and a GID.
        let errno =
            unsafe { (self.device.verbs.ibv_attach_mcast)(self.raw.as_ptr(), &raw const gid, lid) };
        Error::check("ibv_attach_mcast", errno)
            .map_err(|e| e.about(|| format!("{}, group {group}", self.describe())))?;
        groups.push((group, lid));
        Ok(())
    }

    /// `ibv_detach_mcast`
    pub(crate) fn detach(&self, group: Gid, lid: u16) -> Result<()> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        self.detach_only(group, lid)?;
        if let Some(at) = groups.iter().position(|known| *known == (group, lid)) {
            groups.swap_remove(at);
        }
        Ok(())
    }

    fn detach_only(&self, group: Gid, lid: u16) -> Result<()> {
        let gid = ibv_gid { raw: group.0 };
        // SAFETY: a live queue pair, and a GID.
        let errno =
            unsafe { (self.device.verbs.ibv_detach_mcast)(self.raw.as_ptr(), &raw const gid, lid) };
        Error::check("ibv_detach_mcast", errno)
            .map_err(|e| e.about(|| format!("{}, group {group}", self.describe())))
    }

    /// Ends all its work: moves it to the error state, where what is posted completes as flushed.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_ERR;
        self.modify(&mut attr, IBV_QP_STATE)
    }

    /// Takes all its work back: moves it to the reset state, after which the device knows of none, and tells futures that it was flushed.
    pub(crate) fn reset(&self) -> Result<()> {
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_RESET;
        // What another thread posts after this, when it has made the queue pair ready again, is the device's: it is not forgotten below.
        let known = self.queues().map(|queue| queue.ledger().posted(self.owner));
        let known = SmallVec::<[_; 2]>::from_iter(known);
        self.modify(&mut attr, IBV_QP_STATE)?;
        for (queue, work) in self.queues().zip(&known) {
            queue.ledger().forget_these(work, self.number);
            queue.delivered();
        }
        Ok(())
    }

    /// Where its work completes.
    fn queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        [&self.send, &self.receive].into_iter().flatten()
    }

    /// The device has let go of the memory of its work.
    fn forget(&self) {
        if let Some(silent) = &self.silent {
            silent.clear();
        }
        for queue in self.queues() {
            queue.ledger().forget(self.owner, self.number);
            queue.delivered();
        }
    }
}

impl Drop for QueuePairHandle {
    fn drop(&mut self) {
        let groups = std::mem::take(
            self.groups
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for (group, lid) in groups {
            // A queue pair that stays attached is not destroyed, which is seen below.
            let _ = self.detach_only(group, lid);
        }
        if self.shared.is_some()
            && let Some(receive) = &self.receive
        {
            // Receives that it took from the shared queue complete now; when it is gone nobody would tell of them.
            let _ = self.flush();
            let _ = receive.deliver();
        }
        match &self.maker {
            // SAFETY: the identifier's own queue pair, used by nobody any more.
            Maker::Identifier(identifier) => unsafe { identifier.destroy_queue_pair() },
            Maker::Verbs => {
                // SAFETY: made by C, and used by nobody any more.
                let refused = unsafe { (self.device.verbs.ibv_destroy_qp)(self.raw.as_ptr()) };
                if refused != 0 {
                    return self.leak();
                }
            }
        }
        // The device works on nothing of it any more.
        self.forget();
    }
}

impl QueuePairHandle {
    /// It could not be destroyed: what it was made from, and the memory of its work, must never go.
    fn leak(&self) {
        std::mem::forget((
            self.domain.clone(),
            self.send.clone(),
            self.receive.clone(),
            self.shared.clone(),
            self._xrc.clone(),
            Arc::clone(&self.device),
        ));
    }
}
