//! Automatic path migration: a path that leads nowhere, and one beside it that leads to the peer.

mod common;

use std::net::Ipv4Addr;

use common::key::{KeyFile, run_keyed};
use common::{
    Buffer, End, attributes, cap, loopback, pair, pattern, run_on_wire, wait_for, way_to,
};
use ferroce_nic::{Asker, Denial, Nic};
use ferroce_proto::ids::Gid;
use ferroce_proto::verbs::{AsyncEvent, AttrMask, Mtu, PathMigState, QpAttr, SendOp, WcStatus};

/// An address of loopback that no end has as its own: packets to it are for nobody.
const NOBODY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn alternate(end: &End, peer: &End, state: PathMigState) {
    alternate_at(end, peer, 0, state);
}

/// An alternate path between addresses with an index.
fn alternate_at(end: &End, peer: &End, sgid_index: u8, state: PathMigState) {
    let gid = peer.context.device().gid(sgid_index.into());
    let attr = QpAttr {
        alt_ah_attr: way_to(gid.expect("an address"), sgid_index),
        alt_port_num: 1,
        alt_timeout: 18,
        path_mig_state: state,
        ..attributes(peer.qp.qpn(), peer.gid(), Mtu::B1024)
    };
    let mask = AttrMask::ALT_PATH | AttrMask::PATH_MIG_STATE;
    end.qp.modify(&attr, mask).expect("an alternate path");
}

/// Arms by hand: no packet of the peer can come over a path that leads nowhere.
fn arm(end: &End, peer: &End) {
    for state in [PathMigState::Rearm, PathMigState::Armed] {
        alternate(end, peer, state);
    }
}

fn migration_state(end: &End) -> PathMigState {
    end.qp.query().path_mig_state
}

/// Two ends whose paths lead nowhere.
fn lost_pair() -> (End, End) {
    let (a, b) = (End::new(cap()), End::new(cap()));
    let nowhere = Gid::from_ip(NOBODY.into());
    for (end, peer) in [(&a, &b), (&b, &a)] {
        let attr = QpAttr {
            timeout: 14,
            ..attributes(peer.qp.qpn(), nowhere, Mtu::B1024)
        };
        end.connect_with(&attr).expect("connected");
    }
    (a, b)
}

fn both_ends_migrate() {
    let (a, b) = lost_pair();
    arm(&a, &b);
    arm(&b, &a);
    let (here, there) = (
        Buffer::new(&a.pd, pattern(5000, 3)),
        Buffer::new(&b.pd, vec![0; 5000]),
    );
    a.send(1, SendOp::Write(there.remote(0)), vec![here.sge(0, 5000)]);
    a.done(1);
    assert_eq!(there.snapshot(), pattern(5000, 3));
    for end in [&a, &b] {
        assert_eq!(migration_state(end), PathMigState::Migrated);
        let mut event = None;
        wait_for("the event", || {
            event = end.context.pop_async_event();
            event.is_some()
        });
        assert_eq!(event.map(|(kind, _)| kind), Some(AsyncEvent::PathMig));
    }
    // And back, over the path that is the only one now.
    a.recv(2, vec![here.sge(0, 16)]);
    b.send(3, SendOp::Send, vec![there.sge(0, 16)]);
    assert_eq!(a.done(2).byte_len, 16);
    b.done(3);
}

fn a_peer_without_an_alternate_path_is_not_taken_along() {
    let (a, b) = lost_pair();
    arm(&a, &b);
    a.send(1, SendOp::Write(remote_of(&b)), vec![]);
    assert_eq!(a.completion().status, WcStatus::RetryExcErr);
    let (event, _) = a.context.pop_async_event().expect("it has migrated");
    assert_eq!(event, AsyncEvent::PathMig);
    assert_eq!(migration_state(&b), PathMigState::Migrated, "as it was");
    assert!(b.context.pop_async_event().is_none());
}

fn remote_of(end: &End) -> ferroce_proto::verbs::RemoteAddr {
    Buffer::new(&end.pd, vec![0; 8]).remote(0)
}

/// A path that leads to the peer, and one beside it between other addresses.
fn a_program_migrates() {
    let (a, b) = pair(Mtu::B1024);
    let other = u8::from(a.context.device().gid(1).is_some());
    for (end, peer) in [(&a, &b), (&b, &a)] {
        for state in [PathMigState::Rearm, PathMigState::Armed] {
            alternate_at(end, peer, other, state);
        }
    }
    let (here, there) = (
        Buffer::new(&a.pd, pattern(5000, 3)),
        Buffer::new(&b.pd, vec![0; 5000]),
    );
    let attr = QpAttr {
        path_mig_state: PathMigState::Migrated,
        ..QpAttr::default()
    };
    for wr_id in 0..4 {
        if wr_id == 2 {
            let migrated = a.qp.modify(&attr, AttrMask::PATH_MIG_STATE);
            migrated.expect("the alternate path leads there");
        }
        a.send(
            wr_id,
            SendOp::Write(there.remote(0)),
            vec![here.sge(0, 5000)],
        );
        a.done(wr_id);
        b.send(
            wr_id,
            SendOp::Read(here.remote(0)),
            vec![there.sge(0, 5000)],
        );
        b.done(wr_id);
    }
    assert_eq!(there.snapshot(), pattern(5000, 3));
    for end in [&a, &b] {
        assert_eq!(migration_state(end), PathMigState::Migrated);
    }
}

#[test]
fn with_a_key() {
    let key = KeyFile::random("migration", 1);
    run_keyed("child_with_a_key", &key, &[]);
}

#[test]
#[ignore = "run by the test above"]
fn child_with_a_key() {
    a_program_migrates();
    let dropped = Nic::denied_at(&loopback(), Asker::Host, Denial::Unauthenticated);
    assert_eq!(dropped, 0);
}

#[test]
fn on_the_same_host_a_program_migrates() {
    a_program_migrates();
}

#[test]
fn on_the_same_host_both_ends_migrate() {
    both_ends_migrate();
}

#[test]
fn on_the_same_host_a_peer_without_an_alternate_path_is_not_taken_along() {
    a_peer_without_an_alternate_path_is_not_taken_along();
}

#[test]
fn over_the_wire() {
    run_on_wire("child_over_the_wire", "");
}

#[test]
#[ignore = "run by the test above"]
fn child_over_the_wire() {
    both_ends_migrate();
}
