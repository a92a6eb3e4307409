//! The direct way: WRITEs, READs and atomics to another process of this host that the initiator
//! carries out itself, by copies between address spaces or in memory that both have mapped, without
//! that process being scheduled.
//!
//! Each process keeps a *board*, memory that it alone writes and that processes of its user may
//! look at: what its regions and queue pairs grant, and which ones of others it is in the middle of
//! using (*hazards*). It is offered with the hello of every link. A process that has got another's
//! board says so on its own: from then on it looks at that one's hazards before it gives memory
//! back, and so the other may use its grants. A queue pair that grants nothing,
//! or in any way other than the simplest, is served by packets; so is a process that the kernel
//! does not let at the other's memory, which a probe finds out when the boards are exchanged.
//!
//! Long SENDs go the same way in the other direction: the sender says where its bytes are, and the
//! receiver's process fetches them, with the same hazards. So the regions that only their own
//! process uses are on the board, too, and the right to fetch is a queue pair's token
//! ([`layout::rendezvous`]).
//!
//! | module | holds |
//! |---|---|
//! | [`layout`] | what is where on a board |
//! | [`hazard`] | the protocol by which rights are used and taken back |
//! | [`board`] | this process's board |
//! | [`shares`], [`part`] | memory of this process that others can map |
//! | [`peer`], [`place`] | others' boards, and their memory |
//! | [`known`] | what a queue pair knows of its peer's process |
//! | [`mapped`] | their memory that is mapped here |
//! | [`work`] | carrying out work: copies, atomics |
//! | [`refusal`](crate::base::refusal) | why work goes by packets |
//! | [`withdraw`] | taking rights back: regions, queue pairs |
//! | [`windows`] | memory windows |
//!
//! Which work requests may go this way, and what that does to a queue pair, is `proto::rc`'s matter
//! (`rc/direct.rs`); a queue pair's step does it (`qp/direct.rs`).

mod board;
mod hazard;
#[cfg(feature = "fuzzing")]
mod hostile;
mod known;
mod layout;
mod mapped;
mod part;
mod peer;
mod place;
mod shares;
mod windows;
mod withdraw;
mod work;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockWriteGuard};

use ferroce_os::environment::variable;
use ferroce_os::fd::Fd;
use ferroce_os::random;
use ferroce_os::thread;
use ferroce_proto::ids::{Psn, Qpn};
use ferroce_proto::rc::Grant;

pub(crate) use self::board::Board;
#[cfg(feature = "fuzzing")]
pub use self::hostile::fuzz as fuzz_board;
pub(crate) use self::known::KnownPeer;
pub(crate) use self::part::SharedPart;
pub(crate) use self::peer::DirectRequest;
pub(crate) use self::shares::Share;
pub(crate) use self::withdraw::Withdrawn;
pub(crate) use self::work::Copied;

use self::peer::Peer;
use crate::base::addressing::Addressing;
use crate::base::numbers::LinkId;
use crate::base::sync::{read, write};

/// All boards that this process knows, its own included.
#[derive(Debug)]
pub(crate) struct Boards {
    /// Or why there is none: it is switched off, or the system does not allow it.
    own: Result<Arc<Board>, String>,
    slot: u16,
    peers: RwLock<LinkedPeers>,
    /// Changes of `peers` so far.
    edition: AtomicU64,
    /// Keys of windows that were withdrawn and are in use, or were when somebody looked last.
    closing: Mutex<Vec<Withdrawn>>,
}

#[derive(Debug, Default)]
struct LinkedPeers {
    /// Ordered: a few numbers are found faster so than by a hash.
    by_slot: BTreeMap<u16, Acquaintance>,
    /// Why there is no acquaintance with a process that offered its board.
    strange: HashMap<u16, String>,
    /// Processes whose links have ended, and that may still be in the middle of using something.
    leaving: Vec<Arc<Peer>>,
}

#[derive(Debug)]
struct Acquaintance {
    peer: Arc<Peer>,
    /// Links on which it offered its board.
    links: Vec<LinkId>,
}

impl Boards {
    /// `FERROCE_DIRECT=0` switches the direct way off, for work of this process and for others'
    /// work on its memory. So does valgrind, which does not see what other processes write.
    pub(crate) fn new(slot: u16) -> Self {
        let own = match switched_off() {
            Some(why) => Err(why.to_owned()),
            None => Board::new().map(Arc::new).map_err(|e| {
                tracing::info!(target: "ferroce::direct", "READs and WRITEs within this host go by packets: {}", e.reason);
                e.reason.to_string()
            }),
        };
        Self {
            own,
            slot,
            peers: RwLock::default(),
            edition: AtomicU64::new(1),
            closing: Mutex::default(),
        }
    }

    /// Others find this process's memory by the number of the calling thread, which lasts as long
    /// as the process and never executes a program. Before the board is offered to anybody.
    pub(crate) fn set_thread(&self) {
        if let Some(own) = self.own() {
            own.set_thread(thread::number());
        }
    }

    /// This process's board, to be offered to others.
    pub(crate) fn own(&self) -> Option<&Arc<Board>> {
        self.own.as_ref().ok()
    }

    /// Why there is none.
    pub(crate) fn why_none(&self) -> Option<&str> {
        self.own.as_ref().err().map(String::as_str)
    }

    /// Whether READs and WRITEs of the memory of the process in `slot` can be done without it; if
    /// not, why.
    pub(crate) fn reaches(&self, slot: u16) -> Result<(), String> {
        let own = self.own.as_ref().map_err(String::clone)?;
        let peers = read(&self.peers);
        let Some(known) = peers.by_slot.get(&slot) else {
            return Err(peers.strange.get(&slot).cloned().unwrap_or_else(|| {
                "it has offered no direct way: it is switched off there, or nothing has come from it so far".to_owned()
            }));
        };
        match known.peer.refused() {
            Some(why) => Err(why.to_owned()),
            None if known.peer.process().is_gone() => Err("it has ended".to_owned()),
            None if !known.peer.is_acquainted(self.name_of(own)) => Err(
                "it does not look at what this process is doing: it cannot, or has heard nothing of it so far"
                    .to_owned(),
            ),
            None => Ok(()),
        }
    }

    /// The process in `slot`, which has this number, offered its board on a link.
    pub(crate) fn acquaint(&self, slot: u16, pid: i32, link: LinkId, board: &Fd) {
        let Ok(own) = &self.own else { return };
        let peer = match Peer::new(board, pid) {
            Ok(peer) => Arc::new(peer),
            Err(e) => {
                let why = match pid {
                    0 => "it is of another PID namespace and not to be seen from here".to_owned(),
                    _ => format!("it cannot be watched, or has another version: {e}"),
                };
                tracing::debug!(target: "ferroce::direct", slot, pid, "no direct way to a process: {why}");
                self.change().strange.insert(slot, why);
                return;
            }
        };
        match peer.refused() {
            None => {
                tracing::debug!(target: "ferroce::direct", slot, pid, "direct way to a process")
            }
            Some(why) => {
                tracing::debug!(target: "ferroce::direct", slot, pid, "no direct way to a process: {why}");
            }
        }
        let nonce = peer.nonce();
        self.change().add(slot, peer, link);
        own.set_acquainted(slot, nonce);
    }

    /// The process in `slot` shares memory with this number no longer.
    pub(crate) fn on_unshared(&self, slot: u16, number: u64) {
        if let (Some(own), Some(peer)) = (self.own(), self.peer(slot)) {
            peer.unmap(number, |count| own.set_mapped(slot, count));
        }
    }

    /// A link has ended. If it was the last one of its process, that one uses nothing of this
    /// process any more.
    pub(crate) fn on_link_end(&self, link: LinkId) {
        let Ok(own) = &self.own else { return };
        let mut peers = self.change();
        let ended = peers.by_slot.iter_mut().find_map(|(slot, known)| {
            let at = known.links.iter().position(|id| *id == link)?;
            known.links.swap_remove(at);
            known.links.is_empty().then_some(*slot)
        });
        if let Some(slot) = ended {
            own.set_acquainted(slot, 0);
            own.set_mapped(slot, 0);
            peers.leave(slot);
        }
    }

    /// SENDs of a queue pair of a protection domain may be rendezvous from here on: with this
    /// token, after [`end_grant`](Self::end_grant), or with a new one. Returns the token that goes
    /// with each; none: no peer could fetch the bytes.
    pub(crate) fn begin_rendezvous(&self, qpn: Qpn, pd: u32, token: Option<u64>) -> Option<u64> {
        let own = self.own()?;
        // Valid for one connection only: a rendezvous may come late, when the queue pair has
        // another.
        let new = || u64::from(random::u32()) << 32 | u64::from(random::u32()) | 1;
        let token = token.unwrap_or_else(new);
        own.rendezvous(qpn, pd, token);
        Some(token)
    }

    /// The processes that are known, for a change.
    fn change(&self) -> RwLockWriteGuard<'_, LinkedPeers> {
        let peers = write(&self.peers);
        self.edition.fetch_add(1, Ordering::Release);
        peers
    }

    fn peer(&self, slot: u16) -> Option<Arc<Peer>> {
        let peers = read(&self.peers);
        Some(Arc::clone(&peers.by_slot.get(&slot)?.peer))
    }

    /// A queue pair that grants what it did (`before`, as [`grant`](Self::grant) returned it)
    /// expects another PSN.
    pub(crate) fn grant_expecting(&self, qpn: Qpn, before: u64, expected: Psn) -> u64 {
        let word = layout::with_expected(before, expected);
        if let Some(own) = self.own().filter(|_| word != before) {
            own.renew_grant(qpn, word);
        }
        word
    }

    /// Publishes what a queue pair grants its peer, if that has changed from `before`, as this
    /// function returned it.
    pub(crate) fn grant(
        &self,
        qpn: Qpn,
        pd: u32,
        before: Option<u64>,
        grant: Option<(&Grant, &Addressing)>,
    ) -> u64 {
        let word = grant.map_or(0, |(grant, _)| layout::pack_grant(grant));
        if let Some(own) = self.own().filter(|_| Some(word) != before) {
            match before {
                // What goes with it is there already: all of it belongs to the path.
                Some(before) if before != 0 && word != 0 => own.renew_grant(qpn, word),
                _ => drop(own.grant(qpn, pd, grant)),
            }
        }
        word
    }
}

/// Why this process is not to have it, whatever the system allows.
fn switched_off() -> Option<&'static str> {
    let has = |name, sign: fn(&str) -> bool| {
        variable(name).is_some_and(|value| sign(&value.to_string_lossy()))
    };
    if has("FERROCE_DIRECT", |value| value == "0") {
        return Some("FERROCE_DIRECT=0");
    }
    has("LD_PRELOAD", |value| value.contains("vgpreload_"))
        .then_some("valgrind, which watches the process, does not see what others write")
}

impl LinkedPeers {
    fn add(&mut self, slot: u16, peer: Arc<Peer>, link: LinkId) {
        self.strange.remove(&slot);
        if let Some(known) = self.by_slot.get_mut(&slot)
            && known.peer.nonce() == peer.nonce()
        {
            known.links.push(link);
            return;
        }
        self.leave(slot);
        let links = vec![link];
        self.by_slot.insert(slot, Acquaintance { peer, links });
    }

    fn leave(&mut self, slot: u16) {
        if let Some(gone) = self.by_slot.remove(&slot) {
            gone.peer.leave();
            self.leaving.push(gone.peer);
        }
        self.leaving.retain(|peer| !peer.has_let_go());
    }
}
