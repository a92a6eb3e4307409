//! `ibv_modify_qp` and `ibv_query_qp`.

use crate::qp::Limits;
use crate::rc::modify::{assign, check, set_migration};
use crate::rc::responder::Responder;
use crate::rc::{Cx, ModifyError};
use crate::verbs::{AttrMask, Mtu, QpAttr, QpState};

use super::UcQp;
use super::send::Sends;

/// READs and atomics do not exist.
const LIMITS: Limits = Limits {
    max_rd_atomic: 0,
    max_dest_rd_atomic: 0,
    max_mtu: Mtu::B4096,
};

impl UcQp {
    /// `ibv_modify_qp`: checks the mask and the values against the state table, then applies them.
    /// Moving to ERR flushes, moving to RESET empties the queues; an error of the send queue is
    /// left by moving from SQE to RTS.
    ///
    /// # Errors
    /// EINVAL with the reason; nothing was changed.
    pub fn modify(
        &mut self,
        cx: &mut Cx<'_>,
        attr: &QpAttr,
        mask: AttrMask,
    ) -> Result<(), ModifyError> {
        let from = self.state();
        let drained = !self.sends.in_message();
        let to = check(&self.shared, attr, mask, &LIMITS, drained)?;
        assign(&mut self.shared.attr, attr, mask);
        if mask.contains(AttrMask::PATH_MIG_STATE) {
            set_migration(&mut self.shared.attr, cx, attr.path_mig_state);
        }
        match (from, to) {
            (_, QpState::Reset) => {
                self.shared.reset();
                self.sends = Sends::default();
                self.responder = Responder::default();
            }
            (_, QpState::Err) => self.enter_error(cx, None),
            (QpState::Init, QpState::Rtr) => self.responder.start(&self.shared),
            (QpState::Rtr, QpState::Rts) => self.sends.start(self.shared.attr.sq_psn),
            (QpState::Rts, QpState::Sqd) => self.drain_reported = false,
            _ => {}
        }
        if !matches!(to, QpState::Reset | QpState::Err) {
            self.shared.attr.qp_state = to;
        }
        self.report_drained(cx);
        Ok(())
    }

    /// Current attributes (`ibv_query_qp`). The PSNs are those of the next packets.
    #[must_use]
    pub fn query(&self) -> QpAttr {
        let state = self.state();
        let mut attr = QpAttr {
            cur_qp_state: state,
            sq_draining: state == QpState::Sqd && self.sends.in_message(),
            ..self.shared.attr
        };
        if !matches!(state, QpState::Reset | QpState::Init) {
            attr.rq_psn = self.responder.expected();
            attr.sq_psn = self.sends.next_psn();
        }
        attr
    }
}
