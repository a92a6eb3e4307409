//! Runs every committed input of the fuzz targets that need the device through the code that the
//! targets run.

#[path = "../../../fuzz/device/mod.rs"]
#[allow(unreachable_pub, reason = "a library where it lives")]
mod device;

#[path = "../../../fuzz/src/corpus.rs"]
#[allow(unreachable_pub, reason = "a library where it lives")]
mod corpus;

use device::Run;

/// Runs a target's corpus.
#[track_caller]
fn run_corpus(name: &str) {
    corpus::run(&device::TARGETS, name, 5);
}

#[test]
fn committed_operation_sequences_hold() {
    run_corpus("operations");
}

#[test]
fn committed_link_records_hold() {
    run_corpus("record");
}

#[test]
fn committed_boards_of_hostile_peers_hold() {
    run_corpus("board");
}

#[test]
fn committed_rings_of_hostile_peers_hold() {
    run_corpus("ring");
}

/// Boards and rings that nobody recorded.
#[test]
fn random_boards_and_rings_hold() {
    for seed in 0..200 {
        println!("seed {seed}");
        let len = 100 + usize::try_from(seed % 13).expect("small") * 300;
        let bytes = ferroce_conformance::end::pattern(len, seed + 1);
        device::board::run(&bytes);
        device::ring::run(&bytes);
    }
}

#[test]
fn committed_netlink_datagrams_hold() {
    run_corpus("netlink");
}

#[test]
fn committed_addresses_hold() {
    run_corpus("sockaddr");
}

#[test]
fn committed_records_of_other_users_hold() {
    run_corpus("strangers");
}

#[test]
fn committed_words_of_other_users_hold() {
    run_corpus("speakers");
}

/// Sequences of calls that nobody recorded.
#[test]
fn random_operation_sequences_hold() {
    let seeds = std::env::var("FERROCE_SEEDS").ok();
    let seeds: u64 = seeds.and_then(|s| s.parse().ok()).unwrap_or(60);
    for seed in 0..seeds {
        println!("seed {seed}");
        let len = 100 + usize::try_from(seed % 7).expect("small") * 200;
        device::operations::run(&ferroce_conformance::end::pattern(len, seed + 1));
    }
}
