//! `fork(2)`. Registered memory is not pinned and no hardware reads it, so there is nothing to
//! protect.

use std::ffi::c_int;

use libc::c_void;

use crate::types::IBV_FORK_UNNEEDED;

/// `ibv_fork_init(3)`.
pub unsafe extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `ibv_is_fork_initialized(3)`.
pub unsafe extern "C" fn ibv_is_fork_initialized() -> u32 {
    IBV_FORK_UNNEEDED
}

/// Keeps a range out of children. Nothing to do.
pub unsafe extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Undoes `ibv_dontfork_range`.
pub unsafe extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
