//! The builders of `ibv_wr_post(3)`.

mod operations;
mod setters;

use std::cell::UnsafeCell;
use std::ffi::c_int;

use ferroce_nic::Error;
use ferroce_proto::verbs::{Payload, SendFlags, SendOp, SendTo, SendWr, Sges};
use libc::pthread_mutex_t;

use self::operations::*;
use self::setters::*;
use super::qp::{self, QpPrivate};
use super::wr::send_flags;
use crate::errno::{invalid, result_as_errno};
use crate::types::ibv_qp_ex;

pub(super) use self::operations::wr_flush;

const NOTHING_BEGUN: &str = "a setter needs a work request begun before";

/// State of one queue pair's builders.
pub(crate) struct Builder {
    /// Held from `wr_start` to `wr_complete` or `wr_abort`: other threads wait. A C mutex, since its guard spans calls.
    lock: UnsafeCell<pthread_mutex_t>,
    /// Used only while the lock is held.
    batch: UnsafeCell<Batch>,
}

/// Work requests under construction.
#[derive(Default)]
struct Batch {
    wrs: Vec<SendWr>,
    /// The first mistake; it voids the batch.
    refused: Option<Error>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            batch: UnsafeCell::default(),
        }
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
unsafe fn with_batch(qp: *mut ibv_qp_ex, work: impl FnOnce(&QpPrivate, &mut Batch)) {
    // SAFETY: an extended queue pair is a queue pair.
    let private = unsafe { qp::private(qp.cast()) };
    if let Some(builder) = &private.builder {
        // SAFETY: the lock that `wr_start` took makes the access exclusive.
        work(private, unsafe { &mut *builder.batch.get() });
    }
}

impl Batch {
    /// Notes the first mistake.
    fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
    }

    /// Gives the work request that was begun last its receiver.
    fn set_receiver(&mut self, to: SendTo) {
        match self.wrs.last_mut() {
            Some(wr) => wr.to = to,
            None => self.refuse(invalid(NOTHING_BEGUN)),
        }
    }

    /// Gives the work request that was begun last its data.
    fn set_payload(&mut self, payload: Result<Payload, Error>) {
        match (payload, self.wrs.last_mut()) {
            (Ok(payload), Some(wr)) => wr.payload = payload,
            (Ok(_), None) => self.refuse(invalid(NOTHING_BEGUN)),
            (Err(e), _) => self.refuse(e),
        }
    }
}

/// Begins a work request.
///
/// # Safety
/// As [`with_batch`].
unsafe fn begin(qp: *mut ibv_qp_ex, op: SendOp) {
    // SAFETY: the caller's promise.
    unsafe {
        let (wr_id, bits) = ((*qp).wr_id, (*qp).wr_flags);
        with_batch(qp, |_, batch| match send_flags(bits) {
            Ok(flags) => batch.wrs.push(SendWr {
                to: SendTo::Peer,
                wr_id,
                op,
                flags: flags - SendFlags::INLINE,
                payload: Payload::Sges(Sges::new()),
            }),
            Err(e) => batch.refuse(e),
        });
    }
}

/// `ibv_wr_start`: takes the lock and empties the batch.
unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: a live extended queue pair; its mutex lives as long.
    unsafe {
        if let Some(builder) = &qp::private(qp.cast()).builder {
            libc::pthread_mutex_lock(builder.lock.get());
        }
        with_batch(qp, |_, batch| {
            batch.wrs.clear();
            batch.refused = None;
        });
    }
}

/// Releases what `wr_start` took.
///
/// # Safety
/// As [`with_batch`].
unsafe fn unlock(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(builder) = &qp::private(qp.cast()).builder {
            libc::pthread_mutex_unlock(builder.lock.get());
        }
    }
}

/// `ibv_wr_complete`: posts the batch, or nothing of it.
unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let mut posted = Ok(());
    // SAFETY: a live extended queue pair, between start and complete.
    unsafe {
        with_batch(qp, |private, batch| {
            posted = match batch.refused.take() {
                Some(e) => Err(e),
                None => private.nic().post_send_all(&mut batch.wrs),
            };
        });
        unlock(qp);
    }
    result_as_errno("ibv_wr_complete", posted)
}

/// `ibv_wr_abort`: forgets the batch.
unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: a live extended queue pair, between start and abort. The next `wr_start` empties the batch.
    unsafe { unlock(qp) };
}
