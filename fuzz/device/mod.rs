//! What the targets that need the whole device do with their input. The crate `ferroce-conformance` compiles this file into a
//! test of its own, which runs the committed corpora.

#[path = "../src/input.rs"]
pub mod input;
pub mod netlink;
pub mod operations;
pub mod posted;
pub mod record;
pub mod sockaddr;

/// A target's entry: takes any bytes, panics if something does not hold.
pub type Run = fn(&[u8]);

/// Every target by the name of its corpus.
pub const TARGETS: [(&str, Run); 4] = [
    ("operations", operations::run),
    ("record", record::run),
    ("netlink", netlink::run),
    ("sockaddr", sockaddr::run),
];
