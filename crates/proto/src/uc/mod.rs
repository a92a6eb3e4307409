//! The unreliable connected transport: one [`UcQp`] is a queue pair whose messages go to one peer
//! and are not acknowledged. A message is done when its last packet was handed out; a message of
//! which a packet was lost vanishes.
//!
//! The owner drives it as it drives an [`RcQp`](crate::rc::RcQp), without timers.
//!
//! | module | holds |
//! |---|---|
//! | `send` | posted work to packets; how the send queue fails (SQE) |
//! | `receive` | packets to memory and completions: what `rc::execute` does, with losses in place of NAKs |
//! | `modify` | attributes |

mod modify;
mod receive;
mod send;

use crate::qp::migration;
use crate::rc::config::QpShared;
use crate::rc::fault::{Fault, SendFault};
use crate::rc::modify::set_migration;
use crate::rc::responder::Responder;
use crate::rc::{Cx, LinkTraits, LocalCx, RcConfig, post};
use crate::verbs::{PathMigState, PostError, QpEvent, QpState, RecvWr, SendOp, SendWr};

use send::Sends;

/// An unreliable connected queue pair.
#[derive(Debug)]
pub struct UcQp {
    shared: QpShared,
    sends: Sends,
    /// Receives, and the message in work.
    responder: Responder,
    /// The end of draining was reported since the move to SQD.
    drain_reported: bool,
}

impl UcQp {
    /// A queue pair in RESET.
    #[must_use]
    pub fn new(config: RcConfig) -> Self {
        Self {
            shared: QpShared::new(config),
            sends: Sends::default(),
            responder: Responder::default(),
            drain_reported: false,
        }
    }

    /// Current state.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.shared.attr.qp_state
    }

    /// Sets the traits of the path's link; they do not matter here, since nothing is waited for.
    pub fn set_link(&mut self, link: LinkTraits) {
        self.shared.link = link;
    }

    /// Queues a send work request. In SQE and ERR it is accepted and flushed.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_send(&mut self, cx: &mut Cx<'_>, wr: SendWr) -> Result<(), PostError> {
        check_send(&self.shared, &wr, self.sends.queued())?;
        self.sends.push(wr, &self.shared);
        if matches!(self.state(), QpState::Sqe | QpState::Err) {
            self.sends.flush(&self.shared, cx, None);
        }
        Ok(())
    }

    /// Whether all of these send work requests, one after the other, would be accepted now.
    ///
    /// # Errors
    /// Why the first that would not is refused.
    pub fn check_sends(&self, wrs: &[SendWr]) -> Result<(), PostError> {
        let queued = self.sends.queued();
        wrs.iter()
            .enumerate()
            .try_for_each(|(i, wr)| check_send(&self.shared, wr, queued + i))
    }

    /// Queues a receive work request. In ERR it is accepted and flushed.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_recv(&mut self, cx: &mut Cx<'_>, wr: RecvWr) -> Result<(), PostError> {
        post::check_recv(&self.shared, wr.sges.len(), self.responder.queued())?;
        self.responder.post(wr);
        if self.state() == QpState::Err {
            self.responder.flush(&self.shared, cx, None);
        }
        Ok(())
    }

    /// Whether local operations (bind, local invalidate) are due: [`run_local`](Self::run_local)
    /// must be called before [`poll_transmit`](Self::poll_transmit).
    #[must_use]
    pub fn wants_local(&self) -> bool {
        self.state() == QpState::Rts && self.sends.local_is_next()
    }

    /// As [`RcQp::next_local`](crate::rc::RcQp::next_local).
    #[must_use]
    pub fn next_local(&self) -> Option<SendOp> {
        self.sends.next_local().filter(|_| self.wants_local())
    }

    /// As [`RcQp::run_local`](crate::rc::RcQp::run_local).
    pub fn run_local(&mut self, cx: &mut LocalCx<'_>) {
        if self.wants_local() {
            let outcome = self.sends.run_one_local(&self.shared, cx);
            self.settle_send(&mut cx.shared(), outcome);
        }
    }

    /// As [`RcQp::is_armed`](crate::rc::RcQp::is_armed).
    #[must_use]
    pub fn is_armed(&self) -> bool {
        migration::is_armed(&self.shared.attr)
    }

    /// As [`RcQp::migrate`](crate::rc::RcQp::migrate). It never migrates by itself, since it does
    /// not learn that a path has failed.
    pub fn migrate(&mut self, cx: &mut Cx<'_>) {
        set_migration(&mut self.shared.attr, cx, PathMigState::Migrated);
    }

    /// A completion queue that it uses has overflowed, by whatever queue pair: goes to ERR, unless
    /// it is in RESET.
    pub fn on_cq_overflow(&mut self, cx: &mut Cx<'_>) {
        if !matches!(self.state(), QpState::Reset | QpState::Err) {
            self.settle_send(cx, Err(SendFault::CqOverflow));
        }
    }

    /// The one place where a failure of the send queue becomes completions and a state. The oldest
    /// work request fails, the others are flushed, and receiving goes on (SQE). Only an overflow of
    /// the CQ ends everything.
    fn settle_send(&mut self, cx: &mut Cx<'_>, outcome: Result<(), SendFault>) {
        match outcome {
            Ok(()) => {}
            Err(SendFault::Oldest(fault)) => {
                self.shared.attr.qp_state = QpState::Sqe;
                self.sends.flush(&self.shared, cx, Some(fault));
            }
            Err(SendFault::CqOverflow) => {
                cx.sink.event(QpEvent::Fatal);
                self.enter_error(cx, None);
            }
        }
    }

    /// Goes to ERR and flushes both queues; `recv` is how the receive in hand fails.
    fn enter_error(&mut self, cx: &mut Cx<'_>, recv: Option<Fault>) {
        let first_time = self.state() != QpState::Err;
        self.shared.attr.qp_state = QpState::Err;
        self.sends.flush(&self.shared, cx, None);
        self.responder.flush(&self.shared, cx, recv);
        if self.shared.config.shared_recv && first_time {
            cx.sink.event(QpEvent::LastWqeReached);
        }
    }

    /// Tells the program once that the send queue has drained after a move to SQD.
    fn report_drained(&mut self, cx: &mut Cx<'_>) {
        if self.state() == QpState::Sqd && !self.drain_reported && !self.sends.in_message() {
            self.drain_reported = true;
            if self.shared.attr.en_sqd_async_notify {
                cx.sink.event(QpEvent::SqDrained);
            }
        }
    }
}

/// Checks a send work request, with `queued` ones before it.
fn check_send(shared: &QpShared, wr: &SendWr, queued: usize) -> Result<(), PostError> {
    match wr.op {
        SendOp::Send
        | SendOp::SendImm(_)
        | SendOp::Write(_)
        | SendOp::WriteImm(..)
        | SendOp::LocalInvalidate(_)
        | SendOp::BindWindow(_) => post::check_send(shared, wr, queued),
        _ => Err(PostError::Invalid(
            "an unreliable connection has SEND and WRITE, with and without immediate: nothing could be answered",
        )),
    }
}
