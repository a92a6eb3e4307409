//! Why work failed.

use std::fmt;

/// Why work failed. The queue pair is in the error state from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}")]
pub struct WorkError {
    /// The reason.
    pub status: WorkStatus,
    /// The device's own code for the cause (`vendor_err`).
    pub detail: u32,
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
    use super::WorkStatus;
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
}
