//! The queues that a queue pair works with.

use std::sync::Arc;

use ferroce_proto::ids::Qpn;
use ferroce_proto::verbs::QpType;

use super::QpInit;
use crate::objects::xrc::Xrcd;
use crate::{Cq, Srq};

/// Which of them there are depends on the type of the queue pair.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Not for XRC targets.
    pub(super) send_cq: Option<Arc<Cq>>,
    /// Not for XRC.
    pub(super) recv_cq: Option<Arc<Cq>>,
    pub(super) srq: Option<Arc<Srq>>,
    /// XRC target: where packets find their shared receive queue.
    pub(super) xrcd: Option<Arc<Xrcd>>,
}

impl Queues {
    /// Queues of a queue pair that belongs to a protection domain.
    pub(super) fn of(init: QpInit) -> Self {
        let receives = init.qp_type != QpType::XrcSend;
        Self {
            send_cq: Some(init.send_cq),
            recv_cq: Some(init.recv_cq).filter(|_| receives),
            srq: init.srq.filter(|_| receives),
            xrcd: None,
        }
    }

    /// Returns the queues of an XRC target.
    pub(super) fn of_target(xrcd: Arc<Xrcd>) -> Self {
        Self {
            xrcd: Some(xrcd),
            ..Self::default()
        }
    }

    fn cqs(&self) -> impl Iterator<Item = &Arc<Cq>> {
        self.send_cq.iter().chain(&self.recv_cq)
    }

    /// Whether completions go to this queue.
    pub(super) fn complete_to(&self, cq: &Cq) -> bool {
        self.cqs().any(|own| std::ptr::eq(Arc::as_ptr(own), cq))
    }

    /// Counts the queue pair in. (Domains count handles.)
    pub(super) fn attach(&self) {
        self.cqs().for_each(|cq| cq.attach());
        self.srq.iter().for_each(|srq| srq.attach());
    }

    /// Counts the queue pair out.
    pub(super) fn detach(&self) {
        self.cqs().for_each(|cq| cq.detach());
        self.srq.iter().for_each(|srq| srq.detach());
    }

    /// Drops the queued completions of a queue pair that starts anew.
    pub(super) fn forget(&self, qpn: Qpn) {
        self.cqs().for_each(|cq| cq.forget(qpn));
    }
}
