//! Counting what passed and what failed.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

/// Results so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
    failures: Vec<Failure>,
    /// What failed beside another test. Counted when it has run again.
    retried: Vec<Failure>,
}

/// What failed, and what there is to say of it.
#[derive(Debug)]
struct Failure {
    name: String,
    said: String,
}

impl Tally {
    /// One more that passed, with its line.
    pub(crate) fn ok(&mut self, name: &str, took: Duration) {
        println!("ok {name} {:.1}s", took.as_secs_f64());
        self.passed += 1;
    }

    /// One more that failed, with its line and what there is to say of it. All of that is printed
    /// at the end again.
    pub(crate) fn fail(&mut self, name: &str, said: &str) {
        let failure = Failure::new(name, said);
        println!("FAILED {failure}");
        self.failed += 1;
        self.failures.push(failure);
    }

    /// One that failed beside another and will run again, alone. What it said now is printed at the
    /// end, however that ends: too little processor time, or something that two tests share.
    pub(crate) fn retry(&mut self, name: &str, said: &str) {
        let failure = Failure::new(name, said);
        println!("to run again: {failure}");
        self.retried.push(failure);
    }

    /// Results counted by another program, which printed its own lines; of its failures these.
    pub(crate) fn add(&mut self, passed: usize, failed: usize, name: &str, said: &str) {
        self.passed += passed;
        self.failed += failed;
        if failed > 0 {
            self.failures.push(Failure::new(name, said));
        }
    }

    /// The closing line, and the status of the whole command.
    pub(crate) fn close(self) -> ExitCode {
        // Thousands of lines may be between a failure and the end, and logs are often cut.
        for failure in &self.retried {
            println!("ran twice: {failure}");
        }
        for failure in &self.failures {
            println!("failed: {failure}");
        }
        println!("{} passed, {} failed", self.passed, self.failed);
        if self.failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

impl Failure {
    fn new(name: &str, said: &str) -> Self {
        Self {
            name: name.to_owned(),
            said: said.trim_end().to_owned(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.said
            .lines()
            .try_for_each(|line| write!(f, "\n    {line}"))
    }
}
