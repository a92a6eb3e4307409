//! Every case, on every bench. `FERROCE_CASES=words` plays only those whose name contains the
//! words. Cases that move very much are played on one bench, unless they are asked for so.

use ferroce_conformance::door::serve;
use ferroce_conformance::runner::{
    play, play_apart, play_by_packets, play_case_apart, play_from_environment,
};
use ferroce_conformance::{Entry, Path};

#[test]
fn rust_local() {
    play(Entry::Rust, Path::Local);
}

#[test]
fn rust_local_by_packets() {
    play_by_packets(Entry::Rust);
}

#[test]
fn rust_wire_ipv4() {
    play(Entry::Rust, Path::Wire4);
}

#[test]
fn rust_wire_ipv6() {
    play(Entry::Rust, Path::Wire6);
}

#[test]
fn rust_iwarp() {
    play(Entry::Rust, Path::Iwarp);
}

#[test]
fn rust_iwarp_local() {
    play(Entry::Rust, Path::IwarpLocal);
}

#[test]
fn c_local() {
    play(Entry::C, Path::Local);
}

#[test]
fn c_local_by_packets() {
    play_by_packets(Entry::C);
}

#[test]
fn c_wire_ipv4() {
    play(Entry::C, Path::Wire4);
}

#[test]
fn c_wire_ipv6() {
    play(Entry::C, Path::Wire6);
}

#[test]
fn c_iwarp() {
    play(Entry::C, Path::Iwarp);
}

#[test]
fn c_iwarp_local() {
    play(Entry::C, Path::IwarpLocal);
}

#[test]
#[ignore = "run by the tests above"]
fn child() {
    play_from_environment();
}

#[test]
fn rust_local_apart() {
    play_apart(Entry::Rust, Path::Local);
}

#[test]
fn rust_wire_ipv4_apart() {
    play_apart(Entry::Rust, Path::Wire4);
}

#[test]
fn rust_wire_ipv6_apart() {
    play_apart(Entry::Rust, Path::Wire6);
}

#[test]
fn rust_iwarp_apart() {
    play_apart(Entry::Rust, Path::Iwarp);
}

#[test]
fn rust_iwarp_local_apart() {
    play_apart(Entry::Rust, Path::IwarpLocal);
}

#[test]
fn c_local_apart() {
    play_apart(Entry::C, Path::Local);
}

#[test]
fn c_local_apart_1_gib() {
    play_case_apart(Entry::C, Path::Local, "1-GiB");
}

#[test]
fn c_wire_ipv4_apart() {
    play_apart(Entry::C, Path::Wire4);
}

#[test]
fn c_wire_ipv6_apart() {
    play_apart(Entry::C, Path::Wire6);
}

#[test]
fn c_iwarp_apart() {
    play_apart(Entry::C, Path::Iwarp);
}

#[test]
fn c_iwarp_local_apart() {
    play_apart(Entry::C, Path::IwarpLocal);
}

#[test]
#[ignore = "the other process of the tests above"]
fn child_side() {
    serve();
}
