//! Completion queues.

use crate::object::{self, Handle, Refusal, refuse_inherited};
use std::ffi::c_int;
use std::mem::{MaybeUninit, offset_of};
use std::slice;
use std::sync::Arc;

use ferroce_nic::objects::cq::Entry;
use ferroce_nic::objects::device::AsyncSubject;
use ferroce_nic::{Cq, CqOptions, Error};
use libc::c_void;

use super::acks::Acks;
use super::cq_ex::Cursor;
use super::{channel, context, engine};
use crate::errno::{as_errno, invalid, result_as_errno, result_as_null};
use crate::types::{
    IBV_CQ_ATTR_MODERATE, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_modify_cq_attr,
    ibv_wc,
};

/// What follows `struct ibv_cq_ex`.
pub(crate) struct CqPrivate {
    nic: Arc<Cq>,
    /// Completion events.
    pub(super) comp_acks: Acks,
    /// Asynchronous events.
    pub(super) async_acks: Acks,
    /// State of the extended polling interface.
    pub(super) cursor: Cursor,
}

impl Handle for ibv_cq {
    type Public = ibv_cq_ex;
    type Private = CqPrivate;
}

impl CqPrivate {
    /// The device's side.
    pub(crate) fn nic(&self) -> &Arc<Cq> {
        &self.nic
    }
}

/// This library's part of a queue.
///
/// # Safety
/// `cq` is live until the end of `'a`.
pub(crate) unsafe fn private<'a>(cq: *mut ibv_cq) -> &'a CqPrivate {
    // SAFETY: the caller's promise.
    unsafe { object::private(cq) }
}

/// Request for a completion queue.
pub(super) struct CqRequest {
    pub(super) cqe: u32,
    pub(super) cq_context: *mut c_void,
    pub(super) channel: *mut ibv_comp_channel,
    pub(super) comp_vector: u32,
    pub(super) options: CqOptions,
    /// Only one thread polls the queue.
    pub(super) single_threaded: bool,
}

/// Makes a queue. `public` holds the functions of the extended interface, if the program asked for
/// it.
///
/// # Safety
/// The context, and the channel if one is given, are live.
pub(super) unsafe fn create(
    context: *mut ibv_context,
    request: &CqRequest,
    mut public: ibv_cq_ex,
) -> Result<*mut ibv_cq, Error> {
    let &CqRequest {
        cqe,
        cq_context,
        channel,
        comp_vector,
        options,
        single_threaded,
    } = request;
    let vectors = context::comp_vectors();
    if comp_vector >= vectors.cast_unsigned() {
        return Err(invalid(format!(
            "completion vector {comp_vector}: the device has {vectors}"
        )));
    }
    // SAFETY: the caller's promise.
    let channel_private = (!channel.is_null()).then(|| unsafe { channel::private(channel) });
    // SAFETY: the caller's promise.
    let parent = unsafe { context::private(context) };
    let nic = Cq::with_options(
        parent.nic(),
        cqe,
        channel_private.map(|c| Arc::clone(c.nic())),
        options,
    )?;
    public.context = context;
    public.channel = channel;
    public.cq_context = cq_context;
    public.handle = engine::next_handle();
    public.cqe = c_int::try_from(nic.capacity()).unwrap_or(c_int::MAX);
    let private = CqPrivate {
        nic: Arc::clone(&nic),
        comp_acks: Acks::default(),
        async_acks: Acks::default(),
        cursor: Cursor::new(single_threaded),
    };
    let cq: *mut ibv_cq = object::create(public, private);
    nic.set_cookie(cq.expose_provenance());
    if let Some(channel) = channel_private {
        channel.adopt();
    }
    Ok(cq)
}

/// `ibv_create_cq(3)`.
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    refuse_inherited!(context);
    let request = CqRequest {
        // A negative number is refused like 0.
        cqe: u32::try_from(cqe).unwrap_or(0),
        cq_context,
        channel,
        comp_vector: comp_vector.cast_unsigned(),
        options: CqOptions::default(),
        single_threaded: false,
    };
    // SAFETY: a live context, and a live channel if one is given.
    result_as_null("ibv_create_cq", unsafe {
        create(context, &request, ibv_cq_ex::zeroed())
    })
}

/// `ibv_resize_cq(3)`.
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    refuse_inherited!(cq);
    // SAFETY: a live queue.
    let nic = unsafe { private(cq) }.nic();
    let result = nic.resize(u32::try_from(cqe).unwrap_or(0));
    if result.is_ok() {
        // SAFETY: a live queue. The program does not read the field while it asks for a change.
        unsafe { (*cq).cqe = c_int::try_from(nic.capacity()).unwrap_or(c_int::MAX) };
    }
    result_as_errno("ibv_resize_cq", result)
}

/// `ibv_modify_cq(3)`: moderation of events.
pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    refuse_inherited!(cq);
    // SAFETY: a live queue, and the attributes.
    let (nic, attr) = unsafe { (private(cq).nic(), *attr) };
    if attr.attr_mask != IBV_CQ_ATTR_MODERATE {
        let reason = format!(
            "attr_mask {:#x}: only IBV_CQ_ATTR_MODERATE can be modified",
            attr.attr_mask
        );
        return as_errno("ibv_modify_cq", &invalid(reason));
    }
    nic.moderate(attr.moderate.cq_count, attr.moderate.cq_period);
    0
}

/// `ibv_destroy_cq(3)`: EBUSY while queue pairs use it. Waits until every event that was handed out
/// is acknowledged; events that were not handed out vanish.
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    refuse_inherited!(cq);
    // SAFETY: a live queue.
    let private = unsafe { private(cq) };
    let users = private.nic.users();
    if users > 0 {
        let reason = format!("{users} queue pairs still use the completion queue");
        return as_errno("ibv_destroy_cq", &Error::new(libc::EBUSY, reason));
    }
    // SAFETY: a live queue, whose context and channel live as long as it does.
    unsafe {
        context::private((*cq).context).forget(AsyncSubject::Cq(cq.addr()));
        private.nic.end_events();
        let channel = (*cq).channel;
        if !channel.is_null() {
            channel::private(channel).forget(cq.addr());
        }
        private.comp_acks.wait();
        private.async_acks.wait();
        drop(object::take(cq));
        if !channel.is_null() {
            channel::private(channel).release();
        }
    }
    0
}

/// `ibv_poll_cq(3)`.
pub(crate) unsafe extern "C" fn poll_cq(
    cq: *mut ibv_cq,
    num_entries: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    // SAFETY: a live queue.
    if unsafe { object::is_of_other_process(cq) } {
        return -<c_int as Refusal>::inherited();
    }
    let room = usize::try_from(num_entries).unwrap_or(0);
    let array = if room == 0 {
        &mut []
    } else {
        // SAFETY: the program has room for so many completions, which nobody else uses now, and an
        // `Entry` is what it takes for one.
        unsafe { slice::from_raw_parts_mut(wc.cast::<MaybeUninit<Entry>>(), room) }
    };
    // SAFETY: a live queue.
    let polled = unsafe { private(cq) }.nic().poll_into(array);
    match polled {
        Ok(n) => c_int::try_from(n).unwrap_or(num_entries),
        Err(e) => -as_errno("ibv_poll_cq", &e),
    }
}

/// Fails to compile unless fields of an [`Entry`] are where they are in a `struct ibv_wc`.
macro_rules! assert_same_places {
    ($($field:ident)*) => {
        $(assert!(offset_of!(Entry, $field) == offset_of!(ibv_wc, $field));)*
    };
}

/// An [`Entry`] is a `struct ibv_wc`.
const _: () = {
    assert!(size_of::<Entry>() == size_of::<ibv_wc>());
    assert!(align_of::<Entry>() <= align_of::<ibv_wc>());
    assert_same_places!(wr_id status opcode vendor_err byte_len imm_data qp_num
        src_qp wc_flags pkey_index slid sl dlid_path_bits);
};

/// `ibv_req_notify_cq(3)`.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    refuse_inherited!(cq);
    // SAFETY: a live queue.
    unsafe { private(cq) }.nic().req_notify(solicited_only != 0);
    0
}
