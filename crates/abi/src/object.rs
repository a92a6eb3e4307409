//! Objects that a C program holds pointers to: the public C structure with this library's own part
//! behind it.
//!
//! ```text
//! *mut ibv_cq ──► ┌──────────────────────────┐
//!                 │ public: ibv_cq_ex        │  read by the program and by inline functions of the header
//!                 ├──────────────────────────┤
//!                 │ private: what Private is │  ours
//!                 └──────────────────────────┘
//! ```
//! A program may read and write the public part at any time from any thread, so no Rust reference
//! to it is ever made: it is accessed through the raw pointer.

use std::cell::UnsafeCell;
use std::ffi::c_int;

use ferroce_os::fork;

use crate::errno::set_errno;
use crate::types::ibv_context;

/// A C handle type that has an [`Object`] behind it.
pub(crate) trait Handle {
    /// The C structure at the start of the object: the handle's own type or one that starts with
    /// it.
    type Public;
    /// Fields of Ferroce's own behind the C structure.
    type Private;
}

/// Memory layout of an object.
#[repr(C)]
struct Object<P, Q> {
    public: UnsafeCell<P>,
    private: Q,
    /// Of the process that made it. See [`fork::generation`]. Last: of a device, what follows the
    /// structure must be 0.
    generation: usize,
}

/// Allocates an object; the pointer is the program's handle. [`take`] frees it.
pub(crate) fn create<H: Handle>(public: H::Public, private: H::Private) -> *mut H {
    Box::into_raw(Box::new(Object {
        public: UnsafeCell::new(public),
        private,
        generation: fork::generation(),
    }))
    .cast()
}

/// The library's part of an object.
///
/// # Safety
/// `handle` came from [`create`] and [`take`] was not called on it before the end of `'a`.
pub(crate) unsafe fn private<'a, H: Handle>(handle: *const H) -> &'a H::Private {
    // SAFETY: the caller gives a live object; `private` is only ever shared, and lies apart from
    // the public part.
    unsafe { &(*handle.cast::<Object<H::Public, H::Private>>()).private }
}

/// Frees an object and gives its private part back.
///
/// # Safety
/// `handle` came from [`create`] and nobody uses it any more.
pub(crate) unsafe fn take<H: Handle>(handle: *mut H) -> H::Private {
    // SAFETY: the caller hands the object over; it was made by `Box::into_raw` of this very type.
    unsafe { Box::from_raw(handle.cast::<Object<H::Public, H::Private>>()) }.private
}

/// An object that a child of `fork` may have inherited. It is no device's there: other threads of
/// the parent may have held its locks for ever, and its rings are not in the child's memory. So
/// calls refuse it before they look into it.
pub(crate) trait Inheritable {
    /// Whether another process made it. NULL was made by nobody.
    ///
    /// # Safety
    /// `this` is NULL or a live object.
    unsafe fn is_inherited(this: *const Self) -> bool;
}

impl<H: Handle> Inheritable for H {
    #[inline]
    unsafe fn is_inherited(this: *const Self) -> bool {
        // SAFETY: the caller's promise.
        !this.is_null() && unsafe { is_of_other_process(this) }
    }
}

/// Whether another process made an object. For calls that are made for each message: it costs a
/// look at a word and a comparison.
///
/// # Safety
/// As [`private`].
#[inline]
pub(crate) unsafe fn is_of_other_process<H: Handle>(handle: *const H) -> bool {
    // SAFETY: the caller gives a live object, whose generation never changes.
    let made_by = unsafe { (*handle.cast::<Object<H::Public, H::Private>>()).generation };
    !fork::is_current(made_by)
}

impl Inheritable for ibv_context {
    unsafe fn is_inherited(this: *const Self) -> bool {
        // SAFETY: the caller's promise.
        !this.is_null() && unsafe { !fork::is_current(crate::verbs::context_generation(this)) }
    }
}

/// How a call says that it refuses an inherited object. Without a line in the log: a thread of the
/// parent may hold the lock of that for ever.
pub(crate) trait Refusal {
    /// Of a function whose failures are an errno, for that; of others as in C.
    fn inherited() -> Self;
}

fn set_gone() {
    // A child of a bare `clone` learns here what it is.
    let _ = fork::generation();
    set_errno(libc::ENODEV);
}

impl Refusal for c_int {
    #[cold]
    fn inherited() -> Self {
        set_gone();
        libc::ENODEV
    }
}

impl<T> Refusal for *mut T {
    #[cold]
    fn inherited() -> Self {
        set_gone();
        std::ptr::null_mut()
    }
}

impl Refusal for () {
    #[cold]
    fn inherited() -> Self {
        set_gone();
    }
}

/// -1 for the functions that set `errno`, as those of librdmacm.
#[cold]
pub(crate) fn inherited_minus_one() -> c_int {
    set_gone();
    -1
}

/// Ends the calling function, if an object is inherited, with what it answers then.
macro_rules! refuse_inherited {
    ($handle:expr) => {
        $crate::object::refuse_inherited!($handle, $crate::object::Refusal::inherited())
    };
    ($handle:expr, $answer:expr) => {
        // SAFETY: a live object or NULL, as the program promises.
        if unsafe { $crate::object::Inheritable::is_inherited($handle) } {
            return $answer;
        }
    };
}

pub(crate) use refuse_inherited;
