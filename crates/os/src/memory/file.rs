//! Files of memory whose pages processes share.
//!
//! A process that maps a file is killed by SIGBUS if the owner cuts the file short and the process
//! looks behind the new end. So only files count here that are sealed against that
//! ([`SharedFile`]). A process that maps another one's file checks the seals by itself
//! ([`PeerPages`](super::PeerPages)).

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use super::{Mapping, file_size};
use crate::fd::Fd;
use crate::sys::{check, errno, raw_fd};

/// Names a file on this host while it is open somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

impl FileId {
    /// The file behind a descriptor.
    pub(super) fn of(fd: RawFd) -> io::Result<Self> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the kernel fills the structure in if it reports success.
        let stat = unsafe {
            check(libc::fstat(fd, stat.as_mut_ptr()).into())?;
            stat.assume_init()
        };
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }
}

/// A file of memory, or another one, of which nobody can take pages away.
#[derive(Debug)]
pub struct SharedFile {
    fd: Fd,
    id: FileId,
}

impl SharedFile {
    /// `len` zeroed bytes that are nobody else's yet. `name` is what lists of mappings show.
    ///
    /// # Errors
    /// EFBIG: larger than the process's files may be (`RLIMIT_FSIZE`); EMFILE, ENFILE, ENOMEM;
    /// ENOSYS or EPERM where the kernel or a filter does not allow such files.
    pub fn create(name: &CStr, len: usize) -> io::Result<Self> {
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        let fd = create(name, len, seals)?;
        let id = FileId::of(fd.as_raw_fd())?;
        Ok(Self { fd, id })
    }

    /// The file of a descriptor of the program's, which may close it.
    ///
    /// # Errors
    /// EINVAL: it could be cut short, or is no file of memory; EBADF, EMFILE.
    pub fn of(descriptor: RawFd) -> io::Result<Self> {
        if !cannot_shrink(descriptor) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: takes no pointers.
        let raw = unsafe { libc::syscall(libc::SYS_fcntl, descriptor, libc::F_DUPFD_CLOEXEC, 0) };
        let fd = Fd::internal(raw_fd(check(raw)?));
        let id = FileId::of(fd.as_raw_fd())?;
        Ok(Self { fd, id })
    }

    /// Returns what tells the file from others.
    #[must_use]
    pub const fn id(&self) -> FileId {
        self.id
    }

    /// The number of its descriptor in this process.
    #[must_use]
    pub fn number(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Maps its first `len` bytes, to be written too.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn map(&self, len: usize) -> io::Result<Mapping> {
        Mapping::of(self.fd.as_raw_fd(), 0, len, true)
    }

    /// Gives its pages back, even if processes still map them: what was there is lost.
    pub fn discard(&self) {
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let len = file_size(self.fd.as_raw_fd()).unwrap_or(0);
        // SAFETY: takes no pointers. Should the kernel not do it, the pages go with the last
        // mapping.
        let _ = unsafe { libc::syscall(libc::SYS_fallocate, self.fd.as_raw_fd(), how, 0, len) };
    }
}

/// Makes an anonymous file of `len` zeroed bytes, with these seals. Lists of mappings show `name`.
///
/// # Errors
/// EFBIG: larger than the process's files may be (`RLIMIT_FSIZE`); EMFILE, ENFILE, ENOMEM; ENOSYS
/// or EPERM where the kernel or a filter does not allow such files.
pub(crate) fn create(name: &CStr, len: usize, seals: i32) -> io::Result<Fd> {
    check_file_limit(len)?;
    let fd = unsealed(name)?;
    // SAFETY: takes no pointers.
    check(unsafe { libc::syscall(libc::SYS_ftruncate, fd.as_raw_fd(), len) })?;
    add_seals(&fd, seals)?;
    Ok(fd)
}

/// An empty anonymous file without seals.
pub(crate) fn unsealed(name: &CStr) -> io::Result<Fd> {
    let make = |flags: libc::c_uint| {
        // SAFETY: the name is a C string.
        check(unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) })
    };
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Kernels before 6.3 do not know the first form, and later ones may insist on it.
    let raw = match make(flags | libc::MFD_NOEXEC_SEAL) {
        Err(e) if errno(&e) == libc::EINVAL => make(flags)?,
        other => other?,
    };
    Ok(Fd::internal(raw_fd(raw)))
}

/// A file that grows beyond the limit raises SIGXFSZ, which would end the process.
fn check_file_limit(len: usize) -> io::Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let null = ptr::null::<libc::rlimit>();
    // SAFETY: the pointer is to a live structure of integers.
    check(unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_FSIZE,
            null,
            &raw mut limit,
        )
    })?;
    if limit.rlim_cur < len as u64 {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    Ok(())
}

pub(super) fn add_seals(fd: &Fd, seals: i32) -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd.as_raw_fd(), libc::F_ADD_SEALS, seals) })
        .map(drop)
}

/// Whether a memory file is of ordinary pages, not of the pool of huge ones (`MFD_HUGETLB`).
///
/// # Errors
/// EBADF.
pub(crate) fn has_ordinary_pages(fd: RawFd) -> io::Result<bool> {
    // `struct statfs` has 15 words. The first, of which C libraries disagree on the type, says what
    // file system it is.
    let mut about: [libc::c_long; 16] = [0; 16];
    // SAFETY: the kernel writes within the array.
    check(unsafe { libc::syscall(libc::SYS_fstatfs, fd, about.as_mut_ptr()) })?;
    Ok(about[0] == libc::TMPFS_MAGIC)
}

/// The seals of a file.
///
/// # Errors
/// EINVAL: it is no file of memory; EBADF.
pub(crate) fn seals(fd: RawFd) -> io::Result<i32> {
    // SAFETY: takes no pointers.
    let seals = check(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GET_SEALS) })?;
    Ok(i32::try_from(seals).expect("invariant: seals are bits of an int"))
}

pub(super) fn cannot_shrink(fd: RawFd) -> bool {
    seals(fd).is_ok_and(|seals| seals & libc::F_SEAL_SHRINK != 0)
}
