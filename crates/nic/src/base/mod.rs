//! What every room stands on and what knows no object: locks that go on after a panic, numbers,
//! events on a descriptor, counters, and reasons of refusals.

pub(crate) mod counters;
pub(crate) mod denials;
pub(crate) mod events;
pub(crate) mod numbers;
pub(crate) mod refusal;
pub(crate) mod soft_roce;
pub(crate) mod sync;
pub(crate) mod tally;
pub(crate) mod time_share;
