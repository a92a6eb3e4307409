//! Taking rights back. When that returns, nobody is in the middle of using them (promise 1).

use std::sync::Arc;
use std::time::{Duration, Instant};

use ferroce_os::thread::uncancellable;
use ferroce_proto::ids::{Key, Qpn};
use ferroce_proto::mr::Region;

use super::Boards;
use super::board::BoardEntry;
use super::layout::{Named, Serves};
use super::peer::Peer;
use crate::base::sync::read;

/// Looks before the wait gives the processor away: copies take microseconds.
const SPINS: u32 = 64;
/// Looks before it sleeps in between.
const YIELDS: u32 = SPINS + 16;
/// Most time between two looks.
const PAUSE: Duration = Duration::from_micros(200);
/// When the wait is worth a line in the log.
const LONG: Duration = Duration::from_secs(1);

/// A region that was withdrawn and may still be in use until [`Boards::settle`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Withdrawn {
    pub(super) key: Key,
    pub(super) place: Option<BoardEntry>,
}

impl Boards {
    /// Publishes a region. The caller has the rights table alone.
    pub(crate) fn publish(&self, key: Key, region: &Region) {
        if let Some(own) = self.own() {
            own.publish(key, region, Serves::Owner);
        }
    }

    /// Withdraws a region: nobody begins to use it any more. The caller has the rights table alone;
    /// without it he calls [`settle`](Self::settle) next.
    pub(crate) fn withdraw(&self, key: Key) -> Withdrawn {
        let place = self.own().and_then(|own| own.withdraw(key));
        Withdrawn { key, place }
    }

    /// Waits until nobody uses a region that was withdrawn.
    pub(crate) fn settle(&self, Withdrawn { key, place }: Withdrawn) {
        if place.is_some() {
            self.wait_until_unused(|named| named.key == key);
            self.free(Withdrawn { key, place });
        }
    }

    /// Makes the place of what nobody uses any more free for something else.
    pub(super) fn free(&self, Withdrawn { place, .. }: Withdrawn) {
        if let (Some(own), Some(place)) = (self.own(), place) {
            own.free(place);
        }
    }

    /// A queue pair grants nothing any more. What peers are in the middle of is not waited for.
    pub(crate) fn withdraw_grant(&self, qpn: Qpn) {
        if let Some(own) = self.own() {
            own.end_grant(qpn);
        }
    }

    /// A queue pair grants nothing any more; waits until nobody uses what it did.
    pub(crate) fn end_grant(&self, qpn: Qpn) {
        if let Some(own) = self.own() {
            own.end_grant(qpn);
            self.wait_until_unused(|named| named.qpn == qpn);
        }
    }

    /// Waits until no process that knows this one's board uses something that was withdrawn before.
    /// A process that has ended, or has executed another program, uses nothing. One that is stopped
    /// in the middle of a copy (by a debugger, for a moment of some microseconds) holds this up,
    /// since it would go on with it later.
    fn wait_until_unused(&self, of: impl Fn(Named) -> bool) {
        let mut users = self.users(&of);
        let (start, mut looks) = (Instant::now(), 0_u32);
        while !users.is_empty() {
            looks += 1;
            match looks {
                0..SPINS => std::hint::spin_loop(),
                SPINS..YIELDS => std::thread::yield_now(),
                _ => uncancellable(|| std::thread::sleep(PAUSE)),
            }
            let late = looks > YIELDS;
            users.retain(|peer| peer.uses(&of) && !(late && peer.has_let_go()));
            if late && looks.is_multiple_of(5000) && start.elapsed() > LONG {
                let pids: Vec<_> = users.iter().map(|peer| peer.process().pid()).collect();
                tracing::warn!(target: "ferroce::direct", ?pids, "processes are in the middle of using memory that is to be given back");
            }
        }
    }

    /// Whether a process that lives is in the middle of using something.
    pub(super) fn in_use(&self, of: impl Fn(Named) -> bool) -> bool {
        let users = self.users(of);
        users.iter().any(|peer| !peer.has_let_go())
    }

    fn users(&self, of: impl Fn(Named) -> bool) -> Vec<Arc<Peer>> {
        let peers = read(&self.peers);
        let known = peers.by_slot.values().map(|known| &known.peer);
        known
            .chain(&peers.leaving)
            .filter(|peer| peer.uses(&of))
            .cloned()
            .collect()
    }
}
