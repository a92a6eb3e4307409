//! Shortcuts of the reliable transport. Each shortcut asks once whether the case is the usual one.
//! Then it does what the general way does, with the same packets and the same state behind it.

pub(super) mod cut;
pub(super) mod long;
mod receive;
mod receive_batch;
pub(super) mod send;
pub(super) mod short;
