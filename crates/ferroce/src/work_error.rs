//! Why work failed.

use std::fmt;

/// Why work failed. The queue pair is in the error state from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}{}{}", status.meaning(), Detail(*detail))]
pub struct WorkError {
    /// The reason.
    pub status: WorkStatus,
    /// The device's own code for the cause (`vendor_err`).
    pub detail: u32,
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

    /// Flushed: an earlier error or a disconnect ended it before it began.
    pub const FLUSHED: Self = Self(5);
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
    use super::{WorkError, WorkStatus};
    use ferroce_abi::types as c;

    #[test]
    fn statuses_have_their_c_names() {
        assert_eq!(WorkStatus(c::IBV_WC_WR_FLUSH_ERR), WorkStatus::FLUSHED);
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
                WorkError { status, detail: 0 },
                WorkError { status, detail: 16 },
            );
            assert!(without.to_string().starts_with(says), "{without}");
            assert_eq!(
                with.to_string(),
                format!("{without}, the device's code 0x10")
            );
        }
    }
}
