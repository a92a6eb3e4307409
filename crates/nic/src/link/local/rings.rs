//! The rings of incoming links that this process watches.
//!
//! A ring is *watched* while somebody looks at it in every round, at the price of one look at
//! memory, or it is *asleep*, and the peer sends a wake-up over the socket with its next record.
//! Before the device thread sleeps all rings do; one that brings nothing for long does too, so the
//! price of a round depends on the links in use, not on those that exist.

use std::sync::Arc;
use std::time::Duration;

use ferroce_os::ring::{Broken, Popped, Receiver, SharedArea};
use ferroce_proto::time::Time;

use super::accepted::LinkSender;
use crate::base::addressing::Addressing;
use crate::base::numbers::LinkId;

/// Time without a record after which a ring is no longer watched. A peer may need a good part of it
/// to copy a message of some MiB, with which it answers.
const IDLE: Duration = Duration::from_millis(1);

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
    /// Something has come since this was looked at last.
    busy: bool,
    /// When that was seen to begin or go on.
    since: Time,
}

impl WatchedRing {
    /// Takes the next record into `room`; nothing is there: `None`.
    pub(super) fn pop<'r>(&mut self, room: &'r mut [u8]) -> Result<Option<&'r [u8]>, Broken> {
        Ok(match self.inlet.ring.pop(room)? {
            Popped::Record(len) => {
                self.busy = true;
                Some(&room[..len])
            }
            Popped::Empty => None,
        })
    }

    /// Whether nothing has come for long.
    fn is_idle(&mut self, now: Time) -> bool {
        if std::mem::take(&mut self.busy) {
            self.since = now;
        }
        now.since(self.since) >= IDLE
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
            busy: true,
            since: Time::default(),
        });
    }

    /// Takes a ring out, whatever is in it.
    pub(super) fn remove(&mut self, id: LinkId) {
        self.0.retain(|w| w.id != id);
    }

    /// Whether any has a record.
    pub(super) fn look(&self) -> bool {
        self.0.iter().any(|watched| watched.inlet.ring.has_more())
    }

    /// Something came from a process beside its rings' records.
    pub(super) fn keep_awake(&mut self, slot: u16) {
        for watched in self.0.iter_mut().filter(|w| w.sender.slot() == slot) {
            watched.busy = true;
        }
    }

    /// Puts those to sleep that have been idle for long `now`, or all of them if that is `None`;
    /// gives them to `keep`. One that has a record stays, and one of whose process `any` finds
    /// something else. Returns whether none is left.
    pub(super) fn sleep(
        &mut self,
        now: Option<Time>,
        any: &mut dyn FnMut(u16) -> bool,
        keep: &mut dyn FnMut(LinkId, Inlet),
    ) -> bool {
        for index in (0..self.0.len()).rev() {
            let watched = &mut self.0[index];
            let slot = watched.sender.slot();
            let idle = now.is_none_or(|now| watched.is_idle(now));
            if idle && watched.inlet.ring.sleep_unless(|| any(slot)) {
                let WatchedRing { id, inlet, .. } = self.0.swap_remove(index);
                keep(id, inlet);
            }
        }
        self.0.is_empty()
    }
}
