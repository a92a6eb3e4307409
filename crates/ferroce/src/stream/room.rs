//! The room of a stream, and its receives.

use std::collections::VecDeque;

use super::credits::SPARE;
use super::frame::{Form, HEADER, Offer};
use crate::endpoint::{Connection, SENDS_OR_RECEIVES};
use crate::qp::{PendingBuffer, QueuePairCapacities};
use crate::{Error, Result};

/// Room of an end of a stream or a channel.
///
/// # Memory
/// An end registers `buffers + 3` receives of `bytes + 8` bytes when it is made, and as it sends
/// up to as many buffers as it has, each as long as the shorter of both ends' messages. So each
/// connection takes up to about twice `buffers * bytes` at each end, as long as it is there: the
/// default 256 KiB or so.
///
/// # Limits
/// The queue pair holds `buffers + 3` receives, which is at most the device's
/// [`max_qp_wr`](crate::device::DeviceLimits::max_qp_wr): 65,536 of the software device, often
/// fewer of adapters. The device is known when the peer is, so connecting and accepting tell that
/// there are [too many](Error::Limit), and not this. A message with its 8 bytes of header must be
/// no longer than the port's [`max_message`](crate::device::PortAttributes::max_message): a longer
/// one ends the connection.
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
    /// Messages that can be here and unread; as many may be sent and on their way. At least 1.
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

    /// Whether anything can be sent to it.
    pub(super) fn check(self, form: Form) -> Result<()> {
        if self.buffers > 0 && self.bytes > 0 {
            return Ok(());
        }
        Err(Error::Misuse(match form {
            Form::Stream => "a stream needs room for at least one message of one byte (StreamRoom)",
            Form::Channel => {
                "a channel needs room for at least one message of one byte (StreamRoom)"
            }
        }))
    }

    /// The error of making the connection, in words of the room.
    pub(super) fn explain(self, error: Error) -> Error {
        match error {
            Error::Limit { what, limit, .. } if what == SENDS_OR_RECEIVES => Error::Limit {
                object: "room of a stream or channel (StreamRoom)",
                what: "messages",
                asked: self.buffers.into(),
                limit: limit.saturating_sub(SPARE.into()),
            },
            other => other,
        }
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
    let (count, length) = (room.capacities().receive, room.bytes as usize + HEADER);
    (0..count)
        .map(|_| {
            let buffer = connection.buffer(length)?;
            let posted = connection.queue_pair().receive_buffer(buffer);
            posted.map_err(|refused| refused.error)
        })
        .collect()
}
