//! The receiving direction: a ring of two halves, and what the peer is told of it.

use alloc::collections::VecDeque;

use super::stream::StreamViolation;

/// What the peer is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// Its new credit limit.
    pub limit: u16,
    /// A half that it may write next.
    pub half: Option<Half>,
}

/// A half of the ring, and which element of the peer's list names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half {
    /// Element of the list.
    pub slot: usize,
    /// Offset in the ring.
    pub offset: u32,
}

/// A contiguous range of the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Offset in the ring.
    pub at: u32,
    /// Bytes.
    pub length: u32,
}

/// The receiving direction of a stream.
///
/// Invariant: of the ring's bytes, `unread` are data, `window` and `ahead` halves are the peer's to
/// write, and `free` are neither.
/// Enforced by: [`on_data`](Self::on_data), which refuses what the peer was not given.
/// If broken: a peer overwrites bytes that were not read, or a program reads bytes that never came.
#[derive(Debug)]
pub struct IncomingBytes {
    half: u32,
    credits: u16,
    /// Lengths of messages that were not read to their end, of the oldest what is left.
    messages: VecDeque<u32>,
    read_at: u32,
    unread: u32,
    /// What the peer may still write to the half that it is in.
    window: u32,
    /// Whole halves that it may write after that.
    ahead: u32,
    free: u32,
    next: Half,
    /// Messages read to their end.
    done: u16,
    /// The count from which on the peer is told of credits.
    mark: u16,
}

impl IncomingBytes {
    /// A ring of two halves, of which the peer knows the first, and so many messages at once.
    #[must_use]
    pub fn new(half: u32, credits: u16) -> Self {
        Self {
            half,
            credits,
            messages: VecDeque::new(),
            read_at: 0,
            unread: 0,
            window: half,
            ahead: 0,
            free: half,
            next: Half {
                slot: 1,
                offset: half,
            },
            done: 0,
            mark: credits / 2,
        }
    }

    /// The peer has written so many bytes.
    ///
    /// # Errors
    /// It was not given so much room, or so many messages.
    pub fn on_data(&mut self, length: u32) -> Result<(), StreamViolation> {
        if self.window == 0 && self.ahead > 0 {
            self.ahead -= 1;
            self.window = self.half;
        }
        if length > self.window {
            return Err(StreamViolation::Room {
                sent: length,
                room: self.window,
            });
        }
        if length == 0 {
            self.count_done();
            return Ok(());
        }
        if self.messages.len() >= usize::from(self.credits) {
            return Err(StreamViolation::Credits(self.credits));
        }
        self.window -= length;
        self.unread += length;
        self.messages.push_back(length);
        Ok(())
    }

    /// Counts a message that uses a credit and holds nothing to read.
    pub fn count_done(&mut self) {
        self.done = self.done.wrapping_add(1);
    }

    /// Bytes that can be read.
    #[must_use]
    pub const fn unread(&self) -> u32 {
        self.unread
    }

    /// Where the next bytes are, `length` of them or what there is, from `skip` bytes on: up to two
    /// ranges.
    #[must_use]
    pub fn ranges(&self, skip: u32, length: u32) -> [Range; 2] {
        let size = 2 * self.half;
        let skip = skip.min(self.unread);
        let length = length.min(self.unread - skip);
        let at = (self.read_at + skip) % size.max(1);
        let first = length.min(size - at);
        [
            Range { at, length: first },
            Range {
                at: 0,
                length: length - first,
            },
        ]
    }

    /// Takes away bytes that the program has read, of those that there are.
    pub fn consume(&mut self, length: u32) {
        let mut left = length.min(self.unread);
        self.unread -= left;
        self.free += left;
        self.read_at = (self.read_at + left) % (2 * self.half).max(1);
        while left > 0 {
            let Some(message) = self.messages.front_mut() else {
                break;
            };
            let part = left.min(*message);
            *message -= part;
            left -= part;
            if *message == 0 {
                self.messages.pop_front();
                self.done = self.done.wrapping_add(1);
            }
        }
    }

    /// Whether the peer is to be told of room or credits.
    #[must_use]
    pub fn owes_update(&self) -> bool {
        let past_mark = self.done.wrapping_sub(self.mark).cast_signed() >= 0;
        self.free >= self.half || past_mark
    }

    /// What to tell the peer now; it counts as told.
    pub fn take_update(&mut self) -> Option<Update> {
        if !self.owes_update() {
            return None;
        }
        let half = (self.free >= self.half).then(|| {
            let half = self.next;
            self.free -= self.half;
            self.ahead += 1;
            self.next = Half {
                slot: half.slot ^ 1,
                offset: self.half - half.offset,
            };
            half
        });
        self.mark = self.done.wrapping_add(self.credits / 2);
        Some(Update {
            limit: self.done.wrapping_add(self.credits),
            half,
        })
    }
}
