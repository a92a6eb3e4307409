//! What the process has.

use std::fs;

/// Memory in use and open descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resources {
    pub(crate) bytes: usize,
    pub(crate) descriptors: usize,
}

impl Resources {
    /// What there is now.
    pub(crate) fn now() -> Self {
        let statm = fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
        Self {
            bytes: pages * 4096,
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
        }
    }

    /// How much more it is than `before`.
    pub(crate) fn beyond(self, before: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(before.bytes),
            descriptors: self.descriptors.saturating_sub(before.descriptors),
        }
    }

    /// Whether it is at most `room`.
    pub(crate) fn fits(self, room: Self) -> bool {
        self.bytes <= room.bytes && self.descriptors <= room.descriptors
    }
}
