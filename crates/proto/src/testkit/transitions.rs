//! The rules of `ibv_modify_qp`, written by type instead of by transition as the device has them:
//! from the tables of the manual page, and of the kernel's interface for what may be given besides.

use alloc::format;
use alloc::vec::Vec;

use crate::verbs::{AttrMask, QpState, QpType};

/// Every type that has rules.
pub const TYPES: [QpType; 6] = [
    QpType::Rc,
    QpType::Uc,
    QpType::Ud,
    QpType::XrcSend,
    QpType::XrcRecv,
    QpType::RawPacket,
];

/// `from to | required | optional`, for each type; transitions that are missing do not exist. RESET
/// and ERR as targets are added by [`rule`].
const RULES: &[(QpType, &str)] = &[
    (
        QpType::Rc,
        "RESET INIT | PKEY_INDEX PORT ACCESS_FLAGS |
         INIT INIT | | PKEY_INDEX PORT ACCESS_FLAGS
         INIT RTR | AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER | ALT_PATH ACCESS_FLAGS PKEY_INDEX
         RTR RTS | TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC | CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
         RTS RTS | | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER
         RTS SQD | | EN_SQD_ASYNC_NOTIFY
         SQD RTS | | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER
         SQD SQD | | PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE
         SQE RTS | |",
    ),
    (
        QpType::Uc,
        "RESET INIT | PKEY_INDEX PORT ACCESS_FLAGS |
         INIT INIT | | PKEY_INDEX PORT ACCESS_FLAGS
         INIT RTR | AV PATH_MTU DEST_QPN RQ_PSN | ALT_PATH ACCESS_FLAGS PKEY_INDEX
         RTR RTS | SQ_PSN | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
         RTS RTS | | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE
         RTS SQD | | EN_SQD_ASYNC_NOTIFY
         SQD RTS | | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE
         SQD SQD | | AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE
         SQE RTS | | CUR_STATE ACCESS_FLAGS",
    ),
    (
        QpType::Ud,
        "RESET INIT | PKEY_INDEX PORT QKEY |
         INIT INIT | | PKEY_INDEX PORT QKEY
         INIT RTR | | PKEY_INDEX QKEY
         RTR RTS | SQ_PSN | CUR_STATE QKEY
         RTS RTS | | CUR_STATE QKEY
         RTS SQD | | EN_SQD_ASYNC_NOTIFY
         SQD RTS | | CUR_STATE QKEY
         SQD SQD | | PKEY_INDEX QKEY
         SQE RTS | | CUR_STATE QKEY",
    ),
    (
        QpType::XrcSend,
        "RESET INIT | PKEY_INDEX PORT ACCESS_FLAGS |
         INIT INIT | | PKEY_INDEX PORT ACCESS_FLAGS
         INIT RTR | AV PATH_MTU DEST_QPN RQ_PSN | ALT_PATH ACCESS_FLAGS PKEY_INDEX
         RTR RTS | TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
         RTS RTS | | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE
         RTS SQD | | EN_SQD_ASYNC_NOTIFY
         SQD RTS | | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE
         SQD SQD | | PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE
         SQE RTS | |",
    ),
    (
        QpType::XrcRecv,
        "RESET INIT | PKEY_INDEX PORT ACCESS_FLAGS |
         INIT INIT | | PKEY_INDEX PORT ACCESS_FLAGS
         INIT RTR | AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER | ALT_PATH ACCESS_FLAGS PKEY_INDEX
         RTR RTS | TIMEOUT SQ_PSN | CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
         RTS RTS | | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER
         RTS SQD | | EN_SQD_ASYNC_NOTIFY
         SQD RTS | | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER
         SQD SQD | | PORT AV TIMEOUT MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE
         SQE RTS | |",
    ),
    (
        QpType::RawPacket,
        "RESET INIT | PORT |
         INIT INIT | |
         INIT RTR | |
         RTR RTS | | RATE_LIMIT
         RTS RTS | | RATE_LIMIT
         RTS SQD | |
         SQD RTS | |
         SQD SQD | |
         SQE RTS | |",
    ),
];

/// Required and optional attributes of a transition, if it exists.
///
/// # Panics
/// If the rules name an attribute that does not exist.
#[must_use]
pub fn rule(qp_type: QpType, from: QpState, to: QpState) -> Option<(AttrMask, AttrMask)> {
    let none = (AttrMask::empty(), AttrMask::empty());
    match (from, to) {
        (_, QpState::Reset) => return Some(none),
        (from, QpState::Err) => return (from != QpState::Reset).then_some(none),
        _ => {}
    }
    let (_, rules) = RULES.iter().find(|(t, _)| *t == qp_type)?;
    let head = format!("{from} {to}");
    let line = rules
        .lines()
        .find(|l| l.split('|').next().is_some_and(|h| h.trim() == head))?;
    let parts: Vec<&str> = line.split('|').collect();
    Some((mask(parts[1]), mask(parts[2])))
}

fn mask(names: &str) -> AttrMask {
    names
        .split_whitespace()
        .map(|n| AttrMask::from_name(n).unwrap_or_else(|| panic!("no attribute {n}")))
        .collect()
}
