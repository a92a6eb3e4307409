//! What a datagram queue pair sends: each packet has a destination of its own, so a batch is a run
//! of packets to one place.
//!
//! Datagrams may get lost, but not for nothing: a full link to a process of this host makes the
//! queue pair wait, as a busy port would. A process that does not take anything for [`PATIENCE`]
//! (it is stopped, perhaps for good) must not hold up what goes to others: from then on its
//! datagrams are dropped until its link moves again.

use std::sync::Arc;
use std::time::Duration;

use ferroce_proto::time::Time;
use ferroce_proto::verbs::Datagram;

use super::Qp;
use super::locked::Locked;
use super::output::{BATCH_BYTES, BatchLimits};
use super::tags::DatagramAdmission;
use crate::base::numbers::slot_of;
use crate::link::Batch;
use crate::link::path::{Egress, Path, Reach};
use crate::objects::choose::choose_datagram;

/// How long a full link is waited for.
const PATIENCE: Duration = Duration::from_millis(100);

/// The destination that was used last.
#[derive(Debug)]
pub(super) struct LastDestination {
    ah: u32,
    slot: u16,
    path: Option<Path>,
}

impl LastDestination {
    fn leads_to(&self, to: &Datagram) -> bool {
        self.ah == to.ah && self.slot == slot_of(to.qpn)
    }
}

impl Qp {
    /// Sends one batch of datagrams. Returns its packets and bytes; `None` if nothing more can be
    /// sent now.
    pub(super) fn send_datagrams(&self, locked: &mut Locked, now: Time) -> Option<(usize, usize)> {
        let to = locked.transport.next_datagram()?;
        let port = self.pd.context().device().port();
        locked.transport.set_mtu(port.fitting_mtu);
        let Some(Path {
            addressing,
            reach: Reach::Link(egress),
            ..
        }) = self.path_of(locked, &to)
        else {
            return self.drop_datagrams(locked, now);
        };
        let is_wire = egress.slot().is_none();
        let mut admission = self.wait_for_link(locked, &egress, now);
        if is_wire && admission == DatagramAdmission::Now {
            admission = self.admission(locked, to.qpn, &addressing, now);
        }
        match admission {
            DatagramAdmission::Now => {}
            DatagramAdmission::Later => {
                locked.queued = true;
                return None;
            }
            DatagramAdmission::Never => return self.drop_datagrams(locked, now),
        }
        let paced = self.pacing(&egress, &addressing, || to.qpn);
        let room = self.room(locked, paced.as_ref(), now)?;
        let mut batch = egress.batch();
        batch.addressing = addressing;
        let must_know = is_wire && self.services().auth().is_some();
        let belongs = |locked: &Locked| {
            let next = locked.transport.next_datagram();
            let known = next.is_some_and(|to| locked.tags.knows((addressing.dst, to.qpn)));
            locked.same_destination() && (known || !must_know)
        };
        let limits = BatchLimits {
            bytes: BATCH_BYTES,
            room,
        };
        let cost = self.fill(locked, &mut batch, limits, belongs, now);
        let size = (batch.ends.len(), batch.bytes.len());
        if size.0 == 0 {
            egress.put_back(batch);
        } else {
            // A process that is gone is as one that does not listen.
            let _ = egress.send(self.qpn, batch);
            self.on_paced(paced.as_ref(), cost, now);
        }
        Some(size)
    }

    /// Whether a link takes datagrams now. One that has been full for long gets none.
    fn wait_for_link(
        &self,
        locked: &mut Locked,
        egress: &Arc<Egress>,
        now: Time,
    ) -> DatagramAdmission {
        let Some(since) = egress.blocked_since() else {
            return DatagramAdmission::Now;
        };
        let until = since + PATIENCE;
        if now >= until {
            return DatagramAdmission::Never;
        }
        if !egress.wait_if_blocked(|| self.me()) {
            return DatagramAdmission::Now;
        }
        locked.waits_until = Some((until, Arc::clone(egress)));
        DatagramAdmission::Later
    }

    /// Ends the wait for a link that did not move in time.
    pub(super) fn end_wait(&self, locked: &mut Locked, now: Time) {
        if let Some((_, egress)) = locked.waits_until.take_if(|(until, _)| *until <= now) {
            egress.leave(self);
            locked.queued = false;
            self.transmit(locked, now);
        }
    }

    /// Completes a run of datagrams to one place that nobody will get.
    fn drop_datagrams(&self, locked: &mut Locked, now: Time) -> Option<(usize, usize)> {
        let mut batch = Batch::default();
        let limits = BatchLimits {
            bytes: BATCH_BYTES,
            room: u64::MAX,
        };
        self.fill(locked, &mut batch, limits, Locked::same_destination, now);
        tracing::debug!(target: "ferroce::qp", qpn = self.qpn.get(), packets = batch.ends.len(), "datagrams to nowhere");
        Some((batch.ends.len(), batch.bytes.len()))
    }

    /// The path to a destination; `None` if there is none.
    fn path_of(&self, locked: &mut Locked, to: &Datagram) -> Option<Path> {
        // Where nobody was a moment ago there may be somebody now.
        let usable = |known: &&LastDestination| {
            known.leads_to(to) && known.path.as_ref().is_some_and(Path::is_alive)
        };
        if let Some(known) = locked.known.as_ref().filter(usable) {
            return known.path.clone();
        }
        let ah = self.services().ahs.find(to.ah);
        let path = ah.and_then(|ah| {
            choose_datagram(self.services(), self.pd.context().device(), ah.attr(), to.qpn)
                .map_err(|e| {
                    tracing::debug!(target: "ferroce::qp", qpn = self.qpn.get(), "datagrams to nowhere: {}", e.reason);
                })
                .ok()
        });
        locked.known = Some(LastDestination {
            ah: to.ah,
            slot: slot_of(to.qpn),
            path: path.clone(),
        });
        path
    }
}

impl Locked {
    /// Whether the next datagram goes where the last one went.
    fn same_destination(&self) -> bool {
        let next = self.transport.next_datagram();
        next.is_some_and(|to| self.known.as_ref().is_some_and(|known| known.leads_to(&to)))
    }
}
