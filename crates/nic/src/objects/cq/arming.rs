//! What a program asks for when it arms a completion queue (`ibv_req_notify_cq(3)`).
//!
//! Arming a queue that holds a completion raises an event at once. Programs rely on it: UCX drains
//! its events, arms, and does not poll again. perftest relies on the opposite: it takes an event,
//! arms, polls, and takes the next event for another completion (`ib_send_lat -e` fails where there
//! is an event without a completion). Adapters satisfy both: they keep the index of the last
//! completion that an event has told of (`last_notified_index` in the CQ context of mlx4 and mlx5).
//!
//! An event *repeats* another if it stands only for completions that an earlier event has told of.
//! On a channel of one queue, a repeated event is raised, and the poll that takes the last of those
//! completions takes the event back, unless the program has taken the event first. The queue is
//! armed then as if the program had polled before it armed. On a channel that several queues share,
//! no event is repeated: perftest 4.5 polls another queue than that of the event, and posts a SEND
//! for an event too many.

use ferroce_proto::verbs::{Wc, WcStatus};

use super::CompletionTimes;

/// A completion that no poll has returned.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) wc: Wc,
    pub(super) timestamps: CompletionTimes,
    /// The message asked for an event (`IBV_SEND_SOLICITED`).
    solicited: bool,
}

impl Queued {
    #[inline]
    pub(super) fn new(wc: Wc, timestamps: CompletionTimes, solicited: bool) -> Self {
        Self {
            wc,
            timestamps,
            solicited,
        }
    }
}

/// Completions that an armed queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Solicited,
    Any,
}

impl Kind {
    /// True if a completion is of this kind. A failed completion counts as solicited, as
    /// `ibv_req_notify_cq(3)` says.
    pub(super) fn includes(self, queued: &Queued) -> bool {
        self == Self::Any || queued.solicited || queued.wc.status != WcStatus::Success
    }
}

/// What the last arming asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Arming {
    /// Nothing, or its event has been raised.
    #[default]
    Idle,
    /// The next completion of this kind raises an event.
    Awaits(Kind),
    /// The event was raised at once, for completions of this kind of which an earlier event has
    /// told.
    Repeats(Kind),
}

impl Arming {
    /// What another arming asks for, with what is asked for already.
    pub(super) fn kind_with(self, solicited_only: bool) -> Kind {
        match self {
            Self::Awaits(Kind::Any) => Kind::Any,
            _ if solicited_only => Kind::Solicited,
            _ => Kind::Any,
        }
    }

    /// The arming, if a completion is of its kind; `Idle` otherwise.
    pub(super) fn of(self, queued: &Queued) -> Self {
        match self {
            Self::Awaits(kind) | Self::Repeats(kind) if kind.includes(queued) => self,
            _ => Self::Idle,
        }
    }
}
