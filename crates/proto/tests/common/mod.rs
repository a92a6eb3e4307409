//! Shared by the protocol tests.
#![allow(
    dead_code,
    clippy::cast_possible_truncation,
    reason = "each test binary uses its own part of this, and test data is small"
)]

pub(crate) mod loose;
pub(crate) mod violation;
pub(crate) mod workload;

use std::time::Duration;

use ferroce_proto::testkit::{Pair, Rng, Side, remote, wr};
use ferroce_proto::verbs::{SendOp, SendWr, Sge, WcStatus};
use ferroce_proto::wire::{Opcode, Packet};

/// Virtual time within which everything that is not meant to hang is over.
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// Number of seeds for a test: `base`, or scaled by `FERROCE_SEEDS` percent.
pub(crate) fn seeds(base: u64) -> std::ops::Range<u64> {
    let percent = std::env::var("FERROCE_SEEDS")
        .ok()
        .and_then(|text| text.parse::<u64>().ok())
        .unwrap_or(100);
    0..(base * percent / 100).max(1)
}

/// Seeds that are too few to count on: in any of them a queue pair may fail before much has
/// happened.
const FEW: u64 = 2;

/// The event that a test of [`seeds`]`(base)` is about must have happened more than `least` times
/// in all of `base` seeds. In fewer or more seeds the number is in proportion.
#[track_caller]
pub(crate) fn expect_more(count: usize, least: usize, base: u64) {
    let seeds = seeds(base).end;
    let least = least * seeds as usize / base as usize;
    assert!(
        seeds <= FEW || count > least,
        "only {count} times in {seeds} seeds, not more than {least}"
    );
}

/// Random bytes.
pub(crate) fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    for word in data.chunks_mut(8) {
        word.copy_from_slice(&rng.bits().to_ne_bytes()[..word.len()]);
    }
    data
}

/// `length` bytes from `offset` on, cut into up to `pieces` elements of uneven length, some of them
/// empty.
pub(crate) fn split(
    pair: &Pair,
    side: Side,
    (offset, length): (u64, u32),
    pieces: u32,
) -> Vec<Sge> {
    let mut sges = Vec::new();
    let mut at = 0;
    for piece in 1..=pieces {
        let end = if piece == pieces {
            length
        } else {
            (length / pieces * piece) | 1
        };
        let end = end.clamp(at, length);
        sges.push(pair.sge(side, offset + u64::from(at), end - at));
        at = end;
    }
    sges
}

/// Steps until `n` send completions are there on a side.
#[track_caller]
pub(crate) fn until_sent(pair: &mut Pair, side: Side, n: usize) {
    pair.until(SOON, |p| match side {
        Side::A => p.a.results.send.len() >= n,
        Side::B => p.b.results.send.len() >= n,
    });
}

/// The statuses of all send completions of side A must be these.
#[track_caller]
pub(crate) fn expect_send(pair: &Pair, expected: &[(u64, WcStatus)]) {
    assert_eq!(pair.a.results.send_statuses(), expected);
}

/// The statuses of all receive completions of side B must be these.
#[track_caller]
pub(crate) fn expect_recv(pair: &Pair, expected: &[(u64, WcStatus)]) {
    assert_eq!(pair.b.results.recv_statuses(), expected);
}

/// A signalled WRITE of A's first `len` bytes.
pub(crate) fn write(pair: &Pair, wr_id: u64, len: u32) -> SendWr {
    let to = remote(pair.key(Side::B), 0);
    wr(wr_id, SendOp::Write(to), vec![pair.sge(Side::A, 0, len)])
}

/// Opcodes of the packets that a side sent since the trace was switched on.
pub(crate) fn sent(pair: &mut Pair, side: Side) -> Vec<Opcode> {
    let trace = pair.trace.replace(Vec::new()).unwrap_or_default();
    trace
        .iter()
        .filter(|(from, _)| *from == side)
        .map(|(_, bytes)| Packet::parse(bytes).expect("well-formed").bth.opcode)
        .collect()
}
