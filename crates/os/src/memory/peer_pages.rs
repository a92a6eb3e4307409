//! Memory that another process shares, mapped here: no system call for a copy, and atomics.
//!
//! Its owner says which of his descriptors it is, and `/proc` opens what a process has open for
//! whom the kernel lets look at it. That asks for less than copies between address spaces do
//! (`PTRACE_MODE_READ`, `proc(5)`): `ptrace_scope` does not forbid it, nor does a filter of those
//! system calls. What was opened is believed to be the file when it is that file: its number, its
//! seals, its size.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{Ordering, fence};

use ferroce_proto::mr::{Backing, Piece, Unmapped};

use super::file::{self, FileId};
use super::remote::Task;
use super::{Mapping, address, file_size, guarded, last_bytes};
use crate::sys::reopen;

/// A file that another process, or this one, has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFile {
    /// A thread of the process, which executes no other program.
    pub task: Task,
    /// Descriptor number of the file in the peer.
    pub number: i32,
    /// The file that it must be.
    pub id: FileId,
}

/// Pages of another process's file.
#[derive(Debug)]
pub struct PeerPages {
    mapping: Mapping,
    writable: bool,
}

impl PeerPages {
    /// Maps `len` bytes from `offset` on, a multiple of the page size.
    ///
    /// # Errors
    /// EACCES, EPERM, ENOENT: the kernel does not let this process at the other one's descriptors;
    /// EINVAL: it is another file, too short, or could be cut short; ENOMEM, EMFILE.
    pub fn open(file: &PeerFile, offset: u64, len: usize, writable: bool) -> io::Result<Self> {
        let refused = |_| io::Error::from_raw_os_error(libc::EINVAL);
        // To look at what is there opens nothing: it might be anything.
        let place = reopen(file.task, file.number, libc::O_PATH)?;
        if FileId::of(place.as_raw_fd())? != file.id {
            return Err(refused(()));
        }
        let mode = if writable {
            libc::O_RDWR
        } else {
            libc::O_RDONLY
        };
        let fd = reopen("self", place.as_raw_fd(), mode)?;
        let fd = fd.as_raw_fd();
        let end = offset.checked_add(len as u64);
        let holds = end.is_some_and(|end| file_size(fd).is_some_and(|size| size >= end));
        if !holds || !file::cannot_shrink(fd) {
            return Err(refused(()));
        }
        // A process that takes the pages out of the file, or uses up the memory that they would
        // need, makes no signal here.
        guarded::install();
        let mapping = Mapping::of(fd, offset, len, writable)?;
        mapping.not_for_children();
        Ok(Self { mapping, writable })
    }

    /// Whether it can be written.
    #[must_use]
    pub const fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether copies between it and these pieces are possible: those of on-demand regions the
    /// kernel copies.
    #[must_use]
    pub fn takes(pieces: &[Piece<'_>]) -> bool {
        pieces.iter().all(|piece| match piece {
            Piece::Registered(span) => span.backing() == Backing::Mapped,
            Piece::Inline(_) => true,
        })
    }

    /// Copies pieces of this process's memory, `len` bytes in all, to `at`. Bytes are written in
    /// ascending order, and the last ones (the last aligned word, if they end with one) become
    /// visible last: a program that polls them finds the others there.
    ///
    /// # Errors
    /// EINVAL: not inside, not `len` bytes, or not [taken](Self::takes); EFAULT: something is not
    /// mapped. A part may have been copied.
    pub fn write(&self, at: u64, from: &[Piece<'_>], len: usize) -> io::Result<()> {
        let mut to = self.place(at, from, len, self.writable)?;
        let mut left = len;
        for piece in from {
            let n = piece.len();
            left -= n;
            let tail = if left == 0 {
                last_bytes(to + n as u64, n)
            } else {
                0
            };
            let head = n - tail;
            let source = bytes_of(piece).cast_const();
            // SAFETY: `place` has found all bytes inside this mapping, which lives as long as
            // `self` and which nobody else knows; the piece is registered memory that its span
            // vouches for, or inline bytes that it borrows. Faults on either side are caught.
            // Others may change what is read and look at what is written, as with a device.
            unsafe {
                guarded::copy(address(to), source, head).map_err(fault)?;
                fence(Ordering::Release);
                guarded::copy(address(to + head as u64), source.wrapping_add(head), tail)
                    .map_err(fault)?;
            }
            to += n as u64;
        }
        Ok(())
    }

    /// Copies what is at `at` into registered memory of this process, `len` bytes in all.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read(&self, at: u64, to: &[Piece<'_>], len: usize) -> io::Result<()> {
        let readable = to.iter().all(|p| matches!(p, Piece::Registered(_)));
        let mut from = self.place(at, to, len, readable)?;
        for piece in to {
            // SAFETY: `place` has found all bytes inside this mapping, which lives as long as
            // `self`; the pieces are registered memory that the rights table allows to write.
            // Faults on either side are caught.
            unsafe {
                guarded::copy(
                    bytes_of(piece),
                    address::<u8>(from).cast_const(),
                    piece.len(),
                )
                .map_err(fault)?;
            }
            from += piece.len() as u64;
        }
        Ok(())
    }

    /// Compares the word at `at` and swaps it if it is equal; returns what was there. If it fails
    /// nothing was changed.
    ///
    /// # Errors
    /// EINVAL: not inside, or not aligned; EFAULT.
    pub fn compare_swap(&self, at: u64, compare: u64, swap: u64) -> io::Result<u64> {
        let word = self.word(at)?;
        // SAFETY: eight aligned bytes inside this mapping; a fault is caught.
        unsafe { guarded::compare_swap(address(word), compare, swap) }.map_err(fault)
    }

    /// Adds to the word at `at`; returns what was there. If it fails nothing was changed.
    ///
    /// # Errors
    /// As [`compare_swap`](Self::compare_swap).
    pub fn fetch_add(&self, at: u64, add: u64) -> io::Result<u64> {
        let word = self.word(at)?;
        // SAFETY: eight aligned bytes inside this mapping; a fault is caught.
        unsafe { guarded::fetch_add(address(word), add) }.map_err(fault)
    }

    fn word(&self, at: u64) -> io::Result<u64> {
        self.inside(at, size_of::<u64>())
            .filter(|word| self.writable && word.is_multiple_of(8))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }

    /// Where a copy between `at` and the pieces begins, if it `may` be and all of it fits.
    fn place(&self, at: u64, pieces: &[Piece<'_>], len: usize, may: bool) -> io::Result<u64> {
        let total: usize = pieces.iter().map(Piece::len).sum();
        let fits = may && total == len && Self::takes(pieces);
        self.inside(at, len)
            .filter(|_| fits)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }

    fn inside(&self, at: u64, len: usize) -> Option<u64> {
        let end = at.checked_add(len as u64)?;
        (end <= self.mapping.len() as u64).then(|| self.mapping.addr() + at)
    }
}

/// The bytes of a piece. Only those of registered memory may be written.
fn bytes_of(piece: &Piece<'_>) -> *mut u8 {
    match piece {
        Piece::Registered(span) if span.len() == 0 => ptr::dangling_mut(),
        Piece::Registered(span) => address(span.addr()),
        Piece::Inline(bytes) => bytes.as_ptr().cast_mut(),
    }
}

fn fault(_: Unmapped) -> io::Error {
    io::Error::from_raw_os_error(libc::EFAULT)
}

#[cfg(test)]
#[path = "peer_pages_tests.rs"]
mod tests;
