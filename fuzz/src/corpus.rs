//! Running a committed corpus, for the tests that compile the targets.

use std::path::Path;

use super::Run;

/// Runs the target called `name` on nothing and on every file of its corpus, of which there must be
/// `at_least` so many: fewer are not a corpus, as the folder moved or was not checked out.
#[track_caller]
pub fn run(targets: &[(&str, Run)], name: &str, at_least: usize) {
    let target = targets.iter().find(|(n, _)| *n == name);
    let (_, run) = target.expect("a target of this name");
    // Both crates that compile this are in `crates`.
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
    assert!(count >= at_least, "{count} inputs in {}", folder.display());
}
