//! What every room stands on and what knows no object: locks that go on after a panic, numbers,
//! addresses, events on a descriptor, tokens of descriptors, counters, reasons of refusals, and
//! what waits for a turn.

pub(crate) mod addressing;
pub(crate) mod atomics;
pub(crate) mod carrier;
pub(crate) mod counters;
pub(crate) mod denials;
pub(crate) mod device_clock;
pub(crate) mod events;
pub(crate) mod inode;
pub(crate) mod numbers;
pub(crate) mod refusal;
pub(crate) mod soft_roce;
pub(crate) mod stream_ends;
pub(crate) mod sync;
pub(crate) mod tally;
pub(crate) mod time_share;
pub(crate) mod token;
pub(crate) mod waiter;
