//! Servers whose connections turn out short: for a while the next ones stay on TCP.
//!
//! Making a stream costs both ends together 24 µs of processor time. What it carries earns them
//! back: about 30 calls, or 64 KiB. On two processors the ends share the cost, and the first
//! wake-up that a look saves is worth more than it. So a connection is short if it carries less, is
//! closed soon, and the server was not seen to take it on another processor.
//!
//! Invariant: what is known of a number is of the latest stream that a client got there.
//! Enforced by: `begin` replaces it; `forget` where another number or process gets the stream.
//! If broken: connections stay on TCP that streams are worth making for, for `REST` each time.

use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ferroce_os::environment::variable;

use crate::recent::now;
use crate::table::NUMBERS;

/// The variable: milliseconds.
const VARIABLE: &str = "FERROCE_SOCKETS_REST";
/// How long a server's connections stay on TCP, in milliseconds. Short ones of which there are
/// fewer in that time cost little.
const REST: u64 = 100;
/// Short connections, one after the other, after which the next ones stay on TCP.
const MANY: u64 = 16;
/// A connection that lasts for as many milliseconds is not short.
const LONG: u32 = 10;
/// What a stream carries that is worth its making, in bytes.
const WORTH: u64 = 64 << 10;
/// What a call counts for, beside its bytes.
const CALL: u64 = 2 << 10;
/// Servers that are remembered.
const SERVERS: usize = 64;
/// Guesses, all of them: a change that is lost costs a stream, or one that was not worth it.
const ORDER: Ordering = Ordering::Relaxed;

/// Of a number: what its stream has carried, the server's port, and when it began, in milliseconds.
/// 0: it has no client's stream, or one that was worth making.
static STREAMS: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];
/// Of a server: its short connections, its port, and when the latest one ended, in milliseconds.
static LATEST: [AtomicU64; SERVERS] = [const { AtomicU64::new(0) }; SERVERS];
/// When the process was copied. A child may have what its parent closes.
static FORKED: AtomicU32 = AtomicU32::new(0);

const CARRIED: u64 = (1 << 24) - 1;
const COUNT: u64 = (1 << 8) - 1;

fn server(port: u16) -> &'static AtomicU64 {
    &LATEST[usize::from(port) % SERVERS]
}

fn slot(fd: RawFd) -> Option<&'static AtomicU64> {
    STREAMS.get(usize::try_from(fd).ok()?)
}

/// How long connections stay on TCP. 0: they never do.
pub(crate) fn rest() -> u64 {
    static CONFIGURED: OnceLock<u64> = OnceLock::new();
    *CONFIGURED.get_or_init(|| {
        let text = variable(VARIABLE).and_then(|value| value.into_string().ok());
        text.and_then(|text| text.parse().ok()).unwrap_or(REST)
    })
}

/// A server's short connections, and milliseconds since the latest one.
fn latest(word: u64, port: u16, at: u64) -> (u64, u64) {
    let is_its = word >> 8 & 0xffff == u64::from(port);
    let count = if is_its { word & COUNT } else { 0 };
    (count, at.wrapping_sub(word >> 24))
}

/// Whether connections to this port stay on TCP now.
pub(crate) fn rests(port: u16) -> bool {
    let word = server(port).load(ORDER);
    word != 0 && rests_at(word, port, now())
}

fn rests_at(word: u64, port: u16, at: u64) -> bool {
    let (count, since) = latest(word, port, at);
    count >= MANY && since < rest()
}

/// A short connection has ended.
fn note(port: u16, at: u64) {
    let server = server(port);
    let word = server.load(ORDER);
    let (count, since) = latest(word, port, at);
    // One that was made before the rest began does not make it longer.
    if !rests_at(word, port, at) {
        let count = if since < rest() { count + 1 } else { 1 };
        server.store(at << 24 | u64::from(port) << 8 | count.min(MANY), ORDER);
    }
}

/// A connection to this port was worth its stream.
fn was_worth_it(port: u16) {
    let server = server(port);
    if latest(server.load(ORDER), port, 0).0 > 0 {
        server.store(0, ORDER);
    }
}

fn port(word: u64) -> u16 {
    u16::try_from(word >> 24 & 0xffff).unwrap_or(0)
}

/// When something began, in 24 bits.
fn begun(at: u64) -> u64 {
    at & 0xff_ffff
}

/// A client's connection to this port has a stream now. `elsewhere`: the server was seen to take it
/// on another processor.
pub(crate) fn begin(fd: RawFd, port: u16, elsewhere: bool) {
    if elsewhere {
        was_worth_it(port);
    }
    let word = u64::from(port) << 24 | begun(now()) << 40;
    if let Some(slot) = slot(fd).filter(|_| rest() > 0) {
        slot.store(if elsewhere { 0 } else { word }, ORDER);
    }
}

/// A call has moved `bytes` bytes; below 0 if it failed.
#[inline]
pub(crate) fn carried(fd: RawFd, bytes: isize) {
    if let Some(slot) = slot(fd) {
        let word = slot.load(ORDER);
        if word != 0 {
            add(slot, word, u64::try_from(bytes).unwrap_or(0));
        }
    }
}

fn add(slot: &AtomicU64, word: u64, bytes: u64) {
    let carried = (word & CARRIED) + CALL + bytes.min(WORTH);
    if carried < WORTH {
        slot.store(word & !CARRIED | carried, ORDER);
    } else {
        slot.store(0, ORDER);
        was_worth_it(port(word));
    }
}

/// The program has closed a stream.
pub(crate) fn ended(fd: RawFd) {
    let word = slot(fd).map_or(0, |slot| slot.swap(0, ORDER));
    if word == 0 {
        return;
    }
    let at = now();
    let age = |since: u64| begun(at.wrapping_sub(since));
    // The clock has steps of some milliseconds.
    if age(word >> 40) >= u64::from(LONG) {
        was_worth_it(port(word));
    } else if age(FORKED.load(ORDER).into()) > age(word >> 40) {
        note(port(word), at);
    }
}

/// Another number or process gets a stream: this number's end says nothing.
pub(crate) fn forget(fd: RawFd) {
    if let Some(slot) = slot(fd) {
        slot.store(0, ORDER);
    }
}

/// The process was copied.
pub(crate) fn forked() {
    let at = u32::try_from(begun(now())).unwrap_or(0);
    FORKED.store(at, ORDER);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::lock;

    /// Times at which short connections to a port end, one after the other, and whether the next
    /// one stays on TCP then.
    fn rests_after(port: u16, times: impl IntoIterator<Item = u64>) -> bool {
        let mut last = 0;
        for at in times {
            note(port, at);
            last = at;
        }
        rests_at(server(port).load(ORDER), port, last)
    }

    #[test]
    fn many_short_connections_in_a_row_make_a_rest() {
        let port = 65010;
        let times = |count| (1000..).take(count);
        assert!(!rests_after(port, times(15)));
        assert!(rests_after(port, [1015]));
        let at = |port, at| rests_at(server(port).load(ORDER), port, at);
        // One of those that were made before does not make it longer.
        note(port, 1100);
        assert!(at(port, 1015 + REST - 1) && !at(port, 1015 + REST));
        assert!(!at(port - 64, 1016), "it is another port's");
        // The first of the next ones.
        assert!(!rests_after(port, [1015 + REST]));
        assert!(rests_after(port, (2000..).take(16)));
        was_worth_it(port - 64);
        assert!(at(port, 2016));
        was_worth_it(port);
        assert!(!at(port, 2016) && !rests_after(port, [2016]));
    }

    #[test]
    fn short_connections_now_and_then_make_none() {
        assert!(!rests_after(
            65011,
            (0..100).map(|index| 1000 + index * REST)
        ));
    }

    /// Short connections of a number that the latest notes say, after `each` for a new one, as
    /// often as a busy machine lets it be short.
    fn counted(port: u16, each: impl Fn(RawFd)) -> u64 {
        let fd = RawFd::from(port);
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            server(port).store(0, ORDER);
            let start = now();
            begin(fd, port, false);
            each(fd);
            ended(fd);
            if now() - start < u64::from(LONG) {
                return latest(server(port).load(ORDER), port, now()).0;
            }
            assert!(Instant::now() < until, "the machine is too busy");
        }
    }

    #[test]
    fn a_connection_is_short_if_it_carries_little() {
        let _held = lock::hold();
        let port = 65012;
        // Another test may say that the process was copied.
        FORKED.store(u32::try_from(begun(now() - 1000)).expect("24 bits"), ORDER);
        let calls = |count: usize, bytes| move |fd| (0..count).for_each(|_| carried(fd, bytes));
        assert_eq!(counted(port, calls(20, 1)), 1);
        assert_eq!(counted(port, calls(20, -1)), 1);
        assert_eq!(counted(port, calls(40, 1)), 0);
        assert_eq!(counted(port, calls(1, 60_000)), 1);
        assert_eq!(counted(port, calls(1, 1 << 40)), 0);
        assert_eq!(counted(port, forget), 0);
        assert_eq!(counted(port, |fd| begin(fd, port, true)), 0);
        let copied = |_| forked();
        assert_eq!(counted(port, copied), 0);
    }

    #[test]
    fn a_connection_that_lasts_is_not_short() {
        let port = 65013;
        note(port, now());
        begin(65013, port, false);
        let start = now();
        while now() < start + u64::from(LONG) {
            std::hint::spin_loop();
        }
        ended(65013);
        assert_eq!(latest(server(port).load(ORDER), port, now()).0, 0);
    }
}
