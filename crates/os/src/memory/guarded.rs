//! Access to memory that may be unmapped under it: a few instructions whose faults are caught.
//!
//! The handler of SIGSEGV and SIGBUS looks whether the fault happened in one of them. If so, the
//! function returns "unmapped"; any other fault goes to the handler that was there before, or to
//! the default action. A program that puts its own handler in the place without passing on loses
//! this, and gets the SIGSEGV that it would get from its own access.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::mem::MaybeUninit;
use std::sync::{Once, OnceLock};

use ferroce_proto::mr::Unmapped;
use libc::{c_int, c_void, sigaction, siginfo_t, ucontext_t};

#[cfg(target_arch = "aarch64")]
use aarch64 as processor;
#[cfg(target_arch = "x86_64")]
use x86_64 as processor;

pub(super) use processor::copy_unordered;

unsafe extern "C" {
    static ferroce_guarded_begin: u8;
    static ferroce_guarded_fault: u8;
    fn ferroce_guarded_copy(to: *mut u8, from: *const u8, len: usize) -> c_int;
    fn ferroce_guarded_compare_swap(
        word: *mut u64,
        compare: u64,
        swap: u64,
        old: *mut u64,
    ) -> c_int;
    fn ferroce_guarded_fetch_add(word: *mut u64, add: u64, old: *mut u64) -> c_int;
}

const fn outcome<T>(fault: c_int, value: T) -> Result<T, Unmapped>
where
    T: Copy,
{
    if fault == 0 { Ok(value) } else { Err(Unmapped) }
}

/// Copies `len` bytes, in order: aligned words as one, the rest byte by byte.
///
/// # Safety
/// Of `to` and `from` one is registered memory, the other `len` bytes of the library's own;
/// they do not overlap.
#[inline]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> Result<(), Unmapped> {
    // SAFETY: the caller's promise; a fault in registered memory comes back as 1.
    outcome(unsafe { ferroce_guarded_copy(to, from, len) }, ())
}

/// Compares and swaps a word of registered memory; gives the value before.
///
/// # Safety
/// `word` is registered memory.
pub(super) unsafe fn compare_swap(
    word: *mut u64,
    compare: u64,
    swap: u64,
) -> Result<u64, Unmapped> {
    let mut old = 0;
    // SAFETY: the caller's promise; a fault comes back as 1.
    let fault = unsafe { ferroce_guarded_compare_swap(word, compare, swap, &raw mut old) };
    outcome(fault, old)
}

/// Adds to a word of registered memory; gives the value before.
///
/// # Safety
/// `word` is registered memory.
pub(super) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Unmapped> {
    let mut old = 0;
    // SAFETY: the caller's promise; a fault comes back as 1.
    let fault = unsafe { ferroce_guarded_fetch_add(word, add, &raw mut old) };
    outcome(fault, old)
}

/// What was there before, by signal.
static BEFORE: [OnceLock<sigaction>; 2] = [OnceLock::new(), OnceLock::new()];

fn before(signal: c_int) -> &'static OnceLock<sigaction> {
    &BEFORE[usize::from(signal == libc::SIGBUS)]
}

/// Puts the handler in place, once per process.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // The coroutines of the model checker bring a handler that ends the program at faults
        // of other threads: it must not be the later one, which is asked first.
        #[cfg(test)]
        loom::model(|| ());
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            let mut old = MaybeUninit::<sigaction>::uninit();
            // SAFETY: a zeroed `sigaction` is a valid one; the calls only read and write these
            // structures, and the handler does nothing that a handler may not do.
            unsafe {
                let mut new: sigaction = std::mem::zeroed();
                new.sa_sigaction = on_fault as *const () as usize;
                new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
                libc::sigemptyset(&raw mut new.sa_mask);
                // First known, then replaced: the handler must find it.
                if sigaction(signal, std::ptr::null(), old.as_mut_ptr()) == 0 {
                    let _ = before(signal).set(old.assume_init());
                    sigaction(signal, &raw const new, std::ptr::null_mut());
                }
            }
        }
    });
}

/// The handler.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let (begin, fault) = (
        (&raw const ferroce_guarded_begin).expose_provenance() as u64,
        (&raw const ferroce_guarded_fault).expose_provenance() as u64,
    );
    // SAFETY: the kernel gives a valid context to a handler with SA_SIGINFO.
    let interrupted = unsafe { &mut *context.cast::<ucontext_t>() };
    if (begin..fault).contains(&processor::place(interrupted)) {
        processor::go_on_at(interrupted, fault);
        return;
    }
    // SAFETY: the handler's own arguments.
    unsafe { pass_on(signal, info, context) };
}

/// Lets the handler before deal with a fault that is not ours.
///
/// # Safety
/// The arguments of a signal handler, within it.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(old) = before(signal).get() else {
        return;
    };
    match old.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // The faulting instruction runs again and meets the action that there was; a signal
            // that was sent is sent on. SAFETY: restores what the kernel gave.
            unsafe {
                sigaction(signal, old, std::ptr::null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        handler if old.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
            // SAFETY: with SA_SIGINFO the field holds such a function.
            unsafe { std::mem::transmute::<usize, Handler>(handler)(signal, info, context) };
        }
        handler => {
            type Handler = unsafe extern "C" fn(c_int);
            // SAFETY: without SA_SIGINFO the field holds such a function.
            unsafe { std::mem::transmute::<usize, Handler>(handler)(signal) };
        }
    }
}
