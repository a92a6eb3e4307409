//! Runs every committed input of the fuzz targets that need the device through the code that the targets run.

#[path = "../../../fuzz/device/mod.rs"]
#[allow(unreachable_pub, reason = "a library where it lives")]
mod device;

use std::path::Path;

/// Fewer inputs than this are not a corpus: the folder moved, or was not checked out.
const MIN_INPUTS: usize = 5;

#[track_caller]
fn run_corpus(name: &str) {
    let target = device::TARGETS.into_iter().find(|(n, _)| *n == name);
    let (_, run) = target.expect("a target of this name");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(name);
    run(&[]);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus") {
        let path = entry.expect("an entry").path();
        // Shown when the input below panics.
        println!("{}", path.display());
        run(&std::fs::read(&path).expect("an input"));
        count += 1;
    }
    assert!(
        count >= MIN_INPUTS,
        "{count} inputs in {}",
        folder.display()
    );
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
