//! Connections whose queue pair is destroyed, until they may be closed.
//!
//! A socket that is closed before the peer's TCP has everything is reset as soon as the peer says
//! anything, and the rest is lost. Looks tell when the peer's TCP has it: no event does.

use std::time::Duration;

use ferroce_os::memory::RawMemory;
use ferroce_proto::mr::Piece;
use ferroce_proto::time::Time;

use super::{Came, Obstacle, Stream};

/// How long the peer's TCP may take to get what TCP has here, when a queue pair or a process ends.
pub(crate) const DELIVERED_WITHIN: Duration = Duration::from_secs(1);
/// Time from the first look to the second. It doubles from look to look.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
/// Longest time from one look to the next.
const LAST_PAUSE: Duration = Duration::from_millis(10);
/// Bytes of a read whose bytes are discarded.
const DISCARDED: usize = 16 << 10;
/// Reads of one look.
const READS: usize = 64;

/// A connection that no queue pair has any more.
#[derive(Debug)]
pub(crate) struct Parting {
    stream: Stream,
    /// What TCP has not taken of the FPDUs that end the stream.
    rest: Vec<u8>,
    /// Until when this end does not say that nothing follows.
    open_until: Option<Time>,
    /// When the connection is closed, whatever the peer has.
    closes: Time,
    looks: Time,
    pause: Duration,
}

impl Parting {
    /// The caller has ended the watch for the connection.
    pub(crate) fn new(stream: Stream, rest: Vec<u8>, open_until: Option<Time>, now: Time) -> Self {
        Self {
            stream,
            rest,
            open_until,
            closes: now + DELIVERED_WITHIN,
            looks: now,
            pause: FIRST_PAUSE,
        }
    }

    /// Discards what has come and sends what there is room for. Returns whether the connection may
    /// be closed.
    fn look(&mut self, now: Time) -> bool {
        self.looks = now + self.pause;
        self.pause = (2 * self.pause).min(LAST_PAUSE);
        if self.discard_until_end() || self.write_rest().is_err() {
            return true;
        }
        if self.rest.is_empty() && self.open_until.is_none_or(|until| until <= now) {
            self.stream.end();
        }
        let has_all = self.stream.has_ended() && !self.stream.is_under_way();
        has_all || self.closes <= now
    }

    /// Returns whether the peer has closed the connection: it says nothing more, so that closing
    /// the socket loses nothing.
    fn discard_until_end(&self) -> bool {
        let mut room = vec![0; DISCARDED];
        for _ in 0..READS {
            match self.stream.read(&mut room) {
                Came::Bytes { .. } => {}
                Came::Nothing | Came::Unmapped => return false,
                Came::End | Came::Reset => return true,
            }
        }
        false
    }

    fn write_rest(&mut self) -> Result<(), Obstacle> {
        self.stream.begin_turn();
        while !self.rest.is_empty() {
            let sent = self
                .stream
                .write(&RawMemory, &[Piece::Inline(&self.rest)])?;
            if sent == 0 {
                break;
            }
            self.rest.drain(..sent);
        }
        Ok(())
    }
}

/// The connections of a process that are still to be closed.
#[derive(Debug, Default)]
pub(crate) struct Partings {
    list: Vec<Parting>,
    /// The timer of the next look.
    pub(crate) timer: Option<Time>,
}

impl Partings {
    pub(crate) fn add(&mut self, parting: Parting) {
        self.list.push(parting);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Makes the looks that are due, and closes what may be closed.
    pub(crate) fn look(&mut self, now: Time) {
        self.list
            .retain_mut(|parting| parting.looks > now || !parting.look(now));
    }

    /// When the next look is due.
    pub(crate) fn next(&self) -> Option<Time> {
        self.list.iter().map(|parting| parting.looks).min()
    }
}
