//! Memory that other processes can map, too: pages of a memfd.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
#[cfg(feature = "software")]
use std::sync::OnceLock;

#[cfg(feature = "software")]
use ferroce_abi::verbs::{SharedRange, share_memory};

use super::bytes::{Bytes, WORD};
use crate::{Error, Result};

/// A mapping of a descriptor's memory, all of it.
pub(crate) struct Mapping {
    descriptor: OwnedFd,
    start: NonNull<u8>,
    /// Mapped, and in the file: at least `length`.
    size: usize,
    length: usize,
    bytes: Bytes,
    /// Peers of this host may map it, too, if the software device has regions there.
    #[cfg(feature = "software")]
    shared: OnceLock<Option<SharedRange>>,
}

// SAFETY: the bytes are touched through atomics only.
unsafe impl Send for Mapping {}
// SAFETY: the bytes are touched through atomics only.
unsafe impl Sync for Mapping {}

/// So that nobody can take pages away from under a mapping: reading there would kill the process.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

impl Mapping {
    /// Zeroed bytes: `memfd_create(2)`, sealed at their length.
    pub(crate) fn new(length: usize) -> Result<Arc<Self>> {
        let size = length
            .checked_next_multiple_of(WORD)
            .filter(|size| *size > 0 && isize::try_from(*size).is_ok())
            .ok_or(Error::Misuse(
                "shared memory has at least one byte, and fits the address space",
            ))?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a name, which is copied.
        let raw = unsafe { libc::memfd_create(c"ferroce".as_ptr(), flags) };
        if raw < 0 {
            return Err(Error::last("memfd_create"));
        }
        // SAFETY: just made, so nobody else has it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        let file = File::from(descriptor);
        file.set_len(size as u64)
            .map_err(|source| Error::io("ftruncate", source))?;
        // SAFETY: an open descriptor, and no memory.
        Error::check_last("fcntl(F_ADD_SEALS)", unsafe {
            libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS)
        })?;
        Self::map(file.into(), size, length)
    }

    /// What another process has made so.
    pub(crate) fn of_descriptor(descriptor: OwnedFd) -> Result<Arc<Self>> {
        // SAFETY: an open descriptor, and no memory.
        let seals = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 {
            return Err(Error::last("fcntl(F_GET_SEALS)"));
        }
        if seals & libc::F_SEAL_SHRINK == 0 {
            return Err(Error::Misuse(
                "the memory is not sealed against shrinking: who has its descriptor could take it away",
            ));
        }
        let file = File::from(descriptor);
        let length = file
            .metadata()
            .map_err(|source| Error::io("fstat", source))?
            .len();
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length > 0)
            .ok_or(Error::Misuse("the descriptor has no memory that fits"))?;
        // Whole words: what is behind the file's end on its last page is this process's own.
        let size = length.next_multiple_of(WORD);
        Self::map(file.into(), size, length)
    }

    fn map(descriptor: OwnedFd, size: usize, length: usize) -> Result<Arc<Self>> {
        // SAFETY: a new place, which the kernel chooses.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                descriptor.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Error::last("mmap").about(|| format!("{length} shared bytes")));
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(Error::Misuse("mapped nowhere"))?;
        // SAFETY: mapped until this is dropped. The file cannot shrink, so every page is there.
        let bytes = unsafe { Bytes::new(start, size) };
        Ok(Arc::new(Self {
            descriptor,
            start,
            size,
            length,
            bytes,
            #[cfg(feature = "software")]
            shared: OnceLock::new(),
        }))
    }

    /// Bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// As atomics.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Regions of the software device that are registered there from here on can be mapped by its
    /// peers of this host.
    #[cfg(feature = "software")]
    pub(super) fn share(&self) {
        let start = self.start.as_ptr().expose_provenance() as u64;
        self.shared
            .get_or_init(|| share_memory(self.as_fd(), start, self.length as u64));
    }

    /// The first of them.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl AsFd for Mapping {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Before the addresses become others'.
        #[cfg(feature = "software")]
        drop(self.shared.take());
        // SAFETY: mapped by `map`, and no region of it is registered any more: those held this
        // object.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
    }
}
