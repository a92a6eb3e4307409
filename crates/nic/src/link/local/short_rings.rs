//! The lanes of an outgoing link: which of them are in use.

use std::sync::{Arc, Mutex};

use ferroce_os::ring::{LANES, LaneProducer, LaneSender, SharedArea, SharedLane};

use crate::base::sync::lock;

/// Which lanes are free, and what is known of each from its last use.
#[derive(Debug, Default)]
pub(super) struct FreeLanes(Mutex<[Lane; LANES as usize]>);

#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    in_use: bool,
    /// Number of its last offer. An old answer is not taken for a new one.
    offer: u32,
    /// Where it ended. Positions are not used twice, so that who still looks at it as it was sees
    /// nothing in it.
    position: u32,
}

impl FreeLanes {
    /// Takes a free lane, and the number of its next offer.
    pub(super) fn take(&self, area: &Arc<SharedArea>) -> Option<(LaneSender, u32)> {
        let mut lanes = lock(&self.0);
        let (index, free) = (0..).zip(&mut *lanes).find(|(_, lane)| !lane.in_use)?;
        let lane = SharedLane::of(area, index)?;
        free.in_use = true;
        free.offer = free.offer.wrapping_add(1).max(1);
        Some((LaneProducer::new(lane, free.position), free.offer))
    }

    /// A lane is not used any more.
    pub(super) fn give_back(&self, sender: &LaneSender) {
        let mut lanes = lock(&self.0);
        if let Some(lane) = lanes.get_mut(usize::from(sender.lane())) {
            (lane.in_use, lane.position) = (false, sender.position());
        }
    }
}
