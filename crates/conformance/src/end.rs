//! An end of a connection, and what cases do with it.

use std::fmt;
use std::time::Duration;

use ferroce_proto::ids::{Gid, Key, Psn, Qpn, Srqn};
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{
    AddressHandleAttr, AsyncEvent, AttrMask, Datagram, GlobalRoute, Payload, QpAttr, QpState,
    QpType, RecvWr, RemoteAddr, SendFlags, SendOp, SendTo, SendWr, Sge, Wc, WcStatus,
};

use crate::bench::{Path, Spec};
use crate::door::{About, Errno, Memory, Side};
use crate::stream::Link;
use crate::wait::{wait_at_most, wait_for};

/// Unreliable messages that have not arrived by then are lost.
const LOST_AFTER: Duration = Duration::from_secs(3);
/// Unreliable messages that a case may lose.
pub const LOSSES: usize = 10;

/// A side with a region over all of its memory.
pub struct End {
    /// Its connection over TCP, which ends before its queue pair.
    link: Option<Link>,
    side: Box<dyn Side>,
    spec: Spec,
    path: Path,
    key: Key,
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End")
            .field("qpn", &self.side.qpn())
            .field("path", &self.path)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// What RESET to INIT needs.
#[must_use]
pub fn to_init(qp_type: QpType) -> AttrMask {
    let path = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT;
    match qp_type {
        QpType::Ud => path | AttrMask::QKEY,
        _ => path | AttrMask::ACCESS_FLAGS,
    }
}

/// What INIT to RTR needs.
#[must_use]
pub fn to_rtr(qp_type: QpType) -> AttrMask {
    let path =
        AttrMask::STATE | AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
    match qp_type {
        QpType::Ud => AttrMask::STATE,
        QpType::Rc | QpType::XrcRecv => {
            path | AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER
        }
        _ => path,
    }
}

/// What RTR to RTS needs.
#[must_use]
pub fn to_rts(qp_type: QpType) -> AttrMask {
    let send = AttrMask::STATE | AttrMask::SQ_PSN;
    match qp_type {
        QpType::Rc | QpType::XrcSend => {
            send | AttrMask::TIMEOUT
                | AttrMask::RETRY_CNT
                | AttrMask::RNR_RETRY
                | AttrMask::MAX_QP_RD_ATOMIC
        }
        QpType::XrcRecv => send | AttrMask::TIMEOUT,
        _ => send,
    }
}

impl End {
    /// An end that is not connected.
    #[must_use]
    pub fn new(mut side: Box<dyn Side>, spec: Spec, path: Path) -> Self {
        let key = side
            .register(0, spec.memory, spec.access)
            .expect("a region");
        Self {
            link: None,
            side,
            spec,
            path,
            key,
        }
    }

    /// Number of its queue pair.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        self.side.qpn()
    }

    /// The attributes that it is connected with.
    pub(crate) const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// It keeps its connection over TCP.
    pub(crate) fn keep(&mut self, link: Link) {
        self.link = Some(link);
    }

    /// Its side.
    #[must_use]
    pub fn side(&self) -> &dyn Side {
        &*self.side
    }

    /// Its side, to change registrations.
    pub fn side_mut(&mut self) -> &mut dyn Side {
        &mut *self.side
    }

    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        self.side.memory()
    }

    /// The key of the region over all of its memory.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// Ends the registration of all of its memory.
    pub fn deregister(&mut self) {
        self.side.deregister(self.key);
    }

    /// Registers a part of its memory.
    pub fn register(&mut self, offset: usize, len: usize, access: Access) -> Key {
        self.side.register(offset, len, access).expect("a region")
    }

    /// Index of the GID of its path's IP version.
    #[must_use]
    pub fn sgid_index(&self) -> u8 {
        let v6 = self.path == Path::Wire6;
        (0..16)
            .find(|&i| self.side.gid(i).is_some_and(|g| g.ip().is_ipv6() == v6))
            .expect("the runner has looked for an address of this IP version on lo")
    }

    /// Its address.
    #[must_use]
    pub fn gid(&self) -> Gid {
        self.side.gid(self.sgid_index()).expect("an entry")
    }

    /// All attributes of a connection to a queue pair.
    #[must_use]
    pub fn attr(&self, to: Qpn, dgid: Gid) -> QpAttr {
        QpAttr {
            dest_qp_num: to,
            ah_attr: AddressHandleAttr {
                grh: GlobalRoute {
                    dgid,
                    sgid_index: self.sgid_index(),
                    hop_limit: 64,
                    ..GlobalRoute::default()
                },
                is_global: true,
                port_num: 1,
                ..AddressHandleAttr::default()
            },
            ..self.spec.attr
        }
    }

    /// Connects it to a queue pair of the same device.
    pub fn connect(&self, to: Qpn) {
        self.connect_to(to, self.gid());
    }

    /// Connects it to a queue pair at an address: through INIT and RTR to RTS.
    pub fn connect_to(&self, to: Qpn, dgid: Gid) {
        self.go_to(QpState::Rts, to, dgid);
    }

    /// Takes it from RESET as far as `last`: INIT, RTR or RTS.
    pub fn go_to(&self, last: QpState, to: Qpn, dgid: Gid) {
        self.try_go_to(last, to, dgid)
            .unwrap_or_else(|(qp_state, e)| panic!("to {qp_state}: {e:?}"));
    }

    /// Takes it from RESET as far as `last`, unless a peer's packet gets in between.
    ///
    /// # Errors
    /// The state that it could not take, and why: see `ibv_modify_qp(3)`.
    pub fn try_go_to(&self, last: QpState, to: Qpn, dgid: Gid) -> Result<(), (QpState, Errno)> {
        let attr = self.attr(to, dgid);
        let kind = self.spec.qp_type;
        for (qp_state, mask) in [
            (QpState::Init, to_init(kind)),
            (QpState::Rtr, to_rtr(kind)),
            (QpState::Rts, to_rts(kind)),
        ] {
            let step = QpAttr { qp_state, ..attr };
            self.side.modify(&step, mask).map_err(|e| (qp_state, e))?;
            if qp_state == last {
                break;
            }
        }
        Ok(())
    }

    /// Takes it to a state that needs no further attribute.
    pub fn to(&self, qp_state: QpState) {
        self.try_to(qp_state)
            .unwrap_or_else(|e| panic!("to {qp_state}: {e:?}"));
    }

    /// Asks for a state with no further attribute.
    ///
    /// # Errors
    /// As `ibv_modify_qp(3)`.
    pub fn try_to(&self, qp_state: QpState) -> Result<(), Errno> {
        let attr = QpAttr {
            qp_state,
            ..QpAttr::default()
        };
        self.side.modify(&attr, AttrMask::STATE)
    }

    /// Its state now.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.side.query().qp_state
    }

    /// Waits until it is in a state.
    #[track_caller]
    pub fn reaches(&self, state: QpState) {
        wait_for(&format!("move to {state}"), || {
            (self.state() == state).then_some(())
        });
    }

    /// The PSN of the next request that it expects.
    #[must_use]
    pub fn expected_psn(&self) -> Psn {
        self.side.query().rq_psn
    }

    /// A part of its memory, for a work request.
    #[must_use]
    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        self.sge_with(self.key, offset, len)
    }

    /// The same through a certain key.
    #[must_use]
    pub fn sge_with(&self, lkey: Key, offset: usize, len: usize) -> Sge {
        Sge {
            addr: self.memory().base() + offset as u64,
            length: u32::try_from(len).expect("a length"),
            lkey,
        }
    }

    /// A place in its memory, for a peer.
    #[must_use]
    pub fn remote(&self, offset: usize) -> RemoteAddr {
        self.remote_with(self.key, offset)
    }

    /// The same through a certain key.
    #[must_use]
    pub fn remote_with(&self, rkey: Key, offset: usize) -> RemoteAddr {
        RemoteAddr {
            addr: self.memory().base() + offset as u64,
            rkey,
        }
    }

    /// Posts a signalled send work request.
    #[track_caller]
    pub fn send(&self, wr_id: u64, op: SendOp, sges: Vec<Sge>) {
        self.send_flagged(wr_id, op, sges, SendFlags::SIGNALED);
    }

    /// Posts a send work request with flags.
    #[track_caller]
    pub fn send_flagged(&self, wr_id: u64, op: SendOp, sges: Vec<Sge>, flags: SendFlags) {
        self.post(send_wr(wr_id, op, sges, flags)).expect("posted");
    }

    /// Posts a send work request.
    ///
    /// # Errors
    /// As `ibv_post_send(3)`.
    pub fn post(&self, wr: SendWr) -> Result<(), Errno> {
        self.side.post_send(wr)
    }

    /// Posts a signalled SEND of a datagram.
    #[track_caller]
    pub fn send_to(&self, wr_id: u64, to: Datagram, sges: Vec<Sge>) {
        let wr = SendWr {
            to: SendTo::Datagram(to),
            ..send_wr(wr_id, SendOp::Send, sges, SendFlags::SIGNALED)
        };
        self.post(wr).expect("posted");
    }

    /// Posts a signalled send work request for an XRC shared receive queue of the peer.
    #[track_caller]
    pub fn send_xrc(&self, wr_id: u64, to: Srqn, op: SendOp, sges: Vec<Sge>) {
        let wr = SendWr {
            to: SendTo::XrcSrq(to),
            ..send_wr(wr_id, op, sges, SendFlags::SIGNALED)
        };
        self.post(wr).expect("posted");
    }

    /// An address handle for an address, or for a group.
    pub fn handle_to(&mut self, dgid: Gid) -> u32 {
        let attr = self.attr(Qpn::default(), dgid).ah_attr;
        self.side.address_handle(&attr).expect("an address handle")
    }

    /// Posts a receive.
    #[track_caller]
    pub fn recv(&self, wr_id: u64, sges: Vec<Sge>) {
        self.side
            .post_recv(RecvWr {
                wr_id,
                sges: sges.into(),
            })
            .expect("posted");
    }

    /// The next completion.
    #[track_caller]
    pub fn completion(&self) -> Wc {
        wait_for("completion", || self.side.poll().expect("no overflow"))
    }

    /// The next completion, which must be this one.
    #[track_caller]
    pub fn completes(&self, wr_id: u64, status: WcStatus) -> Wc {
        let wc = self.completion();
        assert_eq!((wc.wr_id, wc.status), (wr_id, status), "{wc:?}");
        assert_eq!(wc.qp_num, self.qpn());
        wc
    }

    /// The next completion, which must be the success of this one.
    #[track_caller]
    pub fn done(&self, wr_id: u64) -> Wc {
        self.completes(wr_id, WcStatus::Success)
    }

    /// Returns when the peer has taken what has completed here. Over iWARP a SEND or WRITE
    /// completes when TCP has it; a READ comes back after what was sent before it (RFC 5040,
    /// section 5.5). On other paths a completion says as much. No work is outstanding.
    #[track_caller]
    pub fn waits_for_peer(&self) {
        if self.link.is_some() {
            let nowhere = RemoteAddr {
                addr: 0,
                rkey: Key(0),
            };
            self.send(u64::MAX, SendOp::Read(nowhere), vec![]);
            self.done(u64::MAX);
        }
    }

    /// The success of a receive of an unreliable queue pair; none: a network under load has lost
    /// the message. A case that sends it again takes other queue pairs, since it may only be late.
    #[track_caller]
    pub fn arrival(&self, wr_id: u64) -> Option<Wc> {
        let wc = wait_at_most(LOST_AFTER, || self.side.poll().expect("no overflow"))?;
        assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::Success), "{wc:?}");
        Some(wc)
    }

    /// As [`arrival`](Self::arrival), where only the wire may lose a message: the local link has
    /// room for it.
    #[track_caller]
    pub fn arrives(&self, wr_id: u64) -> Option<Wc> {
        match self.path {
            Path::Local => Some(self.done(wr_id)),
            Path::Wire4 | Path::Wire6 | Path::Iwarp | Path::IwarpLocal => self.arrival(wr_id),
        }
    }

    /// There is no completion.
    #[track_caller]
    pub fn is_silent(&self) {
        assert_eq!(self.side.poll(), Ok(None));
    }

    /// The next asynchronous event, which must be this one about the queue pair.
    #[track_caller]
    pub fn raises(&self, event: AsyncEvent) {
        let found = wait_for(&format!("event {event:?}"), || self.side.event());
        assert_eq!(found, (event, About::Qp));
    }

    /// There is no asynchronous event.
    #[track_caller]
    pub fn raises_nothing(&self) {
        assert_eq!(self.side.event(), None);
    }
}

/// A send work request to the peer.
#[must_use]
pub fn send_wr(wr_id: u64, op: SendOp, sges: Vec<Sge>, flags: SendFlags) -> SendWr {
    SendWr {
        wr_id,
        to: SendTo::Peer,
        op,
        flags,
        payload: Payload::Sges(sges.into()),
    }
}

/// Plays with unreliable messages, with new ends each time, until none that must arrive was lost:
/// `play` gives nothing then.
pub fn until_nothing_is_lost(mut play: impl FnMut() -> Option<()>) {
    let whole = (0..=LOSSES).any(|_| play().is_some());
    assert!(whole, "a message was lost each time");
}

/// Bytes that are nowhere alike.
#[must_use]
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes.extend_from_slice(&x.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
