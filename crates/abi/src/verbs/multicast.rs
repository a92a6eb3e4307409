//! Multicast groups of queue pairs. The LID means nothing on Ethernet and is not looked at.

use crate::object::refuse_inherited;
use std::ffi::c_int;

use ferroce_proto::ids::Gid;

use super::qp;
use crate::errno::result_as_errno;
use crate::types::{ibv_gid, ibv_qp};

/// `ibv_attach_mcast(3)`.
pub unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    refuse_inherited!(qp);
    // SAFETY: a live queue pair, and a GID.
    let attached = unsafe { qp::private(qp).nic().attach_mcast(Gid((*gid).raw)) };
    result_as_errno("ibv_attach_mcast", attached)
}

/// `ibv_detach_mcast(3)`.
pub unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    refuse_inherited!(qp);
    // SAFETY: a live queue pair, and a GID.
    let detached = unsafe { qp::private(qp).nic().detach_mcast(Gid((*gid).raw)) };
    result_as_errno("ibv_detach_mcast", detached)
}
