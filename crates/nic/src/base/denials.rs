//! Counters of what this process has denied to others, by asker and reason.
//!
//! A new reason is a variant of [`Denial`], with its name in [`Denial::name`] and a place in
//! [`Denial::ALL`]. Count it with
//! [`Counters::count_denied`](super::counters::Counters::count_denied): on the device concerned, or
//! on the [`Nic`](crate::Nic) where it concerns none. `hw_counters` and `ferroce devices --paths`
//! show what is listed here.

use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_os::unix::Relation;

/// A party that asks something of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asker {
    /// A process of the same user on this host.
    OwnUser,
    /// A process of another user on this host, root included.
    OtherUser,
    /// Another host, or what claims to be one: it came over the wire.
    Host,
}

/// Why something was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denial {
    /// `FERROCE_PEERS` leaves the peer out.
    Peers,
    /// A link without a hello in time.
    NoHello,
    /// More links, or more of something else, than one party may have.
    Quota,
    /// A record or a claim that breaks the rules of the local link: the link is cut.
    Broken,
    /// Descriptors that came from a process whose descriptors are not taken.
    Descriptors,
    /// A packet or MAD from a party that it cannot be from: not the peer of the queue pair's path,
    /// not an owner of the address.
    Origin,
    /// Something that would have needed a new link, and does not get one.
    NoLink,
    /// A packet, MAD or ask from the wire without a valid tag, where a key is set
    /// (`FERROCE_KEY_FILE`).
    Unauthenticated,
    /// A move to RTR that failed, since the peer did not prove that it has the key.
    Handshake,
    /// A MAD, or a message to the socket of a port, that makes no sense.
    Malformed,
    /// A MAD that answers a request of this process without its transaction id.
    Transaction,
}

impl Asker {
    /// All, in the order of the counters.
    pub const ALL: [Self; 3] = [Self::OwnUser, Self::OtherUser, Self::Host];

    /// Part of a counter's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OwnUser => "own_user",
            Self::OtherUser => "other_user",
            Self::Host => "host",
        }
    }
}

impl From<Relation> for Asker {
    fn from(relation: Relation) -> Self {
        match relation {
            Relation::Own | Relation::OwnApart => Self::OwnUser,
            Relation::Root | Relation::Foreign => Self::OtherUser,
        }
    }
}

impl Denial {
    /// All, in the order of the counters.
    pub const ALL: [Self; 11] = [
        Self::Peers,
        Self::NoHello,
        Self::Quota,
        Self::Broken,
        Self::Descriptors,
        Self::Origin,
        Self::NoLink,
        Self::Unauthenticated,
        Self::Handshake,
        Self::Malformed,
        Self::Transaction,
    ];

    /// Part of a counter's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peers => "peers",
            Self::NoHello => "no_hello",
            Self::Quota => "quota",
            Self::Broken => "broken",
            Self::Descriptors => "descriptors",
            Self::Origin => "origin",
            Self::NoLink => "no_link",
            Self::Unauthenticated => "unauthenticated",
            Self::Handshake => "handshake",
            Self::Malformed => "malformed",
            Self::Transaction => "transaction",
        }
    }
}

/// Counters of what was denied, by asker and reason.
#[derive(Debug, Default)]
pub(crate) struct Denials([[AtomicU64; Denial::ALL.len()]; Asker::ALL.len()]);

impl Denials {
    pub(crate) fn count(&self, asker: Asker, why: Denial) {
        self.0[asker as usize][why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, asker: Asker, why: Denial) -> u64 {
        self.0[asker as usize][why as usize].load(Ordering::Relaxed)
    }
}

/// Each pair of asker and reason, with the name of its counter.
pub fn all_denials() -> impl Iterator<Item = (String, Asker, Denial)> {
    let of = |asker: Asker| {
        let each = move |why: Denial| {
            let name = format!("denied_{}_{}", asker.name(), why.name());
            (name, asker, why)
        };
        Denial::ALL.into_iter().map(each)
    };
    Asker::ALL.into_iter().flat_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_has_a_counter_and_a_name_of_its_own() {
        let denials = Denials::default();
        for (count, (_, asker, why)) in all_denials().enumerate() {
            for _ in 0..=count {
                denials.count(asker, why);
            }
        }
        let mut names = Vec::new();
        for (count, (name, asker, why)) in all_denials().enumerate() {
            assert_eq!(denials.get(asker, why), count as u64 + 1, "{name}");
            names.push(name);
        }
        assert!(names.contains(&"denied_other_user_no_hello".to_owned()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Asker::ALL.len() * Denial::ALL.len());
    }
}
