//! What both ends of a ring do, and in which order.
//!
//! Records lie one behind the other in a circle of bytes, each in whole *lines*: a word with its
//! length, a reserved word, its bytes. A length of zero means that nothing is there yet. Before a
//! record is published, by its length, the length behind it is set to zero. So the consumer looks
//! at one place only, which is also where the record will be. A short record costs one cache line
//! of traffic between two processors. The consumer publishes how far it got; the producer looks
//! there when it seems to be short of room.
//!
//! Either side may sleep. It says so in a word, looks once more, and then sleeps; the other side
//! makes its change, looks at the word and, if it is set, takes it back and wakes the sleeper by
//! other means. Sequentially consistent fences between the two steps of each side make sure that at
//! least one of them sees the other.

use std::error::Error;
use std::fmt;
use std::sync::atomic::Ordering;

/// Bytes of a line; positions are multiples of it.
pub(super) const LINE: u32 = 64;
/// Bytes before those of a record.
pub(super) const HEAD: u32 = 8;

/// A word of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Not zero: the consumer sleeps, or is about to.
    Sleeps,
    /// Up to where the consumer has read.
    Read,
    /// Not zero: the producer waits for room.
    Waits,
    /// Not zero: the consumer looks at short rings, too.
    ShortRings,
    /// The length of the record at a position.
    Length(u32),
}

/// The memory of a ring. Positions count on for ever, modulo 2^32.
pub trait Area {
    /// Bytes for records, a power of two from 2 lines to 2^30 bytes. Never changes.
    fn capacity(&self) -> u32;
    /// Whether this process may use it: no longer in a child of `fork`.
    fn is_ours(&self) -> bool;
    /// Reads a word.
    fn load(&self, word: Word, order: Ordering) -> u32;
    /// Writes a word.
    fn store(&self, word: Word, value: u32, order: Ordering);
    /// Replaces a word; gives what it was.
    fn swap(&self, word: Word, value: u32, order: Ordering) -> u32;
    /// A sequentially consistent fence.
    fn fence(&self);
    /// Writes bytes from a position on.
    fn write(&self, at: u32, bytes: &[u8]);
    /// The lines from a position on will be written next: a hint.
    fn will_write(&self, at: u32) {
        let _ = at;
    }

    /// Reads bytes from a position on.
    fn read(&self, at: u32, to: &mut [u8]);
}

/// The other side has broken the rules, or this is a child of `fork`: the ring is of no use any
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the peer has spoilt the shared ring")
    }
}

impl Error for Broken {}

/// Outcome of pushing a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The record is in the ring.
    Done,
    /// The record has no room now.
    Full,
}

/// What was there to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popped {
    /// A record of this many bytes, now in the caller's room.
    Record(usize),
    /// Nothing.
    Empty,
}

/// Bytes that a record occupies.
const fn occupied(len: u32) -> u32 {
    (len + HEAD).next_multiple_of(LINE)
}

/// The longest record of a ring with this capacity: a quarter of it.
pub(super) const fn longest(capacity: u32) -> usize {
    (capacity / 4 - HEAD) as usize
}

/// Whether the consumer sleeps and must be woken, by the caller, for what was put into the ring or
/// into a short ring.
#[must_use]
#[inline]
pub fn wakes(area: &impl Area) -> bool {
    area.fence();
    area.load(Word::Sleeps, Ordering::Relaxed) != 0
        && area.swap(Word::Sleeps, 0, Ordering::Relaxed) != 0
}

/// Whether the consumer sleeps, or is about to: something was made visible to it before, and it has
/// not been told.
#[must_use]
#[inline]
pub fn sleeps(area: &impl Area) -> bool {
    area.fence();
    area.load(Word::Sleeps, Ordering::Relaxed) != 0
}

/// The end that puts records in.
#[derive(Debug)]
pub struct Producer<A> {
    pub(super) area: A,
    /// Where the next record goes.
    at: u32,
    /// Up to where the consumer had read when last seen.
    read: u32,
}

impl<A: Area> Producer<A> {
    /// The only producer of a fresh ring.
    pub fn new(area: A) -> Self {
        Self {
            area,
            at: 0,
            read: 0,
        }
    }

    /// The longest record, in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        longest(self.area.capacity())
    }

    /// Puts in a record made of parts; it must not be empty. Call [`wakes`](Self::wakes) after the
    /// last of several.
    ///
    /// # Errors
    /// [`Broken`].
    ///
    /// # Panics
    /// The record is empty or longer than [`longest`](Self::longest).
    #[inline]
    pub fn push(&mut self, parts: &[&[u8]]) -> Result<Pushed, Broken> {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        assert!(
            (1..=self.longest()).contains(&len),
            "invariant: a record has 1 to {} bytes, not {len}",
            self.longest()
        );
        let len = u32::try_from(len).expect("invariant: checked just now");
        if !self.has_room(len)? {
            return Ok(Pushed::Full);
        }
        let mut at = self.at.wrapping_add(HEAD);
        for part in parts {
            self.area.write(at, part);
            at = at.wrapping_add(u32::try_from(part.len()).expect("invariant: a part of it"));
        }
        let next = self.at.wrapping_add(occupied(len));
        self.area.store(Word::Length(next), 0, Ordering::Relaxed);
        self.area
            .store(Word::Length(self.at), len, Ordering::Release);
        self.area.will_write(next.wrapping_add(LINE));
        self.at = next;
        Ok(Pushed::Done)
    }

    /// Whether the consumer sleeps and must be woken, by the caller, for what was put in.
    #[must_use]
    pub fn wakes(&mut self) -> bool {
        wakes(&self.area)
    }

    /// The ring's memory.
    pub fn area(&self) -> &A {
        &self.area
    }

    /// A record of `len` bytes found no room: says that this side waits. Returns true if there is
    /// room now after all, and then it does not wait; otherwise the consumer learns from
    /// [`Consumer::wakes`] that it must wake this side.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn wait(&mut self, len: usize) -> Result<bool, Broken> {
        let len = u32::try_from(len.min(self.longest())).expect("invariant: below 2^30");
        if !self.area.is_ours() {
            return Err(Broken);
        }
        self.area.store(Word::Waits, 1, Ordering::Relaxed);
        self.area.fence();
        let room = self.has_room(len)?;
        if room {
            self.area.store(Word::Waits, 0, Ordering::Relaxed);
        }
        Ok(room)
    }

    /// The length behind the record must have room too.
    #[inline]
    fn has_room(&mut self, len: u32) -> Result<bool, Broken> {
        if !self.area.is_ours() {
            return Err(Broken);
        }
        let (capacity, need) = (self.area.capacity(), occupied(len) + LINE);
        let used = self.at.wrapping_sub(self.read);
        if capacity - used >= need {
            return Ok(true);
        }
        let read = self.area.load(Word::Read, Ordering::Acquire);
        let left = self.at.wrapping_sub(read);
        if left > used || !left.is_multiple_of(LINE) {
            return Err(Broken);
        }
        self.read = read;
        Ok(capacity - left >= need)
    }
}

/// The end that takes records out.
#[derive(Debug)]
pub struct Consumer<A> {
    pub(super) area: A,
    /// Where the next record is, or will be.
    at: u32,
    /// Up to where it had read when it asked last whether the producer waits.
    asked: u32,
}

impl<A: Area> Consumer<A> {
    /// The only consumer of a fresh ring.
    pub fn new(area: A) -> Self {
        Self {
            area,
            at: 0,
            asked: 0,
        }
    }

    /// Whether there is a record.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.area.is_ours() && self.area.load(Word::Length(self.at), Ordering::Acquire) != 0
    }

    /// Takes the next record, into `room`. Call [`wakes`](Self::wakes) after the last of several.
    ///
    /// # Errors
    /// [`Broken`]; also for a record that does not fit `room`.
    pub fn pop(&mut self, room: &mut [u8]) -> Result<Popped, Broken> {
        if !self.area.is_ours() {
            return Err(Broken);
        }
        let len = match self.area.load(Word::Length(self.at), Ordering::Acquire) {
            0 => return Ok(Popped::Empty),
            len => len,
        };
        let size = len as usize;
        if size > longest(self.area.capacity()) {
            return Err(Broken);
        }
        let room = room.get_mut(..size).ok_or(Broken)?;
        self.area.read(self.at.wrapping_add(HEAD), room);
        self.at = self.at.wrapping_add(occupied(len));
        self.area.store(Word::Read, self.at, Ordering::Release);
        Ok(Popped::Record(size))
    }

    /// Whether the producer waits for room and must be woken, by the caller, since some was made.
    ///
    /// It is asked only after a quarter of the ring was read. A producer that waits has found the
    /// ring fuller than that by far, with what had been read when it was asked last; so that
    /// quarter is there to be read, and the question comes.
    #[must_use]
    pub fn wakes(&mut self) -> bool {
        if self.at.wrapping_sub(self.asked) < self.area.capacity() / 4 {
            return false;
        }
        self.asked = self.at;
        self.area.fence();
        self.area.load(Word::Waits, Ordering::Relaxed) != 0
            && self.area.swap(Word::Waits, 0, Ordering::Relaxed) != 0
    }

    /// The ring's memory.
    pub fn area(&self) -> &A {
        &self.area
    }

    /// Says that this side will not look any more until it is woken. Returns false if there is a
    /// record now: then it must look, and is not woken.
    #[must_use]
    pub fn sleep(&mut self) -> bool {
        self.sleep_unless(|| false)
    }

    /// As [`sleep`](Self::sleep), where there may be something else to look at, which `any` does:
    /// this side has not said before that it sleeps when that is made visible, or is seen to have
    /// said so.
    #[must_use]
    pub fn sleep_unless(&mut self, any: impl FnOnce() -> bool) -> bool {
        if !self.area.is_ours() {
            return true;
        }
        self.area.store(Word::Sleeps, 1, Ordering::Relaxed);
        self.area.fence();
        let empty = !self.has_more() && !any();
        if !empty {
            self.area.store(Word::Sleeps, 0, Ordering::Relaxed);
        }
        empty
    }

    /// This side looks again, without having been woken.
    pub fn wake(&mut self) {
        if self.area.is_ours() {
            self.area.store(Word::Sleeps, 0, Ordering::Relaxed);
        }
    }
}
