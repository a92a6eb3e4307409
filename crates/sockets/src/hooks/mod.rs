//! The C library's functions, as this library has them.
//!
//! `fcntl` and `ioctl` take a third argument only sometimes. A function with a fixed one is called
//! in the same way on the platforms that Ferroce runs on: an argument that was not passed is a
//! register that is not read.
#![allow(
    clippy::missing_safety_doc,
    reason = "the contracts are those of the C functions"
)]

mod close;
mod copy;
mod exec;
mod filter;
mod open;
mod option;
mod receive;
mod send;
mod signal;
mod wait;
