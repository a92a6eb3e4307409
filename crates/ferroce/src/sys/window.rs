//! Memory windows.

use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferroce_abi::types::{
    IBV_SEND_SIGNALED, IBV_WR_BIND_MW, ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_qp, ibv_send_wr,
    ibv_send_wr_bind_mw,
};

use super::{Domain, Region};
use crate::{Error, Result};

/// `enum ibv_mw_type`
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowNumber {
    One = 1,
    Two = 2,
}

/// A memory window.
pub(crate) struct Window {
    domain: Arc<Domain>,
    raw: NonNull<ibv_mw>,
    kind: WindowNumber,
    /// What it was bound to last. Held while C's structure is read or written, too.
    bound: Mutex<Option<Arc<Region>>>,
    /// Whether it is deallocated with this.
    owned: bool,
}

// SAFETY: C's windows may be used by several threads at once; their field `rkey` is touched under
// the lock only.
unsafe impl Send for Window {}
// SAFETY: C's windows may be used by several threads at once; their field `rkey` is touched under
// the lock only.
unsafe impl Sync for Window {}

/// What a window is to show: of which region, which bytes, and what peers may do (`IBV_ACCESS_*`).
pub(crate) struct Bind<'b> {
    pub(crate) window: &'b Arc<Window>,
    pub(crate) region: &'b Arc<Region>,
    pub(crate) range: Range<usize>,
    pub(crate) access: u32,
}

impl Window {
    /// `ibv_alloc_mw`
    pub(crate) fn new(domain: &Arc<Domain>, kind: WindowNumber) -> Result<Arc<Self>> {
        let device = &domain.device;
        // SAFETY: an open context has its operations filled in, and does not change them.
        let alloc = unsafe { (*device.raw.as_ptr()).ops.alloc_mw };
        let alloc = alloc.ok_or_else(|| Error::errno("ibv_alloc_mw", libc::EOPNOTSUPP))?;
        // SAFETY: a live domain.
        let raw = unsafe { alloc(domain.raw.as_ptr(), kind as u32) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::last("ibv_alloc_mw").about(|| format!("type {}", kind as u32)))?;
        Ok(Self::of_parts(domain, raw, kind, true))
    }

    /// One that C has made of the domain, which it deallocates if it owns it.
    ///
    /// # Safety
    /// A live window.
    pub(super) unsafe fn adopt(
        domain: &Arc<Domain>,
        raw: NonNull<ibv_mw>,
        owned: bool,
    ) -> Arc<Self> {
        // SAFETY: the field of a live window does not change.
        let kind = match unsafe { (*raw.as_ptr()).r#type } {
            1 => WindowNumber::One,
            _ => WindowNumber::Two,
        };
        Self::of_parts(domain, raw, kind, owned)
    }

    fn of_parts(
        domain: &Arc<Domain>,
        raw: NonNull<ibv_mw>,
        kind: WindowNumber,
        owned: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            domain: Arc::clone(domain),
            raw,
            kind,
            bound: Mutex::default(),
            owned,
        })
    }

    fn bound(&self) -> MutexGuard<'_, Option<Arc<Region>>> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it was bound to last.
    pub(super) fn region(&self) -> Option<Arc<Region>> {
        self.bound().clone()
    }

    /// Its key, as of the last bind.
    pub(crate) fn rkey(&self) -> u32 {
        let _bound = self.bound();
        // SAFETY: a live window, whose key nobody changes now.
        unsafe { (*self.raw.as_ptr()).rkey }
    }
}

impl Bind<'_> {
    /// Whether all is of one domain.
    pub(super) fn check(&self, domain: &Arc<Domain>) -> Result<()> {
        let same = Arc::ptr_eq(&self.window.domain, domain) && self.region.is_of(domain);
        same.then_some(()).ok_or(Error::Misuse(
            "the memory window, the region and the queue pair are of different protection domains",
        ))
    }

    /// Posts the bind with this `wr_id`; the window's new key.
    ///
    /// # Safety
    /// The queue pair is live and of the window's context.
    pub(super) unsafe fn post(&self, queue_pair: NonNull<ibv_qp>, wr_id: u64) -> Result<u32> {
        let info = ibv_mw_bind_info {
            mr: self.region.raw().as_ptr(),
            addr: self.region.address() + self.range.start as u64,
            length: (self.range.end - self.range.start) as u64,
            mw_access_flags: self.access,
        };
        let mut bound = self.window.bound();
        // SAFETY: the caller's promise; the window's key is not touched by others now.
        let key = unsafe {
            match self.window.kind {
                WindowNumber::One => self.post_one(queue_pair, wr_id, info),
                WindowNumber::Two => self.post_two(queue_pair, wr_id, info),
            }
        }?;
        *bound = Some(Arc::clone(self.region));
        Ok(key)
    }

    /// `ibv_bind_mw`
    ///
    /// # Safety
    /// As [`post`](Self::post), with the window locked.
    unsafe fn post_one(
        &self,
        queue_pair: NonNull<ibv_qp>,
        wr_id: u64,
        bind_info: ibv_mw_bind_info,
    ) -> Result<u32> {
        let mut request = ibv_mw_bind {
            wr_id,
            send_flags: IBV_SEND_SIGNALED,
            bind_info,
        };
        let window = self.window.raw.as_ptr();
        // SAFETY: an open context has its operations filled in, and does not change them.
        let bind = unsafe { (*self.window.domain.device.raw.as_ptr()).ops.bind_mw };
        let bind = bind.ok_or_else(|| Error::errno("ibv_bind_mw", libc::EOPNOTSUPP))?;
        // SAFETY: the caller's promise.
        let errno = unsafe { bind(queue_pair.as_ptr(), window, &raw mut request) };
        Error::check("ibv_bind_mw", errno)?;
        // SAFETY: the device has set the new key.
        Ok(unsafe { (*window).rkey })
    }

    /// `IBV_WR_BIND_MW`
    ///
    /// # Safety
    /// As [`post`](Self::post), with the window locked.
    unsafe fn post_two(
        &self,
        queue_pair: NonNull<ibv_qp>,
        wr_id: u64,
        bind_info: ibv_mw_bind_info,
    ) -> Result<u32> {
        let mw = self.window.raw.as_ptr();
        // SAFETY: a live window, locked.
        let rkey = next_key(unsafe { (*mw).rkey });
        let mut posted = ibv_send_wr::zeroed();
        posted.wr_id = wr_id;
        posted.opcode = IBV_WR_BIND_MW;
        posted.send_flags = IBV_SEND_SIGNALED;
        posted.bind_mw = ibv_send_wr_bind_mw {
            mw,
            rkey,
            bind_info,
        };
        let mut bad: *mut ibv_send_wr = ptr::null_mut();
        // SAFETY: an open context has its operations filled in, and does not change them.
        let post = unsafe { (*self.window.domain.device.raw.as_ptr()).ops.post_send };
        let post = post.ok_or(Error::Misuse("the device has no ibv_post_send"))?;
        // SAFETY: a live queue pair, and a request that names live objects.
        let errno = unsafe { post(queue_pair.as_ptr(), &raw mut posted, &raw mut bad) };
        Error::check("ibv_post_send", errno)?;
        // SAFETY: a live window: `self` holds it. Of a type 2 window the program keeps the key.
        unsafe { (*mw).rkey = rkey };
        Ok(rkey)
    }
}

/// `ibv_inc_rkey`: the low 8 bits are the program's.
fn next_key(key: u32) -> u32 {
    key & !0xff | key.wrapping_add(1) & 0xff
}

impl Window {
    /// The C object.
    pub(super) fn raw(&self) -> *mut ibv_mw {
        self.raw.as_ptr()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: an open context has its operations filled in, and does not change them.
        let dealloc = unsafe { (*self.domain.device.raw.as_ptr()).ops.dealloc_mw };
        if let Some(dealloc) = dealloc {
            // SAFETY: made by `ibv_alloc_mw`, and no bind of it is under way: those hold this
            // object.
            unsafe { dealloc(self.raw.as_ptr()) };
        }
    }
}
