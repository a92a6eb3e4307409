//! Calls that install a filter of system calls, and system calls by number.

use std::ffi::{c_int, c_long, c_ulong};

use super::close::closed;
use crate::next::hooks;
use crate::{filter, signals, table};

/// `SECCOMP_SET_MODE_STRICT` and `SECCOMP_SET_MODE_FILTER`; higher numbers ask.
const HIGHEST_MODE: c_ulong = 1;

hooks! {
    prctl: fn(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int, |next| {
        if option == libc::PR_SET_SECCOMP {
            filter::is_coming();
        }
        // SAFETY: what the program passed.
        unsafe { next()(option, a, b, c, d) }
    }

    // libseccomp calls seccomp(2) so, and libuv close(2). A sixth argument that was not passed is
    // read from the caller's stack or from a register, and goes where the kernel does not look.
    syscall: fn(
        number: c_long,
        a: c_ulong,
        b: c_ulong,
        c: c_ulong,
        d: c_ulong,
        e: c_ulong,
        f: c_ulong
    ) -> c_long, |next| {
        if number == libc::SYS_seccomp && a <= HIGHEST_MODE {
            filter::is_coming();
        }
        // The kernel reads a number of 32 bits.
        let first = ((a & 0xffff_ffff) as u32).cast_signed();
        if number == libc::SYS_rt_sigaction && b != 0 {
            signals::note_handler(first);
        }
        // SAFETY: what the program passed.
        let go = || unsafe { next()(number, a, b, c, d, e, f) };
        if number == libc::SYS_close && table::is_known(first) {
            return closed(first, go);
        }
        go()
    }
}
