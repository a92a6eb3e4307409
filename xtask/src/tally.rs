//! Counting what passed and what failed.

use std::process::ExitCode;
use std::time::Duration;

/// Results so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
    names: Vec<String>,
}

impl Tally {
    /// One more that passed, with its line.
    pub(crate) fn ok(&mut self, name: &str, took: Duration) {
        println!("ok {name} {:.1}s", took.as_secs_f64());
        self.passed += 1;
    }

    /// One more that failed, with its line. What it printed is for the caller to show.
    pub(crate) fn fail(&mut self, name: &str) {
        println!("FAILED {name}");
        self.failed += 1;
        self.names.push(name.to_owned());
    }

    /// Results counted by another program, which printed its own lines.
    pub(crate) fn add(&mut self, passed: usize, failed: usize, name: &str) {
        self.passed += passed;
        self.failed += failed;
        if failed > 0 {
            self.names.push(name.to_owned());
        }
    }

    /// The closing line, and the status of the whole command.
    pub(crate) fn close(self) -> ExitCode {
        for name in &self.names {
            println!("failed: {name}");
        }
        println!("{} passed, {} failed", self.passed, self.failed);
        if self.failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}
