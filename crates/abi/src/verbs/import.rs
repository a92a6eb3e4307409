//! Import of a device, and of protection domains, regions and device memory on it, by descriptor
//! and handle: another handle of an object of this process. Objects of other processes cannot be
//! shared, since they are memory of theirs.

use crate::object::{self, refuse_inherited};
use std::collections::HashMap;
use std::ffi::c_int;
use std::fs;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use ferroce_nic::{DeviceMemory, Error, Mr, Pd};

use super::{context, dm, mr, pd};
use crate::errno::{invalid, result_as_null, unbuilt};
use crate::types::{ibv_context, ibv_dm, ibv_mr, ibv_pd};

/// What a handle stands for.
pub(super) enum Importable {
    Pd(Weak<Pd>),
    Mr(Weak<Mr>, usize),
    Dm(Weak<DeviceMemory>),
}

/// Objects by handle.
fn handles() -> MutexGuard<'static, HashMap<u32, Importable>> {
    static HANDLES: LazyLock<Mutex<HashMap<u32, Importable>>> = LazyLock::new(Mutex::default);
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An object was made.
pub(super) fn register(handle: u32, object: Importable) {
    handles().insert(handle, object);
}

/// An object was destroyed, by whichever of its handles.
pub(super) fn forget(handle: u32) {
    handles().remove(&handle);
}

fn unknown(what: &str, handle: u32) -> Error {
    invalid(format!("{handle} is no handle of {what} of this context"))
}

/// What tells event descriptors of this process apart, and is the same for duplicates.
pub(super) fn identity(fd: c_int) -> Option<String> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    info.lines()
        .find(|line| line.starts_with("eventfd-id:"))
        .map(str::to_owned)
}

/// `ibv_import_device(3)`: the context takes the descriptor over.
pub unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    let imported = match identity(cmd_fd).and_then(|id| context::named(&id)) {
        // SAFETY: an open descriptor, as it has an identity; the program gives it away.
        Some(open) => Ok(unsafe { context::import(open, cmd_fd) }),
        None => Err(unbuilt(
            "import from another process (the objects behind this descriptor are memory of that process)",
        )),
    };
    result_as_null("ibv_import_device", imported)
}

/// `ibv_import_pd(3)`.
pub unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd {
    refuse_inherited!(context);
    // SAFETY: a live context.
    let nic = unsafe { context::private(context) }.nic();
    let found = match handles().get(&pd_handle) {
        Some(Importable::Pd(pd)) => pd.upgrade(),
        _ => None,
    };
    let found = found.filter(|pd| Arc::ptr_eq(pd.context(), nic));
    let imported = found.ok_or_else(|| unknown("a protection domain", pd_handle));
    result_as_null(
        "ibv_import_pd",
        imported.map(|found| pd::make_handle(context, found, None, pd_handle)),
    )
}

/// `ibv_unimport_pd(3)`: the protection domain stays.
pub unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    if !pd.is_null() {
        // SAFETY: an imported protection domain; nobody uses this handle any more.
        drop(unsafe { object::take(pd) });
    }
}

/// `ibv_import_mr(3)`: `addr` is NULL.
pub unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr {
    refuse_inherited!(pd);
    // SAFETY: a live protection domain.
    let context = unsafe { pd::private(pd) }.nic().context();
    let found = match handles().get(&mr_handle) {
        Some(Importable::Mr(mr, length)) => mr.upgrade().map(|mr| (mr, *length)),
        _ => None,
    };
    let found = found.filter(|(mr, _)| Arc::ptr_eq(mr.pd().context(), context));
    let imported = found.ok_or_else(|| unknown("a memory region", mr_handle));
    // SAFETY: a live protection domain.
    result_as_null(
        "ibv_import_mr",
        imported.map(|(mr, length)| unsafe {
            mr::make_handle(pd, mr, (std::ptr::null_mut(), length), mr_handle)
        }),
    )
}

/// `ibv_unimport_mr(3)`: the region stays.
pub unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    if !mr.is_null() {
        // SAFETY: an imported region; nobody uses this handle any more.
        unsafe {
            context::private((*mr).context).release_mr(mr);
            drop(object::take(mr));
        }
    }
}

/// `ibv_import_dm(3)`.
pub unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm {
    refuse_inherited!(context);
    let found = match handles().get(&dm_handle) {
        Some(Importable::Dm(memory)) => memory.upgrade(),
        _ => None,
    };
    let imported = found.ok_or_else(|| unknown("device memory", dm_handle));
    result_as_null(
        "ibv_import_dm",
        imported.map(|memory| dm::make_handle(context, memory, dm_handle)),
    )
}

/// `ibv_unimport_dm(3)`: the memory stays.
pub unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    if !dm.is_null() {
        // SAFETY: imported device memory; nobody uses this handle any more.
        drop(unsafe { object::take(dm) });
    }
}
