//! The builders of `ibv_wr_post(3)`.

mod batch;
mod operations;
mod setters;

use crate::object::{Refusal, is_of_other_process};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem;

use ferroce_os::lock::{Lock, LockGuard};
use ferroce_proto::verbs::{SendFlags, SendOp};

use self::batch::Batch;
use self::operations::*;
use self::setters::*;
use super::qp::{self, QpPrivate};
use super::wr::send_flags;
use crate::errno::result_as_errno;
use crate::types::{ibv_qp, ibv_qp_ex};

pub(super) use self::operations::wr_flush;

/// State of one queue pair's builders.
pub(crate) struct Builder {
    /// From `wr_start` to `wr_complete` or `wr_abort`: other threads wait. Used only by the
    /// holder. Before the lock, as it is dropped first.
    held: UnsafeCell<Option<LockGuard<'static, Batch>>>,
    batch: Lock<Batch>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            batch: Lock::new(Batch::default()),
            held: UnsafeCell::default(),
        }
    }

    /// Takes the lock.
    ///
    /// # Safety
    /// The builder stays where it is until [`let_go`](Self::let_go), which this thread calls; it
    /// does not have the lock.
    unsafe fn hold(&self) {
        let guard = self.batch.lock();
        // SAFETY: the caller's promise; the holder of the lock is alone with the place.
        unsafe {
            *self.held.get() = Some(mem::transmute::<
                LockGuard<'_, Batch>,
                LockGuard<'static, Batch>,
            >(guard))
        };
    }

    /// Gives the lock back, if this thread has it.
    ///
    /// # Safety
    /// As [`with_batch`].
    unsafe fn let_go(&self) {
        // SAFETY: the caller's promise: the holder of the lock is alone with the place. Once the
        // lock is free, that is another's.
        drop(unsafe { (*self.held.get()).take() });
    }
}

/// The public part of an extended queue pair.
pub(super) fn functions() -> ibv_qp_ex {
    let mut public = ibv_qp_ex::zeroed();
    public.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    public.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    public.wr_bind_mw = Some(wr_bind_mw);
    public.wr_atomic_write = Some(wr_atomic_write);
    public.wr_local_inv = Some(wr_local_inv);
    public.wr_rdma_read = Some(wr_rdma_read);
    public.wr_rdma_write = Some(wr_rdma_write);
    public.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    public.wr_send = Some(wr_send);
    public.wr_send_imm = Some(wr_send_imm);
    public.wr_send_inv = Some(wr_send_inv);
    public.wr_set_inline_data = Some(wr_set_inline_data);
    public.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    public.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    public.wr_set_ud_addr = Some(wr_set_ud_addr);
    public.wr_set_sge = Some(wr_set_sge);
    public.wr_set_sge_list = Some(wr_set_sge_list);
    public.wr_start = Some(wr_start);
    public.wr_complete = Some(wr_complete);
    public.wr_abort = Some(wr_abort);
    public
}

/// Works on the batch under construction.
///
/// # Safety
/// `qp` is a live extended queue pair and this thread is between `wr_start` and `wr_complete`.
#[inline]
unsafe fn with_batch(qp: *mut ibv_qp_ex, work: impl FnOnce(&QpPrivate, &mut Batch)) {
    // SAFETY: an extended queue pair is a queue pair.
    let private = unsafe { qp::private(qp.cast()) };
    if let Some(builder) = &private.builder
        // SAFETY: the lock that `wr_start` took makes the access exclusive.
        && let Some(batch) = unsafe { &mut *builder.held.get() }
    {
        work(private, batch);
    }
}

/// Begins a work request, with the fields that are set for it.
///
/// # Safety
/// As [`with_batch`].
#[inline]
unsafe fn begin(qp: *mut ibv_qp_ex, begin: impl FnOnce(&mut Batch, u64, SendFlags)) {
    // SAFETY: the caller's promise.
    unsafe {
        let (wr_id, bits) = ((*qp).wr_id, (*qp).wr_flags);
        with_batch(qp, |_, batch| match send_flags(bits) {
            Ok(flags) => begin(batch, wr_id, flags - SendFlags::INLINE),
            Err(e) => batch.refuse(e),
        });
    }
}

/// Begins a work request that is more than a SEND, or something else.
///
/// # Safety
/// As [`with_batch`].
unsafe fn begin_other(qp: *mut ibv_qp_ex, op: SendOp) {
    // SAFETY: the caller's promise.
    unsafe { begin(qp, |batch, wr_id, flags| batch.begin(wr_id, op, flags)) };
}

/// In a child that has inherited the queue pair: there is no batch, whatever a thread of the parent
/// was in the middle of.
///
/// # Safety
/// As [`with_batch`].
#[cold]
unsafe fn forget(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise. What another thread held is not dropped: it may be half of a
    // change.
    unsafe {
        if let Some(builder) = &qp::private(qp.cast()).builder {
            builder.held.get().write(None);
        }
    }
}

/// `ibv_wr_start`: takes the lock and empties the batch.
unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: a live extended queue pair is a queue pair.
    if unsafe { is_of_other_process(qp.cast::<ibv_qp>()) } {
        // SAFETY: a live extended queue pair. No other thread of this child uses the builder:
        // nothing is held from here on.
        return unsafe { forget(qp) };
    }
    // SAFETY: a live extended queue pair, which stays where it is.
    unsafe {
        if let Some(builder) = &qp::private(qp.cast()).builder {
            builder.hold();
        }
        with_batch(qp, |_, batch| batch.clear());
    }
}

/// Releases what `wr_start` took.
///
/// # Safety
/// As [`with_batch`].
#[inline]
unsafe fn unlock(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(builder) = &qp::private(qp.cast()).builder {
            builder.let_go();
        }
    }
}

/// `ibv_wr_complete`: posts the batch, or nothing of it.
unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: a live extended queue pair is a queue pair.
    if unsafe { is_of_other_process(qp.cast::<ibv_qp>()) } {
        return Refusal::inherited();
    }
    let mut posted = Ok(());
    // SAFETY: a live extended queue pair, between start and complete.
    unsafe {
        with_batch(qp, |private, batch| posted = batch.post(private.nic()));
        unlock(qp);
    }
    result_as_errno("ibv_wr_complete", posted)
}

/// `ibv_wr_abort`: forgets the batch.
unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: a live extended queue pair, between start and abort. The next `wr_start` empties the
    // batch.
    unsafe { unlock(qp) };
}
