//! What the leading process and the workers say to each other.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::bench::measured::{Lost, Measured};
use crate::bench::task::Task;
use crate::connection::Outcome;

/// A message to a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Be the passive side: answer [`WorkerReply::Ready`], and serve until
    /// [`Finish`](Self::Finish).
    Prepare(Task),
    /// Be the active side of what another worker is ready for: answer [`WorkerReply::Measured`].
    Run(Task, Meeting),
    /// The active side is through: answer [`WorkerReply::Served`].
    Finish {
        /// Number of operations that it has done in all.
        operations: u64,
    },
}

/// A message from a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WorkerReply {
    /// The active side may begin.
    Ready(Meeting),
    /// What the active side measured.
    Measured(Measured),
    /// What arrived is right.
    Served(Served),
    /// The measurement failed, for this reason.
    Failed(String),
}

/// What the passive side has to say.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Served {
    /// Its measurement, where that counts.
    pub(crate) measured: Option<Measured>,
    /// What has not arrived, where that may happen.
    pub(crate) lost: Option<Lost>,
}

/// Where the passive side is.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Meeting {
    /// Where the worker listens.
    pub(crate) address: Option<SocketAddr>,
    /// Process ID of the worker.
    pub(crate) process: i32,
    /// Address of its memory.
    pub(crate) memory: usize,
}

impl Meeting {
    /// Returns the address that the worker listens on.
    pub(crate) fn address(self) -> Outcome<SocketAddr> {
        self.address
            .ok_or_else(|| "the passive side does not listen".into())
    }
}
