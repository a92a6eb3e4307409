//! Objects that a C program holds pointers to: the public C structure with this library's own part behind it.
//!
//! ```text
//! *mut ibv_cq ──► ┌──────────────────────────┐
//!                 │ public: ibv_cq_ex        │  read by the program and by inline functions of the header
//!                 ├──────────────────────────┤
//!                 │ private: what Private is │  ours
//!                 └──────────────────────────┘
//! ```
//! A program may read and write the public part at any time from any thread, so no Rust reference to it is ever made: it is
//! accessed through the raw pointer.

use std::cell::UnsafeCell;

/// A C handle type that has an [`Object`] behind it.
pub(crate) trait Handle {
    /// The C structure at the start of the object: the handle's own type or one that starts with it.
    type Public;
    /// What follows it.
    type Private;
}

/// Memory layout of an object.
#[repr(C)]
struct Object<P, Q> {
    public: UnsafeCell<P>,
    private: Q,
}

/// Allocates an object; the pointer is the program's handle. [`take`] frees it.
pub(crate) fn create<H: Handle>(public: H::Public, private: H::Private) -> *mut H {
    Box::into_raw(Box::new(Object {
        public: UnsafeCell::new(public),
        private,
    }))
    .cast()
}

/// The library's part of an object.
///
/// # Safety
/// `handle` came from [`create`] and [`take`] was not called on it before the end of `'a`.
pub(crate) unsafe fn private<'a, H: Handle>(handle: *const H) -> &'a H::Private {
    // SAFETY: the caller gives a live object; `private` is only ever shared, and lies apart from the public part.
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
