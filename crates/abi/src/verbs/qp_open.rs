//! XRC targets, which several handles can share.

use crate::object::refuse_inherited;
use std::ptr;

use ferroce_nic::{Error, Qp};
use ferroce_proto::ids::Qpn;
use libc::c_void;

use super::qp::publish;
use super::xrcd;
use crate::convert::{cap_to_c, qp_type};
use crate::errno::{invalid, result_as_null};
use crate::types::{
    IBV_QP_OPEN_ATTR_CONTEXT, IBV_QP_OPEN_ATTR_NUM, IBV_QP_OPEN_ATTR_TYPE, IBV_QP_OPEN_ATTR_XRCD,
    ibv_context, ibv_qp, ibv_qp_ex, ibv_qp_init_attr_ex, ibv_qp_open_attr, ibv_xrcd,
};

/// The public part of a handle on a target: there are no queues and there is no protection domain.
///
/// # Safety
/// `xrcd` is live.
unsafe fn public(xrcd: *mut ibv_xrcd, qp_context: *mut c_void) -> ibv_qp_ex {
    let mut public = ibv_qp_ex::zeroed();
    // SAFETY: the caller's promise.
    public.qp_base.context = unsafe { (*xrcd).context };
    public.qp_base.qp_context = qp_context;
    public
}

/// Makes a target. The capacities do not count; 0 is written back.
///
/// # Errors
/// EINVAL without a domain, ENOMEM at the device's limit.
///
/// # Safety
/// The XRC domain is NULL or live.
pub(super) unsafe fn create_target(ex: &mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, Error> {
    // SAFETY: the caller's promise.
    let nic = Qp::create_target(unsafe { xrcd::nic_of(ex.xrcd) }?)?;
    ex.cap = cap_to_c(&nic.cap());
    // SAFETY: a live domain by the caller's promise; an open one has a live context.
    let qp = unsafe { publish(&nic, public(ex.xrcd, ex.qp_context), None) };
    nic.set_cookie(qp.addr());
    Ok(qp)
}

/// `ibv_open_qp(3)`.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    qp_open_attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    refuse_inherited!(context);
    // SAFETY: attributes whose domain is NULL or live.
    result_as_null("ibv_open_qp", unsafe { open(context, &*qp_open_attr) })
}

/// # Safety
/// The domain is NULL or live.
unsafe fn open(context: *mut ibv_context, attr: &ibv_qp_open_attr) -> Result<*mut ibv_qp, Error> {
    const NEEDED: u32 = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    let given = attr.comp_mask & !IBV_QP_OPEN_ATTR_CONTEXT;
    if given != NEEDED {
        return Err(invalid(format!(
            "comp_mask {:#x}: qp_num, xrcd and qp_type must be given, and only qp_context besides",
            attr.comp_mask
        )));
    }
    // SAFETY: the caller's promise.
    let domain = unsafe { xrcd::nic_of(attr.xrcd) }?;
    // SAFETY: the caller's promise.
    if unsafe { (*attr.xrcd).context } != context {
        return Err(invalid("the XRC domain is of another context"));
    }
    let qp_context = if attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT == 0 {
        ptr::null_mut()
    } else {
        attr.qp_context
    };
    let mut opened = ptr::null_mut();
    let qp_type = qp_type(attr.qp_type)?;
    Qp::open(domain, Qpn::new(attr.qp_num), qp_type, |nic| {
        // SAFETY: a live domain by the caller's promise; an open one has a live context.
        opened = unsafe { publish(nic, public(attr.xrcd, qp_context), None) };
        opened.addr()
    })?;
    Ok(opened)
}
