//! Unreliable connections: what arrives, what vanishes, and what either does to the work requests.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use common::loose::{End, MTU, connected, uc_step};
use common::{bytes, seeds};
use ferroce_proto::ids::Key;
use ferroce_proto::testkit::{Rng, remote, wr};
use ferroce_proto::uc::UcQp;
use ferroce_proto::verbs::{
    AttrMask, PostError, QpAttr, QpEvent, QpState, SendOp, SendWr, WcImm, WcOpcode, WcStatus,
};
use ferroce_proto::wire::{Opcode, Operation, Packet, Position, Service};

const SIZES: [u32; 7] = [0, 1, MTU - 1, MTU, MTU + 1, 3 * MTU, 3 * MTU + 5];

fn send(from: &End<UcQp>, wr_id: u64, len: u32) -> SendWr {
    wr(wr_id, SendOp::Send, vec![from.sge(0, len)])
}

fn write(from: &End<UcQp>, wr_id: u64, key: Key, len: u32) -> SendWr {
    let to = SendOp::Write(remote(key, 0));
    wr(wr_id, to, vec![from.sge(0, len)])
}

/// Carries everything over.
fn carry(from: &mut End<UcQp>, to: &mut End<UcQp>) {
    for packet in from.packets() {
        assert!(to.take(&packet));
    }
}

#[test]
fn every_operation_and_size_arrives() {
    for len in SIZES {
        for (op, opcode) in [
            (SendOp::Send, Some(WcOpcode::Recv)),
            (SendOp::SendImm([1, 2, 3, 4]), Some(WcOpcode::Recv)),
            (SendOp::Write(remote(Key(0), 0x4000)), None),
            (
                SendOp::WriteImm(remote(Key(0), 0x4000), [1, 2, 3, 4]),
                Some(WcOpcode::RecvRdmaWithImm),
            ),
        ] {
            let [mut a, mut b] = connected();
            let data = bytes(&mut Rng::new(u64::from(len)), len as usize);
            a.put(0, &data);
            b.recv(7, vec![b.sge(0x4000, 4 * MTU)]);
            let op = match op {
                SendOp::Write(_) => SendOp::Write(remote(b.key, 0x4000)),
                SendOp::WriteImm(_, imm) => SendOp::WriteImm(remote(b.key, 0x4000), imm),
                other => other,
            };
            a.send(wr(9, op, vec![a.sge(0, len)]));
            let packets = a.packets();
            assert_eq!(packets.len(), len.div_ceil(MTU).max(1) as usize);
            assert_eq!(a.node.results.send_statuses(), [(9, WcStatus::Success)]);
            for packet in &packets {
                let bth = Packet::parse(packet).unwrap().bth;
                assert_eq!(bth.opcode.service(), Some(Service::Uc));
                assert!(!bth.ack_req);
                assert!(b.take(packet));
            }
            assert_eq!(b.get(0x4000, len as usize), data, "{op:?} of {len}");
            let received: Vec<_> = b.node.results.recv.iter().map(|(wc, _)| *wc).collect();
            match opcode {
                None => assert!(received.is_empty()),
                Some(opcode) => {
                    assert_eq!((received[0].opcode, received[0].byte_len), (opcode, len));
                    let imm = !matches!(op, SendOp::Send);
                    assert_eq!(received[0].imm, imm.then_some(WcImm::Imm([1, 2, 3, 4])));
                }
            }
            assert_eq!(b.packet(), None, "nothing is answered");
        }
    }
}

#[test]
fn messages_are_whole_or_absent_and_receives_are_used_in_order() {
    for seed in seeds(200) {
        let mut rng = Rng::new(seed);
        let [mut a, mut b] = connected();
        let mut arrived = Vec::new();
        for message in 0..40u64 {
            let len = rng.below32(5 * MTU) + 8;
            let data = bytes(&mut rng, len as usize);
            a.put(0, &data);
            a.put(0, &message.to_ne_bytes());
            let before = b.node.results.recv.len();
            b.recv(message, vec![b.sge(0x4000, 8 * MTU)]);
            a.send(send(&a, message, len));
            let packets = a.packets();
            let mut whole = true;
            for packet in packets {
                if rng.per_mille(100) {
                    whole = false;
                } else {
                    b.take(&packet);
                }
            }
            let after = b.node.results.recv.len();
            assert_eq!(after - before, usize::from(whole), "seed {seed}");
            if whole {
                let (wc, _) = b.node.results.recv[before];
                assert_eq!((wc.wr_id, wc.byte_len), (before as u64, len), "seed {seed}");
                assert_eq!(b.get(0x4000, 8), message.to_ne_bytes());
                assert_eq!(b.get(0x4008, len as usize - 8), data[8..], "seed {seed}");
                arrived.push(message);
            }
        }
        assert!(!arrived.is_empty() && arrived.is_sorted());
        assert_eq!(a.node.results.send.len(), 40, "losses do not fail work");
        assert_eq!([a.state(), b.state()], [QpState::Rts; 2]);
    }
}

#[test]
fn a_message_without_its_first_or_last_packet_gives_its_receive_to_the_next() {
    for lost in [0, 1, 2] {
        let [mut a, mut b] = connected();
        b.recv(1, vec![b.sge(0, 4 * MTU)]);
        a.send(send(&a, 1, 3 * MTU));
        a.send(send(&a, 2, 2 * MTU));
        let mut packets = a.packets();
        packets.remove(lost);
        for packet in packets {
            b.take(&packet);
        }
        let (wc, _) = b.node.results.recv[0];
        assert_eq!((wc.wr_id, wc.byte_len), (1, 2 * MTU));
        assert_eq!(b.node.results.recv.len(), 1);
    }
}

#[test]
fn what_is_not_allowed_vanishes_and_the_queue_pair_lives_on() {
    let [mut a, mut b] = connected();
    // A key that does not exist, and a write past the end.
    a.send(write(&a, 1, Key(5), 8));
    a.send(write(&a, 2, b.key, 1 << 16));
    let past = SendOp::Write(remote(b.key, (1 << 16) - 4));
    a.send(wr(3, past, vec![a.sge(0, 8)]));
    carry(&mut a, &mut b);
    // A message longer than its receive; a message without one.
    b.recv(4, vec![b.sge(0, MTU)]);
    a.send(send(&a, 4, 2 * MTU));
    carry(&mut a, &mut b);
    assert!(b.node.results.recv.is_empty() && b.node.results.events.is_empty());
    a.send(send(&a, 5, 10));
    a.send(send(&a, 6, 10));
    carry(&mut a, &mut b);
    assert_eq!(b.node.results.recv_statuses(), [(4, WcStatus::Success)]);
    // WRITE is not among the queue pair's access flags.
    let none = QpAttr::default();
    b.modify(&none, AttrMask::ACCESS_FLAGS);
    a.put(0, &[0xee; 8]);
    a.send(write(&a, 7, b.key, 8));
    carry(&mut a, &mut b);
    assert_ne!(b.get(0, 8), [0xee; 8]);
    assert_eq!([a.state(), b.state()], [QpState::Rts; 2]);
    let sent = a.node.results.send_statuses();
    assert!(sent.iter().all(|(_, status)| *status == WcStatus::Success));
}

#[test]
fn a_bad_receive_key_ends_the_receiver() {
    let [mut a, mut b] = connected();
    let bad = ferroce_proto::testkit::sge(Key(77), 0, 64);
    b.recv(1, vec![bad]);
    b.recv(2, vec![b.sge(0, 64)]);
    a.send(send(&a, 1, 10));
    carry(&mut a, &mut b);
    assert_eq!(
        b.node.results.recv_statuses(),
        [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)]
    );
    assert_eq!(b.state(), QpState::Err);
}

#[test]
fn operations_that_need_an_answer_are_refused() {
    let [mut a, b] = connected();
    let place = remote(b.key, 0);
    for op in [
        SendOp::Read(place),
        SendOp::FetchAdd {
            remote: place,
            add: 1,
        },
        SendOp::CompareSwap {
            remote: place,
            compare: 0,
            swap: 1,
        },
        SendOp::SendInvalidate(b.key),
    ] {
        let refused = a.try_send(wr(1, op, vec![a.sge(0, 8)]));
        assert!(matches!(refused, Err(PostError::Invalid(_))), "{refused:?}");
    }
    assert_eq!(a.packet(), None);
}

#[test]
fn an_error_of_the_send_queue_stops_only_that_and_can_be_left() {
    let [mut a, mut b] = connected();
    a.recv(1, vec![a.sge(0, 64)]);
    b.recv(1, vec![b.sge(0, 64)]);
    let bad = ferroce_proto::testkit::sge(Key(77), 0, 10);
    a.send(wr(1, SendOp::Send, vec![bad]));
    a.send(send(&a, 2, 10));
    assert_eq!(a.packet(), None);
    assert_eq!(
        a.node.results.send_statuses(),
        [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)]
    );
    assert_eq!(a.state(), QpState::Sqe);
    a.send(send(&a, 3, 10));
    assert_eq!(a.node.results.send_statuses()[2], (3, WcStatus::WrFlushErr));
    // Receiving goes on.
    b.send(send(&b, 4, 10));
    carry(&mut b, &mut a);
    assert_eq!(a.node.results.recv_statuses(), [(1, WcStatus::Success)]);
    let attr = QpAttr {
        qp_state: QpState::Rts,
        cur_qp_state: QpState::Sqe,
        ..QpAttr::default()
    };
    a.modify(&attr, AttrMask::STATE | AttrMask::CUR_STATE);
    a.send(send(&a, 5, 10));
    carry(&mut a, &mut b);
    assert_eq!(a.node.results.send_statuses()[3], (5, WcStatus::Success));
    assert_eq!(b.node.results.recv_statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn an_error_in_mid_message_does_not_glue_two_messages_together() {
    let [mut a, mut b] = connected();
    b.recv(1, vec![b.sge(0, 8 * MTU)]);
    let bad = ferroce_proto::testkit::sge(Key(77), 0, 2 * MTU);
    a.send(wr(1, SendOp::Send, vec![a.sge(0, MTU), bad]));
    let first = a.packet().unwrap();
    assert!(b.take(&first));
    assert_eq!(a.packet(), None);
    a.go(QpState::Rts);
    a.send(send(&a, 2, 2 * MTU));
    carry(&mut a, &mut b);
    let (wc, _) = b.node.results.recv[0];
    assert_eq!((wc.wr_id, wc.byte_len), (1, 2 * MTU));
}

#[test]
fn draining_ends_the_message_that_was_begun() {
    let [mut a, mut b] = connected();
    b.recv(1, vec![b.sge(0, 4 * MTU)]);
    a.send(send(&a, 1, 3 * MTU));
    a.send(send(&a, 2, 10));
    let first = a.packet().unwrap();
    b.take(&first);
    let attr = QpAttr {
        qp_state: QpState::Sqd,
        en_sqd_async_notify: true,
        ..QpAttr::default()
    };
    a.modify(&attr, AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY);
    assert!(a.node.results.events.is_empty() && a.node.qp.query().sq_draining);
    carry(&mut a, &mut b);
    assert_eq!(a.node.results.events, [QpEvent::SqDrained]);
    assert_eq!(b.node.results.recv_statuses(), [(1, WcStatus::Success)]);
    b.recv(2, vec![b.sge(0, 64)]);
    a.go(QpState::Rts);
    carry(&mut a, &mut b);
    assert_eq!(b.node.results.recv_statuses()[1], (2, WcStatus::Success));
}

#[test]
fn the_first_packet_is_an_event_in_rtr() {
    let [mut a, b] = connected();
    drop(b);
    let mut b = End::new(
        UcQp::new(common::loose::config(
            ferroce_proto::verbs::QpType::Uc,
            0x8022,
        )),
        0x8022,
    );
    a.send(send(&a, 1, 0));
    let packet = a.packet().unwrap();
    assert!(!b.take(&packet), "RESET takes nothing");
    for state in [QpState::Init, QpState::Rtr] {
        let (attr, mask) = uc_step(state, 0x4011, 0x10);
        b.modify(&attr, mask);
    }
    b.recv(1, vec![]);
    assert!(b.take(&packet));
    assert_eq!(b.node.results.events, [QpEvent::CommEstablished]);
    assert_eq!(b.node.results.recv_statuses(), [(1, WcStatus::Success)]);
    let query = b.node.qp.query();
    assert_eq!(query.rq_psn.get(), 0xff_fff1);
}

#[test]
fn other_services_packets_do_nothing() {
    let [mut a, mut b] = connected();
    b.recv(1, vec![b.sge(0, 64)]);
    a.send(send(&a, 1, 10));
    let mut packet = a.packet().unwrap();
    packet[0] = Opcode::rc(Operation::Send, Position::Only).0;
    assert!(b.take(&packet));
    assert!(b.node.results.recv.is_empty());
}
