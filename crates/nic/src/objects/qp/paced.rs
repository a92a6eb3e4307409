//! The wait for room at a receiver on the wire, of what nobody acknowledges: see
//! [`crate::services::pacing::Pacer`].

use std::sync::Arc;

use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;
use ferroce_proto::verbs::QpType;

use super::Qp;
use super::locked::Locked;
use crate::base::addressing::Addressing;
use crate::link::path::Egress;
use crate::services::pacing::{PacedFlow, Pacer};

/// Where something goes that is paced.
#[derive(Clone, Debug)]
pub(super) struct Paced {
    pub(super) flow: Arc<PacedFlow>,
    pub(super) egress: Arc<Egress>,
    pub(super) addressing: Addressing,
    pub(super) dest: Qpn,
}

impl Qp {
    /// The pacing of what goes that way; none for what is acknowledged, for what cannot get lost
    /// and for groups, which are no single receiver.
    pub(super) fn pacing(
        &self,
        egress: &Arc<Egress>,
        addressing: &Addressing,
        dest: impl FnOnce() -> Qpn,
    ) -> Option<Paced> {
        let acknowledged = !matches!(self.qp_type, QpType::Uc | QpType::Ud);
        let unpaced = acknowledged || egress.slot().is_some() || addressing.dst.is_multicast();
        (!unpaced).then(|| {
            let dest = dest();
            Paced {
                flow: self.services().pacer.to(addressing.dst, dest),
                egress: Arc::clone(egress),
                addressing: *addressing,
                dest,
            }
        })
    }

    /// How much may be sent now, as the receiver's kernel counts; `None`: the queue pair waits for
    /// its turn.
    pub(super) fn room(
        &self,
        locked: &mut Locked,
        paced: Option<&Paced>,
        now: Time,
    ) -> Option<u64> {
        let Some(paced) = paced else {
            return Some(u64::MAX);
        };
        match paced.flow.quota(now, || self.me()) {
            Ok(room) => Some(room),
            Err(until) => {
                locked.queued = true;
                locked.paused = Some((until, paced.clone()));
                None
            }
        }
    }

    /// A batch went out that costs so much there.
    pub(super) fn on_paced(&self, paced: Option<&Paced>, cost: u64, now: Time) {
        if let Some(paced) = paced
            && paced.flow.on_sent(cost, now)
        {
            self.ask(paced, now);
        }
    }

    /// Nobody has answered in time: asks once more, or goes on without.
    pub(super) fn end_pause(&self, locked: &mut Locked, now: Time) {
        let Some((_, paced)) = locked.paused.take_if(|(until, _)| *until <= now) else {
            return;
        };
        paced.flow.leave(self);
        locked.queued = false;
        if paced.flow.wants_again(now) {
            self.ask(&paced, now);
        }
        self.transmit(locked, now);
    }

    fn ask(&self, paced: &Paced, now: Time) {
        let services = self.services();
        let question = Pacer::ask(&paced.flow, self.qpn, paced.dest, now);
        services.send_drain(&paced.egress, paced.addressing, &question);
    }
}
