//! The C library's functions, as this library has them.
//!
//! `open` and its kin take a mode only sometimes. A function with a fixed third argument is called
//! in the same way on the platforms that Ferroce runs on: an argument that was not passed is a
//! register that nobody reads.
#![allow(
    clippy::missing_safety_doc,
    reason = "the contracts are those of the C functions"
)]

mod access;
mod directory;
mod exec;
mod glob;
mod link;
mod load;
mod netlink;
mod open;
mod read;
mod scan;
mod stat;
mod stdio;
mod workdir;
mod xattr;
