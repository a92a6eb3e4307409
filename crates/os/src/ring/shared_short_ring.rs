//! One short ring in the memory of a ring between processes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_proto::mr::{Piece, Span, Unmapped};

use super::area::{SharedArea, full_fence, prefetch, prefetch_for_write};
use super::protocol::LINE;
use super::short_ring::{
    HEAD, Head, LONGEST_IN_SLOT, Place, SLOT, SLOT_HEAD, SLOTS, ShortRingArea, ShortRingWord, body,
};
use crate::memory::{bring_in, copy_short, fill_from, give_back, read_to};

/// A short ring. It keeps the ring's memory.
#[derive(Clone)]
pub struct SharedShortRing {
    area: Arc<SharedArea>,
    index: u16,
    /// Its words beside its slots.
    control: *mut u8,
    slots: *mut u8,
    body: *mut u8,
}

// SAFETY: the pointers are into a mapping that lives as long as `area`; all access is by atomics,
// or by copies that the protocol keeps apart and that make no references.
unsafe impl Send for SharedShortRing {}
// SAFETY: the pointers are into a mapping that lives as long as `area`; all access is by atomics,
// or by copies that the protocol keeps apart and that make no references.
unsafe impl Sync for SharedShortRing {}

impl SharedShortRing {
    /// A short ring of a ring, if it has so many.
    #[must_use]
    pub fn of(area: &Arc<SharedArea>, index: u16) -> Option<Self> {
        let [control, slots, body] = area.short_ring_memory(index)?;
        Some(Self {
            area: Arc::clone(area),
            index,
            control,
            slots,
            body,
        })
    }

    #[inline]
    fn slot(&self, at: u32) -> *mut u8 {
        self.slots.wrapping_add(SLOT * (at % SLOTS) as usize)
    }

    /// Where a message's bytes are, and how many there are from there to the end.
    #[inline]
    fn place(&self, place: Place) -> (*mut u8, usize) {
        match place {
            Place::Slot(at) => (
                self.slot(at).wrapping_add(SLOT_HEAD + HEAD),
                LONGEST_IN_SLOT,
            ),
            Place::Body(offset) => (
                self.body.wrapping_add(offset as usize),
                (self.body() as usize).saturating_sub(offset as usize),
            ),
        }
    }

    #[inline]
    fn word(&self, word: ShortRingWord) -> &AtomicU32 {
        let place = match word {
            ShortRingWord::Accepted => self.control,
            ShortRingWord::Read => self.control.wrapping_add(LINE as usize),
            // Beside what is seldom written where messages are answered.
            ShortRingWord::Withdrawn => self.control.wrapping_add(LINE as usize + 4),
            ShortRingWord::Filled(at) => self.slot(at),
            ShortRingWord::Length(at) => self.slot(at).wrapping_add(4),
            ShortRingWord::Says(at) => self.slot(at).wrapping_add(8),
            ShortRingWord::Offset(at) => self.slot(at).wrapping_add(SLOT_HEAD + HEAD),
            ShortRingWord::Packet(at) => self.slot(at).wrapping_add(SLOT_HEAD + HEAD + 4),
            ShortRingWord::Rest(at) => self.slot(at).wrapping_add(SLOT_HEAD + HEAD + 8),
        };
        // SAFETY: inside the short ring's part of the mapping, which lives as long as `self`;
        // aligned to four bytes; the peer may change it at any time, which an atomic allows.
        unsafe { AtomicU32::from_ptr(place.cast()) }
    }
}

/// Two are the same short ring if they have the same memory.
impl PartialEq for SharedShortRing {
    fn eq(&self, other: &Self) -> bool {
        self.slots == other.slots
    }
}

impl Eq for SharedShortRing {}

impl fmt::Debug for SharedShortRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedShortRing").field(&self.index).finish()
    }
}

impl ShortRingArea for SharedShortRing {
    #[inline]
    fn index(&self) -> u16 {
        self.index
    }

    #[inline]
    fn is_ours(&self) -> bool {
        self.area.is_ours()
    }

    #[inline]
    fn slots(&self) -> u32 {
        SLOTS
    }

    #[inline]
    fn load(&self, word: ShortRingWord, order: Ordering) -> u32 {
        self.word(word).load(order)
    }

    #[inline]
    fn store(&self, word: ShortRingWord, value: u32, order: Ordering) {
        self.word(word).store(value, order);
    }

    #[inline]
    fn fence(&self) {
        full_fence();
    }

    #[expect(clippy::inline_always, reason = "a head is not to go through memory")]
    #[inline(always)]
    fn fill(&self, at: u32, head: Head, rest: &[u8]) {
        assert!(rest.len() <= LONGEST_IN_SLOT);
        let to = self.slot(at).wrapping_add(SLOT_HEAD);
        // SAFETY: the slot lies inside the mapping, is aligned to four bytes and has room for all
        // of it; `rest` is the process's own memory. An honest peer does not look at them now; what
        // a hostile one reads does not matter.
        unsafe {
            to.cast::<Head>().write(head);
            copy_short(to.add(HEAD), rest.as_ptr(), rest.len());
        }
    }

    #[inline]
    fn head(&self, at: u32) -> Head {
        let from = self.slot(at).wrapping_add(SLOT_HEAD);
        // SAFETY: the head lies within a slot of the mapping, at a multiple of 4. A hostile peer
        // may write meanwhile: numbers are read, of which every value is valid.
        unsafe { from.cast::<Head>().read() }
    }

    fn body(&self) -> u32 {
        body(self.index).1
    }

    fn write_body(&self, offset: u32, bytes: Piece<'_>) -> Result<(), Unmapped> {
        let (to, room) = self.place(Place::Body(offset));
        let len = bytes.len();
        assert!(len.next_multiple_of(4) <= room);
        // SAFETY: the bytes from there on lie inside the mapping, which is not registered memory;
        // the rest as in `fill`.
        unsafe {
            to.add(len).write_bytes(0, len.next_multiple_of(4) - len);
            match bytes {
                Piece::Registered(span) => read_to(span, to),
                Piece::Inline(bytes) => {
                    to.copy_from_nonoverlapping(bytes.as_ptr(), len);
                    Ok(())
                }
            }
        }
    }

    fn copy_out(&self, place: Place, rest: &mut [u8]) {
        let (from, room) = self.place(place);
        assert!(rest.len() <= room);
        // SAFETY: `room` bytes of the mapping follow, and every value of a byte is valid.
        unsafe { from.copy_to_nonoverlapping(rest.as_mut_ptr(), rest.len()) };
    }

    #[inline]
    fn write_out(&self, place: Place, to: Span<'_>) -> Result<(), Unmapped> {
        let (from, room) = self.place(place);
        assert!(to.len() <= room);
        // SAFETY: `room` bytes of the mapping follow, and the mapping is not registered memory.
        unsafe { fill_from(to, from) }
    }

    fn discard(&self) {
        give_back(self.slots, SLOT * SLOTS as usize);
        give_back(self.body, self.body() as usize);
    }

    #[cold]
    fn will_fill_all(&self) {
        bring_in(self.slots, SLOT * SLOTS as usize);
    }

    #[inline]
    fn will_fill(&self, at: u32, rest: usize) {
        let slot = self.slot(at);
        prefetch_for_write(slot);
        if SLOT_HEAD + HEAD + rest > LINE as usize {
            prefetch_for_write(slot.wrapping_add(LINE as usize));
        }
    }

    #[inline]
    fn will_look(&self, at: u32, rest: usize) {
        let slot = self.slot(at);
        prefetch(slot);
        if SLOT_HEAD + HEAD + rest > LINE as usize {
            prefetch(slot.wrapping_add(LINE as usize));
        }
    }
}
