//! Breaking the rules by hand.

use ferroce_proto::ids::Psn;
use ferroce_proto::mr::Access;
use ferroce_proto::testkit::{Pair, Setup, Side, wr};
use ferroce_proto::verbs::{AttrMask, QpAttr, QpEvent, QpState, RemoteAddr, SendOp, Sge, WcStatus};
use ferroce_proto::wire::{
    ExtHeaders, NakCode, Opcode, Operation, Packet, Position, Reth, Syndrome,
};

use super::{SOON, expect_send};

/// Makes a work request's operation for a place.
pub(crate) type MakeOp = fn(RemoteAddr) -> SendOp;

pub(crate) const MTU: usize = 1024;
pub(crate) const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

pub(crate) fn pair() -> Pair {
    Pair::new(Setup::default())
}

pub(crate) fn pair_allowing(access: Access) -> Pair {
    let mut pair = Pair::new(Setup::default());
    let attr = QpAttr {
        qp_access_flags: access,
        ..QpAttr::default()
    };
    pair.modify(Side::B, &attr, AttrMask::ACCESS_FLAGS);
    pair
}

/// PSN that B expects next from A.
pub(crate) fn expected(pair: &Pair) -> Psn {
    pair.b.qp.query().rq_psn
}

/// Everything that a node wants to send now: syndrome (if it is an acknowledgement) and PSN.
pub(crate) fn answers(pair: &mut Pair, side: Side) -> Vec<(Option<Syndrome>, u32)> {
    pair.trace = Some(Vec::new());
    pair.transmit(side);
    let sent = pair.trace.take().expect("set above");
    sent.iter()
        .map(|(_, bytes)| {
            let p = Packet::parse(bytes).expect("well-formed");
            (p.ext.aeth.map(|a| a.syndrome), p.bth.psn.get())
        })
        .collect()
}

/// A injects a request into B by hand; B must end with this NAK and event.
#[track_caller]
pub(crate) fn refuses(
    pair: &mut Pair,
    (operation, position): (Operation, Position),
    (ext, payload): (ExtHeaders, &[u8]),
    (code, event): (NakCode, QpEvent),
) {
    let psn = expected(pair);
    let opcode = Opcode::rc(operation, position);
    assert!(pair.inject(Side::B, opcode, psn, (ext, payload)));
    assert_eq!(pair.b.qp.state(), QpState::Err);
    assert_eq!(pair.b.results.events, [event]);
    assert_eq!(
        answers(pair, Side::B),
        [(Some(Syndrome::Nak(code)), psn.get())]
    );
    assert!(!pair.b.qp.wants_transmit());
}

pub(crate) const INVALID: (NakCode, QpEvent) = (NakCode::InvalidRequest, QpEvent::RequestError);

pub(crate) fn reth(to: RemoteAddr, length: u32) -> ExtHeaders {
    ExtHeaders {
        reth: Some(Reth {
            va: to.addr,
            rkey: to.rkey,
            length,
        }),
        ..ExtHeaders::default()
    }
}

pub(crate) fn none() -> ExtHeaders {
    ExtHeaders::default()
}

/// Injects a request that B takes.
#[track_caller]
pub(crate) fn takes(pair: &mut Pair, what: (Operation, Position), packet: (ExtHeaders, &[u8])) {
    let (psn, opcode) = (expected(pair), Opcode::rc(what.0, what.1));
    assert!(pair.inject(Side::B, opcode, psn, packet));
    assert_ne!(pair.b.qp.state(), QpState::Err);
}

/// A's only work request fails with `status` because of B's refusal, and both queue pairs are in
/// ERR.
#[track_caller]
pub(crate) fn both_fail(pair: &mut Pair, op: SendOp, sges: Vec<Sge>, status: WcStatus) {
    pair.recv(Side::A, 50, vec![]);
    pair.send(Side::A, wr(1, op, sges));
    pair.send(Side::A, wr(2, SendOp::Send, vec![]));
    pair.settle(SOON);
    expect_send(pair, &[(1, status), (2, WcStatus::WrFlushErr)]);
    assert!(pair.a.results.send.iter().all(|(_, solicited)| *solicited));
    assert_eq!(
        pair.a.results.recv_statuses(),
        [(50, WcStatus::WrFlushErr)],
        "the other queue is flushed too"
    );
    assert_eq!(pair.a.qp.state(), QpState::Err);
    assert_eq!(pair.b.qp.state(), QpState::Err);
}
