//! Locks and atomics that the model checker has of its own (`model.rs`).

pub(super) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};

pub(super) use ferroce_os::lock::{Lock, LockGuard};
