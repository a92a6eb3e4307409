//! Which descriptors are rsockets.
//!
//! The descriptor of an rsocket is an eventfd that nobody signals: it keeps the number taken, and
//! plain calls on it do no harm. A program that closes it with `close` leaves the rsocket behind
//! until the number is given to the next one.

use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Arc, PoisonError, RwLock};

use ferroce_os::eventfd::EventFd;
use ferroce_os::fork;
use libc::c_int;

use super::epoll::Instance;
use super::errno::{Errno, Result};
use super::handle::Rsocket;
use super::socket::Socket;

/// What a descriptor of this module stands for.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Socket(Rsocket),
    /// Of `repoll_create`.
    Poll(Arc<Instance>),
}

/// A descriptor's entry.
#[derive(Clone, Debug)]
struct Entry {
    kind: Kind,
    generation: usize,
}

static TABLE: RwLock<Vec<Option<Entry>>> = RwLock::new(Vec::new());

fn index(fd: RawFd) -> Option<usize> {
    usize::try_from(fd).ok()
}

fn kind(fd: RawFd) -> Option<Kind> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let entry = table.get(index(fd)?)?.as_ref()?;
    fork::is_current(entry.generation).then(|| entry.kind.clone())
}

/// The rsocket behind a descriptor, if it is one of this process.
pub(super) fn find(fd: RawFd) -> Option<Rsocket> {
    match kind(fd)? {
        Kind::Socket(socket) => Some(socket),
        Kind::Poll(_) => None,
    }
}

/// The rsocket behind a descriptor.
///
/// # Errors
/// EBADF if it is none.
pub(super) fn get(fd: RawFd) -> Result<Rsocket> {
    find(fd).ok_or(Errno(libc::EBADF))
}

/// The stream socket behind a descriptor.
///
/// # Errors
/// EBADF if it is none, EOPNOTSUPP if it is a datagram socket.
pub(super) fn stream(fd: RawFd) -> Result<Arc<Socket>> {
    get(fd)?.stream()
}

/// What `repoll_create` made.
///
/// # Errors
/// EBADF if the descriptor is nothing of this module, EINVAL if it is something else.
pub(super) fn instance(fd: RawFd) -> Result<Arc<Instance>> {
    match kind(fd) {
        Some(Kind::Poll(instance)) => Ok(instance),
        Some(Kind::Socket(_)) => Err(Errno(libc::EINVAL)),
        None => Err(Errno(libc::EBADF)),
    }
}

/// A descriptor for an rsocket that is still to come.
#[derive(Debug)]
pub(super) struct Reserved {
    event: EventFd,
    at: usize,
}

/// Makes a descriptor.
///
/// # Errors
/// EMFILE, ENFILE.
pub(super) fn reserve(close_on_exec: bool) -> Result<Reserved> {
    let event = EventFd::counter()?;
    let fd = event.as_raw_fd();
    if !close_on_exec {
        descriptor_flags(fd, libc::F_SETFD, 0)?;
    }
    let at = index(fd).ok_or(Errno(libc::EBADF))?;
    Ok(Reserved { event, at })
}

impl Reserved {
    /// Has the descriptor stand for `kind`.
    pub(super) fn give(self, kind: Kind) -> RawFd {
        let Self { event, at } = self;
        let fd = event.as_raw_fd();
        let entry = Entry {
            kind,
            generation: fork::generation(),
        };
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        if table.len() <= at {
            table.resize_with(at + 1, || None);
        }
        let left_behind = table[at].replace(entry);
        drop(table);
        // The number is the table's now.
        std::mem::forget(event);
        drop(left_behind);
        forget_member(fd);
        fd
    }
}

/// Gives an rsocket, or what waits for some, a descriptor.
///
/// # Errors
/// EMFILE, ENFILE.
pub(super) fn insert(kind: Kind, close_on_exec: bool) -> Result<RawFd> {
    Ok(reserve(close_on_exec)?.give(kind))
}

/// Has what waits for several rsockets forget what a number stood for.
fn forget_member(fd: RawFd) {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let entries = table.iter().flatten();
    let current = entries.filter(|entry| fork::is_current(entry.generation));
    let instances: Vec<_> = current
        .filter_map(|entry| match &entry.kind {
            Kind::Poll(instance) => Some(Arc::clone(instance)),
            Kind::Socket(_) => None,
        })
        .collect();
    drop(table);
    for instance in instances {
        instance.forget(fd);
    }
}

/// Takes a descriptor out of the table, and frees it. Of several threads that do, one succeeds.
///
/// # Errors
/// EBADF if it is none.
pub(super) fn remove(fd: RawFd) -> Result<Kind> {
    let at = index(fd).ok_or(Errno(libc::EBADF))?;
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let place = table.get_mut(at).ok_or(Errno(libc::EBADF))?;
    let entry = place.take_if(|entry| fork::is_current(entry.generation));
    let entry = entry.ok_or(Errno(libc::EBADF))?;
    drop(table);
    forget_member(fd);
    // SAFETY: takes no pointers; the number is the table's.
    unsafe { libc::syscall(libc::SYS_close, fd) };
    Ok(entry.kind)
}

/// `F_GETFD` or `F_SETFD`.
pub(super) fn descriptor_flags(fd: RawFd, command: c_int, flags: c_int) -> Result<c_int> {
    // SAFETY: takes no pointers.
    let answer = unsafe { libc::syscall(libc::SYS_fcntl, fd, command, flags) };
    c_int::try_from(answer)
        .ok()
        .filter(|answer| *answer >= 0)
        .ok_or_else(Errno::last)
}
