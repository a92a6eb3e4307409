//! What the fuzz targets do with their input. The crate `ferroce-proto` compiles this file into a
//! test of its own, which runs the committed corpora.

pub mod cm;
pub mod icrc;
pub mod input;
pub mod iwarp;
pub mod mad;
pub mod mpa;
pub mod packet;
pub mod posted;
pub mod rc;
pub mod reorder;

/// A target's entry: takes any bytes, panics if something does not hold.
pub type Run = fn(&[u8]);

/// Every target by the name of its corpus.
pub const TARGETS: [(&str, Run); 8] = [
    ("packet", packet::run),
    ("icrc", icrc::run),
    ("mad", mad::run),
    ("cm", cm::run),
    ("rc", rc::run),
    ("reorder", reorder::run),
    ("mpa", mpa::run),
    ("iwarp", iwarp::run),
];
