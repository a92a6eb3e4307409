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
    /// How long each result took that has a time.
    times: Vec<(Duration, String)>,
}

/// Results whose times the end of a run lists.
const SLOWEST: usize = 15;

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
        self.took(name, took);
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

    /// How long a result took, or a part of the run.
    pub(crate) fn took(&mut self, name: &str, took: Duration) {
        self.times.push((took, name.to_owned()));
    }

    /// Results counted by another program, which printed its own lines; of its failures these.
    pub(crate) fn add(&mut self, passed: usize, failed: usize, name: &str, said: &str) {
        self.passed += passed;
        self.failed += failed;
        if failed > 0 {
            self.failures.push(Failure::new(name, said));
        }
    }

    /// How many have passed and failed so far.
    pub(crate) fn counts(&self) -> [usize; 2] {
        [self.passed, self.failed]
    }

    /// The closing line, and the status of the whole command.
    pub(crate) fn close(self) -> ExitCode {
        for (took, name) in slowest(self.times) {
            println!("# {:.0}s {name}", took.as_secs_f64());
        }
        // Thousands of lines may be between a failure and the end, and logs are often cut.
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

/// The longest, longest first.
fn slowest(mut times: Vec<(Duration, String)>) -> Vec<(Duration, String)> {
    times.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
    times.retain(|(took, _)| *took >= Duration::from_secs(1));
    times.truncate(SLOWEST);
    times
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_results_are_told_and_no_short_ones() {
        let times = (0..100).map(|i| (Duration::from_millis(i * 100), i.to_string()));
        let told = slowest(times.collect());
        assert_eq!(told.len(), SLOWEST);
        assert_eq!(told[0].1, "99");
        assert_eq!(slowest(vec![(Duration::from_millis(999), "x".into())]), []);
    }
}
