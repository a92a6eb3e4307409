//! Calls that send.

use std::ffi::{c_int, c_uint, c_void};

use crate::data::{each_descriptor, sent};
use crate::errno::{self, kept};
use crate::next::{apart, hooks};
use crate::table::{self, Kind, ListenerSockets};
use crate::{exec, filter, short, stand_in, sys};

type Send = unsafe extern "C" fn(c_int, *const c_void, usize, c_int) -> isize;
type SendMessage = unsafe extern "C" fn(c_int, *const libc::msghdr, c_int) -> isize;

/// More control data than the kernel takes: it refuses the message (ENOBUFS) by default from
/// `net.core.optmem_max` on, which is 128 KiB at most.
const CONTROL_MOST: usize = 1 << 20;
/// Most messages that `sendmmsg(2)` sends at a time (`UIO_MAXIOV`).
const MESSAGES_MOST: c_uint = 1024;

/// Sends on a stand-in.
unsafe fn send_on(fd: c_int, bytes: *const c_void, length: usize, flags: c_int) -> isize {
    // SAFETY: the function of this name has this type, and gets the program's bytes.
    let go = || unsafe {
        let send = std::mem::transmute::<*mut c_void, Send>(behind::send.address());
        send(fd, bytes, length, flags | libc::MSG_NOSIGNAL)
    };
    sent(fd, raises(flags), || length, go)
}

/// Whether a send with these flags raises a signal where nothing can be sent.
const fn raises(flags: c_int) -> bool {
    flags & libc::MSG_NOSIGNAL == 0
}

unsafe fn send_message_on(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
    // A stream takes neither an address nor descriptors, as TCP does.
    // SAFETY: the header can be read, as sendmsg(2) asks.
    let mut plain = unsafe { *message };
    plain.msg_name = std::ptr::null_mut();
    plain.msg_namelen = 0;
    plain.msg_control = std::ptr::null_mut();
    plain.msg_controllen = 0;
    // SAFETY: the function of this name has this type.
    let go = || unsafe {
        let send = std::mem::transmute::<*mut c_void, SendMessage>(behind::sendmsg.address());
        send(fd, &raw const plain, flags | libc::MSG_NOSIGNAL)
    };
    // SAFETY: the kernel has read the vectors by then, or the call would have failed (EFAULT).
    let length = || unsafe { total(plain.msg_iov, plain.msg_iovlen) };
    sent(fd, raises(flags), length, go)
}

/// Sends messages on a stand-in as sendmmsg(2): those before the first one that fails, or that goes
/// in part only.
unsafe fn send_messages_on(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let (before, mut done) = (errno::now(), 0);
    for index in 0..count.min(MESSAGES_MOST) {
        // SAFETY: the program's messages, as sendmmsg(2) asks for; the kernel has read the vectors
        // of those that were sent.
        unsafe {
            let message = messages.add(index as usize);
            let header = &raw const (*message).msg_hdr;
            let result = send_message_on(fd, header, flags);
            let Ok(length) = c_uint::try_from(result) else {
                break;
            };
            (*message).msg_len = length;
            done += 1;
            if (length as usize) < total((*header).msg_iov, (*header).msg_iovlen) {
                break;
            }
        }
    }
    if done == 0 && count > 0 {
        return -1;
    }
    errno::set(before);
    done
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
    let lengths = vectors.iter().map(|vector| vector.iov_len);
    lengths.fold(0, usize::saturating_add)
}

/// Whether a descriptor is a stand-in, by its own word.
fn is_stand_in(fd: c_int) -> bool {
    table::is_stand_in(fd) && kept(|| stand_in::of(fd)).is_some()
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

/// A message is about to be sent. What is in it must be known before.
///
/// # Safety
/// The header can be read.
unsafe fn hand_on(message: *const libc::msghdr) {
    // SAFETY: as the caller says.
    let (control, length): (_, usize) =
        unsafe { ((*message).msg_control, (*message).msg_controllen as _) };
    let is_read = length > 0 && length <= CONTROL_MOST && !filter::is_installed();
    if is_read && kept(|| sys::is_readable(control, length)) {
        // SAFETY: the header, and the control data, can be read.
        kept(|| unsafe { each_descriptor(message, handed_on) });
    }
}

/// Messages are about to be sent together. Only Unix sockets take descriptors: messages of others,
/// as those of QUIC, are not read.
fn hand_on_all(fd: c_int, messages: *const libc::mmsghdr, count: c_uint) {
    let domain = || sys::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, 0);
    if filter::is_installed() || kept(domain) != Ok(libc::AF_UNIX) {
        return;
    }
    for index in 0..count.min(MESSAGES_MOST) {
        let message = messages.wrapping_add(index as usize);
        if !kept(|| sys::is_readable(message.cast(), size_of::<libc::mmsghdr>())) {
            break;
        }
        // SAFETY: the header can be read, as the kernel has just said.
        unsafe { hand_on(&raw const (*message).msg_hdr) };
    }
}

hooks! {
    write: fn(fd: c_int, bytes: *const c_void, length: usize) -> isize, |next| {
        // SAFETY: the program's bytes.
        let go = move || unsafe { next()(fd, bytes, length) };
        if !table::is_stand_in(fd) {
            return go();
        }
        apart(move || {
            let before = errno::now();
            // SAFETY: the program's bytes.
            let result = unsafe { send_on(fd, bytes, length, 0) };
            if result >= 0 || errno::now() != libc::ENOTSOCK {
                return result;
            }
            // The number is another file's.
            table::release(fd);
            errno::set(before);
            go()
        })
    }

    writev: fn(fd: c_int, vectors: *const libc::iovec, count: c_int) -> isize, |next| {
        if (1..=1024).contains(&count) && is_stand_in(fd) {
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
            return apart(move || unsafe { send_on(fd, bytes, length, flags) });
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
        if is_stand_in(fd) {
            // SAFETY: the program's bytes. A connected TCP socket does not look at the address.
            return unsafe { send_on(fd, bytes, length, flags) };
        }
        // SAFETY: the program's bytes and address.
        unsafe { next()(fd, bytes, length, flags, address, address_length) }
    }

    sendmsg: fn(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize, |next| {
        if !message.is_null() {
            if is_stand_in(fd) {
                // SAFETY: a message, as sendmsg(2) asks for.
                return unsafe { send_message_on(fd, message, flags) };
            }
            // A header that cannot be read ends the program here (SIGSEGV), where the kernel would
            // say EFAULT.
            // SAFETY: a message, as sendmsg(2) asks for.
            unsafe { hand_on(message) };
        }
        // SAFETY: what the program passed.
        unsafe { next()(fd, message, flags) }
    }

    sendmmsg: fn(
        fd: c_int,
        messages: *mut libc::mmsghdr,
        count: c_uint,
        flags: c_int
    ) -> c_int, |next| {
        if is_stand_in(fd) {
            // SAFETY: messages, as sendmmsg(2) asks for.
            return unsafe { send_messages_on(fd, messages, count, flags) };
        }
        hand_on_all(fd, messages, count);
        // SAFETY: what the program passed.
        unsafe { next()(fd, messages, count, flags) }
    }
}
