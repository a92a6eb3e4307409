//! The whole matrix of `ibv_modify_qp` on live queue pairs: every type, every pair of states, each
//! required attribute missing, each other attribute superfluous. The rules are those of
//! `testkit::transitions`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{End, attributes, cap, next_completion};
use ferroce_nic::{Ah, Context, Cq, Error, Pd, Qp, QpInit, Xrcd, XrcdFlags};
use ferroce_proto::ids::Key;
use ferroce_proto::testkit::transitions::rule;
use ferroce_proto::verbs::{
    AttrMask, Datagram, Mtu, Payload, QpAttr, QpState, QpType, SendFlags, SendOp, SendTo, SendWr,
    Sge, WcStatus,
};

/// All states; to SQE no program moves, a failure leads there.
const STATES: [QpState; 7] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Sqd,
    QpState::Err,
    QpState::Sqe,
];
/// States in which `IBV_QP_CUR_STATE` may be given at all.
const CUR_STATE_IN: [QpState; 4] = [QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe];

/// A domain for itself.
const XRCD: XrcdFlags = XrcdFlags {
    create: true,
    exclusive: false,
};

/// Where queue pairs are made.
struct Bench {
    context: Arc<Context>,
    pd: Arc<Pd>,
    cq: Arc<Cq>,
    xrcd: Arc<Xrcd>,
    qp_type: QpType,
}

/// A queue pair that ends with the test.
struct Made(Arc<Qp>);

impl Drop for Made {
    fn drop(&mut self) {
        self.0.destroy();
    }
}

impl Bench {
    fn new(qp_type: QpType) -> Self {
        let context = Context::open(&common::loopback()).unwrap();
        Self {
            pd: Pd::alloc(&context).unwrap(),
            cq: Cq::create(&context, 64, None).unwrap(),
            xrcd: Xrcd::open(&context, None, XRCD).unwrap(),
            context,
            qp_type,
        }
    }

    /// A queue pair in a state.
    fn in_state(&self, state: QpState) -> Made {
        let qp = if self.qp_type == QpType::XrcRecv {
            Qp::create_target(&self.xrcd).unwrap()
        } else {
            let init = QpInit {
                qp_type: self.qp_type,
                send_cq: Arc::clone(&self.cq),
                recv_cq: Arc::clone(&self.cq),
                cap: cap(),
                sq_sig_all: false,
                srq: None,
            };
            Qp::create(&self.pd, init).unwrap()
        };
        let made = Made(qp);
        let way: &[QpState] = match state {
            QpState::Reset => &[],
            QpState::Init => &STATES[1..2],
            QpState::Rtr => &STATES[1..3],
            QpState::Rts | QpState::Sqe => &STATES[1..4],
            QpState::Sqd => &STATES[1..5],
            QpState::Err => &[QpState::Init, QpState::Err],
        };
        for &to in way {
            let (required, _) = rule(self.qp_type, made.0.state(), to).unwrap();
            self.modify(&made.0, to, required).unwrap();
        }
        if state == QpState::Sqe {
            self.fail_a_send(&made.0);
        }
        assert_eq!(made.0.state(), state);
        made
    }

    /// Sends what no key opens: an unreliable queue pair goes to SQE.
    fn fail_a_send(&self, qp: &Qp) {
        let gid = self.context.device().gid(0).unwrap();
        let qpn = qp.qpn();
        let ah = Ah::create(&self.pd, attributes(qpn, gid, Mtu::B1024).ah_attr).unwrap();
        let to = match self.qp_type {
            QpType::Ud => SendTo::Datagram(Datagram {
                ah: ah.number(),
                qpn,
                qkey: 1,
            }),
            _ => SendTo::Peer,
        };
        let sge = Sge {
            addr: 0,
            length: 8,
            lkey: Key(7),
        };
        let wr = SendWr {
            wr_id: 1,
            to,
            op: SendOp::Send,
            flags: SendFlags::SIGNALED,
            payload: Payload::Sges(vec![sge].into()),
        };
        qp.post_send(&mut [wr].into_iter()).unwrap();
        let failed = next_completion(&self.cq);
        assert_eq!(failed.status, WcStatus::LocProtErr);
        ah.destroy();
    }

    /// Whether a queue pair of the type can be in a state at all.
    fn reaches(&self, state: QpState) -> bool {
        state != QpState::Sqe || matches!(self.qp_type, QpType::Uc | QpType::Ud)
    }

    /// Asks for a state with these attributes, all of which have good values.
    fn modify(&self, qp: &Qp, to: QpState, mask: AttrMask) -> Result<(), Error> {
        let gid = self.context.device().gid(0).unwrap();
        let good = attributes(qp.qpn(), gid, Mtu::B1024);
        let attr = QpAttr {
            qp_state: to,
            cur_qp_state: qp.state(),
            alt_ah_attr: good.ah_attr,
            alt_port_num: 1,
            qkey: 0x1111_1111,
            cap: cap(),
            ..good
        };
        qp.modify(&attr, mask | AttrMask::STATE)
    }

    /// Attributes that this type ignores where it does not take them.
    fn ignored(&self) -> AttrMask {
        match self.qp_type {
            QpType::XrcSend => AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER,
            QpType::XrcRecv => {
                AttrMask::MAX_QP_RD_ATOMIC | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY
            }
            _ => AttrMask::empty(),
        }
    }

    /// EINVAL, a reason that names the attribute, and nothing changed.
    #[track_caller]
    fn refused(&self, qp: &Qp, to: QpState, mask: AttrMask, named: Option<AttrMask>) {
        let before = qp.query();
        let what = format!("{} {} to {to} with {mask}", self.qp_type, before.qp_state);
        let error = self.modify(qp, to, mask).expect_err(&what);
        assert_eq!(error.errno, libc::EINVAL, "{what}: {error}");
        if let Some(named) = named {
            let name = named.to_string();
            assert!(error.reason.contains(&name), "{what}: {error}");
        }
        assert_eq!(qp.query(), before, "{what}");
    }

    fn transition(&self, from: QpState, to: QpState) {
        let Some((required, optional)) = rule(self.qp_type, from, to) else {
            let made = self.in_state(from);
            for mask in AttrMask::all()
                .iter()
                .chain([AttrMask::empty(), AttrMask::all()])
            {
                self.refused(&made.0, to, mask, None);
            }
            return;
        };
        let made = self.in_state(from);
        for missing in required.iter() {
            self.refused(&made.0, to, required - missing, Some(missing));
        }
        let takes = required | optional | AttrMask::STATE | self.ignored();
        for superfluous in (AttrMask::all() - takes).iter() {
            self.refused(&made.0, to, required | superfluous, Some(superfluous));
        }
        self.modify(&made.0, to, required).unwrap();
        assert_eq!(made.0.state(), to);
        for extra in optional.iter() {
            let made = self.in_state(from);
            let done = self.modify(&made.0, to, required | extra);
            if extra == AttrMask::CUR_STATE && !CUR_STATE_IN.contains(&from) {
                continue;
            }
            done.unwrap_or_else(|e| panic!("{} {from} to {to} with {extra}: {e}", self.qp_type));
            assert_eq!(made.0.state(), to);
        }
    }

    fn matrix(&self) {
        for from in STATES.into_iter().filter(|s| self.reaches(*s)) {
            for to in STATES {
                self.transition(from, to);
            }
        }
    }
}

#[test]
fn rc_takes_exactly_what_the_rules_say() {
    Bench::new(QpType::Rc).matrix();
}

#[test]
fn uc_takes_exactly_what_the_rules_say() {
    Bench::new(QpType::Uc).matrix();
}

#[test]
fn ud_takes_exactly_what_the_rules_say() {
    Bench::new(QpType::Ud).matrix();
}

#[test]
fn xrc_takes_exactly_what_the_rules_say() {
    Bench::new(QpType::XrcSend).matrix();
    Bench::new(QpType::XrcRecv).matrix();
}

#[test]
fn raw_packet_queue_pairs_do_not_exist() {
    let end = End::new(cap());
    let init = QpInit {
        qp_type: QpType::RawPacket,
        send_cq: Arc::clone(&end.cq),
        recv_cq: Arc::clone(&end.cq),
        cap: cap(),
        sq_sig_all: false,
        srq: None,
    };
    let refused = Qp::create(&end.pd, init).expect_err("raw packets");
    assert_eq!(refused.errno, libc::EOPNOTSUPP);
}
