//! Calls that wait for several descriptors: `epoll_wait(2)`, `poll(2)` and their kinds.

use std::ffi::c_int;
use std::time::Duration;

use libc::{epoll_event, nfds_t, pollfd, sigset_t, timespec};

use crate::attempt::{self, Outcome, some_events};
use crate::look::{self, Ends, Looked};
use crate::next::hooks;
use crate::timeout::{Passed, Timeout};
use crate::{errno, sys, table};

/// A call that waits, with looks (`attempt`) before it sleeps, if it is given a number whose
/// experience counts. `go` makes it after looks that lasted for so long.
fn wait(
    number: Option<c_int>,
    mut attempt: impl FnMut() -> Outcome,
    go: impl FnOnce(Duration) -> c_int,
) -> c_int {
    let Some(number) = number else {
        return go(Duration::ZERO);
    };
    match look::on(number, Ends::Wait, || true, || some_events(attempt())) {
        Looked::Found(Ok(count)) => count,
        Looked::Found(Err(error)) => errno::fail(error),
        Looked::Interrupted => errno::fail(libc::EINTR),
        Looked::Closed => errno::fail(libc::EBADF),
        Looked::Nothing(lasted) => go(lasted),
    }
}

/// An epoll set, if few stand-ins are in it and the call may wait for long. A call that blocks and
/// opens signals by a `mask` does not look: the kernel delivers those that it opens when it begins.
fn watcher(set: c_int, is_long: impl FnOnce() -> bool, mask: *const sigset_t) -> Option<c_int> {
    (mask.is_null() && look::watches_few(set) && is_long()).then_some(set)
}

/// The descriptors of a `poll(2)`, if few stand-ins are among them and the call may wait for long;
/// `mask` as in [`watcher`].
unsafe fn polled(
    fds: *const pollfd,
    count: nfds_t,
    is_long: impl FnOnce() -> bool,
    mask: *const sigset_t,
) -> Option<c_int> {
    if !mask.is_null() || !table::has_stand_ins() || !is_long() {
        return None;
    }
    let count = usize::try_from(count).ok()?;
    let length = count.checked_mul(size_of::<pollfd>())?;
    if !errno::kept(|| sys::is_readable(fds.cast(), length)) {
        return None;
    }
    let numbers = (0..count).map(|at| {
        // SAFETY: as many can be read, as the kernel has just said.
        unsafe { (*fds.add(at)).fd }
    });
    look::first_of_few(numbers.filter(|fd| table::is_stand_in(*fd)))
}

const NO_MASK: *const sigset_t = std::ptr::null();

hooks! {
    epoll_wait: fn(set: c_int, to: *mut epoll_event, room: c_int, timeout: c_int) -> c_int, |next| {
        // SAFETY: what the program passed.
        unsafe {
            let by = watcher(set, || timeout.is_long(), NO_MASK);
            wait(by, || attempt::events(set, to, room), |lasted| {
                next()(set, to, room, timeout.less(lasted))
            })
        }
    }

    epoll_pwait: fn(
        set: c_int,
        to: *mut epoll_event,
        room: c_int,
        timeout: c_int,
        mask: *const sigset_t
    ) -> c_int, |next| {
        // SAFETY: what the program passed.
        unsafe {
            let by = watcher(set, || timeout.is_long(), mask);
            wait(by, || attempt::events(set, to, room), |lasted| {
                next()(set, to, room, timeout.less(lasted), mask)
            })
        }
    }

    // Older C libraries lack it, and a program may see by this that it has it.
    epoll_pwait2: fn(
        set: c_int,
        to: *mut epoll_event,
        room: c_int,
        timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int, |next| {
        // SAFETY: what the program passed.
        unsafe {
            let timeout = Passed::new(timeout);
            let by = watcher(set, || timeout.is_long(), mask);
            wait(by, || attempt::events(set, to, room), |lasted| {
                timeout.with_less(lasted, |left| {
                    if behind::epoll_pwait2.find().is_null() {
                        return attempt::sleep_for_events(set, to, room, left, mask);
                    }
                    next()(set, to, room, left, mask)
                })
            })
        }
    }

    poll: fn(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int, |next| {
        // SAFETY: what the program passed.
        unsafe {
            let by = polled(fds, count, || timeout.is_long(), NO_MASK);
            wait(by, || attempt::poll(fds, count), |lasted| {
                next()(fds, count, timeout.less(lasted))
            })
        }
    }

    ppoll: fn(
        fds: *mut pollfd,
        count: nfds_t,
        timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int, |next| {
        // SAFETY: what the program passed.
        unsafe {
            let timeout = Passed::new(timeout);
            let by = polled(fds, count, || timeout.is_long(), mask);
            wait(by, || attempt::poll(fds, count), |lasted| {
                timeout.with_less(lasted, |left| next()(fds, count, left, mask))
            })
        }
    }

    // What the C library's headers make of the calls where they know the room.
    __poll_chk: fn(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: usize) -> c_int, |next| {
        // SAFETY: what the program passed.
        unsafe {
            let by = polled(fds, count, || timeout.is_long(), NO_MASK);
            let by = by.filter(|_| fits(count, room));
            wait(by, || attempt::poll(fds, count), |lasted| {
                next()(fds, count, timeout.less(lasted), room)
            })
        }
    }

    __ppoll_chk: fn(
        fds: *mut pollfd,
        count: nfds_t,
        timeout: *const timespec,
        mask: *const sigset_t,
        room: usize
    ) -> c_int, |next| {
        // SAFETY: what the program passed.
        unsafe {
            let timeout = Passed::new(timeout);
            let by = polled(fds, count, || timeout.is_long(), mask);
            let by = by.filter(|_| fits(count, room));
            wait(by, || attempt::poll(fds, count), |lasted| {
                timeout.with_less(lasted, |left| next()(fds, count, left, mask, room))
            })
        }
    }
}

/// Whether `room` bytes hold `count` entries. The C library ends the program otherwise.
fn fits(count: nfds_t, room: usize) -> bool {
    usize::try_from(count).is_ok_and(|count| count <= room / size_of::<pollfd>())
}
