//! Runs every committed input of the fuzz targets through the code that the targets run.

#[path = "../../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "a library where it lives")]
mod fuzz;

#[path = "../../../fuzz/src/corpus.rs"]
#[allow(unreachable_pub, reason = "a library where it lives")]
mod corpus;

use fuzz::Run;

/// Runs a target's corpus.
#[track_caller]
fn run_corpus(name: &str) {
    corpus::run(&fuzz::TARGETS, name, 10);
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
fn committed_reorder_inputs_hold() {
    run_corpus("reorder");
}

#[test]
fn committed_mpa_streams_hold() {
    run_corpus("mpa");
}

#[test]
fn committed_iwarp_sequences_hold() {
    run_corpus("iwarp");
}

#[test]
fn every_target_has_a_test_here() {
    let names = fuzz::TARGETS.map(|(name, _)| name);
    assert_eq!(
        names,
        [
            "packet", "icrc", "mad", "cm", "rc", "reorder", "mpa", "iwarp"
        ]
    );
}
