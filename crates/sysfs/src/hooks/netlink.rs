//! Netlink: sockets that ask about RDMA devices, and what is sent on them.

use std::ffi::{c_int, c_void};

use crate::next::hooks;
use crate::{netlink, place, source};

/// The bytes that a program has scattered.
#[allow(
    clippy::unnecessary_cast,
    reason = "the length is an integer of 32 bits in musl"
)]
unsafe fn gathered(message: &libc::msghdr) -> Vec<u8> {
    if message.msg_iov.is_null() {
        return Vec::new();
    }
    // SAFETY: the program's pieces, as many as it says.
    let pieces =
        unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen as usize) };
    let bytes = pieces
        .iter()
        .filter(|piece| piece.iov_len > 0)
        .map(|piece| {
            // SAFETY: a piece is as long as the program says.
            unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) }
        });
    bytes.flatten().copied().collect()
}

/// What is sent on one of our sockets.
unsafe fn answer(fd: c_int, buffer: *const c_void, length: usize) -> isize {
    if length == 0 {
        return 0;
    }
    // SAFETY: the program's buffer has that length.
    netlink::answer(fd, unsafe {
        std::slice::from_raw_parts(buffer.cast(), length)
    })
}

hooks! {
    socket: fn(domain: c_int, kind: c_int, protocol: c_int) -> c_int, |next| {
        let asks = domain == libc::AF_NETLINK && protocol == netlink::NETLINK_RDMA;
        if asks && place::is_shown() && source::has_rdma_netlink() {
            return netlink::open(kind);
        }
        // SAFETY: the program's call, as it came.
        unsafe { next()(domain, kind, protocol) }
    }

    send: fn(fd: c_int, buffer: *const c_void, length: usize, flags: c_int) -> isize, |next| {
        // SAFETY: the program's buffer; or its call, as it came.
        unsafe {
            if netlink::is_ours(fd) {
                answer(fd, buffer, length)
            } else {
                next()(fd, buffer, length, flags)
            }
        }
    }

    sendto: fn(fd: c_int, buffer: *const c_void, length: usize, flags: c_int, to: *const libc::sockaddr, size: libc::socklen_t) -> isize, |next| {
        // SAFETY: the program's buffer has `length` bytes. The address is read by the function
        // behind only, which gets the call as it came.
        unsafe {
            if netlink::is_ours(fd) {
                answer(fd, buffer, length)
            } else {
                next()(fd, buffer, length, flags, to, size)
            }
        }
    }

    sendmsg: fn(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize, |next| {
        // SAFETY: the program's message; or its call, as it came.
        unsafe {
            match message.as_ref() {
                Some(message) if netlink::is_ours(fd) => netlink::answer(fd, &gathered(message)),
                _ => next()(fd, message, flags),
            }
        }
    }
}
