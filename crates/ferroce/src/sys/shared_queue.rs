//! Shared receive queues, and XRC domains.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ferroce_abi::types::{
    IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQ_INIT_ATTR_XRCD,
    IBV_SRQ_LIMIT, IBV_SRQT_XRC, IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, ibv_srq,
    ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex, ibv_xrcd, ibv_xrcd_init_attr,
};

use super::extended::extended;
use super::ledger::Ledger;
use super::work::Owner;
use super::{Domain, OpenDevice, Queue, limits};
use crate::{Error, Result};

/// An XRC domain.
pub(crate) struct XrcDomainObject {
    pub(super) device: Arc<OpenDevice>,
    pub(super) raw: NonNull<ibv_xrcd>,
    /// Whether it is closed with this.
    owned: bool,
}

// SAFETY: C's XRC domains may be used by several threads at once.
unsafe impl Send for XrcDomainObject {}
// SAFETY: C's XRC domains may be used by several threads at once.
unsafe impl Sync for XrcDomainObject {}

impl XrcDomainObject {
    /// `ibv_open_xrcd`
    pub(crate) fn open(
        device: &Arc<OpenDevice>,
        file: Option<BorrowedFd<'_>>,
        flags: c_int,
    ) -> Result<Arc<Self>> {
        let mut attr = ibv_xrcd_init_attr {
            comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: file.map_or(-1, |file| file.as_raw_fd()),
            oflags: flags,
        };
        let open = extended!(device, open_xrcd)?;
        // SAFETY: a live context, and attributes with an open descriptor or none.
        let raw = unsafe { open(device.raw.as_ptr(), &raw mut attr) };
        let raw = NonNull::new(raw).ok_or_else(|| Error::last("ibv_open_xrcd"))?;
        Ok(Self::adopt(device, raw, true))
    }

    /// One of the device, which it closes if it owns it.
    pub(super) fn adopt(
        device: &Arc<OpenDevice>,
        raw: NonNull<ibv_xrcd>,
        owned: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            device: Arc::clone(device),
            raw,
            owned,
        })
    }
}

impl Drop for XrcDomainObject {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        if let Ok(close) = extended!(self.device, close_xrcd) {
            // SAFETY: `ibv_open_xrcd` made it; its queues and queue pairs held this object.
            unsafe { close(self.raw.as_ptr()) };
        }
    }
}

/// Of an XRC queue: where it belongs, and where its receives complete.
type XrcParts = (Arc<XrcDomainObject>, Arc<Queue>);

/// A shared receive queue.
pub(crate) struct SharedQueue {
    domain: Arc<Domain>,
    _xrc: Option<XrcParts>,
    pub(super) raw: NonNull<ibv_srq>,
    ledger: Arc<Ledger>,
    pub(super) owner: Owner,
    pub(super) max_sge: u32,
    pub(super) max_wr: u32,
    /// Whether it is destroyed with this.
    owned: bool,
}

// SAFETY: C's shared receive queues may be used by several threads at once.
unsafe impl Send for SharedQueue {}
// SAFETY: C's shared receive queues may be used by several threads at once.
unsafe impl Sync for SharedQueue {}

impl SharedQueue {
    /// `ibv_create_srq`
    pub(crate) fn new(domain: &Arc<Domain>, receives: u32, pieces: u32) -> Result<Arc<Self>> {
        let mut init = ibv_srq_init_attr {
            srq_context: ptr::null_mut(),
            attr: attributes(receives, pieces),
        };
        // SAFETY: a live domain, and attributes.
        let raw =
            unsafe { (domain.device.verbs.ibv_create_srq)(domain.raw.as_ptr(), &raw mut init) };
        Self::made("ibv_create_srq", domain, raw, (init.attr, None)).map_err(|e| {
            let limit = || limits::of_shared_queue(&domain.device, receives, pieces);
            e.about(|| format!("{receives} receives of {pieces} pieces{}", limit()))
        })
    }

    /// `ibv_create_srq_ex` for XRC.
    pub(crate) fn for_xrc(
        domain: &Arc<Domain>,
        xrc: &Arc<XrcDomainObject>,
        completions: &Arc<Queue>,
        receives: u32,
        pieces: u32,
    ) -> Result<Arc<Self>> {
        let device = &domain.device;
        let parts = xrc_parts(domain, xrc, completions)?;
        let mut init = ibv_srq_init_attr_ex::zeroed();
        init.attr = attributes(receives, pieces);
        init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE
            | IBV_SRQ_INIT_ATTR_PD
            | IBV_SRQ_INIT_ATTR_XRCD
            | IBV_SRQ_INIT_ATTR_CQ;
        init.srq_type = IBV_SRQT_XRC;
        init.pd = domain.raw.as_ptr();
        init.xrcd = xrc.raw.as_ptr();
        init.cq = completions.raw.as_ptr();
        let create = extended!(device, create_srq_ex)?;
        // SAFETY: a live context, and attributes that name live objects.
        let raw = unsafe { create(device.raw.as_ptr(), &raw mut init) };
        Self::made("ibv_create_srq_ex", domain, raw, (init.attr, Some(parts))).map_err(|e| {
            let limit = || limits::of_shared_queue(device, receives, pieces);
            e.about(|| format!("XRC, {receives} receives of {pieces} pieces{}", limit()))
        })
    }

    /// What a call of C has made.
    fn made(
        call: &'static str,
        domain: &Arc<Domain>,
        raw: *mut ibv_srq,
        parts: (ibv_srq_attr, Option<XrcParts>),
    ) -> Result<Arc<Self>> {
        let raw = NonNull::new(raw).ok_or_else(|| Error::last(call))?;
        Self::of_parts(domain, raw, parts, true).inspect_err(|_| {
            // SAFETY: made by C just now, and nobody has it.
            unsafe { (domain.device.verbs.ibv_destroy_srq)(raw.as_ptr()) };
        })
    }

    /// A queue, not of XRC, that C has made of the domain, which it destroys if it owns it.
    ///
    /// # Safety
    /// A live queue, to which C has posted nothing.
    pub(super) unsafe fn adopt(
        domain: &Arc<Domain>,
        raw: NonNull<ibv_srq>,
        owned: bool,
    ) -> Result<Arc<Self>> {
        // SAFETY: the caller's promise.
        unsafe { Self::adopt_with(domain, raw, None, owned) }
    }

    /// A queue of XRC that C has made of these parts, which it destroys if it owns it.
    ///
    /// # Safety
    /// As [`adopt`](Self::adopt), and the receives complete in that completion queue.
    pub(super) unsafe fn adopt_xrc(
        domain: &Arc<Domain>,
        (xrc, completions): (&Arc<XrcDomainObject>, &Arc<Queue>),
        raw: NonNull<ibv_srq>,
        owned: bool,
    ) -> Result<Arc<Self>> {
        let parts = xrc_parts(domain, xrc, completions)?;
        // SAFETY: the caller's promise.
        unsafe { number(domain, raw) }
            .map_err(|_| Error::Misuse("the shared receive queue is not one of XRC"))?;
        // SAFETY: the caller's promise.
        unsafe { Self::adopt_with(domain, raw, Some(parts), owned) }
    }

    /// # Safety
    /// As [`adopt`](Self::adopt).
    unsafe fn adopt_with(
        domain: &Arc<Domain>,
        raw: NonNull<ibv_srq>,
        xrc: Option<XrcParts>,
        owned: bool,
    ) -> Result<Arc<Self>> {
        // SAFETY: the field of a live queue does not change.
        if unsafe { (*raw.as_ptr()).pd } != domain.raw.as_ptr() {
            return Err(Error::Misuse(
                "the shared receive queue is of another protection domain",
            ));
        }
        // SAFETY: a live queue.
        let attr = unsafe { query(domain, raw) }?;
        Self::of_parts(domain, raw, (attr, xrc), owned)
    }

    fn of_parts(
        domain: &Arc<Domain>,
        raw: NonNull<ibv_srq>,
        (attr, xrc): (ibv_srq_attr, Option<XrcParts>),
        owned: bool,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            _xrc: xrc,
            raw,
            ledger: Ledger::shared()?,
            owner: Owner::new(),
            max_sge: attr.max_sge,
            max_wr: attr.max_wr,
            owned,
        }))
    }

    /// Returns the protection domain.
    #[inline(always)]
    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// What asynchronous events call it.
    pub(crate) fn key(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    /// Whether it is an XRC queue.
    pub(super) fn is_xrc(&self) -> bool {
        self._xrc.is_some()
    }

    /// Returns the ledger of posted receives.
    #[inline(always)]
    pub(crate) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// `ibv_query_srq`: receives, pieces, limit.
    pub(crate) fn query(&self) -> Result<(u32, u32, u32)> {
        // SAFETY: a live queue.
        let attr = unsafe { query(&self.domain, self.raw) }?;
        Ok((attr.max_wr, attr.max_sge, attr.srq_limit))
    }

    /// `ibv_modify_srq`: the limit.
    pub(crate) fn set_limit(&self, limit: u32) -> Result<()> {
        let mut attr = ibv_srq_attr::zeroed();
        attr.srq_limit = limit;
        // SAFETY: a live queue, and attributes.
        let errno = unsafe {
            (self.domain.device.verbs.ibv_modify_srq)(
                self.raw.as_ptr(),
                &raw mut attr,
                IBV_SRQ_LIMIT.cast_signed(),
            )
        };
        Error::check("ibv_modify_srq", errno).map_err(|e| {
            e.about(|| format!("limit {limit} of a queue of {} receives", self.max_wr))
        })
    }

    /// `ibv_get_srq_num`, of an XRC queue.
    pub(crate) fn number(&self) -> Result<u32> {
        // SAFETY: a live queue.
        unsafe { number(&self.domain, self.raw) }
    }
}

/// The parts of an XRC queue, which must be of one context.
fn xrc_parts(
    domain: &Domain,
    xrc: &Arc<XrcDomainObject>,
    completions: &Arc<Queue>,
) -> Result<XrcParts> {
    if xrc.device.raw != domain.device.raw || !completions.is_of(&domain.device) {
        return Err(Error::Misuse(
            "the XRC domain, the protection domain and the completion queue are of different contexts",
        ));
    }
    Ok((Arc::clone(xrc), Arc::clone(completions)))
}

/// `ibv_get_srq_num`
///
/// # Safety
/// A live queue of the domain.
unsafe fn number(domain: &Domain, raw: NonNull<ibv_srq>) -> Result<u32> {
    let mut number = 0;
    let get_number = extended!(domain.device, get_srq_num)?;
    // SAFETY: the caller's promise, and room for the number.
    let errno = unsafe { get_number(raw.as_ptr(), &raw mut number) };
    Error::check("ibv_get_srq_num", errno)?;
    Ok(number)
}

/// `ibv_query_srq`
///
/// # Safety
/// A live queue of the domain.
unsafe fn query(domain: &Domain, raw: NonNull<ibv_srq>) -> Result<ibv_srq_attr> {
    let mut attr = ibv_srq_attr::zeroed();
    // SAFETY: the caller's promise, and room for the answer.
    let errno = unsafe { (domain.device.verbs.ibv_query_srq)(raw.as_ptr(), &raw mut attr) };
    Error::check("ibv_query_srq", errno).map(|()| attr)
}

fn attributes(max_wr: u32, max_sge: u32) -> ibv_srq_attr {
    ibv_srq_attr {
        max_wr,
        max_sge,
        srq_limit: 0,
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        if !self.owned {
            if self.ledger.has_posted(self.owner) {
                self.leak();
            }
            return;
        }
        // SAFETY: made by C; the queue pairs that took receives from it held this object.
        let refused = unsafe { (self.domain.device.verbs.ibv_destroy_srq)(self.raw.as_ptr()) };
        if refused == 0 {
            self.ledger.forget(self.owner, 0);
        } else {
            self.leak();
        }
    }
}

impl SharedQueue {
    /// The device may still write to what was posted: it must never go.
    fn leak(&self) {
        std::mem::forget(Arc::clone(&self.ledger));
        std::mem::forget(Arc::clone(&self.domain));
    }
}
