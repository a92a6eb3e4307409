//! Descriptors that the program does not see: high numbers, and no more than a share of what the
//! process may open.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::sys;

/// Highest number that an entry of the table can hold.
const HIGHEST: u64 = (1 << 20) - 2;

static HIDDEN: AtomicI64 = AtomicI64::new(0);
/// The limit of open files when it was last asked for; 0 before. The program may have changed it
/// since: a caller that finds no room asks again.
static LIMIT: AtomicU64 = AtomicU64::new(0);

fn known_limit() -> u64 {
    match LIMIT.load(Ordering::Relaxed) {
        0 => limit(),
        known => known,
    }
}

/// The process's limit of open files.
fn limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: room for the structure.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let limit = limit.rlim_cur.min(HIGHEST);
    LIMIT.store(limit, Ordering::Relaxed);
    limit
}

/// Lowest hidden number: the last eighth of those that the process may open.
pub(crate) fn base() -> RawFd {
    base_of(known_limit())
}

fn base_of(limit: u64) -> RawFd {
    RawFd::try_from(limit - limit / 8).unwrap_or(0)
}

/// Whether one more file may be hidden. Hidden ones take no more than a tenth of the numbers, as
/// the program's own come first.
pub(crate) fn has_room() -> bool {
    has_room_of(known_limit()) || has_room_of(limit())
}

fn has_room_of(limit: u64) -> bool {
    let count = u64::try_from(HIDDEN.load(Ordering::Relaxed)).unwrap_or(0);
    count < limit / 8 - limit / 32
}

/// Puts an open file under a high number as well.
pub(crate) fn hide(fd: RawFd, command: i32) -> Option<RawFd> {
    let below = |limit| {
        let room = has_room_of(limit);
        room.then(|| sys::fcntl(fd, command, base_of(limit)).ok())?
    };
    let hidden = below(known_limit()).or_else(|| below(limit()))?;
    HIDDEN.fetch_add(1, Ordering::Relaxed);
    Some(hidden)
}

/// Moves a descriptor away from its old number, which is closed.
pub(crate) fn moved(fd: RawFd) -> Option<RawFd> {
    let hidden = hide(fd, libc::F_DUPFD_CLOEXEC);
    sys::close(fd);
    hidden
}

/// Closes a hidden descriptor.
pub(crate) fn forget(fd: RawFd) {
    sys::close(fd);
    HIDDEN.fetch_sub(1, Ordering::Relaxed);
}

/// Closes all numbers from one on, where the kernel has no `close_range(2)`.
pub(crate) fn close_from(first: u32) {
    for fd in u64::from(first)..limit() {
        sys::close(RawFd::try_from(fd).unwrap_or(-1));
    }
}
