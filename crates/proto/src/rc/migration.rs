//! Path migration: which packets of the peer arm a queue pair, or take it along.
//!
//! On the wire anyone can send a packet between the addresses of the alternate path. So a packet
//! counts only if the peer may send it now (IBTA 17.2.8 leaves that open). That is a request that
//! is expected or not known to be acknowledged, or an answer to something outstanding.

use super::{Cx, RcQp, modify};
use crate::qp::migration;
use crate::verbs::{PathMigState, QpState};
use crate::wire::Packet;

impl RcQp {
    /// Whether the alternate path may become the path at any time. A packet with the MigReq bit
    /// that comes over it, and [that the peer may send](Self::may_be_sent_now), calls for
    /// [`migrate`](Self::migrate).
    #[must_use]
    pub fn is_armed(&self) -> bool {
        migration::is_armed(&self.shared.attr)
    }

    /// Makes the alternate path the path, since the peer has migrated. Give the new path's link to
    /// [`set_link`](Self::set_link).
    pub fn migrate(&mut self, cx: &mut Cx<'_>) {
        modify::set_migration(&mut self.shared.attr, cx, PathMigState::Migrated);
    }

    /// Whether it has migrated by itself, since retries had run out. The owner is to send over the
    /// alternate path from here, and to give its link to [`set_link`](Self::set_link). True once.
    pub fn take_migrated(&mut self) -> bool {
        core::mem::take(&mut self.migrated)
    }

    /// Whether the peer may send a packet with this PSN now. A packet that was forged without
    /// knowledge of the PSNs is most likely none.
    #[must_use]
    pub fn may_be_sent_now(&self, packet: &Packet<'_>) -> bool {
        let opcode = packet.bth.opcode;
        if opcode.service() != Some(self.shared.config.service()) {
            return false;
        }
        match (self.state(), opcode.info()) {
            (QpState::Rts | QpState::Sqd, Some(info)) if info.operation.is_response() => {
                self.requester.flight.sequence_of(packet.bth.psn).is_ok()
            }
            (QpState::Rtr | QpState::Rts | QpState::Sqd, Some(info)) => {
                !info.operation.is_response()
                    && self.responder.may_be_sent_now(&self.shared, packet)
            }
            _ => false,
        }
    }

    /// A packet came over the path: without the MigReq bit it says that the peer is ready.
    pub(super) fn arm_by(&mut self, packet: &Packet<'_>) {
        if self.shared.attr.path_mig_state == PathMigState::Rearm && self.may_be_sent_now(packet) {
            migration::on_packet(&mut self.shared.attr, packet.bth.migreq);
        }
    }
}
