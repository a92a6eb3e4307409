//! States of queue pairs.

use std::fmt;

use ferroce_abi::types::{
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE,
};

/// State of a queue pair (`enum ibv_qp_state`; IBTA 1.7, 10.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueuePairState {
    /// New, or reset: nothing can be posted.
    Reset,
    /// Receives can be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send, too.
    Rts,
    /// The send queue is being drained, or is drained.
    Sqd,
    /// The send queue has failed; of unreliable transports only.
    Sqe,
    /// Failed, or disconnected: all work is flushed.
    Err,
    /// One that this crate does not know, by its number in C.
    Other(u32),
}

impl QueuePairState {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Reset => IBV_QPS_RESET,
            Self::Init => IBV_QPS_INIT,
            Self::Rtr => IBV_QPS_RTR,
            Self::Rts => IBV_QPS_RTS,
            Self::Sqd => IBV_QPS_SQD,
            Self::Sqe => IBV_QPS_SQE,
            Self::Err => IBV_QPS_ERR,
            Self::Other(number) => number,
        }
    }

    pub(crate) fn from_c(number: u32) -> Self {
        match number {
            IBV_QPS_RESET => Self::Reset,
            IBV_QPS_INIT => Self::Init,
            IBV_QPS_RTR => Self::Rtr,
            IBV_QPS_RTS => Self::Rts,
            IBV_QPS_SQD => Self::Sqd,
            IBV_QPS_SQE => Self::Sqe,
            IBV_QPS_ERR => Self::Err,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for QueuePairState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
            Self::Other(number) => return f.pad(&number.to_string()),
        })
    }
}
