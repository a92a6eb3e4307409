//! Word from the kernel that interfaces or their addresses have changed (rtnetlink(7)).
//!
//! A message says only *that* something changed: what is true now is for
//! [`netdev::interfaces`](crate::netdev::interfaces) to tell, so a lost message does no harm as
//! long as one comes.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use crate::fd::Fd;
use crate::sockaddr::family;
use crate::sys::{self, check, check_retry, errno, socklen};

/// Multicast groups: links, IPv4 and IPv6 addresses.
const GROUPS: c_int = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
/// Room for the messages of one read: the kernel's own are shorter than a page.
const ROOM: usize = 8192;
/// Bytes of `struct nlmsghdr`, and what messages are aligned to.
pub(crate) const HEADER: usize = 16;
const ALIGN: usize = 4;

/// Subject of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The interface with this index: it appeared, vanished, or its flags, MTU … changed.
    Link(u32),
    /// An address of the interface with this index appeared or vanished.
    Address(u32),
    /// Messages were lost, or one was not understood: anything may have changed.
    Unknown,
}

/// A socket on which the kernel tells of changes in this network namespace.
#[derive(Debug)]
pub struct RouteSocket {
    fd: Fd,
}

impl RouteSocket {
    /// Starts to listen.
    ///
    /// # Errors
    /// Out of descriptors, or a sandbox that forbids netlink (EACCES, EPERM, EAFNOSUPPORT).
    pub fn open() -> io::Result<Self> {
        let fd = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        let mut at = nowhere();
        at.nl_groups = GROUPS.cast_unsigned();
        // SAFETY: pointer and length describe `at`.
        check(unsafe {
            libc::syscall(
                libc::SYS_bind,
                fd.as_raw_fd(),
                &raw const at,
                size_of::<libc::sockaddr_nl>(),
            )
        })?;
        Ok(Self { fd })
    }

    /// Takes out everything that has come and gives each change to `each`.
    ///
    /// # Errors
    /// None is expected.
    pub fn drain(&self, each: &mut dyn FnMut(Change)) -> io::Result<()> {
        let mut room = [0_u8; ROOM];
        loop {
            match self.recv(&mut room) {
                // Anybody may send to the socket: only the kernel, which has port 0, is heard.
                Ok((_, from)) if from != 0 => {}
                Ok((len, _)) => parse(&room[..len], each),
                Err(e) if errno(&e) == libc::EAGAIN => return Ok(()),
                Err(e) if errno(&e) == libc::ENOBUFS => each(Change::Unknown),
                Err(e) => return Err(e),
            }
        }
    }

    /// Receives a datagram: returns its length and its sender's port.
    fn recv(&self, room: &mut [u8]) -> io::Result<(usize, u32)> {
        let mut from = nowhere();
        let mut from_len = socklen(size_of::<libc::sockaddr_nl>());
        // SAFETY: the pointers describe `room`, `from` and `from_len`, which outlive the call.
        let len = check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                self.fd.as_raw_fd(),
                room.as_mut_ptr(),
                room.len(),
                libc::MSG_DONTWAIT,
                &raw mut from,
                &raw mut from_len,
            )
        })?;
        Ok((len.min(room.len()), from.nl_pid))
    }
}

impl AsRawFd for RouteSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// A netlink address without port and groups.
fn nowhere() -> libc::sockaddr_nl {
    // SAFETY: integers only.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = family(libc::AF_NETLINK);
    address
}

/// Gives each change that a datagram tells of to `each`.
fn parse(mut bytes: &[u8], each: &mut dyn FnMut(Change)) {
    while !bytes.is_empty() {
        let Some((kind, body, rest)) = split(bytes) else {
            return each(Change::Unknown);
        };
        bytes = rest;
        let change = match kind {
            libc::RTM_NEWLINK | libc::RTM_DELLINK => Change::Link,
            libc::RTM_NEWADDR | libc::RTM_DELADDR => Change::Address,
            _ => continue,
        };
        // `struct ifinfomsg` and `struct ifaddrmsg` both have the index as their second word.
        each(word(body, 4).map_or(Change::Unknown, change));
    }
}

/// Reads a datagram of the kernel, whatever it holds.
///
/// # Panics
/// It tells of more changes than it has room for.
#[cfg(feature = "fuzzing")]
pub fn fuzz(bytes: &[u8]) {
    let mut changes = 0;
    parse(bytes, &mut |_| changes += 1);
    assert!(changes <= bytes.len().div_ceil(HEADER), "{changes} changes");
}

/// The first message's type and body, and what follows it.
pub(crate) fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = usize::try_from(word(bytes, 0)?).ok()?;
    let body = bytes.get(HEADER..len)?;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let next = len.next_multiple_of(ALIGN).min(bytes.len());
    Some((kind, body, &bytes[next..]))
}

/// Sends a request.
pub(crate) fn send(fd: &Fd, request: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length describe the request.
    check_retry(|| unsafe {
        libc::syscall(
            libc::SYS_sendto,
            fd.as_raw_fd(),
            request.as_ptr(),
            request.len(),
            0,
            std::ptr::null::<libc::sockaddr>(),
            0,
        )
    })
    .map(drop)
}

/// Receives an answer, or a part of one, of `room` bytes at most. The kernel makes it before the
/// call that sends the request returns, or when this one asks for it, so there is no waiting.
pub(crate) fn receive(fd: &Fd, room: usize) -> io::Result<Vec<u8>> {
    let mut room = vec![0; room];
    // SAFETY: pointer and length describe the room.
    let len = check(unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            fd.as_raw_fd(),
            room.as_mut_ptr(),
            room.len(),
            libc::MSG_DONTWAIT,
            std::ptr::null_mut::<libc::sockaddr>(),
            std::ptr::null_mut::<libc::socklen_t>(),
        )
    })?;
    room.truncate(len);
    Ok(room)
}

/// What a message of type `NLMSG_ERROR` says.
pub(crate) fn error(body: &[u8]) -> io::Error {
    let Some(code) = word(body, 0) else {
        return io::ErrorKind::InvalidData.into();
    };
    io::Error::from_raw_os_error(code.cast_signed().saturating_neg())
}

/// The value of an attribute.
pub(crate) fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let name = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let value = attributes.get(4..len)?;
        if name == wanted {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(ALIGN)..)?;
    }
}

/// A number in the host's byte order.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with an interface's index in the second word of its body.
    fn message(kind: u16, index: u32, padding: usize) -> Vec<u8> {
        let body = [vec![0; 4], index.to_ne_bytes().to_vec(), vec![0; padding]].concat();
        let len = u32::try_from(HEADER + body.len()).expect("short");
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        bytes
    }

    fn parsed(bytes: &[u8]) -> Vec<Change> {
        let mut changes = Vec::new();
        parse(bytes, &mut |change| changes.push(change));
        changes
    }

    #[test]
    fn messages_tell_which_interface_has_changed() {
        let datagram = [
            message(libc::RTM_NEWLINK, 3, 13),
            message(libc::RTM_NEWROUTE, 4, 0),
            message(libc::RTM_DELADDR, 5, 1),
            message(libc::RTM_DELLINK, 6, 0),
            message(libc::RTM_NEWADDR, 7, 20),
        ]
        .concat();
        assert_eq!(
            parsed(&datagram),
            [
                Change::Link(3),
                Change::Address(5),
                Change::Link(6),
                Change::Address(7)
            ]
        );
        assert_eq!(parsed(&[]), []);
    }

    #[test]
    fn what_is_not_understood_may_mean_anything() {
        let good = message(libc::RTM_NEWLINK, 3, 0);
        for cut in 1..good.len() {
            assert_eq!(parsed(&good[..cut]), [Change::Unknown], "{cut} bytes");
        }
        for len in [0, 1, 15, 25, u32::MAX] {
            let mut bad = good.clone();
            bad[..4].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(parsed(&bad), [Change::Unknown], "length {len}");
        }
        // A header without a body, then one more message.
        let mut empty = good[..HEADER].to_vec();
        empty[..4].copy_from_slice(&16_u32.to_ne_bytes());
        empty.extend(&good);
        assert_eq!(parsed(&empty), [Change::Unknown, Change::Link(3)]);
    }

    #[test]
    fn other_processes_are_not_heard() {
        // No interface has it, so the kernel itself does not tell of it.
        const INDEX: u32 = 0x7fff_0003;
        let socket = RouteSocket::open().expect("netlink");
        let stranger =
            sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE).expect("netlink");
        let mut at = nowhere();
        let mut len = socklen(size_of::<libc::sockaddr_nl>());
        // SAFETY: pointers to live variables.
        check(unsafe {
            libc::syscall(
                libc::SYS_getsockname,
                socket.as_raw_fd(),
                &raw mut at,
                &raw mut len,
            )
        })
        .expect("an address");
        at.nl_groups = 0;
        let lie = message(libc::RTM_NEWLINK, INDEX, 0);
        // SAFETY: pointers to live variables.
        let sent = check(unsafe {
            libc::syscall(
                libc::SYS_sendto,
                stranger.as_raw_fd(),
                lie.as_ptr(),
                lie.len(),
                0,
                &raw const at,
                len,
            )
        });
        // Where the kernel lets processes talk at all.
        let delivered = sent.is_ok();
        let mut heard = Vec::new();
        socket
            .drain(&mut |change| heard.push(change))
            .expect("drained");
        assert!(
            !heard.contains(&Change::Link(INDEX)),
            "delivered: {delivered}, heard {heard:?}"
        );
    }
}
