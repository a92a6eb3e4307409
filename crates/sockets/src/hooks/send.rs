//! Calls that send.

use std::ffi::{c_int, c_void};

use crate::data::{each_descriptor, sent};
use crate::errno::{self, kept};
use crate::next::{Next, hooks};
use crate::table::{self, Kind, ListenerSockets};
use crate::{exec, filter, short, stand_in, sys};

type Send = unsafe extern "C" fn(c_int, *const c_void, usize, c_int) -> isize;
type SendMessage = unsafe extern "C" fn(c_int, *const libc::msghdr, c_int) -> isize;

/// More control data than the kernel takes: it refuses the message (ENOBUFS) by default from
/// `net.core.optmem_max` on, which is 128 KiB at most.
const CONTROL_MOST: usize = 1 << 20;

static SEND: Next = Next::new(c"send");
static SEND_MESSAGE: Next = Next::new(c"sendmsg");

/// Sends on a stand-in.
unsafe fn send_on(fd: c_int, bytes: *const c_void, length: usize, flags: c_int) -> isize {
    // SAFETY: the function of this name has this type, and gets the program's bytes.
    let result = unsafe {
        let send = std::mem::transmute::<*mut c_void, Send>(SEND.address());
        send(fd, bytes, length, flags | libc::MSG_NOSIGNAL)
    };
    sent(fd, result, length, flags & libc::MSG_NOSIGNAL == 0)
}

unsafe fn send_message_on(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
    // SAFETY: the header can be read, as sendmsg(2) asks; the function of this name has this type.
    // A stream takes neither an address nor descriptors, as TCP does.
    unsafe {
        let mut plain = *message;
        plain.msg_name = std::ptr::null_mut();
        plain.msg_namelen = 0;
        plain.msg_control = std::ptr::null_mut();
        plain.msg_controllen = 0;
        let send = std::mem::transmute::<*mut c_void, SendMessage>(SEND_MESSAGE.address());
        let result = send(fd, &raw const plain, flags | libc::MSG_NOSIGNAL);
        let count = plain.msg_iovlen;
        let length = if result < 0 {
            total(plain.msg_iov, count)
        } else {
            0
        };
        sent(fd, result, length, flags & libc::MSG_NOSIGNAL == 0)
    }
}

/// Bytes in a program's vectors. Their number has another type in musl than in glibc; one below 0
/// is none.
unsafe fn total(vectors: *const libc::iovec, count: impl TryInto<usize>) -> usize {
    let count = count.try_into().unwrap_or(0);
    if vectors.is_null() {
        return 0;
    }
    // SAFETY: the program's vectors.
    let vectors = unsafe { std::slice::from_raw_parts(vectors, count.min(1024)) };
    vectors.iter().map(|vector| vector.iov_len).sum()
}

/// Another process will have these descriptors, with or without this library.
fn handed_on(fd: c_int) {
    match table::get(fd).kind {
        Kind::Fresh => table::spoil(fd),
        Kind::StandIn => short::forget(fd),
        Kind::Listener => {
            if let Some(ListenerSockets { queue, .. }) = table::listener_sockets(fd) {
                exec::revoke(queue);
            }
        }
        _ => {}
    }
}

hooks! {
    write: fn(fd: c_int, bytes: *const c_void, length: usize) -> isize, |next| {
        if table::is_stand_in(fd) {
            // SAFETY: the program's bytes.
            let result = unsafe { send_on(fd, bytes, length, 0) };
            if result >= 0 || errno::now() != libc::ENOTSOCK {
                return result;
            }
            // The number is another file's.
            table::release(fd);
        }
        // SAFETY: the program's bytes.
        unsafe { next()(fd, bytes, length) }
    }

    writev: fn(fd: c_int, vectors: *const libc::iovec, count: c_int) -> isize, |next| {
        if table::is_stand_in(fd) && (1..=1024).contains(&count) && stand_in::of(fd).is_some() {
            // SAFETY: integers and pointers, for which null is a value.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = vectors.cast_mut();
            message.msg_iovlen = count.cast_unsigned() as _;
            // SAFETY: the program's vectors.
            return unsafe { send_message_on(fd, &raw const message, 0) };
        }
        // SAFETY: the program's vectors.
        unsafe { next()(fd, vectors, count) }
    }

    send: fn(fd: c_int, bytes: *const c_void, length: usize, flags: c_int) -> isize, |next| {
        if table::is_stand_in(fd) {
            // SAFETY: the program's bytes.
            return unsafe { send_on(fd, bytes, length, flags) };
        }
        // SAFETY: the program's bytes.
        unsafe { next()(fd, bytes, length, flags) }
    }

    sendto: fn(
        fd: c_int,
        bytes: *const c_void,
        length: usize,
        flags: c_int,
        address: *const libc::sockaddr,
        address_length: libc::socklen_t
    ) -> isize, |next| {
        if table::is_stand_in(fd) && stand_in::of(fd).is_some() {
            // SAFETY: the program's bytes. A connected TCP socket does not look at the address.
            return unsafe { send_on(fd, bytes, length, flags) };
        }
        // SAFETY: the program's bytes and address.
        unsafe { next()(fd, bytes, length, flags, address, address_length) }
    }

    sendmsg: fn(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize, |next| {
        if !message.is_null() {
            if table::is_stand_in(fd) && stand_in::of(fd).is_some() {
                // SAFETY: a message, as sendmsg(2) asks for.
                return unsafe { send_message_on(fd, message, flags) };
            }
            // What is in it must be known before it is sent. So a header that cannot be read ends
            // the program here (SIGSEGV), where the kernel would say EFAULT.
            // SAFETY: a message, as sendmsg(2) asks for.
            let (control, length): (_, usize) =
                unsafe { ((*message).msg_control, (*message).msg_controllen as _) };
            let is_read = length > 0 && length <= CONTROL_MOST && !filter::is_installed();
            if is_read && kept(|| sys::is_readable(control, length)) {
                // SAFETY: the header, and the control data, can be read.
                kept(|| unsafe { each_descriptor(message, handed_on) });
            }
        }
        // SAFETY: what the program passed.
        unsafe { next()(fd, message, flags) }
    }
}
