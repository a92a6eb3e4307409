//! Whose keys and receives a request uses: RC has those of the queue pair, XRC those of the shared
//! receive queue that each packet names.

use super::config::QpShared;
use super::fault::Reject;
use super::responder::Stop;
use super::{Cx, SharedRecv, Taken};
use crate::ids::{PdId, Srqn};
use crate::mr::Accessor;
use crate::verbs::{RecvWr, Wc};
use crate::wire::Packet;

/// Protection domain and receives that a request packet works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Keys of this protection domain open memory.
    pd: PdId,
    /// XRC: receives come from this queue.
    srq: Option<Srqn>,
}

/// A receive work request that was taken for the message in work.
#[derive(Debug)]
pub(crate) struct HeldReceive {
    pub(super) wr: RecvWr,
    /// Protection domain of its keys.
    pub(super) pd: PdId,
    /// XRC: the queue that it came from, whose CQ gets the completion.
    srq: Option<Srqn>,
}

impl Target {
    /// The target of a packet of the queue pair's service. An XRC shared receive queue that does
    /// not exist in the queue pair's domain makes it an invalid request.
    pub(super) fn of(
        shared: &QpShared,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
    ) -> Result<Self, Reject> {
        let Some(srq) = packet.ext.xrceth else {
            return Ok(Self::of_pd(shared.config.pd));
        };
        let pd = cx.sink.xrc_srq(srq);
        Ok(Self {
            pd: pd.ok_or_else(|| Reject::invalid(packet.bth.psn))?,
            srq: Some(srq),
        })
    }

    /// Target of an RC queue pair.
    pub(super) const fn of_pd(pd: PdId) -> Self {
        Self { pd, srq: None }
    }

    /// The accessor that opens memory for it.
    pub(super) fn accessor(self, shared: &QpShared) -> Accessor {
        Accessor {
            pd: self.pd,
            ..shared.accessor()
        }
    }

    /// Takes a receive work request from the shared receive queue that this target has, by itself
    /// or through the queue pair.
    pub(super) fn take_shared(self, cx: &mut Cx<'_>) -> Result<HeldReceive, Stop> {
        let taken = match self.srq {
            None => cx.sink.take_shared_recv().into(),
            Some(srq) => cx.sink.take_xrc_recv(srq),
        };
        match taken {
            Taken::Recv(SharedRecv { wr, pd }) => Ok(HeldReceive {
                wr,
                pd,
                srq: self.srq,
            }),
            Taken::Empty => Err(Stop::NotReady),
            Taken::Asked => Err(Stop::Asked),
        }
    }
}

impl HeldReceive {
    /// A receive from the queue pair's own receive queue.
    pub(super) const fn own(wr: RecvWr, target: Target) -> Self {
        Self {
            wr,
            pd: target.pd,
            srq: None,
        }
    }

    /// Hands its completion over. Returns false if the CQ overflowed.
    pub(super) fn complete(&self, cx: &mut Cx<'_>, wc: Wc, solicited: bool) -> bool {
        match self.srq {
            None => cx.sink.recv_completion(wc, solicited),
            Some(srq) => cx.sink.xrc_completion(srq, wc, solicited),
        }
    }
}
