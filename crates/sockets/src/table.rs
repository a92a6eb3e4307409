//! What this process knows of its descriptors, by number.
//!
//! The table only remembers; it never decides what a descriptor is. A number may be closed and
//! used again where no function of ours sees it, so each use of an entry checks the open file
//! (`SO_COOKIE`, a Unix socket's name) before anything is done to it. An entry that is wrong costs
//! a descriptor or an upgrade, never a byte.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::address::Meaning;
use crate::sys::{self, SocketEnd};
use crate::{filter, lock, offers, short};

mod entry;
#[cfg(test)]
mod tests;

pub(crate) use entry::{Entry, Kind, flag};
use entry::{flags, is, pack, unpack};

/// Numbers from here on are not remembered.
pub(crate) const NUMBERS: usize = 1 << 16;
struct Slot {
    word: AtomicU64,
    cookie: AtomicU64,
}

static TABLE: [Slot; NUMBERS] = [const {
    Slot {
        word: AtomicU64::new(0),
        cookie: AtomicU64::new(0),
    }
}; NUMBERS];
/// Counts `fork`: what was fresh before is not fresh afterwards, and a listener is shared.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Counts programs that may have inherited a listener.
static SPAWNED: AtomicU32 = AtomicU32::new(0);
/// Counts epoll sets that were noted.
static SETS: AtomicU64 = AtomicU64::new(0);
/// Whether there has been a stand-in.
static USED: AtomicBool = AtomicBool::new(false);

/// The process whose table this is; 0 before the first use.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Whether this process may change the table. A child of `vfork` may not: the memory is its
/// parent's, and the descriptors that it closes are not.
pub(crate) fn is_own() -> bool {
    // SAFETY: takes no pointers.
    let pid = unsafe { libc::getpid() };
    match OWNER.load(Ordering::Relaxed) {
        0 => {
            OWNER.store(pid, Ordering::Relaxed);
            true
        }
        owner => owner == pid,
    }
}

/// This process, where `is_own` says that it may change the table.
pub(crate) fn owner() -> libc::pid_t {
    OWNER.load(Ordering::Relaxed)
}

fn slot(fd: RawFd) -> Option<&'static Slot> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// What makes an entry of this kind stale when it changes.
fn generation(kind: Kind) -> u64 {
    let forks = GENERATION.load(Ordering::Relaxed);
    let count = match kind {
        Kind::Fresh => forks,
        Kind::Listener => forks.wrapping_add(SPAWNED.load(Ordering::Relaxed)),
        Kind::Other | Kind::StandIn | Kind::Watcher => 0,
    };
    u64::from(count) & 0xfff
}

/// A program is about to start that has this library, and may accept from listeners of this
/// process.
pub(crate) fn spawns() {
    SPAWNED.fetch_add(1, Ordering::Relaxed);
}

/// Notes that the process was copied, in the parent and in the child.
pub(crate) fn forked() {
    // SAFETY: takes no pointers.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    GENERATION.fetch_add(1, Ordering::Relaxed);
    short::forked();
}

/// What is known of a descriptor.
pub(crate) fn get(fd: RawFd) -> Entry {
    let Some(slot) = slot(fd).filter(|_| !filter::is_installed()) else {
        return Entry::default();
    };
    let word = slot.word.load(Ordering::Acquire);
    if word == 0 {
        return Entry::default();
    }
    unpack(word, slot.cookie.load(Ordering::Relaxed))
}

/// Whether a descriptor is a stand-in, as far as is known. Every data call asks.
#[inline]
pub(crate) fn is_stand_in(fd: RawFd) -> bool {
    slot(fd).is_some_and(|slot| {
        let word = slot.word.load(Ordering::Relaxed);
        is(word, Kind::StandIn) && !filter::is_installed()
    })
}

/// Whether a descriptor may be a TCP socket that nothing else knows.
#[inline]
pub(crate) fn may_be_fresh(fd: RawFd) -> bool {
    slot(fd).is_some_and(|slot| is(slot.word.load(Ordering::Relaxed), Kind::Fresh))
}

/// Whether a stand-in has any of these bits. Receives ask.
#[inline]
pub(crate) fn has_flags(fd: RawFd, flags: u8) -> bool {
    slot(fd).is_some_and(|slot| {
        let word = slot.word.load(Ordering::Relaxed);
        self::flags(word) & flags != 0 && !filter::is_installed()
    })
}

/// Whether any descriptor may be a stand-in.
pub(crate) fn has_stand_ins() -> bool {
    USED.load(Ordering::Relaxed) && !filter::is_installed()
}

/// A stand-in was put into an epoll set, or (`more` is false) taken out. The flags of a set count
/// them. Those that are closed in it stay counted. Some programs do this for each request, so it
/// makes no system call, and a count that two threads change at once may lose one.
pub(crate) fn watches(set: RawFd, more: bool) {
    let Some(slot) = slot(set).filter(|_| !filter::is_installed()) else {
        return;
    };
    if counts(slot, more) || !more || !is_own() {
        return;
    }
    let held = lock::hold();
    // Another thread may have noted the set meanwhile. A second cookie would end that one's looks.
    if !counts(slot, more) {
        let first = Entry {
            kind: Kind::Watcher,
            flags: 1,
            cookie: SETS.fetch_add(1, Ordering::Relaxed) + 1,
            ..Entry::default()
        };
        self::set(set, first);
    }
    drop(held);
}

/// Counts a stand-in of an epoll set that is noted. Returns whether it is.
fn counts(slot: &Slot, more: bool) -> bool {
    let word = slot.word.load(Ordering::Relaxed);
    if !is(word, Kind::Watcher) {
        return false;
    }
    let flags = flags(word);
    let entry = Entry {
        kind: Kind::Watcher,
        flags: if more {
            flags.saturating_add(1)
        } else {
            flags.saturating_sub(1)
        },
        ..Entry::default()
    };
    let (relaxed, new) = (Ordering::Relaxed, pack(&entry));
    let _ = slot.word.compare_exchange(word, new, relaxed, relaxed);
    true
}

/// Stand-ins that an epoll set watches, as far as is known. Every wait asks.
#[inline]
pub(crate) fn watched(set: RawFd) -> u8 {
    slot(set).map_or(0, |slot| {
        let word = slot.word.load(Ordering::Relaxed);
        if is(word, Kind::Watcher) && !filter::is_installed() {
            flags(word)
        } else {
            0
        }
    })
}

/// Whether anything is known of a descriptor.
pub(crate) fn is_known(fd: RawFd) -> bool {
    slot(fd).is_some_and(|slot| slot.word.load(Ordering::Relaxed) != 0) && !filter::is_installed()
}

/// The remembered numbers of a range.
pub(crate) fn known(first: u32, last: u32) -> impl Iterator<Item = RawFd> {
    let number = |fd| RawFd::try_from(fd).unwrap_or(RawFd::MAX);
    let numbers = number(first)..=number(last);
    numbers
        .take_while(|fd| has_room(*fd))
        .filter(|fd| is_known(*fd))
}

/// Whether this number is remembered.
pub(crate) fn has_room(fd: RawFd) -> bool {
    slot(fd).is_some()
}

/// Replaces an entry; what it hid before is closed. The caller has asked `is_own`.
pub(crate) fn set(fd: RawFd, entry: Entry) {
    if let Some(slot) = slot(fd) {
        if is_known(fd) {
            close_hidden(&take_own(fd));
        }
        if entry.kind == Kind::StandIn {
            USED.store(true, Ordering::Relaxed);
        }
        slot.cookie.store(entry.cookie, Ordering::Relaxed);
        slot.word.store(pack(&entry), Ordering::Release);
    }
}

/// Sets bits of a stand-in's entry.
pub(crate) fn add_flags(fd: RawFd, flags: u8) {
    if let Some(slot) = slot(fd) {
        slot.word.fetch_or(u64::from(flags) << 4, Ordering::Relaxed);
    }
}

/// Clears bits of an entry.
pub(crate) fn remove_flags(fd: RawFd, flags: u8) {
    if let Some(slot) = slot(fd) {
        let bits = !(u64::from(flags) << 4);
        slot.word.fetch_and(bits, Ordering::Relaxed);
    }
}

/// A socket is about to be closed, or to be known by another number, process or epoll set. Its
/// `connect`, if one is under way, is decided: the number is that of TCP or of a stand-in for good.
pub(crate) fn spoil(fd: RawFd) {
    if get(fd).kind == Kind::Fresh && is_own() {
        stays_tcp(fd);
    }
}

/// A socket is known elsewhere, or was connected without an offer. Another thread's offer of it is
/// decided before the entry goes, by which a third thread knows that there is one. A child of
/// `vfork` that has connected one may forget it, if its parent offers none: the parent has the
/// same, or loses no more than a stream.
pub(crate) fn stays_tcp(fd: RawFd) {
    if !offers::any() {
        forget_fresh(fd);
        // Either this finds an offer that has begun since, or that finds the entry gone.
        if !offers::any() {
            return;
        }
    }
    if is_own() {
        let held = lock::hold();
        offers::decide(fd, &held);
        forget_fresh(fd);
    }
}

/// Forgets a socket that is not connected, or that stays on TCP.
pub(crate) fn forget_fresh(fd: RawFd) {
    if let Some(slot) = slot(fd).filter(|_| is_known(fd)) {
        let word = slot.word.load(Ordering::Relaxed);
        if unpack(word, 0).kind == Kind::Fresh {
            // Another thread may be putting a stand-in there.
            let _ = slot
                .word
                .compare_exchange(word, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
    }
}

/// Removes an entry and returns it.
pub(crate) fn take(fd: RawFd) -> Entry {
    if is_known(fd) && is_own() {
        take_own(fd)
    } else {
        Entry::default()
    }
}

fn take_own(fd: RawFd) -> Entry {
    let Some(slot) = slot(fd).filter(|_| is_known(fd)) else {
        return Entry::default();
    };
    let word = slot.word.swap(0, Ordering::AcqRel);
    unpack(word, slot.cookie.load(Ordering::Relaxed))
}

/// Forgets a descriptor, and closes what was hidden beside it.
pub(crate) fn release(fd: RawFd) {
    if is_known(fd) {
        close_hidden(&take(fd));
    }
}

/// Closes what an entry hides, as far as it is still that.
pub(crate) fn close_hidden(entry: &Entry) {
    for fd in entry.hidden.into_iter().flatten() {
        let ours = match entry.kind {
            Kind::StandIn => sys::cookie(fd) == Ok(entry.cookie),
            _ => is_named(fd),
        };
        if ours {
            crate::hide::forget(fd);
        }
    }
}

/// Whether a descriptor is a Unix socket with one of our names.
fn is_named(fd: RawFd) -> bool {
    let prefix = crate::address::PREFIX.as_bytes();
    sys::name(fd, SocketEnd::Own)
        .is_ok_and(|name| name.abstract_name().is_some_and(|n| n.starts_with(prefix)))
}

/// The hidden TCP connection of a stand-in, if this process has it.
pub(crate) fn tcp(fd: RawFd) -> Option<RawFd> {
    let entry = get(fd);
    let hidden = entry.hidden[0].filter(|_| entry.kind == Kind::StandIn)?;
    (sys::cookie(hidden) == Ok(entry.cookie)).then_some(hidden)
}

/// The hidden sockets of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenerSockets {
    /// Takes the clients' streams.
    pub(crate) queue: RawFd,
    /// Holds streams that came before those whose connections were accepted first.
    pub(crate) stash: RawFd,
    /// Whether another process may accept from the same, or streams may be in the stash.
    pub(crate) shared: bool,
}

/// The hidden sockets of a listener.
pub(crate) fn listener_sockets(fd: RawFd) -> Option<ListenerSockets> {
    let entry = get(fd);
    let [Some(queue), Some(stash)] = entry.hidden else {
        return None;
    };
    let name = sys::name(queue, SocketEnd::Own).ok()?;
    let meaning = Meaning::parse(name.abstract_name()?)?;
    let is_its = matches!(meaning, Meaning::Listener(cookie, _) if cookie == entry.cookie);
    let shared = entry.flags & flag::SHARED != 0;
    if shared {
        // For good, whatever the counts say later.
        add_flags(fd, flag::SHARED);
    }
    (entry.kind == Kind::Listener && is_its).then_some(ListenerSockets {
        queue,
        stash,
        shared,
    })
}
