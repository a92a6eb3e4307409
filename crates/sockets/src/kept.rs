//! Sockets that the process keeps to ask the kernel with: opening one each time takes longer than
//! the question.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::lock::Held;
use crate::{hide, sys, table};

/// A hidden socket. A child of `fork` opens its own: answers to two processes would mix.
#[derive(Debug)]
pub(crate) struct Kept {
    family: i32,
    kind: i32,
    protocol: i32,
    fd: AtomicI32,
    owner: AtomicI32,
    cookie: AtomicU64,
}

impl Kept {
    /// A socket of this kind, opened when it is first used.
    pub(crate) const fn new(family: i32, kind: i32, protocol: i32) -> Self {
        Self {
            family,
            kind,
            protocol,
            fd: AtomicI32::new(-1),
            owner: AtomicI32::new(0),
            cookie: AtomicU64::new(0),
        }
    }

    /// The socket, if there is one, for a question whose answer does not wait in the socket. A
    /// child of `fork` and its parent may ask by the same one at the same time.
    pub(crate) fn shared(&self) -> Option<RawFd> {
        let fd = self.fd.load(Ordering::Relaxed);
        // The program may have closed the number, so it is looked at each time.
        let cookie = self.cookie.load(Ordering::Relaxed);
        (fd >= 0 && sys::cookie(fd) == Ok(cookie)).then_some(fd)
    }

    /// The process's own socket, for as long as the lock is held.
    pub(crate) fn get(&self, _held: &Held) -> Option<RawFd> {
        let own = table::owner();
        let is_own = self.owner.load(Ordering::Relaxed) == own;
        if let Some(fd) = is_own.then(|| self.shared()).flatten() {
            return Some(fd);
        }
        let new = hide::moved(sys::socket(self.family, self.kind, self.protocol).ok()?)?;
        self.cookie.store(sys::cookie(new).ok()?, Ordering::Relaxed);
        self.owner.store(own, Ordering::Relaxed);
        self.fd.store(new, Ordering::Relaxed);
        Some(new)
    }
}
