//! Memory that this library maps itself.

use std::io;
use std::os::fd::RawFd;

use super::address;
use crate::sys::check;

/// A mapping; dropping it unmaps.
#[derive(Debug)]
pub struct Mapping {
    addr: u64,
    len: usize,
}

impl Mapping {
    /// Zeroed memory, aligned to pages.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Self::map(0, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    }

    /// `len` bytes of what a descriptor stands for (a dma-buf, a memory file), from `offset` on,
    /// which is a multiple of the page size.
    ///
    /// # Errors
    /// Those of `mmap(2)`: EBADF, EACCES, ENODEV for what cannot be mapped, EINVAL, ENOMEM.
    pub fn of(fd: RawFd, offset: u64, len: usize, writable: bool) -> io::Result<Self> {
        let protection = if writable {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        Self::map(0, len, protection, libc::MAP_SHARED, fd, offset)
    }

    /// Zeroed memory at exactly this address.
    ///
    /// # Errors
    /// EEXIST: something is there; ENOMEM.
    pub(super) fn exactly(at: u64, len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        Self::map(at, len, protection, flags, -1, 0)
    }

    /// At `at`, or where the kernel likes.
    pub(super) fn map(
        at: u64,
        len: usize,
        protection: i32,
        flags: i32,
        fd: RawFd,
        offset: u64,
    ) -> io::Result<Self> {
        // SAFETY: a new mapping, which takes no other's place: no flag asks for that.
        let mapped = check(unsafe {
            libc::syscall(libc::SYS_mmap, at, len, protection, flags, fd, offset)
        })?;
        Ok(Self {
            addr: mapped as u64,
            len,
        })
    }

    /// Children of `fork` do not get it: they have no device, and their copy would keep the pages.
    pub(super) fn not_for_children(&self) {
        let at: *mut u8 = address(self.addr);
        // SAFETY: this object's own mapping; its content and protection stay as they are.
        let _ = unsafe { libc::syscall(libc::SYS_madvise, at, self.len, libc::MADV_DONTFORK) };
    }

    /// First byte.
    #[must_use]
    pub const fn addr(&self) -> u64 {
        self.addr
    }

    /// Bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "never empty: the kernel refuses that"
    )]
    pub const fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let at: *mut u8 = address(self.addr);
        // SAFETY: this object's own mapping; a caller that gives out its address keeps the object.
        let _ = check(unsafe { libc::syscall(libc::SYS_munmap, at, self.len) });
    }
}

/// Bytes that a descriptor's file has, if it says so.
#[must_use]
pub fn file_size(fd: RawFd) -> Option<u64> {
    // SAFETY: takes no pointers.
    let end = check(unsafe { libc::syscall(libc::SYS_lseek, fd, 0_i64, libc::SEEK_END) }).ok()?;
    Some(end as u64)
}
