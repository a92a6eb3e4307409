//! Memory that processes share.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64};

use crate::Result;
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

    /// The bytes: others may change them at any time.
    #[must_use]
    pub fn atomic_bytes(&self) -> &[AtomicU8] {
        self.0.bytes().atomic_bytes(self.len())
    }

    /// The whole words of eight bytes, as [`atomic_bytes`](Self::atomic_bytes).
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "an invariant")]
    pub fn atomic_words(&self) -> &[AtomicU64] {
        let words = self.0.bytes().atomic_words(self.len() / size_of::<u64>());
        words.expect("invariant: mappings begin with a page")
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
