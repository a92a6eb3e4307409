//! XRC: domains, initiators, targets, and the shared receive queues that initiators name.

mod common;
#[path = "xrc/elsewhere.rs"]
mod elsewhere;
#[path = "xrc/opened.rs"]
mod opened;

use std::os::fd::RawFd;
use std::sync::Arc;

use common::key::{KeyFile, run_keyed};
use common::{Buffer, End, INIT, attributes, cap, next_completion, pattern, run_on_wire, wait_for};
use ferroce_nic::{AsyncSubject, EventChannel, Inode, Qp, QpInit, Srq, SrqAttr, Xrcd, XrcdFlags};
use ferroce_proto::ids::{Gid, Qpn, Srqn};
use ferroce_proto::verbs::{
    AsyncEvent, AttrMask, Mtu, Payload, QpAttr, QpState, QpType, RecvWr, SendFlags, SendOp, SendTo,
    SendWr, Sge, WcStatus,
};

const CREATE: XrcdFlags = XrcdFlags {
    create: true,
    exclusive: false,
};

/// Moves a queue pair through INIT and RTR to RTS. The attributes of the half that it does not have
/// are ignored.
fn connect(qp: &Qp, to: Qpn, dgid: Gid, rnr_retry: u8) {
    let attr = QpAttr {
        rnr_retry,
        ..attributes(to, dgid, Mtu::B1024)
    };
    for (qp_state, mask) in [
        (QpState::Init, INIT),
        (QpState::Rtr, common::RTR),
        (QpState::Rts, common::RTS),
    ] {
        qp.modify(&QpAttr { qp_state, ..attr }, mask)
            .expect("connected");
    }
}

/// A domain with a target and two queues, and an initiator that is connected to the target.
struct World {
    /// Its queue pair is not used; its objects are.
    host: End,
    xrcd: Arc<Xrcd>,
    srqs: [Arc<Srq>; 2],
    target: Arc<Qp>,
    peer: End,
}

impl World {
    fn new() -> Self {
        Self::with(None, 7)
    }

    /// With the domain of a file.
    fn with(file: Option<(Inode, RawFd)>, rnr_retry: u8) -> Self {
        let host = End::new(cap());
        let xrcd = Xrcd::open(&host.context, file, CREATE).expect("a domain");
        let srqs = [1, 2].map(|cookie| {
            let attr = SrqAttr {
                max_wr: 16,
                max_sge: 2,
                srq_limit: 0,
            };
            let srq = Srq::create_xrc(&host.pd, attr, &xrcd, &host.cq).expect("a queue");
            srq.set_cookie(cookie);
            srq
        });
        let target = Qp::create_target(&xrcd).expect("a target");
        target.set_cookie(7);
        let peer = initiator();
        connect(&target, peer.qp.qpn(), peer.gid(), rnr_retry);
        connect(&peer.qp, target.qpn(), host.gid(), rnr_retry);
        Self {
            host,
            xrcd,
            srqs,
            target,
            peer,
        }
    }

    fn number(&self, at: usize) -> Srqn {
        self.srqs[at].number().expect("XRC queues have numbers")
    }

    fn post(&self, at: usize, wr_id: u64, sges: Vec<Sge>) {
        self.srqs[at]
            .post_recv(
                &mut [RecvWr {
                    wr_id,
                    sges: sges.into(),
                }]
                .into_iter(),
            )
            .expect("posted");
    }

    fn send(&self, to: Srqn, wr_id: u64, op: SendOp, sges: Vec<Sge>) {
        let wr = SendWr {
            wr_id,
            to: SendTo::XrcSrq(to),
            op,
            flags: SendFlags::empty(),
            payload: Payload::Sges(sges.into()),
        };
        self.peer
            .qp
            .post_send(&mut [wr].into_iter())
            .expect("posted");
    }
}

/// An end whose queue pair is an initiator.
fn initiator() -> End {
    let End {
        context, pd, cq, ..
    } = &End::new(cap());
    let init = QpInit {
        qp_type: QpType::XrcSend,
        send_cq: Arc::clone(cq),
        recv_cq: Arc::clone(cq),
        cap: cap(),
        sq_sig_all: true,
        srq: None,
    };
    let qp = Qp::create(pd, init).expect("an initiator");
    End {
        context: Arc::clone(context),
        pd: Arc::clone(pd),
        cq: Arc::clone(cq),
        qp,
    }
}

fn all_operations() {
    let world = World::new();
    let sent = pattern(30_000, 5);
    let here = Buffer::new(&world.peer.pd, sent.clone());
    let there = Buffer::new(&world.host.pd, vec![0; 30_000]);
    for (at, wr_id) in [(0, 10), (1, 20), (0, 11)] {
        world.post(at, wr_id, vec![there.sge(0, 30_000)]);
        let op = SendOp::SendImm([1, 2, 3, 4]);
        world.send(world.number(at), wr_id, op, vec![here.sge(0, 20_000)]);
        let received = next_completion(&world.host.cq);
        assert_eq!(
            (received.wr_id, received.status),
            (wr_id, WcStatus::Success)
        );
        assert_eq!(received.byte_len, 20_000);
        assert_eq!(received.qp_num, world.target.qpn());
        assert_eq!(received.src_qp, world.peer.qp.qpn());
        world.peer.done(wr_id);
        assert_eq!(there.snapshot()[..20_000], sent[..20_000]);
    }
    let to = world.number(0);
    let write = SendOp::Write(there.remote(0));
    world.send(to, 1, write, vec![here.sge(5000, 25_000)]);
    world.send(
        to,
        2,
        SendOp::Read(there.remote(0)),
        vec![here.sge(0, 25_000)],
    );
    (1..3).for_each(|wr_id| assert_eq!(world.peer.done(wr_id).wr_id, wr_id));
    assert_eq!(here.snapshot()[..25_000], sent[5000..]);
    let aligned = usize::try_from(there.addr().next_multiple_of(8) - there.addr()).expect("small");
    let word = |bytes: Vec<u8>| {
        u64::from_ne_bytes(bytes[aligned..aligned + 8].try_into().expect("8 bytes"))
    };
    let before = word(there.snapshot());
    for wr_id in 0..8 {
        let remote = there.remote(aligned);
        let op = SendOp::FetchAdd { remote, add: 3 };
        world.send(to, wr_id, op, vec![here.sge(0, 8)]);
    }
    (0..8).for_each(|wr_id| assert_eq!(world.peer.done(wr_id).wr_id, wr_id));
    assert_eq!(word(there.snapshot()), before.wrapping_add(24));
}

/// As by an adapter: the answer, which comes by another queue pair, does not overtake it.
#[test]
fn a_message_is_acknowledged_before_its_program_has_it() {
    run_on_wire("child_acknowledges", "");
}

#[test]
#[ignore = "run by the test above"]
fn child_acknowledges() {
    let w = World::new();
    let taken = Buffer::new(&w.host.pd, vec![0; 64]);
    let sent = Buffer::new(&w.peer.pd, vec![1; 8]);
    let is_acknowledged = || {
        w.post(0, 1, vec![taken.sge(0, 64)]);
        w.send(w.number(0), 2, SendOp::Send, vec![sent.sge(0, 8)]);
        next_completion(&w.host.cq);
        let polled = w.peer.cq.poll(1, &mut |_, _| {}).expect("no overflow");
        if polled == 0 {
            next_completion(&w.peer.cq);
        }
        polled == 1
    };
    // What the device thread takes may not be acknowledged yet. It seldom works while the program
    // polls.
    wait_for("200 in a row", || (0..200).all(|_| is_acknowledged()));
}

#[test]
fn all_operations_on_the_local_path() {
    all_operations();
}

#[test]
fn all_operations_over_a_bad_wire() {
    run_on_wire("child_all_operations", "drop=2%,dup=1%,reorder=1%,seed=8");
}

#[test]
fn all_operations_with_a_key_over_a_bad_wire() {
    let fault = "drop=2%,dup=1%,reorder=1%,seed=8";
    let key = KeyFile::random("xrc", 1);
    run_keyed("child_all_operations", &key, &[("FERROCE_FAULT", fault)]);
}

#[test]
#[ignore = "run by the tests above"]
fn child_all_operations() {
    all_operations();
}

#[test]
fn a_receive_that_is_posted_late_lets_the_initiator_go_on() {
    let world = World::new();
    world.send(world.number(1), 1, SendOp::Send, vec![]);
    world.post(1, 4, vec![]);
    assert_eq!(next_completion(&world.host.cq).wr_id, 4);
    world.peer.done(1);
}

#[test]
fn a_queue_outside_of_the_domain_is_refused() {
    let (world, other) = (World::new(), World::new());
    other.post(0, 1, vec![]);
    world.send(other.number(0), 1, SendOp::Send, vec![]);
    assert_eq!(world.peer.completion().status, WcStatus::RemInvReqErr);
    let events: Vec<_> = std::iter::from_fn(|| world.host.context.pop_async_event()).collect();
    let about = AsyncSubject::Qp(7);
    assert_eq!(
        events,
        [
            (AsyncEvent::QpReqErr, about),
            (AsyncEvent::QpLastWqeReached, about)
        ]
    );
}

#[test]
fn a_queue_that_is_gone_is_refused_and_its_number_rests() {
    let world = World::new();
    let number = world.number(0);
    world.srqs[0].destroy();
    assert_eq!(world.xrcd.users(), 2, "a queue and a target are left");
    world.send(number, 1, SendOp::Send, vec![]);
    assert_eq!(world.peer.completion().status, WcStatus::RemInvReqErr);
}

#[test]
fn handles_share_a_target_until_the_last_is_closed() {
    let world = World::new();
    let (qpn, before) = (world.target.qpn(), world.xrcd.users());
    let mut opened = None;
    Qp::open(&world.xrcd, qpn, QpType::XrcRecv, |qp| {
        opened = Some(Arc::clone(qp));
        8
    })
    .expect("opened");
    let opened = opened.expect("set");
    assert!(Arc::ptr_eq(&opened, &world.target));
    assert_eq!(world.xrcd.users(), before + 1);
    opened
        .modify(
            &QpAttr {
                qp_state: QpState::Err,
                ..QpAttr::default()
            },
            AttrMask::STATE,
        )
        .expect("to ERR");
    let mut told: Vec<_> = std::iter::from_fn(|| world.host.context.pop_async_event()).collect();
    told.sort_by_key(|(_, about)| format!("{about:?}"));
    assert_eq!(
        told,
        [7, 8].map(|cookie| (AsyncEvent::QpLastWqeReached, AsyncSubject::Qp(cookie)))
    );
    world.target.close(7);
    assert_eq!(world.xrcd.users(), before);
    Qp::open(&world.xrcd, qpn, QpType::XrcRecv, |_| 9).expect("still there");
    opened.close(8);
    opened.close(9);
    let gone = Qp::open(&world.xrcd, qpn, QpType::XrcRecv, |_| 10).expect_err("destroyed");
    assert_eq!(gone.errno, libc::EINVAL);
    assert_eq!(world.xrcd.users(), before - 1);
}

#[test]
fn a_target_is_opened_by_number_and_type_within_its_domain() {
    let (world, other) = (World::new(), World::new());
    let qpn = world.target.qpn();
    for (xrcd, qpn, qp_type) in [
        (&other.xrcd, qpn, QpType::XrcRecv),
        (&world.xrcd, qpn, QpType::XrcSend),
        (&world.xrcd, world.host.qp.qpn(), QpType::Rc),
    ] {
        let refused = Qp::open(xrcd, qpn, qp_type, |_| 1).expect_err("refused");
        assert_eq!(refused.errno, libc::EINVAL);
    }
}

#[test]
fn a_file_has_one_domain() {
    let end = End::new(cap());
    let own = elsewhere::file();
    let file = elsewhere::named(&own);
    let open = |file, create, exclusive| {
        Xrcd::open(&end.context, file, XrcdFlags { create, exclusive }).map_err(|e| e.errno)
    };
    assert_eq!(open(None, false, false).unwrap_err(), libc::EINVAL);
    assert_eq!(open(file, false, false).unwrap_err(), libc::EAGAIN);
    let first = open(file, true, true).expect("made");
    assert_eq!(open(file, true, true).unwrap_err(), libc::EINVAL);
    let second = open(file, false, false).expect("found");
    let target = Qp::create_target(&first).expect("a target");
    target.set_cookie(1);
    assert_eq!((first.users(), second.users()), (1, 0));
    Qp::open(&second, target.qpn(), QpType::XrcRecv, |_| 2).expect("the same domain");
    target.close(1);
    target.close(2);
    assert_eq!((first.users(), second.users()), (0, 0));
    drop((first, second));
    // Targets keep the handle that they were made through, so they must go too.
    drop(target);
    open(file, true, true).expect("it went with its last handle");
}

#[test]
fn memory_of_another_domain_stays_closed() {
    let world = World::new();
    let other = ferroce_nic::Pd::alloc(&world.host.context).expect("a domain");
    let there = Buffer::new(&other, vec![0; 64]);
    let here = Buffer::new(&world.peer.pd, vec![1; 64]);
    let write = SendOp::Write(there.remote(0));
    world.send(world.number(0), 1, write, vec![here.sge(0, 64)]);
    assert_eq!(world.peer.completion().status, WcStatus::RemAccessErr);
    assert_eq!(there.snapshot(), vec![0; 64]);
}

/// Objects refer to each other in circles, and programs print them when something is wrong.
#[test]
fn every_object_can_be_printed() {
    let world = World::new();
    let pd = &world.host.pd;
    let attr = SrqAttr {
        max_wr: 1,
        max_sge: 1,
        srq_limit: 0,
    };
    let objects: [&dyn std::fmt::Debug; 9] = [
        &world.host.context,
        &world.host.cq,
        &world.host.qp,
        &world.target,
        &world.xrcd,
        &world.srqs,
        &Srq::create(pd, attr).expect("a queue"),
        &Buffer::new(pd, vec![0; 8]).mr,
        &EventChannel::new().expect("a channel"),
    ];
    for object in objects {
        let text = format!("{object:?}");
        assert!(text.len() < 200_000, "{} characters", text.len());
    }
}
