//! Connections whose queue pair is destroyed: the device thread serves them until they may be
//! closed, so that a peer that is gone holds up nobody.

use ferroce_os::clock;
use ferroce_proto::time::Time;

use super::services::Services;
use crate::base::sync::lock;
use crate::link::stream::{Parting, Partings};
use crate::services::timers::PARTINGS;

impl Services {
    /// Closes a connection when the peer's TCP has everything, or after a while.
    pub(crate) fn part(&self, parting: Parting) {
        let mut partings = lock(&self.partings);
        partings.add(parting);
        // The first look is the caller's: it says the end, if that is due.
        self.look_at(&mut partings, clock::monotonic());
    }

    /// Makes the looks that are due.
    pub(crate) fn look_at_partings(&self, now: Time) {
        self.look_at(&mut lock(&self.partings), now);
    }

    /// Whether connections are still to be closed.
    pub(crate) fn has_partings(&self) -> bool {
        !lock(&self.partings).is_empty()
    }

    fn look_at(&self, partings: &mut Partings, now: Time) {
        partings.look(now);
        let next = partings.next();
        self.set_timer(PARTINGS, partings.timer, next);
        partings.timer = next;
    }
}
