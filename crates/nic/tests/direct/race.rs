//! Operations on the other process's memory while that takes it back.

use std::time::Instant;

use ferroce_nic::Way;
use ferroce_proto::ids::Key;
use ferroce_proto::verbs::{RemoteAddr, SendOp, WcStatus};

use super::child::{CANARY, LEN, Peer};
use super::common::{self, Buffer, End, next_completion};

/// Copies by the direct way.
pub(super) fn counted(end: &End) -> u64 {
    let counters = end.context.device().counters();
    Way::ALL.iter().map(|way| counters.direct(*way)).sum()
}

/// What the peer's memory is in for: WRITEs, READs and atomics by turns. READs go to `scratch`.
pub(super) fn assault(peer: &Peer, wr_id: u64, place: RemoteAddr, scratch: &Buffer) {
    let add = SendOp::FetchAdd {
        remote: place,
        add: 1,
    };
    let (op, own, len) = match wr_id % 4 {
        2 => (add, &peer.buffer, 8),
        3 => (SendOp::Read(place), scratch, LEN),
        _ => (SendOp::Write(place), &peer.buffer, LEN),
    };
    peer.end.send(wr_id, op, vec![own.sge(0, len)]);
}

/// One round: work on the other side's memory, which it opens as it is told, until that has taken it back.
pub(super) fn race_once(peer: &mut Peer, opened: &str, kind: u64, scratch: &Buffer) {
    let theirs = peer.ask(opened);
    let place = RemoteAddr {
        addr: theirs[0],
        rkey: Key(u32::try_from(theirs[1]).expect("a key")),
    };
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
