//! Offers whose connection is under way.
//!
//! A place in the table owns the descriptors of an offer. The thread that connects decides about
//! its offer when the server has had its time. A thread that closes, copies, watches or sends the
//! socket meanwhile, or calls `fork`, decides at once.
//!
//! Invariant: an offer is decided once, and its socket has one number of one process until then.
//! Enforced by: the process's lock, and serial numbers that tell the offers of a place apart.
//! If broken: a copy or an epoll set keeps the TCP connection while the peer uses the stream, or a
//! file that the program has opened is read or closed in place of the offer's.

use std::os::fd::RawFd;
use std::sync::atomic::{self, AtomicU64, AtomicUsize, Ordering};

use crate::address::{Connection, End};
use crate::count::Reason;
use crate::lock::Held;
use crate::replace::{self, Replacement, Status};
use crate::sys::{self, SocketEnd};
use crate::{table, token};

/// Connections under way at a time; more stay on TCP.
const OFFERS: usize = 64;
/// Room for a number, one higher.
const FIELD: u32 = 20;
/// All of the table is used under the process's lock.
const ORDER: Ordering = Ordering::Relaxed;

struct OfferSlot {
    /// Stream, token, and the program's socket; 0 if the place is free.
    numbers: AtomicU64,
    cookie: AtomicU64,
    serial: AtomicU64,
}

static TABLE: [OfferSlot; OFFERS] = [const {
    OfferSlot {
        numbers: AtomicU64::new(0),
        cookie: AtomicU64::new(0),
        serial: AtomicU64::new(0),
    }
}; OFFERS];
/// Serial number of the latest offer.
static LATEST: AtomicU64 = AtomicU64::new(0);
/// Offers that are noted, or that a thread decides about.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

fn pack(numbers: [RawFd; 3]) -> Option<u64> {
    numbers.iter().try_fold(0, |word, fd| {
        let above = u64::try_from(*fd).ok()? + 1;
        (above < 1 << FIELD).then_some(word << FIELD | above)
    })
}

fn unpack(word: u64) -> [RawFd; 3] {
    let field = |index: u32| {
        let above = (word >> (index * FIELD)) & ((1 << FIELD) - 1);
        RawFd::try_from(above).unwrap_or(0) - 1
    };
    [field(2), field(1), field(0)]
}

/// An offer's descriptors, and the cookie of the program's socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offered {
    pub(crate) stream: RawFd,
    pub(crate) token: RawFd,
    pub(crate) socket: RawFd,
    pub(crate) cookie: u64,
}

/// An offer's place in the table, and its serial number.
#[derive(Debug)]
pub(crate) struct Place(usize, u64);

impl OfferSlot {
    fn offered(&self) -> Option<Offered> {
        let numbers = self.numbers.load(ORDER);
        let [stream, token, socket] = unpack(numbers);
        let cookie = self.cookie.load(ORDER);
        (numbers != 0).then_some(Offered {
            stream,
            token,
            socket,
            cookie,
        })
    }

    fn take(&self) -> Option<Offered> {
        let offered = self.offered();
        self.numbers.store(0, ORDER);
        offered
    }
}

/// Whether there are offers that are not decided, of any socket. Without the lock the answer is
/// old: only a thread that has forgotten a fresh socket (`table`) before it asks may rely on there
/// being none.
pub(crate) fn any() -> bool {
    UNDER_WAY.load(Ordering::SeqCst) > 0
}

/// Notes the offer of a socket that is about to be connected, and has none. None if there is no
/// room. The caller looks afterwards whether the socket is fresh still.
pub(crate) fn add(offered: Offered, _held: &Held) -> Option<Place> {
    let Offered {
        stream,
        token,
        socket,
        cookie,
    } = offered;
    let numbers = pack([stream, token, socket])?;
    let free = TABLE.iter().position(|slot| slot.offered().is_none())?;
    let serial = LATEST.fetch_add(1, ORDER) + 1;
    TABLE[free].cookie.store(cookie, ORDER);
    TABLE[free].serial.store(serial, ORDER);
    TABLE[free].numbers.store(numbers, ORDER);
    UNDER_WAY.fetch_add(1, Ordering::SeqCst);
    atomic::fence(Ordering::SeqCst);
    Some(Place(free, serial))
}

impl Place {
    fn slot(&self) -> Option<&'static OfferSlot> {
        let slot = &TABLE[self.0];
        (slot.serial.load(ORDER) == self.1).then_some(slot)
    }

    /// The offer, unless another thread has decided about it.
    pub(crate) fn offered(&self, _held: &Held) -> Option<Offered> {
        self.slot()?.offered()
    }

    /// Removes the offer, unless another thread has decided about it. The caller has its
    /// descriptors.
    pub(crate) fn take(&self, _held: &Held) -> Option<Offered> {
        self.slot()?.take()
    }
}

impl Offered {
    /// Gives the stream its connection's name, by which other programs know it. The kernel says
    /// which ends these are: the other one may not be what the program asked for.
    pub(crate) fn name(self) -> Result<(), Reason> {
        let end = |which| {
            let name = sys::name(self.socket, which).ok()?;
            End::new(name.internet()?)
        };
        // A socket has no peer while the listener's queue is full.
        let server = end(SocketEnd::Peer).ok_or(Reason::NotEstablished)?;
        let client = end(SocketEnd::Own).ok_or(Reason::NotEstablished)?;
        let connection = Connection { client, server };
        if !connection.is_within_host() {
            return Err(Reason::OtherHost);
        }
        let name = connection.name(self.cookie);
        match sys::bind(self.stream, &name) {
            // It has the name.
            Ok(()) | Err(libc::EINVAL) => Ok(()),
            Err(_) => Err(Reason::NoDescriptor),
        }
    }

    /// Decides by the token between stream and TCP. If the server has the token, TCP is
    /// established, and the stream gets the socket's number. Returns whether the server has the
    /// token. `flags` are of the table. `is_named`: the stream has its name.
    pub(crate) fn decide(self, flags: u8, is_named: bool) -> bool {
        // A thread that waits for the server wakes when the token is taken. If the number is
        // another file's before that thread runs, it finds out at its next glance.
        let was_taken = !token::take(self.token);
        // The program may have closed the number by a system call of its own.
        let is_same = sys::cookie(self.socket) == Ok(self.cookie);
        if was_taken && is_same {
            if !is_named {
                let _ = self.name();
            }
            sys::close(self.token);
            // If another thread took the last room meanwhile, TCP's options are lost.
            let hidden = replace::hide_tcp(self.socket);
            let status = Status::of(self.socket);
            let stand_in = Replacement {
                stream: self.stream,
                status: Some(libc::O_NONBLOCK),
                hidden,
                flags,
                cookie: self.cookie,
            };
            stand_in.put_under(self.socket, status);
            UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
            return true;
        }
        self.end();
        if is_same {
            table::forget_fresh(self.socket);
        }
        was_taken
    }

    /// Takes the offer back. A server that has the token finds the stream ended.
    pub(crate) fn end(self) {
        token::take(self.token);
        // Copies of the stream, as a child of `vfork` has them, do not keep it.
        let _ = sys::shutdown(self.stream, libc::SHUT_RDWR);
        sys::close(self.stream);
        sys::close(self.token);
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Decides about each offer that has a number for which `has` is true.
fn decide_if(has: impl Fn(RawFd) -> bool) {
    for slot in &TABLE {
        let is_one = |offered: Offered| {
            let numbers = [offered.stream, offered.token, offered.socket];
            numbers.into_iter().any(&has)
        };
        if slot.offered().is_some_and(is_one) {
            slot.take().map(|offered| offered.decide(0, false));
        }
    }
}

/// Decides about the offer of a socket that is closed, copied, watched, sent or connected again
/// before its `connect` has returned. A handler that left `connect` by `longjmp` leaves an offer as
/// well.
pub(crate) fn decide(socket: RawFd, _held: &Held) {
    decide_if(|fd| fd == socket);
}

/// Decides the offers of a range of numbers before the program closes them.
pub(crate) fn decide_within(first: u32, last: u32, _held: &Held) {
    decide_if(|fd| u32::try_from(fd).is_ok_and(|fd| (first..=last).contains(&fd)));
}

/// Decides about all offers, before `fork`. The lock is held.
pub(crate) fn decide_all() {
    decide_if(|_| true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_as_they_were_given() {
        for numbers in [[0, 1, 2], [900_000, 0, 77]] {
            assert_eq!(pack(numbers).map(unpack), Some(numbers));
        }
        assert_eq!(pack([1 << 20, 1, 1]), None);
        assert_eq!(pack([-1, 1, 1]), None);
    }
}
