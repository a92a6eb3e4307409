//! Inputs of a step of the state machine that come from its owner.

use super::Rendezvous;
use crate::ids::{Key, PdId, Srqn};
use crate::iwarp::SegmentWay;
use crate::iwarp::ddp::Header;
use crate::mr::{Memory, Piece, Rights};
use crate::time::Time;
use crate::verbs::{QpEvent, RecvWr, Wc};

/// Where a queue pair's results go.
pub trait Sink {
    /// A completion for the send queue's CQ. Returns false when that CQ overflowed; the queue pair
    /// then goes to ERR.
    fn send_completion(&mut self, wc: Wc, solicited: bool) -> bool;
    /// A completion for the receive queue's CQ. Returns false when that CQ overflowed.
    fn recv_completion(&mut self, wc: Wc, solicited: bool) -> bool;
    /// An asynchronous event.
    fn event(&mut self, event: QpEvent);
    /// Copies the bytes of a peer's rendezvous into memory of this process, of the same length.
    /// Returns whether all of it was there, and the rendezvous was valid until the copy was done.
    /// If not, a part of it may have been copied.
    fn fetch(&mut self, rendezvous: &Rendezvous, to: &[Piece<'_>]) -> bool {
        let _ = (rendezvous, to);
        false
    }

    /// The queue pair has failed and its work is about to be flushed. Then its program may use the
    /// memory of that work for something else. When this returns, no peer of this host begins to
    /// use what was granted or is to be fetched. A peer that is fetching finds out.
    fn end_grant(&mut self) {}
    /// A peer's SEND has taken this key of a window back, which only that peer used.
    fn invalidated(&mut self, key: Key) {
        let _ = key;
    }

    /// An incident to count.
    fn note(&mut self, what: Noted) {
        let _ = what;
    }

    /// The peer has had no receive for a SEND for a second or more, and is asked on. Told once for
    /// each such wait.
    fn waits_for_receiver(&mut self) {}

    /// A segment over iWARP has come, or is packed, with `payload` bytes. Told where
    /// [`IwQp::watch_segments`](crate::iwarp::IwQp::watch_segments) asked for it.
    fn segment(&mut self, way: SegmentWay, header: &Header, payload: usize) {
        let _ = (way, header, payload);
    }

    /// Takes a receive work request from the shared receive queue, if the queue pair has one and it
    /// is not empty. A queue pair that finds it empty and waits is told by
    /// [`RcQp::on_recv_available`](super::RcQp::on_recv_available) when that changes.
    fn take_shared_recv(&mut self) -> Option<SharedRecv> {
        None
    }

    /// The protection domain of an XRC shared receive queue, if the queue pair's XRC domain has one
    /// with this number.
    fn xrc_srq(&mut self, srq: Srqn) -> Option<PdId> {
        let _ = srq;
        None
    }

    /// As [`take_shared_recv`](Self::take_shared_recv), from an XRC shared receive queue.
    fn take_xrc_recv(&mut self, srq: Srqn) -> Taken {
        let _ = srq;
        Taken::Empty
    }

    /// A completion for the CQ of an XRC shared receive queue; nobody gets it if the queue is gone.
    /// Returns false when that CQ overflowed.
    fn xrc_completion(&mut self, srq: Srqn, wc: Wc, solicited: bool) -> bool {
        let _ = (srq, wc, solicited);
        true
    }
}

/// Incidents in queue pairs' work that devices count, besides packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Noted {
    /// A SEND of any kind is done: it was acknowledged, or handed out where nobody acknowledges.
    Sent,
    /// A SEND of any kind was received.
    Received,
    /// A request came that had been taken before.
    DuplicateRequest,
    /// A request came while an earlier one was missing.
    OutOfSequenceRequest,
    /// A receiver-not-ready NAK went out.
    NotReadySent,
    /// A receiver-not-ready NAK came.
    NotReadyHeard,
    /// A NAK came that says that a request is missing.
    SequenceErrorHeard,
    /// Requests were sent again since an answer did not come in time.
    Resent,
    /// A work request failed since no answer came however often it was sent.
    RetryExceeded,
    /// A work request failed since the receiver was not ready however often it was asked.
    NotReadyExceeded,
}

impl Noted {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Sent,
        Self::Received,
        Self::DuplicateRequest,
        Self::OutOfSequenceRequest,
        Self::NotReadySent,
        Self::NotReadyHeard,
        Self::SequenceErrorHeard,
        Self::Resent,
        Self::RetryExceeded,
        Self::NotReadyExceeded,
    ];
}

/// Answer of an XRC shared receive queue that is asked for a receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A receive work request.
    Recv(SharedRecv),
    /// None now.
    Empty,
    /// The queue's owner is asked; [`RcQp::on_recv_answer`](super::RcQp::on_recv_answer) tells what
    /// it said.
    Asked,
}

impl From<Option<SharedRecv>> for Taken {
    fn from(taken: Option<SharedRecv>) -> Self {
        taken.map_or(Self::Empty, Self::Recv)
    }
}

/// A receive work request from a shared receive queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRecv {
    /// The work request.
    pub wr: RecvWr,
    /// The queue's protection domain, to which the keys of the work request belong; it may differ
    /// from the queue pair's.
    pub pd: PdId,
}

/// Inputs of every step: the time, the rights, the memory and the sink.
pub struct Cx<'a> {
    /// Now.
    pub now: Time,
    /// Rights of this process, borrowed for the step.
    pub rights: &'a Rights,
    /// Memory behind the rights.
    pub memory: &'a dyn Memory,
    /// Results.
    pub sink: &'a mut dyn Sink,
}

/// Inputs of local operations. They change the rights, so they have the table alone.
pub struct LocalCx<'a> {
    /// Now.
    pub now: Time,
    /// Rights of this process.
    pub rights: &'a mut Rights,
    /// Memory behind the rights.
    pub memory: &'a dyn Memory,
    /// Results.
    pub sink: &'a mut dyn Sink,
}

impl LocalCx<'_> {
    /// Returns the context that all other steps need.
    pub fn shared(&mut self) -> Cx<'_> {
        Cx {
            now: self.now,
            rights: self.rights,
            memory: self.memory,
            sink: self.sink,
        }
    }
}

impl core::fmt::Debug for Cx<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cx")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

impl core::fmt::Debug for LocalCx<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LocalCx")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}
