//! Work requests in C's two forms, and how one or a chain of them is handed over.

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use ferroce_abi::types::{ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge};
use smallvec::SmallVec;

use super::super::{OpenDevice, QueuePairHandle};
use crate::Error;

/// `struct ibv_send_wr` or `struct ibv_recv_wr`.
pub(in crate::sys) trait WorkRequest: Sized {
    /// Sets what points elsewhere: to the next one of the chain, and to the pieces of memory.
    fn link(&mut self, next: *mut Self, first: *mut ibv_sge, count: usize);
}

macro_rules! work_request {
    ($form:ty) => {
        impl WorkRequest for $form {
            #[inline(always)]
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_possible_wrap,
                reason = "checked against the queue's limit"
            )]
            fn link(&mut self, next: *mut Self, first: *mut ibv_sge, count: usize) {
                self.next = next;
                self.num_sge = count as c_int;
                self.sg_list = first;
            }
        }
    };
}

work_request!(ibv_send_wr);
work_request!(ibv_recv_wr);

/// C's list of the pieces of memory of a work request of a chain. Few need more than these, and
/// only they allocate.
pub(in crate::sys) type Elements = SmallVec<[ibv_sge; 4]>;

/// Work that was taken note of: its `wr_id`, its form, and its pieces of memory.
pub(in crate::sys) type Noted<W> = (u64, W, Elements);

/// Several of them.
pub(in crate::sys) type Chain<W> = SmallVec<[Noted<W>; 4]>;

/// `ibv_post_send`, `ibv_post_recv` or `ibv_post_srq_recv`, as a context has it.
pub(in crate::sys) type Operation<Q, W> =
    unsafe extern "C" fn(*mut Q, *mut W, *mut *mut W) -> c_int;

/// The operation that a context has, or one that refuses everything.
pub(in crate::sys) fn of_context<Q, W>(operation: Option<Operation<Q, W>>) -> Operation<Q, W> {
    unsafe extern "C" fn missing<Q, W>(_: *mut Q, first: *mut W, bad: *mut *mut W) -> c_int {
        // SAFETY: the caller's place for the one that was refused.
        unsafe { *bad = first };
        libc::EOPNOTSUPP
    }
    operation.unwrap_or(missing)
}

/// What a queue pair has of its context, so that it need not be looked for with every work request.
pub(in crate::sys) struct Operations {
    send: Operation<ibv_qp, ibv_send_wr>,
    receive: Operation<ibv_qp, ibv_recv_wr>,
}

impl Operations {
    pub(in crate::sys) fn of(device: &OpenDevice) -> Self {
        // SAFETY: an open context has its operations filled in, and does not change them.
        let operations = unsafe { &(*device.raw.as_ptr()).ops };
        Self {
            send: of_context(operations.post_send),
            receive: of_context(operations.post_recv),
        }
    }
}

/// A queue to which C posts work requests of a form.
///
/// # Safety
/// `raw` lives as long as the object, and `operation` is of the context that it was made from.
pub(in crate::sys) unsafe trait Takes<W: WorkRequest> {
    /// C's structure.
    type Raw;
    /// The name of the operation.
    const CALL: &'static str;

    /// C's object, and the operation.
    fn target(&self) -> (NonNull<Self::Raw>, Operation<Self::Raw, W>);
    /// An error of posting, with what may stand in the way.
    fn explain(&self, error: Error) -> Error;

    /// Calls C: its errno, or 0. `bad` comes to be the first one that was not posted.
    ///
    /// # Safety
    /// The chain is linked to its end, and the memory of its pieces lives until its completions.
    #[inline(always)]
    unsafe fn call(&self, first: *mut W, bad: &mut *mut W) -> c_int {
        let (raw, operation) = self.target();
        // SAFETY: the operation is of the context of the live queue; the rest is the caller's
        // promise.
        unsafe { operation(raw.as_ptr(), first, bad) }
    }

    /// What C's errno of a call means.
    #[cold]
    fn refused(&self, errno: c_int) -> Error {
        self.explain(Error::errno(Self::CALL, errno))
    }
}

/// Posts a chain, whose memory is held until its completions, in order: how many were posted, and
/// why the next one was not.
pub(in crate::sys) fn post_all<W: WorkRequest>(
    queue: &impl Takes<W>,
    chain: &mut [Noted<W>],
) -> (usize, Option<Error>) {
    // Linked from the end on; from here on nothing moves.
    let mut next: *mut W = ptr::null_mut();
    for (_, form, elements) in chain.iter_mut().rev() {
        form.link(next, elements.as_mut_ptr(), elements.len());
        next = form;
    }
    if next.is_null() {
        return (0, None);
    }
    let mut bad = ptr::null_mut();
    // SAFETY: linked to its end; `chain` holds each form and its elements during the call.
    let errno = unsafe { queue.call(next, &mut bad) };
    if errno == 0 {
        return (chain.len(), None);
    }
    // C names the one that it refused. If it did not, the device might work on any of them: all
    // stay held.
    let refused = chain.iter().position(|(_, form, _)| ptr::eq(form, bad));
    (refused.unwrap_or(chain.len()), Some(queue.refused(errno)))
}

// SAFETY: the queue pair lives until this is dropped, and its operations are of its context.
unsafe impl Takes<ibv_send_wr> for QueuePairHandle {
    type Raw = ibv_qp;
    const CALL: &'static str = "ibv_post_send";

    #[inline(always)]
    fn target(&self) -> (NonNull<ibv_qp>, Operation<ibv_qp, ibv_send_wr>) {
        (self.raw, self.operations.send)
    }

    fn explain(&self, error: Error) -> Error {
        self.explain_post(error, "send")
    }
}

// SAFETY: the queue pair lives until this is dropped, and its operations are of its context.
unsafe impl Takes<ibv_recv_wr> for QueuePairHandle {
    type Raw = ibv_qp;
    const CALL: &'static str = "ibv_post_recv";

    #[inline(always)]
    fn target(&self) -> (NonNull<ibv_qp>, Operation<ibv_qp, ibv_recv_wr>) {
        (self.raw, self.operations.receive)
    }

    fn explain(&self, error: Error) -> Error {
        self.explain_post(error, "receive")
    }
}
