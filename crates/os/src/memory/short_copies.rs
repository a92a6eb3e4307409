//! Short copies to and from another process's memory, through the file that the kernel has for it
//! (`/proc/PID/mem`, `proc(5)`).
//!
//! The kernel asks whether this process may when the file is opened, and not for each copy. Nor
//! does a copy touch the lines that the kernel keeps of the other process (its task, its signals).
//! Of two processes that write to each other by turns, each would find those lines with the other
//! one. So a copy of 8 bytes takes two thirds of the time of `process_vm_writev`. The bytes go
//! through a page of the kernel's, so long ones do not come here.
//!
//! The file is that of one memory, for ever: when the process has ended, or has executed another
//! program, nothing is found there.
//!
//! Such a copy looks at what is mapped, not at its protection (private memory that may not be
//! written is written all the same). That is right for memory that could be written when it was
//! registered: an adapter, which has its pages, writes it whatever the program has protected since.
//! For other memory these copies are not to be used.

use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd as _;

use ferroce_proto::mr::Piece;

use super::remote::{Task, check, iovec};
use crate::fd::Fd;
use crate::sys::{self, raw_fd};

/// The memory of another process, or of this one, as a file.
#[derive(Debug)]
pub struct MemoryFile {
    file: Fd,
    /// Bytes become visible from the first to the last, whatever their number.
    ascends: bool,
}

impl MemoryFile {
    /// Most bytes of a copy: a page of the kernel's.
    pub const MAX: usize = 4096;

    /// Opens it. It is the right one if a word is there that only the right process has
    /// ([`read_word`](Self::read_word)): `/proc` may be that of another PID namespace.
    ///
    /// # Errors
    /// EACCES, EPERM, ENOENT: the kernel does not let this process at it; EMFILE.
    pub fn open(task: Task) -> io::Result<Self> {
        let path = CString::new(format!("/proc/{task}/mem"))?;
        let flags = libc::O_RDWR | libc::O_CLOEXEC;
        // SAFETY: the path is a C string.
        let raw = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
        Ok(Self {
            file: Fd::internal(raw_fd(sys::check(raw)?)),
            ascends: copies_ascend(),
        })
    }

    /// The piece that a copy of `len` bytes consists of, if it can be made: it is one, and not
    /// long. A program that polls the last byte of what is written must find the others there.
    #[must_use]
    pub fn takes<'a, 'p>(
        &self,
        pieces: &'a [Piece<'p>],
        len: usize,
        is_write: bool,
    ) -> Option<&'a Piece<'p>> {
        let [piece] = pieces else { return None };
        // What one store of any processor moves is in order as it is.
        let in_order = !is_write || self.ascends || matches!(len, 1 | 4 | 8);
        (len <= Self::MAX && in_order && check(pieces, len).is_ok()).then_some(piece)
    }

    /// Reads a word.
    ///
    /// # Errors
    /// EIO: nothing is mapped there.
    pub fn read_word(&self, addr: u64) -> io::Result<u64> {
        let mut bytes = [0_u8; 8];
        let to = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: the kernel writes within `bytes`.
        unsafe { self.copy(libc::SYS_pread64, to, addr) }?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Whether the address space has gone: its process has ended or has executed another program,
    /// and no thread uses it any more.
    #[must_use]
    pub fn is_gone(&self, addr: u64) -> bool {
        let mut byte = [0_u8];
        let Ok(at) = i64::try_from(addr) else {
            return false;
        };
        let (fd, to) = (self.file.as_raw_fd(), byte.as_mut_ptr());
        // SAFETY: the kernel writes within `byte`.
        let read = sys::check(unsafe { libc::syscall(libc::SYS_pread64, fd, to, 1_usize, at) });
        // What is not mapped is an error; the end of the file is the end of the memory.
        read.is_ok_and(|read| read == 0)
    }

    /// Copies what is at `from` into a piece of registered memory that was [taken](Self::takes).
    ///
    /// # Errors
    /// EINVAL: it is not registered; EFAULT, EIO: something is not mapped; a part may have been
    /// copied.
    pub fn read(&self, from: u64, to: &Piece<'_>) -> io::Result<()> {
        if !matches!(to, Piece::Registered(_)) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: the kernel writes into registered memory, which the span vouches for; what is not
        // mapped is an error.
        unsafe { self.copy(libc::SYS_pread64, iovec(to), from) }
    }

    /// Copies a piece of this process's memory that was [taken](Self::takes) to `to`.
    ///
    /// # Errors
    /// EFAULT, EIO: something is not mapped; a part may have been copied.
    pub fn write(&self, from: &Piece<'_>, to: u64) -> io::Result<()> {
        // SAFETY: the kernel only reads the piece; what is not mapped is an error.
        unsafe { self.copy(libc::SYS_pwrite64, iovec(from), to) }
    }

    /// # Safety
    /// With `pread64` the bytes are memory that may be written.
    unsafe fn copy(&self, call: libc::c_long, own: libc::iovec, addr: u64) -> io::Result<()> {
        let Ok(at) = i64::try_from(addr) else {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        };
        let fd = self.file.as_raw_fd();
        // SAFETY: the caller's promise; `at` is an address of the other process, where the kernel
        // checks it.
        let copied = sys::check(unsafe { libc::syscall(call, fd, own.iov_base, own.iov_len, at) })?;
        if copied == own.iov_len {
            return Ok(());
        }
        Err(io::Error::from_raw_os_error(libc::EFAULT))
    }
}

/// Whether the kernel copies by one instruction that goes from the first byte to the last, which it
/// does on processors where that is as fast for few bytes as for many. Its loops for others take
/// whichever direction and end they like.
#[cfg(target_arch = "x86_64")]
fn copies_ascend() -> bool {
    use std::arch::x86_64::{__cpuid_count, __get_cpuid_max};

    /// The leaf of extended features, and there "fast short REP MOVSB".
    const LEAF: u32 = 7;
    const FAST_SHORT: u32 = 1 << 4;
    #[allow(unused_unsafe, reason = "newer compilers know that these are safe")]
    // SAFETY: every processor of this architecture has the instruction.
    unsafe {
        let (highest, _) = __get_cpuid_max(0);
        highest >= LEAF && __cpuid_count(LEAF, 0).edx & FAST_SHORT != 0
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn copies_ascend() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use ferroce_proto::ids::{Key, PdId};
    use ferroce_proto::mr::{Access, Region, Rights};

    use super::*;

    const MAX: usize = MemoryFile::MAX;

    fn own() -> MemoryFile {
        MemoryFile::open(Task::this()).unwrap()
    }

    #[test]
    fn bytes_come_and_go() {
        let file = own();
        let mut peers = vec![0xaa_u8; 8192];
        let at = peers.as_mut_ptr().expose_provenance() as u64;
        let sent: Vec<u8> = (0..=255).cycle().take(MAX).collect();
        for len in [1, 4, 8] {
            let pieces = [Piece::Inline(&sent[..len])];
            let piece = file.takes(&pieces, len, true).expect("one store");
            file.write(piece, at + 13).unwrap();
            assert_eq!(peers[13..13 + len], sent[..len]);
            assert!(
                peers[..13]
                    .iter()
                    .chain(&peers[13 + len..])
                    .all(|b| *b == 0xaa)
            );
            peers.fill(0xaa);
        }
        peers[100..100 + MAX].copy_from_slice(&sent);
        let mut here = vec![0_u8; MAX];
        let addr = here.as_mut_ptr().expose_provenance() as u64;
        let mut rights = Rights::default();
        let region = Region::new(PdId(1), addr, MAX as u64, Access::LOCAL_WRITE);
        assert!(rights.insert(Key(1), region));
        let span = rights.open(Key(1), PdId(1), addr, MAX as u64, Access::LOCAL_WRITE);
        let pieces = [Piece::Registered(span.unwrap())];
        let piece = file.takes(&pieces, MAX, false).expect("a page");
        file.read(at + 100, piece).unwrap();
        drop(rights);
        assert_eq!(here, sent);
    }

    #[test]
    fn what_is_not_mapped_is_an_error() {
        let file = own();
        let piece = Piece::Inline(b"eight by");
        for addr in [0, 1 << 62, u64::MAX] {
            assert!(file.write(&piece, addr).is_err(), "{addr:#x}");
            assert!(file.read_word(addr).is_err(), "{addr:#x}");
        }
        let word = Box::new(7_u64);
        let at = (&raw const *word).expose_provenance() as u64;
        assert_eq!(file.read_word(at).unwrap(), 7);
        assert!(file.read(at, &piece).is_err(), "not to be written");
    }

    #[test]
    fn others_are_for_the_other_copies() {
        let file = own();
        let bytes = [0; MAX + 1];
        let two = [Piece::Inline(&bytes[..4]), Piece::Inline(&bytes[..4])];
        assert!(file.takes(&two, 8, true).is_none());
        assert!(
            file.takes(&[Piece::Inline(&bytes)], MAX + 1, true)
                .is_none()
        );
        let odd = [Piece::Inline(&bytes[..7])];
        assert_eq!(file.takes(&odd, 7, true).is_some(), file.ascends);
        assert!(file.takes(&odd, 7, false).is_some());
        assert!(file.takes(&odd, 8, false).is_none(), "not as many");
    }
}
