//! Queue pairs, and posting to them.

use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

use ferroce_abi::types::{
    IBV_QP_INIT_ATTR_XRCD, IBV_QP_STATE, IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPT_XRC_RECV,
    IBV_QPT_XRC_SEND, ibv_context, ibv_gid, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_recv_wr, ibv_send_wr,
};
use smallvec::SmallVec;

use super::extended::extended;
use super::outstanding::NewWork;
use super::shared_queue::{SharedQueue, XrcDomainObject};
use super::work::{Destination, Elements, Held, Order, Owner, Request, send_request};
use super::{Bind, Domain, Identifier, OpenDevice, Queue, Reader};
use crate::{Error, Gid, Operation, Result};

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
}

/// A queue pair.
pub(crate) struct QueuePairHandle {
    maker: Maker,
    device: Arc<OpenDevice>,
    domain: Option<Arc<Domain>>,
    send: Option<Arc<Queue>>,
    receive: Option<Arc<Queue>>,
    shared: Option<Arc<SharedQueue>>,
    _xrc: Option<Arc<XrcDomainObject>>,
    raw: NonNull<ibv_qp>,
    number: u32,
    kind: u32,
    cap: ibv_qp_cap,
    /// Tells its work from that of others. Numbers of queue pairs come again.
    owner: Owner,
    /// Work posted since the last that tells of its success, oldest first. Only of queue pairs that may have such; held while posting, so
    /// that it is in the order of the queue.
    silent: Option<Mutex<SmallVec<[u64; 4]>>>,
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

/// A work request that was not posted: why, and its memory.
pub(crate) type Refused = (Error, Held);

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
            silent: plan.silent.then(Mutex::default),
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

    fn describe(&self) -> String {
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
                        why.map_or(about.clone(), |why| format!("{about}: {why}"))
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

    fn state(&self) -> Result<u32> {
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
        self.modify(&mut attr, IBV_QP_STATE)?;
        self.forget();
        Ok(())
    }

    /// The device has let go of the memory of its work.
    fn forget(&self) {
        if let Some(silent) = &self.silent {
            silent
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clear();
        }
        for queue in [&self.send, &self.receive].into_iter().flatten() {
            queue.ledger().forget(self.owner, self.number);
            queue.delivered();
        }
    }

    /// `ibv_post_send` of one work request; the `wr_id`.
    pub(crate) fn post_send(
        &self,
        request: Request,
        order: Order,
    ) -> std::result::Result<u64, Refused> {
        if let Err(error) = self.check_send(&request, &order) {
            return Err((error, request.into_held()));
        }
        let mut silent = self
            .silent
            .as_ref()
            .map(|silent| silent.lock().unwrap_or_else(PoisonError::into_inner));
        let (id, mut posted, mut elements) = self.prepare(request, order, silent.as_deref_mut());
        posted.sg_list = elements.as_mut_ptr();
        match self.post_chain(&raw mut posted) {
            Ok(()) => Ok(id),
            Err((error, _)) => Err((
                error,
                self.send_queue()
                    .ledger()
                    .withdraw_last(id, silent.as_deref_mut()),
            )),
        }
    }

    /// `ibv_post_send` of several work requests at once, in order. How many were posted, and why the next one was not.
    pub(crate) fn post_batch(
        &self,
        batch: SmallVec<[(Request, Order); 4]>,
    ) -> (usize, Option<Error>) {
        let checked = |(request, order): &(Request, Order)| self.check_send(request, order);
        if let Err(error) = batch.iter().try_for_each(checked) {
            return (0, Some(error));
        }
        let mut silent = self
            .silent
            .as_ref()
            .map(|silent| silent.lock().unwrap_or_else(PoisonError::into_inner));
        let mut chain: SmallVec<[(u64, ibv_send_wr, Elements); 4]> = batch
            .into_iter()
            .map(|(request, order)| self.prepare(request, order, silent.as_deref_mut()))
            .collect();
        // Linked from the end on, now that nothing moves any more.
        let mut next: *mut ibv_send_wr = ptr::null_mut();
        for (_, posted, elements) in chain.iter_mut().rev() {
            posted.sg_list = elements.as_mut_ptr();
            posted.next = next;
            next = &raw mut *posted;
        }
        if next.is_null() {
            return (0, None);
        }
        let Err((error, bad)) = self.post_chain(next) else {
            return (chain.len(), None);
        };
        // C names the one that it refused. If it did not, the device might work on any of them: all stay held.
        let is_bad = |(_, posted, _): &(u64, ibv_send_wr, Elements)| ptr::eq(posted, bad);
        let posted = chain.iter().position(is_bad).unwrap_or(chain.len());
        for (id, ..) in chain[posted..].iter().rev() {
            drop(
                self.send_queue()
                    .ledger()
                    .withdraw_last(*id, silent.as_deref_mut()),
            );
        }
        (posted, Some(error))
    }

    /// Takes note of work, and puts it into C's form but for the list of its elements.
    fn prepare(
        &self,
        request: Request,
        order: Order,
        silent: Option<&mut SmallVec<[u64; 4]>>,
    ) -> (u64, ibv_send_wr, Elements) {
        let mut posted = send_request(&order, request.inline);
        let mut held = request.held;
        if let Destination::Datagram(address, ..) = order.to {
            held.hold(address);
        }
        let quiet = order.silent;
        let mut silent = silent;
        let before = match &mut silent {
            Some(silent) if !quiet => std::mem::take(*silent),
            _ => SmallVec::new(),
        };
        let id = self.send_queue().ledger().add(NewWork {
            tag: request.tag,
            owner: self.owner,
            held,
            reader: request.reader,
            before,
        });
        if let (true, Some(silent)) = (quiet, silent) {
            silent.push(id);
        }
        posted.wr_id = id;
        posted.num_sge = count_of(&request.elements);
        (id, posted, request.elements)
    }

    /// Whether work can be posted at all. What C's libraries do not check is checked here.
    fn check_send(&self, request: &Request, order: &Order) -> Result<()> {
        if let Some(domain) = &self.domain {
            request.check(domain)?;
            if let Destination::Datagram(address, ..) = &order.to
                && !address.is_of(domain)
            {
                return Err(Error::Misuse(
                    "the address handle is of another protection domain than the queue pair",
                ));
            }
        }
        if order.silent && (self.silent.is_none() || request.reader != Reader::Poller) {
            return Err(Error::Misuse(
                "only tagged work of a queue pair built with unsignalled(true) can be unsignalled",
            ));
        }
        check_pieces(request, self.cap.max_send_sge)?;
        let length = request.elements.iter().map(|e| u64::from(e.length)).sum();
        check_operation(order.what, request.inline, length)?;
        if request.inline && length > self.cap.max_inline_data.into() {
            return Err(Error::Limit {
                object: "queue pair",
                what: "bytes of inline data",
                asked: length,
                limit: self.cap.max_inline_data.into(),
            });
        }
        Ok(())
    }

    /// `ibv_post_send`; why not, and from which one on.
    fn post_chain(
        &self,
        first: *mut ibv_send_wr,
    ) -> std::result::Result<(), (Error, *mut ibv_send_wr)> {
        let mut bad: *mut ibv_send_wr = ptr::null_mut();
        // SAFETY: an open context has its operations filled in, and does not change them.
        let post_send = unsafe { (*self.context()).ops.post_send };
        let Some(post_send) = post_send else {
            return Err((Error::Misuse("the device has no ibv_post_send"), first));
        };
        // SAFETY: a live queue pair and a chain of requests; their memory is held until their completion.
        let errno = unsafe { post_send(self.raw.as_ptr(), first, &raw mut bad) };
        Error::check("ibv_post_send", errno).map_err(|e| {
            let what = || format!("{}: {}", self.describe(), self.full("send", errno));
            (e.about(what), bad)
        })
    }

    /// `ibv_post_recv`; the `wr_id`.
    pub(crate) fn post_receive(&self, request: Request) -> std::result::Result<u64, Refused> {
        let fits = match &self.domain {
            _ if self.shared.is_some() => Err(Error::Misuse(
                "the queue pair takes its receives from a shared receive queue",
            )),
            Some(domain) => request.check(domain),
            None => Ok(()),
        };
        let fits = fits.and_then(|()| check_pieces(&request, self.cap.max_recv_sge));
        if let Err(error) = fits {
            return Err((error, request.into_held()));
        }
        let mut elements = request.elements;
        let ledger = self.receive_queue().ledger();
        let id = ledger.add(NewWork {
            tag: request.tag,
            owner: self.owner,
            held: request.held,
            reader: request.reader,
            before: SmallVec::new(),
        });
        match self.post_one_receive(id, &mut elements) {
            Ok(()) => Ok(id),
            Err(error) => Err((error, ledger.withdraw(id))),
        }
    }

    fn post_one_receive(&self, id: u64, elements: &mut Elements) -> Result<()> {
        let mut posted = ibv_recv_wr::zeroed();
        posted.wr_id = id;
        posted.sg_list = elements.as_mut_ptr();
        posted.num_sge = count(elements)?;
        let mut bad: *mut ibv_recv_wr = ptr::null_mut();
        // SAFETY: an open context has its operations filled in, and does not change them.
        let post_recv = unsafe { (*self.context()).ops.post_recv };
        let post_recv = post_recv.ok_or(Error::Misuse("the device has no ibv_post_recv"))?;
        // SAFETY: a live queue pair and one request; its memory is held until its completion.
        let errno = unsafe { post_recv(self.raw.as_ptr(), &raw mut posted, &raw mut bad) };
        Error::check("ibv_post_recv", errno).map_err(|e| {
            e.about(|| format!("{}: {}", self.describe(), self.full("receive", errno)))
        })
    }

    /// Binds a window: `ibv_bind_mw`, or `IBV_WR_BIND_MW`. The `wr_id`, and the window's new key.
    pub(crate) fn bind(&self, tag: u64, reader: Reader, bind: &Bind<'_>) -> Result<(u64, u32)> {
        if let Some(domain) = &self.domain {
            bind.check(domain)?;
        }
        let mut held = Held::default();
        // What the window shows until then must stay registered until then.
        if let Some(before) = bind.window.region() {
            held.hold(before);
        }
        held.hold(Arc::clone(bind.region) as _);
        held.hold(Arc::clone(bind.window) as _);
        let mut silent = self
            .silent
            .as_ref()
            .map(|silent| silent.lock().unwrap_or_else(PoisonError::into_inner));
        let ledger = self.send_queue().ledger();
        let id = ledger.add(NewWork {
            tag,
            owner: self.owner,
            held,
            reader,
            before: silent
                .as_deref_mut()
                .map(std::mem::take)
                .unwrap_or_default(),
        });
        // SAFETY: a live queue pair of the window's domain.
        match unsafe { bind.post(self.raw, id) } {
            Ok(key) => Ok((id, key)),
            Err(error) => {
                drop(ledger.withdraw_last(id, silent.as_deref_mut()));
                Err(error.about(|| self.describe()))
            }
        }
    }

    fn context(&self) -> *mut ibv_context {
        self.device.raw.as_ptr()
    }

    /// What may stand in the way of posting.
    fn full(&self, queue: &str, errno: c_int) -> String {
        let room = match queue {
            "send" => self.cap.max_send_wr,
            _ => self.cap.max_recv_wr,
        };
        match errno {
            libc::ENOMEM => format!("its {queue} queue holds {room} work requests and is full"),
            _ => match self.state() {
                Ok(state) => format!("it is in state {}", ferroce_abi::explain::state(state)),
                Err(_) => format!("its {queue} queue"),
            },
        }
    }
}

/// Whether work can have this many pieces of memory.
pub(super) fn check_pieces(request: &Request, limit: u32) -> Result<()> {
    // Inline bytes are one piece, which even a queue for none takes.
    if request.elements.len() as u64 <= limit.into() || request.inline {
        return Ok(());
    }
    Err(Error::Limit {
        object: "work queue",
        what: "pieces of memory in a work request",
        asked: request.elements.len() as u64,
        limit: limit.into(),
    })
}

/// Whether an operation goes with its bytes.
fn check_operation(operation: Operation, inline: bool, length: u64) -> Result<()> {
    match operation {
        Operation::CompareSwap { .. } | Operation::FetchAdd { .. } | Operation::AtomicWrite(_)
            if length != 8 =>
        {
            Err(Error::Misuse("an atomic operation works on 8 bytes"))
        }
        Operation::Read(_) | Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
            if inline =>
        {
            Err(Error::Misuse(
                "what reads from a peer needs registered memory: inline data is only sent",
            ))
        }
        _ => Ok(()),
    }
}

pub(super) fn count(elements: &Elements) -> Result<c_int> {
    c_int::try_from(elements.len())
        .map_err(|_| Error::Misuse("too many pieces of memory for one work request"))
}

fn count_of(elements: &Elements) -> c_int {
    c_int::try_from(elements.len()).expect("invariant: checked against the queue's limit")
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
