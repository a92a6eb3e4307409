//! Unix sockets with abstract names: how processes of one network namespace find each other.
//!
//! An abstract name is exclusive, is visible in its network namespace only, leaves nothing in the
//! file system and vanishes with the last descriptor of its socket (`unix(7)`).

mod dgram;
mod discard;
mod identity;
mod owner;
mod privilege;
mod process;
mod seq;

use std::fs;
use std::io;
use std::mem::offset_of;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::cmsg::ControlMessages;
use crate::fd::Fd;
use crate::sockaddr::family;
use crate::sys::{check_retry, fit, set_option, socklen};
use crate::thread::uncancellable;

pub use dgram::Dgram;
pub use discard::discard;
pub use identity::{Identity, LocalUser, Relation};
pub use owner::{SocketKind, owner_of, owners};
pub use privilege::{first_open_port, may_have_low_ports, may_peer_have_low_ports};
pub use seq::{MAX_DESCRIPTORS, SeqListener, SeqName, SeqSocket, Waiting};

/// Has the kernel refuse messages with descriptors to a socket (`SO_PASSRIGHTS`, Linux 6.16):
/// dropping a stranger's can take as long as the stranger likes. Older kernels deliver them.
///
/// Returns whether the kernel does that.
fn refuse_descriptors(fd: &Fd) -> bool {
    const SO_PASSRIGHTS: std::ffi::c_int = 83;
    set_option(fd.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, 0).is_ok()
}

/// The process at the other end, as the kernel vouches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process, as this process's PID namespace numbers it; 0 if it is not visible there.
    pub pid: i32,
    /// Effective user.
    pub uid: u32,
    /// Which process it is, in every PID namespace; asked for only where `pid` is 0, and known to
    /// kernels since Linux 6.16.
    pub process: Option<NonZeroU64>,
}

impl Credentials {
    /// This process's.
    #[must_use]
    pub fn own() -> Self {
        // SAFETY: takes no pointers and cannot fail.
        let uid = unsafe { libc::geteuid() };
        Self {
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            uid,
            process: None,
        }
    }
}

/// Outcome of a receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// This many bytes.
    Whole(usize),
    /// The record was longer than the room for it; the rest is lost.
    Truncated,
    /// The peer has closed its end, or its process is gone.
    Closed,
    /// Nothing is there.
    Nothing,
}

struct Name {
    address: libc::sockaddr_un,
    len: libc::socklen_t,
}

impl Name {
    /// # Errors
    /// EINVAL for an empty name, one with a NUL and one of more than 107 bytes.
    fn new(name: &str) -> io::Result<Self> {
        // SAFETY: integers only.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = family(libc::AF_UNIX);
        // The first byte stays NUL: that makes the name abstract.
        let room = &mut address.sun_path[1..];
        if name.is_empty() || name.len() > room.len() || name.contains('\0') {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        for (to, from) in room.iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        Ok(Self {
            address,
            len: socklen(offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len()),
        })
    }

    fn apply(&self, call: libc::c_long, fd: &Fd) -> io::Result<()> {
        // SAFETY: pointer and length describe the address.
        check_retry(|| unsafe {
            libc::syscall(call, fd.as_raw_fd(), &raw const self.address, self.len)
        })
        .map(drop)
    }
}

/// Receives a record, and control messages in as many bytes of room as are given.
fn receive(
    fd: &Fd,
    room: &mut [u8],
    mut with: Option<(&mut ControlMessages, usize)>,
) -> io::Result<Record> {
    let mut iov = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    };
    // SAFETY: null pointers, lengths and flags, for which zero is a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut iov;
    header.msg_iovlen = 1;
    if let Some((control, capacity)) = &mut with {
        header.msg_control = control.as_mut_ptr();
        header.msg_controllen = fit((*capacity).min(ControlMessages::CAPACITY));
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header points to `room`, which is borrowed exclusively, and to `control`, whose
    // length is at least that. Without room for control messages the kernel closes descriptors that
    // come with the record.
    let got = check_retry(|| unsafe {
        libc::syscall(libc::SYS_recvmsg, fd.as_raw_fd(), &raw mut header, flags)
    });
    if let Some((control, _)) = with
        && got.is_ok()
    {
        control.set_len(fit(header.msg_controllen));
    }
    match got {
        Ok(_) if header.msg_flags & libc::MSG_TRUNC != 0 => Ok(Record::Truncated),
        Ok(n) => Ok(Record::Whole(n)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(Record::Nothing),
        Err(e) => Err(e),
    }
}

/// The descriptors that the kernel has just put into this process's table.
fn descriptors(control: &ControlMessages) -> impl Iterator<Item = Fd> {
    control
        .iter()
        .filter(|m| m.level == libc::SOL_SOCKET && m.kind == libc::SCM_RIGHTS)
        .flat_map(|m| m.data.as_chunks().0)
        .map(|raw| Fd::internal(RawFd::from_ne_bytes(*raw)))
}

/// Whether a socket for single messages has an abstract name.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM: it cannot be told now.
pub fn has_owner(name: &str) -> io::Result<bool> {
    let (socket, name) = (Dgram::unbound()?, Name::new(name)?);
    match name.apply(libc::SYS_connect, &socket.fd) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(e) => Err(e),
    }
}

/// The abstract names of this network namespace that begin with `prefix`, each once, in order,
/// without the leading NUL.
///
/// # Errors
/// Those of reading `/proc/net/unix`.
pub fn abstract_names(prefix: &str) -> io::Result<Vec<String>> {
    let list = uncancellable(|| fs::read("/proc/net/unix"))?;
    let mut names: Vec<String> = String::from_utf8_lossy(&list)
        .lines()
        .filter_map(listed_name)
        .filter(|n| n.starts_with(prefix))
        .map(String::from)
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// The abstract name in a line of `/proc/net/unix`: the eighth field, marked by `@`. A name may
/// have blanks in it.
fn listed_name(line: &str) -> Option<&str> {
    let mut rest = line;
    for _ in 0..7 {
        rest = rest.trim_start();
        rest = &rest[rest.find(' ')?..];
    }
    rest.strip_prefix(" @")
}

macro_rules! has_descriptor {
    ($($socket:ty),*) => {$(
        impl AsRawFd for $socket {
            fn as_raw_fd(&self) -> RawFd {
                self.fd.as_raw_fd()
            }
        }
        impl AsFd for $socket {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.fd.as_fd()
            }
        }
    )*};
}
has_descriptor!(SeqListener, SeqSocket, Dgram);

#[cfg(test)]
mod tests;
