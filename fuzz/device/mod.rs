//! What the targets that need the whole device do with their input. The crate `ferroce-conformance`
//! compiles this file into a test of its own, which runs the committed corpora.

pub mod board;
#[path = "../src/input.rs"]
pub mod input;
pub mod netlink;
pub mod operations;
pub mod posted;
pub mod record;
pub mod ring;
pub mod sockaddr;
pub mod speakers;
pub mod strangers;

/// A target's entry: takes any bytes, panics if something does not hold.
pub type Run = fn(&[u8]);

/// Every target by the name of its corpus.
pub const TARGETS: [(&str, Run); 8] = [
    ("operations", operations::run),
    ("record", record::run),
    ("board", board::run),
    ("ring", ring::run),
    ("netlink", netlink::run),
    ("sockaddr", sockaddr::run),
    ("speakers", speakers::run),
    ("strangers", strangers::run),
];
