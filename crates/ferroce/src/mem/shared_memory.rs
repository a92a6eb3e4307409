//! Memory that processes share.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use crate::Result;
use crate::mem::region::word;
use crate::sys::Mapping;

/// Memory that other processes of this host can map, too: the pages of a memfd, sealed at their
/// length. Clones are the same memory.
///
/// As a [region](crate::mem::MemoryRegion::of_shared) it is what any other region is to peers. A
/// process of this host that was handed the descriptor ([`AsFd`]; by `SCM_RIGHTS`, by inheritance,
/// or from `/proc`) sees without any work request what peers write, and what it writes they read.
/// It goes when the last process lets go of it.
///
/// ```
/// # fn main() -> ferroce::Result<()> {
/// use std::sync::atomic::Ordering;
/// use std::os::fd::AsFd;
/// # use ferroce::{Provider, mem::*};
/// # let devices = Provider::software().devices()?;
/// # let domain = ProtectionDomain::new(&devices[0].open()?)?;
/// let memory = SharedMemory::new(4096)?;
/// let region = MemoryRegion::of_shared(&domain, &memory, Access::Remote)?;
/// // In another process, usually.
/// let handed_over = memory.as_fd().try_clone_to_owned().unwrap();
/// let same = SharedMemory::of_descriptor(handed_over)?;
/// same.atomic_bytes()[7].store(42, Ordering::Relaxed);
/// let mut seen = [0];
/// region.read(7, &mut seen)?;
/// assert_eq!(seen, [42]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedMemory(pub(crate) Arc<Mapping>);

impl SharedMemory {
    /// Makes `length` zeroed bytes (`memfd_create(2)`).
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) for length 0, ENOMEM, or out of descriptors.
    pub fn new(length: usize) -> Result<Self> {
        Mapping::new(length).map(Self)
    }

    /// Maps what another process made with [`new`](Self::new). Its length is a multiple of 8.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) if the descriptor's memory could be taken away
    /// again, for it is not sealed (`F_SEAL_SHRINK`); EINVAL if it is no memory; ENOMEM; EPERM if
    /// it may not be written.
    pub fn of_descriptor(descriptor: OwnedFd) -> Result<Self> {
        Mapping::of_descriptor(descriptor).map(Self)
    }

    /// Bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.length()
    }

    /// The bytes: others may change them at any time. For words there are [`load`](Self::load),
    /// [`store`](Self::store) and their like: see
    /// [memory that others write](crate::mem#memory-that-others-write).
    #[must_use]
    pub fn atomic_bytes(&self) -> &[AtomicU8] {
        self.0.bytes().atomic_bytes(self.len())
    }

    /// The eight bytes from `start` on, as [`MemoryRegion::load`](crate::mem::MemoryRegion::load).
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange);
    /// [`Error::Unaligned`](crate::Error::Unaligned) if `start` is not a multiple of 8.
    pub fn load(&self, start: usize) -> Result<u64> {
        word(self.0.bytes(), self.len(), start).map(|bytes| bytes.load_word(start))
    }

    /// Sets the eight bytes from `start` on, as
    /// [`MemoryRegion::store`](crate::mem::MemoryRegion::store).
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn store(&self, start: usize, value: u64) -> Result<()> {
        word(self.0.bytes(), self.len(), start).map(|bytes| bytes.store_word(start, value))
    }

    /// Adds to the eight bytes from `start` on, as
    /// [`MemoryRegion::fetch_add`](crate::mem::MemoryRegion::fetch_add), and gives what was there
    /// before. Atomic among all processes that map the memory.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn fetch_add(&self, start: usize, add: u64) -> Result<u64> {
        word(self.0.bytes(), self.len(), start).map(|bytes| bytes.fetch_add(start, add))
    }

    /// Sets the eight bytes from `start` on to `swap` if they are `compare`, and gives what was
    /// there before. Atomic among all processes that map the memory.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn compare_swap(&self, start: usize, compare: u64, swap: u64) -> Result<u64> {
        word(self.0.bytes(), self.len(), start)
            .map(|bytes| bytes.compare_swap(start, compare, swap))
    }
}

impl AsFd for SharedMemory {
    /// For other processes. What it is mapped with stays when it is closed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory")
            .field("length", &self.len())
            .finish_non_exhaustive()
    }
}
