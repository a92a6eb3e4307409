//! The extended polling interface: `ibv_create_cq_ex(3)`, `ibv_start_poll` and friends.

use crate::object::{Refusal, is_of_other_process, refuse_inherited};
use std::cell::UnsafeCell;
use std::ffi::c_int;

use ferroce_nic::objects::cq::{CompletionTimes, Entry, TimestampKinds};
use ferroce_nic::{CqOptions, Error};
use libc::pthread_mutex_t;

use super::cq::{self, CqRequest};
use crate::errno::{as_errno, invalid, result_as_null, unbuilt};
use crate::types::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG,
    IBV_WC_EX_WITH_TM_INFO, IBV_WC_STANDARD_FLAGS, ibv_context, ibv_cq, ibv_cq_ex,
    ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc_tm_info,
};

/// Fields beside the standard ones that a queue can show.
const EXTRA_FIELDS: u32 = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
    | IBV_WC_EX_WITH_FLOW_TAG
    | IBV_WC_EX_WITH_TM_INFO;

/// State between `ibv_start_poll` and `ibv_end_poll`.
pub(crate) struct Cursor {
    /// Held from a successful `ibv_start_poll` to `ibv_end_poll`: other threads wait. A C mutex,
    /// since its guard spans calls. None if the program promised to use one thread only
    /// (`IBV_CREATE_CQ_ATTR_SINGLE_THREADED`).
    mutex: Option<UnsafeCell<pthread_mutex_t>>,
    /// The completion that the readers show.
    current: UnsafeCell<(Entry, CompletionTimes)>,
}

impl Cursor {
    /// The cursor of a new queue.
    pub(super) fn new(single_threaded: bool) -> Self {
        Self {
            mutex: (!single_threaded).then(|| UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)),
            current: UnsafeCell::default(),
        }
    }

    /// Keeps other threads out.
    fn lock(&self) {
        if let Some(mutex) = &self.mutex {
            // SAFETY: an initialised mutex that stays where it is as long as the queue lives.
            unsafe { libc::pthread_mutex_lock(mutex.get()) };
        }
    }

    /// Lets them in again; this thread locked it.
    fn unlock(&self) {
        if let Some(mutex) = &self.mutex {
            // SAFETY: an initialised mutex that stays where it is as long as the queue lives.
            unsafe { libc::pthread_mutex_unlock(mutex.get()) };
        }
    }
}

/// The cursor of a queue.
///
/// # Safety
/// `cq` is live until the end of `'a`.
unsafe fn cursor<'a>(cq: *mut ibv_cq_ex) -> &'a Cursor {
    // SAFETY: the caller's promise; an extended queue is a queue.
    unsafe { &cq::private(cq.cast()).cursor }
}

/// `ibv_create_cq_ex(3)`.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    refuse_inherited!(context);
    // SAFETY: a live context, and the attributes, whose channel is NULL or live.
    let created = unsafe {
        let attr = *attr;
        request(&attr).and_then(|request| cq::create(context, &request, functions(attr.wc_flags)))
    };
    result_as_null("ibv_create_cq_ex", created).cast()
}

/// What the attributes ask for, unless it is not built.
fn request(attr: &ibv_cq_init_attr_ex) -> Result<CqRequest, Error> {
    let extra = attr.wc_flags & !u64::from(IBV_WC_STANDARD_FLAGS | EXTRA_FIELDS);
    if extra & u64::from(IBV_WC_EX_WITH_CVLAN) != 0 {
        return Err(unbuilt(
            "IBV_WC_EX_WITH_CVLAN: the kernel has taken the VLAN tag off; that completion field",
        ));
    }
    if extra != 0 {
        return Err(invalid(format!(
            "completion field {extra:#x} is none of enum ibv_create_cq_wc_flags"
        )));
    }
    let known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    if attr.comp_mask & !known != 0 {
        return Err(invalid(format!(
            "comp_mask {:#x} contains unknown bits",
            attr.comp_mask
        )));
    }
    if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD != 0 && attr.parent_domain.is_null() {
        return Err(invalid("NULL is no parent domain"));
    }
    let flags = match attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS {
        0 => 0,
        _ => attr.flags,
    };
    if flags & !(IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0 {
        return Err(invalid(format!(
            "completion queue flags {flags:#x} contain unknown bits"
        )));
    }
    let asks = |field: u32| attr.wc_flags & u64::from(field) != 0;
    Ok(CqRequest {
        cqe: attr.cqe,
        cq_context: attr.cq_context,
        channel: attr.channel,
        comp_vector: attr.comp_vector,
        options: CqOptions {
            timestamps: TimestampKinds {
                raw: asks(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP),
                wallclock: asks(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK),
            },
            ignore_overrun: flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0,
        },
        single_threaded: flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0,
    })
}

/// The public part of an extended queue: functions for all standard fields and for those others
/// that were asked for.
fn functions(wc_flags: u64) -> ibv_cq_ex {
    let asks = |field: u32| wc_flags & u64::from(field) != 0;
    let mut public = ibv_cq_ex::zeroed();
    public.start_poll = Some(start_poll);
    public.next_poll = Some(next_poll);
    public.end_poll = Some(end_poll);
    public.read_opcode = Some(read_opcode);
    public.read_vendor_err = Some(read_vendor_err);
    public.read_byte_len = Some(read_byte_len);
    public.read_imm_data = Some(read_imm_data);
    public.read_qp_num = Some(read_qp_num);
    public.read_src_qp = Some(read_src_qp);
    public.read_wc_flags = Some(read_wc_flags);
    public.read_slid = Some(read_slid);
    public.read_sl = Some(read_sl);
    public.read_dlid_path_bits = Some(read_dlid_path_bits);
    if asks(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) {
        public.read_completion_ts = Some(read_completion_ts);
    }
    if asks(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) {
        public.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
    }
    if asks(IBV_WC_EX_WITH_FLOW_TAG) {
        public.read_flow_tag = Some(read_flow_tag);
    }
    if asks(IBV_WC_EX_WITH_TM_INFO) {
        public.read_tm_info = Some(read_tm_info);
    }
    public
}

/// Moves the cursor to the oldest completion: 0, ENOENT if there is none.
///
/// # Safety
/// `cq` is live and its cursor locked by this thread.
unsafe fn advance(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller's promise.
    let (private, cursor) = unsafe { (cq::private(cq.cast()), cursor(cq)) };
    let polled = private
        .nic()
        .poll_with_timestamps(1, &mut |_, wc, timestamps| {
            let wc = Entry::from(wc);
            // SAFETY: this thread holds the cursor; the program reads `status` and `wr_id` only on
            // this thread until it lets go.
            unsafe {
                (*cq).wr_id = wc.wr_id;
                (*cq).status = wc.status;
                *cursor.current.get() = (wc, timestamps);
            }
        });
    match polled {
        Ok(0) => libc::ENOENT,
        Ok(_) => 0,
        Err(e) => as_errno("ibv_next_poll", &e),
    }
}

/// Locks the cursor and moves it to the first completion; unlocks it again if there is none.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: a live queue.
    if unsafe { is_of_other_process(cq.cast::<ibv_cq>()) } {
        return Refusal::inherited();
    }
    // SAFETY: the attributes.
    if unsafe { (*attr).comp_mask } != 0 {
        return as_errno("ibv_start_poll", &invalid("comp_mask must be 0"));
    }
    // SAFETY: a live queue.
    let cursor = unsafe { cursor(cq) };
    cursor.lock();
    // SAFETY: a live queue, which this thread has locked.
    let result = unsafe { advance(cq) };
    if result != 0 {
        cursor.unlock();
    }
    result
}

/// Moves the cursor on.
unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: a live queue, between start and end.
    unsafe { advance(cq) }
}

/// Unlocks the cursor.
unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: a live queue; `start_poll` succeeded on this thread.
    unsafe { cursor(cq) }.unlock();
}

/// Functions that read one field of the completion under the cursor.
macro_rules! readers {
    ($($name:ident: $field:ident as $ty:ty;)*) => {$(
        #[doc = concat!("`", stringify!($field), "` of the completion under the cursor.")]
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $ty {
            // SAFETY: a live queue, between start and end, on the thread that started.
            unsafe { (*cursor(cq).current.get()).0.$field.into() }
        }
    )*};
}

readers! {
    read_opcode: opcode as u32;
    read_vendor_err: vendor_err as u32;
    read_byte_len: byte_len as u32;
    read_imm_data: imm_data as u32;
    read_qp_num: qp_num as u32;
    read_src_qp: src_qp as u32;
    read_wc_flags: wc_flags as u32;
    read_slid: slid as u32;
    read_sl: sl as u8;
    read_dlid_path_bits: dlid_path_bits as u8;
}

/// Time of the completion under the cursor, on the device's clock.
unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: a live queue, whose cursor this thread locked with `start_poll`: no other thread
    // writes the times meanwhile.
    unsafe { (*cursor(cq).current.get()).1.raw }
}

/// Time of the completion under the cursor, in nanoseconds since 1970.
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: a live queue; between start and end only the thread that started reads or moves the
    // cursor.
    unsafe { (*cursor(cq).current.get()).1.wallclock }
}

/// The tag of the flow that steered the message here: 0, since there are no flows.
unsafe extern "C" fn read_flow_tag(_cq: *mut ibv_cq_ex) -> u32 {
    0
}

/// The tag that matched: none, since no receive queue matches tags.
unsafe extern "C" fn read_tm_info(_cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: room for it.
    unsafe { *info = ibv_wc_tm_info::zeroed() };
}
