//! Single messages between names.

use std::io;
use std::os::fd::AsRawFd;

use super::{Name, Record, receive};
use crate::fd::Fd;
use crate::sys::{self, check_retry};

/// A socket for single messages between names. All calls are non-blocking.
#[derive(Debug)]
pub struct Dgram {
    pub(super) fd: Fd,
}

impl Dgram {
    /// Claims an abstract name (without the leading NUL).
    ///
    /// # Errors
    /// EADDRINUSE if the name is taken, EINVAL for a name that cannot be.
    pub fn bind(name: &str) -> io::Result<Self> {
        let name = Name::new(name)?;
        let fd = sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)?;
        name.apply(libc::SYS_bind, &fd)?;
        Ok(Self { fd })
    }

    /// A socket without a name, which only sends.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn unbound() -> io::Result<Self> {
        Ok(Self {
            fd: sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)?,
        })
    }

    /// Sends a message to whoever has the name.
    ///
    /// # Errors
    /// ECONNREFUSED: nobody has it. EAGAIN: full, or `net.unix.max_dgram_qlen` messages wait there. EPROTOTYPE: it is not a
    /// socket of this kind.
    pub fn send_to(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let name = Name::new(name)?;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: pointers and lengths describe the message and the address.
        check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_sendto,
                self.fd.as_raw_fd(),
                bytes.as_ptr(),
                bytes.len(),
                flags,
                &raw const name.address,
                name.len,
            )
        })
        .map(drop)
    }

    /// Receives one message; it may be empty.
    ///
    /// # Errors
    /// ENOMEM and the like; none is expected.
    pub fn recv(&self, room: &mut [u8]) -> io::Result<Record> {
        receive(&self.fd, room, None)
    }
}
