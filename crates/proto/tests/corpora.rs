//! Runs every committed input of the fuzz targets through the code that the targets run.

#[path = "../../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "a library where it lives")]
mod fuzz;

use std::path::Path;

/// Fewer inputs than this are not a corpus: the folder moved, or was not checked out.
const MIN_INPUTS: usize = 10;

#[track_caller]
fn run_corpus(name: &str) {
    let target = fuzz::TARGETS.into_iter().find(|(n, _)| *n == name);
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
fn committed_packets_hold() {
    run_corpus("packet");
}

#[test]
fn committed_icrc_inputs_hold() {
    run_corpus("icrc");
}

#[test]
fn committed_mads_hold() {
    run_corpus("mad");
}

#[test]
fn committed_cm_sequences_hold() {
    run_corpus("cm");
}

#[test]
fn committed_rc_sequences_hold() {
    run_corpus("rc");
}

#[test]
fn every_target_has_a_test_here() {
    let names = fuzz::TARGETS.map(|(name, _)| name);
    assert_eq!(names, ["packet", "icrc", "mad", "cm", "rc"]);
}
