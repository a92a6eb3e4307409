//! `ferroce bench`: latency, bandwidth and message rate of every operation, beside what the machine
//! can do without RDMA.
//!
//! The process that the user starts leads. It starts two workers for each path, and two for the
//! floors: processes like any others, which sleep but for the one pair that measures. What is
//! compared is measured by turns, several times.

mod floor;
mod lead;
mod load;
mod measured;
mod pattern;
mod peer;
mod report;
mod serve;
mod task;
mod verbs;
mod worker;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;

use task::{Task, Transport, Waiting};

/// The TCP port at which the two hosts of a measurement meet.
const PORT: u16 = 18514;

/// Options.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Be the other host: serve measurements of any caller (do so in networks that you trust)
    Serve {
        /// Address to listen at
        #[arg(long, default_value = "0.0.0.0", value_name = "IP")]
        address: IpAddr,
        /// TCP port to listen at
        #[arg(long, default_value_t = PORT)]
        port: u16,
    },
    /// Take part in measurements (started by the others)
    #[command(hide = true)]
    Worker,
}

/// Options that say what to measure.
#[derive(Clone, Debug, clap::Args)]
struct Options {
    /// The other host, where `ferroce bench serve` runs; without it both sides are on this host
    host: Option<String>,
    /// TCP port of the other host
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Address of this host at which the two sides meet
    #[arg(
        long,
        default_value = "127.0.0.1",
        value_name = "IP",
        conflicts_with = "host"
    )]
    address: IpAddr,
    /// Bytes of the operations, with K or M for powers of 1024
    #[arg(long, value_delimiter = ',', value_parser = size, value_name = "SIZE",
          default_values = ["8", "64", "512", "4K", "16K", "64K", "256K", "1M"])]
    sizes: Vec<usize>,
    /// Milliseconds that each number is measured, in each round
    #[arg(long, default_value_t = 100, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    time: u64,
    /// Rounds: everything is measured by turns, this often
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Transports of our queue pairs: RC has all operations, UC SEND and WRITE, UD SEND of what
    /// fits a packet
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "TRANSPORT",
        ignore_case = true,
        default_value = "rc"
    )]
    transport: Vec<Transport>,
    /// Measure the wire with packets authenticated by this key (as `FERROCE_KEY_FILE`), too
    #[arg(long, conflicts_with = "host", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Let the memory that operations go to be shared memory, in which processes of this host work
    /// without system calls
    #[arg(long, conflicts_with = "host")]
    shared: bool,
    /// Let both sides sleep until something comes, in `ibv_get_cq_event` or a call of the kernel:
    /// what is measured then is the time of one message
    #[arg(long, conflicts_with = "transport")]
    asleep: bool,
    /// Only what has these words in its name: "local send", "memcpy", "wire write latency"; may be
    /// repeated
    #[arg(long, value_name = "WORDS")]
    only: Vec<String>,
    /// Measure other programs too, those that are installed: `ucx_perftest`, iperf3, qperf,
    /// sockperf, `fi_pingpong`
    #[arg(long, conflicts_with = "host")]
    peers: bool,
    /// A short look, to see that everything works: two sizes, one round of 10 ms
    #[arg(long)]
    quick: bool,
    /// Folder for results.json and the curves, made if it is not there
    #[arg(long, default_value = "ferroce-bench", value_name = "FOLDER")]
    out: PathBuf,
    /// Print the JSON in place of the tables, and write no files
    #[arg(long)]
    json: bool,
}

impl Options {
    /// What `--quick` stands for.
    fn settled(mut self) -> Self {
        if self.quick {
            self.sizes = vec![8, 1 << 16];
            (self.time, self.rounds) = (10, 1);
        }
        self
    }

    fn waiting(&self) -> Waiting {
        if self.asleep {
            Waiting::Asleep
        } else {
            Waiting::Polling
        }
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.time)
    }
}

/// Runs one of the roles.
pub(crate) fn bench(args: BenchArgs) -> ExitCode {
    let outcome = match args.role {
        Some(Role::Worker) => return worker::work(),
        Some(Role::Serve { address, port }) => serve::serve((address, port).into()),
        None => lead::lead(&args.options.settled()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ferroce bench: {e}");
            ExitCode::FAILURE
        }
    }
}

/// `4096`, `4K`, `1M`: a multiple of 8 that is not too large.
fn size(word: &str) -> Result<usize, String> {
    let (digits, unit) = match word.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1 << 10),
        None => match word.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1 << 20),
            None => (word, 1),
        },
    };
    let number: usize = digits.parse().map_err(|e| format!("{e}"))?;
    match number.checked_mul(unit) {
        Some(size) if size > 0 && size <= Task::MAX_SIZE && size.is_multiple_of(8) => Ok(size),
        _ => Err(format!(
            "not a multiple of 8 up to {}",
            report::bytes(Task::MAX_SIZE)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("8"), Ok(8));
        assert_eq!(size("64K"), Ok(65536));
        assert_eq!(size("1m"), Ok(1 << 20));
        for wrong in ["", "7", "0", "-8", "65M", "1G", "99999999999999999999M"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
