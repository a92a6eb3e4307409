//! How many links each party may have to this process, and how long a link may go without a hello.
//!
//! Each link costs this process a descriptor, and the party that opens it costs nothing. So other
//! users together get a part of the descriptors that this process may have, and each of them half
//! of that part. The own user and root are not counted among them: what strangers do leaves their
//! room as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::base::numbers::LinkId;
use ferroce_os::unix::LocalUser;
use ferroce_proto::time::Time;

/// Links of the own user and root: more than there are slots, since a dead one is noticed after its
/// successor may have come.
const MOST_TRUSTED: usize = 4096;
/// Links of all other users together, at most.
const MOST_FOREIGN: usize = 1024;
/// The part of this process's descriptors that they get.
const PART: u64 = 4;
/// Links without a hello: of one other user, and of all of them.
const SILENT_OF_USER: usize = 16;
const SILENT: usize = 64;
/// The time for a hello. A stranger's takes microseconds; a process of the own user may be stopped
/// in a debugger.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_WITH_OWN: Duration = Duration::from_secs(30);

/// How many links all other users together may have to a process that may have so many descriptors,
/// and it to them.
pub(crate) fn foreign_room(descriptors: u64) -> usize {
    let part = usize::try_from(descriptors / PART).unwrap_or(usize::MAX);
    part.min(MOST_FOREIGN)
}

/// The party that a link counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    /// The own user, and root.
    Trusted,
    /// Another user. Those that have no number in this user namespace count as one.
    User(Option<u32>),
}

impl Party {
    pub(super) fn of(user: LocalUser) -> Self {
        match user.relation.is_trusted() {
            true => Self::Trusted,
            false => Self::User(user.number),
        }
    }

    fn patience(self) -> Duration {
        match self {
            Self::Trusted => PATIENCE_WITH_OWN,
            Self::User(_) => PATIENCE,
        }
    }
}

/// The links that there are.
#[derive(Debug)]
pub(super) struct LinkQuota {
    /// Links of all other users together.
    foreign: usize,
    /// How many links a party has, and how many of these are silent.
    parties: BTreeMap<Party, PartyUse>,
    /// Links that have not said hello, by the time until when they may.
    silent: BTreeSet<(Time, LinkId, Party)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PartyUse {
    all: usize,
    silent: usize,
}

/// Decision about a new link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Admitted,
    /// In the place of a stranger's link that has been silent for longest.
    InPlaceOf(LinkId),
    Refused,
}

impl LinkQuota {
    /// For a process that may have this many descriptors.
    pub(super) fn new(descriptors: u64) -> Self {
        Self {
            foreign: foreign_room(descriptors),
            parties: BTreeMap::new(),
            silent: BTreeSet::new(),
        }
    }

    /// Adds a link, or says that it is refused. The one that it comes in the place of is still to
    /// be [removed](Self::remove).
    pub(super) fn admit(&mut self, id: LinkId, party: Party, now: Time) -> Admission {
        let held = self.parties.get(&party).copied().unwrap_or_default();
        let refused = match party {
            Party::Trusted => held.all >= MOST_TRUSTED,
            Party::User(_) => held.silent >= SILENT_OF_USER || held.all >= self.foreign.div_ceil(2),
        };
        if refused {
            return Admission::Refused;
        }
        let mut admission = Admission::Admitted;
        if party != Party::Trusted && self.is_full() {
            let mut silent = self.silent.iter();
            match silent.find(|(_, _, other)| *other != Party::Trusted) {
                Some((_, oldest, _)) => admission = Admission::InPlaceOf(*oldest),
                None => return Admission::Refused,
            }
        }
        let held = self.parties.entry(party).or_default();
        held.all += 1;
        held.silent += 1;
        self.silent.insert((now + party.patience(), id, party));
        admission
    }

    /// Lets a silent link have the time for a hello once more.
    pub(super) fn give_time(&mut self, id: LinkId, now: Time) {
        if let Some(party) = self.end_silence(id) {
            self.silent.insert((now + party.patience(), id, party));
        }
    }

    /// Whether one more link of another user needs the place of a silent one.
    fn is_full(&self) -> bool {
        let foreign = self.parties.range(Party::User(None)..);
        let (all, silent) = foreign.fold((0, 0), |(all, silent), (_, held)| {
            (all + held.all, silent + held.silent)
        });
        all >= self.foreign || silent >= SILENT
    }

    /// Other users' silent links because of which a new one may be refused, or takes the place of
    /// one of them.
    pub(super) fn in_the_way(&self) -> Vec<LinkId> {
        let mut foreign = self.parties.range(Party::User(None)..);
        let is_full = self.is_full();
        if !is_full && foreign.all(|(_, held)| held.silent < SILENT_OF_USER) {
            return Vec::new();
        }
        let has_most = |party| self.silent_of(party) >= SILENT_OF_USER;
        let silent = self.silent.iter();
        silent
            .filter(|(_, _, party)| *party != Party::Trusted && (is_full || has_most(*party)))
            .map(|(_, id, _)| *id)
            .collect()
    }

    fn silent_of(&self, party: Party) -> usize {
        self.parties.get(&party).map_or(0, |held| held.silent)
    }

    /// Takes note that a link has said hello.
    pub(super) fn greeted(&mut self, id: LinkId) {
        if let Some(party) = self.end_silence(id)
            && let Some(held) = self.parties.get_mut(&party)
        {
            held.silent -= 1;
        }
    }

    /// Removes a link that is closed.
    pub(super) fn remove(&mut self, id: LinkId, party: Party) {
        self.greeted(id);
        if let Some(held) = self.parties.get_mut(&party) {
            held.all -= 1;
            if held.all == 0 {
                self.parties.remove(&party);
            }
        }
    }

    fn end_silence(&mut self, id: LinkId) -> Option<Party> {
        let entry = *self.silent.iter().find(|(_, other, _)| *other == id)?;
        self.silent.remove(&entry);
        Some(entry.2)
    }

    /// Links that have not said hello.
    pub(super) fn silent(&self) -> Vec<LinkId> {
        self.silent.iter().map(|(_, id, _)| *id).collect()
    }

    /// Until when the first of them may.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.silent.first().map(|(at, _, _)| *at)
    }

    /// Returns the links whose time is over.
    pub(super) fn overdue(&self, now: Time) -> Vec<LinkId> {
        let due = self.silent.iter().take_while(|(at, _, _)| *at <= now);
        due.map(|(_, id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000);
    const ATTACKER: Party = Party::User(Some(7));
    const OTHER: Party = Party::User(Some(8));

    /// As many links of a party as it gets, each greeted or silent.
    fn fill(quota: &mut LinkQuota, party: Party, first: u32, greets: bool) -> usize {
        for n in 0..10_000_u32 {
            let id = LinkId(first + n);
            match quota.admit(id, party, NOW) {
                Admission::Admitted => {}
                Admission::InPlaceOf(_) | Admission::Refused => return n as usize,
            }
            if greets {
                quota.greeted(id);
            }
        }
        panic!("without limit");
    }

    #[test]
    fn a_stranger_gets_few_links_and_others_get_theirs() {
        let mut quota = LinkQuota::new(1024);
        assert_eq!(fill(&mut quota, ATTACKER, 0, false), SILENT_OF_USER);
        assert_eq!(fill(&mut quota, OTHER, 100, true), 128);
        assert_eq!(
            fill(&mut quota, Party::User(None), 1000, false),
            SILENT_OF_USER
        );
        assert_eq!(fill(&mut quota, Party::Trusted, 10_000, true), MOST_TRUSTED);
        quota.remove(LinkId(3), ATTACKER);
        assert_eq!(quota.admit(LinkId(99), ATTACKER, NOW), Admission::Admitted);
        assert_eq!(quota.admit(LinkId(98), ATTACKER, NOW), Admission::Refused);
    }

    #[test]
    fn many_users_together_are_bounded_and_leave_the_own_user_its_room() {
        let mut quota = LinkQuota::new(1024);
        for user in 0..3 {
            fill(&mut quota, Party::User(Some(user)), user * 1000, true);
        }
        assert_eq!(quota.admit(LinkId(9000), OTHER, NOW), Admission::Refused);
        assert_eq!(fill(&mut quota, Party::Trusted, 10_000, true), MOST_TRUSTED);
        let few = LinkQuota::new(64);
        assert_eq!(few.foreign, 16);
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_link_that_is_silent_for_longest() {
        let mut quota = LinkQuota::new(1 << 20);
        for n in 0..u32::try_from(SILENT).expect("few") {
            let at = Time(NOW.0 + u64::from(n));
            let admission = quota.admit(LinkId(n), Party::User(Some(100 + n)), at);
            assert_eq!(admission, Admission::Admitted);
        }
        assert_eq!(
            quota.admit(LinkId(99), OTHER, NOW),
            Admission::InPlaceOf(LinkId(0))
        );
    }

    #[test]
    fn silent_links_are_in_the_way_where_a_user_or_all_may_have_no_more() {
        let mut quota = LinkQuota::new(1 << 20);
        fill(&mut quota, Party::Trusted, 10_000, false);
        quota.admit(LinkId(99), OTHER, NOW);
        let most = u32::try_from(SILENT_OF_USER).expect("few");
        for n in 0..most {
            assert_eq!(quota.in_the_way(), []);
            quota.admit(LinkId(n), ATTACKER, NOW);
        }
        let own: Vec<_> = (0..most).map(LinkId).collect();
        assert_eq!(quota.in_the_way(), own);
        quota.greeted(LinkId(3));
        assert_eq!(quota.in_the_way(), []);
        for user in 0..3 {
            fill(
                &mut quota,
                Party::User(Some(20 + user)),
                100 * user + 100,
                false,
            );
        }
        assert_eq!(quota.in_the_way().len(), SILENT, "also the others'");
    }

    #[test]
    fn silence_ends_with_a_hello_or_at_the_deadline() {
        let mut quota = LinkQuota::new(1024);
        assert_eq!(quota.deadline(), None);
        quota.admit(LinkId(1), Party::Trusted, NOW);
        quota.admit(LinkId(2), ATTACKER, NOW);
        quota.admit(LinkId(3), ATTACKER, NOW);
        assert_eq!(quota.deadline(), Some(NOW + PATIENCE));
        assert_eq!(quota.overdue(NOW), []);
        quota.greeted(LinkId(2));
        assert_eq!(quota.overdue(NOW + PATIENCE), [LinkId(3)]);
        assert_eq!(quota.silent(), [LinkId(3), LinkId(1)]);
        quota.remove(LinkId(3), ATTACKER);
        quota.remove(LinkId(2), ATTACKER);
        assert_eq!(quota.deadline(), Some(NOW + PATIENCE_WITH_OWN));
        assert!(!quota.parties.contains_key(&ATTACKER));
    }
}
