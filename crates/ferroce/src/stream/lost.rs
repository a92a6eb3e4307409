//! Why a direction of a stream goes on no more.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::cq::{WorkError, WorkStatus};

/// The reason, as the program is told in the error of [`io`]: what has happened in its own words,
/// and as the source what the device said.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    says: &'static str,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Lost {
    /// A reason of the protocol's own.
    pub(super) fn new(says: &'static str) -> Self {
        Self { says, source: None }
    }

    /// A call that was refused.
    pub(super) fn because(source: impl Error + Send + Sync + 'static) -> Self {
        Self {
            says: "the connection can be used no more",
            source: Some(Arc::new(source)),
        }
    }

    /// Work that failed.
    pub(super) fn by(error: WorkError) -> Self {
        let first = error.cause.map_or(error.status, |first| first.status);
        let says = match first {
            WorkStatus::RETRIES_EXCEEDED | WorkStatus::RESPONSE_TIMEOUT => {
                "the peer has gone: it does not answer"
            }
            WorkStatus::FLUSHED => {
                "the connection has ended: the peer has gone, or a side has ended it"
            }
            _ => "the connection has ended: its work failed",
        };
        Self {
            says,
            source: Some(Arc::new(error)),
        }
    }

    /// The error for the program.
    pub(super) fn error(&self, kind: io::ErrorKind) -> io::Error {
        io::Error::new(kind, self.clone())
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.says)
    }
}

impl Error for Lost {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source = self.source.as_deref();
        source.map(|source| source as &(dyn Error + 'static))
    }
}
