//! Our own side: queue pairs, connected anew for each measurement.

mod active;
mod end;
mod passive;

pub(super) use active::run;
pub(super) use passive::serve;
