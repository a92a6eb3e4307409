//! The C library's functions, as this library has them.
//!
//! `fcntl` and `ioctl` take a third argument only sometimes. A function with a fixed one is called
//! in the same way on the platforms that Ferroce runs on: an argument that was not passed is a
//! register that is not read.
#![allow(
    clippy::missing_safety_doc,
    reason = "the contracts are those of the C functions"
)]

pub(crate) mod close;
mod copy;
mod exec;
pub(crate) mod filter;
mod open;
mod option;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod signal;
pub(crate) mod wait;

/// Looks up the functions behind all of these.
pub(crate) fn find_all() {
    close::find_all();
    copy::find_all();
    exec::find_all();
    filter::find_all();
    open::find_all();
    option::find_all();
    receive::find_all();
    send::find_all();
    signal::find_all();
    wait::find_all();
}
