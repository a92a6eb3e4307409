//! A reliable queue pair's part of what may be in flight to a process over the wire: see
//! [`Budget`](ferroce_proto::rc::Budget).

use std::sync::Arc;

use ferroce_proto::ids::Qpn;
use ferroce_proto::rc::{RcQp, Stake};
use ferroce_proto::time::Time;

use super::Qp;
use super::locked::Locked;
use super::transport::Transport;
use crate::base::sync::lock;
use crate::services::budgets::Account;

/// What a queue pair has in the account of its peer's process.
#[derive(Debug)]
pub(super) struct QpShare {
    account: Arc<Account>,
    stake: Stake,
}

impl Qp {
    /// The path has changed: the queue pair leaves the account that it was in, and enters that of
    /// the process at the end of the new path, if that leads over the wire.
    pub(super) fn change_account(&self, locked: &mut Locked) {
        if let Some(mut share) = locked.share.take() {
            let called = lock(&share.account).leave(&mut share.stake);
            self.call(called);
        }
        let Some(path) = &locked.path else {
            return;
        };
        if let (Transport::Rc(_), Some(together)) = (&locked.transport, path.together) {
            let dest = locked.transport.dest();
            locked.share = Some(Box::new(QpShare {
                account: self.services().budgets.to(path.addressing.dst, dest),
                stake: Stake::new(self.qpn, together),
            }));
        }
    }

    /// Before it transmits: bounds what it may have in flight by its share.
    /// [`settle_share`](Self::settle_share) follows.
    pub(super) fn take_share(locked: &mut Locked, now: Time) {
        let Some((rc, share)) = shared(locked) else {
            return;
        };
        rc.set_allowance(u64::MAX);
        let in_flight = rc.in_flight();
        let more = if rc.wants_request() {
            lock(&share.account).ask(&mut share.stake, in_flight, now)
        } else {
            0
        };
        rc.set_allowance(in_flight + more);
    }

    /// Called after it has transmitted: a queue pair that waits for what this one does not use is
    /// called.
    pub(super) fn settle_share(&self, locked: &mut Locked, now: Time) {
        let Some((rc, share)) = shared(locked) else {
            return;
        };
        rc.set_allowance(u64::MAX);
        let in_flight = rc.in_flight();
        if in_flight == 0 && share.stake.is_idle() {
            return;
        }
        let wants = rc.wants_request();
        let called = lock(&share.account).settle(&mut share.stake, in_flight, wants, now);
        self.call(called);
    }

    fn call(&self, called: Option<Qpn>) {
        if let Some(qp) = called.and_then(|qpn| self.services().qps.find(qpn)) {
            self.services().push_ready(qp);
        }
    }
}

fn shared(locked: &mut Locked) -> Option<(&mut RcQp, &mut QpShare)> {
    match (&mut locked.transport, &mut locked.share) {
        (Transport::Rc(rc), Some(share)) => Some((rc, share)),
        _ => None,
    }
}
