//! Protection domains.

use crate::object::{self, Handle, refuse_inherited};
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferroce_nic::{Error, Pd};

use super::domain::ThreadDomain;
use super::import::{self, Importable};
use super::{context, engine};
use crate::errno::{as_errno, result_as_null};
use crate::types::{ibv_context, ibv_pd};

/// What follows `struct ibv_pd`.
pub(crate) struct PdPrivate {
    nic: Arc<Pd>,
    /// Address handles on it. The device counts the other objects.
    ahs: AtomicUsize,
    /// The thread domain of a parent domain.
    td: Option<ThreadDomain>,
}

impl Handle for ibv_pd {
    type Public = Self;
    type Private = PdPrivate;
}

impl PdPrivate {
    /// The device's side.
    pub(crate) fn nic(&self) -> &Arc<Pd> {
        &self.nic
    }

    /// An address handle was made on it.
    pub(super) fn adopt_ah(&self) {
        self.ahs.fetch_add(1, Ordering::Relaxed);
    }

    /// An address handle on it is gone. What was done with the protection domain before comes
    /// before its end in another thread.
    pub(super) fn release_ah(&self) {
        self.ahs.fetch_sub(1, Ordering::Release);
    }
}

/// This library's part of a protection domain.
///
/// # Safety
/// `pd` is live until the end of `'a`.
pub(crate) unsafe fn private<'a>(pd: *mut ibv_pd) -> &'a PdPrivate {
    // SAFETY: the caller's promise.
    unsafe { object::private(pd) }
}

/// A new protection domain, or parent domain.
pub(super) fn create(
    context: *mut ibv_context,
    nic: Arc<Pd>,
    td: Option<ThreadDomain>,
) -> *mut ibv_pd {
    let handle = engine::next_handle();
    import::register(handle, Importable::Pd(Arc::downgrade(&nic)));
    make_handle(context, nic, td, handle)
}

/// The structure of a protection domain, or of a parent domain.
pub(super) fn make_handle(
    context: *mut ibv_context,
    nic: Arc<Pd>,
    td: Option<ThreadDomain>,
    handle: u32,
) -> *mut ibv_pd {
    let public = ibv_pd { context, handle };
    let ahs = AtomicUsize::new(0);
    object::create(public, PdPrivate { nic, ahs, td })
}

/// `ibv_alloc_pd(3)`.
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    refuse_inherited!(context);
    // SAFETY: a live context.
    let nic = Pd::alloc(unsafe { context::private(context) }.nic());
    result_as_null("ibv_alloc_pd", nic.map(|nic| create(context, nic, None)))
}

/// `ibv_dealloc_pd(3)`.
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    refuse_inherited!(pd);
    // SAFETY: a live protection domain.
    let private = unsafe { private(pd) };
    let (users, ahs) = (private.nic.users(), private.ahs.load(Ordering::Acquire));
    if users + ahs > 0 {
        let reason = format!(
            "{users} memory regions, windows, queue pairs or parent domains and {ahs} address handles use the protection domain"
        );
        return as_errno("ibv_dealloc_pd", &Error::new(libc::EBUSY, reason));
    }
    // SAFETY: a live protection domain.
    import::forget(unsafe { (*pd).handle });
    // SAFETY: nothing refers to it.
    let PdPrivate { td, nic, .. } = unsafe { object::take(pd) };
    nic.dealloc();
    drop((td, nic));
    0
}
