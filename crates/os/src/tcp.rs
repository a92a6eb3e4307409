//! TCP connections, for iWARP.
//!
//! All calls are non-blocking. What a connection sends is taken from where it is: pieces of
//! registered memory go to the kernel by their addresses.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

use ferroce_proto::mr::{Backing, Piece, Span};

use crate::fd::Fd;
use crate::memory::iovec;
use crate::sockaddr::InetAddr;
use crate::sys::{self, check, check_retry, raw_fd, set_option};

/// Most pieces of one write; more are sent with the next (`UIO_MAXIOV` is 1024).
const MAX_PIECES: usize = 1024;
const SEND_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
/// What a region without memory reads as. A piece of an FPDU is never longer.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// A TCP socket: a listener, or one end of a connection.
#[derive(Debug)]
pub struct TcpSocket {
    fd: Fd,
}

impl TcpSocket {
    /// A socket that has an address. Port 0 is any free one; connections in TIME-WAIT are not in
    /// the way. An IPv6 socket is for IPv4 as well unless `v6_only`.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL, EACCES for a low port; EAFNOSUPPORT; out of descriptors.
    pub fn bind(addr: SocketAddr, v6_only: bool) -> io::Result<Self> {
        let socket = Self::new(addr.ip())?;
        set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        if addr.is_ipv6() {
            let only = c_int::from(v6_only);
            set_option(
                socket.as_raw_fd(),
                libc::IPPROTO_IPV6,
                libc::IPV6_V6ONLY,
                only,
            )?;
        }
        socket.with_address(libc::SYS_bind, addr)?;
        Ok(socket)
    }

    /// A socket that will connect from an address, with any port.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn from_address(source: SocketAddr) -> io::Result<Self> {
        let socket = Self::new(source.ip())?;
        // The port is chosen with the destination: many connections may share one.
        let (level, name) = (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);
        set_option(socket.as_raw_fd(), level, name, 1)?;
        let mut any_port = source;
        any_port.set_port(0);
        socket.with_address(libc::SYS_bind, any_port)?;
        Ok(socket)
    }

    fn new(ip: IpAddr) -> io::Result<Self> {
        let domain = if ip.is_ipv6() {
            libc::AF_INET6
        } else {
            libc::AF_INET
        };
        let fd = sys::socket(domain, libc::SOCK_STREAM, 0)?;
        Ok(Self { fd })
    }

    fn with_address(&self, call: libc::c_long, addr: SocketAddr) -> io::Result<()> {
        let raw = raw_address(addr);
        // SAFETY: the pointer and the length describe the address, which the kernel only reads.
        check_retry(|| unsafe { libc::syscall(call, self.as_raw_fd(), &raw const raw, raw.len()) })
            .map(drop)
    }

    /// The socket takes connections from here on, of which `backlog` may wait.
    ///
    /// # Errors
    /// EADDRINUSE: another socket listens on the port.
    pub fn listen(&self, backlog: u32) -> io::Result<()> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: takes no pointers.
        check(unsafe { libc::syscall(libc::SYS_listen, self.as_raw_fd(), backlog) }).map(drop)
    }

    /// The next connection and its peer's address; `None`: there is none.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM: the connection waits on.
    pub fn accept(&self) -> io::Result<Option<(Self, SocketAddr)>> {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let mut addr = InetAddr::zeroed();
        let mut len = InetAddr::capacity();
        // SAFETY: the pointers are to room for an address and its length.
        let got = check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_accept4,
                self.as_raw_fd(),
                &raw mut addr,
                &raw mut len,
                flags,
            )
        });
        match got {
            Ok(raw) => {
                let fd = Fd::internal(raw_fd(raw));
                Ok(Some((Self { fd }, plain_address(&addr))))
            }
            // It was reset while it waited (accept(2)): the next may be whole.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted
                ) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Begins to connect. The socket is writable once [`outcome`](Self::outcome) is known.
    ///
    /// # Errors
    /// ECONNREFUSED, ENETUNREACH, EADDRNOTAVAIL …, if it is known at once.
    pub fn connect(&self, to: SocketAddr) -> io::Result<()> {
        match self.with_address(libc::SYS_connect, to) {
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
            other => other,
        }
    }

    /// What became of [`connect`](Self::connect).
    ///
    /// # Errors
    /// Why it failed.
    pub fn outcome(&self) -> io::Result<()> {
        match sys::option(self.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ERROR)? {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Own address, with the real port.
    ///
    /// # Errors
    /// None is expected.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.address(libc::SYS_getsockname)
    }

    /// Address of the peer.
    ///
    /// # Errors
    /// ENOTCONN: there is none, or none any more.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.address(libc::SYS_getpeername)
    }

    fn address(&self, call: libc::c_long) -> io::Result<SocketAddr> {
        let mut addr = InetAddr::zeroed();
        let mut len = InetAddr::capacity();
        // SAFETY: the pointers are to room for an address and its length.
        check(unsafe { libc::syscall(call, self.as_raw_fd(), &raw mut addr, &raw mut len) })?;
        Ok(plain_address(&addr))
    }

    /// Small messages leave at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// None is expected.
    pub fn send_promptly(&self) -> io::Result<()> {
        set_option(self.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)
    }

    /// Bytes of a segment now.
    ///
    /// # Errors
    /// None is expected.
    pub fn segment(&self) -> io::Result<usize> {
        let bytes = sys::option(self.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG)?;
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    /// Sends what there is room for. Returns the bytes that TCP took; 0: there is no room.
    ///
    /// # Errors
    /// EPIPE, ECONNRESET …: the connection is gone. EFAULT: the first piece is of memory that is
    /// not mapped any more.
    pub fn send(&self, pieces: &[Piece<'_>]) -> io::Result<usize> {
        let sent = match pieces {
            // A short message is one piece: `sendto` spares the kernel the list of pieces.
            [piece] => self.send_piece(&source(piece)),
            _ => self.send_list(&pieces[..pieces.len().min(MAX_PIECES)]),
        };
        match sent {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    fn send_piece(&self, piece: &libc::iovec) -> io::Result<usize> {
        let null = std::ptr::null::<u8>();
        // SAFETY: the kernel only reads what the piece names, and answers EFAULT for memory that is
        // not mapped; no address is given.
        check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_sendto,
                self.as_raw_fd(),
                piece.iov_base,
                piece.iov_len,
                SEND_FLAGS,
                null,
                0,
            )
        })
    }

    fn send_list(&self, pieces: &[Piece<'_>]) -> io::Result<usize> {
        let iovecs: Vec<libc::iovec> = pieces.iter().map(source).collect();
        // SAFETY: null pointers, lengths and flags, for which zero is a value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = iovecs.as_ptr().cast_mut();
        header.msg_iovlen = sys::fit(iovecs.len());
        // SAFETY: the header leads to the list, which lives through the call. The kernel only reads
        // what it names, and answers EFAULT for memory that is not mapped.
        check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_sendmsg,
                self.as_raw_fd(),
                &raw const header,
                SEND_FLAGS,
            )
        })
    }

    /// Receives what has come. `None`: nothing; 0 bytes: the peer has closed its side.
    ///
    /// # Errors
    /// ECONNRESET, ETIMEDOUT …: the connection is gone.
    pub fn recv(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let null = std::ptr::null_mut::<u8>();
        // SAFETY: the pointer and the length describe `room`; no address is asked for.
        let got = check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                self.as_raw_fd(),
                room.as_mut_ptr(),
                room.len(),
                libc::MSG_DONTWAIT,
                null,
                null,
            )
        });
        received(got)
    }

    /// As [`recv`](Self::recv), into registered memory first and then into the buffers.
    ///
    /// # Errors
    /// As [`recv`](Self::recv). EFAULT: memory is not mapped any more, and nothing was taken.
    pub fn recv_into(
        &self,
        spans: &[Span<'_>],
        buffers: &mut [&mut [u8]],
    ) -> io::Result<Option<usize>> {
        let of_memory = spans.iter().map(|&span| iovec(&Piece::Registered(span)));
        let of_buffers = buffers.iter_mut().map(|buffer| libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        });
        let mut iovecs: Vec<libc::iovec> = of_memory.chain(of_buffers).collect();
        // SAFETY: null pointers, lengths and flags, for which zero is a value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = iovecs.as_mut_ptr();
        header.msg_iovlen = sys::fit(iovecs.len());
        // SAFETY: the header leads to the list, which lives through the call. The kernel writes to
        // the buffers and to spans of registered memory, which is the program's to share, and
        // answers EFAULT for what is not mapped.
        let got = check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_recvmsg,
                self.as_raw_fd(),
                &raw mut header,
                libc::MSG_DONTWAIT,
            )
        });
        received(got)
    }

    /// Nothing more is sent. The peer sees the end behind what TCP has.
    pub fn end(&self) {
        // SAFETY: takes no pointers. Fails only if the connection is gone.
        unsafe { libc::syscall(libc::SYS_shutdown, self.as_raw_fd(), libc::SHUT_WR) };
    }

    /// Bytes that the peer's TCP has not acknowledged, the end among them; 0 if the connection is
    /// gone.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        if self.is_gone() {
            return 0;
        }
        let mut bytes: c_int = 0;
        // SAFETY: room for the number (`SIOCOUTQ`, tcp(7)).
        let told = check(unsafe {
            libc::syscall(
                libc::SYS_ioctl,
                self.as_raw_fd(),
                libc::TIOCOUTQ,
                &raw mut bytes,
            )
        });
        told.map_or(0, |_| usize::try_from(bytes).unwrap_or(0))
    }

    /// Whether the connection is over at both ends, by a reset for instance.
    fn is_gone(&self) -> bool {
        /// `TCP_CLOSE` (`net/tcp_states.h`).
        const CLOSE: u8 = 7;
        // The structure begins with the state (`tcpi_state`), and the kernel gives as much of it as
        // there is room for.
        let info = sys::option(self.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO);
        info.is_ok_and(|start| start.to_ne_bytes()[0] == CLOSE)
    }

    /// Breaks the connection: the peer gets a reset, and what TCP still has is lost.
    pub fn reset(self) {
        self.reset_at_close();
    }

    /// Closing it from here on breaks the connection, as [`reset`](Self::reset) does.
    pub fn reset_at_close(&self) {
        let linger: [c_int; 2] = [1, 0];
        let bytes = linger.map(c_int::to_ne_bytes);
        // Without the option it is closed in order.
        let _ = sys::set_option_bytes(
            self.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            bytes.as_flattened(),
        );
    }
}

impl AsRawFd for TcpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// What a call has received; `None`: nothing was there.
fn received(got: io::Result<usize>) -> io::Result<Option<usize>> {
    match got {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        other => other.map(Some),
    }
}

/// Where the kernel reads a piece. A region without memory reads as zeros.
fn source(piece: &Piece<'_>) -> libc::iovec {
    match piece {
        Piece::Registered(span) if span.backing() == Backing::Null => {
            let len = span.len().min(ZEROS.len());
            iovec(&Piece::Inline(&ZEROS[..len]))
        }
        other => iovec(other),
    }
}

fn raw_address(addr: SocketAddr) -> InetAddr {
    let scope = match addr {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    InetAddr::new(addr.ip(), addr.port(), scope)
}

/// An IPv4 peer of a socket for both versions has its IPv4 address.
fn plain_address(raw: &InetAddr) -> SocketAddr {
    let (ip, port) = raw
        .get()
        .unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED.into(), 0));
    SocketAddr::new(ip.to_canonical(), port)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ferroce_proto::ids::{Key, PdId};
    use ferroce_proto::mr::{Access, Region, Rights};

    use super::*;
    use crate::poll::{Interest, Poller};

    fn ready(socket: &TcpSocket, interest: Interest) {
        let (poller, mut events) = (Poller::new().expect("epoll"), Vec::new());
        poller.add(socket.as_raw_fd(), 0, interest).expect("add");
        poller
            .wait(&mut events, Some(Duration::from_secs(30)))
            .expect("wait");
        assert!(!events.is_empty(), "nothing came");
    }

    fn pair() -> (TcpSocket, TcpSocket) {
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = TcpSocket::bind(any, false).expect("bind");
        listener.listen(8).expect("listen");
        assert!(listener.accept().expect("accept").is_none());
        let a = TcpSocket::from_address(any).expect("bind");
        a.connect(listener.local_addr().expect("bound"))
            .expect("connect");
        ready(&a, Interest::WRITE);
        a.outcome().expect("connected");
        ready(&listener, Interest::READ);
        let (b, from) = listener.accept().expect("accept").expect("a connection");
        assert_eq!(from, a.local_addr().expect("bound"));
        assert_eq!(from, b.peer_addr().expect("connected"));
        (a, b)
    }

    #[test]
    fn pieces_arrive_in_order_and_the_end_behind_them() {
        let (a, b) = pair();
        a.send_promptly().expect("option");
        assert!(a.segment().expect("option") > 500);
        let sent = a.send(&[Piece::Inline(b"one "), Piece::Inline(b"two")]);
        assert_eq!(sent.expect("room"), 7);
        a.end();
        let mut room = [0; 16];
        ready(&b, Interest::READ);
        assert_eq!(b.recv(&mut room).expect("bytes"), Some(7));
        assert_eq!(&room[..7], b"one two");
        ready(&b, Interest::READ);
        assert_eq!(b.recv(&mut room).expect("the end"), Some(0));
        assert_eq!(a.recv(&mut room).expect("open"), None);
    }

    #[test]
    fn bytes_are_received_into_memory_first_and_not_if_it_is_not_mapped() {
        let (a, b) = pair();
        let (pd, access) = (PdId(1), Access::LOCAL_WRITE);
        let mut memory = [0_u8; 4];
        let mut rights = Rights::default();
        let start = memory.as_mut_ptr().expose_provenance() as u64;
        let mapped = Region::new(pd, start, 4, access);
        // No program has the first page.
        let unmapped = Region::new(pd, 16, 4, access);
        assert!(rights.insert(Key(1), mapped) && rights.insert(Key(2), unmapped));
        let open = |key, at, len| rights.open(key, pd, at, len, access).expect("inside");
        a.send(&[Piece::Inline(b"abcdefg")]).expect("room");
        ready(&b, Interest::READ);
        let mut room = [0; 8];
        let refused = b.recv_into(&[open(Key(2), 16, 4)], &mut [&mut room]);
        let errno = refused.expect_err("unmapped").raw_os_error();
        assert_eq!(errno, Some(libc::EFAULT));
        let spans = [open(Key(1), start + 2, 2), open(Key(1), start, 1)];
        let (first, rest) = room.split_at_mut(1);
        let got = b.recv_into(&spans, &mut [first, rest]);
        assert_eq!(got.expect("bytes"), Some(7));
        assert_eq!((&memory, &room[..4]), (b"c\0ab", &b"defg"[..]));
        let got = b.recv_into(&spans, &mut [&mut room]);
        assert_eq!(got.expect("open"), None);
    }

    #[test]
    fn what_a_connection_that_was_reset_had_to_send_is_not_under_way() {
        let (a, b) = pair();
        while a.send(&[Piece::Inline(&[0; 4096])]).expect("open") > 0 {}
        assert!(a.unacknowledged() > 0);
        b.reset();
        ready(&a, Interest::READ);
        assert_eq!(a.unacknowledged(), 0);
    }

    #[test]
    fn a_reset_is_an_error_and_a_port_belongs_to_one_listener() {
        let (a, b) = pair();
        a.reset();
        ready(&b, Interest::READ);
        let error = b.recv(&mut [0; 1]).expect_err("reset");
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        let any = "127.0.0.1:0".parse().expect("an address");
        let first = TcpSocket::bind(any, false).expect("bind");
        first.listen(1).expect("listen");
        let taken = TcpSocket::bind(first.local_addr().expect("bound"), false);
        let errno = taken.expect_err("taken").raw_os_error();
        assert_eq!(errno, Some(libc::EADDRINUSE));
    }

    #[test]
    fn nobody_listening_is_told() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let held = TcpSocket::bind(any, false).expect("bind");
        let a = TcpSocket::from_address(any).expect("bind");
        let outcome = a.connect(held.local_addr().expect("bound")).and_then(|()| {
            ready(&a, Interest::WRITE);
            a.outcome()
        });
        let errno = outcome.expect_err("refused").raw_os_error();
        assert_eq!(errno, Some(libc::ECONNREFUSED));
    }
}
