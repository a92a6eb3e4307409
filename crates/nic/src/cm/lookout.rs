//! Requests that lie with a listener of this host, unanswered: its process may end before it has
//! noticed them, and they with it. Nobody would say so, and the next repetition is seconds away.
//!
//! A device that takes a request answers at once (with an MRA, if the program needs time), so there
//! is little to look after, and that for moments. Looks become rare for a listener whose process is
//! stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferroce_os::unix;
use ferroce_proto::cm::Phase;
use ferroce_proto::mad::{CmMad, CommId};
use ferroce_proto::time::Time;

use super::low_ports::LowPorts;
use super::ports::PortKey;
use super::service::Work;

/// The first look, and the time between two looks at most.
const FIRST: Duration = Duration::from_millis(20);
const LAST: Duration = Duration::from_millis(500);

/// What to look after.
#[derive(Debug, Default)]
pub(super) struct Lookout {
    /// The conversations that have asked, by port.
    asked: BTreeMap<PortKey, BTreeSet<CommId>>,
    /// The next look, and how long after the one before.
    next: Option<(Time, Duration)>,
}

impl Lookout {
    pub(super) fn deadline(&self) -> Option<Time> {
        self.next.map(|(at, _)| at)
    }

    fn add(&mut self, now: Time, port: PortKey, id: CommId) {
        if self.asked.entry(port).or_default().insert(id) {
            self.next = Some((now + FIRST, FIRST));
        }
    }
}

impl Work<'_> {
    /// Looks after a request of ours that the owner of a port of this host has.
    pub(super) fn look_after(&mut self, port: PortKey, mad: &CmMad) {
        let Some(id) = mad.message.asking_comm_id() else {
            return;
        };
        if !self.state.ports.is_claimed(port) {
            self.state.lookout.add(self.now, port, id);
        }
    }

    /// Sends requests again whose listener has gone; now they are refused, or somebody else takes
    /// them.
    pub(super) fn look_out(&mut self) {
        let Some((at, interval)) = self.state.lookout.next else {
            return;
        };
        if self.now < at {
            return;
        }
        let mut asked = std::mem::take(&mut self.state.lookout.asked);
        let (agent, low) = (&mut self.state.agent, &self.state.ports.low);
        let names = self.host.names();
        asked.retain(|port, ids| {
            ids.retain(|id| matches!(agent.phase(*id), Some(Phase::ReqSent | Phase::SidrReqSent)));
            if ids.is_empty() || is_there(low, names, *port) {
                return !ids.is_empty();
            }
            tracing::debug!(target: "ferroce::cm", ?port, "a listener has gone before it answered");
            for id in ids.iter() {
                agent.repeat_request(*id);
            }
            false
        });
        let lookout = &mut self.state.lookout;
        let next = (2 * interval).min(LAST);
        lookout.next = (!asked.is_empty()).then(|| (self.now + next, next));
        lookout.asked = asked;
    }
}

/// Whether somebody has a port. If that cannot be told now, then perhaps at the next look.
fn is_there(low: &LowPorts, names: &str, port: PortKey) -> bool {
    if low.has(port.port) {
        return low.is_there(&port.name(names));
    }
    unix::has_owner(&port.name(names)).unwrap_or(true)
}
