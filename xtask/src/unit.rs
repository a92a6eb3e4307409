//! `cargo test`, with its results counted.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Instant;

use crate::programs;
use crate::tally::Tally;
use crate::workspace::Workspace;

/// Runs the workspace's own tests and adds up its `test result:` lines.
pub(crate) fn run(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    let of = [&["test"][..], &programs::ALL, &["--no-fail-fast"]].concat();
    count(workspace.cargo(&of), "cargo test", tally)?;
    // Not every user may make namespaces, so `cargo test` leaves this out.
    const APART: &str = "other_namespaces_go_by_packets";
    let mut command = programs::one(workspace, "ferroce-nic", "direct")?.after(&[]);
    command.args(["--ignored", "--exact", APART]);
    count(command, APART, tally)
}

/// Holds the C types against the installed headers, and the symbols of the release build against
/// the system's libraries; then runs the tests of the Rust interface on the drop-in library, loaded
/// as the system's.
pub(crate) fn run_against_system(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    let library = workspace.release().join("ferroce-lib");
    for (package, test) in [("ferroce-abi", "headers"), ("ferroce-dropin", "symbols")] {
        let mut command = programs::one(workspace, package, test)?.after(&[]);
        command.arg("--ignored").env("FERROCE_LIB", &library);
        count(command, &format!("{package} {test}"), tally)?;
    }
    let on_library = |mut command: Command| {
        command.env("LD_LIBRARY_PATH", &library);
        command.env("FERROCE_TEST_PROVIDER", "system");
        command
    };
    let all = programs::of(workspace, "ferroce")?;
    // What does not compile has nothing to do with the library.
    let commands = all.iter().filter(|program| program.name != "refused");
    let commands = commands.map(|program| on_library(program.after(&[])));
    count_all(commands, "ferroce on the drop-in library", tally)?;
    // Linked without a device of its own, the interface has nothing but the loaded libraries.
    let alone = ["test", "-p", "ferroce", "--no-default-features"];
    let command = workspace.cargo(&[&alone[..], &["--test", "operations"]].concat());
    count(
        on_library(command),
        "ferroce without the software device",
        tally,
    )?;
    let watched = programs::named(workspace, "ferroce", &WATCHED)?;
    let commands = watched.iter().map(|program| {
        let mut command = program.after(&VALGRIND);
        // Fewer random programs: they are some fifty times slower.
        command.env("FERROCE_SEEDS", "4");
        command
    });
    count_all(commands, "ferroce under valgrind", tally)
}

/// Runs the tests of two processes on one host again, as fast as programs have it. Only there polls
/// come so close upon each other that a short ring falls silent, and that the two meet in other
/// places of the code.
pub(crate) fn run_optimised(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    let of = ["test", "-p", "ferroce-nic"];
    let tests = ["short_rings*", "direct*", "processes", "rendezvous"].map(|name| ["--test", name]);
    let as_fast = ["--profile", "optimised", "--no-fail-fast"];
    let command = workspace.cargo(&[&of[..], tests.as_flattened(), &as_fast].concat());
    count(command, "ferroce-nic, optimised", tally)
}

/// Runs the tests of the Rust interface that drop, leak and unwind what the device works on, with
/// address sanitizer.
pub(crate) fn run_with_address_sanitizer(
    workspace: &Workspace,
    tally: &mut Tally,
) -> Result<(), String> {
    let tests = [&WATCHED[..], &[STORM]].concat();
    let command = with_address_sanitizer(workspace, &tests);
    count(command, "ferroce with address sanitizer", tally)
}

/// Runs many storms, some ten minutes of them, with address sanitizer.
pub(crate) fn run_long_storm(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    let mut command = with_address_sanitizer(workspace, &[STORM]);
    command.env("FERROCE_SEEDS", "90");
    count(command, "ferroce storm with address sanitizer", tally)
}

/// Tests of the Rust interface with address sanitizer in this library and in the device. It is in
/// the stable compiler, too, behind a switch.
fn with_address_sanitizer(workspace: &Workspace, tests: &[&str]) -> Command {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let of = ["test", "-p", "ferroce", "--target", &target];
    let tests = tests.iter().flat_map(|name| ["--test", name]);
    let words: Vec<_> = of.into_iter().chain(tests).collect();
    let mut command = workspace.cargo(&words);
    command.env("RUSTC_BOOTSTRAP", "1");
    command.env("RUSTFLAGS", "-Zsanitizer=address");
    command.env("CARGO_TARGET_DIR", workspace.target.join("asan"));
    // What a program leaks stays leaked; they do so on purpose.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    command
}

/// The tests of the Rust interface that drop, leak and unwind what the device works on.
const WATCHED: [&str; 3] = ["programs", "scopes", "connections"];
/// Sixteen threads at once: under valgrind, which runs one at a time, it takes too long.
const STORM: &str = "storm";
/// Watches each access to memory.
const VALGRIND: [&str; 4] = [
    "valgrind",
    "--quiet",
    "--error-exitcode=99",
    "--fair-sched=yes",
];

/// Runs a test command and adds up its results.
pub(crate) fn count(command: Command, name: &str, tally: &mut Tally) -> Result<(), String> {
    count_all([command], name, tally)
}

/// Runs test commands one after the other and adds up their results.
fn count_all(
    commands: impl IntoIterator<Item = Command>,
    name: &str,
    tally: &mut Tally,
) -> Result<(), String> {
    let begun = Instant::now();
    let mut results = Results::default();
    for command in commands {
        results.take(command).map_err(|e| format!("{name}: {e}"))?;
    }
    let said = results.said.join("\n");
    tally.took(name, begun.elapsed());
    tally.add(results.passed, results.failed, name, &said);
    Ok(())
}

fn lines(output: ChildStdout) -> impl Iterator<Item = std::io::Result<String>> {
    BufReader::new(output).lines()
}

/// What test programs print of their results.
#[derive(Debug, Default)]
struct Results {
    passed: usize,
    failed: usize,
    /// Their lists of failures: the names, and what those tests printed.
    said: Vec<String>,
    is_in_list: bool,
}

impl Results {
    /// Adds those of a command.
    fn take(&mut self, mut command: Command) -> std::io::Result<()> {
        println!("# {}", crate::sh::line(&command));
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let before = self.failed;
        for line in child.stdout.take().into_iter().flat_map(lines) {
            let line = line?;
            self.read(&line);
            println!("{line}");
        }
        let status = child.wait()?;
        if !status.success() && self.failed == before {
            self.failed += 1; // it did not build, or a test program died
            let line = crate::sh::line(&command);
            self.said
                .push(format!("{line}: {status}, with no test that failed"));
        }
        Ok(())
    }

    fn read(&mut self, line: &str) {
        self.is_in_list |= line == "failures:";
        if let Some((passed, failed)) = result_line(line) {
            self.passed += passed;
            self.failed += failed;
            self.is_in_list = false;
        }
        if self.is_in_list {
            self.said.push(line.to_owned());
        }
    }
}

/// The counts of `test result: ok. 3 passed; 0 failed; …`.
fn result_line(line: &str) -> Option<(usize, usize)> {
    let rest = line.strip_prefix("test result: ")?;
    let count = |word: &str| -> Option<usize> {
        let before = &rest[..rest.find(word)?];
        before.split_whitespace().last()?.parse().ok()
    };
    Some((count(" passed")?, count(" failed")?))
}

#[cfg(test)]
mod tests {
    use super::{Results, result_line};

    #[test]
    fn reads_the_counts_of_a_result_line() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(result_line(line), Some((12, 3)));
        assert_eq!(result_line("test a::b ... ok"), None);
    }

    #[test]
    fn keeps_what_failed_tests_printed() {
        let mut results = Results::default();
        let printed = "\
running 2 tests
test a ... FAILED
test b ... ok

failures:

---- a stdout ----
thread 'a' panicked at src/lib.rs:1:1:
one is not two

failures:
    a

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/other.rs
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        printed.lines().for_each(|line| results.read(line));
        assert_eq!((results.passed, results.failed), (2, 1));
        let said = results.said.join("\n");
        assert!(said.contains("one is not two"), "{said}");
        assert!(!said.contains("test result"), "{said}");
        assert!(said.trim_end().ends_with("    a"), "{said}");
    }
}
