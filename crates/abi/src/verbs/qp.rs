//! Queue pairs.

use crate::object::{self, Handle, refuse_inherited};
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use ferroce_nic::objects::device::AsyncSubject;
use ferroce_nic::{Error, Qp, QpInit};
use ferroce_proto::verbs::{AttrMask, QpCap, QpType};

use super::acks::Acks;
use super::builders::{Builder, wr_flush};
use super::{context, cq, engine, pd, srq};
use crate::convert::{cap_from_c, cap_to_c, qp_attr_from_c, qp_attr_to_c, qp_type};
use crate::errno::{as_errno, invalid, result_as_null, unbuilt};
use crate::types::{
    WrFlush, ibv_ece, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_ex_flush, ibv_qp_init_attr,
};

/// What follows `struct ibv_qp_ex`, as the newest headers have it.
pub(crate) struct QpPrivate {
    nic: Arc<Qp>,
    cap: QpCap,
    /// Asynchronous events.
    pub(super) acks: Acks,
    /// State of the extended posting interface, if the program asked for it.
    pub(super) builder: Option<Builder>,
}

impl Handle for ibv_qp {
    type Public = ibv_qp_ex_flush;
    type Private = QpPrivate;
}

impl QpPrivate {
    /// The device's side.
    pub(crate) fn nic(&self) -> &Arc<Qp> {
        &self.nic
    }

    /// True capacities.
    pub(super) fn cap(&self) -> &QpCap {
        &self.cap
    }
}

/// This library's part of a queue pair.
///
/// # Safety
/// `qp` is live until the end of `'a`.
pub(crate) unsafe fn private<'a>(qp: *mut ibv_qp) -> &'a QpPrivate {
    // SAFETY: the caller's promise.
    unsafe { object::private(qp) }
}

/// Makes a queue pair and writes the true capacities back into `attr`. `public` holds the functions
/// of the extended interface and `builder` its state, if the program asked for it.
///
/// # Safety
/// The protection domain and the completion queues are live, and so is the shared receive queue if
/// there is one.
pub(super) unsafe fn create(
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    mut public: ibv_qp_ex,
    builder: Option<Builder>,
) -> Result<*mut ibv_qp, Error> {
    let qp_type = qp_type(attr.qp_type)?;
    if qp_type == QpType::XrcSend {
        // It has no receive side, whatever the attributes say.
        (attr.recv_cq, attr.srq) = (attr.send_cq, ptr::null_mut());
    }
    if attr.send_cq.is_null() || attr.recv_cq.is_null() {
        return Err(invalid(
            "a queue pair needs a send and a receive completion queue",
        ));
    }
    // SAFETY: the caller's promise.
    let (parent, send_cq, recv_cq) = unsafe {
        (
            pd::private(pd),
            cq::private(attr.send_cq),
            cq::private(attr.recv_cq),
        )
    };
    let init = QpInit {
        qp_type,
        send_cq: Arc::clone(send_cq.nic()),
        recv_cq: Arc::clone(recv_cq.nic()),
        cap: cap_from_c(&attr.cap),
        sq_sig_all: attr.sq_sig_all != 0,
        // SAFETY: the caller's promise.
        srq: unsafe { srq::nic_of(attr.srq) },
    };
    let nic = Qp::create(parent.nic(), init)?;
    if qp_type == QpType::XrcSend {
        attr.recv_cq = ptr::null_mut();
    }
    attr.cap = cap_to_c(&nic.cap());
    let base = &mut public.qp_base;
    // SAFETY: the caller's promise.
    base.context = unsafe { (*pd).context };
    base.qp_context = attr.qp_context;
    base.pd = pd;
    base.send_cq = attr.send_cq;
    base.recv_cq = attr.recv_cq;
    base.srq = attr.srq;
    // SAFETY: a live protection domain has a live context.
    let qp = unsafe { publish(&nic, public, builder) };
    nic.set_cookie(qp.addr());
    Ok(qp)
}

/// Hands a queue pair to the program. Its context and what it is made of are in `public` already.
/// The caller makes the address its cookie.
///
/// # Safety
/// The context is live.
pub(super) unsafe fn publish(
    nic: &Arc<Qp>,
    mut public: ibv_qp_ex,
    builder: Option<Builder>,
) -> *mut ibv_qp {
    let base = &mut public.qp_base;
    base.handle = engine::next_handle();
    base.qp_num = nic.qpn().get();
    base.state = nic.state() as u32;
    base.qp_type = nic.qp_type() as u32;
    let context = base.context;
    let qp: *mut ibv_qp = object::create(
        ibv_qp_ex_flush {
            qp_ex: public,
            wr_flush: builder.is_some().then_some(wr_flush as WrFlush),
        },
        QpPrivate {
            nic: Arc::clone(nic),
            cap: nic.cap(),
            acks: Acks::default(),
            builder,
        },
    );
    qp.expose_provenance();
    // SAFETY: the caller's promise.
    unsafe { context::private(context) }.adopt_qp(qp);
    qp
}

/// `ibv_create_qp(3)`.
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    refuse_inherited!(pd);
    // SAFETY: a live protection domain, and attributes whose completion queues are NULL or live.
    result_as_null("ibv_create_qp", unsafe {
        create(pd, &mut *qp_init_attr, ibv_qp_ex::zeroed(), None)
    })
}

/// `ibv_modify_qp(3)`.
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    attr_mask: c_int,
) -> c_int {
    refuse_inherited!(qp);
    // SAFETY: a live queue pair, and attributes of which the mask names the initialised fields. All
    // are plain numbers.
    let (private, attr) = unsafe { (private(qp), &*attr) };
    let modified = qp_attr_from_c(attr, attr_mask.cast_unsigned()).and_then(|(attr, mask)| {
        private.nic.modify(&attr, mask)?;
        Ok((attr, mask))
    });
    match modified {
        Ok((attr, mask)) => {
            if mask.contains(AttrMask::STATE) {
                // SAFETY: a live queue pair, and attributes of which the mask names the initialised
                // fields. All are plain numbers.
                unsafe { (*qp).state = attr.qp_state as u32 };
            }
            0
        }
        Err(e) => as_errno("ibv_modify_qp", &e),
    }
}

/// `ibv_query_qp(3)`: all attributes, whatever the mask names.
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _attr_mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    refuse_inherited!(qp);
    // SAFETY: a live queue pair.
    let private = unsafe { private(qp) };
    let queried = private.nic.query();
    // SAFETY: a live queue pair, and the program's room for the attributes.
    unsafe {
        (*qp).state = queried.qp_state as u32;
        ptr::write(
            attr,
            ibv_qp_attr {
                cap: cap_to_c(&private.cap),
                ..qp_attr_to_c(&queried)
            },
        );
        let ibv_qp {
            qp_context,
            send_cq,
            recv_cq,
            srq,
            qp_type,
            ..
        } = *qp;
        let sq_sig_all = private.nic.sq_sig_all().into();
        ptr::write(
            init_attr,
            ibv_qp_init_attr {
                qp_context,
                send_cq,
                recv_cq,
                srq,
                cap: cap_to_c(&private.cap),
                qp_type,
                sq_sig_all,
            },
        );
    }
    0
}

/// `ibv_destroy_qp(3)`: EBUSY while it is attached to a multicast group. An XRC target that has
/// other handles lives on. Waits until every asynchronous event that was handed out is
/// acknowledged.
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    refuse_inherited!(qp);
    // SAFETY: a live queue pair, on a live context; nobody uses it any more after this.
    unsafe {
        let context = context::private((*qp).context);
        let private = private(qp);
        if private.nic.is_attached() {
            let reason = "the queue pair is attached to a multicast group";
            return as_errno("ibv_destroy_qp", &Error::new(libc::EBUSY, reason));
        }
        private.nic.close(qp.addr());
        context.forget(AsyncSubject::Qp(qp.addr()));
        private.acks.wait();
        context.release_qp(qp);
        drop(object::take(qp));
    }
    0
}

/// Ends a queue pair whose context is closed under it; the structure stays.
///
/// # Safety
/// `qp` is live.
pub(super) unsafe fn end(qp: *mut ibv_qp) {
    // SAFETY: the caller's promise.
    unsafe { private(qp) }.nic.close(qp.addr());
}

/// `ibv_query_qp_data_in_order(3)`: no promise about the order in which the bytes of a message
/// become visible.
pub unsafe extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _op: u32,
    _flags: u32,
) -> c_int {
    0
}

/// `ibv_query_ece(3)`: there are no such options.
pub unsafe extern "C" fn ibv_query_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: room for the options.
    unsafe { ptr::write(ece, ibv_ece::zeroed()) };
    as_errno(
        "ibv_query_ece",
        &unbuilt("enhanced connection establishment"),
    )
}

/// `ibv_set_ece(3)`.
pub unsafe extern "C" fn ibv_set_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    as_errno("ibv_set_ece", &unbuilt("enhanced connection establishment"))
}
