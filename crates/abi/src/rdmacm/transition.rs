//! Moves of an identifier's queue pair, which librdmacm makes in the program's place.

use std::ffi::c_int;

use ferroce_nic::{Error, Protocol};
use ferroce_proto::cm::min_rnr_timer;
use ferroce_proto::verbs::{AttrMask, QpAttr, QpState};

use super::id::Id;
use crate::convert::qp_attr_to_c;
use crate::verbs::ibv_modify_qp;

/// Limits on READs and atomics under way at once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadLimits {
    /// Served for the peer.
    pub(super) responder_resources: u8,
    /// READs and atomics that this end may have under way at the peer.
    pub(super) initiator_depth: u8,
}

/// What an acceptor settles; the conversation does not know it before its answer goes out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    /// READs that the queue pair serves and asks for.
    pub(super) limits: ReadLimits,
    /// How often the peer tries again while there is no receive.
    pub(super) peers_rnr_retry: u8,
}

/// `ibv_modify_qp` on the identifier's queue pair.
fn modify(id: Id<'_>, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
    let mut attr_c = qp_attr_to_c(attr);
    let mask = c_int::try_from(mask.bits()).expect("invariant: the mask has 26 bits");
    // SAFETY: the queue pair belongs to the live identifier.
    match unsafe { ibv_modify_qp(id.qp(), &raw mut attr_c, mask) } {
        0 => Ok(()),
        errno => Err(Error::new(
            errno,
            format!("the queue pair does not move to {:?}", attr.qp_state),
        )),
    }
}

/// To INIT, with the attributes that the conversation knows so far.
pub(super) fn to_init(id: Id<'_>) -> Result<(), Error> {
    let (attr, mask) = id.nic().qp_attr(QpState::Init)?;
    modify(id, &attr, mask)
}

/// To RTR and RTS. The move to INIT is repeated, because its access flags depend on what was
/// negotiated. An acceptor gives what it settled.
pub(super) fn to_rts(id: Id<'_>, settled: Option<Settled>) -> Result<(), Error> {
    to_init(id)?;
    let (mut attr, mask) = id.nic().qp_attr(QpState::Rtr)?;
    if let Some(settled) = settled {
        attr.max_dest_rd_atomic = settled.limits.responder_resources;
        attr.min_rnr_timer = min_rnr_timer(settled.peers_rnr_retry);
    }
    modify(id, &attr, mask)?;
    let (mut attr, mask) = id.nic().qp_attr(QpState::Rts)?;
    if let Some(settled) = settled {
        attr.max_rd_atomic = settled.limits.initiator_depth;
    }
    modify(id, &attr, mask)
}

/// A datagram queue pair, which needs no peer, to RTS.
pub(super) fn datagram_to_rts(id: Id<'_>) -> Result<(), Error> {
    id.nic().settle_qkey()?;
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let (attr, mask) = id.nic().qp_attr(state)?;
        modify(id, &attr, mask)?;
    }
    Ok(())
}

/// To ERR, which flushes its work; nothing without a queue pair.
pub(super) fn to_error(id: Id<'_>) -> Result<(), Error> {
    move_to(id, QpState::Err)
}

/// To where a connection ends: ERR, and on iWARP SQD, from where what is under way still goes out
/// (`rdma_disconnect` of librdmacm).
pub(super) fn to_end(id: Id<'_>) -> Result<(), Error> {
    let device = id.nic().device();
    let is_iwarp = device.is_some_and(|device| device.protocol() == Protocol::Iwarp);
    let state = if is_iwarp { QpState::Sqd } else { QpState::Err };
    move_to(id, state)
}

fn move_to(id: Id<'_>, qp_state: QpState) -> Result<(), Error> {
    if id.qp().is_null() {
        return Ok(());
    }
    let attr = QpAttr {
        qp_state,
        ..QpAttr::default()
    };
    modify(id, &attr, AttrMask::STATE)
}

/// The active side's last step: the queue pair to RTS, then the RTU. If that fails, the peer is
/// told.
pub(super) fn finish_connect(id: Id<'_>) -> Result<(), Error> {
    let result = to_rts(id, None).and_then(|()| id.nic().establish());
    if result.is_err() {
        // Both are best effort: the failure that the program hears of is the first one.
        let _ = to_error(id);
        let _ = id.nic().reject(&[]);
    }
    result
}
