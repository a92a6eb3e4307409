//! Targets of another process that has the domain of the same file.

use std::sync::Arc;

use ferroce_nic::{AsyncSubject, Qp, Srq, SrqAttr, Xrcd};
use ferroce_proto::ids::{Qpn, Srqn};
use ferroce_proto::verbs::{
    AsyncEvent, AttrMask, Mtu, Payload, QpAttr, QpState, RecvWr, SendFlags, SendOp, SendTo, SendWr,
    WcStatus,
};

use super::common::key::{KeyFile, run_keyed};
use super::common::{
    Buffer, End, INIT, RTR, attributes, cap, next_completion, pattern, run_on_wire, wait_for,
};
use super::elsewhere::{Other, file, named, open};
use super::{CREATE, World, connect, initiator};

const COOKIE: usize = 9;

/// A process with a target, a handle on that target here, and an initiator that is not connected.
struct Shared {
    owner: Other,
    host: End,
    xrcd: Arc<Xrcd>,
    target: Arc<Qp>,
    peer: End,
}

impl Shared {
    fn new() -> Self {
        let file = file();
        let mut owner = Other::start(&file);
        let number = owner.tell("make", "target").parse().expect("a number");
        let host = End::new(cap());
        let xrcd = Xrcd::open(&host.context, named(&file), CREATE).expect("a domain");
        let target = open(&xrcd, Qpn::new(number), COOKIE).expect("opened");
        Self {
            owner,
            host,
            xrcd,
            target,
            peer: initiator(),
        }
    }

    /// Connects the target, through its handle, with the initiator.
    fn connect(&self) {
        connect(&self.target, self.peer.qp.qpn(), self.peer.gid(), 7);
        connect(&self.peer.qp, self.target.qpn(), self.host.gid(), 7);
    }

    fn send(&self, to: Srqn, wr_id: u64, from: &Buffer, len: usize) {
        let wr = SendWr {
            wr_id,
            to: SendTo::XrcSrq(to),
            op: SendOp::Send,
            flags: SendFlags::empty(),
            payload: Payload::Sges(vec![from.sge(0, len)].into()),
        };
        let posted = self.peer.qp.post_send(&mut [wr].into_iter());
        posted.expect("posted");
    }

    fn event(&self) -> AsyncEvent {
        let mut found = None;
        wait_for("an event", || {
            found = self.host.context.pop_async_event();
            found.is_some()
        });
        let (event, about) = found.expect("waited for");
        assert_eq!(about, AsyncSubject::Qp(COOKIE));
        event
    }
}

/// Attributes that ask for a state only.
fn to(qp_state: QpState) -> QpAttr {
    QpAttr {
        qp_state,
        ..QpAttr::default()
    }
}

fn used_through_a_handle() {
    let mut shared = Shared::new();
    assert_eq!(shared.target.state(), QpState::Reset);
    shared.connect();
    let (told, other) = (shared.target.query(), shared.peer.qp.query());
    assert_eq!(told.qp_state, QpState::Rts);
    assert_eq!(told.dest_qp_num, shared.peer.qp.qpn());
    assert_eq!(told.path_mtu, other.path_mtu);
    assert_eq!(told.ah_attr, other.ah_attr, "the same device");

    let sent = Buffer::new(&shared.peer.pd, pattern(9000, 3));
    shared.owner.tell("post 1", "posted");
    shared.send(shared.owner.srq, 1, &sent, 9000);
    let (target, source) = (shared.target.qpn().get(), shared.peer.qp.qpn().get());
    let received = shared.owner.tell("receive", "received");
    assert!(
        received.starts_with(&format!("1 Success 9000 {target} {source}")),
        "{received}"
    );
    shared.peer.done(1);

    // A queue of the process that has not made the target.
    let attr = SrqAttr {
        max_wr: 4,
        max_sge: 1,
        srq_limit: 0,
    };
    let (host, xrcd) = (&shared.host, &shared.xrcd);
    let srq = Srq::create_xrc(&host.pd, attr, xrcd, &host.cq).expect("a queue");
    let there = Buffer::new(&host.pd, vec![0; 9000]);
    let mut recv = [RecvWr {
        wr_id: 2,
        sges: vec![there.sge(0, 9000)].into(),
    }]
    .into_iter();
    srq.post_recv(&mut recv).expect("posted");
    shared.send(srq.number().expect("a number"), 2, &sent, 9000);
    let received = next_completion(&shared.host.cq);
    assert_eq!((received.wr_id, received.status), (2, WcStatus::Success));
    assert_eq!(there.snapshot(), sent.snapshot());
    shared.peer.done(2);
}

#[test]
fn a_target_of_another_process_is_used_through_a_handle() {
    used_through_a_handle();
}

#[test]
fn a_target_of_another_process_is_used_over_a_bad_wire() {
    let child = "opened::child_used_through_a_handle";
    run_on_wire(child, "drop=2%,dup=1%,reorder=1%,seed=9");
}

#[test]
#[ignore = "run by the test above"]
fn child_used_through_a_handle() {
    used_through_a_handle();
}

/// The owner's thread that makes progress would have to wait for the peer's host.
#[test]
fn with_a_key_only_the_owner_of_a_target_connects_it() {
    let key = KeyFile::random("opened", 3);
    run_keyed("opened::child_with_a_key", &key, &[]);
}

#[test]
#[ignore = "run by the test above"]
fn child_with_a_key() {
    let shared = Shared::new();
    let attr = attributes(shared.peer.qp.qpn(), shared.peer.gid(), Mtu::B1024);
    let change = |qp_state, mask| shared.target.modify(&QpAttr { qp_state, ..attr }, mask);
    change(QpState::Init, INIT).expect("INIT needs no peer");
    let refused = change(QpState::Rtr, RTR).expect_err("refused");
    assert_eq!(refused.errno, libc::EOPNOTSUPP, "{refused}");
    assert!(refused.reason.contains("FERROCE_KEY_FILE"), "{refused}");
    assert_eq!(shared.target.state(), QpState::Init, "nothing has changed");
}

#[test]
fn what_is_refused_there_is_refused_here_with_its_reason() {
    let shared = Shared::new();
    let own = Qp::create_target(&shared.xrcd).expect("a target");
    for state in [QpState::Init, QpState::Rts] {
        let refused = |qp: &Qp| qp.modify(&to(state), AttrMask::STATE).expect_err("refused");
        assert_eq!(refused(&shared.target), refused(&own));
    }
    own.destroy();
    let post = |wr: RecvWr| shared.target.post_recv(&mut [wr].into_iter());
    let recv = RecvWr {
        wr_id: 1,
        sges: vec![].into(),
    };
    let (_, refused) = post(recv).expect_err("a target has no queue of its own");
    assert_eq!(refused.errno, libc::EINVAL);
}

#[test]
fn events_come_to_handles_in_other_processes() {
    let shared = Shared::new();
    shared.connect();
    let sent = Buffer::new(&shared.peer.pd, vec![1; 8]);
    let wrong = Srqn::new(shared.owner.srq.get() ^ 1);
    shared.send(wrong, 1, &sent, 8);
    assert_eq!(shared.peer.completion().status, WcStatus::RemInvReqErr);
    assert_eq!(shared.event(), AsyncEvent::QpReqErr);
    assert_eq!(shared.event(), AsyncEvent::QpLastWqeReached);
    assert_eq!(shared.target.query().qp_state, QpState::Err);
}

#[test]
fn a_target_lives_until_its_last_handle_in_any_process() {
    let mut shared = Shared::new();
    let (xrcd, qpn) = (&shared.xrcd, shared.target.qpn());
    let users = xrcd.users();
    let second = open(xrcd, qpn, 10).expect("opened again");
    assert_eq!(xrcd.users(), users + 1);
    shared.owner.tell("close", "closed");
    second.close(10);
    assert_eq!(xrcd.users(), users);
    shared
        .target
        .modify(&to(QpState::Reset), AttrMask::STATE)
        .expect("it lives");
    shared.target.close(COOKIE);
    assert_eq!(xrcd.users(), users - 1);
    assert_eq!(open(xrcd, qpn, 11).expect_err("gone"), libc::EINVAL);
}

#[test]
fn a_target_ends_with_the_process_that_made_it() {
    let mut shared = Shared::new();
    shared.connect();
    shared.owner.kill();
    assert_eq!(shared.event(), AsyncEvent::QpFatal);
    assert_eq!(shared.target.query().qp_state, QpState::Err);
    let refused = shared.target.modify(&to(QpState::Reset), AttrMask::STATE);
    assert_eq!(refused.expect_err("gone").errno, libc::EIO);
    shared.target.close(COOKIE);
    let again = open(&shared.xrcd, shared.target.qpn(), 10);
    assert_eq!(again.expect_err("gone"), libc::EINVAL);
}

#[test]
fn handles_of_a_process_that_is_killed_are_closed() {
    let file = file();
    let mut other = Other::start(&file);
    let world = World::with(named(&file), 7);
    let qpn = world.target.qpn();
    let told = other.tell(&format!("open {}", qpn.get()), "opened");
    assert_eq!(told, "Ok(Rts)");
    world.target.close(7);
    let here = open(&world.xrcd, qpn, 8).expect("the other process has it open");
    here.close(8);
    other.kill();
    wait_for("the end of the target", || {
        open(&world.xrcd, qpn, 8).map(|qp| qp.close(8)).is_err()
    });
}

#[test]
fn a_target_is_not_opened_through_another_domain() {
    let shared = Shared::new();
    let qpn = shared.target.qpn();
    let other = Xrcd::open(&shared.host.context, None, CREATE).expect("a domain");
    assert_eq!(open(&other, qpn, 1).expect_err("refused"), libc::EINVAL);
    let wrong = Qpn::new(qpn.get() ^ 1);
    let refused = open(&shared.xrcd, wrong, 1).expect_err("no target");
    assert_eq!(refused, libc::EINVAL);
}
