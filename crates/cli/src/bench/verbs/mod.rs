//! Our own side: queue pairs, connected anew for each measurement.

mod active;
mod end;
mod link;
mod passive;
mod unreliable;

pub(super) use active::run;
pub(super) use passive::serve;
