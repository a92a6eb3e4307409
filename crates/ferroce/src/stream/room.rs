//! The room of a stream, and its receives.

use std::collections::VecDeque;

use super::credits::SPARE;
use super::frame::{HEADER, Offer};
use crate::endpoint::Connection;
use crate::qp::{PendingBuffer, QueuePairCapacities};
use crate::{Error, Result};

/// Room of a stream.
///
/// ```
/// use ferroce::stream::StreamRoom;
/// let room = StreamRoom::new(32, 4096);
/// let (buffers, bytes) = (u32::from(room.buffers), room.bytes);
/// assert_eq!(buffers * bytes, 128 << 10); // bytes that a peer may be ahead
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamRoom {
    /// Messages that can be here and unread; as many may be written and on their way. At least 1.
    pub buffers: u16,
    /// Bytes of one message; at least 1. Messages are as long as the shorter of both ends' rooms.
    pub bytes: u32,
}

impl Default for StreamRoom {
    /// 8 messages of 16 KiB.
    fn default() -> Self {
        Self {
            buffers: 8,
            bytes: 16 << 10,
        }
    }
}

impl StreamRoom {
    /// Room for `buffers` messages of `bytes` bytes each, in each direction.
    #[must_use]
    pub const fn new(buffers: u16, bytes: u32) -> Self {
        Self { buffers, bytes }
    }

    pub(super) fn offer(self) -> Offer {
        let Self { buffers, bytes } = self;
        Offer { buffers, bytes }
    }
    /// What the queue pair of a stream must hold.
    pub(super) fn capacities(self) -> QueuePairCapacities {
        let messages = u32::from(self.buffers) + SPARE;
        QueuePairCapacities::new(messages, messages)
    }
}

/// Posted receives, oldest first.
pub(super) type Receives = VecDeque<PendingBuffer>;

/// Posts the receives of a stream's end.
pub(super) fn post_receives(connection: &Connection, room: StreamRoom) -> Result<Receives> {
    if room.buffers == 0 || room.bytes == 0 {
        return Err(Error::Misuse("a stream needs room for at least one byte"));
    }
    let (count, length) = (room.capacities().receive, room.bytes as usize + HEADER);
    (0..count)
        .map(|_| {
            let buffer = connection.buffer(length)?;
            let posted = connection.queue_pair().receive_buffer(buffer);
            posted.map_err(|refused| refused.error)
        })
        .collect()
}
