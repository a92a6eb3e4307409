//! `ibv_modify_qp` and `ibv_query_qp`.

use alloc::format;
use alloc::string::ToString;

use super::config::{MAX_RD_ATOMIC, QpShared};
use super::{Cx, ModifyError, RcQp};
use crate::qp::{self, Limits, migration};
use crate::verbs::{AttrMask, Mtu, PathMigState, QpAttr, QpEvent, QpState};

const LIMITS: Limits = Limits {
    max_rd_atomic: MAX_RD_ATOMIC,
    max_dest_rd_atomic: MAX_RD_ATOMIC,
    max_mtu: Mtu::B4096,
};

impl RcQp {
    /// `ibv_modify_qp`: checks the mask and the values against the state table, then applies them.
    /// Moving to ERR flushes, moving to RESET empties the queues.
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
        let to = check(&self.shared, attr, mask, &LIMITS, self.requester.drained())?;
        assign(&mut self.shared.attr, attr, mask);
        if mask.contains(AttrMask::PATH_MIG_STATE) {
            set_migration(&mut self.shared.attr, cx, attr.path_mig_state);
        }
        match (from, to) {
            (_, QpState::Reset) => self.reset(),
            (_, QpState::Err) => self.enter_error(cx),
            (QpState::Init, QpState::Rtr) => self.responder.start(&self.shared),
            (QpState::Rtr, QpState::Rts) => self.requester.start(&self.shared),
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
            sq_draining: state == QpState::Sqd && !self.requester.drained(),
            ..self.shared.attr
        };
        if !matches!(state, QpState::Reset | QpState::Init) {
            attr.rq_psn = self.responder.expected();
            attr.sq_psn = self.requester.next_psn();
        }
        attr
    }
}

/// The state that follows, if the change is allowed. `drained`: no message of the send queue is
/// under way.
pub(crate) fn check(
    shared: &QpShared,
    attr: &QpAttr,
    mask: AttrMask,
    limits: &Limits,
    drained: bool,
) -> Result<QpState, ModifyError> {
    let refuse = |reason| ModifyError { reason };
    let from = shared.attr.qp_state;
    let to = qp::next_state(from, attr, mask).map_err(|e| refuse(e.to_string()))?;
    qp::check(shared.config.qp_type, from, to, mask).map_err(|e| refuse(e.to_string()))?;
    qp::values::check(attr, mask, limits).map_err(|e| refuse(e.to_string()))?;
    migration::check_modify(&shared.attr, attr, mask).map_err(|e| refuse(e.to_string()))?;
    let leaves = !matches!(to, QpState::Sqd | QpState::Err | QpState::Reset);
    if from == QpState::Sqd && leaves && !drained {
        return Err(refuse(format!(
            "the send queue is still draining: wait for IBV_EVENT_SQ_DRAINED before {from} to {to}"
        )));
    }
    Ok(to)
}

/// Sets the state of the path's migration, which was checked, and tells the program if that
/// migrates.
pub(crate) fn set_migration(attr: &mut QpAttr, cx: &mut Cx<'_>, asked: PathMigState) {
    if migration::set(attr, asked) {
        cx.sink.event(QpEvent::PathMigrated);
    }
}

/// Copies the attributes that `mask` names. The states, of the queue pair and of migration, are the
/// caller's matter.
pub(crate) fn assign(to: &mut QpAttr, from: &QpAttr, mask: AttrMask) {
    for single in mask.iter() {
        match single {
            AttrMask::EN_SQD_ASYNC_NOTIFY => to.en_sqd_async_notify = from.en_sqd_async_notify,
            AttrMask::ACCESS_FLAGS => to.qp_access_flags = from.qp_access_flags,
            AttrMask::PKEY_INDEX => to.pkey_index = from.pkey_index,
            AttrMask::PORT => to.port_num = from.port_num,
            AttrMask::QKEY => to.qkey = from.qkey,
            AttrMask::AV => to.ah_attr = from.ah_attr,
            AttrMask::PATH_MTU => to.path_mtu = from.path_mtu,
            AttrMask::TIMEOUT => to.timeout = from.timeout,
            AttrMask::RETRY_CNT => to.retry_cnt = from.retry_cnt,
            AttrMask::RNR_RETRY => to.rnr_retry = from.rnr_retry,
            AttrMask::RQ_PSN => to.rq_psn = from.rq_psn,
            AttrMask::MAX_QP_RD_ATOMIC => to.max_rd_atomic = from.max_rd_atomic,
            AttrMask::ALT_PATH => {
                to.alt_ah_attr = from.alt_ah_attr;
                to.alt_pkey_index = from.alt_pkey_index;
                to.alt_port_num = from.alt_port_num;
                to.alt_timeout = from.alt_timeout;
            }
            AttrMask::MIN_RNR_TIMER => to.min_rnr_timer = from.min_rnr_timer,
            AttrMask::SQ_PSN => to.sq_psn = from.sq_psn,
            AttrMask::MAX_DEST_RD_ATOMIC => to.max_dest_rd_atomic = from.max_dest_rd_atomic,
            AttrMask::DEST_QPN => to.dest_qp_num = from.dest_qp_num,
            _ => {}
        }
    }
}
