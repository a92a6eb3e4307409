//! A thread of the program that waits for several descriptors at once, as if in `read(2)` on one.
//!
//! A signal handler that was installed with `SA_RESTART` lets `read` go on, another one ends it
//! with EINTR (signal(7)). `ppoll(2)` always ends with EINTR, and does not say which signal it was.
//! So signals are held off while the thread waits, a `signalfd(2)` ends the wait for them, and what
//! their handlers were installed with is looked up before they are delivered.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::time::Duration;

use crate::fd::Fd;
use crate::sys::{check, raw_fd};

/// Bytes of a set of signals in the kernel.
const KERNEL_SET: usize = 8;

/// Signals that the thread itself causes: held off, they would end the process.
pub const FAULTS: [c_int; 7] = [
    libc::SIGSYS,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
];

/// Why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The descriptors that are readable; none if the time is over, or a signal came that ends
    /// nothing.
    Ready([bool; 3]),
    /// A signal came whose handler ends a blocking call (EINTR).
    Interrupted,
}

/// What waiting threads need to see signals.
#[derive(Debug)]
pub struct SignalWatch {
    signals: Fd,
}

impl SignalWatch {
    /// Makes one.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM; what a sandbox answers to `signalfd4(2)`.
    pub fn new() -> io::Result<Self> {
        let all = held_off();
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set is initialised, and the kernel reads its first 8 bytes.
        let raw = check(unsafe {
            libc::syscall(libc::SYS_signalfd4, -1, &raw const all, KERNEL_SET, flags)
        })?;
        Ok(Self {
            signals: Fd::internal(raw_fd(raw)),
        })
    }

    /// Waits until one of the descriptors is readable, for `timeout` at most (`None`: without end),
    /// or until a signal comes. Returns early now and then.
    ///
    /// `on_end` is called when the wait is over, before handlers of signals run: they may leave by
    /// a jump. It is told whether the thread was cancelled, and then runs in its last moments.
    ///
    /// This is a cancellation point. The caller must not own anything that is to be given back but
    /// by `on_end`.
    #[must_use]
    pub fn wait(&self, fds: [RawFd; 3], timeout: Option<Duration>, on_end: &dyn Fn(bool)) -> Woken {
        let before = hold_off();
        let own = without_blocked(&before);
        let end = |is_cancelled| {
            if let Some(own) = own {
                // SAFETY: a descriptor of this call only, which is not used after.
                unsafe { libc::syscall(libc::SYS_close, own) };
            }
            on_end(is_cancelled);
        };
        let on_end: &dyn Fn(bool) = &end;
        let [a, b, c] = fds.map(entry);
        let signals = own.unwrap_or_else(|| self.signals.as_raw_fd());
        let mut entries = [a, b, c, entry(signals)];
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let count = entries.len() as libc::nfds_t;
        let mut cleanup = MaybeUninit::<Cleanup>::uninit();
        // SAFETY: that many live entries; the time is live, or there is none; no signal mask. The
        // buffer stays in its place until it is popped, and the closure lives as long.
        let ready = unsafe {
            _pthread_cleanup_push(cleanup.as_mut_ptr(), call, (&raw const on_end).cast());
            let ready = libc::ppoll(entries.as_mut_ptr(), count, timeout, ptr::null());
            _pthread_cleanup_pop(cleanup.as_mut_ptr(), 0);
            ready
        };
        on_end(false);
        // `errno` is not asked for: an error is that a thread was to be cancelled and cannot be.
        let interrupted = ready > 0 && entries[3].revents != 0 && interrupts(&before);
        restore(&before);
        if interrupted {
            return Woken::Interrupted;
        }
        let is_ready = |entry: &libc::pollfd| ready > 0 && entry.revents != 0;
        let [a, b, c, _] = entries.each_ref().map(is_ready);
        Woken::Ready([a, b, c])
    }
}

/// What the C library notes of a cleanup: 32 bytes in glibc, 24 in musl.
#[repr(C)]
struct Cleanup([usize; 4]);

unsafe extern "C" {
    // What `pthread_cleanup_push(3)` and `pthread_cleanup_pop(3)` expand to in musl, and in glibc
    // for binaries that were made before it had exceptions.
    fn _pthread_cleanup_push(
        buffer: *mut Cleanup,
        routine: unsafe extern "C" fn(*const c_void),
        argument: *const c_void,
    );
    fn _pthread_cleanup_pop(buffer: *mut Cleanup, execute: c_int);
}

/// Calls the closure of a wait that a cancellation has ended.
unsafe extern "C" fn call(on_end: *const c_void) {
    // SAFETY: the argument that `wait` has given, whose frame is still there.
    let on_end = unsafe { *on_end.cast::<&dyn Fn(bool)>() };
    on_end(true);
}

fn entry(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// The signals that are held off while a thread waits. The C library takes out those by which it
/// cancels threads.
fn held_off() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` initialises the set, and fails for no live one; the others change it.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        all.assume_init()
    }
}

/// Holds signals off. Returns the mask of before.
fn hold_off() -> libc::sigset_t {
    let all = held_off();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are live; `before` is written, since the first argument is a valid one.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, before.as_mut_ptr());
        before.assume_init()
    }
}

/// A signal that the program itself holds off may wait already, and would end each wait at once: a
/// descriptor for the other signals then (-1, which is never ready, if there is none to be had).
fn without_blocked(before: &libc::sigset_t) -> Option<RawFd> {
    let has = |set: &libc::sigset_t, signal| {
        // SAFETY: an initialised set, and the number of a signal.
        unsafe { libc::sigismember(set, signal) == 1 }
    };
    let blocked = || (1..=libc::SIGRTMAX()).filter(|signal| has(before, *signal));
    blocked().next()?;
    let pending = pending();
    blocked().find(|signal| has(&pending, *signal))?;
    let mut others = held_off();
    for signal in blocked() {
        // SAFETY: an initialised set, and the number of a signal.
        unsafe { libc::sigdelset(&raw mut others, signal) };
    }
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the set is initialised, and the kernel reads its first 8 bytes.
    let raw = unsafe {
        libc::syscall(
            libc::SYS_signalfd4,
            -1,
            &raw const others,
            KERNEL_SET,
            flags,
        )
    };
    Some(check(raw).map_or(-1, raw_fd))
}

/// The signals that wait to be delivered to this thread.
fn pending() -> libc::sigset_t {
    let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is written if the call does not fail, and it does not for a live one.
    unsafe {
        libc::sigpending(pending.as_mut_ptr());
        pending.assume_init()
    }
}

/// Signals are delivered again, those that have come meanwhile at once.
fn restore(before: &libc::sigset_t) {
    // SAFETY: an initialised set, and no place for the old one.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

/// Whether a signal that waits to be delivered has a handler that ends blocking calls.
fn interrupts(before: &libc::sigset_t) -> bool {
    let pending = pending();
    // SAFETY: both sets are initialised, and the numbers are those of signals.
    let comes = |signal: &c_int| unsafe {
        libc::sigismember(&raw const pending, *signal) == 1
            && libc::sigismember(before, *signal) == 0
    };
    (1..=libc::SIGRTMAX()).filter(comes).any(ends_calls)
}

/// Whether a signal has a handler, and one without `SA_RESTART`.
fn ends_calls(signal: c_int) -> bool {
    restarts(signal) == Some(false)
}

/// Whether calls go on behind a signal's handler (`SA_RESTART`). `None`: it has no handler.
#[must_use]
pub fn restarts(signal: c_int) -> Option<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is given; the old one is written, and all zeroes are a valid one.
    let action = unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    let has_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
    has_handler.then_some(action.sa_flags & libc::SA_RESTART != 0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::eventfd::EventFd;
    use crate::thread;

    const NOTHING: Woken = Woken::Ready([false; 3]);

    static CAUGHT: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn catch(_signal: c_int) {
        CAUGHT.fetch_add(1, Ordering::SeqCst);
    }

    fn install(signal: c_int, flags: c_int) {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all zeroes are a valid action; the handler does nothing that handlers must not.
        unsafe {
            let action = action.assume_init_mut();
            action.sa_sigaction = catch as *const () as usize;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(signal, action, ptr::null_mut()), 0);
        }
    }

    /// Sends a signal to a thread of this process.
    fn send(thread: i32, signal: c_int) {
        // SAFETY: takes no pointers.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
        assert_eq!(sent, 0);
    }

    /// What a wait says of a signal that comes during it: sent while signals are held off, it is
    /// delivered in the wait.
    fn woken_by(waiter: &SignalWatch, signal: c_int) -> (Woken, usize) {
        let quiet = EventFd::counter().unwrap();
        let (own, caught) = (thread::number(), CAUGHT.load(Ordering::SeqCst));
        std::thread::spawn(move || {
            while !is_waiting(own) {
                std::thread::yield_now();
            }
            send(own, signal);
        });
        let woken = waiter.wait([quiet.as_raw_fd(); 3], None, &|_| ());
        (woken, CAUGHT.load(Ordering::SeqCst) - caught)
    }

    /// Whether a thread of this process is in `ppoll(2)`.
    fn is_waiting(thread: i32) -> bool {
        let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
        call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_ppoll)))
    }

    #[test]
    fn a_handler_ends_the_wait_as_it_would_end_a_read() {
        let waiter = SignalWatch::new().unwrap();
        install(libc::SIGUSR1, 0);
        install(libc::SIGUSR2, libc::SA_RESTART);
        assert_eq!(woken_by(&waiter, libc::SIGUSR1), (Woken::Interrupted, 1));
        assert_eq!(woken_by(&waiter, libc::SIGUSR2), (NOTHING, 1));
        // Ignored by default.
        assert_eq!(woken_by(&waiter, libc::SIGCHLD), (NOTHING, 0));
    }

    #[test]
    fn a_descriptor_or_the_time_ends_the_wait() {
        let (waiter, bell) = (SignalWatch::new().unwrap(), EventFd::counter().unwrap());
        let quiet = EventFd::counter().unwrap();
        let fds = [&quiet, &bell, &quiet].map(AsRawFd::as_raw_fd);
        let short = Some(Duration::from_micros(10));
        assert_eq!(waiter.wait(fds, short, &|_| ()), NOTHING);
        bell.add(1).unwrap();
        assert_eq!(
            waiter.wait(fds, None, &|_| ()),
            Woken::Ready([false, true, false])
        );
    }

    #[test]
    fn a_signal_that_the_program_holds_off_does_not_end_the_wait() {
        let (waiter, quiet) = (SignalWatch::new().unwrap(), EventFd::counter().unwrap());
        let before = hold_off();
        send(thread::number(), libc::SIGWINCH);
        let (began, time) = (Instant::now(), Duration::from_millis(20));
        let woken = waiter.wait([quiet.as_raw_fd(); 3], Some(time), &|_| ());
        assert_eq!(woken, NOTHING);
        assert!(began.elapsed() >= time);
        restore(&before);
    }
}
