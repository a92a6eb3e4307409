//! Attributes: what is set is told again; values out of range are refused.

use ferroce_proto::ids::{Gid, Psn, Qpn};
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{AttrMask, Mtu, QpAttr, QpState, QpType, SendFlags, SendOp};

use crate::bench::{Bench, Spec};
use crate::case::Case;
use crate::door::{EINVAL, ENOMEM};
use crate::end::{End, send_wr, to_init, to_rtr, to_rts};

pub(super) const CASES: &[Case] = &[
    Case::new("attributes.told-again", &["qp.query"], told_again),
    Case::new("attributes.out-of-range", &["qp.ranges"], out_of_range),
    Case::new("attributes.every-mtu", &["op.mtus"], every_mtu),
    Case::new("post.limits", &["post.limits"], post_limits),
    Case::new("register.rules", &["mr.access-rules"], registration_rules),
];

fn told_again(bench: &Bench) {
    let mut spec = Spec::default();
    spec.attr = QpAttr {
        path_mtu: Mtu::B512,
        rq_psn: Psn::new(0x12_3456),
        sq_psn: Psn::new(0x65_4321),
        qp_access_flags: Access::REMOTE_READ,
        max_rd_atomic: 3,
        max_dest_rd_atomic: 5,
        min_rnr_timer: 17,
        timeout: 19,
        retry_cnt: 2,
        rnr_retry: 6,
        ..spec.attr
    };
    let end = bench.end(spec);
    end.connect_to(Qpn::new(0x1_2345), end.gid());
    let got = end.side().query();
    let want = end.attr(Qpn::new(0x1_2345), end.gid());
    assert_eq!(
        (got.qp_state, got.cur_qp_state),
        (QpState::Rts, QpState::Rts)
    );
    assert_eq!(got.path_mtu, want.path_mtu);
    assert_eq!((got.rq_psn, got.sq_psn), (want.rq_psn, want.sq_psn));
    assert_eq!(got.dest_qp_num, want.dest_qp_num);
    assert_eq!(got.qp_access_flags, want.qp_access_flags);
    assert_eq!(got.ah_attr, want.ah_attr);
    assert_eq!((got.max_rd_atomic, got.max_dest_rd_atomic), (3, 5));
    assert_eq!((got.min_rnr_timer, got.timeout), (17, 19));
    assert_eq!((got.retry_cnt, got.rnr_retry, got.port_num), (2, 6, 1));
    assert!(got.cap.max_send_wr >= spec.cap.max_send_wr);
    assert!(got.cap.max_recv_sge >= spec.cap.max_recv_sge);
}

/// A change with one value out of range: its name, and what makes the value wrong.
type Wrong = (&'static str, fn(&mut QpAttr));

/// Out of range from RESET to INIT.
const WRONG_INIT: [Wrong; 3] = [
    ("port 0", |attr| attr.port_num = 0),
    ("port 2", |attr| attr.port_num = 2),
    ("P_Key index 1", |attr| attr.pkey_index = 1),
];
/// Out of range from INIT to RTR.
const WRONG_RTR: [Wrong; 6] = [
    ("RNR timer 32", |attr| attr.min_rnr_timer = 32),
    ("depth 129", |attr| attr.max_dest_rd_atomic = 129),
    ("no GRH", |attr| attr.ah_attr.is_global = false),
    ("an empty GID entry", |attr| {
        attr.ah_attr.grh.sgid_index = 200
    }),
    ("no destination", |attr| {
        attr.ah_attr.grh.dgid = Gid::default()
    }),
    ("address handle on port 3", |attr| attr.ah_attr.port_num = 3),
];
/// Out of range from RTR to RTS.
const WRONG_RTS: [Wrong; 4] = [
    ("timeout 32", |attr| attr.timeout = 32),
    ("retry_cnt 8", |attr| attr.retry_cnt = 8),
    ("rnr_retry 8", |attr| attr.rnr_retry = 8),
    ("depth 129", |attr| attr.max_rd_atomic = 129),
];

fn out_of_range(bench: &Bench) {
    let end = bench.end(Spec::default());
    let peer = bench.peer(Spec::default());
    let right = end.attr(peer.qpn(), peer.gid());
    let rc = QpType::Rc;
    refuses_then_takes(&end, QpState::Init, right, to_init(rc), &WRONG_INIT);
    refuses_then_takes(&end, QpState::Rtr, right, to_rtr(rc), &WRONG_RTR);
    refuses_then_takes(&end, QpState::Rts, right, to_rts(rc), &WRONG_RTS);
}

/// Each wrong change is refused and changes nothing: the right one is taken afterwards.
fn refuses_then_takes(
    end: &End,
    qp_state: QpState,
    right: QpAttr,
    mask: AttrMask,
    wrong: &[Wrong],
) {
    let right = QpAttr { qp_state, ..right };
    let before = end.state();
    for (name, spoil) in wrong {
        let mut attr = right;
        spoil(&mut attr);
        assert_eq!(end.side().modify(&attr, mask), Err(EINVAL), "{name}");
        assert_eq!(end.state(), before, "{name}");
    }
    end.side().modify(&right, mask).expect("the right values");
}

fn every_mtu(bench: &Bench) {
    for path_mtu in [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096] {
        let mut spec = Spec::default();
        spec.attr.path_mtu = path_mtu;
        let (a, b) = bench.pair_of(spec, spec);
        let content = crate::end::pattern(10_001, path_mtu as u64);
        a.memory().fill(0, &content);
        b.recv(1, vec![b.sge(3, 20_000)]);
        a.send(1, SendOp::Send, vec![a.sge(0, content.len())]);
        a.done(1);
        assert_eq!(b.done(1).byte_len, 10_001);
        assert!(b.memory().bytes(3, content.len()) == content);
        b.send(
            2,
            SendOp::Read(a.remote(0)),
            vec![b.sge(30_000, content.len())],
        );
        b.done(2);
        assert!(b.memory().bytes(30_000, content.len()) == content);
    }
}

fn post_limits(bench: &Bench) {
    let (a, b) = bench.pair();
    let cap = a.side().query().cap;
    let many = |n: u32| vec![a.sge(0, 1); n as usize];
    let wr = |sges| send_wr(1, SendOp::Write(b.remote(0)), sges, SendFlags::SIGNALED);
    assert_eq!(a.post(wr(many(cap.max_send_sge + 1))), Err(EINVAL));
    let recv = |sges: Vec<_>| ferroce_proto::verbs::RecvWr {
        wr_id: 1,
        sges: sges.into(),
    };
    let too_many = recv(many(cap.max_recv_sge + 1));
    assert_eq!(a.side().post_recv(too_many), Err(EINVAL));
    for _ in 0..cap.max_recv_wr {
        assert_eq!(a.side().post_recv(recv(vec![])), Ok(()));
    }
    assert_eq!(a.side().post_recv(recv(vec![])), Err(ENOMEM));
    // In SQD nothing leaves the send queue.
    a.to(QpState::Sqd);
    for _ in 0..cap.max_send_wr {
        assert_eq!(a.post(wr(many(cap.max_send_sge))), Ok(()));
    }
    assert_eq!(a.post(wr(vec![])), Err(ENOMEM));
    a.to(QpState::Rts);
    for _ in 0..cap.max_send_wr {
        a.done(1);
    }
    assert_eq!(a.post(wr(vec![])), Ok(()));
    a.done(1);
}

fn registration_rules(bench: &Bench) {
    let mut end = bench.end(Spec::default());
    for needs_local_write in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        let got = end.side_mut().register(0, 64, needs_local_write);
        assert_eq!(got, Err(EINVAL), "{needs_local_write:?} alone");
        end.register(0, 64, needs_local_write | Access::LOCAL_WRITE);
    }
    let plain = end.register(0, 64, Access::empty());
    let other = end.register(0, 64, Access::REMOTE_READ);
    assert_ne!(plain, other);
}
