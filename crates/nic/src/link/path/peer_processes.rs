//! The ways out to other processes of this host.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferroce_os::poll::Poller;
use ferroce_os::unix::{Identity, Relation};
use ferroce_os::{clock, fd};

use super::{Egress, LocalOutlet, PeerProcess};
use crate::base::denials::Asker;
use crate::base::sync::lock;
use crate::base::token::Token;
use crate::link::local::{ConnectError, LocalLinks, Outgoing, foreign_room};
use crate::services::openings::Openings;

/// Time to wait for a place among the connections to a process. One that strangers keep busy takes
/// some every 20 ms (`progress/unwanted.rs`). Meanwhile this process stands still.
const PATIENCE: Duration = Duration::from_millis(500);

/// Ways out, one per process that this one talks to, itself included.
#[derive(Debug)]
pub(crate) struct PeerProcesses {
    links: LocalLinks,
    poller: Arc<Poller>,
    /// Links to processes of other users at most.
    room: usize,
    known: Mutex<KnownWay>,
}

#[derive(Debug, Default)]
struct KnownWay {
    /// Numbers tell a slot's owners apart: a process may be gone, and another one have its slot,
    /// before its hang-up is seen.
    by_id: HashMap<u32, ReachedProcess>,
    by_slot: HashMap<u16, u32>,
    next: u32,
    openings: Openings,
}

#[derive(Clone, Debug)]
struct ReachedProcess {
    link: Arc<Outgoing>,
    egress: Arc<Egress>,
}

impl KnownWay {
    fn at(&self, slot: u16) -> Option<ReachedProcess> {
        self.by_id
            .get(self.by_slot.get(&slot)?)
            .filter(|n| !n.egress.is_dead())
            .cloned()
    }

    /// Links to processes of other users.
    fn strangers(&self) -> usize {
        let links = self.by_id.values().map(|n| &n.link);
        links.filter(|link| !link.relation().is_trusted()).count()
    }
}

impl PeerProcesses {
    pub(crate) fn new(links: LocalLinks, poller: &Arc<Poller>) -> Self {
        Self {
            links,
            poller: Arc::clone(poller),
            room: foreign_room(fd::limit()),
            known: Mutex::default(),
        }
    }

    /// The way to the process that owns a slot now, to hold on to for a conversation.
    pub(crate) fn reach(&self, slot: u16) -> Result<Arc<Egress>, ConnectError> {
        self.reach_within(slot, PATIENCE)
    }

    fn reach_within(&self, slot: u16, patience: Duration) -> Result<Arc<Egress>, ConnectError> {
        let mut known = lock(&self.known);
        let link = match self.links.connect(slot, patience) {
            Ok(link) => link,
            Err(error) => {
                if matches!(error, ConnectError::NoSuchProcess(_)) {
                    known.openings.found_nobody(slot, clock::monotonic());
                }
                return Err(error);
            }
        };
        known.openings.found(slot);
        if let Some(there) = known.at(slot)
            && Arc::ptr_eq(&there.link, &link)
        {
            return Ok(there.egress);
        }
        if !link.relation().is_trusted() && known.strangers() >= self.room {
            let error = io::Error::from_raw_os_error(libc::EDQUOT);
            return Err(ConnectError::NotNow { slot, error });
        }
        let id = known.next;
        let outlet = LocalOutlet::new(Arc::clone(&link), &self.poller, Token::Out(id).raw())
            .map_err(|error| ConnectError::NotNow { slot, error })?;
        let peer = PeerProcess {
            slot,
            pid: link.pid(),
        };
        let egress = Arc::new(Egress::new(Box::new(outlet), Some(peer)));
        known.next = known.next.wrapping_add(1);
        known.by_id.insert(
            id,
            ReachedProcess {
                link,
                egress: Arc::clone(&egress),
            },
        );
        known.by_slot.insert(slot, id);
        Ok(egress)
    }

    /// The way to a process for something that may be lost: the one that is there, or else a new
    /// one, unless nobody was found just now.
    pub(crate) fn reach_quickly(&self, slot: u16) -> Option<Arc<Egress>> {
        if let Some(there) = self.there(slot) {
            return Some(there);
        }
        if lock(&self.known)
            .openings
            .is_absent(slot, clock::monotonic())
        {
            return None;
        }
        self.reach(slot).ok()
    }

    /// The way to a process that there is.
    fn there(&self, slot: u16) -> Option<Arc<Egress>> {
        lock(&self.known).at(slot).map(|there| there.egress)
    }

    /// The way to a process for a MAD: the one that is there, or else a new one. A process that
    /// cannot be linked to now is not tried again: the attempt may have taken all its patience.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub(crate) fn reach_for_mad(&self, slot: u16) -> Result<Arc<Egress>, ConnectError> {
        self.there(slot).map_or_else(|| self.reach(slot), Ok)
    }

    /// The way to a process for a packet that a stranger sent: as
    /// [`reach_for_stray_mad`](Self::reach_for_stray_mad), unless the slot had no owner a moment
    /// ago.
    ///
    /// # Errors
    /// [`ConnectError`], `NoSuchProcess` also for a slot that has an owner by now.
    pub(crate) fn reach_for_stray(&self, slot: u16) -> Result<Arc<Egress>, ConnectError> {
        {
            let known = lock(&self.known);
            if known.at(slot).is_none() && known.openings.is_absent(slot, clock::monotonic()) {
                return Err(ConnectError::NoSuchProcess(slot));
            }
        }
        self.reach_for_stray_mad(slot)
    }

    /// The way to a process for a MAD that a stranger sent: few links are opened for such. A MAD
    /// for a slot without an owner is rejected, which ends a conversation. So the slot is looked at
    /// each time.
    ///
    /// # Errors
    /// [`ConnectError`]; `NotNow` with EBUSY where a link would have to be opened, and may not.
    pub(crate) fn reach_for_stray_mad(&self, slot: u16) -> Result<Arc<Egress>, ConnectError> {
        {
            let mut known = lock(&self.known);
            if let Some(there) = known.at(slot) {
                return Ok(there.egress);
            }
            if !known.openings.try_once(clock::monotonic()) {
                let error = io::Error::from_raw_os_error(libc::EBUSY);
                return Err(ConnectError::NotNow { slot, error });
            }
        }
        let reached = self.reach_within(slot, Duration::ZERO);
        if matches!(reached, Err(ConnectError::NoSuchProcess(_))) {
            lock(&self.known).openings.give_back();
        }
        reached
    }

    /// The ways that there are to other processes, at most `most`.
    pub(crate) fn some(&self, most: usize) -> Vec<Arc<Egress>> {
        let known = lock(&self.known);
        let alive = known.by_id.values().filter(|n| !n.egress.is_dead());
        alive.take(most).map(|n| Arc::clone(&n.egress)).collect()
    }

    /// The way to a process of our own user.
    pub(crate) fn reach_own_user(&self, slot: u16) -> Option<Arc<Egress>> {
        if lock(&self.known).at(slot).is_none() {
            self.reach(slot).ok()?;
        }
        let there = lock(&self.known).at(slot)?;
        let is_own_user = there.link.relation().is_own_user();
        is_own_user.then_some(there.egress)
    }

    /// How this process tells users apart.
    pub(crate) fn identity(&self) -> Identity {
        self.links.identity()
    }

    /// As what the process of a slot is counted, if there is a way to it.
    pub(crate) fn asker(&self, slot: u16) -> Asker {
        let there = lock(&self.known).at(slot);
        there.map_or(Asker::OtherUser, |n| n.link.relation().into())
    }

    /// Whether links are offered a ring, and why not.
    pub(crate) fn offers_rings(&self) -> Result<(), String> {
        self.links.offers_rings()
    }

    /// The slots of all processes that there is a way to, and what they are to this one.
    pub(crate) fn all(&self) -> Vec<(u16, Relation)> {
        let known = lock(&self.known);
        let alive = known.by_slot.iter().filter_map(|(slot, id)| {
            let there = known.by_id.get(id).filter(|n| !n.egress.is_dead())?;
            Some((*slot, there.link.relation()))
        });
        alive.collect()
    }

    /// Sends what full links have kept. Returns whether some are still full.
    pub(crate) fn flush(&self) -> bool {
        let known: Vec<_> = lock(&self.known).by_id.values().cloned().collect();
        let mut full = false;
        for ReachedProcess { egress, .. } in known {
            // What waits there has no turn any more.
            drop(egress.on_writable());
            full |= egress.is_blocked() && !egress.is_dead();
        }
        full
    }

    /// The way out with a number.
    pub(crate) fn find(&self, id: u32) -> Option<Arc<Egress>> {
        lock(&self.known)
            .by_id
            .get(&id)
            .map(|n| Arc::clone(&n.egress))
    }

    /// The number of the way to a slot, if there is one.
    pub(crate) fn id_of(&self, slot: u16) -> Option<u32> {
        lock(&self.known).by_slot.get(&slot).copied()
    }

    /// Whether the kernel knows that the process at the end of a way out is gone.
    pub(crate) fn has_hung_up(&self, id: u32) -> bool {
        self.link(id).is_some_and(|link| link.has_hung_up())
    }

    /// The ways out to a slot whose processes are gone, for all that the kernel knows.
    pub(crate) fn hung_up(&self, slot: u16) -> Vec<u32> {
        let known = lock(&self.known);
        let there = known.by_id.iter();
        there
            .filter(|(_, n)| n.egress.slot() == Some(slot) && n.link.has_hung_up())
            .map(|(id, _)| *id)
            .collect()
    }

    /// Whether the process that a way out leads to is another user's.
    pub(crate) fn is_foreign(&self, id: u32) -> bool {
        let link = self.link(id);
        link.is_some_and(|link| link.relation() == Relation::Foreign)
    }

    /// The slot and the PID of the process that a way out leads to.
    pub(crate) fn whose(&self, id: u32) -> Option<(u16, i32)> {
        let known = lock(&self.known);
        let there = known.by_id.get(&id)?;
        Some((there.egress.slot()?, there.link.pid()))
    }

    /// Takes the answers of the process at the end of a way out.
    pub(crate) fn take_answers(&self, id: u32) {
        if let Some(link) = self.link(id) {
            link.take_answers();
        }
    }

    fn link(&self, id: u32) -> Option<Arc<Outgoing>> {
        let known = lock(&self.known);
        known.by_id.get(&id).map(|n| Arc::clone(&n.link))
    }

    /// Forgets a way out, whose process is gone.
    pub(crate) fn remove(&self, id: u32) -> Option<Arc<Egress>> {
        let mut known = lock(&self.known);
        let gone = known.by_id.remove(&id)?;
        known.by_slot.retain(|_, other| *other != id);
        Some(gone.egress)
    }
}
