//! `ibv_modify_qp` and `ibv_query_qp`.

use alloc::format;
use alloc::string::ToString;

use crate::qp::{self, Limits, migration};
use crate::rc::modify::{assign, set_migration};
use crate::rc::responder::Responder;
use crate::rc::{Cx, ModifyError};
use crate::verbs::{AttrMask, Mtu, QpAttr, QpState, QpType};

use super::UcQp;
use super::send::Sends;

/// READs and atomics do not exist.
const LIMITS: Limits = Limits {
    max_rd_atomic: 0,
    max_dest_rd_atomic: 0,
    max_mtu: Mtu::B4096,
};

impl UcQp {
    /// `ibv_modify_qp`: checks the mask and the values against the state table, then applies them. Moving to ERR flushes, moving to
    /// RESET empties the queues; an error of the send queue is left by moving from SQE to RTS.
    ///
    /// # Errors
    /// EINVAL with the reason; nothing was changed.
    pub fn modify(
        &mut self,
        cx: &mut Cx<'_>,
        attr: &QpAttr,
        mask: AttrMask,
    ) -> Result<(), ModifyError> {
        let (from, to) = (self.state(), self.check_modify(attr, mask)?);
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

    /// The state that follows, if the change is allowed.
    fn check_modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<QpState, ModifyError> {
        let refuse = |reason| ModifyError { reason };
        let from = self.state();
        let to = qp::next_state(from, attr, mask).map_err(|e| refuse(e.to_string()))?;
        qp::check(QpType::Uc, from, to, mask).map_err(|e| refuse(e.to_string()))?;
        qp::values::check(attr, mask, &LIMITS).map_err(|e| refuse(e.to_string()))?;
        migration::check_modify(&self.shared.attr, attr, mask)
            .map_err(|e| refuse(e.to_string()))?;
        let leaves = !matches!(to, QpState::Sqd | QpState::Err | QpState::Reset);
        if from == QpState::Sqd && leaves && self.sends.in_message() {
            return Err(refuse(format!(
                "the send queue is still draining: wait for IBV_EVENT_SQ_DRAINED before {from} to {to}"
            )));
        }
        Ok(to)
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
