//! What a queue pair knows of its peer's process, so that it need not look for it each time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Boards;
use super::peer::Peer;
use crate::base::sync::read;

/// A process that was found. It is good as long as the processes that are known are the same ones.
#[derive(Debug, Default)]
pub(crate) struct KnownPeer {
    /// Changes of the processes that are known, when it was found.
    edition: u64,
    slot: u16,
    peer: Option<Arc<Peer>>,
}

impl KnownPeer {
    /// The process in a slot, if this one is acquainted with it.
    #[inline]
    pub(super) fn find(&mut self, boards: &Boards, slot: u16) -> Option<&Peer> {
        if self.edition != boards.edition.load(Ordering::Acquire) || self.slot != slot {
            self.look(boards, slot);
        }
        self.peer.as_deref()
    }

    #[cold]
    fn look(&mut self, boards: &Boards, slot: u16) {
        let peers = read(&boards.peers);
        let found = peers.by_slot.get(&slot);
        *self = Self {
            // A change waits for the lock.
            edition: boards.edition.load(Ordering::Acquire),
            slot,
            peer: found.map(|known| Arc::clone(&known.peer)),
        };
    }
}
