//! The memory of another process of this host, by the kernel's copies between address spaces
//! (`process_vm_readv(2)`).

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd as _;

use ferroce_proto::mr::{Backing, PeerRange, Piece};

use super::address;
use super::proof::Proof;
use super::read_list::{Gap, ReadList};
use super::short_copies::MemoryFile;
use crate::fd::Fd;
use crate::sys::{self, check_retry, errno, raw_fd};
use crate::thread;

/// Most pieces of one call (`UIO_MAXIOV`), besides the word that goes before them.
pub const MAX_PIECES: usize = 1023;

const WORD: usize = size_of::<u64>();

/// A thread by its number, and the process that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The process.
    pub pid: i32,
    /// The thread.
    pub thread: i32,
}

impl Task {
    /// The calling thread.
    #[must_use]
    pub fn this() -> Self {
        Self {
            pid: std::process::id().cast_signed(),
            thread: thread::number(),
        }
    }
}

/// As `/proc` has it.
impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/task/{}", self.pid, self.thread)
    }
}

/// The address space of another process, or of this one.
#[derive(Debug)]
pub struct OtherProcess {
    task: Task,
    proof: Proof,
    /// Tells that the process has ended, also when its number has been given out again.
    watch: Fd,
    memory: Option<MemoryFile>,
}

pub(crate) fn iovec(piece: &Piece<'_>) -> libc::iovec {
    let base = match piece {
        Piece::Registered(span) => address::<libc::c_void>(span.addr()),
        Piece::Inline(bytes) => bytes.as_ptr().cast_mut().cast(),
    };
    libc::iovec {
        iov_base: base,
        iov_len: piece.len(),
    }
}

impl OtherProcess {
    /// The address space that has `proof`, of the process of a thread, as this process's PID
    /// namespace has the numbers. The thread never executes a program: what the kernel finds under
    /// its number is that address space, or nothing.
    ///
    /// # Errors
    /// ESRCH, EINVAL, ENOENT: there is no such thread; EPERM, ENOSYS: a filter or the kernel
    /// (before 5.3) does not allow to look.
    pub fn open(task: Task, proof: Proof) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let raw = sys::check(unsafe { libc::syscall(libc::SYS_pidfd_open, task.pid, 0) })?;
        let watch = Fd::internal(raw_fd(raw));
        if !is_there(task) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let is_its = |file: &MemoryFile| file.read_word(proof.addr).ok() == Some(proof.word);
        let memory = MemoryFile::open(task).ok().filter(is_its);
        Ok(Self {
            task,
            proof,
            watch,
            memory,
        })
    }

    /// Returns the thread whose memory it is.
    #[must_use]
    pub const fn task(&self) -> Task {
        self.task
    }

    /// Returns the process ID.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.task.pid
    }

    /// Its memory as a file, if the kernel lets this process at it.
    #[must_use]
    pub const fn memory(&self) -> Option<&MemoryFile> {
        self.memory.as_ref()
    }

    /// Whether the process has ended: then none of its threads is in the middle of anything any
    /// more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.watch.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let no_wait = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let no_mask = std::ptr::null::<u8>();
        // SAFETY: one entry, and a time that lives through the call.
        let ready = check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_ppoll,
                &raw mut poll,
                1,
                &raw const no_wait,
                no_mask,
                0,
            )
        });
        ready.is_ok_and(|n| n > 0)
    }

    /// Whether the address space has gone: the process has ended, or has executed another program.
    /// Unless `memory` is not to be had, no thread is in the middle of anything then. Else threads
    /// that the kernel ends for another program may have some instructions left.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let left = || match &self.memory {
            Some(memory) => memory.is_gone(self.proof.addr),
            None => !is_there(self.task),
        };
        self.has_ended() || left()
    }

    /// Whether the address space is the one that it should be.
    ///
    /// # Errors
    /// EPERM: this process may not look; ENOSYS: a filter; ESRCH: it is gone; EFAULT: it is another
    /// one.
    pub fn prove(&self) -> io::Result<bool> {
        match self.read(0, &[], 0) {
            Err(e) if errno(&e) == libc::ESTALE => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Copies `len` bytes at `from` of its memory into registered memory of this one, as many in
    /// all.
    ///
    /// # Errors
    /// As [`prove`](Self::prove), a part may have been copied; ESTALE: it was another process's
    /// memory, and what was copied is not to be used.
    pub fn read(&self, from: u64, to: &[Piece<'_>], len: usize) -> io::Result<()> {
        whole(
            self.read_from(&[self.word(), iovec_at(from, len)], to, len)?,
            len,
        )
    }

    /// As [`read`](Self::read), from several places, one after the other, which one right opens: of
    /// pages that they share, bytes between them are read as well. Returns how many bytes were
    /// copied: those up to the first that is not mapped.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_run(&self, from: &[PeerRange], to: &[Piece<'_>]) -> io::Result<usize> {
        check_written(to, total(from))?;
        let (mut found, mut gap) = (0_u64, Gap::new());
        let first = [self.word(), iovec_of(&raw mut found)];
        let list = ReadList::new(first, from, to, &mut gap);
        // SAFETY: the kernel writes into `found`, the gap and registered memory, which the spans
        // vouch for; one that is not mapped is an error.
        let copied = unsafe { self.copy(libc::SYS_process_vm_readv, &list.here, &list.there) }?;
        self.check_word(found)?;
        Ok(list.bytes_of_pieces(copied))
    }

    fn read_from(&self, from: &[libc::iovec], to: &[Piece<'_>], len: usize) -> io::Result<usize> {
        check_written(to, len)?;
        let mut found = 0_u64;
        // SAFETY: the kernel writes into `found` and registered memory, which the spans vouch for;
        // one that is not mapped is an error.
        let copied = with_iovecs(&raw mut found, to, |to| unsafe {
            self.copy(libc::SYS_process_vm_readv, to, from)
        })?;
        self.check_word(found)?;
        Ok(copied)
    }

    /// Whether the word that was read is the proof.
    fn check_word(&self, found: u64) -> io::Result<()> {
        if found == self.proof.word {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESTALE))
        }
    }

    /// Copies pieces of this process's memory, `len` bytes in all, to `to` in its memory. Bytes are
    /// copied in ascending order, page by page: a program that polls the last one finds the others.
    ///
    /// # Errors
    /// As [`prove`](Self::prove); a part may have been copied.
    pub fn write(&self, from: &[Piece<'_>], to: u64, len: usize) -> io::Result<()> {
        whole(
            self.write_to(from, &[self.word(), iovec_at(to, len)], len)?,
            len,
        )
    }

    /// As [`write`](Self::write), to several places, one after the other. Returns how many bytes
    /// were copied: those up to the first that is not mapped.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_run(&self, from: &[Piece<'_>], to: &[PeerRange]) -> io::Result<usize> {
        self.write_to(from, &self.iovecs(to), total(to))
    }

    fn write_to(&self, from: &[Piece<'_>], to: &[libc::iovec], len: usize) -> io::Result<usize> {
        check(from, len)?;
        // What is there already: nothing changes.
        let mut word = self.proof.word;
        // SAFETY: the kernel only reads the word and the pieces; what is not mapped is an error.
        with_iovecs(&raw mut word, from, |from| unsafe {
            self.copy(libc::SYS_process_vm_writev, from, to)
        })
    }

    /// The proof, which is the first of what is copied.
    fn word(&self) -> libc::iovec {
        iovec_at(self.proof.addr, WORD)
    }

    /// The proof and places of its memory, as the kernel takes them. Neighbours become one: for
    /// each the kernel looks for its pages.
    fn iovecs(&self, ranges: &[PeerRange]) -> Vec<libc::iovec> {
        let mut all = Vec::with_capacity(1 + ranges.len());
        all.push(self.word());
        let mut end = None;
        for range in ranges {
            let len = range.len as usize;
            match all.last_mut().filter(|_| end == Some(range.addr)) {
                Some(last) => last.iov_len += len,
                None => all.push(iovec_at(range.addr, len)),
            }
            end = range.addr.checked_add(range.len.into());
        }
        all
    }

    /// Copies between own memory, of which the first word is for the proof, and `remote`, of which
    /// the proof is the first. Returns the bytes after it that were copied. The kernel looks once
    /// which address space the number stands for, and stops at the first piece that is not mapped
    /// there.
    ///
    /// # Safety
    /// With `process_vm_readv` the iovecs of `local` are memory that may be written.
    unsafe fn copy(
        &self,
        call: libc::c_long,
        local: &[libc::iovec],
        remote: &[libc::iovec],
    ) -> io::Result<usize> {
        // SAFETY: the caller's promise for `local`; `remote` is addresses of the other process,
        // where the kernel checks them.
        let copied = sys::check(unsafe {
            libc::syscall(
                call,
                self.task.thread,
                local.as_ptr(),
                local.len(),
                remote.as_ptr(),
                remote.len(),
                0_usize,
            )
        })?;
        copied
            .checked_sub(WORD)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))
    }
}

pub(super) fn iovec_at(addr: u64, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: address(addr),
        iov_len: len,
    }
}

/// An error, if not all `len` bytes were copied.
fn whole(copied: usize, len: usize) -> io::Result<()> {
    if copied == len {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EFAULT))
    }
}

fn iovec_of(word: *mut u64) -> libc::iovec {
    libc::iovec {
        iov_base: word.cast(),
        iov_len: WORD,
    }
}

fn total(ranges: &[PeerRange]) -> usize {
    ranges.iter().map(|range| range.len as usize).sum()
}

/// Whether there is a thread of that process with that number.
fn is_there(task: Task) -> bool {
    let Ok(path) = CString::new(format!("/proc/{task}")) else {
        return false;
    };
    // SAFETY: the path is a C string.
    let seen = unsafe {
        libc::syscall(
            libc::SYS_faccessat,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::F_OK,
        )
    };
    sys::check(seen).is_ok()
}

/// Whether the pieces are `len` bytes of memory that the kernel can copy.
pub(super) fn check(pieces: &[Piece<'_>], len: usize) -> io::Result<()> {
    let has_memory = |piece: &Piece<'_>| !matches!(piece, Piece::Registered(span) if span.backing() == Backing::Null);
    let total: usize = pieces.iter().map(Piece::len).sum();
    if total != len || pieces.len() > MAX_PIECES || !pieces.iter().all(has_memory) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(())
}

/// As [`check`], of memory that the kernel writes into.
fn check_written(pieces: &[Piece<'_>], len: usize) -> io::Result<()> {
    let is_writable = |piece: &Piece<'_>| matches!(piece, Piece::Registered(_));
    if !pieces.iter().all(is_writable) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    check(pieces, len)
}

/// Gives a word and the pieces as the kernel takes them to `call`: a few, as usual, without a place
/// from the allocator.
fn with_iovecs<R>(
    word: *mut u64,
    pieces: &[Piece<'_>],
    call: impl FnOnce(&[libc::iovec]) -> R,
) -> R {
    const FEW: usize = 9;
    let word = iovec_of(word);
    let all = std::iter::once(word).chain(pieces.iter().map(iovec));
    if pieces.len() >= FEW {
        return call(&all.collect::<Vec<_>>());
    }
    let mut few = [word; FEW];
    for (place, piece) in few.iter_mut().zip(all) {
        *place = piece;
    }
    call(&few[..=pieces.len()])
}

/// What an error of a copy means for all copies to come: whether they will fail too.
#[must_use]
pub fn is_refusal(error: &io::Error) -> bool {
    matches!(errno(error), libc::EPERM | libc::ENOSYS | libc::EACCES)
}
