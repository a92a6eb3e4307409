//! Short rings: small messages from one queue pair to another, beside the records of a ring.
//!
//! A short ring is a row of slots in the file of a ring, behind its records, with one producer and
//! one consumer. A slot has a word with its position, two more about what is in it, and room for a
//! head and [`LONGEST_IN_SLOT`] bytes. A short message costs one cache line of traffic between two
//! processors, and no lock that others use. Positions count on for ever, modulo 2^32; a slot is
//! filled when its word is its position plus one. The consumer publishes up to where it has read,
//! which is also its word that it has taken what came before. That word is a line of its own; a
//! program that answers a message with one of its own says it in the answer's slot instead
//! ([`ShortRingAck`]).
//!
//! The bytes of a longer message, up to [`LONGEST_REST`], lie in the short ring's *body*, an area
//! beside the slots, in one piece; the slot says where. Places in the body are handed out in order,
//! and are free again when the consumer has read past their slots. While nothing is in the short
//! ring the next place is the first one: a conversation stays in the same few pages.
//!
//! What a short ring carries belongs to a *run*, that begins where the producer says so by a record
//! of the ring: behind all records that it has put in before. Positions of a run are those of no
//! earlier run, so the consumer does not see what belongs to a run that it does not know of yet.
//!
//! A short ring that is empty may give its pages back. They read as zeros then, the word of the
//! last position before zero: see [`ShortRingProducer::begin_run`].
//!
//! [`ShortRingProducer::begin_run`]: super::ShortRingProducer::begin_run
//!
//! Nobody sleeps for a short ring: its consumer looks at it when it looks at its ring, says in the
//! ring's word that it sleeps, and looks at both once more. So a sender that fills a slot looks at
//! the ring's word next, and so does a receiver that publishes what it has read, at that of the
//! ring the other way.

use std::sync::atomic::Ordering;

use ferroce_proto::mr::{Piece, Span, Unmapped};

/// Slots of a short ring.
pub(super) const SLOTS: u32 = 256;
/// Bytes of a slot: two cache lines.
pub(super) const SLOT: usize = 128;
/// Bytes of a slot before what is in it.
pub(super) const SLOT_HEAD: usize = 12;
/// Bytes of a message's head.
pub(super) const HEAD: usize = size_of::<Head>();
/// Most bytes behind its head of a message that is in its slot.
pub const LONGEST_IN_SLOT: usize = SLOT - SLOT_HEAD - HEAD;
const MOST: u32 = 16 << 10;
/// Most bytes of a message behind its head. A longer one is fetched by its receiver in less time
/// than it takes to copy it twice.
pub const LONGEST_REST: usize = MOST as usize;
/// Most bytes of a message that is in its slot.
pub const LONGEST: usize = HEAD + LONGEST_IN_SLOT;
/// Bytes of the body of one of the first short rings, a power of two: a part of a processor's own
/// cache, and enough to let both sides work at the same time.
const BODY: u32 = 256 << 10;
/// Short rings with such a body.
const ROOMY: u16 = 16;
/// Bytes of the body of each further short ring, a power of two: as many queue pairs work at the
/// same time, and all their bodies share the processors' caches.
const SMALL_BODY: u32 = 64 << 10;
/// What a message's length is a multiple of.
pub(super) const WORD: usize = 4;
/// Short rings of a ring.
pub const SHORT_RINGS: u16 = 512;
/// Bytes of all bodies.
pub(super) const BODIES: usize = body(SHORT_RINGS).0;

/// Where the body of a short ring begins, behind those of the short rings before it, and its bytes.
pub(super) const fn body(short_ring: u16) -> (usize, u32) {
    let (index, roomy) = (short_ring as usize, ROOMY as usize);
    if short_ring < ROOMY {
        (BODY as usize * index, BODY)
    } else {
        let before = BODY as usize * roomy;
        (before + SMALL_BODY as usize * (index - roomy), SMALL_BODY)
    }
}

/// What a message begins with: three words, as they are in memory. They go through registers, since
/// a processor that has just written words waits before it can read them as one.
pub type Head = [u32; 3];

/// A word of a short ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortRingWord {
    /// The number of the last offer of the short ring that the consumer's side has accepted.
    Accepted,
    /// Up to where the consumer has read.
    Read,
    /// The last position of which the consumer has withdrawn its promise.
    Withdrawn,
    /// The position of what is in a slot, plus one.
    Filled(u32),
    /// The words of the message in a slot behind its head, or `IN_BODY`; above it the short ring
    /// that [`Says`](Self::Says) is about, plus one, and how many words are promised there, plus
    /// one.
    Length(u32),
    /// Up to where the producer of what is in a slot has read a short ring the other way.
    Says(u32),
    /// If what is behind the head is too long for the slot: where it begins in the body.
    Offset(u32),
    /// Bytes of a packet, of those that the message is as long as.
    Packet(u32),
    /// Words behind the head of a message in the body.
    Rest(u32),
}

/// Where the bytes behind a message's head are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The slot of a position.
    Slot(u32),
    /// In the body, from an offset on.
    Body(u32),
}

/// What a message says besides: its sender has taken what came by a short ring the other way, up to
/// a position. As it is in a slot, since it is there with every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortRingAck {
    /// What the message adds to the word of the slot's length: the short ring, and what is
    /// promised.
    pub(super) about: u32,
    pub(super) read: u32,
}

impl ShortRingAck {
    /// Of a short ring, which was read up to a position. If the next message there, with so many
    /// bytes behind its head at most, is as good as taken (see
    /// [`completes_early`](super::ShortRingProducer::completes_early)): most bytes.
    #[must_use]
    #[inline]
    pub fn new(short_ring: u16, read: u32, early_limit: Option<u32>) -> Self {
        let words = |most: u32| (most / 4).min(MOST_WORDS) + 1;
        let early_limit = early_limit.map_or(0, words);
        let about = (u32::from(short_ring) + 1) << ACK_SHIFT | early_limit << EARLY_SHIFT;
        Self { about, read }
    }

    /// Up to where the short ring was read.
    #[must_use]
    #[inline]
    pub fn read(self) -> u32 {
        self.read
    }

    /// What a slot's word says, with the word beside it.
    #[inline]
    pub(super) fn from_bits(word: u32, read: u32) -> Option<Self> {
        let about = word & !((1 << ACK_SHIFT) - 1);
        (about & SHORT_RING_MASK != 0).then_some(Self { about, read })
    }

    #[inline]
    pub(super) fn is_of(self, short_ring: u16) -> bool {
        self.about & SHORT_RING_MASK == (u32::from(short_ring) + 1) << ACK_SHIFT
    }

    /// How many words are too many for what is promised: none if nothing is.
    #[inline]
    pub(super) fn too_many(self) -> usize {
        (self.about >> EARLY_SHIFT) as usize
    }
}

/// Where the short ring of a [`ShortRingAck`] begins in the word of a slot's length.
pub(super) const ACK_SHIFT: u32 = 5;
/// What is there in place of a length, if the bytes are in the body.
pub(super) const IN_BODY: u32 = (1 << ACK_SHIFT) - 1;
/// Where what it promises begins.
const EARLY_SHIFT: u32 = 19;
/// The short ring, plus one.
const SHORT_RING_MASK: u32 = (1 << EARLY_SHIFT) - (1 << ACK_SHIFT);
/// Most words that are promised: those of the longest message.
const MOST_WORDS: u32 = MOST / 4;

const _: () = assert!(
    LONGEST_IN_SLOT / WORD < IN_BODY as usize
        && (SHORT_RINGS as u32) < 1 << (EARLY_SHIFT - ACK_SHIFT)
        && MOST_WORDS + 1 < 1 << (32 - EARLY_SHIFT),
    "lengths, short rings and promises fit into their bits"
);

/// The memory of a short ring.
pub trait ShortRingArea {
    /// Which short ring of its ring it is.
    fn index(&self) -> u16;
    /// Whether this process may use it: no longer in a child of `fork`.
    fn is_ours(&self) -> bool;
    /// Slots, a power of two. Never changes.
    fn slots(&self) -> u32;
    /// Reads a word.
    fn load(&self, word: ShortRingWord, order: Ordering) -> u32;
    /// Writes a word.
    fn store(&self, word: ShortRingWord, value: u32, order: Ordering);
    /// A sequentially consistent fence.
    fn fence(&self);
    /// Writes a message to the slot of a position.
    fn fill(&self, at: u32, head: Head, rest: &[u8]);
    /// Reads the head of the message in the slot of a position.
    fn head(&self, at: u32) -> Head;
    /// Bytes of the body, a power of two. Never changes.
    fn body(&self) -> u32;
    /// Writes bytes to the body, from an offset on.
    ///
    /// # Errors
    /// [`Unmapped`]: registered memory is not there any more.
    fn write_body(&self, offset: u32, bytes: Piece<'_>) -> Result<(), Unmapped>;
    /// Reads what is behind the head of a message, as much as `rest` has room for.
    fn copy_out(&self, place: Place, rest: &mut [u8]);
    /// Writes the bytes of a place into registered memory.
    ///
    /// # Errors
    /// [`Unmapped`]: that is not there any more.
    fn write_out(&self, place: Place, to: Span<'_>) -> Result<(), Unmapped>;
    /// Gives the pages of all slots and of the body back: slots are empty, and bytes are zero.
    fn discard(&self);
    /// All slots are filled soon.
    fn will_fill_all(&self) {}
    /// The slot of a position is filled soon, with about as many bytes behind the head.
    fn will_fill(&self, _at: u32, _rest: usize) {}
    /// The slot of a position is looked at soon, for about as many bytes behind the head.
    fn will_look(&self, _at: u32, _rest: usize) {}
}

/// Whether the slot of a position is filled, for a look without the consumer.
#[inline]
pub fn is_filled(area: &impl ShortRingArea, at: u32) -> bool {
    area.is_ours() && area.load(ShortRingWord::Filled(at), Ordering::Acquire) == at.wrapping_add(1)
}

/// Whether the consumer has read further than to a position, for a look without the producer.
///
/// That may be by more than the ring has slots: the producer looks for room by itself, and puts in
/// more before the position is brought up to date. A run begins at positions that are ahead of what
/// was read, so the distance has a sign.
#[inline]
pub fn has_read_past(area: &impl ShortRingArea, at: u32) -> bool {
    let read = || area.load(ShortRingWord::Read, Ordering::Acquire);
    area.is_ours() && read().wrapping_sub(at).cast_signed() > 0
}
