//! Unreliable queue pairs with nothing between them: the test carries each packet, or loses it.

use ferroce_proto::ids::{Gid, Key, Psn, Qpn};
use ferroce_proto::mr::Access;
use ferroce_proto::rc::{Cx, ModifyError, RcConfig};
use ferroce_proto::testkit::{Machine, Node, PD};
use ferroce_proto::time::Time;
use ferroce_proto::uc::UcQp;
use ferroce_proto::ud::UdQp;
use ferroce_proto::verbs::{
    AttrMask, Mtu, PostError, QpAttr, QpCap, QpState, QpType, RecvWr, SendWr, Sge,
};
use ferroce_proto::wire::Packet;

/// Bytes of memory of each end.
pub(crate) const MEMORY: u64 = 1 << 16;
/// Payload of a full packet.
pub(crate) const MTU: u32 = 256;

/// What the tests need of an unreliable queue pair.
pub(crate) trait Loose: Machine {
    fn modify(&mut self, cx: &mut Cx<'_>, attr: &QpAttr, mask: AttrMask)
    -> Result<(), ModifyError>;
    fn post_send(&mut self, cx: &mut Cx<'_>, wr: SendWr) -> Result<(), PostError>;
    fn post_recv(&mut self, cx: &mut Cx<'_>, wr: RecvWr) -> Result<(), PostError>;
    fn poll_transmit(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool;
    fn wants_transmit(&self) -> bool;
    fn state(&self) -> QpState;
}

macro_rules! loose {
    ($($ty:ty)*) => {$(
        impl Loose for $ty {
            fn modify(&mut self, cx: &mut Cx<'_>, attr: &QpAttr, mask: AttrMask) -> Result<(), ModifyError> {
                Self::modify(self, cx, attr, mask)
            }
            fn post_send(&mut self, cx: &mut Cx<'_>, wr: SendWr) -> Result<(), PostError> {
                Self::post_send(self, cx, wr)
            }
            fn post_recv(&mut self, cx: &mut Cx<'_>, wr: RecvWr) -> Result<(), PostError> {
                Self::post_recv(self, cx, wr)
            }
            fn poll_transmit(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> bool {
                Self::poll_transmit(self, cx, out)
            }
            fn wants_transmit(&self) -> bool {
                Self::wants_transmit(self)
            }
            fn state(&self) -> QpState {
                Self::state(self)
            }
        }
    )*};
}

loose!(UcQp UdQp);

/// One end.
pub(crate) struct End<Q> {
    pub(crate) node: Node<Q>,
    /// Opens all of its memory to everybody.
    pub(crate) key: Key,
}

pub(crate) fn config(qp_type: QpType, qpn: u32) -> RcConfig {
    RcConfig {
        qpn: Qpn::new(qpn),
        qp_type,
        pd: PD,
        cap: QpCap {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 64,
        },
        sq_sig_all: false,
        shared_recv: false,
    }
}

impl<Q: Loose> End<Q> {
    pub(crate) fn new(qp: Q, qpn: u32) -> Self {
        let mut node = Node::of(qp, Qpn::new(qpn), MEMORY as usize);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let key = node.register(0, MEMORY, access);
        Self { node, key }
    }

    pub(crate) fn with<R>(&mut self, f: impl FnOnce(&mut Q, &mut Cx<'_>) -> R) -> R {
        self.node.with(Time(1), f)
    }

    pub(crate) fn state(&self) -> QpState {
        self.node.qp.state()
    }

    #[track_caller]
    pub(crate) fn modify(&mut self, attr: &QpAttr, mask: AttrMask) {
        let modified = self.with(|qp, cx| qp.modify(cx, attr, mask));
        assert_eq!(modified, Ok(()));
    }

    /// Goes to a state that needs no attributes.
    #[track_caller]
    pub(crate) fn go(&mut self, state: QpState) {
        let attr = QpAttr {
            qp_state: state,
            ..QpAttr::default()
        };
        self.modify(&attr, AttrMask::STATE);
    }

    pub(crate) fn try_send(&mut self, wr: SendWr) -> Result<(), PostError> {
        self.with(|qp, cx| qp.post_send(cx, wr))
    }

    #[track_caller]
    pub(crate) fn send(&mut self, wr: SendWr) {
        assert_eq!(self.try_send(wr), Ok(()));
    }

    #[track_caller]
    pub(crate) fn recv(&mut self, wr_id: u64, sges: Vec<Sge>) {
        let posted = self.with(|qp, cx| {
            qp.post_recv(
                cx,
                RecvWr {
                    wr_id,
                    sges: sges.into(),
                },
            )
        });
        assert_eq!(posted, Ok(()));
    }

    /// The next packet, if there is one.
    pub(crate) fn packet(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let wanted = self.node.qp.wants_transmit();
        let sent = self.with(|qp, cx| qp.poll_transmit(cx, &mut out));
        assert!(wanted || !sent, "sent without wanting to");
        assert_eq!(sent, !out.is_empty());
        sent.then_some(out)
    }

    /// All packets.
    pub(crate) fn packets(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.packet()).collect()
    }

    pub(crate) fn sge(&self, offset: u64, length: u32) -> Sge {
        ferroce_proto::testkit::sge(self.key, offset, length)
    }

    pub(crate) fn put(&self, offset: u64, data: &[u8]) {
        let base = ferroce_proto::testkit::Arena::BASE;
        self.node.memory.put(base + offset, data);
    }

    pub(crate) fn get(&self, offset: u64, len: usize) -> Vec<u8> {
        let base = ferroce_proto::testkit::Arena::BASE;
        self.node.memory.get(base + offset, len)
    }
}

impl End<UcQp> {
    /// Hands a packet in. Returns whether the state takes it.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        let packet = Packet::parse(bytes).expect("well-formed");
        self.with(|qp, cx| qp.on_packet(cx, &packet))
    }
}

/// Two connected ends in RTS.
pub(crate) fn connected() -> [End<UcQp>; 2] {
    let end = |own, peer, psn: u32| {
        let mut end = End::new(UcQp::new(config(QpType::Uc, own)), own);
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            let (attr, mask) = uc_step(state, peer, psn);
            end.modify(&attr, mask);
        }
        end
    };
    [end(0x4011, 0x8022, 0xff_fff0), end(0x8022, 0x4011, 0x10)]
}

/// The attributes of a step of the normal sequence. The ends' PSNs are `0xfffff0` and `0x10`.
pub(crate) fn uc_step(state: QpState, peer: u32, psn: u32) -> (QpAttr, AttrMask) {
    use AttrMask as M;
    let mut attr = QpAttr {
        qp_state: state,
        path_mtu: Mtu::B256,
        rq_psn: Psn::new(if psn == 0x10 { 0xff_fff0 } else { 0x10 }),
        sq_psn: Psn::new(psn),
        dest_qp_num: Qpn::new(peer),
        qp_access_flags: Access::REMOTE_WRITE,
        ..QpAttr::default()
    };
    attr.ah_attr.is_global = true;
    attr.ah_attr.grh.dgid = Gid([1; 16]);
    let mask = match state {
        QpState::Init => M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
        QpState::Rtr => M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN,
        QpState::Rts => M::SQ_PSN,
        _ => M::empty(),
    };
    (attr, mask | M::STATE)
}
