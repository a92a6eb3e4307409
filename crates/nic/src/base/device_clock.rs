//! The device's clock, whose ticks completions and programs read.

use ferroce_os::clock;

/// Frequency of the device's clock in kHz: `CLOCK_MONOTONIC` in nanoseconds serves.
pub(crate) const CORE_CLOCK_KHZ: u64 = 1_000_000;

/// The device's clock (`ibv_query_rt_values_ex(3)`), in ticks.
#[must_use]
pub fn raw_clock() -> u64 {
    clock::monotonic().0
}
