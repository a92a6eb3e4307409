//! This process's board: what it grants, and what it is in the middle of using of others.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use ferroce_os::memory::{OwnWords, ProofPage};
use ferroce_os::{fork, random};
use ferroce_proto::ids::{Key, Qpn};
use ferroce_proto::mr::{Backing, Region};
use ferroce_proto::rc::Grant;

use super::hazard;
use super::layout::{self, Named, Serves};
use super::part::SharedPart;
use super::shares::{Share, Shares};
use crate::Error;
use crate::base::addressing::Addressing;
use crate::base::refusal::Refusal;
use crate::base::sync::{read, write};

/// The board of this process.
#[derive(Debug)]
pub(crate) struct Board {
    words: OwnWords,
    /// By which others know this process's memory. Its word is the nonce.
    proof: ProofPage,
    /// Hazards in use, one bit each.
    taken: AtomicU64,
    /// Memory that others can map.
    shares: RwLock<Shares>,
    /// A child of `fork` shares the words, and must leave them alone.
    generation: usize,
}

impl Board {
    pub(super) fn new() -> Result<Self, Error> {
        let none = |e| Error::system("no memory that other processes could look at", &e);
        let words = OwnWords::new(c"ferroce", layout::WORDS).map_err(none)?;
        let nonce = random::u64() | 1;
        let board = Self {
            words,
            proof: ProofPage::new(nonce).map_err(none)?,
            taken: AtomicU64::new(0),
            shares: RwLock::default(),
            generation: fork::generation(),
        };
        board.set(layout::AT_NONCE, nonce);
        board.set(layout::AT_PROOF, board.proof.proof().addr);
        board.set(layout::AT_FORMAT, layout::FORMAT);
        Ok(board)
    }

    pub(super) fn nonce(&self) -> u64 {
        self.proof.proof().word
    }

    /// Says by which thread's number this process's memory is found: one that never executes a
    /// program.
    pub(super) fn set_thread(&self, number: i32) {
        self.set(layout::AT_THREAD, number.cast_unsigned().into());
    }

    fn set(&self, index: usize, value: u64) {
        if fork::is_current(self.generation) {
            self.words.word(index).store(value, Ordering::Release);
        }
    }

    fn is(&self, index: usize) -> u64 {
        self.words.word(index).load(Ordering::Acquire)
    }

    /// Says (or, with 0, does so no longer) that this process looks for hazards on the board with a
    /// nonce, of the process that has `slot`.
    pub(super) fn set_acquainted(&self, slot: u16, nonce: u64) {
        self.set(layout::acquaintance(slot), nonce);
        fence(Ordering::SeqCst);
    }

    /// Publishes a region, if there is memory behind it and a place for it. From a region that
    /// peers may not use otherwise, they fetch the bytes of a rendezvous. The caller has the rights
    /// table alone.
    pub(super) fn publish(&self, key: Key, region: &Region, serves: Serves) {
        if region.backing == Backing::Null {
            return;
        }
        let Some(first) = layout::places(key, true).find(|first| self.is(*first) == 0) else {
            tracing::info!(target: "ferroce::direct", key = key.0, "no place on the board for a region: it is reached by packets");
            return;
        };
        if layout::is_overflow(first) {
            // Before the region can be found: a peer that finds its key nowhere sends packets.
            self.count_overflow(|count| count.fetch_add(1, Ordering::Release));
        }
        let share = read(&self.shares).place_of(region.addr(), region.length());
        let words = layout::pack_region(region, serves, share);
        for (at, word) in (first + 1..).zip(words) {
            self.set(at, word);
        }
        self.set(first, layout::pack_key(key, region.access));
    }

    /// Others can map a part of a file that this process has mapped: regions there that are
    /// [published](Self::publish) from here on say so. None: there is no place left.
    pub(crate) fn share(&self, part: &SharedPart) -> Option<Share> {
        let share = write(&self.shares).add(part)?;
        let first = layout::share(share.index);
        for (at, word) in (first + 1..).zip(part.pack()) {
            self.set(at, word);
        }
        self.set(first, share.number);
        let used = self.words.word(layout::AT_SHARES);
        used.fetch_max(share.index as u64 + 1, Ordering::Release);
        Some(share)
    }

    /// Others can map it no longer. No region there is published any more. Returns whether it was
    /// this process's: a child of `fork` ends nothing.
    pub(crate) fn unshare(&self, share: &Share) -> bool {
        let is_own = fork::is_current(self.generation);
        if is_own {
            self.set(layout::share(share.index), 0);
            write(&self.shares).remove(share);
        }
        is_own
    }

    /// Says how much memory of the process in a slot this one has mapped.
    pub(super) fn set_mapped(&self, slot: u16, count: usize) {
        self.set(layout::mapped(slot), count as u64);
    }

    /// Whether something is published under a key.
    pub(super) fn has(&self, key: Key) -> bool {
        self.find(key).is_some()
    }

    fn find(&self, key: Key) -> Option<usize> {
        let overflow = self.is(layout::AT_OVERFLOW) > 0;
        layout::places(key, overflow).find(|first| layout::has_key(self.is(*first), key))
    }

    /// Withdraws a region. Returns its place, which is to be given to [`free`](Self::free) once
    /// nobody uses it any more.
    pub(super) fn withdraw(&self, key: Key) -> Option<BoardEntry> {
        let first = self.find(key)?;
        hazard::withdraw(
            || self.set(first, layout::withdrawn(self.is(first))),
            || fence(Ordering::SeqCst),
        );
        Some(BoardEntry(first))
    }

    /// Makes a place free for another region.
    pub(super) fn free(&self, place: BoardEntry) {
        self.set(place.0, 0);
        if layout::is_overflow(place.0) {
            self.count_overflow(|count| count.fetch_sub(1, Ordering::Release));
        }
    }

    fn count_overflow(&self, change: impl FnOnce(&AtomicU64) -> u64) {
        if fork::is_current(self.generation) {
            change(self.words.word(layout::AT_OVERFLOW));
        }
    }

    /// Publishes what a queue pair with this path and protection domain grants, instead of what it
    /// did; nothing if `None`.
    pub(super) fn grant(&self, qpn: Qpn, pd: u32, grant: Option<(&Grant, &Addressing)>) -> u64 {
        let first = layout::queue_pair(qpn);
        let word = grant.map_or(0, |(grant, path)| {
            self.set(first + 1, u64::from(pd));
            self.set(first + 2, layout::path_mark(path, true));
            layout::pack_grant(grant)
        });
        self.set(first, word);
        word
    }

    /// Publishes another word of what a queue pair grants, on the path and for the protection
    /// domain that were published with it.
    pub(super) fn renew_grant(&self, qpn: Qpn, word: u64) {
        self.set(layout::queue_pair(qpn), word);
    }

    /// A queue pair grants nothing and has no rendezvous from here on. A peer that is fetching
    /// finds out when it looks once more.
    pub(super) fn end_grant(&self, qpn: Qpn) {
        let withdraw = || {
            self.set(layout::queue_pair(qpn), 0);
            self.set(layout::rendezvous(qpn), 0);
        };
        hazard::withdraw(withdraw, || fence(Ordering::SeqCst));
    }

    /// The bytes of a rendezvous of this queue pair and protection domain may be fetched with the
    /// token.
    pub(super) fn rendezvous(&self, qpn: Qpn, pd: u32, token: u64) {
        self.set(layout::queue_pair(qpn) + 1, u64::from(pd));
        self.set(layout::rendezvous(qpn), token);
    }

    /// Announces that `named` is about to be used, and looks at it. While the [`Use`] lives, its
    /// owner does not take it back.
    pub(super) fn enter<T>(
        &self,
        named: Named,
        look: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<(Use<'_>, T), Refusal> {
        if !fork::is_current(self.generation) {
            return Err(Refusal::Unacquainted);
        }
        let index = self.take_hazard().ok_or(Refusal::Busy)?;
        let user = Use { board: self, index };
        // Before the hazard, so that an owner that looks for it looks far enough.
        let used = self.words.word(layout::AT_HAZARDS);
        if used.load(Ordering::Relaxed) <= index as u64 {
            used.fetch_max(index as u64 + 1, Ordering::Release);
        }
        let store = |name| user.store(name);
        let mut why = Refusal::NotGranted;
        let look = || look().inspect_err(|refusal| why = *refusal).ok();
        match hazard::enter(&store, || fence(Ordering::SeqCst), named.pack(), look) {
            Some(seen) => Ok((user, seen)),
            None => Err(why),
        }
    }

    /// A hazard that no other thread uses, if one is left.
    fn take_hazard(&self) -> Option<usize> {
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let free = (!taken).trailing_zeros();
            let bit = 1_u64.checked_shl(free)?;
            match self.taken.compare_exchange_weak(
                taken,
                taken | bit,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(free as usize),
                Err(now) => taken = now,
            }
        }
    }
}

impl AsFd for Board {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }
}

/// Where a region was published.
#[derive(Debug)]
pub(super) struct BoardEntry(usize);

/// Something of another process is in use.
#[derive(Debug)]
pub(super) struct Use<'a> {
    board: &'a Board,
    index: usize,
}

impl Use<'_> {
    fn store(&self, name: u64) {
        let word = self.board.words.word(layout::hazard(self.index));
        word.store(name, Ordering::Release);
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        hazard::leave(&|name| self.store(name));
        let bit = 1 << self.index;
        self.board.taken.fetch_and(!bit, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use ferroce_proto::ids::PdId;
    use ferroce_proto::mr::Access;

    use super::*;

    #[test]
    fn there_is_a_hazard_per_thread_and_no_more() {
        let board = Board::new().unwrap();
        let named = Named {
            qpn: Qpn::new(1),
            key: Key(1),
        };
        let held: Vec<_> = (0..layout::HAZARDS)
            .map(|_| board.enter(named, || Ok(())).unwrap())
            .collect();
        assert_eq!(board.enter(named, || Ok(())).err(), Some(Refusal::Busy));
        drop(held);
        let refused = board.enter(named, || Err::<(), _>(Refusal::NotGranted));
        assert_eq!(refused.err(), Some(Refusal::NotGranted));
        for index in 0..layout::HAZARDS {
            assert_eq!(board.is(layout::hazard(index)), 0);
        }
        assert!(board.enter(named, || Ok(())).is_ok());
    }

    #[test]
    fn keys_that_meet_have_places_until_there_are_none() {
        let board = Board::new().unwrap();
        let region = Region::new(PdId(1), 0x1000, 64, Access::REMOTE_READ);
        for key in 0..layout::PLACES {
            board.publish(Key(5 + u32::try_from(key).unwrap()), &region, Serves::Owner);
        }
        // These meet in both tables, and the first is full.
        let keys = (1..1 << 20).map(|i| Key(i << 12 | 5));
        let meets = |key: &Key| layout::places(*key, true).eq(layout::places(Key(0x1005), true));
        let mut keys = keys.filter(meets);
        let first: Vec<_> = keys.by_ref().take(layout::PLACES).collect();
        for &key in &first {
            board.publish(key, &region, Serves::Owner);
        }
        let overflow = || board.is(layout::AT_OVERFLOW);
        assert_eq!(overflow(), layout::PLACES as u64);
        let late = keys.next().unwrap();
        board.publish(late, &region, Serves::Owner);
        assert!(board.withdraw(late).is_none());
        let place = board.withdraw(first[3]).unwrap();
        assert!(board.withdraw(first[3]).is_none());
        board.publish(late, &region, Serves::Owner);
        assert!(board.withdraw(late).is_none(), "not yet free");
        board.free(place);
        board.publish(late, &region, Serves::Owner);
        let place = board.withdraw(late).unwrap();
        board.free(place);
        assert_eq!(overflow(), layout::PLACES as u64 - 1);
    }

    #[test]
    fn many_regions_have_places() {
        let board = Board::new().unwrap();
        let region = Region::new(PdId(1), 0x1000, 64, Access::REMOTE_READ);
        let key = |i: u32| Key(0x1_0000 + i * 7);
        for i in 0..20_000 {
            board.publish(key(i), &region, Serves::Owner);
        }
        assert!((0..20_000).all(|i| board.withdraw(key(i)).is_some()));
    }

    #[test]
    fn what_has_no_memory_is_not_published() {
        let board = Board::new().unwrap();
        board.publish(
            Key(1),
            &Region::new(PdId(1), 0, 64, Access::LOCAL_WRITE),
            Serves::Owner,
        );
        let null = Region::new(PdId(1), 0, 64, Access::LOCAL_WRITE).with_backing(Backing::Null);
        board.publish(Key(2), &null, Serves::Owner);
        assert!(board.withdraw(Key(1)).is_some() && board.withdraw(Key(2)).is_none());
    }
}
