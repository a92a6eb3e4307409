//! The sending direction: targets, credits, the send ring, the send queue.

use alloc::collections::VecDeque;

use super::message::MAX_DATA;
use super::target::Target;

/// Work requests that are set aside for control messages and updates.
pub const CONTROL_SLOTS: u32 = 4;
/// Free bytes of the send ring from which on a stream counts as writable.
pub const LOW_WATER: u32 = 2048;
/// Bytes of a call's first message. The next ones double, so that the peer's copy overlaps ours.
/// (librdmacm begins with 2048, which on one host costs more than the overlap gives.)
pub const FIRST_TRANSFER: u32 = 1 << 14;
/// Most bytes of a message.
pub const MAX_TRANSFER: u32 = 1 << 16;

/// What a work request was posted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posted {
    /// Data, an iomap or a plain WRITE, with so many bytes of the ring.
    Data { staged: u32 },
    /// A control message or an update.
    Control,
}

/// Where in the send ring bytes are staged: a range that may go on at the ring's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Offset of the first byte.
    pub at: u32,
    /// Bytes up to the ring's end or the last byte.
    pub first: u32,
    /// Bytes at the ring's beginning.
    pub second: u32,
}

/// A WRITE to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteChunk {
    /// Where to.
    pub address: u64,
    /// Its key.
    pub key: u32,
    /// Bytes.
    pub length: u32,
    /// Where to copy the bytes first. `None`: they go inline.
    pub staged: Option<Staged>,
}

/// Sizes of a sender.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of the send ring.
    pub ring: u32,
    /// Messages that the send queue holds, [`CONTROL_SLOTS`] included.
    pub queue: u32,
    /// Most bytes that go inline.
    pub inline: u32,
}

/// The sending direction of a stream.
#[derive(Debug)]
pub struct OutgoingBytes {
    sizes: Sizes,
    target: Target,
    /// Which element of the list the next target comes from.
    slot: usize,
    sent: u16,
    limit: u16,
    ring_at: u32,
    ring_free: u32,
    data_free: u32,
    control_free: u32,
    /// Oldest first.
    posted: VecDeque<Posted>,
}

impl OutgoingBytes {
    /// A sender whose peer has given its first target and credits.
    #[must_use]
    pub fn new(sizes: Sizes, first: Target, credits: u16) -> Self {
        let data_free = sizes.queue.saturating_sub(CONTROL_SLOTS);
        Self {
            sizes,
            target: first,
            // The first target stands for the first element.
            slot: 1,
            sent: 0,
            limit: credits,
            ring_at: 0,
            ring_free: sizes.ring,
            data_free,
            control_free: CONTROL_SLOTS,
            posted: VecDeque::new(),
        }
    }

    /// The element of the list where the next target stands, if the current one is used up.
    #[must_use]
    pub const fn wants_target(&self) -> Option<usize> {
        if self.target.length == 0 {
            Some(self.slot)
        } else {
            None
        }
    }

    /// Goes on with a target from the list.
    pub fn set_target(&mut self, target: Target) {
        self.target = target;
        self.slot ^= 1;
    }

    /// Sets the peer's new credit limit.
    pub fn set_limit(&mut self, limit: u16) {
        self.limit = limit;
    }

    const fn has_credit(&self) -> bool {
        self.sent != self.limit
    }

    /// Whether a message that uses a credit can be posted.
    const fn can_post(&self) -> bool {
        self.data_free > 0 && self.has_credit()
    }

    /// Whether a program that waits to write is told that it can.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.can_post()
            && self.target.length > 0
            && self.ring_free >= LOW_WATER.min(self.sizes.ring)
    }

    /// The next data message for up to `want` bytes: it is counted as posted.
    pub fn next_chunk(&mut self, want: u32) -> Option<WriteChunk> {
        if !self.can_post() {
            return None;
        }
        let mut length = want.min(self.target.length).min(MAX_DATA);
        let inline = length <= self.sizes.inline;
        if !inline {
            length = length.min(self.ring_free);
        }
        if length == 0 {
            return None;
        }
        let chunk = WriteChunk {
            address: self.target.address,
            key: self.target.key,
            length,
            staged: (!inline).then(|| self.stage(length)),
        };
        self.target.address = self.target.address.wrapping_add(length.into());
        self.target.length -= length;
        self.sent = self.sent.wrapping_add(1);
        self.push(chunk.staged);
        Some(chunk)
    }

    /// The next plain WRITE of up to `want` bytes to a place that an iomap names. It uses no
    /// credit.
    pub fn next_write(&mut self, address: u64, key: u32, want: u32) -> Option<WriteChunk> {
        if self.data_free == 0 {
            return None;
        }
        let inline = want <= self.sizes.inline;
        let length = if inline {
            want
        } else {
            want.min(self.ring_free)
        };
        if length == 0 {
            return None;
        }
        let staged = (!inline).then(|| self.stage(length));
        self.push(staged);
        Some(WriteChunk {
            address,
            key,
            length,
            staged,
        })
    }

    /// Counts an iomap message as posted. Returns false if none can be now.
    pub fn take_message(&mut self) -> bool {
        let can = self.can_post();
        if can {
            self.sent = self.sent.wrapping_add(1);
            self.push(None);
        }
        can
    }

    /// Counts a control message or an update as posted. Returns false if none can be now.
    pub fn take_control(&mut self) -> bool {
        let can = self.control_free > 0;
        if can {
            self.control_free -= 1;
            self.posted.push_back(Posted::Control);
        }
        can
    }

    /// Whether a control message or an update can be posted.
    #[must_use]
    pub const fn has_control(&self) -> bool {
        self.control_free > 0
    }

    fn stage(&mut self, length: u32) -> Staged {
        let first = length.min(self.sizes.ring - self.ring_at);
        let staged = Staged {
            at: self.ring_at,
            first,
            second: length - first,
        };
        self.ring_free -= length;
        self.ring_at = if staged.second > 0 || self.ring_at + first == self.sizes.ring {
            staged.second
        } else {
            self.ring_at + first
        };
        staged
    }

    fn push(&mut self, staged: Option<Staged>) {
        self.data_free -= 1;
        self.posted.push_back(Posted::Data {
            staged: staged.map_or(0, |staged| staged.first + staged.second),
        });
    }

    /// The oldest message has completed.
    pub fn on_completed(&mut self) {
        match self.posted.pop_front() {
            Some(Posted::Data { staged }) => {
                self.data_free += 1;
                self.ring_free += staged;
            }
            Some(Posted::Control) => self.control_free += 1,
            None => {}
        }
    }

    /// Whether every message has completed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.posted.is_empty()
    }
}
