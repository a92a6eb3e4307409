//! The times that completions carry, for queues that were asked to keep them.

use ferroce_os::clock;

use crate::base::device_clock::raw_clock;

/// Which times a completion queue keeps; both cost a look at a clock per completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimestampKinds {
    /// The device's clock (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`).
    pub raw: bool,
    /// The system's clock (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK`).
    pub wallclock: bool,
}

/// When a completion was queued; 0 where the queue does not keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompletionTimes {
    /// Ticks of the device's clock, see [`raw_clock`].
    pub raw: u64,
    /// Nanoseconds since 1970 (`CLOCK_REALTIME`).
    pub wallclock: u64,
}

impl TimestampKinds {
    /// The times as they are now.
    pub(super) fn take(self) -> CompletionTimes {
        CompletionTimes {
            raw: if self.raw { raw_clock() } else { 0 },
            wallclock: if self.wallclock { clock::realtime() } else { 0 },
        }
    }
}
