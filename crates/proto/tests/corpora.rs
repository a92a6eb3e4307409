//! Runs every committed input of the fuzz targets through the code that the targets run.

#[path = "../../../fuzz/src/lib.rs"]
#[allow(
    unreachable_pub,
    clippy::cast_possible_truncation,
    reason = "a library where it lives"
)]
mod fuzz;

use std::path::Path;

fn run_corpus(name: &str, run: fuzz::Run) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(name);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 10, "{count} inputs in {}", folder.display());
    // Cut inputs end in other states than whole ones.
    run(&[]);
}

#[test]
fn every_committed_input_holds() {
    for (name, run) in fuzz::TARGETS {
        run_corpus(name, run);
    }
}
