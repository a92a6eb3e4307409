//! Where a Unix stream and TCP differ in what a data call returns.
//!
//! | case | TCP, and here | a Unix stream |
//! |---|---|---|
//! | first write after the peer closed | is taken, its bytes are lost | EPIPE and SIGPIPE |
//! | write after a reset | ECONNRESET once | EPIPE and SIGPIPE |
//! | read after the peer closed with `SO_LINGER` of zero | ECONNRESET once | end of file |
//! | write after `SHUT_RD` of the peer | is taken, nobody reads it | EPIPE and SIGPIPE |
//! | `MSG_TRUNC` | discards | does nothing |

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use crate::table::{self, flag};
use crate::{errno, stand_in, sys};

/// What a send on a stand-in returned, without a signal: what TCP would return. `length` is how
/// much was to be sent, `signals` whether a signal is due when TCP raises one.
pub(crate) fn sent(fd: RawFd, result: isize, length: usize, signals: bool) -> isize {
    if result >= 0 || errno::now() != libc::EPIPE {
        return result;
    }
    let raise = || {
        if signals {
            // SAFETY: takes no pointers.
            unsafe { libc::raise(libc::SIGPIPE) };
        }
        errno::fail(libc::EPIPE)
    };
    let flags = table::get(fd).flags;
    if stand_in::of(fd).is_none() || flags & flag::SENT_ALL != 0 {
        return raise();
    }
    match sys::option(fd, libc::SOL_SOCKET, libc::SO_ERROR, 0) {
        Ok(error) if error != 0 => {
            table::add_flags(fd, flag::PEER_GONE);
            return errno::fail(error);
        }
        _ => {}
    }
    let taken = isize::try_from(length).unwrap_or(isize::MAX);
    // The peer ended its receiving side only.
    if sys::events(fd) & libc::POLLHUP == 0 {
        return taken;
    }
    if flags & flag::PEER_GONE != 0 {
        return raise();
    }
    table::add_flags(fd, flag::PEER_GONE);
    taken
}

/// What a receive on a stand-in returned at the end of the stream: the same, or a reset.
pub(crate) fn ended(fd: RawFd) -> isize {
    let error = table::tcp(fd).map(|tcp| sys::option(tcp, libc::SOL_SOCKET, libc::SO_ERROR, 0));
    match error {
        Some(Ok(error @ libc::ECONNRESET)) => {
            table::add_flags(fd, flag::PEER_GONE);
            errno::fail(error)
        }
        _ => 0,
    }
}

/// Receives and discards, as `MSG_TRUNC` does with TCP.
pub(crate) fn discard(fd: RawFd, length: usize, flags: c_int) -> isize {
    let mut scratch = [0; 4096];
    let room = length.min(scratch.len());
    let flags = flags & !libc::MSG_TRUNC;
    match sys::receive(fd, &mut scratch[..room], flags) {
        Ok(length) => isize::try_from(length).unwrap_or(0),
        Err(e) => errno::fail(e),
    }
}

/// Descriptors in a message's control data.
///
/// # Safety
/// The program's message.
pub(crate) unsafe fn each_descriptor(message: *const libc::msghdr, mut see: impl FnMut(RawFd)) {
    // SAFETY: a message of the program; the macros stay within its control data.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(message);
        while !at.is_null() {
            if (*at).cmsg_level == libc::SOL_SOCKET && (*at).cmsg_type == libc::SCM_RIGHTS {
                let header = libc::CMSG_LEN(0) as usize;
                let bytes = ((*at).cmsg_len as usize).saturating_sub(header);
                let data: *const c_void = libc::CMSG_DATA(at).cast();
                for index in 0..bytes / size_of::<RawFd>() {
                    see(data.cast::<RawFd>().add(index).read_unaligned());
                }
            }
            at = libc::CMSG_NXTHDR(message, at);
        }
    }
}
