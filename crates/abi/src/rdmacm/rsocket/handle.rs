//! What a descriptor stands for that is an rsocket: a stream or datagrams.

use std::net::SocketAddr;
use std::sync::Arc;

use ferroce_proto::rsocket::Shutdown;
use libc::c_int;

use super::buffers::Buffers;
use super::datagram::DatagramSocket;
use super::errno::{Errno, Result};
use super::socket::Socket;
use super::wait::Awaited;

/// An rsocket.
#[derive(Clone, Debug)]
pub(super) enum Rsocket {
    Stream(Arc<Socket>),
    Datagram(Arc<DatagramSocket>),
}

/// A call's bytes that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// Bytes of the answer; of a datagram that is longer than its room, all.
    pub(super) len: usize,
    /// Bytes that are in the program's buffers.
    pub(super) copied: usize,
    /// Sender of a datagram.
    pub(super) from: Option<SocketAddr>,
}

impl Received {
    /// What the call answers: with `MSG_TRUNC` the length of the datagram (recv(2)).
    pub(super) fn told(&self, flags: c_int) -> usize {
        match flags & libc::MSG_TRUNC {
            0 => self.copied,
            _ => self.len,
        }
    }
}

impl Rsocket {
    /// The stream socket.
    ///
    /// # Errors
    /// EOPNOTSUPP for a datagram socket, as of `listen(2)`.
    pub(super) fn stream(self) -> Result<Arc<Socket>> {
        match self {
            Self::Stream(socket) => Ok(socket),
            Self::Datagram(_) => Err(Errno(libc::EOPNOTSUPP)),
        }
    }

    pub(super) fn domain(&self) -> c_int {
        match self {
            Self::Stream(socket) => socket.domain(),
            Self::Datagram(socket) => socket.domain(),
        }
    }

    pub(super) fn bind(&self, addr: SocketAddr) -> Result<()> {
        match self {
            Self::Stream(socket) => socket.bind(addr),
            Self::Datagram(socket) => socket.bind(addr),
        }
    }

    pub(super) fn connect(&self, addr: SocketAddr) -> Result<()> {
        match self {
            Self::Stream(socket) => socket.connect(addr),
            Self::Datagram(socket) => socket.connect(addr),
        }
    }

    pub(super) fn shutdown(&self, how: c_int) -> Result<()> {
        let direction = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno(libc::EINVAL)),
        };
        match self {
            Self::Stream(socket) => socket.shutdown(direction),
            Self::Datagram(socket) => socket.shutdown(how),
        }
    }

    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Stream(socket) => socket.local_addr(),
            Self::Datagram(socket) => socket.local_addr(),
        }
    }

    pub(super) fn peer_addr(&self) -> Result<SocketAddr> {
        match self {
            Self::Stream(socket) => socket.peer_addr(),
            Self::Datagram(socket) => socket.peer_addr(),
        }
    }

    pub(super) fn set_option(&self, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
        match self {
            Self::Stream(socket) => socket.set_option(level, name, value),
            Self::Datagram(socket) => socket.set_option(level, name, value),
        }
    }

    pub(super) fn get_option(&self, level: c_int, name: c_int) -> Result<Vec<u8>> {
        match self {
            Self::Stream(socket) => socket.get_option(level, name),
            Self::Datagram(socket) => socket.get_option(level, name),
        }
    }

    pub(super) fn set_nonblocking(&self, on: bool) {
        match self {
            Self::Stream(socket) => socket.set_nonblocking(on),
            Self::Datagram(socket) => socket.set_nonblocking(on),
        }
    }

    pub(super) fn is_nonblocking(&self) -> bool {
        match self {
            Self::Stream(socket) => socket.is_nonblocking(),
            Self::Datagram(socket) => socket.is_nonblocking(),
        }
    }

    pub(super) fn revents(&self, events: i16) -> i16 {
        match self {
            Self::Stream(socket) => socket.revents(events),
            Self::Datagram(socket) => socket.revents(events),
        }
    }

    pub(super) fn awaited(&self) -> &dyn Awaited {
        match self {
            Self::Stream(socket) => &**socket,
            Self::Datagram(socket) => &**socket,
        }
    }

    /// Sends: all of the buffers on a stream, if the call blocks; one datagram, to `to` if it is
    /// given.
    pub(super) fn send(
        &self,
        from: Buffers<'_>,
        flags: c_int,
        to: Option<SocketAddr>,
    ) -> Result<isize> {
        match self {
            Self::Stream(_) if to.is_some() => Err(match self.peer_addr() {
                Ok(_) => Errno(libc::EISCONN),
                Err(error) => error,
            }),
            Self::Stream(socket) => socket.send(from, flags),
            Self::Datagram(socket) => socket.send(from, to, flags & libc::MSG_DONTWAIT != 0),
        }
    }

    /// Receives what there is of a stream, or one datagram.
    pub(super) fn receive(&self, mut to: Buffers<'_>, flags: c_int) -> Result<Received> {
        match self {
            Self::Stream(socket) => {
                let len = socket.receive(to, flags)?;
                Ok(Received {
                    len,
                    copied: len,
                    from: None,
                })
            }
            Self::Datagram(socket) => {
                let (len, from) = socket.receive(&mut to, flags)?;
                Ok(Received {
                    len,
                    copied: to.done(),
                    from: Some(from),
                })
            }
        }
    }
}
