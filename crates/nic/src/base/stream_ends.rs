//! How connections over iWARP have failed.

use std::sync::atomic::Ordering;

use super::counters::Counters;

/// Why a connection over iWARP ended that nobody has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamEnd {
    /// The peer was sent a TERMINATE: it has broken a rule, or work has failed here.
    TerminateSent,
    /// A CRC was wrong. The peer is sent a TERMINATE as well.
    Crc,
    /// The peer has sent a TERMINATE.
    TerminateReceived,
    /// The connection was reset, by the peer or by `FERROCE_FAULT`, or TCP gave up.
    Reset,
}

impl StreamEnd {
    /// Number of kinds.
    pub(super) const COUNT: usize = Counters::STREAM_ENDS.len();
}

impl Counters {
    /// Ends of connections: names, as under `hw_counters`, and kinds.
    pub const STREAM_ENDS: [(&'static str, StreamEnd); 4] = [
        ("iwarp_terminates_sent", StreamEnd::TerminateSent),
        ("iwarp_crc_errors", StreamEnd::Crc),
        ("iwarp_terminates_received", StreamEnd::TerminateReceived),
        ("iwarp_resets", StreamEnd::Reset),
    ];

    /// Connections that have ended so.
    #[must_use]
    pub fn stream_ends(&self, end: StreamEnd) -> u64 {
        self.stream_ends[end as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn count_stream_end(&self, end: StreamEnd) {
        self.stream_ends[end as usize].fetch_add(1, Ordering::Relaxed);
    }
}
