//! Why a call is refused, in words, for callers in Rust that have the numbers of C.

use ferroce_proto::qp;

use crate::convert::{qp_attr_from_c, qp_state, qp_type};
use crate::types::ibv_qp_attr;

/// What the specification's state table says against a change of a queue pair of type `kind` in
/// state `from`; none if it allows the change, so that a value must be at fault.
#[must_use]
pub fn modify(kind: u32, from: u32, attr: &ibv_qp_attr, mask: u32) -> Option<String> {
    let (kind, from) = (qp_type(kind).ok()?, qp_state(from).ok()?);
    let (attr, mask) = match qp_attr_from_c(attr, mask) {
        Ok(converted) => converted,
        Err(e) => return Some(e.to_string()),
    };
    let checked = qp::next_state(from, &attr, mask)
        .and_then(|next| qp::check(kind, from, next, qp::relevant(kind, mask)));
    checked.err().map(|e| e.to_string())
}

/// The name of a queue pair's state.
#[must_use]
pub fn state(number: u32) -> String {
    qp_state(number).map_or_else(|_| number.to_string(), |state| state.to_string())
}
