//! Results of direct system calls, and the few calls that several modules share.

use std::ffi::{CString, c_int};
use std::fmt;
use std::io;
use std::mem::size_of;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::fd::Fd;

/// Turns what `libc::syscall` returned into a result. The C library's wrapper has already moved the
/// error to `errno`.
pub(crate) fn check(returned: libc::c_long) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// Like [`check`] for a call that a signal may interrupt and that is to go on regardless.
pub(crate) fn check_retry(mut call: impl FnMut() -> libc::c_long) -> io::Result<usize> {
    loop {
        match check(call()) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// The errno of an error that came from a system call; 0 for any other.
pub(crate) fn errno(e: &io::Error) -> i32 {
    e.raw_os_error().unwrap_or(0)
}

/// `socket(2)`, close-on-exec and non-blocking.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<Fd> {
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes no pointers.
    let raw = check(unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) })?;
    Ok(Fd::internal(raw_fd(raw)))
}

/// `open(2)` of what a descriptor of a process (`self`, or its number) leads to: another open file
/// of it, close-on-exec.
pub(crate) fn reopen(process: impl fmt::Display, number: RawFd, mode: c_int) -> io::Result<Fd> {
    let path = CString::new(format!("/proc/{process}/fd/{number}"))?;
    let flags = mode | libc::O_CLOEXEC;
    // SAFETY: the path is a C string.
    let raw = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
    Ok(Fd::internal(raw_fd(check(raw)?)))
}

/// A descriptor number that a system call returned.
pub(crate) fn raw_fd(returned: usize) -> RawFd {
    RawFd::try_from(returned).expect("invariant: the kernel's descriptor numbers are ints")
}

/// `setsockopt(2)` with an integer.
pub(crate) fn set_option(fd: RawFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    set_option_bytes(fd, level, name, &value.to_ne_bytes())
}

pub(crate) fn set_option_bytes(
    fd: RawFd,
    level: c_int,
    name: c_int,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            fd,
            level,
            name,
            value.as_ptr(),
            value.len(),
        )
    };
    check(returned).map(drop)
}

/// Lets calls on a socket that wait for room wait so long (`SO_SNDTIMEO` in `socket(7)`), or not at
/// all.
pub(crate) fn set_send_timeout(fd: RawFd, timeout: Option<Duration>) -> io::Result<()> {
    let flags = match timeout {
        Some(timeout) => {
            // Zero would be without end.
            let micros = u64::try_from(timeout.as_micros())
                .unwrap_or(u64::MAX)
                .max(1);
            let value = [micros / 1_000_000, micros % 1_000_000].map(u64::to_ne_bytes);
            let (level, name) = (libc::SOL_SOCKET, libc::SO_SNDTIMEO);
            set_option_bytes(fd, level, name, value.as_flattened())?;
            0
        }
        None => libc::O_NONBLOCK,
    };
    // SAFETY: takes no pointers.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETFL, flags) }).map(drop)
}

/// `getsockopt(2)` of an integer.
pub(crate) fn option(fd: RawFd, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut len = socklen(size_of::<c_int>());
    // SAFETY: the pointers describe `value` and `len`, which outlive the call.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            fd,
            level,
            name,
            &raw mut value,
            &raw mut len,
        )
    };
    check(returned)?;
    Ok(value)
}

/// Asks for socket buffers of `bytes` each; the kernel gives at most `rmem_max` and `wmem_max`.
pub(crate) fn set_buffers(fd: RawFd, bytes: c_int) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
}

/// A small number in the width that a structure of the C library has for it. The kernel has 64 bits
/// there, and so has glibc; musl has 32 and padding, which is zero.
pub(crate) fn fit<From, To: TryFrom<From>>(number: From) -> To {
    let fitted = To::try_from(number).ok();
    fitted.expect("invariant: lengths of control messages and lists are small")
}

/// A size that is known to be small, as a `socklen_t`.
pub(crate) fn socklen(bytes: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(bytes).expect("invariant: socket addresses and options are small")
}
