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

/// `enum ibv_wc_status`, for work that failed (`ibv_poll_cq(3)`; IBTA 1.7, 11.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkStatus(pub u32);

impl WorkStatus {
    /// The names of `enum ibv_wc_status` without their prefix, by number.
    const NAMES: [&str; 24] = [
        "SUCCESS",
        "LOC_LEN_ERR",
        "LOC_QP_OP_ERR",
        "LOC_EEC_OP_ERR",
        "LOC_PROT_ERR",
        "WR_FLUSH_ERR",
        "MW_BIND_ERR",
        "BAD_RESP_ERR",
        "LOC_ACCESS_ERR",
        "REM_INV_REQ_ERR",
        "REM_ACCESS_ERR",
        "REM_OP_ERR",
        "RETRY_EXC_ERR",
        "RNR_RETRY_EXC_ERR",
        "LOC_RDD_VIOL_ERR",
        "REM_INV_RD_REQ_ERR",
        "REM_ABORT_ERR",
        "INV_EECN_ERR",
        "INV_EEC_STATE_ERR",
        "FATAL_ERR",
        "RESP_TIMEOUT_ERR",
        "GENERAL_ERR",
        "TM_ERR",
        "TM_RNDV_INCOMPLETE",
    ];

    /// What may be done about it, by number; nothing where the name says it all.
    const MEANING: [&str; 15] = [
        "",
        "a message is longer than the receive, or than the device allows",
        "the queue pair cannot carry out such work",
        "",
        "a local key does not allow this: was its region dropped, or is it without the access?",
        "not begun: work before it failed, or the connection ended",
        "the window or the region does not allow this bind",
        "the peer's answer breaks the protocol",
        "a local key does not allow what a peer's message did",
        "the peer's device does not allow the request: check the length of its receive, and its rights",
        "the peer's key does not allow this: check key, address and length, and the rights that its program gave",
        "the peer could not finish the request: its own completion tells why",
        "no answer from the peer: it is gone, in another state than RTR and RTS, or unreachable",
        "the peer's program has no receive posted, and rnr_retry_count ran out",
        "",
    ];

    /// What may be done about it, in brackets.
    fn meaning(self) -> String {
        let meaning = usize::try_from(self.0).ok();
        match meaning.and_then(|number| Self::MEANING.get(number)) {
            Some(meaning) if !meaning.is_empty() => format!(" ({meaning})"),
            _ => String::new(),
        }
    }

    /// A message is longer than the receive, or than the device allows (`LOC_LEN_ERR`).
    pub const LOCAL_LENGTH: Self = Self(1);
    /// The queue pair cannot carry out such work (`LOC_QP_OP_ERR`).
    pub const LOCAL_OPERATION: Self = Self(2);
    /// A local key does not allow this (`LOC_PROT_ERR`).
    pub const LOCAL_PROTECTION: Self = Self(4);
    /// Flushed: an earlier error or a disconnect ended it before it began (`WR_FLUSH_ERR`).
    pub const FLUSHED: Self = Self(5);
    /// The window or the region does not allow this bind (`MW_BIND_ERR`).
    pub const WINDOW_BIND: Self = Self(6);
    /// The peer's answer breaks the protocol (`BAD_RESP_ERR`).
    pub const BAD_RESPONSE: Self = Self(7);
    /// A local key does not allow what a peer's message did (`LOC_ACCESS_ERR`).
    pub const LOCAL_ACCESS: Self = Self(8);
    /// The peer's device does not allow the request (`REM_INV_REQ_ERR`).
    pub const REMOTE_INVALID_REQUEST: Self = Self(9);
    /// The peer's key does not allow this (`REM_ACCESS_ERR`).
    pub const REMOTE_ACCESS: Self = Self(10);
    /// The peer could not finish the request (`REM_OP_ERR`).
    pub const REMOTE_OPERATION: Self = Self(11);
    /// No answer from the peer (`RETRY_EXC_ERR`).
    pub const RETRIES_EXCEEDED: Self = Self(12);
    /// The peer has no receive posted, and the retries ran out (`RNR_RETRY_EXC_ERR`).
    pub const RECEIVER_NOT_READY: Self = Self(13);
    /// The peer ended the operation (`REM_ABORT_ERR`).
    pub const REMOTE_ABORTED: Self = Self(16);
    /// The device failed (`FATAL_ERR`).
    pub const FATAL: Self = Self(19);
    /// The peer's answer took too long (`RESP_TIMEOUT_ERR`).
    pub const RESPONSE_TIMEOUT: Self = Self(20);
    /// Something else (`GENERAL_ERR`).
    pub const GENERAL: Self = Self(21);
}

impl fmt::Display for WorkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match usize::try_from(self.0)
            .ok()
            .and_then(|number| Self::NAMES.get(number))
        {
            Some(name) => write!(f, "IBV_WC_{name}"),
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
            (c::IBV_WC_GENERAL_ERR, WorkStatus::GENERAL),
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
