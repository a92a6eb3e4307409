//! What queue pairs do, on which way, and what of it is measured.

use serde::{Deserialize, Serialize};

/// The way that the queue pairs of a measurement take (`FERROCE_PATH`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Path {
    /// Within the host.
    Local,
    /// `RoCEv2` over UDP.
    Wire,
    /// The wire with authenticated packets (`FERROCE_KEY_FILE`).
    Keyed,
}

impl Path {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Local, Self::Wire, Self::Keyed];

    /// The value of `FERROCE_PATH`.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Wire | Self::Keyed => "wire",
        }
    }

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Wire => "wire",
            Self::Keyed => "keyed",
        }
    }
}

/// The transport of a measurement's queue pairs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Transport {
    /// Reliable connection: all operations.
    Rc,
    /// Unreliable connection: SEND and WRITE; what is lost is counted.
    Uc,
    /// Unreliable datagrams: SENDs of one packet; what is lost is counted.
    Ud,
}

impl Transport {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        }
    }

    /// Whether it has an operation.
    pub(crate) fn has(self, verb: Verb) -> bool {
        match self {
            Self::Rc => true,
            Self::Uc => verb.is_one_way(),
            Self::Ud => verb == Verb::Send,
        }
    }

    /// Whether messages may get lost.
    pub(crate) fn may_lose(self) -> bool {
        self != Self::Rc
    }
}

/// An operation of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verb {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate, of which the peer is told by a receive.
    WriteImmediate,
    /// RDMA READ.
    Read,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
}

impl Verb {
    /// All of them.
    pub(crate) const ALL: [Self; 6] = [
        Self::Send,
        Self::Write,
        Self::WriteImmediate,
        Self::Read,
        Self::CompareSwap,
        Self::FetchAdd,
    ];

    /// Atomics have 8 bytes.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether it brings bytes to the peer. (The others bring some back.)
    pub(crate) fn is_one_way(self) -> bool {
        matches!(self, Self::Send | Self::Write | Self::WriteImmediate)
    }

    /// Whether the peer is told of it by a receive.
    pub(crate) fn takes_receive(self) -> bool {
        matches!(self, Self::Send | Self::WriteImmediate)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::Write => "WRITE",
            Self::WriteImmediate => "WRITE_IMM",
            Self::Read => "READ",
            Self::CompareSwap => "CAS",
            Self::FetchAdd => "FETCH_ADD",
        }
    }
}

/// What is measured of an operation: one at a time, or a window of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Time of one: half a round trip for SEND, WRITE (with and without immediate) and the bare
    /// pings, from post to completion for READ and atomics.
    Latency,
    /// A window of them under way: bandwidth and message rate.
    Stream,
}

impl Kind {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Stream => "stream",
        }
    }
}

/// What both sides do until something comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Waiting {
    /// Both sides poll.
    #[default]
    Polling,
    /// Both sides sleep: in `ibv_get_cq_event` or a call of the kernel.
    Asleep,
}

impl Waiting {
    /// What is measured: sleepers have one message under way.
    pub(crate) fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Polling => &[Kind::Latency, Kind::Stream],
            Self::Asleep => &[Kind::Latency],
        }
    }

    /// Whether an operation is measured: nobody is woken by a WRITE.
    pub(crate) fn has(self, verb: Verb) -> bool {
        self == Self::Polling || verb != Verb::Write
    }
}
