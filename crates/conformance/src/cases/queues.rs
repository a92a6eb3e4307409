//! Completion queues that change their size.

use ferroce_proto::verbs::SendOp;

use crate::bench::Bench;
use crate::case::Case;
use crate::door::EINVAL;

pub(super) const CASES: &[Case] = &[Case::new("cq.resize", &["cq.resize"], resize)];

/// More than the smallest queue has.
const QUEUED: u32 = 24;

fn resize(bench: &Bench) {
    let (a, b) = bench.pair();
    for wr_id in 0..u64::from(QUEUED) {
        b.recv(wr_id, vec![]);
        a.send(wr_id, SendOp::Send, vec![]);
    }
    // What is acknowledged has completed on the other side.
    for wr_id in 0..u64::from(QUEUED) {
        a.done(wr_id);
    }
    a.waits_for_peer();
    assert_eq!(b.side().resize_cq(QUEUED - 1), Err(EINVAL));
    for cqe in [QUEUED, 1000, QUEUED] {
        assert_eq!(b.side().resize_cq(cqe), Ok(()));
    }
    for wr_id in 0..u64::from(QUEUED) {
        b.done(wr_id);
    }
    b.is_silent();
    b.recv(99, vec![]);
    a.send(99, SendOp::Send, vec![]);
    a.done(99);
    b.done(99);
}
