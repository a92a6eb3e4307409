//! System calls, made directly: the C library's functions may be another library's, and ours.

use std::ffi::{c_int, c_long, c_void};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::RawFd;

use crate::errno;
use crate::hooks::filter::behind;

/// Storage of a socket address of any family.
pub(crate) type Storage = libc::sockaddr_storage;

/// Makes a system call whose arguments the caller vouches for; an error is an errno.
macro_rules! call {
    ($number:ident $(, $argument:expr)*) => {
        // SAFETY: pointers among the arguments are to live memory of the right size; see each use.
        result(unsafe { libc::syscall(libc::$number $(, $argument)*) })
    };
}

fn result(value: c_long) -> Result<c_int, c_int> {
    if value < 0 {
        return Err(errno::now());
    }
    Ok(c_int::try_from(value).expect("invariant: these calls return descriptors and lengths"))
}

fn length<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("invariant: a structure is short")
}

/// A new socket, closed by `exec`.
pub(crate) fn socket(family: c_int, kind: c_int, protocol: c_int) -> Result<RawFd, c_int> {
    call!(SYS_socket, family, kind | libc::SOCK_CLOEXEC, protocol)
}

/// Closes a descriptor of ours. What this library's own `syscall` does before a number of the
/// program's is closed, it must not do here: the process's lock may be held.
pub(crate) fn close(fd: RawFd) {
    type Syscall = unsafe extern "C" fn(c_long, ...) -> c_long;
    // SAFETY: the function of this name has this type; takes no pointers.
    unsafe {
        std::mem::transmute::<*mut c_void, Syscall>(behind::syscall.address())(libc::SYS_close, fd)
    };
}

/// An abstract Unix address, and its length.
fn abstract_address(name: &[u8]) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: integers only.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or(1);
    for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let used = size_of::<libc::sa_family_t>() + 1 + name.len();
    (address, libc::socklen_t::try_from(used).unwrap_or(0))
}

/// Binds a Unix socket to an abstract name.
pub(crate) fn bind(fd: RawFd, name: &[u8]) -> Result<(), c_int> {
    let (address, length) = abstract_address(name);
    call!(SYS_bind, fd, &raw const address, length).map(drop)
}

/// Connects a Unix socket to an abstract name.
pub(crate) fn connect(fd: RawFd, name: &[u8]) -> Result<(), c_int> {
    let (address, length) = abstract_address(name);
    call!(SYS_connect, fd, &raw const address, length).map(drop)
}

/// Makes a socket take connections.
pub(crate) fn listen(fd: RawFd, backlog: c_int) -> Result<(), c_int> {
    call!(SYS_listen, fd, backlog).map(drop)
}

/// Takes a connection, whose descriptor `exec` closes. `flags`: `SOCK_NONBLOCK`, or none.
pub(crate) fn accept(fd: RawFd, flags: c_int) -> Result<RawFd, c_int> {
    let nobody = std::ptr::null_mut::<c_void>();
    call!(SYS_accept4, fd, nobody, nobody, flags | libc::SOCK_CLOEXEC)
}

/// Ends a socket for all processes that have it.
pub(crate) fn shutdown(fd: RawFd, how: c_int) -> Result<(), c_int> {
    call!(SYS_shutdown, fd, how).map(drop)
}

/// Whether memory of 8 bytes and more can be read. System calls ask: reading memory that the
/// program does not have would end it, where the kernel says EFAULT. Most of what programs pass is
/// near this function's own frame.
pub(crate) fn is_readable(at: *const c_void, length: usize) -> bool {
    /// Length of a set of signals. `rt_sigprocmask(2)` reads it before it refuses `NOTHING`.
    const SET: usize = 8;
    const NOTHING: c_int = -1;
    /// The smallest page of any machine.
    const PAGE: usize = 4096;
    // No memory is as long as goes around to its own page.
    let length = isize::try_from(length).map_or(0, isize::cast_unsigned);
    let Some(last) = length.checked_sub(SET) else {
        return false;
    };
    let end = at.wrapping_byte_add(length - 1).addr() / PAGE;
    let own = (&raw const last).addr() / PAGE;
    if [at.addr() / PAGE, end] == [own; 2] {
        return true;
    }
    let none = std::ptr::null_mut::<c_void>();
    // Of one page the last bytes are enough.
    let page = |offset| at.wrapping_byte_add(offset).addr() / PAGE;
    let before = if page(0) == page(last) { 0 } else { last };
    (0..before).step_by(PAGE).chain([last]).all(|offset| {
        let set = at.wrapping_byte_add(offset);
        call!(SYS_rt_sigprocmask, NOTHING, set, none, SET) == Err(libc::EINVAL)
    })
}

/// An address as the kernel writes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    storage: Storage,
    length: usize,
}

impl Address {
    /// Copies an address of the program's.
    ///
    /// # Safety
    /// The pointer is to `length` bytes, or null.
    pub(crate) unsafe fn of(address: *const libc::sockaddr, length: libc::socklen_t) -> Self {
        // SAFETY: integers only.
        let mut storage: Storage = unsafe { std::mem::zeroed() };
        let length = (length as usize).min(size_of::<Storage>());
        if !address.is_null() {
            let to = (&raw mut storage).cast::<u8>();
            // SAFETY: both have that many bytes.
            unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), to, length) };
        }
        Self { storage, length }
    }

    /// Writes it as `getsockname(2)` does: cut to the room, with its whole length.
    ///
    /// # Safety
    /// `room` is the length of the memory at `to`.
    pub(crate) unsafe fn write(&self, to: *mut libc::sockaddr, room: *mut libc::socklen_t) {
        // SAFETY: the program's pointers.
        unsafe {
            let bytes = self.length.min(*room as usize);
            let from = (&raw const self.storage).cast::<u8>();
            std::ptr::copy_nonoverlapping(from, to.cast::<u8>(), bytes);
            *room = libc::socklen_t::try_from(self.length).unwrap_or(0);
        }
    }

    fn family(&self) -> c_int {
        c_int::from(self.storage.ss_family)
    }

    /// Whether it is a Unix socket's.
    pub(crate) fn is_unix(&self) -> bool {
        self.family() == libc::AF_UNIX
    }

    /// Name of a Unix socket in the abstract space, without its zero.
    pub(crate) fn abstract_name(&self) -> Option<&[u8]> {
        let header = size_of::<libc::sa_family_t>();
        if !self.is_unix() || self.length <= header + 1 {
            return None;
        }
        let bytes = (&raw const self.storage).cast::<u8>();
        // SAFETY: the structure's own bytes, all of which were set.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, self.length) };
        bytes[header..].strip_prefix(&[0])
    }

    /// As an internet address.
    pub(crate) fn internet(&self) -> Option<SocketAddr> {
        let storage = &raw const self.storage;
        match self.family() {
            libc::AF_INET if self.length >= size_of::<libc::sockaddr_in>() => {
                // SAFETY: the storage is large enough, aligned, and all of it was set.
                let v4 = unsafe { *storage.cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 if self.length >= size_of::<libc::sockaddr_in6>() => {
                // SAFETY: at least the bytes of a `sockaddr_in6` were set, and the storage is
                // aligned for every family.
                let v6 = unsafe { *storage.cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        // SAFETY: integers only.
        let mut storage: Storage = unsafe { std::mem::zeroed() };
        let to = &raw mut storage;
        let length = match address {
            SocketAddr::V4(v4) => {
                // SAFETY: the storage is large enough and aligned.
                let structure = unsafe { &mut *to.cast::<libc::sockaddr_in>() };
                structure.sin_family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(2);
                structure.sin_port = v4.port().to_be();
                structure.sin_addr.s_addr = v4.ip().to_bits().to_be();
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                // SAFETY: `storage` has room for a `sockaddr_in6` and its alignment, and is
                // borrowed by nothing else.
                let structure = unsafe { &mut *to.cast::<libc::sockaddr_in6>() };
                structure.sin6_family = libc::sa_family_t::try_from(libc::AF_INET6).unwrap_or(10);
                structure.sin6_port = v6.port().to_be();
                structure.sin6_addr.s6_addr = v6.ip().octets();
                size_of::<libc::sockaddr_in6>()
            }
        };
        Self { storage, length }
    }
}

/// Which end of a socket an address is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketEnd {
    /// `getsockname(2)`
    Own,
    /// `getpeername(2)`
    Peer,
}

/// An address of a socket.
pub(crate) fn name(fd: RawFd, which: SocketEnd) -> Result<Address, c_int> {
    // SAFETY: integers only.
    let mut storage: Storage = unsafe { std::mem::zeroed() };
    let mut length = length::<Storage>();
    let (to, room) = (&raw mut storage, &raw mut length);
    match which {
        SocketEnd::Own => call!(SYS_getsockname, fd, to, room),
        SocketEnd::Peer => call!(SYS_getpeername, fd, to, room),
    }?;
    let length = (length as usize).min(size_of::<Storage>());
    Ok(Address { storage, length })
}

/// An option of a socket.
pub(crate) fn option<T: Copy>(
    fd: RawFd,
    level: c_int,
    option: c_int,
    empty: T,
) -> Result<T, c_int> {
    let (mut value, mut length) = (empty, length::<T>());
    call!(
        SYS_getsockopt,
        fd,
        level,
        option,
        &raw mut value,
        &raw mut length
    )?;
    Ok(value)
}

/// Sets an option of a socket.
pub(crate) fn set_option<T>(fd: RawFd, level: c_int, option: c_int, value: T) -> Result<(), c_int> {
    call!(
        SYS_setsockopt,
        fd,
        level,
        option,
        &raw const value,
        length::<T>()
    )
    .map(drop)
}

/// A number that no other socket has while the system runs.
pub(crate) fn cookie(fd: RawFd) -> Result<u64, c_int> {
    option(fd, libc::SOL_SOCKET, libc::SO_COOKIE, 0_u64)
}

/// The process that made the other end of a Unix stream, if it is of this process's user. The
/// overflow user stands for all that this user namespace does not map, so it is not one user.
pub(crate) fn own_user(fd: RawFd) -> Option<libc::pid_t> {
    const OVERFLOW: libc::uid_t = 65534;
    let nobody = libc::ucred {
        pid: 0,
        uid: OVERFLOW,
        gid: 0,
    };
    let peer = option(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, nobody).ok()?;
    // SAFETY: takes no pointers.
    let own = unsafe { libc::geteuid() };
    (own != OVERFLOW && peer.uid == own).then_some(peer.pid)
}

/// Whether the process at the other end of a Unix stream is of this process's user.
pub(crate) fn is_own_user(fd: RawFd) -> bool {
    own_user(fd).is_some()
}

/// `fcntl(2)` with a number.
pub(crate) fn fcntl(fd: RawFd, command: c_int, argument: c_int) -> Result<c_int, c_int> {
    call!(SYS_fcntl, fd, command, argument)
}

/// Puts an open file under another number.
pub(crate) fn dup3(from: RawFd, to: RawFd, flags: c_int) -> Result<(), c_int> {
    call!(SYS_dup3, from, to, flags).map(drop)
}

/// Locks or unlocks a file for this process, as `F_SETLK` does: EAGAIN while another process has
/// the lock. The end of the process unlocks.
pub(crate) fn record_lock(fd: RawFd, kind: c_int) -> Result<(), c_int> {
    // SAFETY: integers only; zeroes lock the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::c_short::try_from(kind).unwrap_or_default();
    call!(SYS_fcntl, fd, libc::F_SETLK, &raw const lock).map(drop)
}

/// Lets another thread run.
pub(crate) fn give_way() {
    let _ = call!(SYS_sched_yield);
}

/// What `poll(2)` says of a descriptor at this moment.
pub(crate) fn events(fd: RawFd) -> libc::c_short {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN | libc::POLLOUT,
        revents: 0,
    };
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let none = std::ptr::null::<c_void>();
    let _ = call!(SYS_ppoll, &raw mut poll, 1, &raw const now, none, 0);
    poll.revents
}

/// Sends bytes on a connected socket, without a signal.
pub(crate) fn send(fd: RawFd, bytes: &[u8]) -> Result<c_int, c_int> {
    let none = std::ptr::null::<c_void>();
    let (at, length, flags) = (bytes.as_ptr(), bytes.len(), libc::MSG_NOSIGNAL);
    call!(SYS_sendto, fd, at, length, flags, none, 0)
}

/// Receives bytes.
pub(crate) fn receive(fd: RawFd, bytes: &mut [u8], flags: c_int) -> Result<usize, c_int> {
    let none = std::ptr::null_mut::<c_void>();
    let (at, room) = (bytes.as_mut_ptr(), bytes.len());
    let length = call!(SYS_recvfrom, fd, at, room, flags, none, none)?;
    Ok(usize::try_from(length).unwrap_or(0))
}

/// Room for two descriptors in a control message.
#[repr(C, align(8))]
struct Control {
    header: libc::cmsghdr,
    fds: [RawFd; 2],
}

fn with_message<R>(
    bytes: &mut [u8],
    control: &mut Control,
    go: impl FnOnce(*mut libc::msghdr) -> R,
) -> R {
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: integers and pointers, for which null is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut *control).cast();
    // Without room that is not used, which the kernel would fill with a second descriptor.
    message.msg_controllen = control.header.cmsg_len;
    go(&raw mut message)
}

/// Control data with the first `count` descriptors.
fn control(fds: [RawFd; 2], count: usize) -> Control {
    // SAFETY: integers only.
    let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
    header.cmsg_level = libc::SOL_SOCKET;
    header.cmsg_type = libc::SCM_RIGHTS;
    header.cmsg_len = (size_of::<libc::cmsghdr>() + count * size_of::<RawFd>()) as _;
    Control { header, fds }
}

/// Sends bytes with one descriptor or two.
pub(crate) fn send_descriptors(to: RawFd, mut bytes: [u8; 8], fds: &[RawFd]) -> Result<(), c_int> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let both = [0, 1].map(|at| fds.get(at).copied().unwrap_or(-1));
    with_message(
        &mut bytes,
        &mut control(both, fds.len().min(2)),
        |message| call!(SYS_sendmsg, to, message.cast_const(), flags).map(drop),
    )
}

/// Receives bytes with one descriptor or two; EAGAIN if there are none, EMFILE if the bytes came
/// alone.
pub(crate) fn receive_descriptors(from: RawFd) -> Result<([u8; 8], RawFd, Option<RawFd>), c_int> {
    let mut room = control([-1; 2], 2);
    let mut bytes = [0; 8];
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    with_message(&mut bytes, &mut room, |message| {
        call!(SYS_recvmsg, from, message, flags)
    })?;
    match room.fds {
        [first, _] if first < 0 => Err(libc::EMFILE),
        [first, second] => Ok((bytes, first, (second >= 0).then_some(second))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_readable_if_all_of_it_is() {
        const LENGTH: usize = 4 << 12;
        let (access, kind) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let none = std::ptr::null_mut();
        // SAFETY: new memory, whose last quarter is closed. Another thread's memory could get the
        // place of a part that was given back.
        let begin = unsafe {
            let begin = libc::mmap(none, LENGTH, access, kind, -1, 0);
            assert_ne!(begin, libc::MAP_FAILED);
            let (edge, closed) = (begin.byte_add(LENGTH / 4 * 3), libc::PROT_NONE);
            assert_eq!(libc::mprotect(edge, LENGTH / 4, closed), 0);
            begin.cast_const()
        };
        let has = |from, length| is_readable(begin.wrapping_byte_add(from), length);
        assert!(has(0, 16) && has(100, LENGTH / 2) && has(LENGTH / 4 * 3 - 8, 8));
        assert!(!has(LENGTH / 4 * 3 - 8, 9) && !has(0, LENGTH) && !has(LENGTH / 4 * 3, 8));
        let own = [0_u8; 3 << 12];
        assert!(is_readable((&raw const own).cast(), own.len()));
        assert!(!is_readable(none, 16));
        // Around all memory, and back to the page of the function's own frame.
        let frames = (&raw const own).wrapping_byte_sub(2000);
        let around = |back| is_readable(frames.wrapping_byte_sub(back).cast(), usize::MAX - 6);
        assert!(!(0..4096).step_by(8).any(around));
    }
}
