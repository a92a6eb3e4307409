//! Access to memory that may be unmapped under it: a few instructions whose faults are caught.
//!
//! The handler of SIGSEGV and SIGBUS looks whether the fault happened in one of them. If so, the
//! function returns "unmapped"; any other fault goes to the handler that was there before, or to
//! the default action. A program that puts its own handler in the place without passing on loses
//! this, and gets the SIGSEGV that it would get from its own access.

use ferroce_proto::mr::Unmapped;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::{compare_swap, copy, copy as copy_unordered, fetch_add, install};
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{compare_swap, copy, copy_unordered, fetch_add, install};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::mem::MaybeUninit;
    use std::sync::{Once, OnceLock};

    use libc::{c_int, c_void, sigaction, siginfo_t, ucontext_t};

    use super::Unmapped;

    // No function here has a stack frame, so a fault anywhere can go on at `ferroce_guarded_fault`.
    std::arch::global_asm!(
        ".p2align 5",
        ".hidden ferroce_guarded_begin",
        ".globl ferroce_guarded_begin",
        "ferroce_guarded_begin:",
        ".hidden ferroce_guarded_copy",
        ".globl ferroce_guarded_copy",
        "ferroce_guarded_copy:",
        // A word is what most short messages are.
        "cmp rdx, 8",
        "je 9f",
        "cmp rdx, 64",
        "jb 3f",
        "2: movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + 32]",
        "movups xmm3, [rsi + 48]",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + 32], xmm2",
        "movups [rdi + 48], xmm3",
        "add rsi, 64",
        "add rdi, 64",
        "sub rdx, 64",
        "cmp rdx, 64",
        "jae 2b",
        "3: cmp rdx, 16",
        "jb 4f",
        "8: movups xmm0, [rsi]",
        "movups [rdi], xmm0",
        "add rsi, 16",
        "add rdi, 16",
        "sub rdx, 16",
        "cmp rdx, 16",
        "jae 8b",
        "4: cmp rdx, 8",
        "jb 5f",
        "mov rax, [rsi]",
        "mov [rdi], rax",
        "add rsi, 8",
        "add rdi, 8",
        "sub rdx, 8",
        "5: test rdx, rdx",
        "jz 7f",
        "6: mov al, [rsi]",
        "mov [rdi], al",
        "inc rsi",
        "inc rdi",
        "dec rdx",
        "jnz 6b",
        "7: xor eax, eax",
        "ret",
        "9: mov rax, [rsi]",
        "mov [rdi], rax",
        "xor eax, eax",
        "ret",
        ".hidden ferroce_guarded_move",
        ".globl ferroce_guarded_move",
        "ferroce_guarded_move:",
        "mov rcx, rdx",
        "rep movsb",
        "xor eax, eax",
        "ret",
        ".hidden ferroce_guarded_compare_swap",
        ".globl ferroce_guarded_compare_swap",
        "ferroce_guarded_compare_swap:",
        "mov rax, rsi",
        "lock cmpxchg [rdi], rdx",
        "mov [rcx], rax",
        "xor eax, eax",
        "ret",
        ".hidden ferroce_guarded_fetch_add",
        ".globl ferroce_guarded_fetch_add",
        "ferroce_guarded_fetch_add:",
        "lock xadd [rdi], rsi",
        "mov [rdx], rsi",
        "xor eax, eax",
        "ret",
        ".hidden ferroce_guarded_fault",
        ".globl ferroce_guarded_fault",
        "ferroce_guarded_fault:",
        "mov eax, 1",
        "ret",
    );

    unsafe extern "C" {
        static ferroce_guarded_begin: u8;
        static ferroce_guarded_fault: u8;
        fn ferroce_guarded_copy(to: *mut u8, from: *const u8, len: usize) -> c_int;
        fn ferroce_guarded_move(to: *mut u8, from: *const u8, len: usize) -> c_int;
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
    pub(in super::super) unsafe fn copy(
        to: *mut u8,
        from: *const u8,
        len: usize,
    ) -> Result<(), Unmapped> {
        // SAFETY: the caller's promise; a fault in registered memory comes back as 1.
        outcome(unsafe { ferroce_guarded_copy(to, from, len) }, ())
    }

    /// Bytes from which on a string move is faster: it takes whole lines from other processors
    /// without reading what it is about to overwrite.
    const STRING_MOVE: usize = 1024;

    /// Copies `len` bytes, in any order.
    ///
    /// # Safety
    /// As [`copy`].
    #[inline]
    pub(in super::super) unsafe fn copy_unordered(
        to: *mut u8,
        from: *const u8,
        len: usize,
    ) -> Result<(), Unmapped> {
        if len < STRING_MOVE || !std::arch::is_x86_feature_detected!("ermsb") {
            // SAFETY: the caller's promise.
            return unsafe { copy(to, from, len) };
        }
        // SAFETY: the caller's promise; a fault in registered memory comes back as 1.
        outcome(unsafe { ferroce_guarded_move(to, from, len) }, ())
    }

    /// Compares and swaps a word of registered memory; gives the value before.
    ///
    /// # Safety
    /// `word` is registered memory.
    pub(in super::super) unsafe fn compare_swap(
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
    pub(in super::super) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Unmapped> {
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
    pub(in super::super) fn install() {
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
        let place = context.cast::<ucontext_t>();
        let (begin, fault) = (
            (&raw const ferroce_guarded_begin).expose_provenance() as u64,
            (&raw const ferroce_guarded_fault).expose_provenance() as u64,
        );
        // SAFETY: the kernel gives a valid context to a handler with SA_SIGINFO.
        let at = unsafe { &mut (*place).uc_mcontext.gregs[libc::REG_RIP as usize] };
        if (begin..fault).contains(&at.cast_unsigned()) {
            *at = fault.cast_signed();
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
}

#[cfg(not(target_arch = "x86_64"))]
mod portable {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::foreign;
    use super::Unmapped;

    /// The kernel copies: there is nothing to install.
    pub(in super::super) fn install() {}

    /// Copies `len` bytes.
    ///
    /// # Safety
    /// Of `to` and `from` one is registered memory, the other `len` bytes of the library's own;
    /// they do not overlap.
    #[inline]
    pub(in super::super) unsafe fn copy(
        to: *mut u8,
        from: *const u8,
        len: usize,
    ) -> Result<(), Unmapped> {
        // SAFETY: the caller's promise.
        unsafe { foreign::copy(to, from, len) }
    }

    /// Finds out whether a word is there and may be written.
    ///
    /// # Safety
    /// `word` is registered memory.
    unsafe fn probe(word: *mut u64) -> Result<(), Unmapped> {
        super::super::probe_range(word.expose_provenance() as u64, 8, true).map_err(|_| Unmapped)
    }

    /// Compares and swaps a word of registered memory; gives the value before.
    ///
    /// # Safety
    /// `word` is aligned registered memory.
    pub(in super::super) unsafe fn compare_swap(
        word: *mut u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64, Unmapped> {
        // SAFETY: the caller's promise, and it was there a moment ago.
        unsafe {
            probe(word)?;
            let word = AtomicU64::from_ptr(word);
            Ok(word
                .compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|old| old))
        }
    }

    /// Adds to a word of registered memory; gives the value before.
    ///
    /// # Safety
    /// `word` is aligned registered memory.
    pub(in super::super) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Unmapped> {
        // SAFETY: the caller's promise, and it was there a moment ago.
        unsafe {
            probe(word)?;
            Ok(AtomicU64::from_ptr(word).fetch_add(add, Ordering::SeqCst))
        }
    }
}
