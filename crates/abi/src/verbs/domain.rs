//! Thread domains and parent domains.
//!
//! Both are about a provider's locks and buffers. This device's objects are always safe for several
//! threads, and it has no queue memory that a program could provide: a parent domain is its
//! protection domain under another handle, and its allocators are never asked.

use crate::object::{self, Handle, refuse_inherited};
use std::ffi::c_int;
use std::sync::Arc;

use ferroce_nic::{Error, Pd};

use super::pd;
use crate::errno::{invalid, result_as_errno, result_as_null};
use crate::types::{
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS, IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC,
    IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT, ibv_context, ibv_parent_domain_init_attr, ibv_pd,
    ibv_td, ibv_td_init_attr,
};

/// A reference to a thread domain: each parent domain has one, and so has the program's handle.
pub(crate) type ThreadDomain = Arc<()>;

/// What follows `struct ibv_td`.
pub(crate) struct TdPrivate(ThreadDomain);

impl Handle for ibv_td {
    type Public = Self;
    type Private = TdPrivate;
}

/// `ibv_alloc_td(3)`.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    init_attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    refuse_inherited!(context);
    // SAFETY: attributes of the program.
    let comp_mask = unsafe { (*init_attr).comp_mask };
    let made = if comp_mask == 0 {
        Ok(object::create(
            ibv_td { context },
            TdPrivate(Arc::default()),
        ))
    } else {
        Err(invalid(format!("comp_mask {comp_mask:#x} must be 0")))
    };
    result_as_null("ibv_alloc_td", made)
}

/// `ibv_dealloc_td(3)`.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    refuse_inherited!(td);
    // SAFETY: a live thread domain.
    let domains = Arc::strong_count(&unsafe { object::private(td) }.0) - 1;
    let result = if domains == 0 {
        // SAFETY: nothing refers to it.
        drop(unsafe { object::take(td) });
        Ok(())
    } else {
        let reason = format!("{domains} parent domains use the thread domain");
        Err(Error::new(libc::EBUSY, reason))
    };
    result_as_errno("ibv_dealloc_td", result)
}

/// `ibv_alloc_parent_domain(3)`.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    refuse_inherited!(context);
    // SAFETY: attributes whose domains are NULL or live.
    result_as_null("ibv_alloc_parent_domain", unsafe {
        parent(context, &*attr)
    })
}

/// # Safety
/// As [`alloc_parent_domain`].
unsafe fn parent(
    context: *mut ibv_context,
    attr: &ibv_parent_domain_init_attr,
) -> Result<*mut ibv_pd, Error> {
    // The last is for guests whose memory is hidden from devices, which this one does not report
    // (`IBV_DEVICE_CC_DMA_BOUNCE`).
    const KNOWN: u32 = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS
        | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
        | IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
    if attr.comp_mask & !KNOWN != 0 {
        return Err(invalid(format!(
            "comp_mask {:#x} contains unknown bits",
            attr.comp_mask
        )));
    }
    if attr.pd.is_null() {
        return Err(invalid("a parent domain needs a protection domain"));
    }
    // SAFETY: not NULL, so live.
    if unsafe { (*attr.pd).context } != context {
        return Err(invalid("the protection domain belongs to another context"));
    }
    let td = if attr.td.is_null() {
        None
    } else {
        // SAFETY: not NULL, so live.
        Some(Arc::clone(&unsafe { object::private(attr.td) }.0))
    };
    // SAFETY: not NULL, so live.
    let nic = Pd::parent_domain(unsafe { pd::private(attr.pd) }.nic());
    Ok(pd::create(context, nic, td))
}
