//! The reliable connected transport: one [`RcQp`] is a queue pair with its requester, responder and completer.
//!
//! The owner (the device, or a test) drives it:
//! 1. inputs: [`modify`](RcQp::modify), [`post_send`](RcQp::post_send), [`post_recv`](RcQp::post_recv),
//!    [`on_packet`](RcQp::on_packet), [`on_deadline`](RcQp::on_deadline), [`on_dropped`](RcQp::on_dropped),
//!    [`on_peer_dead`](RcQp::on_peer_dead);
//! 2. after any input, outputs: completions and events went to the [`Cx`]'s sink; call
//!    [`poll_transmit`](RcQp::poll_transmit) until it says there is nothing (or the link is full: keep
//!    [`wants_transmit`](RcQp::wants_transmit) in mind), then take [`deadline`](RcQp::deadline).

use alloc::vec::Vec;

use crate::ids::{PdId, Qpn};
use crate::mr::{Memory, Rights};
use crate::time::Time;
use crate::verbs::{AttrMask, PostError, QpAttr, QpCap, QpEvent, QpState, RecvWr, SendWr, Wc};
use crate::wire::Packet;

/// Where a queue pair's results go.
pub trait Sink {
    /// A completion for the send queue's CQ. Returns false when that CQ overflowed; the queue pair then goes to ERR.
    fn send_completion(&mut self, wc: Wc, solicited: bool) -> bool;
    /// A completion for the receive queue's CQ. Returns false when that CQ overflowed.
    fn recv_completion(&mut self, wc: Wc, solicited: bool) -> bool;
    /// An asynchronous event.
    fn event(&mut self, event: QpEvent);
    /// Takes a receive work request from the shared receive queue, if the queue pair has one and it is not empty.
    fn take_shared_recv(&mut self) -> Option<RecvWr> {
        None
    }
}

/// What every step needs: the time, the rights, the memory and the sink.
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

/// What kind of link the path runs over; set by the device before the move to RTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTraits {
    /// The link delivers everything in order or tells ([`RcQp::on_dropped`], [`RcQp::on_peer_dead`]). The local ACK timer
    /// then runs only after such a word, so a peer that is stopped or slow never costs a retry (design D7).
    pub lossless: bool,
    /// Most payload bytes that may be unacknowledged at once (as requester), or asked for by READs.
    pub max_in_flight: u32,
}

/// Fixed properties of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct RcConfig {
    /// Own number.
    pub qpn: Qpn,
    /// Protection domain.
    pub pd: PdId,
    /// Capacities, already rounded to what is true.
    pub cap: QpCap,
    /// Every send work request is signalled.
    pub sq_sig_all: bool,
    /// Receives come from [`Sink::take_shared_recv`].
    pub shared_recv: bool,
}

/// Why `ibv_modify_qp` refused: each text names the attribute and the state (promise 7).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ModifyError {
    /// For a person.
    pub reason: alloc::string::String,
}

/// A reliable connected queue pair.
#[derive(Debug)]
pub struct RcQp {
    config: RcConfig,
    state: QpState,
}

impl RcQp {
    /// A queue pair in RESET.
    #[must_use]
    pub fn new(_config: RcConfig) -> Self {
        todo!()
    }
    /// Current state.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.state
    }
    /// Fixed properties.
    #[must_use]
    pub fn config(&self) -> &RcConfig {
        &self.config
    }
    /// Sets the traits of the path's link. Call it before the move to RTR and when the path changes.
    pub fn set_link(&mut self, _link: LinkTraits) {
        todo!()
    }
    /// `ibv_modify_qp`: checks the mask and the values against the state table, then applies them. Moving to ERR flushes,
    /// moving to RESET empties the queues.
    ///
    /// # Errors
    /// EINVAL with the reason; nothing was changed.
    pub fn modify(&mut self, _cx: &mut Cx<'_>, _attr: &QpAttr, _mask: AttrMask) -> Result<(), ModifyError> {
        todo!()
    }
    /// Current attributes (`ibv_query_qp`).
    #[must_use]
    pub fn query(&self) -> QpAttr {
        todo!()
    }
    /// Queues a send work request. In ERR it is accepted and flushed.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_send(&mut self, _cx: &mut Cx<'_>, _wr: SendWr) -> Result<(), PostError> {
        todo!()
    }
    /// Queues a receive work request. In ERR it is accepted and flushed.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_recv(&mut self, _cx: &mut Cx<'_>, _wr: RecvWr) -> Result<(), PostError> {
        todo!()
    }
    /// A shared receive queue that this queue pair uses got work requests (ends a receiver-not-ready wait early).
    pub fn on_recv_available(&mut self) {
        todo!()
    }
    /// A packet for this queue pair whose addresses, `P_Key` and ICRC were right. Returns whether the packet was taken; false
    /// means that it was dropped since the state does not allow it (a lossless link then tells the sender).
    pub fn on_packet(&mut self, _cx: &mut Cx<'_>, _packet: &Packet<'_>) -> bool {
        todo!()
    }
    /// Appends the next packet (BTH through pad) to `out`, if there is one and the window allows it.
    pub fn poll_transmit(&mut self, _cx: &mut Cx<'_>, _out: &mut Vec<u8>) -> bool {
        todo!()
    }
    /// Whether [`poll_transmit`](Self::poll_transmit) would produce a packet now.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        todo!()
    }
    /// When [`on_deadline`](Self::on_deadline) must be called, if ever.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        todo!()
    }
    /// The deadline has passed (calling it early does nothing).
    pub fn on_deadline(&mut self, _cx: &mut Cx<'_>) {
        todo!()
    }
    /// The lossless link says that the peer dropped a packet of ours (no such queue pair, or not ready): from here the local
    /// ACK timer runs as on a lossy link until there is progress.
    pub fn on_dropped(&mut self, _cx: &mut Cx<'_>) {
        todo!()
    }
    /// The lossless link says that the peer's process is gone: outstanding work fails with `RetryExcErr`, and so does work
    /// posted later.
    pub fn on_peer_dead(&mut self, _cx: &mut Cx<'_>) {
        todo!()
    }
}
