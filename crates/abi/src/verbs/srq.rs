//! Shared receive queues.

use crate::object::{self, Handle, refuse_inherited};
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use ferroce_nic::objects::device::AsyncSubject;
use ferroce_nic::{Error, Srq, SrqAttr};
use libc::c_void;

use super::acks::Acks;
use super::{context, cq, engine, pd, post, xrcd};
use crate::errno::{as_errno, invalid, result_as_errno, result_as_null, unbuilt};
use crate::types::{
    IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQ_INIT_ATTR_XRCD,
    IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, IBV_SRQT_BASIC, IBV_SRQT_TM, IBV_SRQT_XRC, ibv_context, ibv_pd,
    ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};

const TAG_MATCHING: &str = "tag matching (tm_caps.max_num_tags is 0)";

/// What follows `struct ibv_srq`.
pub(crate) struct SrqPrivate {
    nic: Arc<Srq>,
    /// Most scatter/gather elements of a work request.
    max_sge: u32,
    /// Asynchronous events.
    pub(super) acks: Acks,
}

impl Handle for ibv_srq {
    type Public = Self;
    type Private = SrqPrivate;
}

/// This library's part of a queue.
///
/// # Safety
/// `srq` is live until the end of `'a`.
pub(crate) unsafe fn private<'a>(srq: *mut ibv_srq) -> &'a SrqPrivate {
    // SAFETY: the caller's promise.
    unsafe { object::private(srq) }
}

/// The device's side of a queue; none for NULL.
///
/// # Safety
/// `srq` is NULL or live.
pub(super) unsafe fn nic_of(srq: *mut ibv_srq) -> Option<Arc<Srq>> {
    // SAFETY: the caller's promise.
    (!srq.is_null()).then(|| Arc::clone(&unsafe { private(srq) }.nic))
}

/// `struct ibv_srq_attr`.
const fn attr_from_c(attr: &ibv_srq_attr) -> SrqAttr {
    let ibv_srq_attr {
        max_wr,
        max_sge,
        srq_limit,
    } = *attr;
    SrqAttr {
        max_wr,
        max_sge,
        srq_limit,
    }
}

/// `struct ibv_srq_attr`.
const fn attr_to_c(attr: SrqAttr) -> ibv_srq_attr {
    let SrqAttr {
        max_wr,
        max_sge,
        srq_limit,
    } = attr;
    ibv_srq_attr {
        max_wr,
        max_sge,
        srq_limit,
    }
}

/// Hands a new queue to the program, with its true sizes in `attr`.
///
/// # Safety
/// The protection domain is live.
unsafe fn publish(
    nic: Arc<Srq>,
    pd: *mut ibv_pd,
    (srq_context, attr): (*mut c_void, &mut ibv_srq_attr),
) -> *mut ibv_srq {
    let true_sizes = nic.query();
    (attr.max_wr, attr.max_sge) = (true_sizes.max_wr, true_sizes.max_sge);
    let mut public = ibv_srq::zeroed();
    // SAFETY: the caller's promise.
    public.context = unsafe { (*pd).context };
    public.srq_context = srq_context;
    public.pd = pd;
    public.handle = engine::next_handle();
    let private = SrqPrivate {
        nic: Arc::clone(&nic),
        max_sge: true_sizes.max_sge,
        acks: Acks::default(),
    };
    let srq: *mut ibv_srq = object::create(public, private);
    nic.set_cookie(srq.expose_provenance());
    srq
}

/// `ibv_create_srq(3)`.
pub unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    srq_init_attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    refuse_inherited!(pd);
    // SAFETY: a live protection domain, and the attributes, which nobody else uses during the call.
    result_as_null("ibv_create_srq", unsafe {
        let init = &mut *srq_init_attr;
        Srq::create(pd::private(pd).nic(), attr_from_c(&init.attr))
            .map(|nic| publish(nic, pd, (init.srq_context, &mut init.attr)))
    })
}

/// `ibv_create_srq_ex(3)`: basic and XRC queues. Without `IBV_SRQ_INIT_ATTR_TYPE` a queue is basic.
pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    srq_init_attr_ex: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    refuse_inherited!(context);
    // SAFETY: the attributes, which nobody else uses during the call; what they name is live.
    result_as_null("ibv_create_srq_ex", unsafe {
        create_ex(&mut *srq_init_attr_ex)
    })
}

/// Makes a queue from the long attributes.
///
/// # Safety
/// The objects that `comp_mask` names are live.
unsafe fn create_ex(init: &mut ibv_srq_init_attr_ex) -> Result<*mut ibv_srq, Error> {
    let named = |bit| init.comp_mask & bit != 0;
    let srq_type = if named(IBV_SRQ_INIT_ATTR_TYPE) {
        init.srq_type
    } else {
        IBV_SRQT_BASIC
    };
    if !named(IBV_SRQ_INIT_ATTR_PD) || init.pd.is_null() {
        return Err(invalid("a shared receive queue needs a protection domain"));
    }
    let pd = init.pd;
    let attr = attr_from_c(&init.attr);
    let nic = match srq_type {
        // SAFETY: the caller's promise.
        IBV_SRQT_BASIC => Srq::create(unsafe { pd::private(pd) }.nic(), attr)?,
        IBV_SRQT_XRC => {
            if !named(IBV_SRQ_INIT_ATTR_XRCD) || !named(IBV_SRQ_INIT_ATTR_CQ) || init.cq.is_null() {
                return Err(invalid(
                    "an XRC shared receive queue needs an XRC domain and a completion queue",
                ));
            }
            // SAFETY: the caller's promise.
            let (pd, xrcd, cq) = unsafe {
                (
                    pd::private(pd),
                    xrcd::nic_of(init.xrcd)?,
                    cq::private(init.cq),
                )
            };
            Srq::create_xrc(pd.nic(), attr, xrcd, cq.nic())?
        }
        IBV_SRQT_TM => return Err(unbuilt(TAG_MATCHING)),
        _ => {
            return Err(invalid(format!(
                "{srq_type} is no shared receive queue type"
            )));
        }
    };
    // SAFETY: the caller's promise.
    Ok(unsafe { publish(nic, pd, (init.srq_context, &mut init.attr)) })
}

/// `ibv_query_srq(3)`.
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr) -> c_int {
    refuse_inherited!(srq);
    // SAFETY: a live queue, and room for the attributes.
    unsafe { ptr::write(srq_attr, attr_to_c(private(srq).nic.query())) };
    0
}

/// `ibv_modify_srq(3)`.
pub unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    srq_attr: *mut ibv_srq_attr,
    srq_attr_mask: c_int,
) -> c_int {
    refuse_inherited!(srq);
    let mask = srq_attr_mask.cast_unsigned();
    let unknown = mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT);
    if unknown != 0 {
        let reason = format!("attribute mask {mask:#x} contains unknown bits");
        return as_errno("ibv_modify_srq", &invalid(reason));
    }
    // SAFETY: a live queue, and attributes of which the mask names the initialised fields. All are
    // plain numbers.
    let (private, attr) = unsafe { (private(srq), &*srq_attr) };
    let named = |bit, value: u32| (mask & bit != 0).then_some(value);
    result_as_errno(
        "ibv_modify_srq",
        private.nic.modify(
            named(IBV_SRQ_MAX_WR, attr.max_wr),
            named(IBV_SRQ_LIMIT, attr.srq_limit),
        ),
    )
}

/// `ibv_destroy_srq(3)`: EBUSY while queue pairs use it. Waits until every event that was handed
/// out is acknowledged; one that was not handed out vanishes.
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    refuse_inherited!(srq);
    // SAFETY: a live queue.
    let private = unsafe { private(srq) };
    let users = private.nic.users();
    if users > 0 {
        let reason = format!("{users} queue pairs still use the shared receive queue");
        return as_errno("ibv_destroy_srq", &Error::new(libc::EBUSY, reason));
    }
    private.nic.destroy();
    // SAFETY: a live queue on a live context; the program uses it no more after this.
    unsafe {
        context::private((*srq).context).forget(AsyncSubject::Srq(srq.addr()));
        private.acks.wait();
        drop(object::take(srq));
    }
    0
}

/// `ibv_post_srq_recv(3)`.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a live queue.
    if unsafe { object::is_of_other_process(srq) } {
        // SAFETY: room for the refused work request.
        return unsafe { post::refuse_inherited(wr, bad_wr) };
    }
    // SAFETY: a live queue.
    let private = unsafe { private(srq) };
    // SAFETY: a chain of work requests, and room for the refused one.
    unsafe {
        post::post("ibv_post_srq_recv", private.max_sge, wr, bad_wr, |chain| {
            private.nic.post_recv(chain).map_err(|(_, e)| e)
        })
    }
}

/// `ibv_post_srq_ops(3)`: for tag matching only, and answered as by a device without it.
pub(crate) unsafe extern "C" fn post_srq_ops(
    _srq: *mut ibv_srq,
    wr: *mut c_void,
    bad_wr: *mut *mut c_void,
) -> c_int {
    if !bad_wr.is_null() {
        // SAFETY: room for the refused work request.
        unsafe { *bad_wr = wr };
    }
    as_errno("ibv_post_srq_ops", &unbuilt(TAG_MATCHING))
}

/// `ibv_get_srq_num(3)`: EINVAL unless it is an XRC queue, since others have no number.
pub(crate) unsafe extern "C" fn srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int {
    refuse_inherited!(srq);
    // SAFETY: a live queue.
    let Some(number) = unsafe { private(srq) }.nic.number() else {
        return as_errno(
            "ibv_get_srq_num",
            &invalid("the shared receive queue is not of type IBV_SRQT_XRC"),
        );
    };
    // SAFETY: room for the number.
    unsafe { *srq_num = number.get() };
    0
}
