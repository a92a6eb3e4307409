//! Why work failed.

use std::{fmt, io};

/// Why work failed. The queue pair is in the error state from then on.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::cq::WorkStatus;
/// use ferroce::mem::{Access, MemoryRegion};
/// use ferroce::qp::Operation;
/// let pair = pair()?;
/// // The peer opened this for reading only.
/// let theirs = MemoryRegion::new(&pair.domain, 64, Access::RemoteRead)?;
/// pair.near.post_inline(1, Operation::Write(theirs.remote().at(0)), b"hello")?;
/// let error = pair.completions.wait()?.result.unwrap_err();
/// assert_eq!(error.status, WorkStatus::REMOTE_ACCESS);
/// // All that is posted afterwards is flushed, and tells the same cause.
/// pair.near.post_inline(2, Operation::Send, b"too late")?;
/// let flushed = pair.completions.wait()?.result.unwrap_err();
/// assert_eq!(flushed.status, WorkStatus::FLUSHED);
/// eprintln!("{flushed}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}{}{}{}", status.meaning(), Detail(*detail), Cause(*cause))]
#[non_exhaustive]
pub struct WorkError {
    /// The reason.
    pub status: WorkStatus,
    /// The device's own code for the cause (`vendor_err`).
    pub detail: u32,
    /// Of work that was [flushed](WorkStatus::FLUSHED): the work of its queue pair that failed
    /// first, if that has come to a completion queue before. Otherwise the connection ended, or the
    /// program flushed the queue pair.
    pub cause: Option<FirstFailure>,
}

impl WorkError {
    pub(crate) fn new(status: WorkStatus, detail: u32, cause: Option<FirstFailure>) -> Self {
        Self {
            status,
            detail,
            cause,
        }
    }

    /// What kind of error it is, in the words of [`std::io`]: `TimedOut` where the peer did not
    /// answer or was not ready, `PermissionDenied` where a key does not allow the work,
    /// `InvalidInput` where the work itself is wrong, `ConnectionReset` for what was flushed,
    /// `Other` for the rest.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self.status {
            WorkStatus::RETRIES_EXCEEDED
            | WorkStatus::RECEIVER_NOT_READY
            | WorkStatus::RESPONSE_TIMEOUT => io::ErrorKind::TimedOut,
            WorkStatus::LOCAL_PROTECTION
            | WorkStatus::LOCAL_ACCESS
            | WorkStatus::REMOTE_ACCESS
            | WorkStatus::WINDOW_BIND => io::ErrorKind::PermissionDenied,
            WorkStatus::LOCAL_LENGTH
            | WorkStatus::LOCAL_OPERATION
            | WorkStatus::REMOTE_INVALID_REQUEST => io::ErrorKind::InvalidInput,
            WorkStatus::FLUSHED => io::ErrorKind::ConnectionReset,
            _ => io::ErrorKind::Other,
        }
    }
}

/// The first failure of a queue pair: what ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FirstFailure {
    /// The reason.
    pub status: WorkStatus,
    /// The device's own code (`vendor_err`).
    pub detail: u32,
}

impl fmt::Display for FirstFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, detail } = *self;
        write!(f, "{status}{}{}", status.meaning(), Detail(detail))
    }
}

/// What failed before, if that is known.
struct Cause(Option<FirstFailure>);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(first) => write!(f, "; what failed first: {first}"),
            None => Ok(()),
        }
    }
}

/// The device's own code, where it gave one.
struct Detail(u32);

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            code => write!(f, ", the device's code {code:#x}"),
        }
    }
}

/// `enum ibv_wc_status`, for work that failed (`ibv_poll_cq(3)`; IBTA 1.7, 11.6.2). A device may
/// give numbers that have no name here.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkStatus(pub u32);

/// Makes the statuses of one list: name, number, C's name without its prefix, what it says, and
/// what may be done about it, which is empty where the name says it all.
macro_rules! statuses {
    ($($name:ident = $number:literal, $in_c:literal, $says:literal, $meaning:literal;)*) => {
        impl WorkStatus {
            $(
                #[doc = concat!($says, " (`", $in_c, "`).")]
                pub const $name: Self = Self($number);
            )*

            /// C's name without its prefix, and what may be done about it.
            const fn words(self) -> Option<(&'static str, &'static str)> {
                Some(match self.0 {
                    0 => ("SUCCESS", ""),
                    $($number => ($in_c, $meaning),)*
                    _ => return None,
                })
            }
        }
    };
}

statuses! {
    LOCAL_LENGTH = 1, "LOC_LEN_ERR",
        "A message is longer than the receive, or than the device allows",
        "a message is longer than the receive, or than the device allows";
    LOCAL_OPERATION = 2, "LOC_QP_OP_ERR",
        "The queue pair cannot carry out such work",
        "the queue pair cannot carry out such work";
    LOCAL_EE_CONTEXT = 3, "LOC_EEC_OP_ERR",
        "Of reliable datagrams: the end-to-end context cannot carry out such work",
        "";
    LOCAL_PROTECTION = 4, "LOC_PROT_ERR",
        "A local key does not allow this",
        "a local key does not allow this: was its region dropped, or is it without the access?";
    FLUSHED = 5, "WR_FLUSH_ERR",
        "Flushed: an earlier error or a disconnect ended it before it began",
        "not begun: work before it failed, or the connection ended";
    WINDOW_BIND = 6, "MW_BIND_ERR",
        "The window or the region does not allow this bind",
        "the window or the region does not allow this bind";
    BAD_RESPONSE = 7, "BAD_RESP_ERR",
        "The peer's answer breaks the protocol",
        "the peer's answer breaks the protocol";
    LOCAL_ACCESS = 8, "LOC_ACCESS_ERR",
        "A local key does not allow what a peer's message did",
        "a local key does not allow what a peer's message did";
    REMOTE_INVALID_REQUEST = 9, "REM_INV_REQ_ERR",
        "The peer's device does not allow the request",
        "the peer's device does not allow the request: check the length of its receive, and its \
         rights";
    REMOTE_ACCESS = 10, "REM_ACCESS_ERR",
        "The peer's key does not allow this",
        "the peer's key does not allow this: check key, address and length, and the rights that \
         its program gave";
    REMOTE_OPERATION = 11, "REM_OP_ERR",
        "The peer could not finish the request",
        "the peer could not finish the request: its own completion tells why";
    RETRIES_EXCEEDED = 12, "RETRY_EXC_ERR",
        "No answer from the peer",
        "no answer from the peer: it is gone, in another state than RTR and RTS, or unreachable";
    RECEIVER_NOT_READY = 13, "RNR_RETRY_EXC_ERR",
        "The peer has no receive posted, and the retries ran out",
        "the peer's program has no receive posted, and rnr_retry_count ran out";
    LOCAL_DATAGRAM_DOMAIN = 14, "LOC_RDD_VIOL_ERR",
        "Of reliable datagrams: queue pair and end-to-end context are of different domains",
        "";
    REMOTE_INVALID_DATAGRAM = 15, "REM_INV_RD_REQ_ERR",
        "Of reliable datagrams: the peer refused the message",
        "";
    REMOTE_ABORTED = 16, "REM_ABORT_ERR",
        "The peer ended the operation",
        "";
    INVALID_EE_CONTEXT = 17, "INV_EECN_ERR",
        "Of reliable datagrams: there is no end-to-end context of this number",
        "";
    EE_CONTEXT_STATE = 18, "INV_EEC_STATE_ERR",
        "Of reliable datagrams: the end-to-end context is in another state",
        "";
    FATAL = 19, "FATAL_ERR",
        "The device failed",
        "the device failed: it must be opened again";
    RESPONSE_TIMEOUT = 20, "RESP_TIMEOUT_ERR",
        "The peer's answer took too long",
        "";
    GENERAL = 21, "GENERAL_ERR",
        "Something else",
        "";
    TAG_MATCHING = 22, "TM_ERR",
        "Matching a message's tag failed",
        "matching a message's tag failed";
    TAG_MATCHING_RENDEZVOUS = 23, "TM_RNDV_INCOMPLETE",
        "A tag matched, and the program has to fetch the message itself",
        "a tag matched, and the program has to fetch the message itself";
}

impl WorkStatus {
    /// What may be done about it, in brackets.
    fn meaning(self) -> String {
        match self.words() {
            Some((_, meaning)) if !meaning.is_empty() => format!(" ({meaning})"),
            _ => String::new(),
        }
    }
}

impl fmt::Display for WorkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words() {
            Some((name, _)) => write!(f, "IBV_WC_{name}"),
            None => write!(f, "work completion status {}", self.0),
        }
    }
}

impl fmt::Debug for WorkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::{FirstFailure, WorkError, WorkStatus};
    use ferroce_abi::types as c;

    #[test]
    fn flushed_work_names_what_failed_first() {
        let error = WorkError {
            status: WorkStatus::FLUSHED,
            detail: 0,
            cause: Some(FirstFailure {
                status: WorkStatus::LOCAL_LENGTH,
                detail: 0,
            }),
        };
        let said = error.to_string();
        let (flushed, first) = said.split_once("; what failed first: ").unwrap();
        assert!(flushed.starts_with("IBV_WC_WR_FLUSH_ERR ("), "{said}");
        assert!(first.starts_with("IBV_WC_LOC_LEN_ERR (a message"), "{said}");
    }

    #[test]
    fn statuses_have_their_c_names() {
        for (number, status) in [
            (c::IBV_WC_LOC_LEN_ERR, WorkStatus::LOCAL_LENGTH),
            (c::IBV_WC_LOC_PROT_ERR, WorkStatus::LOCAL_PROTECTION),
            (c::IBV_WC_WR_FLUSH_ERR, WorkStatus::FLUSHED),
            (
                c::IBV_WC_REM_INV_REQ_ERR,
                WorkStatus::REMOTE_INVALID_REQUEST,
            ),
            (c::IBV_WC_REM_ACCESS_ERR, WorkStatus::REMOTE_ACCESS),
            (c::IBV_WC_RETRY_EXC_ERR, WorkStatus::RETRIES_EXCEEDED),
            (c::IBV_WC_RNR_RETRY_EXC_ERR, WorkStatus::RECEIVER_NOT_READY),
            (c::IBV_WC_LOC_EEC_OP_ERR, WorkStatus::LOCAL_EE_CONTEXT),
            (
                c::IBV_WC_LOC_RDD_VIOL_ERR,
                WorkStatus::LOCAL_DATAGRAM_DOMAIN,
            ),
            (
                c::IBV_WC_REM_INV_RD_REQ_ERR,
                WorkStatus::REMOTE_INVALID_DATAGRAM,
            ),
            (c::IBV_WC_INV_EECN_ERR, WorkStatus::INVALID_EE_CONTEXT),
            (c::IBV_WC_INV_EEC_STATE_ERR, WorkStatus::EE_CONTEXT_STATE),
            (c::IBV_WC_GENERAL_ERR, WorkStatus::GENERAL),
            (c::IBV_WC_TM_ERR, WorkStatus::TAG_MATCHING),
            (
                c::IBV_WC_TM_RNDV_INCOMPLETE,
                WorkStatus::TAG_MATCHING_RENDEZVOUS,
            ),
        ] {
            assert_eq!(WorkStatus(number), status);
        }
        assert_eq!(
            WorkStatus(c::IBV_WC_REM_ACCESS_ERR).to_string(),
            "IBV_WC_REM_ACCESS_ERR"
        );
        assert_eq!(
            WorkStatus(c::IBV_WC_TM_RNDV_INCOMPLETE).to_string(),
            "IBV_WC_TM_RNDV_INCOMPLETE"
        );
        assert_eq!(WorkStatus(99).to_string(), "work completion status 99");
    }

    #[test]
    fn every_status_of_c_has_a_name() {
        assert_eq!(WorkStatus(0).to_string(), "IBV_WC_SUCCESS");
        for number in 0..=c::IBV_WC_TM_RNDV_INCOMPLETE {
            let named = WorkStatus(number);
            assert!(named.words().is_some(), "{named}");
        }
        assert_eq!(WorkStatus(c::IBV_WC_TM_RNDV_INCOMPLETE + 1).words(), None);
    }

    #[test]
    fn errors_say_what_may_be_done() {
        for (status, says) in [
            (
                c::IBV_WC_REM_ACCESS_ERR,
                "IBV_WC_REM_ACCESS_ERR (the peer's key",
            ),
            (
                c::IBV_WC_RNR_RETRY_EXC_ERR,
                "IBV_WC_RNR_RETRY_EXC_ERR (the peer's program",
            ),
            (c::IBV_WC_RETRY_EXC_ERR, "IBV_WC_RETRY_EXC_ERR (no answer"),
            (c::IBV_WC_WR_FLUSH_ERR, "IBV_WC_WR_FLUSH_ERR (not begun"),
        ] {
            let status = WorkStatus(status);
            let (without, with) = (
                WorkError {
                    status,
                    detail: 0,
                    cause: None,
                },
                WorkError {
                    status,
                    detail: 16,
                    cause: None,
                },
            );
            assert!(without.to_string().starts_with(says), "{without}");
            assert_eq!(
                with.to_string(),
                format!("{without}, the device's code 0x10")
            );
        }
    }
}
