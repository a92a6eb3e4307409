//! Automatic path migration: arming, migrating when retries run out, and the MigReq bit.

mod common;

use std::time::Duration;

use common::{SOON, expect_send, until_sent};
use ferroce_proto::ids::{Gid, Key};
use ferroce_proto::testkit::{Pair, Setup, Side, wr};
use ferroce_proto::verbs::{
    AddressHandleAttr, AttrMask, GlobalRoute, PathMigState, QpAttr, QpEvent, QpState, SendOp,
    WcStatus,
};
use ferroce_proto::wire::{Bth, ExtHeaders, Opcode, Operation, Packet, Position, Reth};

/// Loads an alternate path and asks for a state.
fn rearm(pair: &mut Pair, side: Side) {
    let attr = QpAttr {
        alt_ah_attr: AddressHandleAttr {
            grh: GlobalRoute {
                dgid: Gid([1; 16]),
                ..GlobalRoute::default()
            },
            is_global: true,
            port_num: 1,
            ..AddressHandleAttr::default()
        },
        alt_port_num: 1,
        alt_timeout: 14,
        path_mig_state: PathMigState::Rearm,
        ..QpAttr::default()
    };
    let mask = AttrMask::ALT_PATH | AttrMask::PATH_MIG_STATE;
    pair.modify(side, &attr, mask);
}

fn state(pair: &mut Pair, side: Side) -> PathMigState {
    pair.node(side).qp.query().path_mig_state
}

/// One SEND from A to B.
fn exchange(pair: &mut Pair, wr_id: u64) {
    pair.recv(Side::B, wr_id, vec![]);
    pair.send(Side::A, wr(wr_id, SendOp::Send, vec![]));
}

/// A pair whose queue pairs are both armed.
fn armed() -> Pair {
    let mut pair = Pair::new(Setup::default());
    for side in [Side::A, Side::B] {
        rearm(&mut pair, side);
    }
    exchange(&mut pair, 0);
    until_sent(&mut pair, Side::A, 1);
    pair
}

#[test]
fn two_ends_that_are_ready_arm_with_the_next_packets() {
    let mut pair = Pair::new(Setup::default());
    rearm(&mut pair, Side::B);
    exchange(&mut pair, 1);
    until_sent(&mut pair, Side::A, 1);
    assert_eq!(state(&mut pair, Side::B), PathMigState::Rearm, "A is not");
    rearm(&mut pair, Side::A);
    exchange(&mut pair, 2);
    until_sent(&mut pair, Side::A, 2);
    for side in [Side::A, Side::B] {
        assert_eq!(state(&mut pair, side), PathMigState::Armed);
        assert!(pair.node(side).qp.is_armed());
    }
}

#[test]
fn packets_say_whether_their_sender_has_migrated() {
    let bits = |pair: &mut Pair, wr_id| {
        pair.trace = Some(Vec::new());
        exchange(pair, wr_id);
        pair.settle(SOON);
        let trace = pair.trace.take().expect("set above");
        let bits: Vec<_> = trace
            .iter()
            .map(|(_, bytes)| Packet::parse(bytes).expect("well-formed").bth.migreq)
            .collect();
        assert_eq!(bits.len(), 2, "a request and its acknowledgement");
        bits
    };
    let mut pair = Pair::new(Setup::default());
    assert_eq!(bits(&mut pair, 1), [true, true]);
    rearm(&mut pair, Side::A);
    assert_eq!(bits(&mut pair, 2), [false, true]);
    let mut pair = armed();
    assert_eq!(bits(&mut pair, 3), [false, false]);
}

#[test]
fn what_would_fail_migrates_and_is_sent_again() {
    let mut pair = armed();
    pair.cut_into(Side::B, true);
    pair.trace = Some(Vec::new());
    exchange(&mut pair, 1);
    pair.until(Duration::from_secs(60), |p| !p.a.results.events.is_empty());
    assert_eq!(pair.a.results.events, [QpEvent::PathMigrated]);
    assert_eq!(state(&mut pair, Side::A), PathMigState::Migrated);
    assert!(pair.a.qp.take_migrated());
    assert!(!pair.a.qp.take_migrated(), "told once");
    expect_send(&pair, &[(0, WcStatus::Success)]);
    pair.cut_into(Side::B, false);
    until_sent(&mut pair, Side::A, 2);
    expect_send(&pair, &[(0, WcStatus::Success), (1, WcStatus::Success)]);
    let trace = pair.trace.take().expect("set above");
    let last_request = trace.iter().rev().find(|(_, bytes)| {
        let packet = Packet::parse(bytes).expect("well-formed");
        packet.bth.opcode.0 == 0x04
    });
    let (_, bytes) = last_request.expect("a SEND");
    assert!(Packet::parse(bytes).expect("well-formed").bth.migreq);
}

#[test]
fn the_alternate_path_has_its_own_retries_and_no_alternate() {
    let mut pair = armed();
    pair.cut_into(Side::B, true);
    exchange(&mut pair, 1);
    pair.until(Duration::from_secs(60), |p| p.a.qp.state() == QpState::Err);
    assert_eq!(pair.a.results.events, [QpEvent::PathMigrated]);
    expect_send(&pair, &[(0, WcStatus::Success), (1, WcStatus::RetryExcErr)]);
}

#[test]
fn a_peer_that_has_migrated_takes_this_end_along() {
    let mut pair = armed();
    pair.b.with(Default::default(), |qp, cx| qp.migrate(cx));
    assert_eq!(pair.b.results.events, [QpEvent::PathMigrated]);
    assert_eq!(state(&mut pair, Side::B), PathMigState::Migrated);
    assert!(!pair.b.qp.take_migrated(), "its owner did it");
}

/// Whether B takes a packet as one that A may send now, `ahead` of the request that it expects.
fn may_be_sent(pair: &mut Pair, operation: Operation, ahead: i32) -> bool {
    let b = &mut pair.node(Side::B).qp;
    let expected = b.query().rq_psn;
    let psn = match u32::try_from(ahead) {
        Ok(ahead) => expected.plus(ahead),
        Err(_) => expected.minus(ahead.unsigned_abs()),
    };
    let opcode = Opcode::rc(operation, Position::Only);
    let reth = Reth {
        va: 0,
        rkey: Key(7),
        length: 1,
    };
    let packet = Packet {
        bth: Bth::new(opcode, b.query().dest_qp_num, psn),
        ext: ExtHeaders {
            reth: (operation == Operation::ReadRequest).then_some(reth),
            ..ExtHeaders::default()
        },
        payload: &[],
    };
    b.may_be_sent_now(&packet)
}

#[test]
fn a_packet_that_the_peer_would_not_send_now_migrates_nothing() {
    let mut pair = armed();
    for (ahead, may) in [
        (0, true),
        (-1, true),
        (-4096, true),
        (-4097, false),
        (1, false),
        (1000, false),
        (1 << 22, false),
    ] {
        assert_eq!(
            may_be_sent(&mut pair, Operation::Send, ahead),
            may,
            "{ahead}"
        );
    }
    // A repeated READ is one that was asked for.
    assert!(may_be_sent(&mut pair, Operation::ReadRequest, 0));
    assert!(!may_be_sent(&mut pair, Operation::ReadRequest, -1));
    // B has sent nothing that could be acknowledged.
    for ahead in [-1, 0, 1] {
        assert!(!may_be_sent(&mut pair, Operation::Acknowledge, ahead));
    }
}

#[test]
fn a_packet_that_the_peer_would_not_send_now_arms_nothing() {
    let mut pair = Pair::new(Setup::default());
    rearm(&mut pair, Side::A);
    rearm(&mut pair, Side::B);
    let forged = |pair: &mut Pair, ahead: u32| {
        let b = pair.node(Side::B);
        let opcode = Opcode::rc(Operation::Send, Position::Only);
        let (peer, psn) = (b.qp.query().dest_qp_num, b.qp.query().rq_psn);
        let packet = Packet {
            bth: Bth::new(opcode, peer, psn.plus(ahead)),
            ext: ExtHeaders::default(),
            payload: &[],
        };
        b.with(Default::default(), |qp, cx| qp.on_packet(cx, &packet));
    };
    forged(&mut pair, 5);
    assert_eq!(state(&mut pair, Side::B), PathMigState::Rearm);
    forged(&mut pair, 0);
    assert_eq!(state(&mut pair, Side::B), PathMigState::Armed);
}

#[test]
fn nothing_is_migrated_to_a_process_that_is_gone() {
    let mut pair = armed();
    pair.cut_into(Side::B, true);
    exchange(&mut pair, 1);
    pair.a
        .with(Default::default(), |qp, cx| qp.on_peer_dead(cx));
    assert_eq!(pair.a.results.events, [QpEvent::MigrationFailed]);
    expect_send(&pair, &[(0, WcStatus::Success), (1, WcStatus::RetryExcErr)]);
}
