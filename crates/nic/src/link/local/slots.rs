//! Process slots: which process has which, and how many each user may have.
//!
//! Numbers carry 10 bits of slot, so slots cannot be divided among users; but each user has about a
//! quarter of them as its *own set*, drawn by a hash of user and slot that all processes compute
//! alike. A process takes a slot of its user's set. When these are gone it takes any that is free,
//! on loan: a claim of another user, to whose set the slot belongs, goes before it. So a user that
//! takes all names leaves others three quarters of their own sets, about 190 slots each. All slots
//! belong to root.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use ferroce_os::unix::{
    Credentials, Identity, SeqListener, SeqName, SeqSocket, SocketKind, owner_of,
};
use ferroce_os::{clock, random};

use super::{NAMES, SLOTS, slot_names};
use crate::Error;
use crate::base::sync::lock;
use crate::base::time_share::TimeShare;
use crate::services::claims::{self, ClaimOutcome, Claimed, NotFound, ToldBy};

/// Number of users among which slots are shared.
const SHARE: u64 = 4;
/// The share of the time for asking the kernel for users of listeners is 1/`PART`, and at most
/// `SAVED` of it is saved up. A question takes 0.1 to 0.6 ms.
const PART: u32 = 32;
const SAVED: Duration = Duration::from_millis(20);

pub(super) fn slot_name(slot: u16) -> String {
    format!("{}{slot}", slot_names(NAMES))
}

/// The slot that a name stands for, without what all names begin with. Other names that bring to
/// mind a slot are nobody's.
pub(crate) fn slot_number(name: &str) -> Option<u16> {
    let slot = name
        .parse()
        .ok()
        .filter(|slot| (1..=SLOTS).contains(slot))?;
    (slot.to_string() == name).then_some(slot)
}

/// Whether a slot belongs to a user's own set. The hash is part of the local link's format: all
/// processes must agree on it.
fn belongs(slot: u16, user: u32) -> bool {
    // The finalizer of SplitMix64: each bit depends on all bits of both.
    let mut x = u64::from(user) << 10 | u64::from(slot);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    user == 0 || (x ^ x >> 31).is_multiple_of(SHARE)
}

/// Whether a slot belongs to the user of its owner. A user without a number here is given the
/// benefit of the doubt, but not one that has only bound all names, perhaps: no slot would be left.
fn is_rightful(slot: u16, owner: Credentials, asked: ToldBy, identity: Identity) -> bool {
    match identity.user(owner) {
        Some(user) => belongs(slot, user),
        None => asked == ToldBy::Holder,
    }
}

/// A way to claim a slot.
type SlotClaim = fn(u16, Identity) -> io::Result<ClaimOutcome<SeqListener>>;

/// Claims a free slot, chosen at random: numbers of a process that is gone should not soon mean
/// another.
///
/// # Errors
/// ENOSPC when all slots are taken; what the kernel says if it refuses such sockets.
pub(super) fn claim(identity: Identity) -> Result<(u16, SeqListener), Error> {
    // Processes outside of a container see its root as somebody else.
    let user = Identity::own_outside();
    let start = u16::try_from(random::u32() % u32::from(SLOTS)).expect("invariant: below 1023");
    let all = (0..SLOTS).map(|i| 1 + (start + i) % SLOTS);
    let (own, others): (Vec<u16>, Vec<u16>) = all.partition(|slot| belongs(*slot, user));
    let ways: [(&[u16], SlotClaim); 3] = [
        (&own, claim_free),
        (&own, claim_rightfully),
        (&others, claim_free),
    ];
    let claimed = claims::contend(|| claim_first(&ways, identity))
        .map_err(|e| Error::system("cannot listen on an abstract Unix socket", &e))?;
    claimed.ok_or_else(|| {
        let reason = format!(
            "{SLOTS} processes of this network namespace have a device open, and no more can"
        );
        Error::new(libc::ENOSPC, reason)
    })
}

/// Claims the first of the slots that can be claimed in these ways.
fn claim_first(
    ways: &[(&[u16], SlotClaim)],
    identity: Identity,
) -> io::Result<ClaimOutcome<(u16, SeqListener)>> {
    let mut attempt = ClaimOutcome::Taken;
    for (slots, claim) in ways {
        for &slot in *slots {
            match claim(slot, identity)? {
                ClaimOutcome::Claimed(listener) => {
                    return Ok(ClaimOutcome::Claimed((slot, listener)));
                }
                ClaimOutcome::GaveWay => attempt = ClaimOutcome::GaveWay,
                ClaimOutcome::Taken => {}
            }
        }
    }
    Ok(attempt)
}

/// Claims a slot whose name nobody has bound.
fn claim_free(slot: u16, identity: Identity) -> io::Result<ClaimOutcome<SeqListener>> {
    let judge = |owner, asked| is_rightful(slot, owner, asked, identity);
    claims::claim_free::<SeqName>(&slot_name(slot), &judge)
}

/// Claims a slot of the own set, also if another user holds its name.
fn claim_rightfully(slot: u16, identity: Identity) -> io::Result<ClaimOutcome<SeqListener>> {
    let judge = |owner, asked| is_rightful(slot, owner, asked, identity);
    claims::claim::<SeqName>(&slot_name(slot), &judge)
}

fn find(slot: u16, identity: Identity) -> Result<Claimed, NotFound> {
    claims::find(&slot_name(slot), &|owner, asked| {
        is_rightful(slot, owner, asked, identity)
    })
}

/// Connects to the process that has a slot. Where too many connections wait there, strangers may
/// be connecting again and again: this one waits for its turn as long as `patience`.
///
/// # Errors
/// ECONNREFUSED: nobody has it. EAGAIN: too many connections wait there.
pub(super) fn connect(slot: u16, identity: Identity, patience: Duration) -> io::Result<SeqSocket> {
    let full = match find(slot, identity) {
        Err(NotFound::Full(name)) => name,
        found => return Ok(found?.socket),
    };
    let socket = SeqSocket::connect_within(&full, patience)?;
    let is_owner =
        full == slot_name(slot) || is_rightful(slot, socket.peer()?, ToldBy::Holder, identity);
    is_owner
        .then_some(socket)
        .ok_or_else(|| io::ErrorKind::WouldBlock.into())
}

/// Whether a process has a slot. The connection that this takes ends at once, before a hello.
///
/// Where too many connections wait for the slot's owner, strangers may be connecting again and
/// again. Then the kernel tells its user only, which is enough: processes of one user may be
/// traced by each other.
pub(super) fn is_owner(slot: u16, claimant: Credentials, identity: Identity) -> bool {
    match find(slot, identity) {
        Ok(claimed) => claimed.owner == claimant,
        Err(NotFound::Full(name)) => {
            let user = listening_user(slot, &name, identity);
            user.is_some() && user == identity.user(claimant)
        }
        Err(NotFound::Other(_)) => false,
    }
}

/// The user that listens on the name of a slot, or with a right to it on an alternate. `None`:
/// nobody with a number here, or the kernel was asked for so long lately that it has to wait: it
/// looks at all Unix sockets.
fn listening_user(slot: u16, name: &str, identity: Identity) -> Option<u32> {
    static ASKING: Mutex<TimeShare> = Mutex::new(TimeShare::new(PART, SAVED));
    let begun = clock::monotonic();
    if !lock(&ASKING).is_left(begun) {
        return None;
    }
    let owner = owner_of(name, SocketKind::Listener);
    let now = clock::monotonic();
    lock(&ASKING).spend(now.since(begun), now);
    let owner = owner.ok().flatten();
    let owner = owner.filter(|owner| {
        name == slot_name(slot) || is_rightful(slot, *owner, ToldBy::Kernel, identity)
    });
    owner.and_then(|owner| identity.user(owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_slots_are_read() {
        assert_eq!(slot_number("1"), Some(1));
        assert_eq!(slot_number("1023"), Some(1023));
        for name in [
            "0",
            "1024",
            "007",
            "+7",
            "-7",
            "7 ",
            " 7",
            "",
            "7x",
            "65543",
            "4294967303",
        ] {
            assert_eq!(slot_number(name), None, "{name:?}");
        }
    }

    fn set_of(user: u32) -> Vec<u16> {
        (1..=SLOTS).filter(|slot| belongs(*slot, user)).collect()
    }

    #[test]
    fn the_owner_of_a_slot_with_a_full_queue_is_known_by_its_user() {
        let identity = Identity::read();
        let mut free = (1..=SLOTS).rev();
        let claimed = free.find_map(|slot| match claim_free(slot, identity) {
            Ok(ClaimOutcome::Claimed(listener)) => Some((slot, listener)),
            _ => None,
        });
        let (slot, _listener) = claimed.expect("a free slot");
        let own = Credentials::own();
        assert!(is_owner(slot, own, identity));
        while SeqSocket::connect(&slot_name(slot)).is_ok() {}
        assert_eq!(is_owner(slot, own, identity), identity.user(own).is_some());
        let other = Credentials {
            uid: own.uid ^ 1,
            ..own
        };
        assert!(!is_owner(slot, other, identity));
    }

    #[test]
    fn a_user_has_about_a_quarter_of_all_slots_and_root_has_all() {
        assert_eq!(set_of(0).len(), usize::from(SLOTS));
        for user in (1..200).chain([1000, 1001, 65534, 100_000, u32::MAX]) {
            let count = set_of(user).len();
            assert!(
                (200..=320).contains(&count),
                "user {user} has {count} slots"
            );
        }
    }

    #[test]
    fn one_user_cannot_take_what_belongs_to_another() {
        for user in 1000..1100 {
            let own = set_of(user);
            let left = own.iter().filter(|slot| !belongs(**slot, user + 1)).count();
            assert!(
                left > 120,
                "user {} leaves user {user} {left} slots",
                user + 1
            );
        }
    }

    #[test]
    fn the_sets_are_those_that_other_processes_compute() {
        assert_eq!(set_of(1000)[..8], [6, 7, 8, 11, 12, 18, 22, 23]);
    }
}
