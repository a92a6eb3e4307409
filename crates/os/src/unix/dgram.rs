//! Single messages between names.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use super::{Credentials, Name, Record, process, receive, refuse_descriptors};
use crate::cmsg::ControlMessages;
use crate::fd::Fd;
use crate::sys::{self, check_retry, socklen};

/// A socket for single messages between names. All calls are non-blocking.
#[derive(Debug)]
pub struct Dgram {
    pub(super) fd: Fd,
    /// Whether each message has its sender's pidfd.
    names_senders: bool,
}

impl Dgram {
    /// Claims an abstract name (without the leading NUL).
    ///
    /// # Errors
    /// EADDRINUSE if the name is taken, EINVAL for a name that cannot be.
    pub fn bind(name: &str) -> io::Result<Self> {
        let name = Name::new(name)?;
        let fd = sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)?;
        // Before the name: each message that comes has its sender's credentials.
        sys::set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, 1)?;
        // With room for a pidfd a stranger's descriptor could come in its place.
        let names_senders = refuse_descriptors(&fd) && process::ask_for_senders(&fd);
        name.apply(libc::SYS_bind, &fd)?;
        Ok(Self { fd, names_senders })
    }

    /// Claims an abstract name that says something by being there: nobody can send to it.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn sign(name: &str) -> io::Result<Self> {
        let sign = Self::bind(name)?;
        // SAFETY: takes no pointers.
        sys::check(unsafe {
            libc::syscall(libc::SYS_shutdown, sign.fd.as_raw_fd(), libc::SHUT_RD)
        })?;
        Ok(sign)
    }

    /// A socket without a name, which only sends.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn unbound() -> io::Result<Self> {
        Ok(Self {
            fd: sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)?,
            names_senders: false,
        })
    }

    /// A socket without a name that sends to the socket that has a name now, and to no later one.
    ///
    /// # Errors
    /// ECONNREFUSED: nobody has it. EMFILE, ENFILE, ENOMEM.
    pub fn connected(name: &str) -> io::Result<Self> {
        let socket = Self::unbound()?;
        Name::new(name)?.apply(libc::SYS_connect, &socket.fd)?;
        Ok(socket)
    }

    /// Sends a message to the socket that it is connected to.
    ///
    /// # Errors
    /// ECONNREFUSED: that is gone. EAGAIN: it has no room.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_by(None, bytes)
    }

    /// Sends a message to the socket that has the name.
    ///
    /// # Errors
    /// ECONNREFUSED: nobody has it. EAGAIN: full, or `net.unix.max_dgram_qlen` messages wait there.
    /// EPROTOTYPE: it is not a socket of this kind.
    pub fn send_to(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.send_by(Some(&Name::new(name)?), bytes)
    }

    /// Sends to the socket with a name, or else to the connected one.
    fn send_by(&self, name: Option<&Name>, bytes: &[u8]) -> io::Result<()> {
        let (address, len) =
            name.map_or((ptr::null(), 0), |name| (&raw const name.address, name.len));
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: pointers and lengths describe the message and the address, which the kernel only
        // reads.
        check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_sendto,
                self.fd.as_raw_fd(),
                bytes.as_ptr(),
                bytes.len(),
                flags,
                address,
                len,
            )
        })
        .map(drop)
    }

    /// Receives one message, which may be empty, and its sender: the real user, where
    /// [`SeqSocket::peer`](super::SeqSocket::peer) says the effective one (`unix(7)`,
    /// `SCM_CREDENTIALS`). Only a process with rights over others can name another one.
    ///
    /// # Errors
    /// ENOMEM and the like; none is expected.
    pub fn recv_from(&self, room: &mut [u8]) -> io::Result<(Record, Option<Credentials>)> {
        let mut control = ControlMessages::new();
        let space = |size| {
            // SAFETY: computes a size.
            let space = unsafe { libc::CMSG_SPACE(socklen(size)) };
            space as usize
        };
        // There is no room for descriptors besides, so the kernel closes those that come with a
        // message. It adds the sender's pidfd only where it refuses such messages.
        let pidfd = if self.names_senders {
            space(size_of::<RawFd>())
        } else {
            0
        };
        let capacity = space(size_of::<libc::ucred>()) + pidfd;
        let record = receive(&self.fd, room, Some((&mut control, capacity)))?;
        Ok((record, credentials(&control)))
    }
}

/// The credentials in control messages.
fn credentials(control: &ControlMessages) -> Option<Credentials> {
    let message = control
        .iter()
        .find(|m| m.level == libc::SOL_SOCKET && m.kind == libc::SCM_CREDENTIALS)?;
    // SAFETY: a structure of integers.
    let libc::ucred { pid, uid, .. } = unsafe { message.plain() }?;
    let pidfd = process::descriptor(control);
    let process = pidfd
        .filter(|_| pid == 0)
        .and_then(|fd| process::number(&fd));
    Some(Credentials { pid, uid, process })
}
