//! Errors that reach a program: an errno and a reason that a person can act on.

use std::fmt;
use std::io;

/// What a call answers when it refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Positive errno.
    pub errno: i32,
    /// For a person: which attribute, which state, which limit.
    pub reason: String,
}

impl Error {
    /// An errno with its reason.
    pub fn new(errno: i32, reason: impl Into<String>) -> Self {
        Self {
            errno,
            reason: reason.into(),
        }
    }

    /// EINVAL with its reason.
    pub fn invalid(reason: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, reason)
    }

    /// ENOMEM with its reason: a limit of the device, or the system's.
    pub fn no_memory(reason: impl Into<String>) -> Self {
        Self::new(libc::ENOMEM, reason)
    }

    /// EOPNOTSUPP with what is not built.
    pub fn unsupported(reason: impl Into<String>) -> Self {
        Self::new(libc::EOPNOTSUPP, reason)
    }

    /// What the system refused (`what`), with its errno.
    pub fn system(what: &str, error: &io::Error) -> Self {
        Self::new(
            error.raw_os_error().unwrap_or(libc::EIO),
            format!("{what}: {error}"),
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({})",
            self.reason,
            io::Error::from_raw_os_error(self.errno)
        )
    }
}

impl std::error::Error for Error {}
