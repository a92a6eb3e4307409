//! Signals, kept away from this thread while both ends of a connection agree, and while it looks.
//!
//! A handler that leaves by `longjmp` would leave the agreement half done, and one that calls
//! `connect` would wait for the lock that its own thread holds. One that runs during a look would
//! leave the call asleep that it is to end.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_os::waiter::{FAULTS, restarts};

/// The kernel's set of signals.
pub(crate) type Set = u64;

/// Whether a signal has had a handler that other threads than the intended one could run.
static HANDLED: AtomicBool = AtomicBool::new(false);

/// Notes that a signal is about to get a handler. A fault's runs in the thread that causes it.
pub(crate) fn note_handler(signal: c_int) {
    if !FAULTS.contains(&signal) {
        HANDLED.store(true, Ordering::Release);
    }
}

/// Whether this value of `sa_handler` is a function.
pub(crate) const fn is_handler(handler: libc::sighandler_t) -> bool {
    !matches!(handler, libc::SIG_DFL | libc::SIG_IGN)
}

/// Notes the handlers that are there already.
pub(crate) fn find_handlers() {
    let has_handler = |signal: &c_int| restarts(*signal).is_some();
    (1..=libc::SIGRTMAX())
        .filter(has_handler)
        .for_each(note_handler);
}

/// Whether any signal has a handler, or has had one.
pub(crate) fn have_handlers() -> bool {
    HANDLED.load(Ordering::Acquire)
}

/// Forgets the handlers, for a test of the first one.
#[cfg(test)]
pub(crate) fn forget_handlers() {
    HANDLED.store(false, Ordering::Release);
}

/// This thread gets no signals until the value is dropped.
#[derive(Debug)]
pub(crate) struct Blocked {
    before: Set,
}

fn change(how: c_int, new: Set) -> Set {
    let mut before: Set = 0;
    // SAFETY: two sets of the length that is said. No error is possible then.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const new,
            &raw mut before,
            size_of::<Set>(),
        )
    };
    before
}

/// Blocks all signals of this thread.
pub(crate) fn block() -> Blocked {
    let before = change(libc::SIG_BLOCK, Set::MAX);
    Blocked { before }
}

/// The signals of a set.
fn each(set: Set) -> impl Iterator<Item = c_int> {
    (1..)
        .zip((0..Set::BITS).map(move |bit| set >> bit & 1))
        .filter_map(|(signal, has)| (has == 1).then_some(signal))
}

/// The signals that wait to be delivered to this thread.
fn pending() -> Set {
    let mut set: Set = 0;
    // SAFETY: a set of the length that is said. No error is possible then.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut set, size_of::<Set>()) };
    set
}

impl Blocked {
    /// Whether a signal has come that would have ended a call of this thread. `ends`: whether one
    /// does whose handler lets calls go on (`SA_RESTART`).
    pub(crate) fn ended(&self, ends: impl Fn() -> bool) -> bool {
        let due = pending() & !self.before;
        each(due).any(|signal| restarts(signal).is_some_and(|restarts| !restarts || ends()))
    }

    /// Leaves the signals blocked until `restore` gets what is returned.
    pub(crate) fn keep(self) -> Set {
        let before = self.before;
        std::mem::forget(self);
        before
    }
}

/// Has the thread get the signals that it got before.
pub(crate) fn restore(before: Set) {
    change(libc::SIG_SETMASK, before);
}

impl Drop for Blocked {
    fn drop(&mut self) {
        restore(self.before);
    }
}
