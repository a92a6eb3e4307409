//! Calls that receive.

use std::ffi::{c_int, c_void};

use crate::data::{discard, ended};
use crate::errno;
use crate::next::hooks;
use crate::sys::Address;
use crate::table;

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
unsafe fn received_from(
    fd: c_int,
    room: usize,
    address: *const libc::sockaddr,
    address_length: *mut libc::socklen_t,
    go: impl FnOnce() -> isize,
) -> isize {
    let result = received(fd, room, go);
    // SAFETY: what the kernel wrote into the program's memory.
    unsafe {
        if result >= 0 && !address_length.is_null() && is_ours(address, *address_length) {
            *address_length = 0;
        }
    }
    result
}

/// Whether a receive on a stand-in discards, as `MSG_TRUNC` does with TCP.
fn discards(fd: c_int, flags: c_int) -> bool {
    flags & libc::MSG_TRUNC != 0 && flags & libc::MSG_PEEK == 0 && table::is_stand_in(fd)
}

/// Whether an address that the kernel wrote is a stream's, of which TCP says none.
unsafe fn is_ours(address: *const libc::sockaddr, length: libc::socklen_t) -> bool {
    if address.is_null() || length == 0 {
        return false;
    }
    // SAFETY: what the kernel wrote there.
    let address = unsafe { Address::of(address, length) };
    let prefix = crate::address::PREFIX.as_bytes();
    address
        .abstract_name()
        .is_some_and(|name| name.starts_with(prefix))
}

hooks! {
    read: fn(fd: c_int, bytes: *mut c_void, length: usize) -> isize, |next| {
        // SAFETY: the program's room.
        received(fd, length, || unsafe { next()(fd, bytes, length) })
    }

    readv: fn(fd: c_int, vectors: *const libc::iovec, count: c_int) -> isize, |next| {
        let room = usize::from(count > 0);
        // SAFETY: the program's vectors.
        received(fd, room, || unsafe { next()(fd, vectors, count) })
    }

    recv: fn(fd: c_int, bytes: *mut c_void, length: usize, flags: c_int) -> isize, |next| {
        if discards(fd, flags) {
            return discard(fd, length, flags);
        }
        // SAFETY: the program's room.
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
        if discards(fd, flags) {
            return discard(fd, length, flags);
        }
        // SAFETY: the program's room.
        unsafe {
            received_from(fd, length, address, address_length, || {
                next()(fd, bytes, length, flags, address, address_length)
            })
        }
    }

    // What the C library's headers make of the calls where they know the room.
    __read_chk: fn(fd: c_int, bytes: *mut c_void, length: usize, room: usize) -> isize, |next| {
        // SAFETY: the program's room.
        received(fd, length, || unsafe { next()(fd, bytes, length, room) })
    }

    __recv_chk: fn(
        fd: c_int,
        bytes: *mut c_void,
        length: usize,
        room: usize,
        flags: c_int
    ) -> isize, |next| {
        if discards(fd, flags) {
            return discard(fd, length, flags);
        }
        // SAFETY: the program's room.
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
        if discards(fd, flags) {
            return discard(fd, length, flags);
        }
        // SAFETY: the program's room.
        unsafe {
            received_from(fd, length, address, address_length, || {
                next()(fd, bytes, length, room, flags, address, address_length)
            })
        }
    }

    recvmsg: fn(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> isize, |next| {
        // SAFETY: the program's message, which the function behind refuses if it is null.
        unsafe {
            let room = usize::from(!message.is_null() && (*message).msg_iovlen > 0);
            let result = received(fd, room, || next()(fd, message, flags));
            if result >= 0 && is_ours((*message).msg_name.cast(), (*message).msg_namelen) {
                (*message).msg_namelen = 0;
            }
            result
        }
    }
}
