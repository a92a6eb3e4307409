//! The matrix: programs of ibverbs-utils, rdmacm-utils and perftest on either side, beside the tests of `cases`.

use std::time::Duration;

use super::cases::{
    Case, IPV4, IPV6, Outcome, Ready, Server, both, outcome_of_pingpong, roles, start,
};
use super::harness::Guest;

/// Drops some of what we send, in a way that can be repeated.
const LOSS: &str = "FERROCE_FAULT=drop=2%,seed=7";
/// The port of ucmatose, rdma_server and cmtime.
const CM: u16 = 7471;
/// The port of rping and udaddy.
const CM_OTHER: u16 = 7174;

/// Ping-pongs with their checks of every byte.
const PING_PONGS: [&[&str]; 4] = [
    &["ibv_uc_pingpong", "-n", "20", "-c", "-e"],
    &["ibv_ud_pingpong", "-n", "20", "-c", "-e", "-s", "1024"],
    &["ibv_srq_pingpong", "-n", "50", "-c", "-e", "-q", "4"],
    &[
        "ibv_uc_pingpong",
        "-n",
        "20",
        "-c",
        "-e",
        "-s",
        "20000",
        "-m",
        "1024",
    ],
];

/// perftest beside the four programs of the other file. The retry timeout is a second, for the emulated processor.
const PERFTEST: [&[&str]; 7] = [
    &["ib_send_lat", "-u", "18"],
    &["ib_write_lat", "-u", "18"],
    &["ib_read_lat", "-u", "18"],
    &["ib_atomic_lat", "-u", "18"],
    &["ib_send_lat", "-c", "UD"],
    &["ib_send_lat", "-c", "UC"],
    &["ib_write_lat", "-c", "UC"],
];

/// Programs of the connection manager: the server's words, the client's, and its port. `AT` is the server's address.
type Managed = (&'static str, &'static str, u16);
const MANAGED: [Managed; 5] = [
    ("ucmatose -b AT -C 5", "ucmatose -s AT -C 5", CM),
    (
        "ucmatose -b AT -c 4 -S 9000",
        "ucmatose -s AT -c 4 -S 9000",
        CM,
    ),
    ("udaddy -b AT -C 5", "udaddy -s AT -C 5", CM_OTHER),
    ("rdma_server -s AT", "rdma_client -s AT", CM),
    ("cmtime -b AT", "cmtime -s AT -c 10", CM),
];

/// All of the matrix.
pub(super) fn all() -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |name: String, body: Box<dyn Fn(&Guest) -> Outcome>| {
        let limit = Duration::from_secs(60);
        all.push(Case { name, limit, body });
    };
    for (server, which) in [
        (Server::Here, "server-here"),
        (Server::There, "server-there"),
    ] {
        for (ips, version) in [(IPV4, "ipv4"), (IPV6, "ipv6")] {
            for words in PING_PONGS {
                let name = format!("matrix.{}.{version}.{which}", words.join("_"));
                let body = move |guest: &Guest| outcome_of_pingpong(guest, server, ips, words);
                add(name, Box::new(body));
            }
            for program in MANAGED {
                let name = program.1.replace(' ', "_");
                let body = move |guest: &Guest| managed(guest, server, ips, program);
                add(format!("matrix.{name}.{version}.{which}"), Box::new(body));
            }
        }
        for words in PERFTEST {
            let name = format!("matrix.{}.{which}", words.join("_"));
            let body = move |guest: &Guest| perftest(guest, server, words);
            add(name, Box::new(body));
        }
        for options in [["-C", "20"], ["-S", "20000"]] {
            let name = format!("matrix.loss.rping_{}.{which}", options.join("_"));
            let body = move |guest: &Guest| lossy(guest, server, &options);
            add(name, Box::new(body));
        }
        let body = move |guest: &Guest| mckey(guest, server);
        add(format!("matrix.mckey.{which}"), Box::new(body));
        for case in ["rejected", "wrong-rkey", "too-long"] {
            if case == "too-long" && server == Server::There {
                // The driver answers with NAK "remote operational error" where the specification has "invalid request".
                continue;
            }
            let body = move |guest: &Guest| refused(guest, server, case);
            add(format!("matrix.{case}.{which}"), Box::new(body));
        }
    }
    all
}

fn managed(guest: &Guest, server: Server, [ours, theirs]: [&str; 2], program: Managed) -> Outcome {
    let at = if server == Server::Here { ours } else { theirs };
    let serve = program.0.replace("AT", at);
    let call = program.1.replace("AT", at);
    let serve: Vec<&str> = serve.split(' ').collect();
    let call: Vec<&str> = call.split(' ').collect();
    let (here, there) = match server {
        Server::Here => (serve, call),
        Server::There => (call, serve),
    };
    let (mut here, mut there) = start(guest, server, &here, &there, Ready::Cm(program.2))?;
    if program.0.starts_with("cmtime") {
        // Its server goes on for ever.
        return match server {
            Server::Here => there.succeed(),
            Server::There => here.succeed(),
        };
    }
    both(server, (here, there))
}

fn perftest(guest: &Guest, server: Server, words: &[&str]) -> Outcome {
    let here = [words, &["-F", "-n", "20", "-x", "0"]].concat();
    let there = [words, &["-F", "-n", "20", "-x", "1"]].concat();
    let (here, there) = match server {
        Server::Here => (here, [&there[..], &[IPV4[0]]].concat()),
        Server::There => ([&here[..], &[IPV4[1]]].concat(), there),
    };
    both(
        server,
        start(guest, server, &here, &there, Ready::Tcp(18515))?,
    )
}

/// rping over a network that loses some of what we send.
fn lossy(guest: &Guest, server: Server, options: &[&str]) -> Outcome {
    let (at, [here_role, there_role]) = roles(server, IPV4);
    let here = [
        &["env", LOSS, "rping", here_role, "-a", at, "-V", "-C", "20"],
        options,
    ]
    .concat();
    let there = [&["rping", there_role, "-a", at, "-V", "-C", "20"], options].concat();
    let ready = Ready::Cm(CM_OTHER);
    both(server, start(guest, server, &here, &there, ready)?)
}

/// The receiver joins first; the sender's datagrams come through the group.
fn mckey(guest: &Guest, receiver: Server) -> Outcome {
    let group = "239.77.1.2";
    let here = [
        "stdbuf", "-oL", "mckey", "-m", group, "-b", IPV4[0], "-C", "5",
    ];
    let there = ["mckey", "-m", group, "-b", IPV4[1], "-C", "5"];
    if receiver == Server::Here {
        let mut receiver = guest.here(&here)?;
        receiver.says("receiving data transfers")?;
        guest.there(&[&there[..], &["-s"]].concat())?.succeed()?;
        receiver.succeed()
    } else {
        let mut receiver = guest.there(&there)?;
        // The last bytes of the group's Ethernet address.
        guest.until("joined", "grep -q 4d0102 /proc/net/dev_mcast")?;
        guest.here(&[&here[..], &["-s"]].concat())?.succeed()?;
        receiver.succeed()
    }
}

/// A kind of failure that both sides of `tests/c/failures.c` must be told in the same way.
fn refused(guest: &Guest, server: Server, case: &str) -> Outcome {
    const LINE: &str = "listening on port ";
    let (here, there) = (guest.built("failures"), guest.share("failures")?);
    let mut serving = match server {
        Server::Here => guest.here(&[&here, "server", case])?,
        Server::There => guest.there(&[&there, "server", case])?,
    };
    serving.says(LINE)?;
    let output = serving.output();
    let port = output.lines().find_map(|line| line.strip_prefix(LINE));
    let port = port.ok_or("no port")?;
    let mut calling = match server {
        Server::Here => guest.there(&[&there, "client", case, IPV4[0], port])?,
        Server::There => guest.here(&[&here, "client", case, IPV4[1], port])?,
    };
    calling.succeed()?;
    serving.succeed()
}
