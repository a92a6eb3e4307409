//! The end of a short ring that fills slots.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use ferroce_proto::mr::{Piece, Unmapped};

use super::protocol::{Broken, LINE};
use super::short_ring::{
    Head, IN_BODY, LONGEST_IN_SLOT, LONGEST_REST, ShortRingAck, ShortRingArea, ShortRingWord, WORD,
};

/// How far ahead of the next slot one is asked for to be filled.
const AHEAD: u32 = 6;

/// Messages that a short ring has had before all of its pages are brought in. Few messages take one
/// page. A conversation goes round all slots, and each page would cost both sides a fault.
const FEW: u32 = 16;

/// The end of a short ring that fills slots.
#[derive(Debug)]
pub struct ShortRingProducer<A> {
    area: A,
    /// Where the next message goes.
    at: u32,
    /// The position from which on there are more than a [`FEW`] messages.
    few_until: u32,
    /// Up to where the consumer had read when last seen.
    read: u32,
    /// What the consumer has said last: what it promises is about the position up to which it had
    /// read.
    said: Option<ShortRingAck>,
    /// Where the next place in the body is, counted on for ever, modulo 2^32.
    body_at: u32,
    /// Positions of messages that may still be in the body, and where their places begin.
    in_body: VecDeque<(u32, u32)>,
}

/// A message that is too long for a slot.
#[derive(Clone, Copy, Debug)]
pub struct Long<'a> {
    /// Head of the message.
    pub head: Head,
    /// Bytes behind the head.
    pub rest: Piece<'a>,
    /// Bytes of each of the packets that it is as long as.
    pub packet: u32,
}

impl<A: ShortRingArea> ShortRingProducer<A> {
    /// The only producer of a short ring, from a position on.
    pub fn new(area: A, at: u32) -> Self {
        Self {
            area,
            at,
            few_until: at.wrapping_add(FEW),
            read: at,
            said: None,
            body_at: 0,
            in_body: VecDeque::new(),
        }
    }

    /// Returns the short ring's memory.
    #[must_use]
    pub fn area(&self) -> &A {
        &self.area
    }

    /// Returns the short ring's index in its ring.
    #[must_use]
    pub fn short_ring(&self) -> u16 {
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
    ///
    /// Zero is in each slot that was not written yet, as if it were filled at the last position
    /// before zero. So no run begins within a round of that position: it comes there only after
    /// each slot was written.
    pub fn begin_run(&mut self) -> u32 {
        let next = self.at.wrapping_add(self.area.slots());
        let begin = if self.is_near_end(next) { 0 } else { next };
        self.few_until = self.few_until.wrapping_add(begin.wrapping_sub(self.at));
        self.at = begin;
        self.read = self.at;
        self.at
    }

    /// Whether a position is within a round of the last one before zero.
    fn is_near_end(&self, at: u32) -> bool {
        at.checked_add(self.area.slots()).is_none()
    }

    /// Whether more than a few messages were put in since its pages were new.
    #[must_use]
    pub fn has_had_many(&self) -> bool {
        self.few_until.wrapping_sub(self.at).cast_signed() <= 0
    }

    /// Whether anything was put in since its pages were new.
    #[must_use]
    pub fn holds_memory(&self) -> bool {
        self.few_until.wrapping_sub(self.at) != FEW
    }

    /// Gives its pages back, if the consumer has read everything, and cannot take a new page for a
    /// message. Returns whether it did.
    pub fn give_memory_back(&mut self) -> bool {
        if !self.area.is_ours() || self.is_near_end(self.at) || self.look() != self.at {
            return false;
        }
        self.area.discard();
        self.in_body.clear();
        self.few_until = self.at.wrapping_add(FEW);
        true
    }

    /// Puts a message in, and says `ack` with it. Returns false if there is no room.
    ///
    /// # Errors
    /// [`Broken`]: this is a child of `fork`, or the message is longer than [`LONGEST_IN_SLOT`], or
    /// not of whole words.
    #[expect(clippy::inline_always, reason = "a head is not to go through memory")]
    #[inline(always)]
    pub fn push(
        &mut self,
        (head, rest): (Head, &[u8]),
        ack: Option<ShortRingAck>,
    ) -> Result<bool, Broken> {
        if !self.area.is_ours() || rest.len() > LONGEST_IN_SLOT || !rest.len().is_multiple_of(WORD)
        {
            return Err(Broken);
        }
        if self.is_full() {
            return Ok(false);
        }
        self.area.fill(self.at, head, rest);
        let words = u32::try_from(rest.len() / WORD).expect("invariant: no message is longer");
        self.publish(words, ack);
        self.area.will_fill(self.at.wrapping_add(AHEAD), rest.len());
        Ok(true)
    }

    /// As [`push`](Self::push), for a message of up to [`LONGEST_REST`] bytes, which goes into the
    /// body. The rest is filled up with zeros to whole words.
    ///
    /// # Errors
    /// [`ShortRingRefusal`]: nothing was put in.
    pub fn push_long(
        &mut self,
        message: &Long<'_>,
        ack: Option<ShortRingAck>,
    ) -> Result<(), ShortRingRefusal> {
        let len = message.rest.len();
        if !self.area.is_ours() || len > LONGEST_REST {
            return Err(ShortRingRefusal::Broken);
        }
        if self.is_full() {
            return Err(ShortRingRefusal::Full);
        }
        let len = u32::try_from(len).expect("invariant: checked just now");
        let begin = self.place_in_body(len).ok_or(ShortRingRefusal::Full)?;
        let offset = begin & (self.area.body() - 1);
        self.area
            .write_body(offset, message.rest)
            .map_err(|Unmapped| ShortRingRefusal::Unmapped)?;
        self.in_body.push_back((self.at, begin));
        self.body_at = begin.wrapping_add(len.next_multiple_of(LINE));
        self.area.fill(self.at, message.head, &[]);
        let words = [
            (ShortRingWord::Offset(self.at), offset),
            (ShortRingWord::Packet(self.at), message.packet),
            (ShortRingWord::Rest(self.at), len.div_ceil(4)),
        ];
        for (word, value) in words {
            self.area.store(word, value, Ordering::Relaxed);
        }
        self.publish(IN_BODY, ack);
        Ok(())
    }

    /// Whether there is no slot for the next message.
    #[inline]
    fn is_full(&mut self) -> bool {
        let is_full = |of: &Self| of.at.wrapping_sub(of.read) >= of.area.slots();
        is_full(self) && {
            self.look();
            is_full(self)
        }
    }

    /// Where the next place in the body begins, if there is one with `len` bytes.
    fn place_in_body(&mut self, len: u32) -> Option<u32> {
        let body = self.area.body();
        let mut looked = false;
        loop {
            let under_way = self.at.wrapping_sub(self.read);
            let is_read = |at: u32| self.at.wrapping_sub(at) > under_way;
            while self.in_body.front().is_some_and(|(at, _)| is_read(*at)) {
                self.in_body.pop_front();
            }
            let Some(&(_, oldest)) = self.in_body.front() else {
                self.body_at = 0;
                return (len <= body).then_some(0);
            };
            let offset = self.body_at & (body - 1);
            let skipped = if offset + len > body {
                body - offset
            } else {
                0
            };
            let begin = self.body_at.wrapping_add(skipped);
            if begin.wrapping_add(len).wrapping_sub(oldest) <= body {
                return Some(begin);
            }
            if std::mem::replace(&mut looked, true) {
                return None;
            }
            self.look();
        }
    }

    /// The next slot may be read: `words` words are behind its head, or [`IN_BODY`].
    #[expect(clippy::inline_always, reason = "a few words")]
    #[inline(always)]
    fn publish(&mut self, words: u32, ack: Option<ShortRingAck>) {
        let (about, read) = ack.map_or((0, 0), |ack| (ack.about, ack.read));
        let next = self.at.wrapping_add(1);
        let store = |word, value, order| self.area.store(word, value, order);
        store(ShortRingWord::Says(self.at), read, Ordering::Relaxed);
        store(
            ShortRingWord::Length(self.at),
            about | words,
            Ordering::Relaxed,
        );
        store(ShortRingWord::Filled(self.at), next, Ordering::Release);
        self.at = next;
        if next == self.few_until {
            self.area.will_fill_all();
        }
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

    /// Whether the consumer has said of the place of the message that was put in last, with `rest`
    /// bytes behind its head, that the message is as good as taken there.
    #[inline]
    fn is_promised(&self, rest: usize) -> bool {
        let last = self.at.wrapping_sub(1);
        let words = rest.div_ceil(WORD);
        let is_so = |said: ShortRingAck| said.read == last && words < said.too_many();
        self.said.is_some_and(is_so)
    }

    /// Whether the message that was put in last, with `rest` bytes behind its head, is as good as
    /// taken. The consumer has said so of its place, and whenever it takes that back
    /// ([`withdraw`](super::ShortRingConsumer::withdraw)) it sees the message first.
    #[inline]
    pub fn completes_early(&mut self, rest: usize) -> bool {
        if !self.is_promised(rest) {
            return false;
        }
        let last = self.at.wrapping_sub(1);
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

/// Why a long message was not put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortRingRefusal {
    /// There is no room now.
    Full,
    /// The program has taken its bytes away.
    Unmapped,
    /// This is a child of `fork`, or the message is too long.
    Broken,
}
