//! ATOMIC WRITE and FLUSH: when what was written is where (IBTA 1.5, annex A19).

use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{
    Flush, Placement, QpAttr, QpState, RemoteAddr, Selectivity, SendOp, WcOpcode, WcStatus,
};

use crate::bench::{ALL, Bench, Spec};
use crate::case::Case;

pub(super) const CASES: &[Case] = &[
    Case::new("atomic-write.order", &["op.atomic-write"], atomic_write),
    Case::new("flush.range-and-region", &["op.flush"], flush),
    Case::new(
        "flush.not-allowed",
        &["violation.flush"],
        flush_that_is_not_allowed,
    ),
];

/// Ends whose regions and queue pairs have these rights too.
fn allowing(region: Access, queue_pair: Access) -> Spec {
    let spec = Spec::default();
    Spec {
        access: ALL | region,
        attr: QpAttr {
            qp_access_flags: ALL | queue_pair,
            ..spec.attr
        },
        ..spec
    }
}

fn of(remote: RemoteAddr, length: u32, selectivity: Selectivity) -> SendOp {
    SendOp::Flush(Flush {
        remote,
        length,
        placement: Placement::GLOBAL,
        selectivity,
    })
}

fn atomic_write(bench: &Bench) {
    let (a, b) = bench.pair();
    for n in 1..=10_u64 {
        a.memory().fill(8, &n.to_ne_bytes());
        a.send(n, SendOp::AtomicWrite(b.remote(64)), vec![a.sge(8, 8)]);
        assert_eq!(a.done(n).opcode, WcOpcode::AtomicWrite);
        assert_eq!(b.memory().word(64), n);
    }
    b.is_silent();
    a.send(11, SendOp::AtomicWrite(b.remote(68)), vec![a.sge(8, 8)]);
    a.completes(11, WcStatus::RemInvReqErr);
}

fn flush(bench: &Bench) {
    let spec = allowing(Access::FLUSH_GLOBAL, Access::FLUSH_GLOBAL);
    let (a, b) = bench.pair_of(spec, spec);
    a.memory().fill(0, &[7; 3000]);
    for (wr_id, selectivity) in [(1, Selectivity::Range), (3, Selectivity::Region)] {
        let to = b.remote(5000);
        a.send(wr_id, SendOp::Write(to), vec![a.sge(0, 3000)]);
        a.send(wr_id + 1, of(to, 3000, selectivity), vec![]);
        a.done(wr_id);
        let done = a.done(wr_id + 1);
        assert_eq!(done.opcode, WcOpcode::Flush);
        assert!(b.memory().bytes(5000, 3000) == [7; 3000]);
        b.memory().fill(5000, &[0; 3000]);
    }
    // Nothing is flushed of a range without bytes; its key must be right all the same.
    a.send(5, of(b.remote(0), 0, Selectivity::Range), vec![]);
    a.done(5);
    b.is_silent();
    assert_eq!(b.state(), QpState::Rts);
}

fn flush_that_is_not_allowed(bench: &Bench) {
    let (none, global) = (Access::empty(), Access::FLUSH_GLOBAL);
    for (region, queue_pair, length, status) in [
        (none, global, 8, WcStatus::RemAccessErr),
        (none, global, 0, WcStatus::RemAccessErr),
        (global, none, 8, WcStatus::RemInvReqErr),
        (global, global, 1 << 20, WcStatus::RemAccessErr),
    ] {
        let asks = allowing(global, global);
        let (a, b) = bench.pair_of(asks, allowing(region, queue_pair));
        a.send(1, of(b.remote(0), length, Selectivity::Range), vec![]);
        a.completes(1, status);
        b.reaches(QpState::Err);
    }
}
