//! Errors.

use std::{fmt, io};

use crate::cm::{EventKind, RejectReason};
use crate::cq::WorkError;
use crate::display::Said;

/// What this crate's functions answer.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call did not do what was asked. Failed work is not an error of a call: see [`WorkError`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::ErrorKind;
/// use ferroce::prelude::*;
/// let endpoint = Endpoint::new(&Provider::software())?;
/// let taken = endpoint.listen("127.0.0.1:0")?;
/// match endpoint.listen(taken.local_addr()?) {
///     Err(error) if error.kind() == ErrorKind::AddrInUse => eprintln!("{error}"),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device refused.
    #[error("{call}{}{about}: {source}", if about.is_empty() { "" } else { ": " })]
    System {
        /// The C function, whose manual page tells what its errors mean.
        call: &'static str,
        /// The object, and the attribute or limit that stands in the way as far as this crate can
        /// tell. May be empty.
        about: String,
        /// The errno.
        source: io::Error,
    },
    /// The system's RDMA libraries cannot be used.
    #[error("{library}: {reason}")]
    NoSystemLibrary {
        /// File name of the library.
        library: &'static str,
        /// Reason, as the dynamic linker gives it.
        reason: String,
    },
    /// Bytes outside of a memory region.
    #[error("bytes {start}..{end} are not within a region of {length} bytes")]
    OutOfRange {
        /// First byte.
        start: usize,
        /// Behind the last byte.
        end: usize,
        /// The region's length.
        length: usize,
    },
    /// Eight bytes for an atomic access that do not begin at a multiple of 8.
    #[error("the word at byte {start} is not aligned: its address must be a multiple of 8")]
    Unaligned {
        /// First byte, in the region.
        start: usize,
    },
    /// Arguments that do not fit each other or the state of things; the call was not made.
    #[error("{0}")]
    Misuse(&'static str),
    /// The peer turned the connection down.
    #[error(
        "the peer rejected the connection, reason {reason}{}",
        Said::new(private_data)
    )]
    Rejected {
        /// Reason that the peer gave.
        reason: RejectReason,
        /// What its program said. May have zeros behind it.
        private_data: Vec<u8>,
    },
    /// The peer that asked for the connection has given up, or is gone, before it was made. A
    /// server goes on with the next request.
    #[error("the peer has given up the connection that it asked for, or is gone")]
    GivenUp {
        /// What the call that found it said.
        source: Box<Self>,
    },
    /// The peer does not keep to what was agreed.
    #[error("{0}")]
    Protocol(&'static str),
    /// It took longer than was allowed.
    #[error("{what}: not done after {limit:?}{}", if *unserved { UNSERVED } else { "" })]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// How long it was allowed to take.
        limit: std::time::Duration,
        /// Whether nothing served the endpoint meanwhile, so that nothing could happen: no
        /// [driver](crate::endpoint::Endpoint::driver) ran, nothing called
        /// [`dispatch`](crate::endpoint::Endpoint::dispatch), and no thread waited.
        unserved: bool,
    },
    /// Work failed. Calls that wait for work as one result give this, and `?` makes it of a
    /// [`WorkError`].
    #[error("work failed: {0}")]
    Work(#[from] WorkError),
    /// More than an object holds; the call was not made.
    #[error("{object}: {asked} {what}, and the limit is {limit}")]
    Limit {
        /// The object.
        object: &'static str,
        /// Name of what there is too much of.
        what: &'static str,
        /// How much was asked for.
        asked: u64,
        /// Largest number that is possible.
        limit: u64,
    },
    /// The connection manager told something else than what was waited for.
    #[error("{event} (status {status}) where \"{expected}\" was due")]
    Unexpected {
        /// Event that was expected.
        expected: EventKind,
        /// Event that came.
        event: EventKind,
        /// Its status: 0, a negative errno, or the peer's reason for rejecting.
        status: i32,
    },
}

/// What a time limit adds where nothing served the endpoint.
const UNSERVED: &str = ", and nothing served the endpoint meanwhile: run its driver \
    (Endpoint::driver), call Endpoint::dispatch, or wait in a thread (Awaitable::wait)";

impl Error {
    /// The errno that a C function left.
    pub(crate) fn last(call: &'static str) -> Self {
        Self::io(call, io::Error::last_os_error())
    }

    /// An error of the operating system in a call that is not of C's verbs.
    pub(crate) fn io(call: &'static str, source: io::Error) -> Self {
        Self::System {
            call,
            about: String::new(),
            source,
        }
    }

    /// The same, telling what it is about unless that is known already.
    pub(crate) fn about(mut self, what: impl FnOnce() -> String) -> Self {
        if let Self::System { about, .. } = &mut self
            && about.is_empty()
        {
            *about = what();
        }
        self
    }

    /// What kind of error it is, in the words of [`std::io`]: `InvalidInput` for arguments that are
    /// wrong, `TimedOut`, `ConnectionRefused` for a rejection, `ConnectionAborted` for a request
    /// whose peer has given up before it was accepted, `ConnectionReset` where the peer or the
    /// connection is gone, `InvalidData` where the peer does not keep to the protocol, and for
    /// refusals of the system that of their errno.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::System { source, .. } => source.kind(),
            Self::NoSystemLibrary { .. } => io::ErrorKind::NotFound,
            Self::OutOfRange { .. }
            | Self::Unaligned { .. }
            | Self::Misuse(_)
            | Self::Limit { .. } => io::ErrorKind::InvalidInput,
            Self::Rejected { .. } => io::ErrorKind::ConnectionRefused,
            Self::GivenUp { .. } => io::ErrorKind::ConnectionAborted,
            Self::Protocol(_) => io::ErrorKind::InvalidData,
            Self::TimedOut { .. } => io::ErrorKind::TimedOut,
            Self::Work(error) => error.kind(),
            Self::Unexpected { event, .. } => match event {
                EventKind::AddressError | EventKind::RouteError => io::ErrorKind::AddrNotAvailable,
                EventKind::Unreachable => io::ErrorKind::HostUnreachable,
                _ => io::ErrorKind::ConnectionReset,
            },
        }
    }

    /// The errno of the call, if the device or the operating system refused it.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::System { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// An errno that a C function returned.
    pub(crate) fn errno(call: &'static str, errno: i32) -> Self {
        Self::io(call, io::Error::from_raw_os_error(errno))
    }

    /// What a C function returned: 0 or a positive errno.
    pub(crate) fn check(call: &'static str, errno: i32) -> Result<()> {
        if errno == 0 {
            Ok(())
        } else {
            Err(Self::errno(call, errno))
        }
    }

    /// What a C function returned: 0 or -1 with errno set.
    pub(crate) fn check_last(call: &'static str, result: i32) -> Result<()> {
        if result == 0 {
            Ok(())
        } else {
            Err(Self::last(call))
        }
    }

    /// Whether there is nothing now, and waiting was not asked for.
    pub(crate) fn would_block(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::WouldBlock)
    }

    /// Whether a signal interrupted the call.
    pub(crate) fn is_interrupted(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::Interrupted)
    }
}

/// As it would be derived, but private data as a byte string: `main` shows errors like this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        macro_rules! of {
            ($name:ident, $($field:ident),*) => {
                f.debug_struct(stringify!($name))$(.field(stringify!($field), $field))*.finish()
            };
        }
        match self {
            Self::System {
                call,
                about,
                source,
            } => of!(System, call, about, source),
            Self::NoSystemLibrary { library, reason } => of!(NoSystemLibrary, library, reason),
            Self::OutOfRange { start, end, length } => of!(OutOfRange, start, end, length),
            Self::Unaligned { start } => of!(Unaligned, start),
            Self::Misuse(what) => f.debug_tuple("Misuse").field(what).finish(),
            Self::Rejected {
                reason,
                private_data,
            } => {
                let private_data = &Said::new(private_data);
                of!(Rejected, reason, private_data)
            }
            Self::GivenUp { source } => of!(GivenUp, source),
            Self::Protocol(what) => f.debug_tuple("Protocol").field(what).finish(),
            Self::TimedOut {
                what,
                limit,
                unserved,
            } => of!(TimedOut, what, limit, unserved),
            Self::Work(error) => f.debug_tuple("Work").field(error).finish(),
            Self::Limit {
                object,
                what,
                asked,
                limit,
            } => of!(Limit, object, what, asked, limit),
            Self::Unexpected {
                expected,
                event,
                status,
            } => of!(Unexpected, expected, event, status),
        }
    }
}

/// The error itself is kept: [`io::Error::get_ref`].
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

/// As [`Error::Work`].
impl From<WorkError> for io::Error {
    fn from(error: WorkError) -> Self {
        Error::Work(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cq::WorkStatus;

    #[test]
    fn errors_of_the_crate_are_errors_of_io() {
        let refused = Error::errno("ibv_reg_mr", 12);
        let kept = io::Error::from(refused);
        assert_eq!(kept.kind(), io::ErrorKind::OutOfMemory);
        let kept = kept
            .get_ref()
            .and_then(|error| error.downcast_ref::<Error>());
        assert_eq!(kept.and_then(Error::raw_os_error), Some(12));
        let rejected = Error::Rejected {
            reason: RejectReason::CONSUMER,
            private_data: Vec::new(),
        };
        assert_eq!(rejected.kind(), io::ErrorKind::ConnectionRefused);
        assert!(rejected.to_string().ends_with("28 (by its program)"));
        let mut private_data = b"not\ttoday".to_vec();
        private_data.resize(148, 0);
        let rejected = |private_data| Error::Rejected {
            reason: RejectReason::CONSUMER,
            private_data,
        };
        let no_text = rejected(private_data);
        assert!(no_text.to_string().ends_with("28 (by its program)"));
        let shown = format!("{no_text:?}");
        assert!(
            shown.ends_with(r#"private_data: b"not\ttoday" }"#),
            "{shown}"
        );
        let text = rejected(b"not today\0\0".to_vec()).to_string();
        assert!(text.ends_with(r#"(by its program): "not today""#), "{text}");
        let gone = WorkError::new(WorkStatus::RETRIES_EXCEEDED, 0, None);
        assert_eq!(io::Error::from(gone).kind(), io::ErrorKind::TimedOut);
    }
    /// The kind of each variant, and of each event and status that one distinguishes.
    #[test]
    fn each_error_has_its_kind() {
        use io::ErrorKind as Kind;
        let unexpected = |event| Error::Unexpected {
            expected: EventKind::Established,
            event,
            status: 0,
        };
        let system = |errno| Error::errno("ibv_create_cq", errno);
        let limit = std::time::Duration::ZERO;
        let rejected = Error::Rejected {
            reason: RejectReason::NO_LISTENER,
            private_data: Vec::new(),
        };
        let kinds = [
            (system(libc::EINVAL), Kind::InvalidInput),
            (system(libc::ENOMEM), Kind::OutOfMemory),
            (system(libc::EADDRINUSE), Kind::AddrInUse),
            (
                Error::NoSystemLibrary {
                    library: "libibverbs.so.1",
                    reason: String::new(),
                },
                Kind::NotFound,
            ),
            (
                Error::OutOfRange {
                    start: 1,
                    end: 3,
                    length: 2,
                },
                Kind::InvalidInput,
            ),
            (Error::Unaligned { start: 1 }, Kind::InvalidInput),
            (Error::Misuse("wrong"), Kind::InvalidInput),
            (
                Error::Limit {
                    object: "pool",
                    what: "bytes",
                    asked: 2,
                    limit: 1,
                },
                Kind::InvalidInput,
            ),
            (rejected, Kind::ConnectionRefused),
            (Error::Protocol("no stream"), Kind::InvalidData),
            (
                Error::TimedOut {
                    what: "a peer",
                    limit,
                    unserved: false,
                },
                Kind::TimedOut,
            ),
            (unexpected(EventKind::AddressError), Kind::AddrNotAvailable),
            (unexpected(EventKind::RouteError), Kind::AddrNotAvailable),
            (unexpected(EventKind::Unreachable), Kind::HostUnreachable),
            (unexpected(EventKind::Disconnected), Kind::ConnectionReset),
            (unexpected(EventKind::DeviceRemoval), Kind::ConnectionReset),
        ];
        for (error, kind) in kinds {
            assert_eq!(error.kind(), kind, "{error}");
        }
    }

    #[test]
    fn failed_work_has_its_kind() {
        use io::ErrorKind as Kind;
        let kinds = [
            (WorkStatus::RETRIES_EXCEEDED, Kind::TimedOut),
            (WorkStatus::RECEIVER_NOT_READY, Kind::TimedOut),
            (WorkStatus::RESPONSE_TIMEOUT, Kind::TimedOut),
            (WorkStatus::LOCAL_PROTECTION, Kind::PermissionDenied),
            (WorkStatus::LOCAL_ACCESS, Kind::PermissionDenied),
            (WorkStatus::REMOTE_ACCESS, Kind::PermissionDenied),
            (WorkStatus::WINDOW_BIND, Kind::PermissionDenied),
            (WorkStatus::LOCAL_LENGTH, Kind::InvalidInput),
            (WorkStatus::LOCAL_OPERATION, Kind::InvalidInput),
            (WorkStatus::REMOTE_INVALID_REQUEST, Kind::InvalidInput),
            (WorkStatus::FLUSHED, Kind::ConnectionReset),
            (WorkStatus(999), Kind::Other),
        ];
        for (status, kind) in kinds {
            let error = Error::Work(WorkError::new(status, 0, None));
            assert_eq!(error.kind(), kind, "{error}");
        }
    }
}
