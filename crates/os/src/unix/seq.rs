//! Connections that carry records, and descriptors with them.

use std::ffi::c_int;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use super::{Credentials, Name, Record, descriptors, process, receive, refuse_descriptors};
use crate::cmsg::ControlMessages;
use crate::fd::Fd;
use crate::sys::{self, check, check_retry, fit, raw_fd, socklen};

/// Connections that may wait to be accepted; the kernel gives at most `net.core.somaxconn`. A
/// process that connects while strangers keep the listener busy waits behind all of them.
const BACKLOG: u16 = 1024;

/// Descriptors that one record carries at most.
pub const MAX_DESCRIPTORS: usize = 4;

/// An abstract name that is bound for connections. Nobody can connect to it before it listens.
#[derive(Debug)]
pub struct SeqName {
    fd: Fd,
}

impl SeqName {
    /// Binds an abstract name (without the leading NUL).
    ///
    /// # Errors
    /// EADDRINUSE if the name is taken, EINVAL for a name that cannot be.
    pub fn bind(name: &str) -> io::Result<Self> {
        let name = Name::new(name)?;
        let fd = sys::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)?;
        name.apply(libc::SYS_bind, &fd)?;
        Ok(Self { fd })
    }

    /// Listens on it.
    ///
    /// # Errors
    /// None is expected.
    pub fn listen(self) -> io::Result<SeqListener> {
        // SAFETY: takes no pointers.
        check(unsafe {
            libc::syscall(libc::SYS_listen, self.fd.as_raw_fd(), c_int::from(BACKLOG))
        })?;
        Ok(SeqListener { fd: self.fd })
    }
}

/// A listener for connections that keep the bounds of records.
#[derive(Debug)]
pub struct SeqListener {
    pub(super) fd: Fd,
}

impl SeqListener {
    /// Connections that wait to be accepted, at most: the kernel lets one more wait than the
    /// backlog that was asked for.
    pub const MOST_WAITING: usize = BACKLOG as usize + 1;

    /// Claims an abstract name (without the leading NUL) and listens.
    ///
    /// # Errors
    /// Those of [`SeqName::bind`].
    pub fn bind(name: &str) -> io::Result<Self> {
        SeqName::bind(name)?.listen()
    }

    /// Takes the next connection; `None`: there is none.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM: the connection waits on.
    pub fn accept(&self) -> io::Result<Option<SeqSocket>> {
        let null = std::ptr::null_mut::<u8>();
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no address is asked for.
        let got = check_retry(|| unsafe {
            libc::syscall(libc::SYS_accept4, self.fd.as_raw_fd(), null, null, flags)
        });
        match got {
            Ok(raw) => Ok(Some(SeqSocket {
                fd: Fd::internal(raw_fd(raw)),
            })),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// What is next to be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Nothing is there.
    Nothing,
    /// A record.
    Record,
    /// A record with descriptors.
    Descriptors,
    /// The end, or an empty record.
    Closed,
}

/// A connection that keeps the bounds of records. All calls are non-blocking.
#[derive(Debug)]
pub struct SeqSocket {
    pub(super) fd: Fd,
}

impl SeqSocket {
    /// Connects to a listener. This does not wait for it to accept.
    ///
    /// # Errors
    /// ECONNREFUSED: nobody has the name. EAGAIN: too many connections wait to be accepted.
    pub fn connect(name: &str) -> io::Result<Self> {
        Self::connect_within(name, Duration::ZERO)
    }

    /// As [`connect`](Self::connect), and waits for a place among the connections that wait to be
    /// accepted. The kernel gives the places in turn (`SO_SNDTIMEO` in `socket(7)`), so strangers
    /// that connect again and again do not keep this process out.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    pub fn connect_within(name: &str, patience: Duration) -> io::Result<Self> {
        let name = Name::new(name)?;
        let fd = sys::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)?;
        // What the listener answers has none.
        refuse_descriptors(&fd);
        match name.apply(libc::SYS_connect, &fd) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && !patience.is_zero() => {
                sys::set_send_timeout(fd.as_raw_fd(), Some(patience))?;
                let connected = name.apply(libc::SYS_connect, &fd);
                sys::set_send_timeout(fd.as_raw_fd(), None)?;
                connected?;
            }
            connected => connected?,
        }
        Ok(Self { fd })
    }

    /// Asks for a buffer of `bytes` for what was sent and not received yet. Returns what the kernel
    /// counts to: twice that, and at most twice `wmem_max`. A record takes a little more of it than
    /// its bytes.
    ///
    /// # Errors
    /// None is expected.
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<usize> {
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        sys::set_option(
            self.fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            bytes,
        )?;
        let got = sys::option(self.fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF)?;
        Ok(usize::try_from(got).unwrap_or(0))
    }

    /// Sends one record, all of it or nothing.
    ///
    /// # Errors
    /// EAGAIN: full; writable again once the peer has taken three quarters. EPIPE, ECONNRESET: the
    /// peer is gone. EMSGSIZE: longer than the send buffer. ENOBUFS, ENOMEM: the kernel is short of
    /// memory.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.send_with(parts, &[])
    }

    /// Sends one record together with descriptors: the peer gets its own of the same open files.
    ///
    /// # Errors
    /// As [`send`](Self::send); EINVAL for more than [`MAX_DESCRIPTORS`]; ETOOMANYREFS: too many
    /// are under way already.
    pub fn send_with(&self, parts: &[IoSlice<'_>], with: &[BorrowedFd<'_>]) -> io::Result<()> {
        if with.len() > MAX_DESCRIPTORS {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut control = ControlMessages::new();
        for fd in with {
            control.push(libc::SOL_SOCKET, libc::SCM_RIGHTS, fd.as_raw_fd());
        }
        // SAFETY: null pointers, lengths and flags, for which zero is a value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        // `IoSlice` has the layout of `iovec`.
        header.msg_iov = parts.as_ptr().cast_mut().cast();
        header.msg_iovlen = fit(parts.len());
        if !with.is_empty() {
            header.msg_control = control.as_mut_ptr();
            header.msg_controllen = fit(control.len());
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the header points to slices and control messages that live through the call; the
        // kernel only reads from them.
        check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_sendmsg,
                self.fd.as_raw_fd(),
                &raw const header,
                flags,
            )
        })
        .map(drop)
    }

    /// What is next to be received, without receiving it.
    ///
    /// # Errors
    /// ENOMEM and the like; none is expected.
    pub fn waiting(&self) -> io::Result<Waiting> {
        // SAFETY: null pointers, lengths and flags, for which zero is a value: there is no room for
        // anything.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        // SAFETY: the header points to nothing. What is looked at stays in the socket, with its
        // descriptors.
        let mut look = || unsafe {
            libc::syscall(
                libc::SYS_recvmsg,
                self.fd.as_raw_fd(),
                &raw mut header,
                flags,
            )
        };
        let mut got = check_retry(&mut look);
        // Said once, before what the peer sent.
        if got
            .as_ref()
            .is_err_and(|e| e.kind() == io::ErrorKind::ConnectionReset)
        {
            got = check_retry(&mut look);
        }
        match got {
            Ok(_) if header.msg_flags & libc::MSG_CTRUNC != 0 => Ok(Waiting::Descriptors),
            Ok(_) if header.msg_flags & libc::MSG_TRUNC != 0 => Ok(Waiting::Record),
            Ok(_) => Ok(Waiting::Closed),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(Waiting::Nothing),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(Waiting::Closed),
            Err(e) => Err(e),
        }
    }

    /// Receives one record. An empty record counts as the end: no honest peer sends one.
    /// Descriptors that a peer attaches are refused.
    ///
    /// # Errors
    /// ENOMEM and the like; none is expected.
    pub fn recv(&self, room: &mut [u8]) -> io::Result<Record> {
        last_words(|| receive(&self.fd, room, None))
    }

    /// Receives one record and the descriptors that come with it, which are added to `with`. Some
    /// may be missing if this process has no numbers left for them. Only for peers that are
    /// trusted: closing a descriptor can take as long as the maker of the file likes.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_with(&self, room: &mut [u8], with: &mut Vec<Fd>) -> io::Result<Record> {
        last_words(|| {
            let mut control = ControlMessages::new();
            let got = receive(
                &self.fd,
                room,
                Some((&mut control, ControlMessages::CAPACITY)),
            )?;
            with.extend(descriptors(&control));
            Ok(got)
        })
    }

    /// Ends the connection for both sides: either sees a hang-up.
    pub fn shutdown(&self) {
        // SAFETY: takes no pointers. It fails only if the connection has ended already.
        let _ = check(unsafe {
            libc::syscall(libc::SYS_shutdown, self.fd.as_raw_fd(), libc::SHUT_RDWR)
        });
    }

    /// Whether the peer has closed its end or is gone. What it has sent before may still be there.
    #[must_use]
    pub fn has_hung_up(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: libc::POLLRDHUP,
            revents: 0,
        };
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let null = std::ptr::null::<u8>();
        // SAFETY: the pointers are to a live structure of integers and a live time; there is no
        // signal mask.
        let ready = check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_ppoll,
                &raw mut poll,
                1_usize,
                &raw const now,
                null,
                0_usize,
            )
        });
        !matches!(ready, Ok(0))
    }

    /// The process at the other end: of an accepted connection the one that connected, of a
    /// connecting one the one that listens.
    ///
    /// # Errors
    /// None is expected.
    pub fn peer(&self) -> io::Result<Credentials> {
        let mut cred = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut len = socklen(size_of::<libc::ucred>());
        let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        let fd = self.fd.as_raw_fd();
        // SAFETY: the pointers are to a live structure of integers and its length.
        check(unsafe {
            libc::syscall(
                libc::SYS_getsockopt,
                fd,
                level,
                name,
                &raw mut cred,
                &raw mut len,
            )
        })?;
        Ok(Credentials {
            pid: cred.pid,
            uid: cred.uid,
            process: (cred.pid == 0)
                .then(|| process::of_peer(&self.fd))
                .flatten(),
        })
    }
}

/// Receives, to the end. That the peer has closed its end without reading all that was for it the
/// kernel says first, and once, as an error: what the peer sent before is still there.
fn last_words(mut receive: impl FnMut() -> io::Result<Record>) -> io::Result<Record> {
    let is_reset = |got: &io::Result<Record>| {
        let error = got.as_ref().err();
        error.is_some_and(|e| e.kind() == io::ErrorKind::ConnectionReset)
    };
    let mut got = receive();
    if is_reset(&got) {
        got = receive();
    }
    match got {
        Ok(Record::Whole(0)) => Ok(Record::Closed),
        got if is_reset(&got) => Ok(Record::Closed),
        got => got,
    }
}
