//! The second wire between two namespaces, beside bare TCP with the same congestion control.

use super::Probe;
use super::probe::{self, Number, bench_number, drops, iperf3_number, perftest_by};
use super::table::{Aim, Limit};
use crate::system::family::{between_hosts, repair};
use crate::system::{Place, Side, Stage};

/// Something that gives a number over TCP.
#[derive(Debug)]
pub(super) struct OverTcp {
    work: Work,
    /// Packets of TCP that are lost of a thousand, at random.
    lost: u32,
}

/// A program, or a pair of them.
#[derive(Debug)]
enum Work {
    /// Unmodified perftest on a device that speaks iWARP.
    Perftest {
        words: &'static [&'static str],
        crc: bool,
    },
    /// A single TCP stream, written in pieces of so many bytes.
    Iperf3(&'static str),
    /// The floor of `ferroce bench`, 8 bytes.
    PingPong { asleep: bool },
}

/// The congestion control of both ends, by their routes: namespaces may not choose each one as
/// their default.
const CUBIC: &str = "ip -4 route show dev eth0 | sed /congctl/d | \
    while read -r route; do ip route replace $route dev eth0 congctl cubic; done";
const WIRE: &str = "--wire=iwarp";
/// Asks for CRCs, and how.
const CRC: (&str, &str) = ("FERROCE_IWARP_CRC", "on");
const PING_PONG: &str = "TCP ping-pong";
/// What makes `ferroce bench` measure that once.
const PING_PONG_WORDS: [&str; 8] = [
    "--only", PING_PONG, "--sizes", "8", "--rounds", "1", "--time", "300",
];

impl OverTcp {
    /// What it is called.
    pub(super) fn name(&self) -> String {
        match self.work {
            Work::Perftest { words, .. } => words[0].to_owned(),
            Work::Iperf3(_) => "iperf3 TCP".into(),
            Work::PingPong { asleep: false } => PING_PONG.into(),
            Work::PingPong { asleep: true } => format!("{PING_PONG}, asleep"),
        }
    }

    /// The command line of the client, for people.
    pub(super) fn command(&self) -> String {
        let line = match self.work {
            Work::Perftest { words, crc } => {
                let (name, value) = CRC;
                let crc = if crc {
                    format!("{name}={value} ")
                } else {
                    String::new()
                };
                let words = words.join(" ");
                format!("{crc}ferroce run {WIRE} -- {words} -R -F SERVER")
            }
            Work::Iperf3(piece) => format!("iperf3 -c SERVER -t 1 -l {piece}"),
            Work::PingPong { asleep } => {
                let option = if asleep { " --asleep" } else { "" };
                format!("ferroce bench SERVER --only '{PING_PONG}' --sizes 8{option}")
            }
        };
        if self.lost == 0 {
            line
        } else {
            format!("{line}, with `{}` for TCP in nft", drops(self.lost))
        }
    }

    /// Measures once.
    pub(super) fn measure(&self, stage: &Stage, number: Number) -> Result<f64, String> {
        on_both(stage, CUBIC)?;
        if self.lost == 0 {
            return self.work.measure(stage, number);
        }
        on_both(stage, &loss(self.lost))?;
        let measured = self.work.measure(stage, number);
        repair(stage)?;
        measured
    }
}

impl Work {
    fn measure(&self, stage: &Stage, number: Number) -> Result<f64, String> {
        match *self {
            Self::Perftest { words, crc } => perftest(stage, words, crc, number),
            Self::Iperf3(piece) => iperf3(stage, piece),
            Self::PingPong { asleep } => {
                let options: &[&str] = if asleep { &["--asleep"] } else { &[] };
                let words = [&PING_PONG_WORDS[..], options].concat();
                bench_number(&between_hosts(stage, &words)?, PING_PONG, number)
            }
        }
    }
}

fn on_both(stage: &Stage, script: &str) -> Result<(), String> {
    [Side::A, Side::B]
        .iter()
        .try_for_each(|&side| stage.net.shell(side, script).map(drop))
}

/// What nft is told. [`repair`] ends it.
fn loss(of_thousand: u32) -> String {
    let rule = drops(of_thousand);
    format!(
        "nft 'add table inet test; add chain inet test in {{ type filter hook input priority 0; }}; \
         add rule inet test in meta l4proto tcp counter {rule}'"
    )
}

/// Both sides of an unmodified perftest program that connects by the RDMA connection manager.
fn perftest(stage: &Stage, words: &[&str], crc: bool, number: Number) -> Result<f64, String> {
    let words = [words, &["-R"]].concat();
    perftest_by(stage, &words, number, |side, words| {
        let mut launch = stage.with_option(side, WIRE, words);
        if crc {
            launch.env(CRC.0, CRC.1);
        }
        launch.start()
    })
}

/// GB/s of one TCP stream that is written in pieces of `piece` bytes.
fn iperf3(stage: &Stage, piece: &str) -> Result<f64, String> {
    let results = probe::iperf3(stage, piece)?;
    let control = &results["end"]["sender_tcp_congestion"];
    if control != "cubic" {
        return Err(format!("the congestion control is {control}, not cubic"));
    }
    iperf3_number(&results)
}

const fn aim(
    work: &'static str,
    mtu: u32,
    number: Number,
    ours: OverTcp,
    theirs: OverTcp,
    limit: Option<Limit>,
) -> Aim {
    Aim {
        work,
        place: Place::Wire(mtu),
        number,
        ours: Probe::OverTcp(ours),
        theirs: Probe::OverTcp(theirs),
        limit,
        all_rounds: false,
    }
}

const fn whole(work: Work) -> OverTcp {
    OverTcp { work, lost: 0 }
}

/// A stream without CRCs, or with them.
const fn stream(
    work: &'static str,
    mtu: u32,
    words: &'static [&'static str],
    piece: &'static str,
    crc: bool,
) -> Aim {
    let least = if crc { 0.8 } else { 0.9 };
    let ours = whole(Work::Perftest { words, crc });
    let theirs = whole(Work::Iperf3(piece));
    let limit = Some(Limit::AtLeast(least));
    aim(work, mtu, Number::Bandwidth, ours, theirs, limit)
}

/// One message at a time.
const fn ping(work: &'static str, words: &'static [&'static str], asleep: bool) -> Aim {
    let ours = whole(Work::Perftest { words, crc: false });
    let theirs = whole(Work::PingPong { asleep });
    let limit = Some(Limit::AtMost(1.2));
    let aim = aim(work, 1500, Number::Latency, ours, theirs, limit);
    Aim {
        all_rounds: asleep,
        ..aim
    }
}

/// A stream where one packet of a hundred is lost.
const fn lossy(work: &'static str, words: &'static [&'static str]) -> Aim {
    let ours = OverTcp {
        work: Work::Perftest { words, crc: false },
        lost: 10,
    };
    let theirs = OverTcp {
        work: Work::Iperf3(K64),
        lost: 10,
    };
    aim(work, 1500, Number::Bandwidth, ours, theirs, None)
}

const K64: &str = "65536";
const M1: &str = "1048576";
const WRITE: &[&str] = &["ib_write_bw", "-s", K64, "-n", "20000"];
const READ: &[&str] = &["ib_read_bw", "-s", K64, "-n", "20000"];
const SEND: &[&str] = &["ib_send_bw", "-s", K64, "-n", "20000"];
const WRITE_1M: &[&str] = &["ib_write_bw", "-s", M1, "-n", "3000"];
const READ_1M: &[&str] = &["ib_read_bw", "-s", M1, "-n", "3000"];
const SEND_1M: &[&str] = &["ib_send_bw", "-s", M1, "-n", "3000"];
const SEND_LAT: &[&str] = &["ib_send_lat", "-s", "8", "-n", "30000"];
const WRITE_LAT: &[&str] = &["ib_write_lat", "-s", "8", "-n", "30000"];
const SEND_ASLEEP: &[&str] = &["ib_send_lat", "-e", "-s", "8", "-n", "20000"];

/// All of them. Two Ferroces send FPDUs of up to 64 KiB.
pub(super) const IWARP: &[Aim] = &[
    stream("iWARP WRITE 64 KiB", 1500, WRITE, K64, false),
    stream("iWARP READ 64 KiB", 1500, READ, K64, false),
    stream("iWARP SEND 64 KiB", 1500, SEND, K64, false),
    stream("iWARP WRITE 1 MiB", 1500, WRITE_1M, M1, false),
    stream("iWARP READ 1 MiB", 1500, READ_1M, M1, false),
    stream("iWARP SEND 1 MiB", 1500, SEND_1M, M1, false),
    stream("iWARP WRITE 64 KiB, CRCs", 1500, WRITE, K64, true),
    stream("iWARP READ 64 KiB, CRCs", 1500, READ, K64, true),
    stream("iWARP SEND 64 KiB, CRCs", 1500, SEND, K64, true),
    stream("iWARP WRITE 1 MiB, CRCs", 1500, WRITE_1M, M1, true),
    stream("iWARP READ 1 MiB, CRCs", 1500, READ_1M, M1, true),
    stream("iWARP SEND 1 MiB, CRCs", 1500, SEND_1M, M1, true),
    stream("iWARP WRITE 64 KiB", 9000, WRITE, K64, false),
    stream("iWARP READ 64 KiB", 9000, READ, K64, false),
    stream("iWARP SEND 64 KiB", 9000, SEND, K64, false),
    ping("iWARP SEND 8 B latency", SEND_LAT, false),
    ping("iWARP WRITE 8 B latency", WRITE_LAT, false),
    ping("iWARP SEND 8 B, both asleep", SEND_ASLEEP, true),
    lossy("iWARP WRITE 64 KiB, 1 % lost", WRITE),
    lossy("iWARP READ 64 KiB, 1 % lost", READ),
    lossy("iWARP SEND 64 KiB, 1 % lost", SEND),
];

#[cfg(test)]
mod tests {
    use super::IWARP;

    #[test]
    fn commands_tell_what_is_measured() {
        let line = |work: &str| {
            let aim = IWARP.iter().find(|aim| aim.work == work).unwrap();
            (aim.ours.command(aim.number), aim.theirs.command(aim.number))
        };
        let (ours, theirs) = line("iWARP SEND 1 MiB, CRCs");
        let (with_crc, without) = ours.split_once(' ').unwrap();
        assert_eq!(with_crc, "FERROCE_IWARP_CRC=on");
        assert_eq!(
            without,
            "ferroce run --wire=iwarp -- ib_send_bw -s 1048576 -n 3000 -R -F SERVER"
        );
        assert_eq!(theirs, "iperf3 -c SERVER -t 1 -l 1048576");
        let (ours, theirs) = line("iWARP READ 64 KiB, 1 % lost");
        let rule = "with `numgen random mod 1000 < 10 drop` for TCP in nft";
        assert!(ours.ends_with(rule) && theirs.ends_with(rule));
        let (_, theirs) = line("iWARP SEND 8 B, both asleep");
        assert!(theirs.ends_with("--asleep"), "{theirs}");
    }
}
