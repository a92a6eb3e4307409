//! Extended connection establishment: the vendor options of queue pairs that the program manages
//! itself.

use crate::object::{inherited_minus_one, refuse_inherited};
use std::ffi::c_int;

use ferroce_nic::Error;
use ferroce_proto::mad::Ece;

use super::id::Id;
use super::lock;
use super::types::rdma_cm_id;
use crate::errno::{invalid, result_as_minus_one};
use crate::types::ibv_ece;

/// The identifier, if its queue pair is the program's business.
///
/// # Safety
/// `id` is NULL or live.
unsafe fn external<'a>(id: *mut rdma_cm_id) -> Result<Id<'a>, Error> {
    // SAFETY: the caller's pointer.
    let id = unsafe { Id::new(id)? };
    if id.qp().is_null() {
        Ok(id)
    } else {
        Err(invalid(
            "the identifier has a queue pair of its own, whose vendor options the library exchanges",
        ))
    }
}

/// Takes options for the next request or reply.
///
/// # Safety
/// Both pointers are NULL or live.
unsafe fn set_local(id: *mut rdma_cm_id, ece: *const ibv_ece) -> Result<(), Error> {
    // SAFETY: the caller's pointer.
    let id = unsafe { external(id)? };
    if ece.is_null() {
        return Err(invalid("no vendor options were given"));
    }
    // SAFETY: the caller's pointer.
    let ece = unsafe { ece.read() };
    if ece.vendor_id == 0 || ece.comp_mask != 0 {
        return Err(invalid(
            "vendor options need a vendor, and have no extensions (comp_mask)",
        ));
    }
    lock(id.settings()).local_ece = Ece {
        vendor: ece.vendor_id,
        options: ece.options,
    };
    Ok(())
}

/// Gives the options of the last request or reply.
///
/// # Safety
/// Both pointers are NULL or live.
unsafe fn remote(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> Result<(), Error> {
    // SAFETY: the caller's pointer.
    let id = unsafe { external(id)? };
    if ece.is_null() {
        return Err(invalid("no place for the vendor options was given"));
    }
    let Ece { vendor, options } = lock(id.settings()).remote_ece;
    let found = ibv_ece {
        vendor_id: vendor,
        options,
        comp_mask: 0,
    };
    // SAFETY: the caller's pointer.
    unsafe { ece.write(found) };
    Ok(())
}

/// `rdma_set_local_ece(3)`
pub unsafe extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_set_local_ece", unsafe { set_local(id, ece) })
}

/// `rdma_get_remote_ece(3)`: all zero if the peer said none.
pub unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_get_remote_ece", unsafe { remote(id, ece) })
}
