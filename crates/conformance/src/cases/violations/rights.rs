//! Operations on memory that they have no right to.

use ferroce_proto::ids::Key;
use ferroce_proto::mr::Access;
use ferroce_proto::wire::{Operation, Position};

use super::{ACCESS, FULL, INVALID, refused};
use crate::bench::{ALL, Bench, MTU, Spec};
use crate::case::Case;
use crate::raw::{Building, RawPeer};

use Operation::{CompareSwap, FetchAdd, ReadRequest, Write, WriteImm};
use Position::{First, Only};

pub(in crate::cases) const CASES: &[Case] = &[
    Case::raw(
        "violation.rkey",
        &[
            "violation.rkey",
            "violation.bounds",
            "violation.pd",
            "violation.mr-access",
        ],
        remote_keys,
    ),
    Case::raw(
        "violation.bounds.whole-message",
        &["violation.bounds", "rc.range-checked-first"],
        bounds_before_a_byte,
    ),
    Case::raw(
        "violation.wrapping-range",
        &["violation.bounds"],
        range_that_wraps,
    ),
    Case::raw(
        "violation.access-flags",
        &["violation.access-flags"],
        access_flags,
    ),
    Case::raw(
        "violation.atomic-alignment",
        &["violation.atomic-alignment"],
        atomic_alignment,
    ),
    Case::raw("violation.read-depth", &["violation.read-depth"], no_depth),
];

/// The three one-sided operations on 8 bytes.
fn one_sided<'a>(
    peer: &'a RawPeer,
    at: ferroce_proto::verbs::RemoteAddr,
    i: usize,
) -> Building<'a> {
    match i {
        0 => peer.packet(Write, Only).reth(at, 8).payload(&FULL[..8]),
        1 => peer.packet(ReadRequest, Only).reth(at, 8),
        2 => peer.packet(FetchAdd, Only).atomic(at, 1, 0),
        _ => peer.packet(CompareSwap, Only).atomic(at, 1, 0),
    }
}

const NEEDS: [Access; 4] = [
    Access::REMOTE_WRITE,
    Access::REMOTE_READ,
    Access::REMOTE_ATOMIC,
    Access::REMOTE_ATOMIC,
];

fn remote_keys(bench: &Bench) {
    for (i, need) in NEEDS.into_iter().enumerate() {
        for wrong in 0..4 {
            let mut both = bench.raw();
            let end = &mut both.0;
            let at = match wrong {
                0 => end.remote_with(Key(end.key().0 ^ 0x0f0f), 0),
                1 => end.remote(end.memory().len()),
                2 => {
                    let foreign = end.side_mut().register_elsewhere(0, 64, ALL);
                    end.remote_with(foreign.expect("a region"), 0)
                }
                _ => {
                    let key = end.register(0, 64, ALL.difference(need));
                    end.remote_with(key, 0)
                }
            };
            refused(&both, one_sided(&both.1, at, i), ACCESS);
            assert_eq!(both.0.memory().word(0), 0);
        }
    }
}

fn bounds_before_a_byte(bench: &Bench) {
    let both = bench.raw();
    let (end, peer) = &both;
    let len = u32::try_from(end.memory().len()).expect("small");
    let packet = peer
        .packet(Write, First)
        .reth(end.remote(8), len)
        .payload(&FULL);
    refused(&both, packet, ACCESS);
    assert_eq!(end.memory().bytes(8, MTU), vec![0; MTU]);
}

fn range_that_wraps(bench: &Bench) {
    for (operation, addr, len) in [
        (ReadRequest, u64::MAX - 3, 8),
        (ReadRequest, u64::MAX, 1 << 31),
        (WriteImm, u64::MAX - 7, 16),
    ] {
        let both = bench.raw();
        let (end, peer) = &both;
        let mut at = end.remote(0);
        at.addr = addr;
        let mut packet = peer.packet(operation, Only).reth(at, len);
        if operation == WriteImm {
            end.recv(1, vec![]);
            packet = packet.imm([0; 4]).payload(&FULL[..16]);
        }
        refused(&both, packet, ACCESS);
    }
}

fn access_flags(bench: &Bench) {
    for (i, need) in NEEDS.into_iter().enumerate() {
        let mut spec = Spec::default();
        spec.attr.qp_access_flags = ALL.difference(need);
        let both = bench.raw_of(spec);
        let at = both.0.remote(0);
        refused(&both, one_sided(&both.1, at, i), INVALID);
        assert_eq!(both.0.memory().word(0), 0);
    }
}

fn atomic_alignment(bench: &Bench) {
    for i in [2, 3] {
        for offset in [1, 4, 7] {
            let both = bench.raw();
            let at = both.0.remote(offset);
            refused(&both, one_sided(&both.1, at, i), INVALID);
        }
    }
}

fn no_depth(bench: &Bench) {
    for i in [1, 2] {
        let mut spec = Spec::default();
        spec.attr.max_dest_rd_atomic = 0;
        let both = bench.raw_of(spec);
        let at = both.0.remote(0);
        refused(&both, one_sided(&both.1, at, i), INVALID);
    }
}
