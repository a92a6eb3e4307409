//! How the calls of this module fail: with an errno, as socket calls do. Why a connection cannot be
//! made is in the log.

use std::ffi::c_int;

use ferroce_nic::Error;

use crate::errno;

/// A positive errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Errno(pub(super) c_int);

/// What a call gives or why it does not.
pub(super) type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    /// What the last function of this library or of the system said.
    pub(super) fn last() -> Self {
        Self(errno::errno())
    }

    /// Of a function that gives -1 for a failure.
    pub(super) fn check(result: c_int) -> Result<()> {
        if result < 0 {
            Err(Self::last())
        } else {
            Ok(())
        }
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        Self(errno::as_errno("rsocket", &error))
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}
