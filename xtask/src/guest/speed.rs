//! The kernel's siw, and Ferroce over TCP, each with itself in one guest, beside that guest's TCP.
//!
//! All traffic takes the guest's loopback. Its processors are emulated, so the numbers compare the
//! three with each other and say nothing of other machines.

use std::path::Path;
use std::time::Duration;

use super::harness::{Guest, Run};
use super::pair::{Family, Ready, Server, start};
use crate::sh;
use crate::system::aims::{self, Number};

/// Each is measured that often, by turns.
const ROUNDS: u32 = 3;
/// Time for one measurement.
const LIMIT: Duration = Duration::from_secs(120);
/// Ferroce within one host, but over TCP.
const FERROCE: &str = "env FERROCE_PATH=wire /share/bin/ferroce run --wire=iwarp --";
/// Runs a program of this machine in the guest, with this machine's libraries.
const CARRIED: &str = "/share/tcp/ld-linux-x86-64.so.2 --library-path /share/tcp /share/tcp/";
/// Copies programs to a folder, with their libraries and their loader.
const CARRY: &str = r#"
target=$1; shift
mkdir -p "$target"
cp -L /lib64/ld-linux-x86-64.so.2 "$target"
for program; do
    file=$(command -v "$program") && cp "$file" "$target" || exit
    ldd "$file" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | xargs cp -Lut "$target" || exit
done"#;

/// What one line of the table compares.
struct Work {
    name: &'static str,
    /// perftest's words.
    perftest: &'static str,
    number: Number,
    /// The client of the TCP program beside it, which sends as many bytes at once.
    tcp: Tcp,
}

/// A TCP program.
enum Tcp {
    /// A stream that is written in pieces of so many bytes.
    Iperf3(&'static str),
    /// Half of there and back, 8 bytes.
    Qperf,
}

const fn stream(name: &'static str, perftest: &'static str, piece: &'static str) -> Work {
    let (number, tcp) = (Number::Bandwidth, Tcp::Iperf3(piece));
    Work {
        name,
        perftest,
        number,
        tcp,
    }
}

const fn latency(name: &'static str, perftest: &'static str) -> Work {
    let (number, tcp) = (Number::Latency, Tcp::Qperf);
    Work {
        name,
        perftest,
        number,
        tcp,
    }
}

const WORKS: [Work; 9] = [
    stream("WRITE 64 KiB", "ib_write_bw -R -F -n 500", "65536"),
    stream(
        "WRITE 1 MiB",
        "ib_write_bw -R -F -n 50 -s 1048576",
        "1048576",
    ),
    stream("READ 64 KiB", "ib_read_bw -R -F -n 500", "65536"),
    stream("READ 1 MiB", "ib_read_bw -R -F -n 50 -s 1048576", "1048576"),
    stream("SEND 64 KiB", "ib_send_bw -R -F -n 500", "65536"),
    stream("SEND 1 MiB", "ib_send_bw -R -F -n 50 -s 1048576", "1048576"),
    latency("WRITE 8 B", "ib_write_lat -R -F -n 1000 -s 8"),
    latency("READ 8 B, there and back", "ib_read_lat -R -F -n 1000 -s 8"),
    latency("SEND 8 B", "ib_send_lat -R -F -n 1000 -s 8"),
];

/// Measures and prints the table.
pub(super) fn run(guest: &Guest, bin: &Path, logs: &Path) -> Result<(), String> {
    let share = guest.share();
    let [to, tcp] = ["bin", "tcp"].map(|folder| share.join(folder));
    let [bin, to, tcp] = [bin, &to, &tcp].map(Path::to_string_lossy);
    sh::output("cp", &["-rL", &bin, &to])?;
    sh::output("sh", &["-c", CARRY, "sh", &tcp, "iperf3", "qperf"])?;
    println!("\n| work | siw | Ferroce | TCP | Ferroce by siw | least and greatest |");
    println!("|---|---|---|---|---|---|");
    WORKS.iter().try_for_each(|work| {
        let folder = logs.join(work.name.replace(' ', "-"));
        println!("{}", work.line(guest, &folder)?);
        Ok(())
    })
}

impl Work {
    /// A line of the table: medians, and the ratio of the rounds.
    fn line(&self, guest: &Guest, logs: &Path) -> Result<String, String> {
        let rounds = (0..ROUNDS).map(|_| {
            let run = Run::new(guest, logs.to_owned(), LIMIT * 3)?;
            Ok([
                self.by_rdma(&run, "", Ready::Cm(18515))?,
                self.by_rdma(&run, FERROCE, Ready::Tcp(18515))?,
                self.by_tcp(&run)?,
            ])
        });
        let rounds: Vec<[f64; 3]> = rounds.collect::<Result<_, String>>()?;
        let median = |of: fn(&[f64; 3]) -> f64| aims::median(rounds.iter().map(of).collect());
        let (siw, ferroce, tcp) = (median(|r| r[0])?, median(|r| r[1])?, median(|r| r[2])?);
        let mut ratios: Vec<f64> = rounds.iter().map(|r| r[1] / r[0]).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        let ratio = aims::median(ratios)?;
        let (name, unit) = (self.name, self.unit());
        let spread = format!("{least:.2} to {most:.2}");
        Ok(format!(
            "| {name} | {siw:.1} {unit} | {ferroce:.1} | {tcp:.1} | {ratio:.2} | {spread} |"
        ))
    }

    const fn unit(&self) -> &'static str {
        match self.tcp {
            Tcp::Iperf3(_) => "MB/s",
            Tcp::Qperf => "µs",
        }
    }

    /// perftest with itself, behind words that start it.
    fn by_rdma(&self, run: &Run, before: &str, ready: Ready) -> Result<f64, String> {
        let server = format!("{before} {}", self.perftest);
        let client = format!("{server} {}", Family::V4.theirs());
        let printed = both(run, &server, &client, ready)?;
        self.scaled(aims::perftest_number(&printed, self.number))
    }

    fn by_tcp(&self, run: &Run) -> Result<f64, String> {
        let at = Family::V4.theirs();
        let (server, client, port) = match self.tcp {
            Tcp::Iperf3(piece) => (
                "iperf3 -s -1".to_owned(),
                format!("iperf3 -c {at} -J -t 2 -l {piece}"),
                5201,
            ),
            Tcp::Qperf => (
                "qperf".to_owned(),
                format!("qperf {at} -uu -t 2 -m 8 tcp_lat"),
                19765,
            ),
        };
        let [server, client] = [server, client].map(|line| format!("{CARRIED}{line}"));
        let printed = both(run, &server, &client, Ready::Tcp(port))?;
        self.scaled(match self.tcp {
            Tcp::Iperf3(_) => {
                let results = serde_json::from_str(&printed).map_err(|e| format!("iperf3: {e}"))?;
                Some(aims::iperf3_number(&results)?)
            }
            Tcp::Qperf => aims::qperf_number(&printed),
        })
    }

    /// In the unit of the line: MB/s where the aims have GB/s.
    fn scaled(&self, number: Option<f64>) -> Result<f64, String> {
        let number = number.ok_or_else(|| format!("{}: no number; see the logs", self.name))?;
        Ok(match self.tcp {
            Tcp::Iperf3(_) => number * 1e3,
            Tcp::Qperf => number,
        })
    }
}

/// Runs a server and its client in the guest; what the client printed. The server may go on.
fn both(run: &Run, server: &str, client: &str, ready: Ready) -> Result<String, String> {
    let [server, client] = [server, client].map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (mut client, _server) = start(run, Server::Alone, &client, &server, ready)?;
    client.succeed()?;
    Ok(client.output())
}
