//! The monotonic clock, and the time of day.

use ferroce_proto::time::Time;

/// Now, on the clock that never goes backwards (`CLOCK_MONOTONIC`): nanoseconds since some point
/// before the process started, the same for all processes of the machine.
#[must_use]
pub fn monotonic() -> Time {
    Time(nanoseconds(libc::CLOCK_MONOTONIC))
}

/// Nanoseconds since 1970 (`CLOCK_REALTIME`), which may jump.
#[must_use]
pub fn realtime() -> u64 {
    nanoseconds(libc::CLOCK_REALTIME)
}

fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live timespec. The call cannot fail for clocks that every kernel
    // has.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_advances_and_never_goes_back() {
        let start = monotonic();
        assert!(start.0 > 0);
        let mut last = start;
        while last == start {
            let now = monotonic();
            assert!(now >= last);
            last = now;
        }
    }
}
