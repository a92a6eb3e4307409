//! Operations on the other process's memory while that takes it back.

use std::time::Instant;

use ferroce_nic::DirectWay;
use ferroce_proto::verbs::{RemoteAddr, SendOp, WcStatus};

use super::peer::Peer;
use super::{CANARY, LEN};
use crate::common::{self, Buffer, End, next_completion, rounds, run_alone};

/// Bytes of short operations.
const SHORT: usize = 4 << 10;

/// Copies by the direct way.
pub(crate) fn counted(end: &End) -> u64 {
    let counters = end.context.device().counters();
    DirectWay::ALL.iter().map(|way| counters.direct(*way)).sum()
}

/// What the peer's memory is in for: WRITEs, READs and atomics by turns, long and short. READs go
/// to `scratch`.
fn assault(peer: &Peer, wr_id: u64, place: RemoteAddr, scratch: &Buffer) {
    let add = SendOp::FetchAdd {
        remote: place,
        add: 1,
    };
    // Short ones go through the file of the other process's memory.
    let len = if wr_id % 8 < 4 { LEN } else { SHORT };
    let (op, own, len) = match wr_id % 4 {
        2 => (add, &peer.buffer, 8),
        3 => (SendOp::Read(place), scratch, len),
        _ => (SendOp::Write(place), &peer.buffer, len),
    };
    peer.end.send(wr_id, op, vec![own.sge(0, len)]);
}

/// One round: work on the other side's memory, which it opens as it is told, until that has taken
/// it back.
fn race_once(peer: &mut Peer, opened: &str, kind: u64, scratch: &Buffer) {
    let place = peer.opened(opened);
    peer.tell(&format!("race {kind}"));
    let start = Instant::now();
    for wr_id in 0.. {
        assault(peer, wr_id, place, scratch);
        if next_completion(&peer.end.cq).status != WcStatus::Success {
            break;
        }
        assert!(start.elapsed() < common::DEADLINE, "never refused");
        let stolen = wr_id % 4 == 3 && scratch.snapshot().contains(&CANARY);
        assert!(!stolen, "a READ of memory that was taken back");
    }
    assert_eq!(
        peer.hear(),
        [0],
        "bytes changed after the memory was taken back"
    );
    peer.connect_again();
}

/// Rounds of several ways to open memory and to take it back: what opens it, which way takes it
/// back, and the usual number of rounds.
pub(crate) fn race_all(peer: &mut Peer, ways: &[(&str, u64, usize)]) {
    let ours = Buffer::new(&peer.end.pd, vec![0xaa; LEN]);
    let scratch = std::mem::replace(&mut peer.buffer, ours);
    for (opened, kind, usual) in ways {
        let (all, start) = (rounds(*usual), Instant::now());
        // The end of a queue pair is told by silence; everything else by an answer, which may take
        // its time.
        peer.impatient = matches!(kind, 1 | 2);
        peer.connect_again();
        for _ in 0..all {
            race_once(peer, opened, *kind, &scratch);
        }
        peer.impatient = false;
        peer.connect_again();
        println!("{opened}, kind {kind}: {all} rounds, {:?}", start.elapsed());
    }
}

/// Runs races by the direct way, and sees to it that they were.
pub(crate) fn by_the_direct_way(races: impl FnOnce(&mut Peer)) {
    let copies = copies_of(Peer::start_direct(), races);
    println!("{copies} copies");
    // How many there are before the memory goes is a matter of time.
    assert!(copies > 0, "not by the direct way");
}

/// Runs them by packets: a test that [`by_packets_alone`] runs.
pub(crate) fn by_packets(races: impl FnOnce(&mut Peer)) {
    assert_eq!(copies_of(Peer::start(), races), 0);
}

/// Runs a test alone, without the direct way, and on each of these paths besides.
pub(crate) fn by_packets_alone(test: &str, paths: &[(&str, &str)]) {
    for (name, value) in paths {
        let text = run_alone(test, &[("FERROCE_DIRECT", "0"), (name, value)]);
        println!("{name}={value}: {text}");
        // Somebody else may own the port of the wire.
        let no_wire = *value == "wire" && text.contains("UDP port 4791");
        assert!(text.contains("1 passed") || no_wire, "{text}");
    }
}

fn copies_of(mut peer: Peer, races: impl FnOnce(&mut Peer)) -> u64 {
    let before = counted(&peer.end);
    races(&mut peer);
    counted(&peer.end) - before
}
