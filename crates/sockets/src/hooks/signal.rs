//! Calls that give a signal a handler: a thread that looks leaves signals to others meanwhile.
//! `hooks/filter.rs` sees those that are made by `syscall(2)`. Not seen are system calls of the
//! program's own, and glibc's `sigvec`, `profil` and `monstartup`.

use std::ffi::c_int;

use libc::{sigaction as action, sighandler_t};

use crate::next::hooks;
use crate::signals;

/// Notes a handler before it is there.
fn handles(signal: c_int, handler: sighandler_t) {
    if signals::is_handler(handler) {
        signals::note_handler(signal);
    }
}

unsafe fn handles_by(signal: c_int, new: *const action) {
    if !new.is_null() {
        // SAFETY: not null, and the program's, as sigaction(2) asks. One that cannot be read ends
        // the program in the C library as well.
        handles(signal, unsafe { (*new).sa_sigaction });
    }
}

/// The hooks: of functions that take a `sigaction`, and of those that take a handler.
macro_rules! handler_hooks {
    (actions: $($by_action:ident)*; handlers: $($by_handler:ident)*;) => {
        hooks! {
            $(
                $by_action: fn(signal: c_int, new: *const action, old: *mut action) -> c_int,
                |next| {
                    // SAFETY: what the program passed.
                    unsafe {
                        handles_by(signal, new);
                        next()(signal, new, old)
                    }
                }
            )*
            $(
                $by_handler: fn(signal: c_int, handler: sighandler_t) -> sighandler_t, |next| {
                    handles(signal, handler);
                    // SAFETY: what the program passed.
                    unsafe { next()(signal, handler) }
                }
            )*
        }
    };
}

handler_hooks! {
    actions: sigaction __sigaction;
    handlers: signal ssignal bsd_signal sysv_signal __sysv_signal sigset;
}
