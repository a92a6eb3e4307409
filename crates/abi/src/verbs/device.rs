//! The list of devices.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use ferroce_nic::{Device, Error, Protocol};
use libc::c_void;

use super::engine;
use crate::errno::as_null;
use crate::object::{self, Handle};
use crate::types::{IBV_NODE_CA, IBV_NODE_RNIC, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP, ibv_device};

/// What follows `struct ibv_device`.
#[repr(C)]
pub(crate) struct DevicePrivate {
    /// Providers' libraries (`mlx5dv_is_supported`, `efadv_query_device`) compare the word right
    /// behind the structure with the address of their own table to recognise their devices. 0 is
    /// nobody's.
    provider_table: usize,
    /// Replaced when the process forked and the child started a device of its own.
    device: Mutex<Arc<Device>>,
}

impl Handle for ibv_device {
    type Public = Self;
    type Private = DevicePrivate;
}

/// The structures made so far. They live for ever: programs keep pointers after freeing the list,
/// and librdmacm's users compare them.
struct Known(Vec<*mut ibv_device>);

// SAFETY: the pointers are to objects that are never freed and whose mutable part is behind a
// mutex.
unsafe impl Send for Known {}

static KNOWN: Mutex<Known> = Mutex::new(Known(Vec::new()));

/// The device behind a handle.
///
/// # Safety
/// `device` came from [`handle_of`].
pub(crate) unsafe fn device_of(device: *mut ibv_device) -> Arc<Device> {
    // SAFETY: the caller's promise; these objects are never freed.
    let private = unsafe { object::private(device) };
    Arc::clone(
        &private
            .device
            .lock()
            .unwrap_or_else(PoisonError::into_inner),
    )
}

/// The structure of a device: always the same one for a device of this name.
pub(crate) fn handle_of(device: &Arc<Device>) -> *mut ibv_device {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    for &handle in &known.0 {
        // SAFETY: objects in the list are never freed.
        let private = unsafe { object::private(handle) };
        let mut current = private
            .device
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if current.name() == device.name() {
            *current = Arc::clone(device);
            return handle;
        }
    }
    let private = DevicePrivate {
        provider_table: 0,
        device: Mutex::new(Arc::clone(device)),
    };
    debug_assert_eq!(private.provider_table, 0, "no provider's");
    let handle = object::create(describe(device), private);
    known.0.push(handle);
    handle
}

/// The public part.
fn describe(device: &Device) -> ibv_device {
    let mut public = ibv_device::zeroed();
    let (node_type, transport_type) = match device.protocol() {
        Protocol::RoceV2 => (IBV_NODE_CA, IBV_TRANSPORT_IB),
        Protocol::Iwarp => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
    };
    public.node_type = node_type.cast_signed();
    public.transport_type = transport_type.cast_signed();
    let uverbs = format!("uverbs{}", device.index());
    copy_text(&mut public.name, device.name());
    copy_text(
        &mut public.dev_path,
        &format!("/sys/class/infiniband_verbs/{uverbs}"),
    );
    copy_text(&mut public.dev_name, &uverbs);
    copy_text(
        &mut public.ibdev_path,
        &format!("/sys/class/infiniband/{}", device.name()),
    );
    public
}

/// Copies text into a C array, cut if need be, always terminated.
pub(crate) fn copy_text(to: &mut [c_char], text: &str) {
    let room = to.len() - 1;
    for (to, from) in to[..room].iter_mut().zip(text.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
}

/// The handles of all devices.
fn handles() -> Result<Vec<*mut ibv_device>, Error> {
    Ok(engine::nic()?.devices().iter().map(handle_of).collect())
}

/// `ibv_get_device_list(3)`. The list is one block of `malloc`, because there are programs that
/// `free` it.
pub unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    let set_count = |n: usize| {
        if !num_devices.is_null() {
            // SAFETY: a non-NULL `num_devices` points to an int of the caller.
            unsafe { *num_devices = c_int::try_from(n).unwrap_or(c_int::MAX) };
        }
    };
    set_count(0);
    let handles = match handles() {
        Ok(handles) => handles,
        Err(e) => return as_null("ibv_get_device_list", &e),
    };
    // SAFETY: plain allocation, zeroed, so that the element behind the last is NULL.
    let list = unsafe { libc::calloc(handles.len() + 1, size_of::<*mut ibv_device>()) }
        .cast::<*mut ibv_device>();
    if list.is_null() {
        return as_null(
            "ibv_get_device_list",
            &Error::new(libc::ENOMEM, "no memory for the list of devices"),
        );
    }
    // SAFETY: the block has room for all handles and one more.
    unsafe { ptr::copy_nonoverlapping(handles.as_ptr(), list, handles.len()) };
    set_count(handles.len());
    list
}

/// `ibv_free_device_list(3)`.
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the list came from `ibv_get_device_list`, that is from `calloc`.
    unsafe { libc::free(list.cast::<c_void>()) };
}

/// `ibv_get_device_name(3)`.
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: a live device; its name never changes.
    unsafe { (&raw const (*device).name).cast() }
}

/// `ibv_get_device_guid(3)`: big-endian.
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: a live device.
    unsafe { device_of(device) }.attr().node_guid.0.to_be()
}

/// `ibv_get_device_index(3)`.
pub unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: a live device.
    c_int::try_from(unsafe { device_of(device) }.index()).unwrap_or(-1)
}
