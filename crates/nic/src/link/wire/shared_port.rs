//! The shared port of one IP version: this process's socket on it, or a way out beside it while
//! another user has it.
//!
//! Sockets share a port only within one user. Where another user's Ferroce processes have it, this
//! process is their *guest*. It sends from a port of its own, which `RoCEv2` leaves to the sender,
//! and the processes on the shared port pass on what comes for its slot. A guest tries again to get
//! the port, and then receives by itself.
//!
//! The kernel says which user has the port. That the processes there are Ferroce's, and not a plain
//! socket or the kernel's rxe, they say by an abstract name that has the user in it. The name is
//! evidence only: the worst that a false one does is that a guest waits for packets which nobody
//! passes on.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_os::random;
use ferroce_os::udp::{UdpSocket, user_of_port};
use ferroce_os::unix::{Credentials, Dgram, abstract_names};

use crate::Error;

/// Attempts to open a port whose owner has just gone when it is looked for.
const ATTEMPTS: usize = 3;
/// No user.
const NOBODY: u64 = u64::MAX;

/// The name by which a process says that it is a Ferroce on the shared port.
#[derive(Debug)]
pub(super) struct SharedPortSign(
    #[allow(dead_code, reason = "the name lasts as long as its socket")] Dgram,
);

impl SharedPortSign {
    /// Puts it up. `None`: the system refuses it, and other users find no Ferroce here.
    pub(super) fn put_up(port: u16) -> Option<Self> {
        let name = signs(port, Credentials::own().uid) + &format!("{:016x}", random::u64());
        Dgram::bind(&name)
            .inspect_err(|error| {
                tracing::debug!(target: "ferroce::wire", %error, "other users are not told who has the port");
            })
            .ok()
            .map(Self)
    }
}

/// What the names of a user's processes on a port begin with.
fn signs(port: u16, user: u32) -> String {
    format!("ferroce/wire/{port}/{user}/")
}

/// The sockets of one IP version.
#[derive(Debug)]
pub(super) struct SharedPort {
    port: u16,
    v6: bool,
    /// Sends. On the port itself, unless this process was a guest when it began.
    out: UdpSocket,
    /// The socket on the port, once a guest has got it.
    taken: OnceLock<UdpSocket>,
    /// While this process is a guest: the user that has the port.
    holder: AtomicU64,
}

impl SharedPort {
    /// Opens the port, or a way out beside another user's Ferroce. `None`: the kernel has no such
    /// IP version.
    ///
    /// # Errors
    /// EADDRINUSE if the port is taken by something else than another user's Ferroce; EMFILE and
    /// the like.
    pub(super) fn open(port: u16, v6: bool) -> Result<Option<Self>, Error> {
        for _ in 0..ATTEMPTS {
            let error = match bind(port, v6) {
                Ok(socket) => return Ok(Some(Self::on_port(socket, v6))),
                Err(error) => error,
            };
            match error.raw_os_error() {
                // EADDRNOTAVAIL: IPv6 was switched off after the kernel started.
                Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => return Ok(None),
                Some(libc::EADDRINUSE) => {}
                _ => return Err(not_opened(port, &error)),
            }
            match user_of_port(port, v6) {
                // The owner has just gone.
                Ok(None) => {}
                Ok(Some(user)) if is_ferroce(port, user) => {
                    return Self::beside(port, v6, user).map(Some);
                }
                _ => break,
            }
        }
        Err(taken(port))
    }

    fn on_port(out: UdpSocket, v6: bool) -> Self {
        Self {
            port: out.port(),
            v6,
            out,
            taken: OnceLock::new(),
            holder: AtomicU64::new(NOBODY),
        }
    }

    /// Becomes a guest of a user's processes.
    pub(super) fn beside(port: u16, v6: bool, user: u32) -> Result<Self, Error> {
        let out = UdpSocket::guest(v6).map_err(|e| not_opened(port, &e))?;
        tracing::info!(target: "ferroce::wire", port, v6, user, "another user's Ferroce has the port and passes on what comes");
        Ok(Self {
            port,
            holder: AtomicU64::new(user.into()),
            ..Self::on_port(out, v6)
        })
    }

    /// The port that peers are sent to.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The socket that sends.
    pub(super) fn out(&self) -> &UdpSocket {
        &self.out
    }

    /// The socket that receives. `None`: this process is a guest.
    pub(super) fn inbox(&self) -> Option<&UdpSocket> {
        if self.hears_by_out() {
            return Some(&self.out);
        }
        self.taken.get()
    }

    /// Whether the socket that sends receives, too: this process was never a guest.
    pub(super) fn hears_by_out(&self) -> bool {
        self.out.port() == self.port
    }

    /// The user that passes on what comes to the port, if this process is a guest.
    pub(super) fn holder(&self) -> Option<u32> {
        u32::try_from(self.holder.load(Ordering::Relaxed)).ok()
    }

    /// Tries to get the port for a guest. Returns the descriptor of the socket that receives from
    /// now on.
    pub(super) fn take(&self) -> Option<RawFd> {
        if self.inbox().is_some() {
            return None;
        }
        match bind(self.port, self.v6) {
            Ok(socket) => {
                tracing::info!(target: "ferroce::wire", port = self.port, v6 = self.v6, "the port is ours now");
                self.holder.store(NOBODY, Ordering::Relaxed);
                Some(self.taken.get_or_init(|| socket).as_raw_fd())
            }
            Err(_) => {
                self.update_holder();
                None
            }
        }
    }

    /// Asks the kernel which user has the port.
    fn update_holder(&self) {
        let user = user_of_port(self.port, self.v6).ok().flatten();
        let is_known = |user: &u32| self.holder() == Some(*user);
        let user = user.filter(|user| is_known(user) || is_ferroce(self.port, *user));
        let user = user.map_or(NOBODY, u64::from);
        if self.holder.swap(user, Ordering::Relaxed) != user {
            tracing::warn!(target: "ferroce::wire", port = self.port, v6 = self.v6, ?user, "the port has another owner");
        }
    }
}

fn bind(port: u16, v6: bool) -> io::Result<UdpSocket> {
    if v6 {
        UdpSocket::bind_v6(port)
    } else {
        UdpSocket::bind_v4(port)
    }
}

/// Whether another user's processes on a port say that they are Ferroce's.
fn is_ferroce(port: u16, user: u32) -> bool {
    let names = || abstract_names(&signs(port, user)).unwrap_or_default();
    user != Credentials::own().uid && !names().is_empty()
}

fn taken(port: u16) -> Error {
    Error::new(
        libc::EADDRINUSE,
        format!(
            "UDP port {port} is owned by another user's process or by the kernel's rxe (module rdma_rxe); without it \
             there are no connections to other hosts"
        ),
    )
}

fn not_opened(port: u16, error: &io::Error) -> Error {
    Error::new(
        error.raw_os_error().unwrap_or(libc::EIO),
        format!("UDP port {port} cannot be opened: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_gets_the_port_when_it_is_free() {
        // A plain socket does not share: to the kernel it is as good as another user's.
        let owner = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = owner.local_addr().unwrap().port();
        let guest = SharedPort::beside(port, false, 7).unwrap();
        assert_eq!((guest.port(), guest.holder()), (port, Some(7)));
        assert_ne!(guest.out().port(), port);
        assert!(guest.inbox().is_none());
        assert_eq!(guest.take(), None, "the owner is still there");
        assert_eq!(guest.holder(), None, "it is no Ferroce");
        drop(owner);
        let fd = guest.take().expect("the port is free");
        assert_eq!(guest.inbox().map(AsRawFd::as_raw_fd), Some(fd));
        assert_eq!((guest.take(), guest.holder()), (None, None));
    }

    #[test]
    fn a_taken_port_without_a_sign_is_refused() {
        let owner = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = owner.local_addr().unwrap().port();
        let error = SharedPort::open(port, false).unwrap_err();
        assert_eq!(error.errno, libc::EADDRINUSE);
        let _sign = SharedPortSign::put_up(port).unwrap();
        let error = SharedPort::open(port, false).unwrap_err();
        assert_eq!(error.errno, libc::EADDRINUSE, "our own user shares or not");
    }
}
