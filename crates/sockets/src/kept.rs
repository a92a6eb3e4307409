//! Sockets that the process keeps to ask the kernel with: opening one each time takes longer than
//! the question.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::lock::Held;
use crate::{hide, sys};

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

    /// The socket, for as long as the lock is held. The program may have closed the number, so it
    /// is looked at each time.
    pub(crate) fn get(&self, _held: &Held) -> Option<RawFd> {
        // SAFETY: takes no pointers.
        let own = unsafe { libc::getpid() };
        let fd = self.fd.load(Ordering::Relaxed);
        let is_own = fd >= 0 && self.owner.load(Ordering::Relaxed) == own;
        if is_own && sys::cookie(fd) == Ok(self.cookie.load(Ordering::Relaxed)) {
            return Some(fd);
        }
        let new = hide::moved(sys::socket(self.family, self.kind, self.protocol).ok()?)?;
        self.cookie.store(sys::cookie(new).ok()?, Ordering::Relaxed);
        self.owner.store(own, Ordering::Relaxed);
        self.fd.store(new, Ordering::Relaxed);
        Some(new)
    }
}
