//! Work requests in C's two forms, and how a chain of them is handed over.

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use ferroce_abi::types::{ibv_recv_wr, ibv_send_wr};
use smallvec::SmallVec;

use super::super::work::Elements;
use crate::{Error, Result};

/// `struct ibv_send_wr` or `struct ibv_recv_wr`.
pub(in crate::sys) trait WorkRequest: Sized {
    /// Sets what points elsewhere: to the next one of the chain, and to the pieces of memory.
    fn link(&mut self, next: *mut Self, elements: &mut Elements);
}

macro_rules! work_request {
    ($form:ty) => {
        impl WorkRequest for $form {
            #[inline]
            fn link(&mut self, next: *mut Self, elements: &mut Elements) {
                self.next = next;
                self.sg_list = elements.as_mut_ptr();
                self.num_sge = c_int::try_from(elements.len())
                    .expect("invariant: checked against the queue's limit");
            }
        }
    };
}

work_request!(ibv_send_wr);
work_request!(ibv_recv_wr);

/// Work that was taken note of: its `wr_id`, its form, and its pieces of memory.
pub(in crate::sys) type Noted<W> = (u64, W, Elements);

/// Several of them.
pub(in crate::sys) type Chain<W> = SmallVec<[Noted<W>; 4]>;

/// Why a chain was refused, and from which one on.
pub(in crate::sys) type Stopped<W> = (Error, *mut W);

/// `ibv_post_send`, `ibv_post_recv` or `ibv_post_srq_recv`, as a context has it.
type Operation<Q, W> = Option<unsafe extern "C" fn(*mut Q, *mut W, *mut *mut W) -> c_int>;

/// Calls C.
///
/// # Safety
/// The operation is of the queue's context; the queue lives, and so does the memory of the chain until its completions.
#[inline]
pub(in crate::sys) unsafe fn call<Q, W>(
    name: &'static str,
    operation: Operation<Q, W>,
    queue: NonNull<Q>,
    first: *mut W,
) -> std::result::Result<(), Stopped<W>> {
    let Some(operation) = operation else {
        return Err((Error::errno(name, libc::EOPNOTSUPP), first));
    };
    let mut bad = ptr::null_mut();
    // SAFETY: the caller's promise.
    let errno = unsafe { operation(queue.as_ptr(), first, &raw mut bad) };
    Error::check(name, errno).map_err(|error| (error, bad))
}

/// Posts one.
#[inline]
pub(in crate::sys) fn post_one<W: WorkRequest>(
    form: &mut W,
    elements: &mut Elements,
    post: impl FnOnce(*mut W) -> std::result::Result<(), Stopped<W>>,
) -> Result<()> {
    form.link(ptr::null_mut(), elements);
    post(form).map_err(|(error, _)| error)
}

/// Posts a chain, in order: how many were posted, and why the next one was not.
pub(in crate::sys) fn post_all<W: WorkRequest>(
    chain: &mut [Noted<W>],
    post: impl FnOnce(*mut W) -> std::result::Result<(), Stopped<W>>,
) -> (usize, Option<Error>) {
    // Linked from the end on; from here on nothing moves.
    let mut next: *mut W = ptr::null_mut();
    for (_, form, elements) in chain.iter_mut().rev() {
        form.link(next, elements);
        next = form;
    }
    if next.is_null() {
        return (0, None);
    }
    let Err((error, bad)) = post(next) else {
        return (chain.len(), None);
    };
    // C names the one that it refused. If it did not, the device might work on any of them: all stay held.
    let refused = chain.iter().position(|(_, form, _)| ptr::eq(form, bad));
    (refused.unwrap_or(chain.len()), Some(error))
}
