//! Errors that reach a program: an errno and a reason that a person can act on.

use std::fmt;

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
        Self { errno, reason: reason.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, std::io::Error::from_raw_os_error(self.errno))
    }
}

impl std::error::Error for Error {}
