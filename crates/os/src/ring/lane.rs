//! Lanes: small messages from one queue pair to another, beside the records of a ring.
//!
//! A lane is a row of slots in the file of a ring, behind its records, with one producer and one consumer. A slot has a word with its
//! position, two more about what is in it, and room for [`LONGEST`] bytes: a short message costs one cache line of traffic
//! between two processors, and no lock that others use. Positions count on for ever, modulo 2^32; a slot is filled when its word is
//! its position plus one. The consumer publishes up to where it has read, which is also its word that it has taken what came before.
//! That word is a line of its own; who answers a message with one of its own says it in the answer's slot instead ([`LaneAck`]).
//!
//! What a lane carries belongs to a *run*, that begins where the producer says so by a record of the ring: behind all records that it
//! has put in before. Positions of a run are those of no earlier run, so the consumer does not see what belongs to a run that it does not
//! know of yet.
//!
//! Nobody sleeps for a lane: its consumer looks at it when it looks at its ring, says in the ring's word that it sleeps, and looks
//! at both once more. So who fills a slot looks at the ring's word next, and so does who publishes what it has read, at
//! that of the ring the other way.

use std::sync::atomic::Ordering;

use super::protocol::Broken;

/// Slots of a lane.
pub(super) const SLOTS: u32 = 256;
/// Bytes of a slot: two cache lines.
pub(super) const SLOT: usize = 128;
/// Bytes of a slot before what is in it.
pub(super) const SLOT_HEAD: usize = 12;
/// Most bytes in a slot.
pub const LONGEST: usize = SLOT - SLOT_HEAD;
/// Lanes of a ring.
pub const LANES: u8 = 16;

/// A word of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneWord {
    /// The number of the last offer of the lane that the consumer's side has accepted.
    Accepted,
    /// Up to where the consumer has read.
    Read,
    /// The position of what is in a slot, plus one.
    Filled(u32),
    /// The length of what is in a slot, and above it the lane that [`Says`](Self::Says) is about, plus one.
    Length(u32),
    /// Up to where the producer of what is in a slot has read a lane the other way.
    Says(u32),
}

/// What a message says besides: its sender has taken what came by a lane the other way, up to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneAck {
    /// Which lane.
    pub lane: u8,
    /// Up to where it has read.
    pub read: u32,
}

/// Where the lane of a [`LaneAck`] begins in the word of a slot's length.
const ACK_SHIFT: u32 = 16;

/// The memory of a ring's lanes.
pub trait LaneArea {
    /// Whether this process may use it: no longer in a child of `fork`.
    fn is_ours(&self) -> bool;
    /// Slots of a lane, a power of two. Never changes.
    fn slots(&self) -> u32;
    /// Reads a word of a lane.
    fn load_lane(&self, lane: u8, word: LaneWord, order: Ordering) -> u32;
    /// Writes a word of a lane.
    fn store_lane(&self, lane: u8, word: LaneWord, value: u32, order: Ordering);
    /// Writes the bytes of the slot of a position.
    fn fill(&self, lane: u8, at: u32, bytes: &[u8]);
    /// Reads the bytes of the slot of a position.
    fn copy_out(&self, lane: u8, at: u32, to: &mut [u8]);
}

/// The end of a lane that fills slots.
#[derive(Debug)]
pub struct LaneProducer<A> {
    area: A,
    lane: u8,
    /// Where the next message goes.
    at: u32,
    /// Up to where the consumer had read when last seen.
    read: u32,
}

impl<A: LaneArea> LaneProducer<A> {
    /// The only producer of a lane, from a position on.
    pub fn new(area: A, lane: u8, at: u32) -> Self {
        Self {
            area,
            lane,
            at,
            read: at,
        }
    }

    /// Which lane.
    #[must_use]
    pub fn lane(&self) -> u8 {
        self.lane
    }

    /// Where the next message goes.
    #[must_use]
    pub fn position(&self) -> u32 {
        self.at
    }

    /// Whether the other side has accepted an offer with this number.
    #[must_use]
    pub fn is_accepted(&self, number: u32) -> bool {
        self.area.is_ours()
            && self
                .area
                .load_lane(self.lane, LaneWord::Accepted, Ordering::Acquire)
                == number
    }

    /// Begins a run. The consumer must have taken all of the last one, or be known not to look at it any more. Returns the position that
    /// it is to be told, by a record of the ring, before anything is put in.
    pub fn begin_run(&mut self) -> u32 {
        self.at = self.at.wrapping_add(self.area.slots());
        self.read = self.at;
        self.at
    }

    /// Puts a message in, and says `ack` with it. Returns false if there is no room.
    ///
    /// # Errors
    /// [`Broken`]: this is a child of `fork`, or the message is longer than [`LONGEST`].
    #[inline]
    pub fn push(&mut self, bytes: &[u8], ack: Option<LaneAck>) -> Result<bool, Broken> {
        if !self.area.is_ours() || bytes.len() > LONGEST {
            return Err(Broken);
        }
        let is_full = |of: &Self| of.at.wrapping_sub(of.read) >= of.area.slots();
        if is_full(self) {
            self.look();
            if is_full(self) {
                return Ok(false);
            }
        }
        self.area.fill(self.lane, self.at, bytes);
        let len = u32::try_from(bytes.len()).expect("invariant: checked just now");
        let about = ack.map_or(0, |ack| (u32::from(ack.lane) + 1) << ACK_SHIFT);
        let read = ack.map_or(0, |ack| ack.read);
        let next = self.at.wrapping_add(1);
        let store = |word, value, order| self.area.store_lane(self.lane, word, value, order);
        store(LaneWord::Says(self.at), read, Ordering::Relaxed);
        store(LaneWord::Length(self.at), about | len, Ordering::Relaxed);
        store(LaneWord::Filled(self.at), next, Ordering::Release);
        self.at = next;
        Ok(true)
    }

    /// Up to where the consumer has read: what it says of another run, or what cannot be, changes nothing.
    #[inline]
    pub fn look(&mut self) -> u32 {
        let read = self
            .area
            .load_lane(self.lane, LaneWord::Read, Ordering::Acquire);
        self.on_read(read)
    }

    /// As [`look`](Self::look), by what a message said that came the other way.
    #[inline]
    pub fn on_ack(&mut self, ack: LaneAck) -> u32 {
        if ack.lane == self.lane {
            self.on_read(ack.read)
        } else {
            self.read
        }
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

/// The end of a lane that empties slots.
#[derive(Debug)]
pub struct LaneConsumer<A> {
    area: A,
    lane: u8,
    /// Where the next message is, or will be, in a run that is known.
    at: Option<u32>,
}

impl<A: LaneArea> LaneConsumer<A> {
    /// The only consumer of a lane, that knows of no run yet. The producer's side learns that its offer with this number is accepted.
    pub fn accept(area: A, lane: u8, number: u32) -> Self {
        if area.is_ours() {
            area.store_lane(lane, LaneWord::Accepted, number, Ordering::Release);
        }
        Self {
            area,
            lane,
            at: None,
        }
    }

    /// Which lane.
    #[must_use]
    pub fn lane(&self) -> u8 {
        self.lane
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

    /// What the next message, if there is one, says besides.
    #[inline]
    pub fn ack(&self) -> Option<LaneAck> {
        let at = self.at?;
        if !is_filled(&self.area, self.lane, at) {
            return None;
        }
        let load = |word| self.area.load_lane(self.lane, word, Ordering::Relaxed);
        let about = load(LaneWord::Length(at)) >> ACK_SHIFT;
        let lane = u8::try_from(about.checked_sub(1)?).ok()?;
        let read = load(LaneWord::Says(at));
        Some(LaneAck { lane, read })
    }

    /// Takes the next message, into `room`; returns how long it is. The producer learns of it by [`publish`](Self::publish) or by an
    /// answer that says so.
    ///
    /// # Errors
    /// [`Broken`].
    #[inline]
    pub fn pop(&mut self, room: &mut [u8; LONGEST]) -> Result<Option<usize>, Broken> {
        let Some(at) = self.at else {
            return Ok(None);
        };
        if !self.area.is_ours() {
            return Err(Broken);
        }
        let next = at.wrapping_add(1);
        let filled = LaneWord::Filled(at);
        if self.area.load_lane(self.lane, filled, Ordering::Acquire) != next {
            return Ok(None);
        }
        let length = LaneWord::Length(at);
        let word = self.area.load_lane(self.lane, length, Ordering::Relaxed);
        let len = (word & ((1 << ACK_SHIFT) - 1)) as usize;
        let room = room.get_mut(..len).ok_or(Broken)?;
        self.area.copy_out(self.lane, at, room);
        self.at = Some(next);
        Ok(Some(len))
    }

    /// Says that everything before a position was taken.
    #[inline]
    pub fn publish(&self, up_to: u32) {
        if self.area.is_ours() {
            self.area
                .store_lane(self.lane, LaneWord::Read, up_to, Ordering::Release);
        }
    }
}

/// Whether the slot of a position is filled, for a look without the consumer.
#[inline]
pub fn is_filled(area: &impl LaneArea, lane: u8, at: u32) -> bool {
    area.is_ours()
        && area.load_lane(lane, LaneWord::Filled(at), Ordering::Acquire) == at.wrapping_add(1)
}

/// Whether the consumer has read further than to a position, for a look without the producer.
#[inline]
pub fn has_read_past(area: &impl LaneArea, lane: u8, at: u32) -> bool {
    let read = || area.load_lane(lane, LaneWord::Read, Ordering::Acquire);
    area.is_ours() && (1..=area.slots()).contains(&read().wrapping_sub(at))
}
