//! Another process of this host that this one is acquainted with: its board, and the ways to its
//! memory.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ferroce_os::fd::Fd;
use ferroce_os::memory::{MemoryFile, OtherProcess, PeerWords, Proof, Task, is_refusal};
use ferroce_proto::ids::{Key, Qpn};
use ferroce_proto::rc::{Direct, DirectRun, Rendezvous};
use ferroce_proto::time::Time;

use super::hazard;
use super::layout::{self, Named, Published, Serves};
use super::mapped::{Mapped, Mappings};
use super::part::SharedPart;
use super::place::PeerBytes;
use crate::base::addressing::Addressing;
use crate::base::refusal::Refusal;

/// How old the last sign of life may be. Copies prove by themselves whose memory they are of;
/// memory that is mapped outlives its process.
const LIFE_CHECK: Duration = Duration::from_millis(10);

/// What tells the board of a process from all others, also of those that had its slot before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BoardName {
    pub(super) slot: u16,
    pub(super) nonce: u64,
}

/// Another process.
#[derive(Debug)]
pub(super) struct Peer {
    words: PeerWords,
    nonce: u64,
    process: OtherProcess,
    /// Why the kernel copies nothing between its memory and this process's.
    refused: OnceLock<RefusedPeer>,
    /// Memory that the peer shares and this process has mapped.
    mappings: Mappings,
    /// When the peer was last seen alive, in nanoseconds.
    seen: AtomicU64,
    /// All links to it have ended.
    left: AtomicBool,
}

#[derive(Debug)]
struct RefusedPeer {
    why: String,
    /// The number may be another process's: then nothing of it is used.
    is_stranger: bool,
}

/// A WRITE, READ or atomic on a peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectRequest<'a> {
    /// The queue pair that asks.
    pub(crate) from: Qpn,
    pub(crate) path: &'a Addressing,
    pub(crate) direct: Direct,
}

impl DirectRequest<'_> {
    pub(super) fn named(&self) -> Named {
        Named {
            qpn: self.direct.dest,
            key: self.direct.remote.rkey,
        }
    }
}

impl Peer {
    /// The process with a number, whose board this is.
    ///
    /// # Errors
    /// It is no board of this format, or the process cannot be watched.
    pub(super) fn new(board: &Fd, pid: i32) -> io::Result<Self> {
        Self::of(PeerWords::open(board, layout::WORDS)?, pid)
    }

    /// Meets the peer whose board is at hand.
    pub(super) fn of(words: PeerWords, pid: i32) -> io::Result<Self> {
        if words.load(layout::AT_FORMAT, Ordering::Acquire) != layout::FORMAT {
            return Err(io::Error::from_raw_os_error(libc::EPROTO));
        }
        let word = |at| words.load(at, Ordering::Relaxed);
        let proof = Proof {
            addr: word(layout::AT_PROOF),
            word: word(layout::AT_NONCE),
        };
        let thread = layout::low(word(layout::AT_THREAD)).cast_signed();
        let peer = Self {
            nonce: proof.word,
            process: OtherProcess::open(Task { pid, thread }, proof)?,
            words,
            refused: OnceLock::new(),
            mappings: Mappings::default(),
            seen: AtomicU64::new(0),
            left: AtomicBool::new(false),
        };
        peer.probe();
        Ok(peer)
    }

    /// Looks for the proof: the number may be one of another PID namespace, and the system may not
    /// allow it.
    fn probe(&self) {
        match self.process.prove() {
            Ok(true) => {}
            Ok(false) => self.refuse("another process has its number here".to_owned(), true),
            Err(e) => {
                let why = format!("process_vm_readv: {e}{}", causes(&e));
                self.refuse(why, !is_refusal(&e));
            }
        }
    }

    /// The peer's memory as a file, for short copies at a place where they may be made.
    pub(super) fn file(&self, place: &PeerBytes) -> Option<&MemoryFile> {
        self.process.memory().filter(|_| place.stays)
    }

    fn refuse(&self, why: String, is_stranger: bool) {
        let _ = self.refused.set(RefusedPeer { why, is_stranger });
    }

    /// Why the kernel copies nothing between its memory and this process's, if so.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.get().map(|refused| refused.why.as_str())
    }

    /// Whether it looks at the hazards of the process with this board.
    pub(super) fn is_acquainted(&self, BoardName { slot, nonce }: BoardName) -> bool {
        let known = layout::acquaintance(slot);
        self.words.load(known, Ordering::Acquire) == nonce
    }

    pub(super) fn nonce(&self) -> u64 {
        self.nonce
    }

    pub(super) fn process(&self) -> &OtherProcess {
        &self.process
    }

    /// A copy failed. If all others will too, none is tried any more.
    pub(super) fn on_error(&self, error: &io::Error) {
        if is_refusal(error) {
            self.refuse(format!("{error}{}", causes(error)), false);
        }
    }

    /// Whether there is any point in looking at what it grants.
    pub(super) fn is_usable(&self, now: Time) -> bool {
        let life_check = u64::try_from(LIFE_CHECK.as_nanos()).unwrap_or(u64::MAX);
        let is_out = |refused: &RefusedPeer| refused.is_stranger || !self.shares();
        if self.refused.get().is_some_and(is_out) {
            return false;
        }
        if now.0.saturating_sub(self.seen.load(Ordering::Relaxed)) < life_check {
            return true;
        }
        if self.process.is_gone() {
            return false;
        }
        self.seen.store(now.0, Ordering::Relaxed);
        true
    }

    /// Where in its memory the bytes of a request are, if it grants that, and looks at this
    /// process's hazards (`own` is its board). To be asked with a hazard set, or the
    /// answer is worth nothing.
    pub(super) fn find(
        &self,
        own: BoardName,
        request: &DirectRequest<'_>,
    ) -> Result<PeerBytes, Refusal> {
        self.check_acquainted(own)?;
        self.granted(request).ok_or(Refusal::NotGranted)
    }

    /// Puts the places of its memory into a run, of which `request` is the first, if it grants them
    /// all. The same is true as of [`find`](Self::find).
    pub(super) fn find_run(
        &self,
        own: BoardName,
        request: &DirectRequest<'_>,
        run: &mut DirectRun,
    ) -> Result<(), Refusal> {
        self.check_acquainted(own)?;
        let found = self.opened(request).ok_or(Refusal::NotGranted)?;
        for range in run {
            let place = found.region.address_of(range.addr, range.len.into());
            range.addr = place.ok_or(Refusal::NotGranted)?;
        }
        Ok(())
    }

    /// Where in its memory the bytes of a rendezvous are. The same is true as of
    /// [`find`](Self::find).
    pub(super) fn find_rendezvous(
        &self,
        own: BoardName,
        rendezvous: &Rendezvous,
    ) -> Result<PeerBytes, Refusal> {
        self.check_acquainted(own)?;
        let pd = self
            .words
            .load(layout::queue_pair(rendezvous.from) + 1, Ordering::Acquire);
        // Windows have no local keys.
        let published = self.published(rendezvous.key).filter(|found| {
            let is_of_pd = u64::from(found.region.pd.0) == pd;
            self.has_rendezvous(rendezvous) && found.serves == Serves::Owner && is_of_pd
        });
        published
            .and_then(|found| PeerBytes::of(&found, rendezvous.addr, rendezvous.len.into()))
            .ok_or(Refusal::NotGranted)
    }

    /// Whether a rendezvous still was valid when all that was read before was read.
    pub(super) fn still_has_rendezvous(&self, rendezvous: &Rendezvous) -> bool {
        hazard::holds_still(
            || fence(Ordering::SeqCst),
            || self.has_rendezvous(rendezvous),
        )
    }

    fn has_rendezvous(&self, rendezvous: &Rendezvous) -> bool {
        let valid = self
            .words
            .load(layout::rendezvous(rendezvous.from), Ordering::Acquire);
        valid != 0 && valid == rendezvous.token
    }

    /// Whether it looks at the hazards of this process, whose board is `own`.
    fn check_acquainted(&self, own: BoardName) -> Result<(), Refusal> {
        self.is_acquainted(own)
            .then_some(())
            .ok_or(Refusal::Unacquainted)
    }

    fn granted(&self, request: &DirectRequest<'_>) -> Option<PeerBytes> {
        let found = self.opened(request)?;
        let Direct { remote, len, .. } = request.direct;
        PeerBytes::of(&found, remote.addr, len.into())
    }

    /// What a request's key opens for it.
    fn opened(&self, request: &DirectRequest<'_>) -> Option<Published> {
        let load = |at| self.words.load(at, Ordering::Acquire);
        let (direct, need) = (&request.direct, request.direct.op.needs());
        let first = layout::queue_pair(direct.dest);
        let grant = layout::unpack_grant(load(first))?;
        let granted = grant.peer == request.from
            && grant.expected == direct.psn
            && grant.access.contains(need)
            && load(first + 2) == layout::path_mark(request.path, false);
        let found = self.published(direct.remote.rkey).filter(|_| granted)?;
        let open = u64::from(found.region.pd.0) == load(first + 1)
            && found.serves.peer_of(direct.dest)
            && found.region.access.contains(need);
        open.then_some(found)
    }

    /// What is published under a key. With a hazard for the key in place, its words do not change.
    fn published(&self, key: Key) -> Option<Published> {
        let load = |at| self.words.load(at, Ordering::Acquire);
        let overflow = load(layout::AT_OVERFLOW) > 0;
        layout::places(key, overflow).find_map(|at| {
            let first = load(at);
            layout::has_key(first, key).then(|| {
                let words = std::array::from_fn(|i| load(at + 1 + i));
                layout::unpack_region(first, words)
            })
        })
    }

    /// Whether it has ever shared memory.
    pub(super) fn shares(&self) -> bool {
        self.words.load(layout::AT_SHARES, Ordering::Acquire) > 0
    }

    /// Whether it has mapped memory of the process in a slot.
    pub(super) fn has_mapped(&self, slot: u16) -> bool {
        self.words.load(layout::mapped(slot), Ordering::Acquire) > 0
    }

    /// The memory at a place, which [`find`](Self::find) gave and the hazard of which is still set,
    /// mapped here; and where in it. None: it is not shared, or cannot be mapped. `count` is told
    /// how much is mapped, if that changes.
    pub(super) fn mapped(
        &self,
        at: &PeerBytes,
        count: impl FnOnce(usize),
    ) -> Option<(Arc<Mapped>, u64)> {
        let index = at.share?;
        let load = |word| self.words.load(word, Ordering::Acquire);
        let first = layout::share(index);
        let number = load(first);
        let found = self.mappings.find(index, number, at.writable);
        let mapped = found.unwrap_or_else(|| {
            let part = SharedPart::unpack(std::array::from_fn(|i| load(first + 1 + i)));
            let task = self.process.task();
            self.mappings
                .map(index, number, task, part, at.writable, count)
        })?;
        let offset = mapped.part.offset_of(at.addr, at.len)?;
        Some((mapped, offset))
    }

    /// Memory with this number is not shared any more.
    pub(super) fn unmap(&self, number: u64, count: impl FnOnce(usize)) {
        self.mappings.forget(number, count);
    }

    /// Ends the use of the peer, whose links have ended.
    pub(super) fn leave(&self) {
        self.left.store(true, Ordering::Relaxed);
        self.mappings.forget_all();
    }

    /// Whether its hazards say nothing any more, since none of its threads is in the middle of
    /// anything. If its memory cannot be looked at, the end of its links says that: when a process
    /// executes a program, they are closed behind the end of all other threads.
    pub(super) fn has_let_go(&self) -> bool {
        let knows = self.process.memory().is_some() || self.left.load(Ordering::Relaxed);
        self.process.has_ended() || knows && self.process.is_gone()
    }

    /// Whether one of its hazards is for something.
    pub(super) fn uses(&self, of: impl Fn(Named) -> bool) -> bool {
        let used = self.words.load(layout::AT_HAZARDS, Ordering::Acquire);
        let used = usize::try_from(used).map_or(layout::HAZARDS, |n| n.min(layout::HAZARDS));
        (0..used).any(|index| {
            let word = self.words.load(layout::hazard(index), Ordering::Acquire);
            Named::unpack(word).is_some_and(&of)
        })
    }
}

/// What may be behind a refusal of the kernel, as far as this process can see.
fn causes(error: &io::Error) -> String {
    if !is_refusal(error) {
        return String::new();
    }
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    let status = read("/proc/self/status");
    let seccomp = status.lines().find_map(|l| l.strip_prefix("Seccomp:"));
    let scope = read("/proc/sys/kernel/yama/ptrace_scope");
    list_causes(seccomp.unwrap_or_default().trim(), scope.trim())
}

fn list_causes(seccomp: &str, scope: &str) -> String {
    let mut causes = Vec::new();
    if seccomp == "2" {
        causes.push("a filter of system calls is on this process".to_owned());
    }
    if !matches!(scope, "" | "0") {
        causes.push(format!("kernel.yama.ptrace_scope is {scope}"));
    }
    if causes.is_empty() {
        causes.push(
            "that process may not be traced (not dumpable, or it has more rights)".to_owned(),
        );
    }
    format!("; {}", causes.join(", "))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{causes, list_causes};

    #[test]
    fn likely_causes_are_named() {
        assert!(list_causes("2", "").contains("filter"));
        assert!(list_causes("0", "1").contains("ptrace_scope is 1"));
        assert!(list_causes("0", "0").contains("dumpable"));
        let told = |errno| causes(&io::Error::from_raw_os_error(errno));
        assert_ne!(told(libc::EPERM), "");
        assert_eq!(told(libc::ESRCH), "");
    }
}
