//! The process's lock around the streams that a listener's processes share.
//!
//! It is held across `fork`, so that no child gets descriptors that a thread of its parent was
//! about to put elsewhere.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::signals::{self, Blocked};

const FREE: u32 = 0;
const HELD: u32 = 1;

static LOCK: AtomicU32 = AtomicU32::new(FREE);

fn acquire() {
    while LOCK
        .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        // SAFETY: waits while the word has that value; no timeout.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                LOCK.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                HELD,
                std::ptr::null::<libc::timespec>(),
            )
        };
    }
}

fn release() {
    LOCK.store(FREE, Ordering::Release);
    // SAFETY: wakes threads that wait for the word.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            LOCK.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
}

/// The lock, held. No signal handler of this thread runs meanwhile: it could call what waits for
/// the lock.
#[derive(Debug)]
pub(crate) struct Held {
    _signals: Blocked,
}

/// Waits for the lock.
pub(crate) fn hold() -> Held {
    let signals = signals::block();
    acquire();
    Held { _signals: signals }
}

impl Drop for Held {
    fn drop(&mut self) {
        release();
    }
}

extern "C" fn prepare() {
    acquire();
    // The child has copies of the sockets whose `connect` is under way.
    crate::offers::decide_all();
}

extern "C" fn after() {
    crate::table::forked();
    release();
}

/// Has `fork` hold the lock, from the first call on.
pub(crate) fn watch_fork() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: functions that stay as long as this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(prepare), Some(after), Some(after)) };
    });
}
