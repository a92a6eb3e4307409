//! Threads that take no signals, and calls that cannot be cancelled.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// `PTHREAD_CANCEL_DISABLE` of glibc and musl; the `libc` crate has neither it nor the function on
/// Linux.
const CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// Starts a thread with all signals blocked: signals meant for the program (timers, interrupts)
/// then always reach one of its own threads. The name shows in `/proc` (at most 15 bytes of it).
///
/// # Errors
/// EAGAIN at the limit of threads; EINVAL for a name with a NUL.
pub fn spawn_quiet<F, T>(name: &str, f: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    if name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // A new thread starts with the mask of its parent, so there is no moment at which it could take
    // a signal. SAFETY: `sigfillset` initialises `all` before it is read; `before` is written.
    // Neither call fails with these arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        // Faults of the thread itself are dealt with (`memory`); blocked they would end the
        // process.
        libc::sigdelset(all.as_mut_ptr(), libc::SIGSEGV);
        libc::sigdelset(all.as_mut_ptr(), libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let spawned = Builder::new().name(name.to_owned()).spawn(f);
    // SAFETY: `before` was initialised by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    spawned
}

/// The calling thread's number.
#[must_use]
pub fn number() -> i32 {
    // SAFETY: takes nothing.
    let number = unsafe { libc::syscall(libc::SYS_gettid) };
    i32::try_from(number).expect("invariant: the kernel's thread numbers are ints")
}

/// Whether a thread of this process, by its [`number`], has not ended.
#[must_use]
pub fn is_alive(number: i32) -> bool {
    // SAFETY: takes no pointers; signal 0 is none.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), number, 0) == 0 }
}

/// Runs `f` with `pthread_cancel` held off: a request takes effect only at a later cancellation
/// point. For calls into the C library or the standard library while anything is held that must be
/// given back. If `f` unwinds, cancellation stays off.
pub fn uncancellable<T>(f: impl FnOnce() -> T) -> T {
    let mut before = 0;
    // SAFETY: the pointer is to a live int, and the state is a valid one.
    unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
    let result = f();
    let mut ignored = 0;
    // SAFETY: the pointer is to a live int, and `before` is a state that the first call returned.
    unsafe { pthread_setcancelstate(before, &raw mut ignored) };
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(signal: c_int) -> bool {
        let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: with no new mask the call only writes the present one.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), mask.as_mut_ptr());
            libc::sigismember(mask.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn quiet_threads_block_signals_and_the_spawner_does_not() {
        let before = blocked(libc::SIGALRM);
        let there = spawn_quiet("quiet", || {
            [libc::SIGALRM, libc::SIGINT, libc::SIGTERM, libc::SIGUSR1]
                .into_iter()
                .all(blocked)
        });
        assert!(there.expect("spawned").join().expect("joined"));
        assert_eq!(blocked(libc::SIGALRM), before);
    }

    #[test]
    fn a_thread_is_alive_until_it_ends() {
        assert!(is_alive(number()));
        let ended = std::thread::spawn(number).join().expect("joined");
        // `join` returns a little before the kernel has forgotten the thread.
        while is_alive(ended) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_name_with_a_nul_is_an_error() {
        let refused = spawn_quiet("a\0b", || ()).expect_err("refused");
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn cancellation_can_be_held_off_twice() {
        assert_eq!(uncancellable(|| uncancellable(|| 7)), 7);
    }
}
