//! Path migration: which end takes the alternate path, and when.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::verbs::{AsyncEvent, AttrMask, PathMigState, QpAttr, QpState, SendOp, WcStatus};

use crate::bench::{Bench, PATIENT, Spec};
use crate::case::Case;
use crate::end::End;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "migration.automatic",
        &["event.path-mig", "qp.migration"],
        when_retries_run_out,
    ),
    Case::new("migration.rearm", &["qp.migration"], both_ready),
];

/// An address at which no end is.
fn nobody(end: &End) -> Gid {
    Gid::from_ip(match end.gid().ip() {
        IpAddr::V4(_) => Ipv4Addr::new(127, 0, 0, 2).into(),
        IpAddr::V6(_) => Ipv6Addr::from(2_u128).into(),
    })
}

/// Loads an alternate path to a queue pair of this device, and asks for a state.
fn load(end: &End, to: Qpn, path_mig_state: PathMigState) {
    let attr = QpAttr {
        alt_ah_attr: end.attr(to, end.gid()).ah_attr,
        alt_port_num: 1,
        alt_timeout: PATIENT,
        path_mig_state,
        ..end.attr(to, end.gid())
    };
    let mask = AttrMask::ALT_PATH | AttrMask::PATH_MIG_STATE;
    end.side().modify(&attr, mask).expect("an alternate path");
}

fn arm(end: &End, to: Qpn) {
    load(end, to, PathMigState::Rearm);
    load(end, to, PathMigState::Armed);
}

fn migration(end: &End) -> PathMigState {
    end.side().query().path_mig_state
}

/// Both paths lead nowhere; both ends go over to the alternate ones, and nothing of the work fails.
fn when_retries_run_out(bench: &Bench) {
    let mut spec = Spec::default();
    (spec.attr.timeout, spec.attr.retry_cnt) = (12, 3);
    let (a, b) = (bench.end(spec), bench.peer(spec));
    a.connect_to(b.qpn(), nobody(&a));
    b.connect_to(a.qpn(), nobody(&b));
    arm(&a, b.qpn());
    arm(&b, a.qpn());
    a.memory().fill(0, &[9; 3000]);
    for wr_id in 0..3 {
        a.send(wr_id, SendOp::Write(b.remote(0)), vec![a.sge(0, 3000)]);
    }
    for wr_id in 0..3 {
        a.done(wr_id);
    }
    assert!(b.memory().bytes(0, 3000) == [9; 3000]);
    for end in [&a, &b] {
        end.raises(AsyncEvent::PathMig);
        assert_eq!(migration(end), PathMigState::Migrated);
        assert_eq!(end.state(), QpState::Rts);
    }
    b.send(7, SendOp::Read(a.remote(0)), vec![b.sge(8000, 3000)]);
    b.done(7);
    a.raises_nothing();
}

/// Two ends that are ready to migrate arm each other with their next packets.
fn both_ready(bench: &Bench) {
    let (a, b) = bench.pair();
    load(&a, b.qpn(), PathMigState::Rearm);
    for (wr_id, armed) in [(1, PathMigState::Rearm), (2, PathMigState::Armed)] {
        // Not one-sided: on the same host that may go without packets.
        b.recv(wr_id, vec![b.sge(0, 100)]);
        a.send(wr_id, SendOp::Send, vec![a.sge(0, 100)]);
        a.completes(wr_id, WcStatus::Success);
        b.done(wr_id);
        assert_eq!(migration(&a), armed, "after {wr_id} messages");
        if wr_id == 1 {
            load(&b, a.qpn(), PathMigState::Rearm);
        }
    }
    assert_eq!(migration(&b), PathMigState::Armed);
    a.raises_nothing();
    b.raises_nothing();
}
