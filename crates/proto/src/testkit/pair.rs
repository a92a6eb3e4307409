//! Two nodes and the link between them.

mod traffic;

use alloc::vec;
use alloc::vec::Vec;

use super::link::Channel;
use super::node::sge;
use super::{Node, PD, Rng, Setup, Side};
use crate::ids::{Gid, Key, Psn, Qpn, Srqn};
use crate::rc::{RcConfig, SharedRecv};
use crate::time::Time;
use crate::verbs::{AttrMask, PostError, QpAttr, QpState, QpType, RecvWr, SendWr, Sge};

/// Two queue pairs, connected.
#[derive(Debug)]
pub struct Pair {
    /// One end.
    pub a: Node,
    /// The other.
    pub b: Node,
    /// The time.
    pub now: Time,
    /// Chance.
    pub rng: Rng,
    /// Keys of all of the memory of A and B, open for everything.
    pub keys: [Key; 2],
    /// Packets seen on the way, if wanted: sender, and the bytes.
    pub trace: Option<Vec<(Side, Vec<u8>)>>,
    /// Both ends send short messages at once where they can
    /// ([`RcQp::poll_short`](crate::rc::RcQp::poll_short)); how many they have sent.
    pub shorts: Option<usize>,
    /// Short messages are received the short way, where that is open; how often that was so.
    pub briefs: Option<usize>,
    /// While that is so: how many Middle packets were received together.
    pub batch: usize,
    setup: Setup,
    to_b: Channel,
    to_a: Channel,
    buffer: Vec<u8>,
}

impl Pair {
    /// Two nodes in RTS.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let mut pair = Self::unconnected(setup);
        for side in [Side::A, Side::B] {
            for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
                pair.to_state(side, state);
            }
        }
        pair
    }

    /// Two nodes in RESET.
    #[must_use]
    pub fn unconnected(setup: Setup) -> Self {
        let node = |side| {
            let (qpn, qp_type) = (Self::qpn(side), setup.qp_type(side));
            let config = RcConfig {
                qpn,
                qp_type,
                pd: PD,
                cap: setup.cap,
                sq_sig_all: setup.sq_sig_all,
                shared_recv: setup.shared_recv,
            };
            let mut node = Node::new(config, setup.memory);
            node.qp.set_link(setup.link);
            if setup.is_ferroce_peer {
                node.qp.meet_ferroce_peer();
            }
            let key = node.register(0, setup.memory as u64, setup.access);
            (node, key)
        };
        let ((a, key_a), (b, key_b)) = (node(Side::A), node(Side::B));
        Self {
            a,
            b,
            now: Time(1_000_000),
            rng: Rng::new(setup.seed),
            keys: [key_a, key_b],
            trace: None,
            shorts: None,
            briefs: None,
            batch: 0,
            setup,
            to_b: Channel::new(setup.faults),
            to_a: Channel::new(setup.faults),
            buffer: Vec::new(),
        }
    }

    const fn qpn(side: Side) -> Qpn {
        match side {
            Side::A => Qpn::new(0x4011),
            Side::B => Qpn::new(0x8022),
        }
    }

    /// The node at one end.
    pub fn node(&mut self, side: Side) -> &mut Node {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }

    /// The key of all of a node's memory.
    #[must_use]
    pub const fn key(&self, side: Side) -> Key {
        self.keys[side as usize]
    }

    /// A scatter/gather element in a node's memory.
    #[must_use]
    pub const fn sge(&self, side: Side, offset: u64, length: u32) -> Sge {
        sge(self.key(side), offset, length)
    }

    /// The attributes and mask of a step of the normal sequence.
    #[must_use]
    pub fn step_attr(&self, side: Side, state: QpState) -> (QpAttr, AttrMask) {
        use AttrMask as M;
        let setup = &self.setup;
        let psn_of = |side| Psn::new(setup.psn).plus(0x1234 * (side as u32));
        let mut attr = QpAttr {
            qp_state: state,
            path_mtu: setup.mtu,
            rq_psn: psn_of(side.peer()),
            sq_psn: psn_of(side),
            dest_qp_num: Self::qpn(side.peer()),
            qp_access_flags: setup.access,
            max_rd_atomic: setup.rd_atomic,
            max_dest_rd_atomic: setup.rd_atomic,
            min_rnr_timer: setup.min_rnr_timer,
            timeout: setup.timeout,
            retry_cnt: setup.retry_cnt,
            rnr_retry: setup.rnr_retry,
            ..QpAttr::default()
        };
        attr.ah_attr.is_global = true;
        attr.ah_attr.grh.dgid = Gid([1; 16]);
        let mask = match state {
            QpState::Init => M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
            QpState::Rtr => {
                M::AV
                    | M::PATH_MTU
                    | M::DEST_QPN
                    | M::RQ_PSN
                    | M::MAX_DEST_RD_ATOMIC
                    | M::MIN_RNR_TIMER
            }
            QpState::Rts => {
                M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC
            }
            _ => M::empty(),
        };
        // The half that a queue pair of XRC does not have needs nothing.
        let mask = match setup.qp_type(side) {
            QpType::XrcSend => mask.difference(M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER),
            QpType::XrcRecv => mask.difference(M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC),
            _ => mask,
        };
        (attr, mask | M::STATE)
    }

    /// Moves a queue pair on in the normal sequence.
    ///
    /// # Panics
    /// The change is refused.
    #[track_caller]
    pub fn to_state(&mut self, side: Side, state: QpState) {
        let (attr, mask) = self.step_attr(side, state);
        self.modify(side, &attr, mask);
    }

    /// `ibv_modify_qp` that must succeed.
    ///
    /// # Panics
    /// The change is refused.
    #[track_caller]
    pub fn modify(&mut self, side: Side, attr: &QpAttr, mask: AttrMask) {
        let now = self.now;
        let outcome = self
            .node(side)
            .with(now, |qp, cx| qp.modify(cx, attr, mask));
        assert_eq!(outcome, Ok(()));
    }

    /// Posts a send work request.
    ///
    /// # Errors
    /// It was refused.
    pub fn try_send(&mut self, side: Side, wr: SendWr) -> Result<(), PostError> {
        let now = self.now;
        self.node(side).with(now, |qp, cx| qp.post_send(cx, wr))
    }

    /// Posts a send work request that must be accepted.
    ///
    /// # Panics
    /// It was refused.
    #[track_caller]
    pub fn send(&mut self, side: Side, wr: SendWr) {
        assert_eq!(self.try_send(side, wr), Ok(()));
    }

    /// Posts a receive work request that must be accepted.
    ///
    /// # Panics
    /// It was refused.
    #[track_caller]
    pub fn recv(&mut self, side: Side, wr_id: u64, sges: Vec<Sge>) {
        let wr = RecvWr {
            wr_id,
            sges: sges.into(),
        };
        assert_eq!(self.try_recv(side, wr), Ok(()));
    }

    /// Posts a receive work request.
    ///
    /// # Errors
    /// It was refused.
    pub fn try_recv(&mut self, side: Side, wr: RecvWr) -> Result<(), PostError> {
        let (now, quietly) = (self.now, self.briefs.is_some());
        self.node(side).with(now, |qp, cx| {
            if quietly && qp.takes_recv_quietly(wr.sges.len()) {
                qp.post_recv_quietly(wr);
                return Ok(());
            }
            qp.post_recv(cx, wr)
        })
    }

    /// A receive work request of `sges`; for shared receive queues.
    pub fn shared_recv(&mut self, side: Side, wr_id: u64, sges: Vec<Sge>) {
        let node = self.node(side);
        let wr = RecvWr {
            wr_id,
            sges: sges.into(),
        };
        node.results
            .shared_recv
            .push_back(SharedRecv { wr, pd: PD });
        node.qp.on_recv_available();
    }

    /// A receive work request for an XRC shared receive queue of B, which
    /// [`Results::xrc`](super::Results::xrc) must have.
    pub fn xrc_recv(&mut self, srq: Srqn, wr_id: u64, sges: Vec<Sge>) {
        if let Some(queue) = self.b.results.xrc.get_mut(&srq) {
            queue.wrs.push_back(RecvWr {
                wr_id,
                sges: sges.into(),
            });
            self.b.qp.on_recv_available();
        }
    }

    /// The whole memory of a node as one list.
    #[must_use]
    pub fn whole(&self, side: Side) -> Vec<Sge> {
        let length = u32::try_from(self.setup.memory).unwrap_or(u32::MAX);
        vec![self.sge(side, 0, length)]
    }
}
