//! The process's lock around the streams that a listener's processes share.
//!
//! It is held across `fork`, so that no child gets descriptors that a thread of its parent was
//! about to put elsewhere.
//!
//! Invariant: a value in a `OnceLock` of this library is made while the lock is held.
//! Enforced by: `rules::is_on`, which makes them all, and which the users of the values ask first.
//! If broken: a child of `fork` waits for ever for a thread that it does not have.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::errno;
use crate::signals::{self, Blocked};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may wait for it.
const AWAITED: u32 = 2;

static LOCK: AtomicU32 = AtomicU32::new(FREE);
/// The thread that holds the lock for `fork`, in the parent and in the child; 0 if none does.
static FORKING: AtomicUsize = AtomicUsize::new(0);
/// Signals that this thread had blocked before. Used by the thread that holds the lock.
static BEFORE: AtomicU64 = AtomicU64::new(0);

/// This thread by the address of its `errno`: its copy in a child of `fork` has the same one.
fn own_thread() -> usize {
    // SAFETY: takes no pointers.
    unsafe { libc::__errno_location() }.addr()
}

fn acquire() {
    let free = LOCK.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
    if free.is_ok() {
        return;
    }
    // A thread that has waited does not know whether it was the only one.
    while LOCK.swap(AWAITED, Ordering::Acquire) != FREE {
        // SAFETY: waits while the word has that value; no timeout.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                LOCK.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                AWAITED,
                std::ptr::null::<libc::timespec>(),
            )
        };
    }
}

fn release() {
    if LOCK.swap(FREE, Ordering::Release) != AWAITED {
        return;
    }
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
    /// False if the thread holds it for `fork` already.
    releases: bool,
    /// None if the caller has blocked them.
    _signals: Option<Blocked>,
}

/// Waits for the lock. Another library's function that `fork` runs may call ours: it passes.
pub(crate) fn hold() -> Held {
    let signals = signals::block();
    let releases = enter();
    Held {
        releases,
        _signals: Some(signals),
    }
}

/// As [`hold`], for a thread that has blocked its signals for longer.
pub(crate) fn hold_within(_signals: &Blocked) -> Held {
    let releases = enter();
    Held {
        releases,
        _signals: None,
    }
}

/// Takes the lock, unless the thread has it for `fork`. Returns whether it did.
fn enter() -> bool {
    let takes = FORKING.load(Ordering::Relaxed) != own_thread();
    if takes {
        acquire();
    }
    takes
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.releases {
            release();
        }
    }
}

extern "C" fn prepare() {
    let signals = signals::block();
    errno::kept(|| {
        acquire();
        // The child has copies of the sockets whose `connect` is under way.
        crate::offers::decide_all();
    });
    FORKING.store(own_thread(), Ordering::Relaxed);
    BEFORE.store(signals.keep(), Ordering::Relaxed);
}

extern "C" fn after() {
    crate::table::forked();
    FORKING.store(0, Ordering::Relaxed);
    let before = BEFORE.load(Ordering::Relaxed);
    release();
    signals::restore(before);
}

extern "C" fn loaded() {
    // A child of `vfork` that came first would make the table its own.
    crate::table::is_own();
    // Before a signal handler calls one.
    crate::hooks::find_all();
    // SAFETY: functions that stay as long as this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(prepare), Some(after), Some(after)) };
}

/// Has the loader call `loaded`. At a later time another thread could fork while the handlers are
/// registered. Handlers of libraries that are loaded later run while the lock is free.
#[used]
// SAFETY: the loader calls the functions of this section without arguments that matter.
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;
