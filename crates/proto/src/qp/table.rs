//! The one table of state transitions: which exist, for which queue pair types, with which
//! attributes.
//!
//! The states and their neighbours are those of IBTA volume 1, 10.3 ("Resource states"). The
//! required attributes are those of the tables of ibv_modify_qp(3). The manual page does not list
//! the optional ones, nor SQD, SQE and XRC: there the rows are those of
//! Linux. `testkit/transitions.rs` has the same rules by type, and a test compares both.

use super::Step;
use crate::verbs::{AttrMask, QpState, QpType};

use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
use QpType::{RawPacket, Rc, Uc, Ud, XrcRecv, XrcSend};

/// All states, in the order of their numbers.
pub(super) const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];

/// All types.
const TYPES: [QpType; 6] = [Rc, Uc, Ud, RawPacket, XrcSend, XrcRecv];

/// Attributes of one transition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) required: AttrMask,
    pub(super) optional: AttrMask,
}

/// A row: the transitions from each of `from` to `to`, for each of `types`.
struct Row {
    from: &'static [QpState],
    to: QpState,
    types: &'static [QpType],
    rule: Rule,
}

/// Short for the rows below.
const fn row(
    from: &'static [QpState],
    to: QpState,
    types: &'static [QpType],
    required: AttrMask,
    optional: AttrMask,
) -> Row {
    Row {
        from,
        to,
        types,
        rule: Rule { required, optional },
    }
}

/// The rule of a transition, if the transition exists.
pub(super) fn find(step: Step) -> Option<Rule> {
    let fits = |r: &&Row| {
        r.to == step.to && r.from.contains(&step.from) && r.types.contains(&step.qp_type)
    };
    TABLE.iter().find(fits).map(|r| r.rule)
}

const NONE: AttrMask = AttrMask::empty();
const QKEY: AttrMask = AttrMask::QKEY;

/// Partition and port, which every path needs.
const PKEY_PORT: AttrMask = AttrMask::PKEY_INDEX.union(AttrMask::PORT);
/// Attributes that a connected queue pair gets first.
const ACCESS: AttrMask = PKEY_PORT.union(AttrMask::ACCESS_FLAGS);
/// Attributes of the path that a connected responder needs.
const PATH: AttrMask = AttrMask::AV
    .union(AttrMask::PATH_MTU)
    .union(AttrMask::DEST_QPN)
    .union(AttrMask::RQ_PSN);
/// The same, for a responder that serves READs and atomics.
const RESPONDER: AttrMask = PATH
    .union(AttrMask::MAX_DEST_RD_ATOMIC)
    .union(AttrMask::MIN_RNR_TIMER);
/// Attributes that may change on the way to RTR.
const TO_RTR: AttrMask = AttrMask::ALT_PATH
    .union(AttrMask::ACCESS_FLAGS)
    .union(AttrMask::PKEY_INDEX);
/// Attributes that a reliable requester needs.
const REQUESTER: AttrMask = AttrMask::TIMEOUT
    .union(AttrMask::RETRY_CNT)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::SQ_PSN)
    .union(AttrMask::MAX_QP_RD_ATOMIC);
/// Attributes that may change on a connected queue pair in operation.
const RUNNING: AttrMask = AttrMask::CUR_STATE
    .union(AttrMask::ACCESS_FLAGS)
    .union(AttrMask::ALT_PATH)
    .union(AttrMask::PATH_MIG_STATE);
/// The same where receiver-not-ready NAKs are sent.
const RUNNING_RNR: AttrMask = RUNNING.union(AttrMask::MIN_RNR_TIMER);
/// Attributes that may change on a datagram queue pair in operation.
const DATAGRAM: AttrMask = AttrMask::CUR_STATE.union(QKEY);
/// Attributes that may change on a connected queue pair whose send queue is drained.
const DRAINED: AttrMask = AttrMask::AV
    .union(AttrMask::ALT_PATH)
    .union(AttrMask::ACCESS_FLAGS)
    .union(AttrMask::PKEY_INDEX)
    .union(AttrMask::PATH_MIG_STATE);
/// The same for a reliable requester.
const DRAINED_REQUESTER: AttrMask = DRAINED
    .union(AttrMask::PORT)
    .union(AttrMask::TIMEOUT)
    .union(AttrMask::RETRY_CNT)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::MAX_QP_RD_ATOMIC);
/// Attributes that a reliable responder adds to them.
const DRAINED_RESPONDER: AttrMask = AttrMask::MAX_DEST_RD_ATOMIC.union(AttrMask::MIN_RNR_TIMER);

const TABLE: &[Row] = &[
    // Any state may be left for RESET, and any but RESET for ERR, with no other attribute.
    row(&STATES, Reset, &TYPES, NONE, NONE),
    row(&[Init, Rtr, Rts, Sqd, Sqe, Err], Err, &TYPES, NONE, NONE),
    // Out of RESET. A raw packet queue pair has no partition: it sends whole Ethernet frames.
    row(&[Reset], Init, &[Rc, Uc, XrcSend, XrcRecv], ACCESS, NONE),
    row(&[Reset], Init, &[Ud], PKEY_PORT.union(QKEY), NONE),
    row(&[Reset], Init, &[RawPacket], AttrMask::PORT, NONE),
    // Within INIT: the same attributes once more, each as the caller likes.
    row(&[Init], Init, &[Rc, Uc, XrcSend, XrcRecv], NONE, ACCESS),
    row(&[Init], Init, &[Ud], NONE, PKEY_PORT.union(QKEY)),
    row(&[Init], Init, &[RawPacket], NONE, NONE),
    // Ready to receive. An XRC initiator takes no requests, so it needs no responder resources.
    row(&[Init], Rtr, &[Rc, XrcRecv], RESPONDER, TO_RTR),
    row(&[Init], Rtr, &[Uc, XrcSend], PATH, TO_RTR),
    row(&[Init], Rtr, &[Ud], NONE, AttrMask::PKEY_INDEX.union(QKEY)),
    row(&[Init], Rtr, &[RawPacket], NONE, NONE),
    // Ready to send. An XRC target has no send queue, and only acknowledges.
    row(&[Rtr], Rts, &[Rc], REQUESTER, RUNNING_RNR),
    row(&[Rtr], Rts, &[XrcSend], REQUESTER, RUNNING),
    row(
        &[Rtr],
        Rts,
        &[XrcRecv],
        AttrMask::TIMEOUT.union(AttrMask::SQ_PSN),
        RUNNING_RNR,
    ),
    row(&[Rtr], Rts, &[Uc], AttrMask::SQ_PSN, RUNNING),
    row(&[Rtr], Rts, &[Ud], AttrMask::SQ_PSN, DATAGRAM),
    row(&[Rtr, Rts], Rts, &[RawPacket], NONE, AttrMask::RATE_LIMIT),
    // Within RTS, or back to it. No row takes another primary path.
    row(&[Rts, Sqd], Rts, &[Rc, XrcRecv], NONE, RUNNING_RNR),
    row(&[Rts, Sqd], Rts, &[Uc, XrcSend], NONE, RUNNING),
    row(&[Rts, Sqd, Sqe], Rts, &[Ud], NONE, DATAGRAM),
    row(
        &[Sqe],
        Rts,
        &[Uc],
        NONE,
        AttrMask::CUR_STATE.union(AttrMask::ACCESS_FLAGS),
    ),
    row(&[Sqe], Rts, &[Rc, XrcSend, XrcRecv], NONE, NONE),
    row(&[Sqd, Sqe], Rts, &[RawPacket], NONE, NONE),
    // Draining. Only in SQD may the path change, as no packet is under way on the old one.
    row(
        &[Rts],
        Sqd,
        &[Rc, Uc, Ud, XrcSend, XrcRecv],
        NONE,
        AttrMask::EN_SQD_ASYNC_NOTIFY,
    ),
    row(&[Rts, Sqd], Sqd, &[RawPacket], NONE, NONE),
    row(
        &[Sqd],
        Sqd,
        &[Rc],
        NONE,
        DRAINED_REQUESTER.union(DRAINED_RESPONDER),
    ),
    row(&[Sqd], Sqd, &[XrcSend], NONE, DRAINED_REQUESTER),
    row(
        &[Sqd],
        Sqd,
        &[XrcRecv],
        NONE,
        DRAINED
            .union(AttrMask::PORT)
            .union(AttrMask::TIMEOUT)
            .union(DRAINED_RESPONDER),
    ),
    row(&[Sqd], Sqd, &[Uc], NONE, DRAINED),
    row(&[Sqd], Sqd, &[Ud], NONE, AttrMask::PKEY_INDEX.union(QKEY)),
];
