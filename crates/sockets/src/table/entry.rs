//! An entry of the table of descriptors, and the word that holds it.
//!
//! | bits | |
//! |---|---|
//! | 0 to 2 | [`Kind`] |
//! | 4 to 11 | [`flag`] |
//! | 12 to 23 | the generation of its kind |
//! | 24 to 43, 44 to 63 | hidden descriptors, one higher; 0 for none |

use std::os::fd::RawFd;

use super::generation;

/// Room for a number, one higher, in an entry.
const FIELD: u32 = 20;
const FIELD_MASK: u64 = (1 << FIELD) - 1;

/// What is known of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing.
    #[default]
    Other,
    /// A TCP socket of this process's making that no other number, process or epoll set knows.
    Fresh,
    /// A TCP listener; hidden beside it are the socket that takes streams, and the stash.
    Listener,
    /// A stream in the place of a TCP connection, which is hidden beside it.
    StandIn,
    /// An epoll set in which stand-ins are, or were. Its flags are their number.
    Watcher,
}

impl Kind {
    /// Bits of an entry.
    const MASK: u64 = 7;
    pub(super) const ALL: [Self; 5] = [
        Self::Other,
        Self::Fresh,
        Self::Listener,
        Self::StandIn,
        Self::Watcher,
    ];
}

/// Bits of an entry.
pub(crate) mod flag {
    /// `connect(2)` said EINPROGRESS, and its second call has not come yet.
    pub(crate) const CONNECTING: u8 = 1;
    /// A write went to a peer that had closed: TCP takes one, and fails the next.
    pub(crate) const PEER_GONE: u8 = 2;
    /// `SO_LINGER` with a time of zero is set: close resets.
    pub(crate) const RESETS: u8 = 4;
    /// `shutdown(2)` of this number ended the sending side: asked if the TCP socket is lost.
    pub(crate) const SENT_ALL: u8 = 8;
    /// Receives sleep (no `O_NONBLOCK`). The program may change that where nobody sees it.
    pub(crate) const SLEEPS: u8 = 16;
    /// Receives do not sleep.
    pub(crate) const RETURNS: u8 = 32;
    /// Receives wait for more than a byte (`SO_RCVLOWAT`), perhaps.
    pub(crate) const AT_LEAST: u8 = 64;
    /// The hidden sockets of a listener are another process's or number's too, or its stash has
    /// been used.
    pub(crate) const SHARED: u8 = 128;
}

/// An entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What the descriptor is.
    pub(crate) kind: Kind,
    /// Bits of [`flag`]; of an epoll set, a number.
    pub(crate) flags: u8,
    /// Hidden descriptors.
    pub(crate) hidden: [Option<RawFd>; 2],
    /// `SO_COOKIE` of the TCP socket; of an epoll set, a number that no other one has.
    pub(crate) cookie: u64,
}

impl Entry {
    /// Whether two entries are of one open file.
    pub(crate) fn is_of_same_file(&self, other: &Self) -> bool {
        (self.kind, self.cookie) == (other.kind, other.cookie)
    }
}

/// The word of an entry. It has the present generation of its kind.
pub(super) fn pack(entry: &Entry) -> u64 {
    let number = |fd: Option<RawFd>| {
        let above = fd.and_then(|fd| u64::try_from(fd + 1).ok());
        above.filter(|fd| *fd <= FIELD_MASK).unwrap_or(0)
    };
    let [first, second] = entry.hidden.map(number);
    entry.kind as u64
        | u64::from(entry.flags) << 4
        | generation(entry.kind) << 12
        | first << 24
        | second << (24 + FIELD)
}

/// Whether an entry is of this kind, although one from before `fork` may be stale.
pub(super) fn is(word: u64, kind: Kind) -> bool {
    word & Kind::MASK == kind as u64
}

/// The bits of an entry, or its number.
pub(super) fn flags(word: u64) -> u8 {
    (word >> 4 & 0xff) as u8
}

/// The entry of a word. If its generation is over, a fresh socket is none any more, and a listener
/// is shared.
pub(super) fn unpack(word: u64, cookie: u64) -> Entry {
    let kind = Kind::ALL[(word & Kind::MASK) as usize % Kind::ALL.len()];
    let stale = (word >> 12) & 0xfff != generation(kind);
    let shared = if stale && kind == Kind::Listener {
        flag::SHARED
    } else {
        0
    };
    let number = |shift: u32| {
        let above = RawFd::try_from((word >> shift) & FIELD_MASK).unwrap_or(0);
        (above > 0).then(|| above - 1)
    };
    Entry {
        kind: if stale && kind == Kind::Fresh {
            Kind::Other
        } else {
            kind
        },
        flags: flags(word) | shared,
        hidden: [number(24), number(24 + FIELD)],
        cookie,
    }
}
