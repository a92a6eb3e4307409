//! Calls that receive.

use std::ffi::{c_int, c_void};

use crate::data::{discard, ended};
use crate::errno::{self, kept};
use crate::next::hooks;
use crate::{stand_in, table};

/// Longest address of an internet socket. A stream's name that says a connection is longer.
const INTERNET: usize = size_of::<libc::sockaddr_in6>();

/// What a receive on a descriptor returns.
fn received(fd: c_int, room: usize, go: impl FnOnce() -> isize) -> isize {
    let result = go();
    if result > 0 || !table::is_stand_in(fd) {
        return result;
    }
    match result {
        0 if room > 0 => ended(fd),
        -1 if errno::now() == libc::ECONNRESET => {
            // The program knows, so the next write fails as well.
            table::add_flags(fd, table::flag::PEER_GONE);
            -1
        }
        result => result,
    }
}

/// The same, where the kernel may write the sender's address.
///
/// # Safety
/// `go` passes `address` and `address_length` to the kernel.
unsafe fn received_from(
    fd: c_int,
    room: usize,
    address: *const libc::sockaddr,
    address_length: *mut libc::socklen_t,
    go: impl FnOnce() -> isize,
) -> isize {
    let result = received(fd, room, go);
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

/// Whether a receive on a stand-in asks for the error queue. A stream has none, and would return
/// bytes; TCP's is empty, as nothing is sent over the hidden connection.
fn waits_for_errors(fd: c_int, flags: c_int) -> bool {
    let asks = flags & libc::MSG_ERRQUEUE != 0 && table::is_stand_in(fd);
    asks && kept(|| stand_in::of(fd)).is_some()
}

/// Whether a receive on a stand-in discards, as `MSG_TRUNC` does with TCP.
fn discards(fd: c_int, flags: c_int) -> bool {
    flags & libc::MSG_TRUNC != 0 && flags & libc::MSG_PEEK == 0 && table::is_stand_in(fd)
}

/// Whether the kernel wrote a stream's name where TCP writes no sender. `length` is the name's
/// whole length. The program's memory may have room for a part only, so the name is not read there.
/// A stand-in of which nothing is known shows a name that is not longer than `INTERNET`.
fn hides_sender(fd: c_int, length: libc::socklen_t) -> bool {
    let may_be = table::is_stand_in(fd) || length as usize > INTERNET;
    length > 0 && may_be && kept(|| stand_in::of(fd)).is_some()
}

hooks! {
    read: fn(fd: c_int, bytes: *mut c_void, length: usize) -> isize, |next| {
        // SAFETY: what the program passed.
        received(fd, length, || unsafe { next()(fd, bytes, length) })
    }

    readv: fn(fd: c_int, vectors: *const libc::iovec, count: c_int) -> isize, |next| {
        let room = usize::from(count > 0);
        // SAFETY: what the program passed.
        received(fd, room, || unsafe { next()(fd, vectors, count) })
    }

    recv: fn(fd: c_int, bytes: *mut c_void, length: usize, flags: c_int) -> isize, |next| {
        if waits_for_errors(fd, flags) {
            return errno::fail(libc::EAGAIN);
        }
        if discards(fd, flags) {
            return discard(fd, length, flags);
        }
        // SAFETY: what the program passed.
        received(fd, length, || unsafe { next()(fd, bytes, length, flags) })
    }

    recvfrom: fn(
        fd: c_int,
        bytes: *mut c_void,
        length: usize,
        flags: c_int,
        address: *mut libc::sockaddr,
        address_length: *mut libc::socklen_t
    ) -> isize, |next| {
        if waits_for_errors(fd, flags) {
            return errno::fail(libc::EAGAIN);
        }
        if discards(fd, flags) {
            return discard(fd, length, flags);
        }
        // SAFETY: what the program passed.
        unsafe {
            received_from(fd, length, address, address_length, || {
                next()(fd, bytes, length, flags, address, address_length)
            })
        }
    }

    // What the C library's headers make of the calls where they know the room.
    __read_chk: fn(fd: c_int, bytes: *mut c_void, length: usize, room: usize) -> isize, |next| {
        // SAFETY: what the program passed.
        received(fd, length, || unsafe { next()(fd, bytes, length, room) })
    }

    __recv_chk: fn(
        fd: c_int,
        bytes: *mut c_void,
        length: usize,
        room: usize,
        flags: c_int
    ) -> isize, |next| {
        if waits_for_errors(fd, flags) {
            return errno::fail(libc::EAGAIN);
        }
        if discards(fd, flags) {
            return discard(fd, length, flags);
        }
        // SAFETY: what the program passed.
        received(fd, length, || unsafe { next()(fd, bytes, length, room, flags) })
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
        if waits_for_errors(fd, flags) {
            return errno::fail(libc::EAGAIN);
        }
        if discards(fd, flags) {
            return discard(fd, length, flags);
        }
        // SAFETY: what the program passed.
        unsafe {
            received_from(fd, length, address, address_length, || {
                next()(fd, bytes, length, room, flags, address, address_length)
            })
        }
    }

    recvmsg: fn(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> isize, |next| {
        if waits_for_errors(fd, flags) {
            return errno::fail(libc::EAGAIN);
        }
        // SAFETY: what the program passed.
        let result = unsafe { next()(fd, message, flags) };
        if result < 0 {
            return received(fd, 0, || result);
        }
        // SAFETY: the kernel has just read and written the header, or it would have said EFAULT.
        unsafe {
            if !(*message).msg_name.is_null() && hides_sender(fd, (*message).msg_namelen) {
                (*message).msg_namelen = 0;
            }
            let room = usize::from((*message).msg_iovlen > 0);
            received(fd, room, || result)
        }
    }
}
