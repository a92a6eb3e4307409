//! Sockets of `NETLINK_RDMA`.
//!
//! Such a socket is one of `NETLINK_USERSOCK` here, which every kernel has and which is nobody's:
//! `bind`, `poll`, options and `recvmsg` are the kernel's own. Only what is sent is kept from it:
//! the drop-in library answers (`ferroce_rdma_netlink`), and a second socket sends the answer to
//! the first.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{errno, source};

pub(crate) const NETLINK_RDMA: c_int = 20;
const NETLINK_USERSOCK: c_int = 2;
/// Descriptors that can be such sockets; programs have few.
const WATCHED: usize = 4096;
/// `AF_NETLINK` as an address has it.
const FAMILY: libc::sa_family_t = 16;
const _: () = assert!(libc::AF_NETLINK == FAMILY as c_int);
/// Bytes of a datagram: the buffer of libmnl's programs is a page.
const DATAGRAM: usize = 4096;

/// Descriptors that were ours when they were handed out: a bit each.
static SOCKETS: [AtomicU64; WATCHED / 64] = [const { AtomicU64::new(0) }; WATCHED / 64];

fn bit(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((SOCKETS.get(fd / 64)?, 1 << (fd % 64)))
}

/// Opens a socket of that type; -1 and errno if that fails.
pub(crate) fn open(kind: c_int) -> c_int {
    let fd = socket(kind);
    if fd < 0 {
        return fd;
    }
    let Some((word, bit)) = bit(fd) else {
        close(fd);
        return errno::fail(libc::EMFILE);
    };
    word.fetch_or(bit, Ordering::Relaxed);
    fd
}

/// Whether a descriptor is such a socket. Cheap for all others: it is asked before every `send`.
pub(crate) fn is_ours(fd: c_int) -> bool {
    let Some((word, bit)) = bit(fd) else {
        return false;
    };
    if word.load(Ordering::Relaxed) & bit == 0 {
        return false;
    }
    let ours = errno::kept(|| protocol(fd) == Some(NETLINK_USERSOCK));
    if !ours {
        // The number has become another descriptor's.
        word.fetch_and(!bit, Ordering::Relaxed);
    }
    ours
}

/// Answers what was sent to such a socket. What `send` returns: its length, or -1 and errno.
pub(crate) fn answer(fd: c_int, request: &[u8]) -> isize {
    let Some(port) = port(fd) else {
        return -1;
    };
    let answer = match source::rdma_netlink(request, port) {
        Some(Ok(answer)) => answer,
        Some(Err(errno)) => return errno::fail(errno) as isize,
        None => return errno::fail(libc::EPROTONOSUPPORT) as isize,
    };
    match deliver(&answer, port) {
        Ok(()) => request.len().cast_signed(),
        Err(errno) => errno::fail(errno) as isize,
    }
}

/// Sends messages to a port, as many in a datagram as have room.
fn deliver(messages: &[u8], port: u32) -> Result<(), c_int> {
    let sender = socket(libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    if sender < 0 {
        return Err(errno::now());
    }
    let sent = datagrams(messages).try_for_each(|datagram| {
        let to = address(port);
        // SAFETY: a buffer with its length, and an address with its own.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                sender,
                datagram.as_ptr(),
                datagram.len(),
                0,
                &raw const to,
                size_of_val(&to),
            )
        };
        match sent {
            -1 => Err(match errno::now() {
                // The program has not read what it has got.
                libc::EAGAIN => libc::ENOBUFS,
                errno => errno,
            }),
            _ => Ok(()),
        }
    });
    errno::kept(|| close(sender));
    sent
}

/// Cuts messages into datagrams between two of them.
fn datagrams(messages: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = messages;
    std::iter::from_fn(move || {
        let mut end = 0;
        while let Some(length) = rest.get(end..end + 4) {
            let length = u32::from_ne_bytes(length.try_into().expect("invariant: four bytes"));
            let next = (end + length as usize).next_multiple_of(4).min(rest.len());
            // No end in sight: the rest as it is.
            if next <= end || (end > 0 && next > DATAGRAM) {
                break;
            }
            end = next;
        }
        let (datagram, behind) = rest.split_at(end);
        rest = behind;
        (!datagram.is_empty()).then_some(datagram)
    })
}

/// The port of a socket, which gets one if it has none.
fn port(fd: c_int) -> Option<u32> {
    let known = port_now(fd)?;
    if known != 0 {
        return Some(known);
    }
    let any = address(0);
    // SAFETY: an address with its length.
    let bound = unsafe { libc::syscall(libc::SYS_bind, fd, &raw const any, size_of_val(&any)) };
    if bound < 0 { None } else { port_now(fd) }
}

fn port_now(fd: c_int) -> Option<u32> {
    let mut at = address(0);
    let mut length = length_of(&at);
    // SAFETY: an address to fill, with its length.
    let got = unsafe { libc::syscall(libc::SYS_getsockname, fd, &raw mut at, &raw mut length) };
    (got == 0).then_some(at.nl_pid)
}

fn address(port: u32) -> libc::sockaddr_nl {
    // SAFETY: integers only.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = FAMILY;
    address.nl_pid = port;
    address
}

fn protocol(fd: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut length = length_of(&value);
    // SAFETY: an integer to fill, with its length.
    let got = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            fd,
            libc::SOL_SOCKET,
            libc::SO_PROTOCOL,
            &raw mut value,
            &raw mut length,
        )
    };
    (got == 0).then_some(value)
}

fn length_of<T>(value: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(size_of_val(value)).expect("invariant: a few bytes")
}

fn socket(kind: c_int) -> c_int {
    // SAFETY: no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_socket, libc::AF_NETLINK, kind, NETLINK_USERSOCK) };
    c_int::try_from(fd).unwrap_or(-1)
}

fn close(fd: c_int) {
    // SAFETY: a descriptor of ours.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of that many bytes.
    fn message(length: u32) -> Vec<u8> {
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.resize((length as usize).next_multiple_of(4), 7);
        bytes
    }

    #[test]
    fn datagrams_hold_whole_messages() {
        let lengths = |all: &[u8]| datagrams(all).map(<[u8]>::len).collect::<Vec<_>>();
        let small = message(1022);
        assert_eq!(lengths(&small.repeat(6)), [4096, 2048]);
        let large = message(5000);
        assert_eq!(
            lengths(&[&small[..], &large, &small].concat()),
            [1024, 5000, 1024]
        );
        assert_eq!(lengths(&[]), Vec::<usize>::new());
        assert_eq!(lengths(&[0; 16]), Vec::<usize>::new());
    }

    #[test]
    fn an_answer_comes_to_the_socket_that_asked() {
        let fd = open(libc::SOCK_RAW | libc::SOCK_CLOEXEC);
        assert!(fd >= 0 && is_ours(fd));
        assert_eq!(answer(fd, b"question"), 8);
        let mut buffer = [0_u8; 64];
        // SAFETY: a live descriptor, and a buffer with its length.
        let got = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        // The answer of the library's stand-in: a header of 8 bytes in all, and the port.
        assert_eq!(got, 8);
        assert_eq!(buffer[..4], 8_u32.to_ne_bytes());
        assert_eq!(
            Some(u32::from_ne_bytes(buffer[4..8].try_into().unwrap())),
            port(fd)
        );
        // SAFETY: no pointers; becomes another descriptor without being closed between.
        let foreign = unsafe { libc::dup2(2, fd) };
        assert!(foreign == fd && !is_ours(fd));
        close(fd);
    }
}
