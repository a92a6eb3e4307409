//! The end of a short ring that empties slots.

use std::sync::atomic::Ordering;

use ferroce_proto::mr::{Span, Unmapped};

use super::protocol::Broken;
use super::short_ring::{
    ACK_SHIFT, Head, IN_BODY, LONGEST_IN_SLOT, LONGEST_REST, Place, ShortRingAck, ShortRingArea,
    ShortRingWord, WORD,
};

/// A message that is still in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingMessage {
    at: u32,
    place: Place,
    /// Bytes behind its head.
    pub rest: usize,
    /// Bytes of each of the packets that it is as long as, by its sender; 0: it is in its slot.
    pub packet: u32,
    /// Acknowledgement that it carries.
    pub ack: Option<ShortRingAck>,
}

impl WaitingMessage {
    /// Number of packets that it is as long as.
    #[must_use]
    #[inline]
    pub fn packets(&self) -> usize {
        match self.packet {
            0 => 1,
            packet => self.rest.div_ceil(packet as usize),
        }
    }
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

    /// Returns the short ring's index in its ring.
    #[must_use]
    pub fn short_ring(&self) -> u16 {
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
    /// [`Broken`]: this is a child of `fork`, or what is there is longer than [`LONGEST_REST`] or
    /// not in the body.
    #[inline]
    pub fn look(&self) -> Result<Option<WaitingMessage>, Broken> {
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
        let words = word & IN_BODY;
        let is_quiet = word >> ACK_SHIFT == 0;
        let read = || self.area.load(ShortRingWord::Says(at), Ordering::Relaxed);
        let ack = if is_quiet {
            None
        } else {
            ShortRingAck::from_bits(word, read())
        };
        let in_slot = words as usize * WORD;
        let (place, rest, packet) = if in_slot <= LONGEST_IN_SLOT {
            (Place::Slot(at), in_slot, 0)
        } else {
            self.place_in_body(at)?
        };
        Ok(Some(WaitingMessage {
            at,
            place,
            rest,
            packet,
            ack,
        }))
    }

    /// The place of a message in the body, its bytes behind its head, and the bytes of a packet.
    /// The producer may write anything, at any time: each word is read once.
    fn place_in_body(&self, at: u32) -> Result<(Place, usize, u32), Broken> {
        let load = |word| self.area.load(word, Ordering::Relaxed);
        let offset = load(ShortRingWord::Offset(at));
        let rest = (load(ShortRingWord::Rest(at)) as usize).saturating_mul(WORD);
        let room = self.area.body().checked_sub(offset).ok_or(Broken)?;
        if rest > LONGEST_REST.min(room as usize) {
            return Err(Broken);
        }
        Ok((Place::Body(offset), rest, load(ShortRingWord::Packet(at))))
    }

    /// Takes the message that [`look`](Self::look) has found just now: returns its head, and copies
    /// what is behind it to `room`, which is as long. The producer learns of it by
    /// [`publish`](Self::publish) or by an answer that says so.
    pub fn take(&mut self, waiting: WaitingMessage, room: &mut [u8]) -> Head {
        self.read(waiting, &mut room[..waiting.rest]);
        let head = self.head(waiting);
        self.pass(waiting);
        head
    }

    /// Copies what is behind the head of that message to `room`, which is as long. It stays there.
    pub fn read(&self, waiting: WaitingMessage, room: &mut [u8]) {
        self.area.copy_out(waiting.place, room);
    }

    /// The head of the message that [`look`](Self::look) has found just now.
    #[inline]
    pub fn head(&self, waiting: WaitingMessage) -> Head {
        self.area.head(waiting.at)
    }

    /// Copies what is behind the head of that message, as much as fits, to where it goes. Then
    /// [`pass`](Self::pass) comes instead of [`take`](Self::take).
    ///
    /// # Errors
    /// [`Unmapped`]: the program has taken the memory away.
    #[inline]
    pub fn write_out(&self, waiting: WaitingMessage, to: Span<'_>) -> Result<(), Unmapped> {
        assert!(to.len() <= waiting.rest, "no more than there is");
        self.area.write_out(waiting.place, to)
    }

    /// That message is taken.
    #[inline]
    pub fn pass(&mut self, waiting: WaitingMessage) {
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
