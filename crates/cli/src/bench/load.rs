//! How busy the machine is with something else: what is measured beside other work says little.

use std::fmt;

/// The machine before the first measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    /// Processes that ran or waited for a processor, on average over the last minute.
    pub(crate) average: f64,
    /// Processors that there are for us.
    pub(crate) processors: usize,
}

impl Load {
    /// As it is now. `None` where `/proc` does not say.
    pub(crate) fn now() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/loadavg").ok()?;
        Self::parse(
            &text,
            std::thread::available_parallelism().map_or(1, usize::from),
        )
    }

    fn parse(text: &str, processors: usize) -> Option<Self> {
        let average = text.split_whitespace().next()?.parse().ok()?;
        Some(Self {
            average,
            processors,
        })
    }

    /// Whether two processes that poll would hardly have a processor each.
    fn is_busy(self) -> bool {
        self.average + 2.0 > self.processors as f64 + 0.5
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            average,
            processors,
        } = self;
        write!(
            f,
            "Load average {average:.2} on {processors} processors when it began"
        )?;
        if self.is_busy() {
            f.write_str(": something else was running, so only the ratios say something")?;
        }
        f.write_str(".")
    }
}

#[cfg(test)]
mod tests {
    use super::Load;

    #[test]
    fn a_busy_machine_is_told_of() {
        let load = |text, processors| Load::parse(text, processors).unwrap().to_string();
        let idle = load("0.20 0.10 0.05 1/200 4711\n", 2);
        assert_eq!(idle, "Load average 0.20 on 2 processors when it began.");
        assert!(load("3.00 0.10 0.05 1/200 4711\n", 2).contains("something else"));
        assert!(!load("3.00 0.10 0.05 1/200 4711\n", 8).contains("something else"));
        assert_eq!(Load::parse("", 2), None);
    }
}
