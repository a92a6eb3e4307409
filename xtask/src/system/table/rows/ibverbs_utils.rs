//! ibverbs-utils.

use super::{Check, Options, Row, Sides, alone, pair};
use crate::system::table::run;
use crate::system::{Outcome, Side, Stage};

/// The TCP port of the ping-pongs.
const PORT: u16 = 18515;

/// A ping-pong: name, transport, bytes of a message and rounds without options, and the options
/// that not all of them have.
struct PingPong(
    &'static str,
    &'static str,
    u64,
    u64,
    &'static [&'static str],
);

const PING_PONGS: [PingPong; 4] = [
    PingPong(
        "ibv_rc_pingpong",
        "RC",
        4096,
        1000,
        &[
            "-m 256 -n 100",
            "-s 100000 -n 100",
            "-o -n 100",
            "-o -P -n 100",
            "-t -n 100",
            "-j -n 100",
            "-N -n 100",
            "-N -j -t -n 100",
        ],
    ),
    PingPong(
        "ibv_uc_pingpong",
        "UC",
        4096,
        1000,
        &["-m 256 -n 100", "-s 100000 -n 100"],
    ),
    PingPong("ibv_ud_pingpong", "UD", 1024, 1000, &[]),
    PingPong(
        "ibv_srq_pingpong",
        "RC",
        4096,
        1000,
        &[
            "-m 256 -n 100",
            "-s 100000 -n 100",
            "-q 1 -n 100",
            "-q 50 -n 100",
        ],
    ),
];

/// Options of all ping-pongs; `-g` is theirs too, and needed, as an Ethernet port has no LID.
const COMMON: [&str; 9] = [
    "",
    "-c -n 100",
    "-e -n 100",
    "-e -c -n 100",
    "-p 20001 -n 100",
    "-d DEVICE -i 1 -n 100",
    "-s 100 -n 100",
    "-r 64 -n 100",
    "-l 3 -n 100",
];

pub(super) fn all() -> Vec<Row> {
    let mut all = vec![
        alone("ibv_devices", "", "ferroce_eth0"),
        alone("ibv_devinfo", "", "PORT_ACTIVE"),
        alone("ibv_devinfo", "-l", "ferroce_eth0"),
        alone("ibv_devinfo", "-v", "GID[  0]"),
        alone("ibv_devinfo", "-d DEVICE", "hca_id:\tferroce_eth0"),
        alone("ibv_devinfo", "-d DEVICE -i 1", "link_layer:\t\tEthernet"),
        alone("ibv_asyncwatch", "-h", "start an asyncwatch process"),
        own("ibv_asyncwatch", "", watched),
        own("ibv_asyncwatch", "-d DEVICE", watched),
    ];
    for program in &PING_PONGS {
        let options = COMMON.iter().chain(program.4);
        all.extend(options.map(|options| ping_pong(program, "-g 0", options)));
        // The IPv6 address.
        all.push(ping_pong(program, "-g 1", "-c -n 100"));
    }
    for options in [
        "",
        "-e",
        "-s 100",
        "-s 100000 -m 1024",
        "-n 100",
        "-p 20001",
        "-l 3",
        "-d DEVICE -i 1",
    ] {
        all.push(shared(options, ""));
    }
    all.push(shared("", "-c 1"));
    for (options, clients) in [("", 2), ("-e", 2), ("-s 100000 -m 1024", 2), ("-n 100", 5)] {
        let mut row = shared(options, &format!("-c {clients}"));
        row.sides = Sides::Clients(PORT, clients);
        all.push(row);
    }
    all
}

fn ping_pong(program: &PingPong, gid: &str, options: &str) -> Row {
    let &PingPong(name, transport, bytes, rounds, _) = program;
    let words: Vec<&str> = options.split_whitespace().collect();
    let value = |option: &str| -> Option<u64> {
        let at = words.iter().position(|&word| word == option)?;
        words.get(at + 1)?.parse().ok()
    };
    // A datagram's default is 2048 bytes, more than a packet on a link of 1500 takes.
    let size = if transport == "UD" && value("-s").is_none() {
        " -s 1024"
    } else {
        ""
    };
    let server = format!("{gid} {options}{size}").replace("  ", " ");
    let client = format!("{server} SERVER");
    let rounds = value("-n").unwrap_or(rounds);
    let check = Check::PingPong {
        bytes: value("-s").unwrap_or(bytes) * rounds * 2,
        rounds,
    };
    let port = value("-p").map_or(PORT, |port| u16::try_from(port).unwrap_or(PORT));
    let options = Options {
        server: server.trim(),
        client: &client,
    };
    pair(name, options, Sides::Tcp(port), check).over(transport)
}

/// `ibv_xsrq_pingpong`, which prints nothing but errors: its status is its report.
fn shared(options: &str, of_server: &str) -> Row {
    let port = if options.contains("-p") { 20001 } else { PORT };
    let one_space = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let server = one_space(format!("-g 0 {options} {of_server}"));
    let client = one_space(format!("-g 0 {options} SERVER"));
    let options = Options {
        server: &server,
        client: &client,
    };
    let check = Check::Says("", "");
    pair("ibv_xsrq_pingpong", options, Sides::Tcp(port), check).over("XRC")
}

fn own(program: &'static str, options: &str, body: fn(&Stage, &Row) -> Outcome) -> Row {
    Row {
        sides: Sides::Own(body),
        ..alone(program, options, "")
    }
}

/// The port goes down and comes up again while the program watches.
fn watched(stage: &Stage, row: &Row) -> Outcome {
    let mut watcher = run::start(stage, Side::A, row.program, &row.server)?;
    watcher.says("async event FD")?;
    stage.net.shell(Side::A, "ip link set eth0 down")?;
    watcher.says("event_type IBV_EVENT_PORT_ERR (10), port 1")?;
    stage.net.shell(Side::A, "ip link set eth0 up")?;
    watcher.says("event_type IBV_EVENT_PORT_ACTIVE (9), port 1")
}
