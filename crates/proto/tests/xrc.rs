//! XRC: an initiator, a target, and shared receive queues that packets name.

mod common;

use core::time::Duration;

use common::workload::{MEMORY, Workload, XRC_SRQ};
use common::{SOON, expect_send, seeds};
use ferroce_proto::ids::{Key, PdId, Srqn};
use ferroce_proto::mr::Access;
use ferroce_proto::testkit::{Faults, PD, Pair, Rng, Setup, Side, XrcQueue, remote, sge, wr};
use ferroce_proto::verbs::{
    AttrMask, PostError, QpAttr, QpEvent, QpState, RecvWr, RemoteAddr, SendOp, SendTo, SendWr, Sge,
    WcStatus,
};
use ferroce_proto::wire::{
    ExtHeaders, NakCode, Opcode, Operation, Packet, Position, Reth, Service, Syndrome,
};

/// Protection domain of the queue; the target's is another.
const SRQ_PD: PdId = PdId(9);
const OTHER: Srqn = Srqn::new(0x52);
const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

fn queue(pd: PdId) -> XrcQueue {
    XrcQueue {
        pd,
        wrs: [].into(),
        asks: false,
        completions: vec![],
    }
}

fn setup() -> Setup {
    Setup {
        xrc: true,
        ..Setup::default()
    }
}

/// A pair whose target has two queues, and a key of all of its memory in their protection domain.
fn pair() -> (Pair, Key) {
    let mut pair = Pair::new(setup());
    for srq in [XRC_SRQ, OTHER] {
        pair.b.results.xrc.insert(srq, queue(SRQ_PD));
    }
    let key = pair.b.register_in(SRQ_PD, 0, 1 << 20, ALL);
    (pair, key)
}

fn to(srq: Srqn, wr_id: u64, op: SendOp, sges: Vec<Sge>) -> SendWr {
    SendWr {
        to: SendTo::XrcSrq(srq),
        ..wr(wr_id, op, sges)
    }
}

fn statuses(pair: &Pair, srq: Srqn) -> Vec<(u64, WcStatus)> {
    pair.b.results.xrc[&srq]
        .completions
        .iter()
        .map(|(wc, _)| (wc.wr_id, wc.status))
        .collect()
}

#[test]
fn random_work_over_bad_links() {
    for seed in seeds(300) {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::new(Setup {
            seed,
            memory: MEMORY,
            faults: Faults {
                drop: rng.below32(150),
                duplicate: rng.below32(150),
                reorder: rng.below32(150),
            },
            ..setup()
        });
        pair.b.results.xrc.insert(XRC_SRQ, queue(PD));
        let mut work = Workload::new(&mut pair, seed, [30, 0]);
        work.scarce = rng.below32(4);
        work.run(&mut pair);
    }
}

#[test]
fn requests_carry_the_header_and_responses_do_not() {
    let (mut pair, key) = pair();
    pair.trace = Some(Vec::new());
    pair.xrc_recv(OTHER, 4, vec![]);
    let local = |p: &Pair, length| vec![p.sge(Side::A, 0, length)];
    let at = remote(key, 0);
    let ops = [
        (SendOp::SendImm([1; 4]), 0),
        (SendOp::Write(at), 3000),
        (SendOp::Read(at), 3000),
        (SendOp::FetchAdd { remote: at, add: 1 }, 8),
    ];
    for (wr_id, (op, length)) in (0..).zip(ops) {
        let sges = local(&pair, length);
        pair.send(Side::A, to(OTHER, wr_id, op, sges));
    }
    pair.until(SOON, |p| p.a.results.send.len() == 4);
    for (from, bytes) in pair.trace.take().expect("switched on") {
        let packet = Packet::parse(&bytes).expect("well-formed");
        assert_eq!(packet.bth.opcode.service(), Some(Service::Xrc));
        let expected = (from == Side::A).then_some(OTHER);
        assert_eq!(packet.ext.xrceth, expected, "{packet:?}");
        if from == Side::A {
            assert_eq!(bytes[12..16], [0, 0, 0, 0x52], "right behind the BTH");
        }
    }
    let (wc, _) = pair.b.results.xrc[&OTHER].completions[0];
    assert_eq!((wc.wr_id, wc.status), (4, WcStatus::Success));
    assert_eq!(wc.qp_num, pair.b.qp.config().qpn);
    assert!(pair.b.results.recv.is_empty());
}

#[test]
fn each_message_goes_to_the_queue_that_it_names() {
    let (mut pair, key) = pair();
    for (srq, base) in [(XRC_SRQ, 0), (OTHER, 100)] {
        for n in 0..5 {
            let into = sge(key, (base + n) * 4096, 4096);
            pair.xrc_recv(srq, base + n, vec![into]);
        }
    }
    for n in 0..10 {
        let from = pair.sge(Side::A, 0, 3000);
        let srq = if n % 2 == 0 { XRC_SRQ } else { OTHER };
        pair.send(Side::A, to(srq, n, SendOp::Send, vec![from]));
    }
    pair.until(SOON, |p| p.a.results.send.len() == 10);
    let all = |base| {
        (base..base + 5)
            .map(|n| (n, WcStatus::Success))
            .collect::<Vec<_>>()
    };
    assert_eq!(statuses(&pair, XRC_SRQ), all(0));
    assert_eq!(statuses(&pair, OTHER), all(100));
}

#[test]
fn memory_is_that_of_the_queues_protection_domain() {
    let ops: [fn(RemoteAddr) -> SendOp; 3] = [SendOp::Write, SendOp::Read, |remote| {
        SendOp::FetchAdd { remote, add: 1 }
    }];
    for op in ops {
        let (mut pair, key) = pair();
        let target_key = pair.key(Side::B);
        let tries = [
            (key, WcStatus::Success),
            (target_key, WcStatus::RemAccessErr),
        ];
        for (index, (key, status)) in tries.into_iter().enumerate() {
            let sges = vec![pair.sge(Side::A, 0, 8)];
            pair.send(Side::A, to(XRC_SRQ, index as u64, op(remote(key, 0)), sges));
            pair.until(SOON, |p| p.a.results.send.len() == index + 1);
            assert_eq!(pair.a.results.send[index].0.status, status);
        }
        assert_eq!(
            pair.b.results.events,
            [QpEvent::AccessError, QpEvent::LastWqeReached]
        );
    }
}

#[test]
fn a_queue_that_is_not_in_the_domain_is_an_invalid_request() {
    let at = RemoteAddr {
        addr: 0,
        rkey: Key(1),
    };
    for op in [SendOp::Send, SendOp::Write(at), SendOp::Read(at)] {
        let (mut pair, _) = pair();
        pair.send(Side::A, to(Srqn::new(0x99), 1, op, vec![]));
        pair.settle(SOON);
        expect_send(&pair, &[(1, WcStatus::RemInvReqErr)]);
        assert_eq!(pair.b.qp.state(), QpState::Err);
        assert_eq!(
            pair.b.results.events,
            [QpEvent::RequestError, QpEvent::LastWqeReached]
        );
    }
}

#[test]
fn an_empty_queue_is_waited_for_and_the_others_go_on_later() {
    let (mut pair, _) = pair();
    pair.send(Side::A, to(XRC_SRQ, 1, SendOp::Send, vec![]));
    pair.settle(Duration::from_millis(100));
    assert!(pair.a.results.send.is_empty());
    // Another queue's receive does not help.
    pair.xrc_recv(OTHER, 5, vec![]);
    pair.settle(Duration::from_millis(100));
    assert!(pair.a.results.send.is_empty());
    pair.xrc_recv(XRC_SRQ, 4, vec![]);
    pair.until(SOON, |p| p.a.results.send.len() == 1);
    assert_eq!(statuses(&pair, XRC_SRQ), [(4, WcStatus::Success)]);
}

#[test]
fn an_error_flushes_the_held_receive_to_its_queue() {
    let (mut pair, key) = pair();
    pair.xrc_recv(XRC_SRQ, 4, vec![sge(key, 0, 1 << 20)]);
    pair.xrc_recv(XRC_SRQ, 5, vec![]);
    let from = pair.sge(Side::A, 0, 100_000);
    pair.send(Side::A, to(XRC_SRQ, 1, SendOp::Send, vec![from]));
    pair.until(SOON, |p| p.b.results.xrc[&XRC_SRQ].wrs.len() == 1);
    let attr = QpAttr {
        qp_state: QpState::Err,
        ..QpAttr::default()
    };
    pair.modify(Side::B, &attr, AttrMask::STATE);
    assert_eq!(statuses(&pair, XRC_SRQ), [(4, WcStatus::WrFlushErr)]);
    assert_eq!(pair.b.results.events, [QpEvent::LastWqeReached]);
}

/// Injects one packet of a WRITE into the target.
fn inject(pair: &mut Pair, position: Position, srq: Srqn, reth: Option<Reth>) -> bool {
    let psn = pair.b.qp.query().rq_psn;
    let opcode = Opcode::rc(Operation::Write, position).xrc();
    let ext = ExtHeaders {
        xrceth: Some(srq),
        reth,
        ..ExtHeaders::default()
    };
    pair.inject(Side::B, opcode, psn, (ext, &[7; 1024]))
}

#[test]
fn a_message_names_one_queue_throughout() {
    let (mut pair, rkey) = pair();
    let reth = Reth {
        va: remote(rkey, 0).addr,
        rkey,
        length: 2048,
    };
    assert!(inject(&mut pair, Position::First, XRC_SRQ, Some(reth)));
    assert_eq!(pair.b.qp.state(), QpState::Rts);
    assert!(inject(&mut pair, Position::Last, OTHER, None));
    assert_eq!(pair.b.qp.state(), QpState::Err);
    pair.trace = Some(Vec::new());
    pair.transmit(Side::B);
    let sent = pair.trace.take().expect("switched on");
    let nak = Packet::parse(&sent[0].1).expect("well-formed");
    let syndrome = nak.ext.aeth.map(|aeth| aeth.syndrome);
    assert_eq!(syndrome, Some(Syndrome::Nak(NakCode::InvalidRequest)));
}

#[test]
fn packets_of_rc_and_of_the_other_half_are_ignored() {
    let (mut pair, _) = pair();
    let psn = pair.b.qp.query().rq_psn;
    let send = Opcode::rc(Operation::Send, Position::Only);
    let ack = Opcode::RC_ACKNOWLEDGE.xrc();
    let none = ExtHeaders::default();
    pair.inject(Side::B, send, psn, (none, &[]));
    pair.inject(Side::B, ack, psn, (none, &[]));
    pair.inject(Side::A, send.xrc(), psn, (none, &[]));
    for node in [&pair.a, &pair.b] {
        assert_eq!(node.qp.state(), QpState::Rts);
        assert!(!node.qp.wants_transmit());
    }
    assert_eq!(pair.b.qp.query().rq_psn, psn);
}

#[test]
fn each_half_has_its_queue_only() {
    let (mut pair, _) = pair();
    let refused = |outcome| matches!(outcome, Err(PostError::Invalid(_)));
    assert!(refused(pair.try_send(Side::A, wr(1, SendOp::Send, vec![]))));
    let by_target = to(XRC_SRQ, 1, SendOp::Send, vec![]);
    assert!(refused(pair.try_send(Side::B, by_target)));
    let now = pair.now;
    for side in [Side::A, Side::B] {
        let wr = RecvWr {
            wr_id: 1,
            sges: vec![].into(),
        };
        let outcome = pair.node(side).with(now, |qp, cx| qp.post_recv(cx, wr));
        assert!(refused(outcome));
    }
    let mut rc = Pair::new(Setup::default());
    let named = to(XRC_SRQ, 1, SendOp::Send, vec![]);
    assert!(refused(rc.try_send(Side::A, named)));
}

/// While another process is asked for a receive the initiator hears nothing; what it hears then is
/// not charged.
#[test]
fn a_message_waits_for_the_owner_of_its_queue() {
    for owner_has in [true, false] {
        let mut pair = Pair::new(Setup {
            rnr_retry: 0,
            retry_cnt: 0,
            ..setup()
        });
        let key = pair.b.register_in(SRQ_PD, 0, 1 << 20, ALL);
        let elsewhere = XrcQueue {
            asks: true,
            ..queue(SRQ_PD)
        };
        pair.b.results.xrc.insert(OTHER, elsewhere);
        if owner_has {
            pair.xrc_recv(OTHER, 4, vec![sge(key, 0, 5000)]);
        }
        let from = pair.sge(Side::A, 0, 5000);
        pair.send(Side::A, to(OTHER, 1, SendOp::Send, vec![from]));
        pair.settle(Duration::from_micros(100));
        assert!(pair.a.results.send.is_empty(), "nobody knows yet");
        let now = pair.now;
        pair.b.with(now, |qp, _| qp.on_recv_answer(owner_has));
        pair.until(SOON, |p| p.a.results.send.len() == 1);
        let due = if owner_has {
            WcStatus::Success
        } else {
            WcStatus::RnrRetryExcErr
        };
        assert_eq!(pair.a.results.send_statuses(), [(1, due)]);
        assert_eq!(statuses(&pair, OTHER).len(), usize::from(owner_has));
    }
}
