//! What the suite's runner wrote.

use std::collections::BTreeMap;
use std::fmt;
use std::iter::Sum;

use super::exceptions::Exception;
use crate::system::Outcome;

/// All tests of a run.
#[derive(Debug)]
pub(super) struct Report(Vec<Test>);

/// A test: its module, its whole name, what came out and why.
#[derive(Debug)]
struct Test {
    module: String,
    name: String,
    outcome: String,
    reason: String,
}

/// Tests of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed}/{failed}/{skipped}")
    }
}

impl Sum for Count {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            passed: sum.passed + one.passed,
            failed: sum.failed + one.failed,
            skipped: sum.skipped + one.skipped,
        })
    }
}

impl Report {
    /// Reads it. An error if the runner did not get to its end.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        if text.lines().next_back() != Some("end") {
            return Err("the suite did not run to its end".into());
        }
        let lines = text.lines().filter(|line| line.contains('\t'));
        let tests = lines.map(|line| {
            let mut cells = line.split('\t').map(str::to_owned);
            let mut cell = || cells.next().unwrap_or_default();
            let (name, outcome, reason) = (cell(), cell(), cell());
            let module = name.split('.').nth(1).unwrap_or_default().to_owned();
            Test {
                module,
                name,
                outcome,
                reason,
            }
        });
        Ok(Self(tests.collect()))
    }

    /// Counts by module.
    pub(super) fn by_module(&self) -> BTreeMap<String, Count> {
        let mut all: BTreeMap<String, Count> = BTreeMap::new();
        for test in &self.0 {
            let count = all.entry(test.module.clone()).or_default();
            match test.outcome.as_str() {
                "passed" => count.passed += 1,
                "skipped" => count.skipped += 1,
                _ => count.failed += 1,
            }
        }
        all
    }

    /// Nothing may fail, be skipped without an exception, or be excepted without need.
    pub(super) fn judge(&self, exceptions: &[Exception]) -> Outcome {
        let mut wrong: Vec<String> = Vec::new();
        for test in &self.0 {
            let excepted = || exceptions.iter().any(|e| test.falls_under(e));
            match test.outcome.as_str() {
                "passed" => {}
                "skipped" if excepted() => {}
                outcome => wrong.push(format!("{} {outcome}: {}", test.name, test.reason)),
            }
        }
        for exception in exceptions.iter().filter(|e| !e.depends_on_machine) {
            if !self.0.iter().any(|test| test.falls_under(exception)) {
                wrong.push(format!("no test needs the exception {:?}", exception.what));
            }
        }
        if self.by_module().values().map(|c| c.passed).sum::<usize>() == 0 {
            wrong.push("no test passed".into());
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("\n"))
        }
    }
}

impl Test {
    fn falls_under(&self, exception: &Exception) -> bool {
        self.outcome == "skipped"
            && self.module.starts_with(exception.module)
            && exception.says.iter().any(|text| self.reason.contains(text))
    }
}

#[cfg(test)]
mod tests {
    use super::{Exception, Report};

    const ONE: Exception = Exception {
        module: "test_a",
        what: "a",
        says: &["no way"],
        reason: "",
        depends_on_machine: false,
    };

    fn judged(text: &str) -> Result<(), String> {
        Report::read(text)?.judge(&[ONE])
    }

    #[test]
    fn only_listed_skips_are_right_and_all_must_be_needed() {
        let good = "tests.test_a.T.x\tskipped\tno way\ntests.test_b.T.y\tpassed\t\nend\n";
        assert_eq!(judged(good), Ok(()));
        assert!(judged(&good.replace("no way", "why")).is_err());
        assert!(judged(&good.replace("skipped", "passed")).is_err());
        assert!(judged(&good.replace("passed", "failed")).is_err());
        assert!(judged(&good.replace("end\n", "")).is_err());
        assert!(judged("end\n").is_err());
    }
}
