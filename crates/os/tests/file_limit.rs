//! The limit on the size of files (`RLIMIT_FSIZE`). A test program of its own: the limit is the
//! whole process's.

use std::io;

use ferroce_os::memory::{OwnWords, SharedFile};
use ferroce_os::ring;

/// Bytes that a file may have during the test.
const LIMIT: usize = 1 << 16;

fn limit() -> libc::rlimit {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live structure of integers.
    let returned = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    assert_eq!(returned, 0);
    limit
}

fn set_limit(limit: libc::rlimit) {
    // SAFETY: the pointer is to a live structure of integers.
    let returned = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
    assert_eq!(returned, 0);
}

/// What an action answers under [`LIMIT`].
fn limited<T>(action: impl FnOnce() -> T) -> T {
    let before = limit();
    set_limit(libc::rlimit {
        rlim_cur: LIMIT as u64,
        ..before
    });
    let answer = action();
    set_limit(before);
    answer
}

#[test]
fn memory_beyond_the_limit_on_files_is_an_error_and_no_signal() {
    let file = |len| SharedFile::create(c"test", len).map(drop);
    let words = |len| OwnWords::new(c"test", len / 8).map(drop);
    let ring = |capacity: usize| match ring::create(u32::try_from(capacity).unwrap(), false) {
        Ok(_) => Ok(()),
        Err(ring::Refused::System(error)) => Err(error),
        Err(other) => panic!("{other}"),
    };
    let [at_limit, beyond] = [LIMIT, 2 * LIMIT].map(|len| {
        let kinds = || [file(len), words(len), ring(len / 2)];
        limited(kinds).map(|made| made.map_err(|e: io::Error| e.raw_os_error()))
    });
    assert_eq!(at_limit, [Ok(()); 3]);
    assert_eq!(beyond, [Err(Some(libc::EFBIG)); 3]);
}
