//! How long calls of the program's may wait, and what looks leave of it.

use std::ffi::c_int;
use std::time::Duration;

use libc::timespec;

use crate::{errno, sys};

/// A look is shorter than this, so a call that may wait for longer is not made to wait too long.
const LEAST: Duration = Duration::from_millis(1);

/// A timeout as the program passed it.
pub(crate) trait Timeout: Copy {
    /// None: for ever, or what the kernel refuses.
    fn duration(self) -> Option<Duration>;

    /// Whether a call may wait for longer than a look lasts.
    fn is_long(self) -> bool;

    /// What is left after so long.
    fn less(self, lasted: Duration) -> Self;
}

/// Milliseconds; below 0 for ever.
impl Timeout for c_int {
    fn duration(self) -> Option<Duration> {
        u64::try_from(self).ok().map(Duration::from_millis)
    }

    fn is_long(self) -> bool {
        self.duration().is_none_or(|time| time > LEAST)
    }

    fn less(self, lasted: Duration) -> Self {
        let lasted = Self::try_from(lasted.as_millis()).unwrap_or(Self::MAX);
        if self < 0 {
            return self;
        }
        self.saturating_sub(lasted).max(0)
    }
}

impl Timeout for timespec {
    fn duration(self) -> Option<Duration> {
        let seconds = u64::try_from(self.tv_sec).ok()?;
        let nanoseconds = u32::try_from(self.tv_nsec).ok()?;
        (nanoseconds < 1_000_000_000).then(|| Duration::new(seconds, nanoseconds))
    }

    fn is_long(self) -> bool {
        self.duration().is_some_and(|time| time > LEAST)
    }

    fn less(self, lasted: Duration) -> Self {
        let left = self.duration().unwrap_or_default().saturating_sub(lasted);
        Self {
            tv_sec: left.as_secs().try_into().unwrap_or_default(),
            tv_nsec: left.subsec_nanos().into(),
        }
    }
}

/// A timeout in the program's memory; null is for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed<T>(*const T);

impl<T: Timeout> Passed<T> {
    /// # Safety
    /// Null, or what the program passed as a timeout: the kernel says EFAULT if it cannot be read.
    pub(crate) const unsafe fn new(at: *const T) -> Self {
        Self(at)
    }

    /// Whether a call may wait for longer than a look lasts. One that the kernel refuses may not.
    pub(crate) fn is_long(self) -> bool {
        self.0.is_null() || self.read().is_some_and(T::is_long)
    }

    fn read(self) -> Option<T> {
        let is_readable = || sys::is_readable(self.0.cast(), size_of::<T>());
        // SAFETY: as many bytes can be read, as the kernel has just said.
        errno::kept(is_readable).then(|| unsafe { self.0.read_unaligned() })
    }

    /// Runs `go` with what is left after so long.
    pub(crate) fn with_less<R>(self, lasted: Duration, go: impl FnOnce(*const T) -> R) -> R {
        if self.0.is_null() || lasted.is_zero() {
            return go(self.0);
        }
        match self.read().map(|time| time.less(lasted)) {
            Some(left) => go(&raw const left),
            None => go(self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_shortens_a_timeout_by_no_more_than_it_lasted() {
        let looked = Duration::from_micros(1500);
        assert_eq!((-1).less(looked), -1);
        assert_eq!(20.less(looked), 19);
        assert_eq!(1.less(looked), 0);
        let time = timespec {
            tv_sec: 1,
            tv_nsec: 500_000,
        };
        let left = time.less(looked);
        assert_eq!((left.tv_sec, left.tv_nsec), (0, 999_000_000));
    }

    #[test]
    fn calls_that_wait_for_less_than_a_look_or_are_refused_are_not_long() {
        assert!((-1).is_long() && 2.is_long() && !1.is_long() && !0.is_long());
        let time = |tv_sec, tv_nsec| timespec { tv_sec, tv_nsec };
        assert!(time(0, 1_000_001).is_long() && time(1, 0).is_long());
        for refused in [
            time(0, 0),
            time(0, 1_000_000),
            time(-1, 0),
            time(1, 1_000_000_000),
        ] {
            assert!(!refused.is_long());
        }
        // SAFETY: null, and an address that no program has.
        let passed = |at| unsafe { Passed::<timespec>::new(std::ptr::without_provenance(at)) };
        assert!(passed(0).is_long() && !passed(8).is_long());
    }
}
