//! Runs every committed input of the fuzz targets that need the device through the code that the targets run.

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
fn committed_netlink_datagrams_hold() {
    run_corpus("netlink");
}

#[test]
fn committed_addresses_hold() {
    run_corpus("sockaddr");
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
