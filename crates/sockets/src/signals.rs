//! Signals, kept away from this thread while both ends of a connection agree.
//!
//! A handler that leaves by `longjmp` would leave the agreement half done, and one that calls
//! `connect` would wait for the lock that its own thread holds.

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

impl Blocked {
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
