//! Regions that change while they are registered.

use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{SendOp, WcStatus};

use crate::bench::{ALL, Bench};
use crate::case::Case;
use crate::door::{Change, EINVAL};
use crate::end::End;

pub(super) const CASES: &[Case] = &[
    Case::new("register.again", &["mr.rereg"], again),
    Case::new("register.again.refused", &["mr.rereg"], refused),
];

/// What a WRITE of 8 bytes to `offset` through a key comes to after a change. A new pair each time:
/// a failure ends it.
fn outcome(bench: &Bench, change: Change, offset: usize) -> WcStatus {
    let (a, mut b) = bench.pair();
    let key = b.register(64, 64, ALL);
    b.side_mut().reregister(key, &change).expect("changed");
    write(&a, &b, (key, offset))
}

fn write(a: &End, b: &End, (key, offset): (ferroce_proto::ids::Key, usize)) -> WcStatus {
    a.memory().fill(0, &[9; 8]);
    a.send(
        1,
        SendOp::Write(b.remote_with(key, offset)),
        vec![a.sge(0, 8)],
    );
    let status = a.completion().status;
    if status == WcStatus::Success {
        a.waits_for_peer();
    }
    let written = b.memory().bytes(offset, 8) == [9; 8];
    assert_eq!(written, status == WcStatus::Success);
    status
}

fn again(bench: &Bench) {
    let refused = WcStatus::RemAccessErr;
    let range = Change {
        range: Some((256, 32)),
        ..Change::default()
    };
    for (offset, status) in [(256, WcStatus::Success), (64, refused), (288, refused)] {
        assert_eq!(outcome(bench, range, offset), status, "at {offset}");
    }
    let access = Change {
        access: Some(Access::LOCAL_WRITE | Access::REMOTE_READ),
        ..Change::default()
    };
    assert_eq!(outcome(bench, access, 64), refused);
    let elsewhere = Change {
        elsewhere: true,
        ..Change::default()
    };
    assert_eq!(outcome(bench, elsewhere, 64), refused);
}

/// What may not be registered may not be changed to either, and everything stays as it was.
fn refused(bench: &Bench) {
    let (a, mut b) = bench.pair();
    let key = b.register(64, 64, ALL);
    let wrong = Change {
        range: Some((256, 32)),
        access: Some(Access::REMOTE_WRITE),
        ..Change::default()
    };
    assert_eq!(b.side_mut().reregister(key, &wrong), Err(EINVAL));
    assert_eq!(write(&a, &b, (key, 64)), WcStatus::Success);
}
