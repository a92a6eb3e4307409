//! The memory of a ring between processes: a sealed memory file, mapped by both.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::protocol::{Area, Consumer, LINE, Producer, Word};
use super::short_ring::{BODIES, SHORT_RINGS, SLOT, SLOTS, body};
use super::{Receiver, Sender};
use crate::fd::Fd;
use crate::fork;
use crate::memory::{Mapping, file, file_size, page_size};
use crate::sys::check;

/// Bytes before those for records: one line for each word, in a page of its own.
const CONTROL: usize = 4096;

/// Bytes of a short ring's words beside its slots: a line for each side.
const SHORT_RING_CONTROL: usize = 2 * LINE as usize;
/// Bytes of the short rings' words.
pub(super) const SHORT_RINGS_CONTROL: usize =
    (SHORT_RING_CONTROL * SHORT_RINGS as usize).next_multiple_of(4096);
/// Bytes of a short ring's slots.
const SHORT_RING: usize = SLOTS as usize * SLOT;
/// Where their bodies begin, behind all slots.
const BODIES_AT: usize = SHORT_RINGS_CONTROL + SHORT_RING * SHORT_RINGS as usize;
/// Bytes behind those for records: for the short rings, if there are any. Pages that are never
/// written take no memory.
const ALL_SHORT_RINGS: usize = BODIES_AT + BODIES;

/// Lines behind the next length that are asked for ahead: those of a short record.
const AHEAD: u32 = 3;

/// The seals that a ring has: its size cannot change, and nothing can be taken back.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Why there is no ring.
#[derive(Debug)]
pub enum Refused {
    /// Not a power of two, too small or too big, or not what the file has.
    Size(u64),
    /// The file could shrink under us.
    Seals,
    /// The file's pages are huge ones. Its owner could take them back by a hole, and an access
    /// raises SIGBUS if no other is free then.
    HugePages,
    /// The kernel refused.
    System(io::Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(bytes) => {
                write!(f, "{bytes} bytes are no size for a ring, or not the file's")
            }
            Self::Seals => f.write_str("the memory file is not sealed against shrinking"),
            Self::HugePages => f.write_str("the memory file is not of ordinary pages"),
            Self::System(error) => write!(f, "no shared memory: {error}"),
        }
    }
}

impl Error for Refused {}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Shared memory of a ring.
#[derive(Debug)]
pub struct SharedArea {
    mapping: Option<Mapping>,
    base: *mut u8,
    capacity: u32,
    /// Whether there are short rings behind the records.
    short_rings: bool,
    /// See [`fork::generation`].
    generation: usize,
}

// SAFETY: the pointer is to a mapping that belongs to this object; all access is by atomics, or by
// the copies of `write` and `read`, which the protocol keeps apart and which make no references.
unsafe impl Send for SharedArea {}
// SAFETY: the pointer is to a mapping that belongs to this object; all access is by atomics, or by
// the copies of `write` and `read`, which the protocol keeps apart and which make no references.
unsafe impl Sync for SharedArea {}

/// Makes a ring with room for `capacity` bytes of records, a power of two from 4 KiB to 1 GiB, and
/// with `short_rings` or not: this side sends, and the descriptor is for the other side's [`open`].
///
/// # Errors
/// [`Refused`]: the system has no memory files, or no memory, or a limit is in the way.
pub fn create(capacity: u32, short_rings: bool) -> Result<(Sender, Fd), Refused> {
    let bytes = file_bytes(capacity, short_rings)?;
    let fd = file::create(c"ferroce-ring", bytes, SEALS)?;
    let area = SharedArea::map(&fd, capacity, short_rings)?;
    Ok((Producer::new(Arc::new(area)), fd))
}

/// Maps a ring that another process made and sends on. `capacity` and whether it has `short_rings`
/// is what it says. With short rings it is told that they are looked at.
///
/// # Errors
/// [`Refused`].
pub fn open(fd: &Fd, capacity: u32, short_rings: bool) -> Result<Receiver, Refused> {
    let bytes = file_bytes(capacity, short_rings)?;
    let seals = file::seals(fd.as_raw_fd())?;
    if seals & libc::F_SEAL_SHRINK == 0 || seals & libc::F_SEAL_WRITE != 0 {
        return Err(Refused::Seals);
    }
    if !file::has_ordinary_pages(fd.as_raw_fd())? {
        return Err(Refused::HugePages);
    }
    match file_size(fd.as_raw_fd()) {
        Some(size) if size >= bytes as u64 => {}
        size => return Err(Refused::Size(size.unwrap_or(0))),
    }
    let area = SharedArea::map(fd, capacity, short_rings)?;
    if short_rings {
        area.word(Word::ShortRings).store(1, Ordering::Release);
    }
    Ok(Consumer::new(Arc::new(area)))
}

fn file_bytes(capacity: u32, short_rings: bool) -> Result<usize, Refused> {
    if !capacity.is_power_of_two() || !(4096..=1 << 30).contains(&capacity) {
        return Err(Refused::Size(capacity.into()));
    }
    let page = usize::try_from(page_size()).expect("invariant: 64 bits");
    let short_rings = if short_rings { ALL_SHORT_RINGS } else { 0 };
    Ok((CONTROL + capacity as usize + short_rings).next_multiple_of(page))
}

impl SharedArea {
    fn map(fd: &Fd, capacity: u32, short_rings: bool) -> Result<Self, Refused> {
        let mapping = Mapping::of(fd.as_raw_fd(), 0, file_bytes(capacity, short_rings)?, true)?;
        let base: *mut u8 = crate::memory::address(mapping.addr());
        // A child of `fork` would be a second producer or consumer.
        // SAFETY: the mapping is new and nobody has pointers into it.
        check(unsafe {
            libc::syscall(libc::SYS_madvise, base, mapping.len(), libc::MADV_DONTFORK)
        })?;
        Ok(Self {
            mapping: Some(mapping),
            base,
            capacity,
            short_rings,
            generation: fork::generation(),
        })
    }

    /// Whether there are short rings, and the consumer looks at them.
    #[must_use]
    pub fn has_short_rings(&self) -> bool {
        self.short_rings
            && self.is_ours()
            && self.word(Word::ShortRings).load(Ordering::Acquire) != 0
    }

    /// Whether the consumer sleeps, for all that can be seen at a glance.
    #[inline]
    #[must_use]
    pub fn seems_asleep(&self) -> bool {
        !self.is_ours() || self.word(Word::Sleeps).load(Ordering::Relaxed) != 0
    }

    /// Whether this process may use it: no longer in a child of `fork`.
    #[inline]
    pub(super) fn is_ours(&self) -> bool {
        fork::is_current(self.generation)
    }

    /// Where the words, the slots and the body of a short ring begin, if there is such a one.
    pub(super) fn short_ring_memory(&self, short_ring: u16) -> Option<[*mut u8; 3]> {
        let has = self.short_rings && short_ring < SHORT_RINGS;
        let (short_rings, index) = (CONTROL + self.capacity as usize, usize::from(short_ring));
        let places = [
            SHORT_RING_CONTROL * index,
            SHORT_RINGS_CONTROL + SHORT_RING * index,
            BODIES_AT + body(short_ring).0,
        ];
        has.then(|| places.map(|offset| self.base.wrapping_add(short_rings + offset)))
    }

    #[inline]
    fn word(&self, word: Word) -> &AtomicU32 {
        let offset = match word {
            Word::Sleeps => 0,
            Word::Read => LINE as usize,
            Word::Waits => 2 * LINE as usize,
            Word::ShortRings => 3 * LINE as usize,
            Word::Length(at) => CONTROL + (at & (self.capacity - 1)) as usize,
        };
        // SAFETY: inside the mapping, which lives as long as `self`; aligned, since positions are
        // multiples of a line; the peer may change it at any time, which an atomic allows.
        unsafe { AtomicU32::from_ptr(self.base.add(offset).cast()) }
    }

    /// Where a position lies in the mapping, and how many bytes there are from there to the end.
    #[inline]
    fn place(&self, at: u32) -> (usize, usize) {
        let start = (at & (self.capacity - 1)) as usize;
        (CONTROL + start, self.capacity as usize - start)
    }

    /// The two pieces in which `len` bytes from `at` on lie: offsets and lengths.
    #[inline]
    fn pieces(&self, at: u32, len: usize) -> [(usize, usize); 2] {
        let (start, room) = self.place(at);
        let first = len.min(room);
        [(start, first), (CONTROL, len - first)]
    }
}

/// Asks the processor for a line that will be written, without a promise that there is one.
#[inline]
pub(super) fn prefetch_for_write(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch touches nothing and cannot fault; x86-64 processors take the instruction,
    // those that do not know it as none. The compiler's own function becomes a prefetch for
    // reading, as long as it may not take it for granted.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }

    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks the processor for a line that will be read, without a promise that there is one.
#[inline]
pub(super) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch touches nothing and cannot fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }

    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// A sequentially consistent fence.
#[inline]
pub(super) fn full_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: changes nothing. Any locked instruction orders all loads and stores around it, and
    // takes half as long as the `mfence` that the compiler has for a fence; it takes none of those
    // across the block, which may touch memory.
    unsafe {
        std::arch::asm!("lock or dword ptr [rsp], 0");
    }

    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(Ordering::SeqCst);
}

impl Area for Arc<SharedArea> {
    #[inline]
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline]
    fn is_ours(&self) -> bool {
        SharedArea::is_ours(self)
    }

    #[inline]
    fn load(&self, word: Word, order: Ordering) -> u32 {
        self.word(word).load(order)
    }

    #[inline]
    fn store(&self, word: Word, value: u32, order: Ordering) {
        self.word(word).store(value, order);
    }

    #[inline]
    fn swap(&self, word: Word, value: u32, order: Ordering) -> u32 {
        self.word(word).swap(value, order)
    }

    #[inline]
    fn fence(&self) {
        full_fence();
    }

    #[inline]
    fn write(&self, at: u32, bytes: &[u8]) {
        let (start, room) = self.place(at);
        if bytes.len() <= room {
            // SAFETY: the bytes lie inside the mapping; the rest as below.
            unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(start), bytes.len());
            }
            return;
        }
        assert!(bytes.len() <= self.capacity as usize);
        let [(start, first), (rest, second)] = self.pieces(at, bytes.len());
        let (a, b) = bytes.split_at(first);
        // SAFETY: both pieces lie inside the mapping, and together they have the length of `bytes`,
        // which is the process's own memory. An honest peer does not look at them now; what a
        // hostile one reads does not matter.
        unsafe {
            ptr::copy_nonoverlapping(a.as_ptr(), self.base.add(start), first);
            ptr::copy_nonoverlapping(b.as_ptr(), self.base.add(rest), second);
        }
    }

    /// The consumer has read them a round ago: fetched from its cache now, they do not hold up the
    /// next record.
    #[inline]
    fn will_write(&self, at: u32) {
        for line in 0..AHEAD {
            let (start, _) = self.place(at.wrapping_add(line * LINE));
            prefetch_for_write(self.base.wrapping_add(start));
        }
    }

    #[inline]
    fn read(&self, at: u32, to: &mut [u8]) {
        assert!(to.len() <= self.capacity as usize);
        let [(start, first), (rest, second)] = self.pieces(at, to.len());
        let (a, b) = to.split_at_mut(first);
        if b.is_empty() {
            // SAFETY: `pieces` lie within the mapping, and this is the only one. A hostile peer may
            // write meanwhile: bytes are read, of which every value is valid.
            unsafe { ptr::copy_nonoverlapping(self.base.add(start), a.as_mut_ptr(), first) };
            return;
        }
        // SAFETY: `pieces` lie within the mapping. A hostile peer may write meanwhile: bytes are
        // read, of which every value is valid.
        unsafe {
            ptr::copy_nonoverlapping(self.base.add(start), a.as_mut_ptr(), first);
            ptr::copy_nonoverlapping(self.base.add(rest), b.as_mut_ptr(), second);
        }
    }
}

impl Drop for SharedArea {
    fn drop(&mut self) {
        if !self.is_ours() {
            // A child of `fork` does not have it, and may have something else in its place.
            std::mem::forget(self.mapping.take());
        }
    }
}
