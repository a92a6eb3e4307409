//! The listeners that took this process's latest connections: guesses that save the questions of a
//! first connection (`connect`).
//!
//! If another listener has the address by now, the stream is refused, or nobody takes its token:
//! the connection costs the client its patience once, and stays on TCP. That a port has no listener
//! that takes streams is remembered for less time than a server takes to give way to another one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::address::{End, Family};
use crate::lock::Held;
use crate::timeout::Timeout;

/// Addresses that are remembered.
const ADDRESSES: usize = 64;
/// How long a port is taken to have no listener that takes streams, in milliseconds.
const PLAIN_FOR: u64 = 10;
/// All but looks at a port is done under the process's lock.
const ORDER: Ordering = Ordering::Relaxed;

/// A TCP listener that has a queue for streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// `SO_COOKIE`
    pub(crate) cookie: u64,
    /// By which its queue has its name.
    pub(crate) family: Family,
}

struct Recent {
    /// The port, and above it one bit that is set, and one for `AF_INET6`. 0: nothing is known.
    port: AtomicU64,
    ip: [AtomicU64; 2],
    cookie: AtomicU64,
}

const KNOWN: u64 = 1 << 16;
const V6: u64 = 1 << 17;

static RECENT: [Recent; ADDRESSES] = [const {
    Recent {
        port: AtomicU64::new(0),
        ip: [const { AtomicU64::new(0) }; 2],
        cookie: AtomicU64::new(0),
    }
}; ADDRESSES];

/// Ports whose latest connection was to an ordinary server, and above them when, in milliseconds.
static PLAIN: [AtomicU64; ADDRESSES] = [const { AtomicU64::new(0) }; ADDRESSES];

fn place(port: u16) -> usize {
    usize::from(port) % ADDRESSES
}

fn slot(port: u16) -> &'static Recent {
    &RECENT[place(port)]
}

/// Milliseconds of a clock that costs less than a system call.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    let since = time.duration().unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A connection to this port, which no listener that takes streams has, has begun.
pub(crate) fn note_plain(port: u16) {
    PLAIN[place(port)].store(now() << 16 | u64::from(port), ORDER);
}

/// Whether no listener of a port took streams a moment ago.
pub(crate) fn is_plain(port: u16) -> bool {
    let word = PLAIN[place(port)].load(ORDER);
    let is_its = word != 0 && word & 0xffff == u64::from(port);
    is_its && now().wrapping_sub(word >> 16) < PLAIN_FOR
}

fn halves(end: End) -> [u64; 2] {
    let bits = end.ip.to_bits();
    [bits >> 64, bits & u128::from(u64::MAX)].map(|half| u64::try_from(half).unwrap_or(0))
}

/// Whether something may be known of a port's listener.
pub(crate) fn may_be(port: u16) -> bool {
    slot(port).port.load(ORDER) & !V6 == KNOWN | u64::from(port)
}

/// The listener that took the latest connection to this address, if it is remembered.
pub(crate) fn listener(to: End, _held: &Held) -> Option<Listener> {
    let slot = slot(to.port);
    let is_its = slot.ip.each_ref().map(|half| half.load(ORDER)) == halves(to);
    let family = if slot.port.load(ORDER) & V6 == 0 {
        Family::V4
    } else {
        Family::V6
    };
    (may_be(to.port) && is_its).then(|| Listener {
        cookie: slot.cookie.load(ORDER),
        family,
    })
}

/// Notes what became of an offer to the listener of this address.
pub(crate) fn note(to: End, listener: Listener, was_taken: bool, _held: &Held) {
    let slot = slot(to.port);
    if !was_taken {
        slot.port.store(0, ORDER);
        return;
    }
    for (half, value) in slot.ip.iter().zip(halves(to)) {
        half.store(value, ORDER);
    }
    slot.cookie.store(listener.cookie, ORDER);
    let v6 = if listener.family == Family::V6 { V6 } else { 0 };
    slot.port.store(KNOWN | v6 | u64::from(to.port), ORDER);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::lock;

    #[test]
    fn a_port_is_plain_for_a_little() {
        assert!(!is_plain(65001));
        let until = Instant::now() + Duration::from_secs(60);
        note_plain(65001);
        // More than 10 ms may pass between the two.
        while !is_plain(65001) {
            assert!(Instant::now() < until, "it is not remembered");
            note_plain(65001);
        }
        assert!(!is_plain(65001 - 64));
        while is_plain(65001) {
            assert!(Instant::now() < until, "it is asked again");
        }
    }

    #[test]
    fn the_latest_listener_of_an_address_is_known_until_it_misses_a_connection() {
        let at = |text: &str| End::new(text.parse().expect("an address")).expect("an end");
        let (to, same_port) = (at("127.0.0.1:65000"), at("[::1]:65000"));
        let held = lock::hold();
        assert!(!may_be(to.port) && listener(to, &held).is_none());
        for (cookie, family) in [(7, Family::V4), (8, Family::V6)] {
            let latest = Listener { cookie, family };
            note(to, latest, true, &held);
            assert_eq!(listener(to, &held), Some(latest));
        }
        assert!(may_be(to.port) && !may_be(to.port - 64));
        assert_eq!(listener(same_port, &held), None);
        let latest = listener(to, &held).expect("a listener");
        note(to, latest, false, &held);
        assert!(!may_be(to.port) && listener(to, &held).is_none());
    }
}
