//! `ibv_modify_qp`: the path is chosen here, everything else is the transport's.

use ferroce_os::clock;
use ferroce_proto::rc::LinkTraits;
use ferroce_proto::verbs::{AttrMask, QpAttr, QpState};

use super::Qp;
use crate::Error;
use crate::core::lock;
use crate::path::{Destination, Path, choose};

impl Qp {
    pub(super) fn apply(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        let chosen = if mask.contains(AttrMask::AV) {
            Some(self.find_path(attr, mask)?)
        } else {
            None
        };
        if mask.contains(AttrMask::STATE) && attr.qp_state == QpState::Reset {
            // RESET forgets what the peer is still owed for messages that the program has seen.
            self.on_turn(clock::monotonic());
        }
        self.step(|locked, cx| {
            let before = locked.transport.state();
            // Before the move, since it may start to transmit; taken back if the move is refused.
            if let Some((_, traits)) = &chosen {
                locked.transport.set_link(*traits);
            }
            if let Err(e) = locked.transport.modify(cx, attr, mask) {
                if let Some(traits) = locked.traits {
                    locked.transport.set_link(traits);
                }
                return Err(Error::invalid(e.reason));
            }
            let after = locked.transport.state();
            if chosen.is_some() {
                locked.set_path(self.qpn, chosen);
            }
            if after == QpState::Reset {
                locked.set_path(self.qpn, None);
                self.send_cq.forget(self.qpn);
                self.recv_cq.forget(self.qpn);
            }
            tracing::debug!(target: "ferroce::qp", qpn = self.qpn.get(), ?before, ?after, ?mask, "modified");
            Ok(())
        })
    }

    /// The path to what the attributes, or else those that it has, name.
    fn find_path(&self, attr: &QpAttr, mask: AttrMask) -> Result<(Path, LinkTraits), Error> {
        let now = lock(&self.locked).transport.query();
        let pick = |flag, new: &QpAttr| if mask.contains(flag) { *new } else { now };
        let to = Destination {
            ah: attr.ah_attr,
            qpn: pick(AttrMask::DEST_QPN, attr).dest_qp_num,
            mtu: pick(AttrMask::PATH_MTU, attr).path_mtu,
        };
        choose(self.nic(), self.pd.context().device(), &to)
    }
}
