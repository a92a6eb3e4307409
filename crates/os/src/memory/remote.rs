//! The memory of another process of this host, by the kernel's copies between address spaces (`process_vm_readv(2)`).

use std::io;
use std::os::fd::AsRawFd as _;

use ferroce_proto::mr::{Backing, Piece};

use super::address;
use crate::fd::Fd;
use crate::sys::{self, check_retry, errno, raw_fd};

/// Most pieces of one call (`UIO_MAXIOV`).
pub const MAX_PIECES: usize = 1024;

/// Another process, or this one.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    /// Tells that it has ended, also when its number has been given out again.
    watch: Fd,
}

pub(super) fn iovec(piece: &Piece<'_>) -> libc::iovec {
    let base = match piece {
        Piece::Registered(span) => address::<libc::c_void>(span.addr()),
        Piece::Inline(bytes) => bytes.as_ptr().cast_mut().cast(),
    };
    libc::iovec {
        iov_base: base,
        iov_len: piece.len(),
    }
}

impl Process {
    /// The process with a number, as this process's PID namespace has them.
    ///
    /// # Errors
    /// ESRCH, EINVAL: there is none; EPERM, ENOSYS: a filter or the kernel (before 5.3) does not allow to look.
    pub fn open(pid: i32) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let raw = sys::check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
        let watch = Fd::internal(raw_fd(raw));
        Ok(Self { pid, watch })
    }

    /// Its number.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it has ended: then none of its threads is in the middle of anything any more.
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

    /// Reads a word of its memory.
    ///
    /// # Errors
    /// EPERM: this process may not; ENOSYS: a filter; ESRCH: it is gone; EFAULT: nothing is mapped there.
    pub fn read_word(&self, addr: u64) -> io::Result<u64> {
        let mut bytes = [0_u8; 8];
        let local = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: the kernel writes within `bytes`.
        unsafe { self.copy(libc::SYS_process_vm_readv, &[local], addr, bytes.len()) }?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Copies `len` bytes at `from` of its memory into registered memory of this one, as many in all.
    ///
    /// # Errors
    /// As [`read_word`](Self::read_word); a part may have been copied.
    pub fn read(&self, from: u64, to: &[Piece<'_>], len: usize) -> io::Result<()> {
        let writable = |piece: &Piece<'_>| matches!(piece, Piece::Registered(_));
        if !to.iter().all(writable) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        check(to, len)?;
        // SAFETY: the kernel writes into registered memory, which the spans vouch for; one that is not mapped is an error.
        with_iovecs(to, |to| unsafe {
            self.copy(libc::SYS_process_vm_readv, to, from, len)
        })
    }

    /// Copies pieces of this process's memory, `len` bytes in all, to `to` in its memory. Bytes are copied in ascending order,
    /// page by page: who polls the last one finds the others there.
    ///
    /// # Errors
    /// As [`read_word`](Self::read_word); a part may have been copied.
    pub fn write(&self, from: &[Piece<'_>], to: u64, len: usize) -> io::Result<()> {
        check(from, len)?;
        // SAFETY: the kernel only reads the pieces; what is not mapped is an error.
        with_iovecs(from, |from| unsafe {
            self.copy(libc::SYS_process_vm_writev, from, to, len)
        })
    }

    /// # Safety
    /// With `process_vm_readv` the iovecs are memory that may be written.
    unsafe fn copy(
        &self,
        call: libc::c_long,
        local: &[libc::iovec],
        remote: u64,
        len: usize,
    ) -> io::Result<()> {
        let remote = libc::iovec {
            iov_base: address(remote),
            iov_len: len,
        };
        // SAFETY: the caller's promise for `local`; `remote` is an address of the other process, where the kernel checks it.
        let copied = sys::check(unsafe {
            libc::syscall(
                call,
                self.pid,
                local.as_ptr(),
                local.len(),
                &raw const remote,
                1_usize,
                0_usize,
            )
        });
        match copied {
            Ok(copied) if copied == len => Ok(()),
            Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
            Err(e) => Err(e),
        }
    }
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

/// Gives the pieces as the kernel takes them to `call`: a few, as usual, without a place from the allocator.
fn with_iovecs<R>(pieces: &[Piece<'_>], call: impl FnOnce(&[libc::iovec]) -> R) -> R {
    const FEW: usize = 8;
    if pieces.len() > FEW {
        return call(&pieces.iter().map(iovec).collect::<Vec<_>>());
    }
    let mut few = [iovec(&Piece::Inline(&[])); FEW];
    for (place, piece) in few.iter_mut().zip(pieces) {
        *place = iovec(piece);
    }
    call(&few[..pieces.len()])
}

/// What an error of a copy means for all copies to come: whether they will fail too.
#[must_use]
pub fn is_refusal(error: &io::Error) -> bool {
    matches!(errno(error), libc::EPERM | libc::ENOSYS | libc::EACCES)
}
