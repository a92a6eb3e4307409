//! Device memory.

use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::Arc;

use ferroce_nic::{DeviceMemory, Error, Mr};
use ferroce_proto::mr::Access;

use super::import::{self, Importable};
use super::{context, engine, mr, pd};
use crate::errno::{invalid, result_as_errno, result_as_null};
use crate::object::{self, Handle, Inheritable, refuse_inherited};
use crate::types::{IBV_DM_MASK_HANDLE, ibv_alloc_dm_attr, ibv_context, ibv_dm, ibv_mr, ibv_pd};

/// What follows `struct ibv_dm`.
pub(crate) struct DmPrivate(Arc<DeviceMemory>);

impl Handle for ibv_dm {
    type Public = Self;
    type Private = DmPrivate;
}

/// `ibv_alloc_dm(3)`.
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    // An inherited context is not refused: rdma-core's suite allocates in children
    // (test_multi_process_alloc_dm). SAFETY: a live context.
    let is_inherited = unsafe { Inheritable::is_inherited(context) };
    // SAFETY: a live context, and attributes of the program.
    let (attr, private) = unsafe { (*attr, context::private(context)) };
    let memory = if attr.comp_mask == 0 {
        let alloc = if is_inherited {
            DeviceMemory::alloc_inherited
        } else {
            DeviceMemory::alloc
        };
        alloc(private.nic(), attr.length as u64, attr.log_align_req)
    } else {
        let reason = format!("comp_mask {:#x} must be 0", attr.comp_mask);
        Err(invalid(reason))
    };
    let create = if is_inherited {
        create_in_child
    } else {
        create
    };
    result_as_null("ibv_alloc_dm", memory.map(|memory| create(context, memory)))
}

/// Handle of device memory that no other process can import.
const NOT_IMPORTABLE: u32 = 0;

/// New device memory of a child, made without the lock of the handles.
fn create_in_child(context: *mut ibv_context, memory: Arc<DeviceMemory>) -> *mut ibv_dm {
    make_handle(context, memory, NOT_IMPORTABLE)
}

/// New device memory.
fn create(context: *mut ibv_context, memory: Arc<DeviceMemory>) -> *mut ibv_dm {
    let handle = engine::next_handle();
    import::register(handle, Importable::Dm(Arc::downgrade(&memory)));
    make_handle(context, memory, handle)
}

/// The structure of device memory.
pub(super) fn make_handle(
    context: *mut ibv_context,
    memory: Arc<DeviceMemory>,
    handle: u32,
) -> *mut ibv_dm {
    let public = ibv_dm {
        context,
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: IBV_DM_MASK_HANDLE,
        handle,
    };
    object::create(public, DmPrivate(memory))
}

/// `ibv_free_dm(3)`.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    refuse_inherited!(dm);
    // SAFETY: live device memory.
    let users = unsafe { object::private(dm) }.0.users();
    let result = if users == 0 {
        // SAFETY: nothing refers to it.
        unsafe {
            if (*dm).handle != NOT_IMPORTABLE {
                import::forget((*dm).handle);
            }
            drop(object::take(dm));
        }
        Ok(())
    } else {
        let reason = format!("{users} memory regions are on the device memory");
        Err(Error::new(libc::EBUSY, reason))
    };
    result_as_errno("ibv_free_dm", result)
}

/// `ibv_memcpy_to_dm(3)`.
unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    dm_offset: u64,
    host_addr: *const c_void,
    length: usize,
) -> c_int {
    refuse_inherited!(dm);
    // SAFETY: live device memory, and `length` bytes of the program, which does not change them
    // meanwhile.
    let result = unsafe {
        let from = slice::from_raw_parts(host_addr.cast::<u8>(), length);
        object::private(dm).0.write(dm_offset, from)
    };
    result_as_errno("ibv_memcpy_to_dm", result)
}

/// `ibv_memcpy_from_dm(3)`.
unsafe extern "C" fn memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
) -> c_int {
    refuse_inherited!(dm);
    // SAFETY: live device memory, and room for `length` bytes, which nobody else uses meanwhile.
    let result = unsafe {
        let to = slice::from_raw_parts_mut(host_addr.cast::<u8>(), length);
        object::private(dm).0.read(dm_offset, to)
    };
    result_as_errno("ibv_memcpy_from_dm", result)
}

/// `ibv_reg_dm_mr(3)`: addresses start at 0, and the program has to say that it knows.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
    access: u32,
) -> *mut ibv_mr {
    refuse_inherited!(pd);
    // SAFETY: live objects.
    let region = mr::access(access).and_then(|access| unsafe {
        if !access.contains(Access::ZERO_BASED) {
            return Err(invalid(
                "regions of device memory are zero-based: IBV_ACCESS_ZERO_BASED",
            ));
        }
        let (parent, memory) = (pd::private(pd), &object::private(dm).0);
        let access = access - Access::ZERO_BASED;
        Mr::register_dm(parent.nic(), memory, dm_offset, length as u64, access)
    });
    // SAFETY: a live protection domain.
    result_as_null(
        "ibv_reg_dm_mr",
        region.map(|region| unsafe { mr::create(pd, region, std::ptr::null_mut(), length) }),
    )
}
