//! Devices as RDMA CM shows them: one context and one protection domain per device, shared by all
//! identifiers.

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use ferroce_nic::{Device, Error};

use super::lock;
use crate::errno::{errno, invalid, result_as_null};
use crate::types::{
    IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, ibv_context, ibv_pd, ibv_xrcd,
    ibv_xrcd_init_attr,
};
use crate::verbs::device::handle_of;
use crate::verbs::{engine, ibv_alloc_pd, ibv_open_device, open_xrcd};

/// Every device has this one port.
pub(super) const PORT: u8 = 1;

/// What all identifiers on a device share. It lives as long as the process: programs compare the
/// pointers, and use them after their identifiers are gone.
#[derive(Clone)]
pub(super) struct DeviceObjects {
    /// A child of `fork` has devices of its own, and gets contexts of its own.
    device: Arc<Device>,
    /// The context behind `id->verbs`.
    pub(super) verbs: *mut ibv_context,
    /// The protection domain for queue pairs of programs that bring none.
    pub(super) pd: *mut ibv_pd,
    /// The XRC domain for targets and their receive queues, once somebody needs one.
    xrcd: *mut ibv_xrcd,
}

// SAFETY: the pointers are to objects of the verbs layer, which may be used from any thread and are
// never destroyed here.
unsafe impl Send for DeviceObjects {}

static SHARED: Mutex<Vec<DeviceObjects>> = Mutex::new(Vec::new());

/// The context and protection domain of a device, made by the first call.
///
/// # Errors
/// Out of descriptors or memory.
pub(super) fn shared(device: &Arc<Device>) -> Result<DeviceObjects, Error> {
    let mut all = lock(&SHARED);
    if let Some(shared) = all
        .iter()
        .find(|shared| Arc::ptr_eq(&shared.device, device))
    {
        return Ok(shared.clone());
    }
    let failed = |what| {
        Error::new(
            errno(),
            format!("{what} for RDMA CM on {} failed", device.name()),
        )
    };
    // SAFETY: handles of devices live for ever.
    let verbs = unsafe { ibv_open_device(handle_of(device)) };
    if verbs.is_null() {
        return Err(failed("opening a context"));
    }
    // SAFETY: the context was opened just now.
    let pd = unsafe { ibv_alloc_pd(verbs) };
    if pd.is_null() {
        return Err(failed("allocating a protection domain"));
    }
    let shared = DeviceObjects {
        device: Arc::clone(device),
        verbs,
        pd,
        xrcd: std::ptr::null_mut(),
    };
    all.push(shared.clone());
    Ok(shared)
}

/// The XRC domain of the identifiers on a context, made by the first call.
///
/// # Errors
/// EINVAL for a context that is not of an identifier; out of memory.
pub(super) fn xrc_domain(verbs: *mut ibv_context) -> Result<*mut ibv_xrcd, Error> {
    let mut all = lock(&SHARED);
    let shared = all
        .iter_mut()
        .find(|shared| shared.verbs == verbs)
        .ok_or_else(|| invalid("the context is of no identifier"))?;
    if shared.xrcd.is_null() {
        let mut attr = ibv_xrcd_init_attr {
            comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: -1,
            oflags: libc::O_CREAT,
        };
        // SAFETY: the context is live, and so are the attributes.
        shared.xrcd = unsafe { open_xrcd(verbs, &raw mut attr) };
    }
    if shared.xrcd.is_null() {
        return Err(Error::new(errno(), "opening an XRC domain failed"));
    }
    Ok(shared.xrcd)
}

/// The contexts of all devices, as a NULL-terminated block of `malloc`.
fn contexts() -> Result<(*mut *mut ibv_context, usize), Error> {
    let devices = engine::nic()?.devices();
    if devices.is_empty() {
        return Err(Error::new(
            libc::ENODEV,
            "there is no network interface with an address, hence no device",
        ));
    }
    let open = devices
        .iter()
        .map(|device| Ok(shared(device)?.verbs))
        .collect::<Result<Vec<_>, Error>>()?;
    // SAFETY: plain allocation, zeroed, so that the element behind the last is NULL.
    let list = unsafe { libc::calloc(open.len() + 1, size_of::<*mut ibv_context>()) }
        .cast::<*mut ibv_context>();
    if list.is_null() {
        return Err(Error::new(
            libc::ENOMEM,
            "no memory for the list of devices",
        ));
    }
    // SAFETY: the block has room for all contexts and one more.
    unsafe { std::ptr::copy_nonoverlapping(open.as_ptr(), list, open.len()) };
    Ok((list, open.len()))
}

/// `rdma_get_devices(3)`
pub unsafe extern "C" fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    let contexts = contexts();
    if !num_devices.is_null() {
        let count = contexts.as_ref().map_or(0, |(_, count)| *count);
        // SAFETY: a non-NULL `num_devices` points to an int of the caller.
        unsafe { num_devices.write(c_int::try_from(count).unwrap_or(c_int::MAX)) };
    }
    result_as_null("rdma_get_devices", contexts.map(|(list, _)| list))
}

/// `rdma_free_devices(3)`
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: the list came from `rdma_get_devices`, that is from `calloc`.
    unsafe { libc::free(list.cast()) };
}
