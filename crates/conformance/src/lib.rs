//! Conformance cases for the device.
//!
//! A [`Case`] is a few lines that play one situation and say what must come of it; it names the
//! [statements] of the specification that it shows. The [runner] plays every case through every way
//! into the device:
//!
//! | dimension | values | module |
//! |---|---|---|
//! | entry | the device's Rust objects; the functions that C programs call | [`door`] |
//! | path | local link; wire over IPv4; wire over IPv6; iWARP ([`differences`]) | [`mod@bench`] |
//! | ends | both in one process; each in its own | [`door`] |
//! | peer | a queue pair of the device; one played by hand, which breaks rules | [`end`], [`raw`] |
//!
//! [`list`] writes which statement is shown by which case, and which by none, to
//! `docs/conformance.md`.
#![expect(
    clippy::missing_panics_doc,
    reason = "the panic is the verdict of a case that does not hold"
)]

pub mod bench;
pub mod case;
pub mod cases;
pub mod differences;
pub mod door;
pub mod end;
pub mod list;
pub mod namespace;
pub mod raw;
pub mod runner;
pub mod statements;
mod stream;
pub mod wait;

pub use bench::{Bench, Ends, Entry, Path, Poll};
pub use case::Case;
pub use end::End;
