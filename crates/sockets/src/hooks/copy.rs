//! Descriptors that are copied, watched, or handed on.

use std::ffi::{c_char, c_int, c_ulong, c_void};

use crate::count::{Reason, stays};
use crate::errno::kept;
use crate::listener;
use crate::next::hooks;
use crate::replace::copied;
use crate::table::{self, Kind, flag};

const FIOCLEX: c_ulong = 0x5451;
const FIONCLEX: c_ulong = 0x5450;
const FIONBIO: c_ulong = 0x5421;

/// An open file is about to get another number, an epoll set or a `FILE`. This comes before the
/// call, as the number's open file may change here.
fn spoil(fd: c_int) {
    if table::may_be_fresh(fd) && table::get(fd).kind == Kind::Fresh {
        kept(|| {
            table::spoil(fd);
            if table::get(fd).kind == Kind::Other {
                stays(Reason::Known);
            }
        });
    }
}

/// `to` is a new number of the open file of `from`.
fn copy(from: c_int, to: c_int) -> c_int {
    if to >= 0 && (table::is_known(from) || table::is_known(to)) {
        kept(|| {
            table::release(to);
            copied(from, to);
        });
    }
    to
}

/// `to` becomes a number of the open file of `from`, and is closed before.
fn copy_over(from: c_int, to: c_int, go: impl FnOnce() -> c_int) -> c_int {
    if from == to || !(table::is_known(from) || table::is_known(to)) {
        return go();
    }
    spoil(from);
    // If the call fails, `to` stays open: its `connect` must not be left half done.
    kept(|| table::spoil(to));
    copy(from, go())
}

/// A flag that `exec` heeds was set.
fn inherits(fd: c_int, flags: c_int) {
    if table::get(fd).kind == Kind::Listener {
        kept(|| listener::inherit_as(fd, flags));
    }
}

/// Whether receives sleep may have changed.
fn sleeps_anew(fd: c_int) {
    if table::is_stand_in(fd) {
        table::remove_flags(fd, flag::SLEEPS | flag::RETURNS);
    }
}

fn before(fd: c_int, command: c_int) {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        spoil(fd);
    }
}

fn controlled(fd: c_int, command: c_int, argument: *mut c_void, result: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copy(fd, result),
        libc::F_SETFD if result == 0 => {
            inherits(fd, c_int::try_from(argument.addr()).unwrap_or(0));
            result
        }
        libc::F_SETFL => {
            sleeps_anew(fd);
            result
        }
        _ => result,
    }
}

hooks! {
    dup: fn(fd: c_int) -> c_int, |next| {
        spoil(fd);
        // SAFETY: takes no pointers.
        copy(fd, unsafe { next()(fd) })
    }

    dup2: fn(from: c_int, to: c_int) -> c_int, |next| {
        // SAFETY: takes no pointers.
        copy_over(from, to, || unsafe { next()(from, to) })
    }

    dup3: fn(from: c_int, to: c_int, flags: c_int) -> c_int, |next| {
        // SAFETY: takes no pointers.
        copy_over(from, to, || unsafe { next()(from, to, flags) })
    }

    fcntl: fn(fd: c_int, command: c_int, argument: *mut c_void) -> c_int, |next| {
        before(fd, command);
        // SAFETY: what the program passed.
        let result = unsafe { next()(fd, command, argument) };
        controlled(fd, command, argument, result)
    }

    fcntl64: fn(fd: c_int, command: c_int, argument: *mut c_void) -> c_int, |next| {
        before(fd, command);
        // SAFETY: what the program passed.
        let result = unsafe { next()(fd, command, argument) };
        controlled(fd, command, argument, result)
    }

    // The C library reads and writes it by calls that ours do not stand in front of.
    fdopen: fn(fd: c_int, mode: *const c_char) -> *mut libc::FILE, |next| {
        spoil(fd);
        // SAFETY: what the program passed.
        unsafe { next()(fd, mode) }
    }

    ioctl: fn(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int, |next| {
        // SAFETY: what the program passed.
        let result = unsafe { next()(fd, request, argument) };
        match request {
            FIOCLEX if result == 0 => inherits(fd, libc::FD_CLOEXEC),
            FIONCLEX if result == 0 => inherits(fd, 0),
            FIONBIO => sleeps_anew(fd),
            _ => {}
        }
        result
    }

    epoll_ctl: fn(set: c_int, operation: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int, |next| {
        if operation == libc::EPOLL_CTL_ADD {
            spoil(fd);
        }
        // SAFETY: what the program passed.
        let result = unsafe { next()(set, operation, fd, event) };
        if result == 0 && operation != libc::EPOLL_CTL_MOD && table::is_stand_in(fd) {
            kept(|| table::watches(set, operation == libc::EPOLL_CTL_ADD));
        }
        result
    }
}
