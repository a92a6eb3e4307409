//! Descriptors that are closed.

use std::ffi::{c_int, c_uint};

use crate::errno::kept;
use crate::next::hooks;
use crate::table::{self, Kind, flag};
use crate::{lock, offers, short};

/// Closes a descriptor of which something is known, by `go`.
pub(super) fn closed<R>(fd: c_int, go: impl FnOnce() -> R) -> R {
    kept(|| table::spoil(fd));
    let entry = table::take(fd);
    if entry.kind == Kind::StandIn {
        short::ended(fd);
    }
    // A reset comes before the stream's end; clients see a listener's queue gone before it.
    let first = entry.kind == Kind::Listener || entry.flags & flag::RESETS != 0;
    if first {
        kept(|| table::close_hidden(&entry));
    }
    let result = go();
    if !first {
        kept(|| table::close_hidden(&entry));
    }
    result
}

/// Decides about offers before numbers of theirs are closed.
fn decide_within(first: c_uint, last: c_uint) {
    if table::is_own() {
        offers::decide_within(first, last, &lock::hold());
    }
}

fn close_all(first: c_uint, last: c_uint) {
    for fd in table::known(first, last) {
        table::release(fd);
    }
}

hooks! {
    close: fn(fd: c_int) -> c_int, |next| {
        // SAFETY: takes no pointers.
        let go = || unsafe { next()(fd) };
        if table::is_known(fd) {
            return closed(fd, go);
        }
        go()
    }

    fclose: fn(file: *mut libc::FILE) -> c_int, |next| {
        // SAFETY: the program's file, open until the function behind is called.
        let go = || unsafe { next()(file) };
        if file.is_null() {
            return go();
        }
        // SAFETY: the program's file, open until the function behind is called.
        let fd = kept(|| unsafe { libc::fileno(file) });
        if table::is_known(fd) {
            return closed(fd, go);
        }
        go()
    }

    // Older C libraries lack the last two, and a program may see by these that it has them.
    close_range: fn(first: c_uint, last: c_uint, flags: c_int) -> c_int, |next| {
        // CLOSE_RANGE_CLOEXEC closes nothing now; the hidden files of a listener that `exec` closes
        // are of no use, and harmless.
        let closes = c_uint::try_from(flags).unwrap_or(0) & libc::CLOSE_RANGE_CLOEXEC == 0;
        if closes {
            kept(|| decide_within(first, last));
        }
        // SAFETY: takes no pointers.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
        if result == 0 && closes {
            kept(|| close_all(first, last));
        }
        c_int::try_from(result).unwrap_or(-1)
    }

    closefrom: fn(first: c_int) -> (), |next| {
        let from = c_uint::try_from(first).unwrap_or(0);
        kept(|| {
            decide_within(from, c_uint::MAX);
            // SAFETY: takes no pointers.
            let closed = unsafe { libc::syscall(libc::SYS_close_range, from, c_uint::MAX, 0) };
            if closed != 0 {
                crate::hide::close_from(from);
            }
            close_all(from, c_uint::MAX);
        });
    }
}
