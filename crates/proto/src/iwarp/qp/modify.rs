//! `ibv_modify_qp` on iWARP: the connection manager connects a queue pair, so moves up to RTS
//! change nothing (`siw_verbs_modify_qp`, Linux 6.1).

use alloc::format;

use super::IwQp;
use crate::rc::{Cx, ModifyError};
use crate::verbs::{AttrMask, QpAttr, QpState};

impl IwQp {
    /// What the program may change: rights of peers, the end of the connection.
    ///
    /// # Errors
    /// The reason, naming the states: a queue pair that was connected cannot be connected again.
    pub fn modify(
        &mut self,
        cx: &mut Cx<'_>,
        attr: &QpAttr,
        mask: AttrMask,
    ) -> Result<(), ModifyError> {
        if mask.contains(AttrMask::ACCESS_FLAGS) && self.state() == QpState::Init {
            self.set_access(attr.qp_access_flags);
        }
        let to = mask.contains(AttrMask::STATE).then_some(attr.qp_state);
        match (self.state(), to) {
            (_, None) => Ok(()),
            (_, Some(QpState::Err)) => {
                self.abort(cx);
                Ok(())
            }
            (QpState::Rts, Some(QpState::Sqd)) => {
                self.disconnect(cx);
                Ok(())
            }
            (QpState::Err, Some(QpState::Sqd))
            | (QpState::Init | QpState::Rts, Some(QpState::Rtr | QpState::Rts))
            | (QpState::Init, Some(QpState::Reset | QpState::Init | QpState::Sqd)) => Ok(()),
            (from, Some(to)) => Err(ModifyError {
                reason: format!("a queue pair on iWARP does not move from {from:?} to {to:?}"),
            }),
        }
    }
}
