//! Calls that receive.

use std::ffi::{c_int, c_void};

use crate::attempt::{self, Outcome, Room, some_bytes};
use crate::data::{discard, ended};
use crate::errno::{self, kept};
use crate::look::{self, Ends, Looked};
use crate::next::{apart, hooks};
use crate::table::{self, flag};
use crate::{short, stand_in, sys};

/// Longest address of an internet socket. A stream's name that says a connection is longer.
const INTERNET: usize = size_of::<libc::sockaddr_in6>();

/// Flags of receives before which a thread does not look: they do not sleep, or not for the first
/// bytes alone.
const NO_LOOKS: c_int = libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_OOB | libc::MSG_ERRQUEUE;
/// Room of a `recvmsg` for which it looks, or 0. The header of musl has gaps which its function
/// clears, and the attempts would show to the kernel.
const MESSAGE_LOOKS: usize = if cfg!(target_env = "musl") { 0 } else { 1 };

/// A receive on a stand-in, with looks (`attempt`) before it sleeps (`go`).
fn receive(
    fd: c_int,
    room: usize,
    flags: c_int,
    attempt: impl FnMut() -> Outcome,
    go: impl FnOnce() -> isize,
) -> isize {
    let looks = room > 0 && flags & NO_LOOKS == 0;
    let found = looks.then(|| look(fd, attempt)).flatten();
    found.unwrap_or_else(|| {
        let result = go();
        if looks && result < 0 && errno::now() == libc::EAGAIN {
            // Its time is over, or it does not sleep since nobody knows when.
            table::remove_flags(fd, flag::SLEEPS);
        }
        result
    })
}

/// What a look found: what the receive returns. `None`: it is to be made as it is.
fn look(fd: c_int, mut attempt: impl FnMut() -> Outcome) -> Option<isize> {
    if table::has_flags(fd, flag::RETURNS | flag::AT_LEAST) {
        return None;
    }
    let looked = look::on(
        fd,
        Ends::Receive(fd),
        || sleeps(fd),
        || some_bytes(attempt()),
    );
    match looked {
        Looked::Found(Ok(length)) => Some(isize::try_from(length).unwrap_or(isize::MAX)),
        // The number is another file's.
        Looked::Found(Err(libc::ENOTSOCK)) | Looked::Nothing(_) => None,
        Looked::Found(Err(error)) => Some(errno::fail(error)),
        Looked::Interrupted => Some(errno::fail(libc::EINTR)),
        Looked::Closed => Some(errno::fail(libc::EBADF)),
    }
}

/// Whether receives on a stand-in sleep. The table remembers the answer.
fn sleeps(fd: c_int) -> bool {
    if table::has_flags(fd, flag::SLEEPS) {
        return true;
    }
    let sleeps = sys::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|f| f & libc::O_NONBLOCK == 0);
    table::add_flags(fd, if sleeps { flag::SLEEPS } else { flag::RETURNS });
    sleeps
}

/// What a receive on a stand-in returns.
fn received(fd: c_int, room: usize, go: impl FnOnce() -> isize) -> isize {
    let result = go();
    short::carried(fd, result);
    if result > 0 || !table::is_stand_in(fd) {
        return result;
    }
    match result {
        0 if room > 0 => ended(fd),
        -1 if errno::now() == libc::ECONNRESET => {
            // The program knows, so the next write fails as well.
            table::add_flags(fd, flag::PEER_GONE);
            -1
        }
        result => result,
    }
}

/// A receive on a stand-in with flags. `looks`: room of the call, or 0 if it does not look.
///
/// # Safety
/// As for [`attempt::receive`].
unsafe fn receive_on(
    fd: c_int,
    to: Room,
    looks: usize,
    flags: c_int,
    attempt: impl FnMut() -> Outcome,
    go: impl FnOnce() -> isize,
) -> isize {
    // SAFETY: as the caller says.
    let unlike = unsafe { unlike_stream(fd, to, flags) };
    unlike.unwrap_or_else(|| received(fd, to.length, || receive(fd, looks, flags, attempt, go)))
}

/// What a receive on a descriptor returns where the kernel may have written the sender's address.
///
/// # Safety
/// The kernel got `address` and `address_length`, and returned `result`.
unsafe fn from_sender(
    fd: c_int,
    address: *const libc::sockaddr,
    address_length: *mut libc::socklen_t,
    result: isize,
) -> isize {
    if result < 0 || address.is_null() {
        return result;
    }
    // SAFETY: the kernel wrote the length there, or the call would have failed (EFAULT).
    unsafe {
        if hides_sender(fd, *address_length) {
            *address_length = 0;
        }
    }
    result
}

/// A receive of which the program may ask for the sender's address. `looks`: room of the call, or 0
/// if it does not look.
///
/// # Safety
/// As for [`attempt::receive`]; `attempt` and `go` pass the address to the kernel.
unsafe fn receive_from(
    fd: c_int,
    to: Room,
    looks: usize,
    flags: c_int,
    attempt: impl FnMut() -> Outcome,
    go: impl FnOnce() -> isize,
) -> isize {
    let result = if table::is_stand_in(fd) {
        // SAFETY: as the caller says.
        unsafe { receive_on(fd, to, looks, flags, attempt, go) }
    } else {
        go()
    };
    // SAFETY: as the caller says; what discards passes the address as well.
    unsafe { from_sender(fd, to.address, to.address_length, result) }
}

/// What a receive on a stand-in returns that a stream would make otherwise.
///
/// `MSG_ERRQUEUE`: a stream has no queue of errors, and would return bytes; TCP's is empty, as
/// nothing is sent over the hidden connection. `MSG_TRUNC`: TCP discards. A socket that has the
/// number by now gets its call.
///
/// # Safety
/// As for [`attempt::receive`].
unsafe fn unlike_stream(fd: c_int, to: Room, flags: c_int) -> Option<isize> {
    let asks_for_errors = flags & libc::MSG_ERRQUEUE != 0;
    let discards = flags & libc::MSG_TRUNC != 0 && flags & libc::MSG_PEEK == 0;
    if !(asks_for_errors || discards) || kept(|| stand_in::of(fd)).is_none() {
        None
    } else if asks_for_errors {
        Some(errno::fail(libc::EAGAIN))
    } else {
        // SAFETY: as the caller says.
        Some(unsafe { discard(fd, to, flags) })
    }
}

/// Whether the kernel wrote a stream's name where TCP writes no sender. `length` is the name's
/// whole length. The program's memory may have room for a part only, so the name is not read there.
/// A stand-in of which nothing is known shows a name that is not longer than `INTERNET`.
fn hides_sender(fd: c_int, length: libc::socklen_t) -> bool {
    let may_be = table::is_stand_in(fd) || length as usize > INTERNET;
    length > 0 && may_be && kept(|| stand_in::of(fd)).is_some()
}

/// As [`from_sender`], of a message.
///
/// # Safety
/// The kernel got the message, and returned `result`.
unsafe fn message_from_sender(fd: c_int, message: *mut libc::msghdr, result: isize) -> isize {
    // SAFETY: the kernel wrote the header, or the call would have failed (EFAULT).
    unsafe {
        let is_named = result >= 0 && !(*message).msg_name.is_null();
        if is_named && hides_sender(fd, (*message).msg_namelen) {
            (*message).msg_namelen = 0;
        }
    }
    result
}

/// Room of a call for which the C library ends the program if there is less than it asks for.
const fn looked_into(length: usize, room: usize) -> usize {
    if length <= room { length } else { 0 }
}

hooks! {
    read: fn(fd: c_int, bytes: *mut c_void, length: usize) -> isize, |next| {
        // SAFETY: what the program passed.
        let go = move || unsafe { next()(fd, bytes, length) };
        if !table::is_stand_in(fd) {
            return go();
        }
        apart(move || {
            // SAFETY: what the program passed.
            let attempt = || unsafe { attempt::receive(fd, Room::new(bytes, length), 0) };
            received(fd, length, || receive(fd, length, 0, attempt, go))
        })
    }

    readv: fn(fd: c_int, vectors: *const libc::iovec, count: c_int) -> isize, |next| {
        // SAFETY: what the program passed.
        let go = || unsafe { next()(fd, vectors, count) };
        if !table::is_stand_in(fd) {
            return go();
        }
        received(fd, usize::from(count > 0), go)
    }

    recv: fn(fd: c_int, bytes: *mut c_void, length: usize, flags: c_int) -> isize, |next| {
        // SAFETY: what the program passed.
        let go = move || unsafe { next()(fd, bytes, length, flags) };
        if !table::is_stand_in(fd) {
            return go();
        }
        apart(move || {
            let to = Room::new(bytes, length);
            // SAFETY: what the program passed.
            let attempt = || unsafe { attempt::receive(fd, to, flags) };
            // SAFETY: what the program passed.
            unsafe { receive_on(fd, to, length, flags, attempt, go) }
        })
    }

    recvfrom: fn(
        fd: c_int,
        bytes: *mut c_void,
        length: usize,
        flags: c_int,
        address: *mut libc::sockaddr,
        address_length: *mut libc::socklen_t
    ) -> isize, |next| {
        let to = Room { bytes, length, address, address_length };
        // SAFETY: what the program passed.
        let attempt = || unsafe { attempt::receive(fd, to, flags) };
        // SAFETY: what the program passed.
        let go = || unsafe { next()(fd, bytes, length, flags, address, address_length) };
        // SAFETY: both pass the address to the kernel.
        unsafe { receive_from(fd, to, length, flags, attempt, go) }
    }

    // What the C library's headers make of the calls where they know the room.
    __read_chk: fn(fd: c_int, bytes: *mut c_void, length: usize, room: usize) -> isize, |next| {
        // SAFETY: what the program passed.
        let attempt = || unsafe { attempt::receive(fd, Room::new(bytes, length), 0) };
        // SAFETY: what the program passed.
        let go = || unsafe { next()(fd, bytes, length, room) };
        if !table::is_stand_in(fd) {
            return go();
        }
        let looks = looked_into(length, room);
        received(fd, length, || receive(fd, looks, 0, attempt, go))
    }

    __recv_chk: fn(
        fd: c_int,
        bytes: *mut c_void,
        length: usize,
        room: usize,
        flags: c_int
    ) -> isize, |next| {
        let to = Room::new(bytes, length);
        // SAFETY: what the program passed.
        let attempt = || unsafe { attempt::receive(fd, to, flags) };
        // SAFETY: what the program passed.
        let go = || unsafe { next()(fd, bytes, length, room, flags) };
        if !table::is_stand_in(fd) {
            return go();
        }
        let looks = looked_into(length, room);
        // SAFETY: what the program passed.
        unsafe { receive_on(fd, to, looks, flags, attempt, go) }
    }

    __recvfrom_chk: fn(
        fd: c_int,
        bytes: *mut c_void,
        length: usize,
        room: usize,
        flags: c_int,
        address: *mut libc::sockaddr,
        address_length: *mut libc::socklen_t
    ) -> isize, |next| {
        let to = Room { bytes, length, address, address_length };
        // SAFETY: what the program passed.
        let attempt = || unsafe { attempt::receive(fd, to, flags) };
        // SAFETY: what the program passed.
        let go = || unsafe { next()(fd, bytes, length, room, flags, address, address_length) };
        // SAFETY: both pass the address to the kernel.
        unsafe { receive_from(fd, to, looked_into(length, room), flags, attempt, go) }
    }

    recvmsg: fn(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> isize, |next| {
        // SAFETY: what the program passed.
        let attempt = || unsafe { attempt::receive_message(fd, message, flags) };
        // SAFETY: what the program passed.
        let go = || unsafe { next()(fd, message, flags) };
        if !table::is_stand_in(fd) {
            // SAFETY: the kernel gets the message.
            return unsafe { message_from_sender(fd, message, go()) };
        }
        let (none, asks) = (Room::new(std::ptr::null_mut(), 0), flags & libc::MSG_ERRQUEUE);
        // SAFETY: no room.
        if let Some(result) = unsafe { unlike_stream(fd, none, asks) } {
            return result;
        }
        let result = receive(fd, MESSAGE_LOOKS, flags, attempt, go);
        // SAFETY: the kernel has read the header, or it would have said EFAULT.
        let has_room = result >= 0 && unsafe { (*message).msg_iovlen > 0 };
        let result = received(fd, usize::from(has_room), || result);
        // SAFETY: the kernel got the message.
        unsafe { message_from_sender(fd, message, result) }
    }
}
