//! What the process at the other end of a Unix socket is to this one. The only place where users
//! are compared.
//!
//! In a user namespace each user that is not mapped there reads as the overflow user
//! (`user_namespaces(7)`). So equal numbers do not mean equal users: two strangers have the same
//! one, and this process may have it as well.

use std::fs;

use super::Credentials;
use crate::thread::uncancellable;

/// The overflow user, where the system does not say which it is.
const OVERFLOW: u32 = 65534;
/// A map of all user numbers to themselves, as the initial user namespace has.
const WHOLE: [&str; 3] = ["0", "0", "4294967295"];

/// Relation of a process to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// A process of this process's user, in the same PID namespace: either may trace the other.
    Own,
    /// A process of this process's user in another PID namespace: one of them cannot name the
    /// other, and must not be reached by it.
    OwnApart,
    /// Root's process.
    Root,
    /// A process of another user.
    Foreign,
}

impl Relation {
    /// Whether it is of this process's user.
    #[must_use]
    pub const fn is_own_user(self) -> bool {
        matches!(self, Self::Own | Self::OwnApart)
    }

    /// Whether its descriptors are taken. A stranger's file could be one whose last close takes for
    /// ever.
    #[must_use]
    pub const fn is_trusted(self) -> bool {
        !matches!(self, Self::Foreign)
    }
}

/// The user of another process on this host, as this process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalUser {
    /// What the process is to this one.
    pub relation: Relation,
    /// The user's number. `None`: no mapped user, so an equal number may be a different user's.
    pub number: Option<u32>,
}

/// What the system says about user numbers, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The number that stands for users without one, if it does.
    nobody: Option<u32>,
}

impl Identity {
    /// Reads what `/proc` says of this process's user namespace.
    #[must_use]
    pub fn read() -> Self {
        let read = |path| uncancellable(|| fs::read_to_string(path)).ok();
        let map = read("/proc/self/uid_map");
        let overflow = read("/proc/sys/kernel/overflowuid");
        Self::from_texts(map.as_deref(), overflow.as_deref())
    }

    /// Identity by the texts of `uid_map` and `overflowuid`, where they can be read.
    fn from_texts(map: Option<&str>, overflow: Option<&str>) -> Self {
        let is_whole = map.is_some_and(Self::is_whole);
        let overflow = overflow.and_then(|text| text.trim().parse().ok());
        Self {
            nobody: (!is_whole).then_some(overflow.unwrap_or(OVERFLOW)),
        }
    }

    /// What this process's user is outside of its user namespace, one level up; its number here
    /// where that cannot be told.
    #[must_use]
    pub fn own_outside() -> u32 {
        let own = Credentials::own().uid;
        let map = uncancellable(|| fs::read_to_string("/proc/self/uid_map")).ok();
        map.and_then(|map| outside(&map, own)).unwrap_or(own)
    }

    /// Whether a `uid_map` maps all users to themselves.
    pub(super) fn is_whole(map: &str) -> bool {
        map.split_whitespace().eq(WHOLE)
    }

    /// What a process is to this one, as the effective user of this one is now.
    #[must_use]
    pub fn relation(self, peer: Credentials) -> Relation {
        let own = Credentials::own();
        self.decide(own, peer, || peer.pid == own.pid || !is_apart(peer.pid))
    }

    /// As [`relation`](Self::relation), where only users matter: nothing is read, and an own-user
    /// process counts as apart.
    #[must_use]
    pub fn relation_of_users(self, peer: Credentials) -> Relation {
        self.decide(Credentials::own(), peer, || false)
    }

    /// Whether a process takes descriptors of this one: it decides as [`Relation::is_trusted`]
    /// does. A process in another user namespace may have no number for this one's user.
    #[must_use]
    pub fn is_trusted_by(self, peer: Credentials) -> bool {
        let own = Credentials::own();
        // Root of a user namespace is nobody to processes without a number in it.
        let is_root = own.uid == 0 && self.nobody != Some(0) && self.user(peer).is_some();
        match self.relation_of_users(peer).is_own_user() {
            // It cannot be asked; as a rule it has the same user namespace.
            true if peer.pid == 0 => true,
            own_user => (own_user || is_root) && is_mapped_for(own.uid, peer.pid),
        }
    }

    /// The user of a process. `None`: no mapped user, so an equal number may be a different user's.
    #[must_use]
    pub fn user(self, peer: Credentials) -> Option<u32> {
        Some(peer.uid).filter(|_| Some(peer.uid) != self.nobody)
    }

    /// The user of the process at the other end of a connection.
    #[must_use]
    pub fn local_user(self, peer: Credentials) -> LocalUser {
        LocalUser {
            relation: self.relation(peer),
            number: self.user(peer),
        }
    }

    /// The user of a datagram's sender: as [`relation_of_users`](Self::relation_of_users), nothing
    /// is read.
    #[must_use]
    pub fn sender_user(self, sender: Credentials) -> LocalUser {
        LocalUser {
            relation: self.relation_of_users(sender),
            number: self.user(sender),
        }
    }

    /// Whether two sockets whose peers have these credentials belong to one process, or at least to
    /// one user.
    #[must_use]
    pub fn names(self, peer: Credentials) -> bool {
        peer.pid != 0 || peer.process.is_some() || self.user(peer).is_some()
    }

    fn decide(self, own: Credentials, peer: Credentials, sees: impl FnOnce() -> bool) -> Relation {
        let is_somebody = self.user(peer).is_some();
        match peer.uid == own.uid && is_somebody {
            true if peer.pid != 0 && sees() => Relation::Own,
            true => Relation::OwnApart,
            false if peer.uid == 0 && is_somebody => Relation::Root,
            false => Relation::Foreign,
        }
    }
}

/// Whether a user of this process's namespace has a number in that of a process, if it is visible.
/// Without `/proc` no namespace can be told from this one.
fn is_mapped_for(user: u32, pid: i32) -> bool {
    let read = |process: &str| {
        let path = format!("/proc/{process}/uid_map");
        uncancellable(|| fs::read_to_string(path)).ok()
    };
    let peer = read(&pid.to_string());
    // The kernel shows a map of another namespace in numbers of the reader's.
    let is_there = peer.as_ref().is_some_and(|map| inside(map, user).is_some());
    is_there || read("self").is_none_or(|own| peer == Some(own))
}

/// What a `uid_map` maps to a user.
fn inside(map: &str, user: u32) -> Option<u32> {
    ranges(map).find_map(|range| {
        let offset = range.offset(user, range.outside)?;
        range.inside.checked_add(offset)
    })
}

/// What a `uid_map` maps a user to.
fn outside(map: &str, user: u32) -> Option<u32> {
    ranges(map).find_map(|range| {
        let offset = range.offset(user, range.inside)?;
        range.outside.checked_add(offset)
    })
}

/// A line of a `uid_map`.
struct UidRange {
    /// First number inside of the namespace.
    inside: u32,
    /// First number outside.
    outside: u32,
    /// Number of IDs in the range.
    count: u32,
}

impl UidRange {
    /// How far behind the first number, which is one of this range's, a user is.
    fn offset(&self, user: u32, first: u32) -> Option<u32> {
        user.checked_sub(first)
            .filter(|offset| *offset < self.count)
    }
}

fn ranges(map: &str) -> impl Iterator<Item = UidRange> {
    map.lines().filter_map(|line| {
        let numbers: Vec<u32> = line.split_whitespace().flat_map(str::parse).collect();
        let &[inside, outside, count] = &numbers[..] else {
            return None;
        };
        Some(UidRange {
            inside,
            outside,
            count,
        })
    })
}

/// Whether a process that this one can see has a PID namespace of its own, below this process's.
fn is_apart(pid: i32) -> bool {
    let depth = |process: &str| {
        let status =
            uncancellable(|| fs::read_to_string(format!("/proc/{process}/status"))).ok()?;
        depth(&status)
    };
    depth(&pid.to_string()).is_some_and(|peer| depth("self").is_some_and(|own| peer > own))
}

/// How many PID namespaces number a process, by its `status`.
fn depth(status: &str) -> Option<usize> {
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(numbers.split_whitespace().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(pid: i32, uid: u32) -> Credentials {
        Credentials {
            pid,
            uid,
            process: None,
        }
    }

    const WHOLE_MAP: &str = "         0          0 4294967295\n";

    fn relation(map: Option<&str>, own: u32, (uid, pid): (u32, i32)) -> Relation {
        let own = credentials(10, own);
        Identity::from_texts(map, Some("65534\n")).decide(own, credentials(pid, uid), || true)
    }

    #[test]
    fn in_the_initial_namespace_each_number_is_a_user() {
        let of = |own, peer| relation(Some(WHOLE_MAP), own, (peer, 11));
        assert_eq!(of(65534, 65534), Relation::Own);
        assert_eq!(of(1000, 1000), Relation::Own);
        assert_eq!(of(0, 0), Relation::Own);
        assert_eq!(of(65534, 0), Relation::Root);
        assert_eq!(of(0, 65534), Relation::Foreign);
        assert_eq!(of(1000, 65534), Relation::Foreign);
        assert_eq!(of(65534, 1000), Relation::Foreign);
    }

    #[test]
    fn elsewhere_the_overflow_user_is_nobody_on_either_side() {
        let maps = [
            Some(""),
            Some("0 1000 1\n"),
            // As containers without privileges have: the number exists there, and is the overflow
            // user as well.
            Some("0 1000 1\n1 100000 65536\n"),
            Some("0 0 4294967294\n"),
            Some("0 0 4294967295\n0 0 4294967295\n"),
            None,
        ];
        for map in maps {
            assert_eq!(
                relation(map, 65534, (65534, 11)),
                Relation::Foreign,
                "{map:?}"
            );
            assert_eq!(relation(map, 0, (65534, 11)), Relation::Foreign, "{map:?}");
            assert_eq!(relation(map, 65534, (0, 11)), Relation::Root, "{map:?}");
            assert_eq!(relation(map, 0, (0, 11)), Relation::Own, "{map:?}");
            assert_eq!(relation(map, 5, (5, 11)), Relation::Own, "{map:?}");
        }
    }

    #[test]
    fn the_system_may_have_another_overflow_user() {
        let peer = |uid| credentials(11, uid);
        let of = |overflow, uid| {
            Identity::from_texts(Some(""), overflow).decide(peer(uid), peer(uid), || true)
        };
        assert_eq!(of(Some("7\n"), 7), Relation::Foreign);
        assert_eq!(of(Some("7\n"), 65534), Relation::Own);
        assert_eq!(of(Some("0\n"), 0), Relation::Foreign);
        for unknown in [None, Some(""), Some("x")] {
            assert_eq!(of(unknown, 65534), Relation::Foreign, "{unknown:?}");
        }
    }

    #[test]
    fn a_process_of_another_pid_namespace_is_apart() {
        assert_eq!(relation(Some(WHOLE_MAP), 5, (5, 0)), Relation::OwnApart);
        assert_eq!(relation(Some(WHOLE_MAP), 5, (6, 0)), Relation::Foreign);
        let own = credentials(10, 5);
        let seen_below = Identity { nobody: None }.decide(own, own, || false);
        assert_eq!(seen_below, Relation::OwnApart);
        assert_eq!(depth("Name:\tx\nNSpid:\t12\t1\nNSpgid:\t1\n"), Some(2));
        assert_eq!(depth("Name:\tx\n"), None);
        assert!(!is_apart(Credentials::own().pid));
    }

    #[test]
    fn this_process_is_its_own_users() {
        let (identity, own) = (Identity::read(), Credentials::own());
        let mapped = identity.nobody != Some(own.uid);
        assert_eq!(identity.relation(own).is_own_user(), mapped);
    }

    #[test]
    fn a_map_says_what_a_user_is_outside() {
        let container = "         0       1000          1\n         1     100000      65536\n";
        let users = [0, 1, 65536, 65537].map(|user| outside(container, user));
        assert_eq!(users, [Some(1000), Some(100_000), Some(165_535), None]);
        assert_eq!(outside(WHOLE_MAP, 1000), Some(1000));
        assert_eq!(outside("", 0), None);
        let users = [1000, 1001, 100_000, 165_536].map(|user| inside(container, user));
        assert_eq!(users, [Some(0), None, Some(1), None]);
        let own = Credentials::own();
        assert!(is_mapped_for(own.uid, own.pid) && !is_mapped_for(own.uid, 0));
    }
}
