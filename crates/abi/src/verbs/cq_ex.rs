//! The extended polling interface: `ibv_create_cq_ex(3)`, `ibv_start_poll` and friends.

use std::cell::UnsafeCell;
use std::ffi::c_int;

use ferroce_nic::Error;
use libc::pthread_mutex_t;

use super::cq::{self, Request, wc_to_c};
use crate::errno::{as_errno, invalid, result_as_null, unbuilt};
use crate::types::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED, IBV_WC_STANDARD_FLAGS, ibv_context, ibv_cq_ex,
    ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc,
};

/// State between `ibv_start_poll` and `ibv_end_poll`.
pub(crate) struct Cursor {
    /// Held from a successful `ibv_start_poll` to `ibv_end_poll`: other threads wait. A C mutex, since its guard spans calls.
    lock: UnsafeCell<pthread_mutex_t>,
    /// The completion that the readers show.
    current: UnsafeCell<ibv_wc>,
}

impl Default for Cursor {
    fn default() -> Self {
        Self {
            lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            current: UnsafeCell::new(ibv_wc::zeroed()),
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
    // SAFETY: a live context, and the attributes, whose channel is NULL or live.
    let created = unsafe {
        let attr = *attr;
        check(&attr).and_then(|()| {
            let ibv_cq_init_attr_ex {
                cqe,
                cq_context,
                channel,
                comp_vector,
                ..
            } = attr;
            cq::create(
                context,
                &Request {
                    cqe,
                    cq_context,
                    channel,
                    comp_vector,
                },
                functions(),
            )
        })
    };
    result_as_null("ibv_create_cq_ex", created).cast()
}

/// Refuses what is not built.
fn check(attr: &ibv_cq_init_attr_ex) -> Result<(), Error> {
    let extra = attr.wc_flags & !u64::from(IBV_WC_STANDARD_FLAGS);
    if extra != 0 {
        return Err(unbuilt(&format!(
            "completion field {extra:#x} (enum ibv_create_cq_wc_flags)"
        )));
    }
    if attr.comp_mask & !IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 {
        return Err(unbuilt("a completion queue on a parent domain"));
    }
    let flags = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS == 0 {
        0
    } else {
        attr.flags
    };
    if flags & !(IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0 {
        return Err(invalid(format!(
            "completion queue flags {flags:#x} contain unknown bits"
        )));
    }
    // A queue that drops completions silently is no promise kept; SINGLE_THREADED only allows to leave out locks.
    if flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0 {
        return Err(unbuilt("IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN"));
    }
    Ok(())
}

/// The public part of an extended queue: functions for all standard fields, NULL for those that were refused.
fn functions() -> ibv_cq_ex {
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
    public
}

/// Moves the cursor to the oldest completion: 0, ENOENT if there is none.
///
/// # Safety
/// `cq` is live and its cursor locked by this thread.
unsafe fn advance(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller's promise.
    let (private, cursor) = unsafe { (cq::private(cq.cast()), cursor(cq)) };
    let polled = private.nic().poll(1, &mut |_, wc| {
        let wc = wc_to_c(wc);
        // SAFETY: this thread holds the cursor; the program reads `status` and `wr_id` only on this thread until it lets go.
        unsafe {
            (*cq).wr_id = wc.wr_id;
            (*cq).status = wc.status;
            *cursor.current.get() = wc;
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
    // SAFETY: the attributes.
    if unsafe { (*attr).comp_mask } != 0 {
        return as_errno("ibv_start_poll", &invalid("comp_mask must be 0"));
    }
    // SAFETY: a live queue, whose mutex lives as long.
    unsafe {
        libc::pthread_mutex_lock(cursor(cq).lock.get());
        let result = advance(cq);
        if result != 0 {
            libc::pthread_mutex_unlock(cursor(cq).lock.get());
        }
        result
    }
}

/// Moves the cursor on.
unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: a live queue, between start and end.
    unsafe { advance(cq) }
}

/// Unlocks the cursor.
unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: a live queue; `start_poll` succeeded on this thread.
    unsafe { libc::pthread_mutex_unlock(cursor(cq).lock.get()) };
}

/// Functions that read one field of the completion under the cursor.
macro_rules! readers {
    ($($name:ident: $field:ident as $ty:ty;)*) => {$(
        #[doc = concat!("`", stringify!($field), "` of the completion under the cursor.")]
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $ty {
            // SAFETY: a live queue, between start and end, on the thread that started.
            unsafe { (*cursor(cq).current.get()).$field.into() }
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
