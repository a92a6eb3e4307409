//! Queue pairs.

use std::sync::Arc;

use ferroce_proto::ids::Qpn;
use ferroce_proto::verbs::{AttrMask, QpAttr, QpCap, QpState, QpType, RecvWr, SendWr};

use crate::{Cq, Error, Pd};

/// What `ibv_create_qp` needs.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names are those of ibv_create_qp(3)")]
pub struct QpInit {
    pub qp_type: QpType,
    pub send_cq: Arc<Cq>,
    pub recv_cq: Arc<Cq>,
    pub cap: QpCap,
    pub sq_sig_all: bool,
}

/// A queue pair. Dropping the last reference does nothing by itself: call [`destroy`](Self::destroy).
#[derive(Debug)]
pub struct Qp {
    // nic helper: fill
}

impl Qp {
    /// Makes a queue pair in RESET.
    ///
    /// # Errors
    /// EINVAL for capacities above the device's limits, EOPNOTSUPP for a type that is not built, ENOMEM when numbers run out.
    pub fn create(_pd: &Arc<Pd>, _init: QpInit) -> Result<Arc<Self>, Error> {
        todo!()
    }
    /// The cookie that asynchronous events carry; set once.
    pub fn set_cookie(&self, _cookie: usize) {
        todo!()
    }
    /// Its number.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        todo!()
    }
    /// True capacities.
    #[must_use]
    pub fn cap(&self) -> QpCap {
        todo!()
    }
    /// Current state.
    #[must_use]
    pub fn state(&self) -> QpState {
        todo!()
    }
    /// `ibv_modify_qp`.
    ///
    /// # Errors
    /// EINVAL with the reason.
    pub fn modify(&self, _attr: &QpAttr, _mask: AttrMask) -> Result<(), Error> {
        todo!()
    }
    /// `ibv_query_qp`.
    #[must_use]
    pub fn query(&self) -> QpAttr {
        todo!()
    }
    /// Queues send work and transmits what can go at once. Stops at the first that is refused: the error tells its index.
    ///
    /// # Errors
    /// Index of the refused request, errno and reason; those before it are queued.
    pub fn post_send(&self, _wrs: &mut dyn Iterator<Item = SendWr>) -> Result<(), (usize, Error)> {
        todo!()
    }
    /// Queues receive work.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send).
    pub fn post_recv(&self, _wrs: &mut dyn Iterator<Item = RecvWr>) -> Result<(), (usize, Error)> {
        todo!()
    }
    /// Removes it from the device. Returns when no packet and no completion of it is in work; completions already queued stay
    /// in the CQ, as the manual page says.
    pub fn destroy(&self) {
        todo!()
    }
}
