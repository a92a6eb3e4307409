//! Short rings: small messages from one queue pair to another, beside the records of a ring.
//!
//! A short ring is a row of slots in the file of a ring, behind its records, with one producer and
//! one consumer. A slot has a word with its position, two more about what is in it, and room for
//! [`LONGEST`] bytes: a short message costs one cache line of traffic between two processors, and
//! no lock that others use. Positions count on for ever, modulo 2^32; a slot is filled when its
//! word is its position plus one. The consumer publishes up to where it has read, which is also its
//! word that it has taken what came before. That word is a line of its own; a program that answers
//! a message with one of its own says it in the answer's slot instead ([`ShortRingAck`]).
//!
//! What a short ring carries belongs to a *run*, that begins where the producer says so by a record
//! of the ring: behind all records that it has put in before. Positions of a run are those of no
//! earlier run, so the consumer does not see what belongs to a run that it does not know of yet.
//!
//! Nobody sleeps for a short ring: its consumer looks at it when it looks at its ring, says in the
//! ring's word that it sleeps, and looks at both once more. So a sender that fills a slot looks at
//! the ring's word next, and so does a receiver that publishes what it has read, at that of the
//! ring the other way.

use std::sync::atomic::Ordering;

use ferroce_proto::mr::{Span, Unmapped};

use super::protocol::Broken;

/// Slots of a short ring.
pub(super) const SLOTS: u32 = 256;
/// Bytes of a slot: two cache lines.
pub(super) const SLOT: usize = 128;
/// Bytes of a slot before what is in it.
pub(super) const SLOT_HEAD: usize = 12;
/// Most bytes in a slot.
pub const LONGEST: usize = SLOT - SLOT_HEAD;
/// Bytes of a message's head.
pub(super) const HEAD: usize = size_of::<Head>();
/// Most bytes of a message behind its head.
pub const LONGEST_REST: usize = LONGEST - HEAD;
/// Short rings of a ring.
pub const SHORT_RINGS: u8 = 16;

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
    /// The length of what is in a slot; above it the short ring that [`Says`](Self::Says) is about,
    /// plus one, and what is promised there, plus one.
    Length(u32),
    /// Up to where the producer of what is in a slot has read a short ring the other way.
    Says(u32),
}

/// What a message says besides: its sender has taken what came by a short ring the other way, up to
/// a position. As it is in a slot, since it is there with every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortRingAck {
    /// What it adds to the word of the slot's length: the short ring, and what is promised.
    about: u32,
    read: u32,
}

impl ShortRingAck {
    /// Of a short ring, which was read up to a position. If the next message there, with so many
    /// bytes behind its head at most, is as good as taken (see
    /// [`ShortRingProducer::completes_early`]): most bytes.
    #[must_use]
    #[inline]
    pub fn new(short_ring: u8, read: u32, early_limit: Option<u8>) -> Self {
        let early_limit = early_limit.map_or(0, |most| u32::from(most) + 1);
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
    fn from_bits(word: u32, read: u32) -> Option<Self> {
        let about = word & !((1 << ACK_SHIFT) - 1);
        (about & SHORT_RING_MASK != 0).then_some(Self { about, read })
    }

    #[inline]
    fn is_of(self, short_ring: u8) -> bool {
        self.about & SHORT_RING_MASK == (u32::from(short_ring) + 1) << ACK_SHIFT
    }

    /// How many bytes are too many for what is promised: none if nothing is.
    #[inline]
    fn too_many(self) -> usize {
        (self.about >> EARLY_SHIFT) as usize
    }
}

/// How far ahead of the next slot one is asked for to be filled.
const AHEAD: u32 = 6;
/// Where the short ring of a [`ShortRingAck`] begins in the word of a slot's length.
const ACK_SHIFT: u32 = 16;
/// Where what it promises begins.
const EARLY_SHIFT: u32 = 24;
/// The short ring, plus one.
const SHORT_RING_MASK: u32 = 0xff << ACK_SHIFT;

/// The memory of a short ring.
pub trait ShortRingArea {
    /// Which short ring of its ring it is.
    fn index(&self) -> u8;
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
    /// Reads what is behind the head of the message in the slot of a position, as much as `rest`
    /// has room for.
    fn copy_out(&self, at: u32, rest: &mut [u8]);
    /// The same into registered memory.
    ///
    /// # Errors
    /// [`Unmapped`]: that is not there any more.
    fn write_out(&self, at: u32, to: Span<'_>) -> Result<(), Unmapped>;
    /// The slot of a position is filled soon, with about as many bytes behind the head.
    fn will_fill(&self, _at: u32, _rest: usize) {}
    /// The slot of a position is looked at soon, for about as many bytes behind the head.
    fn will_look(&self, _at: u32, _rest: usize) {}
}

/// The end of a short ring that fills slots.
#[derive(Debug)]
pub struct ShortRingProducer<A> {
    area: A,
    /// Where the next message goes.
    at: u32,
    /// Up to where the consumer had read when last seen.
    read: u32,
    /// What the consumer has said last: what it promises is about the position up to which it had
    /// read.
    said: Option<ShortRingAck>,
}

impl<A: ShortRingArea> ShortRingProducer<A> {
    /// The only producer of a short ring, from a position on.
    pub fn new(area: A, at: u32) -> Self {
        Self {
            area,
            at,
            read: at,
            said: None,
        }
    }

    /// Its memory.
    #[must_use]
    pub fn area(&self) -> &A {
        &self.area
    }

    /// Which short ring.
    #[must_use]
    pub fn short_ring(&self) -> u8 {
        self.area.index()
    }

    /// Where the next message goes.
    #[must_use]
    pub fn position(&self) -> u32 {
        self.at
    }

    /// Whether the other side has accepted an offer with this number.
    #[must_use]
    pub fn is_accepted(&self, number: u32) -> bool {
        self.area.is_ours() && self.area.load(ShortRingWord::Accepted, Ordering::Acquire) == number
    }

    /// Begins a run. The consumer must have taken all of the last one, or be known not to look at
    /// it any more. Returns the position that it is to be told, by a record of the ring, before
    /// anything is put in.
    pub fn begin_run(&mut self) -> u32 {
        self.at = self.at.wrapping_add(self.area.slots());
        self.read = self.at;
        self.at
    }

    /// Puts a message in, and says `ack` with it. Returns false if there is no room.
    ///
    /// # Errors
    /// [`Broken`]: this is a child of `fork`, or the message is longer than [`LONGEST`].
    #[expect(clippy::inline_always, reason = "a head is not to go through memory")]
    #[inline(always)]
    pub fn push(
        &mut self,
        (head, rest): (Head, &[u8]),
        ack: Option<ShortRingAck>,
    ) -> Result<bool, Broken> {
        if !self.area.is_ours() || rest.len() > LONGEST_REST {
            return Err(Broken);
        }
        let is_full = |of: &Self| of.at.wrapping_sub(of.read) >= of.area.slots();
        if is_full(self) {
            self.look();
            if is_full(self) {
                return Ok(false);
            }
        }
        self.area.fill(self.at, head, rest);
        let len = u32::try_from(HEAD + rest.len()).expect("invariant: checked just now");
        let (about, read) = ack.map_or((0, 0), |ack| (ack.about, ack.read));
        let next = self.at.wrapping_add(1);
        let store = |word, value, order| self.area.store(word, value, order);
        store(ShortRingWord::Says(self.at), read, Ordering::Relaxed);
        store(
            ShortRingWord::Length(self.at),
            about | len,
            Ordering::Relaxed,
        );
        store(ShortRingWord::Filled(self.at), next, Ordering::Release);
        self.at = next;
        self.area.will_fill(next.wrapping_add(AHEAD), rest.len());
        Ok(true)
    }

    /// A message is likely to be put in soon: asks for its slot once more, since the consumer has
    /// looked at it meanwhile.
    #[inline]
    pub fn will_push(&self) {
        self.area.will_fill(self.at, 0);
    }

    /// Up to where the consumer has read: what it says of another run, or what cannot be, changes
    /// nothing.
    #[inline]
    pub fn look(&mut self) -> u32 {
        self.on_read(self.area.load(ShortRingWord::Read, Ordering::Acquire))
    }

    /// As [`look`](Self::look), by what a message said that came the other way.
    #[inline]
    pub fn on_ack(&mut self, ack: ShortRingAck) -> u32 {
        if ack.is_of(self.short_ring()) {
            self.said = Some(ack);
            self.on_read(ack.read)
        } else {
            self.read
        }
    }

    /// Whether the message that was put in last, with so many bytes behind its head, is as good as
    /// taken: the consumer has said so of its place, and whenever it takes that back
    /// ([`ShortRingConsumer::withdraw`]) it sees the message first.
    #[inline]
    pub fn completes_early(&mut self, rest: usize) -> bool {
        let last = self.at.wrapping_sub(1);
        let is_so = |said: ShortRingAck| said.read == last && rest < said.too_many();
        if !self.said.is_some_and(is_so) {
            return false;
        }
        // Either the consumer sees the message behind its own fence, or the word is seen here.
        self.area.fence();
        self.area.load(ShortRingWord::Withdrawn, Ordering::Relaxed) != last
    }

    #[inline]
    fn on_read(&mut self, read: u32) -> u32 {
        let (more, most) = (
            read.wrapping_sub(self.read),
            self.at.wrapping_sub(self.read),
        );
        if more <= most {
            self.read = read;
        }
        self.read
    }
}

/// A message that is still in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    at: u32,
    /// Bytes behind its head.
    pub rest: usize,
    /// What it says besides.
    pub ack: Option<ShortRingAck>,
}

/// The end of a short ring that empties slots.
#[derive(Debug)]
pub struct ShortRingConsumer<A> {
    area: A,
    /// Where the next message is, or will be, in a run that is known.
    at: Option<u32>,
}

impl<A: ShortRingArea> ShortRingConsumer<A> {
    /// The only consumer of a short ring, that knows of no run yet. The producer's side learns that
    /// its offer with this number is accepted.
    pub fn accept(area: A, number: u32) -> Self {
        if area.is_ours() {
            area.store(ShortRingWord::Accepted, number, Ordering::Release);
        }
        Self { area, at: None }
    }

    /// Which short ring.
    #[must_use]
    pub fn short_ring(&self) -> u8 {
        self.area.index()
    }

    /// A run begins.
    pub fn begin_run(&mut self, at: u32) {
        self.at = Some(at);
    }

    /// Looks no more until the next run begins. What was not taken is not said to be read.
    pub fn end_run(&mut self) {
        self.at = None;
    }

    /// Where the next message is, or will be.
    #[must_use]
    pub fn position(&self) -> Option<u32> {
        self.at
    }

    /// The next message, if there is one.
    ///
    /// # Errors
    /// [`Broken`]: this is a child of `fork`, or what is there has no head or is longer than
    /// [`LONGEST`].
    #[inline]
    pub fn look(&self) -> Result<Option<Waiting>, Broken> {
        let Some(at) = self.at else {
            return Ok(None);
        };
        if !self.area.is_ours() {
            return Err(Broken);
        }
        if self.area.load(ShortRingWord::Filled(at), Ordering::Acquire) != at.wrapping_add(1) {
            return Ok(None);
        }
        let word = self.area.load(ShortRingWord::Length(at), Ordering::Relaxed);
        let len = (word & ((1 << ACK_SHIFT) - 1)) as usize;
        let Some(rest) = len.checked_sub(HEAD).filter(|rest| *rest <= LONGEST_REST) else {
            return Err(Broken);
        };
        let is_quiet = word >> ACK_SHIFT == 0;
        let read = || self.area.load(ShortRingWord::Says(at), Ordering::Relaxed);
        let ack = if is_quiet {
            None
        } else {
            ShortRingAck::from_bits(word, read())
        };
        Ok(Some(Waiting { at, rest, ack }))
    }

    /// Takes the message that [`look`](Self::look) has found just now: returns its head, and what
    /// is behind it, in `room`. The producer learns of it by [`publish`](Self::publish) or by an
    /// answer that says so.
    #[inline]
    pub fn take<'a>(
        &mut self,
        waiting: Waiting,
        room: &'a mut [u8; LONGEST_REST],
    ) -> (Head, &'a [u8]) {
        let rest = &mut room[..waiting.rest];
        self.area.copy_out(waiting.at, rest);
        let head = self.head(waiting);
        self.pass(waiting);
        (head, rest)
    }

    /// The head of the message that [`look`](Self::look) has found just now.
    #[inline]
    pub fn head(&self, waiting: Waiting) -> Head {
        self.area.head(waiting.at)
    }

    /// Copies what is behind the head of that message, as much as fits, to where it goes. Then
    /// [`pass`](Self::pass) comes instead of [`take`](Self::take).
    ///
    /// # Errors
    /// [`Unmapped`]: the program has taken the memory away.
    #[inline]
    pub fn write_out(&self, waiting: Waiting, to: Span<'_>) -> Result<(), Unmapped> {
        self.area.write_out(waiting.at, to)
    }

    /// That message is taken.
    #[inline]
    pub fn pass(&mut self, waiting: Waiting) {
        let next = waiting.at.wrapping_add(1);
        self.area.will_look(next, waiting.rest);
        self.at = Some(next);
    }

    /// Says that everything before a position was taken.
    #[inline]
    pub fn publish(&self, up_to: u32) {
        if self.area.is_ours() {
            self.area
                .store(ShortRingWord::Read, up_to, Ordering::Release);
        }
    }

    /// What was promised of the next position is so no longer, but for a message that is there when
    /// this returns: that is to be taken before anything else is done.
    pub fn withdraw(&self) {
        if let Some(at) = self.at
            && self.area.is_ours()
        {
            self.area
                .store(ShortRingWord::Withdrawn, at, Ordering::Relaxed);
            self.area.fence();
        }
    }
}

/// Whether the slot of a position is filled, for a look without the consumer.
#[inline]
pub fn is_filled(area: &impl ShortRingArea, at: u32) -> bool {
    area.is_ours() && area.load(ShortRingWord::Filled(at), Ordering::Acquire) == at.wrapping_add(1)
}

/// Whether the consumer has read further than to a position, for a look without the producer.
#[inline]
pub fn has_read_past(area: &impl ShortRingArea, at: u32) -> bool {
    let read = || area.load(ShortRingWord::Read, Ordering::Acquire);
    area.is_ours() && (1..=area.slots()).contains(&read().wrapping_sub(at))
}
