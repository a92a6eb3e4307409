//! What the programs' own reports must show.

use crate::system::Outcome;

/// What perftest says if it could not measure the processor's clock, as on a busy machine or in a
/// guest. It then counts the clock as 0 Hz, and all its results are 0.
const CLOCK_UNKNOWN: &str = "Correlation coefficient r^2";
/// Bytes of messages that perftest's `-a` goes through: powers of two from 2.
const SMALLEST: u64 = 2;

/// What must be seen in the output of a row that passes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    /// These texts, from the server (or the only process) and from the client.
    Says(&'static str, &'static str),
    /// This text that many times, from the client.
    Times(&'static str, usize),
    /// perftest's table: a line for each size with the count of iterations and a result above zero,
    /// in this unit. (Zero passes where the program says that it has no clock.)
    Measured {
        sizes: Sizes,
        iterations: Iterations,
        unit: &'static str,
    },
    /// A ping-pong's closing lines, on both sides.
    PingPong { bytes: u64, rounds: u64 },
}

/// Sizes of perftest's lines.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sizes {
    /// As many lines as the second number says, all of this size.
    Same(u64, usize),
    /// All powers of two from 2 to this.
    UpTo(u64),
}

/// The column of iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Iterations {
    /// This number.
    Exactly(u64),
    /// As many as fit the duration.
    Some,
}

impl Check {
    /// Whether it is so.
    pub(crate) fn holds(self, server: &str, client: &str) -> Outcome {
        match self {
            Self::Says(by_server, by_client) => {
                says(server, by_server)?;
                says(client, by_client)
            }
            Self::Times(text, count) => {
                let found = client.matches(text).count();
                if found == count {
                    return Ok(());
                }
                Err(format!(
                    "{text:?} {found} times, not {count}, from the client"
                ))
            }
            Self::Measured {
                sizes,
                iterations,
                unit,
            } => {
                says(client, unit)?;
                measured(client, sizes, iterations)
            }
            Self::PingPong { bytes, rounds } => {
                let (volume, rounds) = (format!("{bytes} bytes in"), format!("{rounds} iters in"));
                [server, client].iter().try_for_each(|output| {
                    says(output, &volume)?;
                    says(output, &rounds)
                })
            }
        }
    }
}

fn says(output: &str, text: &str) -> Outcome {
    if output.contains(text) {
        Ok(())
    } else {
        Err(format!("the output lacks {text:?}"))
    }
}

/// Whether perftest knew the processor's clock, so that it prints results.
pub(crate) fn is_timed(output: &str) -> bool {
    !output.contains(CLOCK_UNKNOWN)
}

/// Whether there is a line of numbers for each size.
fn measured(output: &str, sizes: Sizes, iterations: Iterations) -> Outcome {
    let is_timed = is_timed(output);
    let lines: Vec<Vec<f64>> = output
        .lines()
        .map(|line| line.split_whitespace().map_while(|w| w.parse().ok()))
        .map(Iterator::collect)
        .filter(|numbers: &Vec<f64>| numbers.len() >= 4)
        .collect();
    let sizes: Vec<u64> = match sizes {
        Sizes::Same(size, lines) => vec![size; lines],
        Sizes::UpTo(largest) => std::iter::successors(Some(SMALLEST), |s| Some(s * 2))
            .take_while(|&s| s <= largest)
            .collect(),
    };
    if lines.len() != sizes.len() {
        let (found, due) = (lines.len(), sizes.len());
        return Err(format!("{found} lines of results, not {due}"));
    }
    for (line, size) in lines.iter().zip(sizes) {
        if line[0].to_string() != size.to_string() {
            return Err(format!("results for {} bytes, not for {size}", line[0]));
        }
        let right = match iterations {
            Iterations::Exactly(n) => line[1].to_string() == n.to_string(),
            Iterations::Some => line[1] > 0.0,
        };
        if !right {
            let found = line[1];
            return Err(format!("{found} iterations, not {iterations:?}"));
        }
        // A small bandwidth is printed as 0.00 beside the rate of messages.
        if is_timed && line[3..].iter().all(|&result| result <= 0.0) {
            return Err(format!("no result for {size} bytes"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{CLOCK_UNKNOWN, Iterations, Sizes, measured};

    const TABLE: &str = "\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 2          100              1.02               0.99   \t\t   0.514
 4          100              2.02               1.99   \t\t   0.514
";

    #[test]
    fn a_line_for_each_size_is_due() {
        let hundred = Iterations::Exactly(100);
        assert_eq!(measured(TABLE, Sizes::UpTo(4), hundred), Ok(()));
        assert!(measured(TABLE, Sizes::UpTo(8), hundred).is_err());
        assert!(measured(TABLE, Sizes::Same(2, 1), hundred).is_err());
        assert!(measured("", Sizes::Same(2, 1), hundred).is_err());
    }

    #[test]
    fn iterations_and_results_count() {
        assert!(measured(TABLE, Sizes::UpTo(4), Iterations::Exactly(99)).is_err());
        assert_eq!(measured(TABLE, Sizes::UpTo(4), Iterations::Some), Ok(()));
        let idle = "2 100 0.00 0.00 0.0";
        assert!(measured(idle, Sizes::Same(2, 1), Iterations::Some).is_err());
        let untimed = format!("{CLOCK_UNKNOWN}: 0.803231 < 0.9\n{idle}");
        assert_eq!(
            measured(&untimed, Sizes::Same(2, 1), Iterations::Some),
            Ok(())
        );
        let other_count = Iterations::Exactly(99);
        assert!(measured(&untimed, Sizes::Same(2, 1), other_count).is_err());
    }
}
