//! The short rings of an outgoing link: which of them are in use.

use std::sync::{Arc, Mutex};

use ferroce_os::ring::{SharedArea, SharedShortRing, ShortRingProducer, ShortRingSender};

use crate::base::sync::lock;

/// Which short rings are free, and what is known of each from its last use; of those that were used
/// so far.
#[derive(Debug, Default)]
pub(super) struct FreeShortRings(Mutex<Vec<ShortRing>>);

#[derive(Clone, Copy, Debug, Default)]
struct ShortRing {
    in_use: bool,
    /// Number of its last offer. An old answer is not taken for a new one.
    offer: u32,
    /// Where it ended. Positions are not used twice, so that a process that still looks at it as it
    /// was sees nothing in it.
    position: u32,
}

impl FreeShortRings {
    /// Takes a free short ring, and the number of its next offer.
    pub(super) fn take(&self, area: &Arc<SharedArea>) -> Option<(ShortRingSender, u32)> {
        let mut short_rings = lock(&self.0);
        let place = short_rings.iter().position(|short_ring| !short_ring.in_use);
        let place = place.unwrap_or(short_rings.len());
        let short_ring = SharedShortRing::of(area, u16::try_from(place).ok()?)?;
        if place == short_rings.len() {
            short_rings.push(ShortRing::default());
        }
        let free = &mut short_rings[place];
        free.in_use = true;
        free.offer = free.offer.wrapping_add(1).max(1);
        Some((
            ShortRingProducer::new(short_ring, free.position),
            free.offer,
        ))
    }

    /// Takes back a short ring that is not used any more.
    pub(super) fn give_back(&self, sender: &ShortRingSender) {
        let mut short_rings = lock(&self.0);
        if let Some(short_ring) = short_rings.get_mut(usize::from(sender.short_ring())) {
            (short_ring.in_use, short_ring.position) = (false, sender.position());
        }
    }
}
