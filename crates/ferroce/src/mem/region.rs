//! Memory regions.

use std::fmt;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use ferroce_abi::types::ibv_sge;

use crate::mem::{Access, ProtectionDomain, RemoteRegion, SharedMemory};
use crate::sys::{Bytes, Domain, Memory, Pieces, Region};
use crate::{Error, Result};

/// Registered memory that the library allocated. Clones are the same region.
///
/// Peers may write to it at any time. What is copied out while they do is some mixture of old and
/// new bytes.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::device::devices;
/// use ferroce::mem::{Access, MemoryRegion, ProtectionDomain};
/// let context = devices()?[0].open()?;
/// let domain = ProtectionDomain::new(&context)?;
/// let region = MemoryRegion::new(&domain, 4096, Access::Remote)?;
/// region.write(16, b"for whom it may concern")?;
/// let mut word = [0; 4];
/// region.read(20, &mut word)?;
/// assert_eq!(&word, b"whom");
/// // Words change as one, also where peers change them by atomics.
/// assert_eq!(region.fetch_add(0, 5)?, 0);
/// assert_eq!(region.load(0)?, 5);
/// // What a peer needs to know of it: 20 bytes.
/// let told = region.remote().to_bytes();
/// # assert_eq!(told.len(), 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryRegion {
    region: Arc<Region>,
    length: usize,
}

impl MemoryRegion {
    /// Allocates `length` zeroed bytes and registers them (`ibv_reg_mr(3)`).
    ///
    /// # Errors
    /// [`Error::Misuse`] for length 0, ENOMEM at the device's limit.
    pub fn new(domain: &ProtectionDomain, length: usize, access: Access) -> Result<Self> {
        Ok(Self {
            region: Region::new(&domain.0, length, access.flags())?,
            length,
        })
    }

    /// The same, on demand: the device fetches pages when work first uses them, and does not hold
    /// them (`IBV_ACCESS_ON_DEMAND` of `ibv_reg_mr(3)`).
    ///
    /// # Errors
    /// As [`new`](Self::new); EOPNOTSUPP or EINVAL where the device cannot.
    pub fn on_demand(domain: &ProtectionDomain, length: usize, access: Access) -> Result<Self> {
        Ok(Self {
            region: Region::on_demand(&domain.0, length, access.flags())?,
            length,
        })
    }

    /// Registers a part of a dma-buf, such as memory of a graphics processor
    /// (`ibv_reg_dmabuf_mr(3)`). The software device takes those that can be mapped, and memory
    /// files. The region is for work only: to read or write its bytes here is
    /// [`Error::Misuse`].
    ///
    /// # Errors
    /// [`Error::Misuse`] for an empty range, EOPNOTSUPP where the device cannot, EINVAL if the
    /// range does not fit the buffer.
    pub fn of_dma_buf(
        domain: &ProtectionDomain,
        buffer: BorrowedFd<'_>,
        range: Range<u64>,
        access: Access,
    ) -> Result<Self> {
        let length = range.end.checked_sub(range.start);
        let length = length.and_then(|length| usize::try_from(length).ok());
        let length = length
            .filter(|length| *length > 0)
            .ok_or(Error::Misuse("a memory region has at least one byte"))?;
        Ok(Self {
            region: Region::of_dma_buf(&domain.0, buffer, range.start, length, access.flags())?,
            length,
        })
    }

    /// Registers bytes that the program has allocated (`ibv_reg_mr(3)`); the region owns them from
    /// now on.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_bytes(
        domain: &ProtectionDomain,
        bytes: impl Into<Box<[u8]>>,
        access: Access,
    ) -> Result<Self> {
        let bytes = bytes.into();
        let length = bytes.len();
        Ok(Self {
            region: Region::of_box(&domain.0, bytes, access.flags())?,
            length,
        })
    }

    /// Registers memory that other processes can map, too; the region holds it.
    ///
    /// # Errors
    /// ENOMEM at the device's limit.
    pub fn of_shared(
        domain: &ProtectionDomain,
        memory: &SharedMemory,
        access: Access,
    ) -> Result<Self> {
        Ok(Self {
            region: Region::of_mapping(&domain.0, &memory.0, access.flags())?,
            length: memory.len(),
        })
    }

    /// Registers bytes that stay the program's: of a type of its own, mapped from a file, or
    /// whatever (`ibv_reg_mr(3)`).
    ///
    /// # Safety
    /// The bytes are valid for reads and writes until the last clone of the region is dropped and
    /// all work on it has completed. Meanwhile the device and, as `access` allows, peers read and
    /// write them at any time: they may be borrowed as [`AtomicU8`] and not otherwise, and hold
    /// only types for which any bytes are a value.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[allow(unsafe_code, reason = "the caller's promise")]
    pub unsafe fn of_raw(
        domain: &ProtectionDomain,
        start: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<Self> {
        if length == 0 {
            return Err(Error::Misuse("a memory region has at least one byte"));
        }
        // SAFETY: the caller's promise.
        let region = unsafe { Region::of_raw(&domain.0, start, length, access.flags())? };
        Ok(Self { region, length })
    }

    /// The bytes as peers and the device leave them to the program: anyone may change them at any
    /// time. For words there are [`load`](Self::load), [`store`](Self::store) and their like: see
    /// [memory that others write](crate::mem#memory-that-others-write).
    ///
    /// # Panics
    /// For a [raw](Self::from_raw) region whose bytes this process does not reach.
    #[must_use]
    pub fn atomic_bytes(&self) -> &[AtomicU8] {
        assert!(self.is_reached(), "{UNREACHED}");
        self.region.bytes().atomic_bytes(self.length)
    }

    /// The key by which own [raw](crate::qp::QueuePair::post_send_raw) work requests name it.
    #[must_use]
    pub fn local_key(&self) -> u32 {
        self.region.lkey()
    }

    /// Bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Copies bytes out, from `start` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Misuse`] for a [raw](Self::from_raw) region whose bytes this
    /// process does not reach.
    pub fn read(&self, start: usize, to: &mut [u8]) -> Result<()> {
        check(self.length, start, to.len())?;
        self.bytes()?.load(start, to);
        Ok(())
    }

    /// Copies bytes in, from `start` on.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&self, start: usize, from: &[u8]) -> Result<()> {
        check(self.length, start, from.len())?;
        self.bytes()?.store(start, from);
        Ok(())
    }

    /// The eight bytes from `start` on as a number in the machine's byte order, read as one. What
    /// the program reads after it is read later (`Acquire`).
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::Unaligned`] if `start` is not at a multiple of 8.
    pub fn load(&self, start: usize) -> Result<u64> {
        self.word(start).map(|bytes| bytes.load_word(start))
    }

    /// Sets the eight bytes from `start` on, as one. What the program has written before is there
    /// earlier (`Release`).
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn store(&self, start: usize, value: u64) -> Result<()> {
        self.word(start).map(|bytes| bytes.store_word(start, value))
    }

    /// Adds to the eight bytes from `start` on, and gives what was there before. Atomic among the
    /// processors of this host; among peers, too, where the device's atomics are
    /// [global](crate::device::Atomicity::Global).
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn fetch_add(&self, start: usize, add: u64) -> Result<u64> {
        self.word(start).map(|bytes| bytes.fetch_add(start, add))
    }

    /// Sets the eight bytes from `start` on to `swap` if they are `compare`, and gives what was
    /// there before. Atomic as [`fetch_add`](Self::fetch_add).
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn compare_swap(&self, start: usize, compare: u64, swap: u64) -> Result<u64> {
        self.word(start)
            .map(|bytes| bytes.compare_swap(start, compare, swap))
    }

    /// A part of it, for a work request.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], also for 4 GiB and more.
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Result<Slice<'_>> {
        if range.start <= range.end && range.end <= self.length {
            let length = range.end - range.start;
            if let Ok(length) = u32::try_from(length) {
                return Ok(Slice {
                    region: self,
                    start: range.start,
                    length,
                });
            }
        }
        Err(out_of_range(range.start, range.end, self.length))
    }

    /// What a peer must know to reach it.
    #[must_use]
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion {
            address: self.region.address(),
            length: self.length as u64,
            rkey: self.region.rkey(),
        }
    }

    pub(crate) fn of_parts(region: Arc<Region>, length: usize) -> Self {
        Self { region, length }
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Whether this process reaches its bytes.
    fn is_reached(&self) -> bool {
        self.length <= self.region.bytes().size()
    }

    /// Its bytes, if this process reaches them.
    fn bytes(&self) -> Result<&Bytes> {
        if !self.is_reached() {
            return Err(Error::Misuse(UNREACHED));
        }
        Ok(self.region.bytes())
    }

    /// The same, if a word is at `start`.
    fn word(&self, start: usize) -> Result<&Bytes> {
        word(self.bytes()?, self.length, start)
    }
}

const UNREACHED: &str =
    "this process does not reach the bytes of the memory region: it is for work only";

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// A part of a memory region.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::{Access, MemoryRegion};
/// use ferroce::qp::Operation;
/// let pair = pair()?;
/// let region = MemoryRegion::of_bytes(&pair.domain, *b"head, body", Access::LocalWrite)?;
/// let board = MemoryRegion::new(&pair.domain, 4, Access::Remote)?;
/// let body = region.slice(6..10)?;
/// pair.near.post_send(1, Operation::Write(board.remote().at(0)), &[body])?;
/// pair.completions.wait()?.result?;
/// let mut written = [0; 4];
/// board.read(0, &mut written)?;
/// assert_eq!(&written, b"body");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Slice<'r> {
    region: &'r MemoryRegion,
    start: usize,
    length: u32,
}

impl Slice<'_> {
    pub(super) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        self.region.region.is_of(domain)
    }

    pub(super) fn element(&self) -> ibv_sge {
        self.region.region.element(self.start, self.length)
    }

    /// The same bytes, under another key.
    pub(crate) fn remote(&self, rkey: u32) -> RemoteRegion {
        RemoteRegion {
            address: self.region.region.address() + self.start as u64,
            length: self.length.into(),
            rkey,
        }
    }
}

/// A piece of registered memory by its numbers, for [raw](crate::qp::QueuePair::post_send_raw) work
/// requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawPiece {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// Key of the region: [`MemoryRegion::local_key`].
    pub local_key: u32,
}

/// Whether bytes lie within a memory of that length.
pub(super) fn check(length: usize, start: usize, count: usize) -> Result<()> {
    match start.checked_add(count) {
        Some(end) if end <= length => Ok(()),
        end => Err(out_of_range(start, end.unwrap_or(usize::MAX), length)),
    }
}

/// The memory, of that length, if a word is at `start`.
pub(super) fn word(bytes: &Bytes, length: usize, start: usize) -> Result<&Bytes> {
    check(length, start, size_of::<u64>())?;
    if bytes.is_word(start) {
        Ok(bytes)
    } else {
        Err(Error::Unaligned { start })
    }
}

#[cold]
fn out_of_range(start: usize, end: usize, length: usize) -> Error {
    Error::OutOfRange { start, end, length }
}

/// The bytes of work, which holds their regions.
#[inline(always)]
pub(crate) fn pieces<'s>(slices: &'s [Slice<'s>]) -> impl Memory + use<'s> {
    Pieces(
        slices
            .iter()
            .map(|slice| (&slice.region.region, slice.start, slice.length)),
    )
}
