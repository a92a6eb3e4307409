//! `FERROCE_LOG`: a subscriber for programs that want one. Nothing in this crate installs it.

use std::io::{self, IsTerminal as _};
use std::{error, fmt};

use ferroce_os::environment::variable;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// Name of the environment variable with the filter, for example `ferroce=debug` or `warn`.
pub const VARIABLE: &str = "FERROCE_LOG";

/// Installs a global subscriber that writes to stderr what `FERROCE_LOG` selects. Does nothing if
/// the variable is not set, is empty, or is ignored because the program runs with more rights than
/// its caller.
///
/// # Errors
/// [`Error::AlreadySet`] if the program has a global subscriber, which stays as it is;
/// [`Error::Filter`] if the value is not a filter.
pub fn try_init() -> Result<(), Error> {
    let Some(directives) = variable(VARIABLE) else {
        return Ok(());
    };
    let directives = directives.to_string_lossy();
    if directives.is_empty() {
        return Ok(());
    }
    let filter = EnvFilter::try_new(&directives)
        .map_err(|source| Error::Filter(directives.into_owned(), source))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .try_init()
        .map_err(|_| Error::AlreadySet)
}

/// Why [`try_init`] installed nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The program has a global subscriber. It gets the device's events.
    AlreadySet,
    /// The value of `FERROCE_LOG`, and what is wrong with it.
    Filter(String, ParseError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadySet => write!(f, "{VARIABLE}: the program has a subscriber already"),
            Self::Filter(directives, source) => write!(f, "{VARIABLE}={directives}: {source}"),
        }
    }
}

impl error::Error for Error {}
