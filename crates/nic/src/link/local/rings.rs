//! The rings of incoming links that this process watches.
//!
//! A ring is *watched* while somebody looks at it in every round, at the price of one look at
//! memory, or it is *asleep*, and the peer sends a wake-up over the socket with its next record.
//! Before the device thread sleeps all rings do; one that brings nothing for long does too, so the
//! price of a round depends on the links in use, not on those that exist.

use std::sync::Arc;

use ferroce_os::ring::{Broken, Popped, Receiver, SharedArea};

use super::accepted::LinkSender;
use crate::base::addressing::Addressing;
use crate::base::numbers::LinkId;

/// Rounds without a record after which a ring is no longer watched: about a millisecond of polling.
const IDLE_ROUNDS: u32 = 8192;

/// The receiving end of a ring, with what its records refer to.
#[derive(Debug)]
pub(super) struct Inlet {
    ring: Receiver,
    /// The known route.
    route: Option<Addressing>,
}

impl Inlet {
    pub(super) fn new(ring: Receiver) -> Self {
        Self { ring, route: None }
    }
}

/// A ring that is watched.
#[derive(Debug)]
pub(super) struct WatchedRing {
    pub(super) id: LinkId,
    pub(super) sender: LinkSender,
    inlet: Inlet,
    idle: u32,
}

impl WatchedRing {
    /// Takes the next record into `room`; nothing is there: `None`.
    pub(super) fn pop<'r>(&mut self, room: &'r mut [u8]) -> Result<Option<&'r [u8]>, Broken> {
        Ok(match self.inlet.ring.pop(room)? {
            Popped::Record(len) => {
                self.idle = 0;
                Some(&room[..len])
            }
            Popped::Empty => None,
        })
    }

    /// Whether the peer must be told that there is room now.
    pub(super) fn wakes_peer(&mut self) -> bool {
        self.inlet.ring.wakes()
    }

    /// The memory of its ring.
    pub(super) fn area(&self) -> &Arc<SharedArea> {
        self.inlet.ring.area()
    }

    /// The known route.
    pub(super) fn route(&mut self) -> &mut Option<Addressing> {
        &mut self.inlet.route
    }
}

/// The rings that are watched.
#[derive(Debug, Default)]
pub(super) struct Rings(Vec<WatchedRing>);

impl Rings {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn at(&mut self, index: usize) -> Option<&mut WatchedRing> {
        self.0.get_mut(index)
    }

    pub(super) fn position(&self, id: LinkId) -> Option<usize> {
        self.0.iter().position(|w| w.id == id)
    }

    /// Whether a ring is watched and has a record.
    pub(super) fn has_more(&self, id: LinkId) -> bool {
        self.0.iter().any(|w| w.id == id && w.inlet.ring.has_more())
    }

    /// Begins to watch a ring.
    pub(super) fn watch(&mut self, id: LinkId, sender: LinkSender, mut inlet: Inlet) {
        inlet.ring.wake();
        self.0.push(WatchedRing {
            id,
            sender,
            inlet,
            idle: 0,
        });
    }

    /// Takes a ring out, whatever is in it.
    pub(super) fn remove(&mut self, id: LinkId) {
        self.0.retain(|w| w.id != id);
    }

    /// Whether any has a record. Counts as a round.
    pub(super) fn look(&mut self) -> bool {
        let mut any = false;
        for watched in &mut self.0 {
            if watched.inlet.ring.has_more() {
                any = true;
            } else {
                watched.idle = watched.idle.saturating_add(1);
            }
        }
        any
    }

    /// Something came from a process beside its rings' records.
    pub(super) fn keep_awake(&mut self, slot: u16) {
        for watched in self.0.iter_mut().filter(|w| w.sender.slot() == slot) {
            watched.idle = 0;
        }
    }

    /// Puts those to sleep that have been idle for long, or `all` of them; gives them to `keep`.
    /// One that has a record stays, and one of whose process `any` finds something else. Returns
    /// whether none is left.
    pub(super) fn sleep(
        &mut self,
        all: bool,
        any: &mut dyn FnMut(u16) -> bool,
        keep: &mut dyn FnMut(LinkId, Inlet),
    ) -> bool {
        for index in (0..self.0.len()).rev() {
            let watched = &mut self.0[index];
            let slot = watched.sender.slot();
            let idle = all || watched.idle >= IDLE_ROUNDS;
            if idle && watched.inlet.ring.sleep_unless(|| any(slot)) {
                let WatchedRing { id, inlet, .. } = self.0.swap_remove(index);
                keep(id, inlet);
            }
        }
        self.0.is_empty()
    }
}
