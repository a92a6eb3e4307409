//! Signals, kept away from this thread while both ends of a connection agree, and while it looks.
//!
//! A handler that leaves by `longjmp` would leave the agreement half done, and one that calls
//! `connect` would wait for the lock that its own thread holds. One that runs during a look would
//! leave the call asleep that it is to end.

use ferroce_os::waiter::restarts;

/// The kernel's set of signals.
pub(crate) type Set = u64;

/// This thread gets no signals until the value is dropped.
#[derive(Debug)]
pub(crate) struct Blocked {
    before: Set,
}

fn change(how: libc::c_int, new: Set) -> Set {
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
fn each(set: Set) -> impl Iterator<Item = libc::c_int> {
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
