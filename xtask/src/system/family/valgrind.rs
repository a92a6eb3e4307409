//! Programs under valgrind: no error, and no memory that nothing refers to any more, on either
//! side.
//!
//! All C programs of `tests/c`, and one program of each kind that Debian ships. With few rounds:
//! valgrind is some fifty times slower, and runs one thread at a time.

use super::{Ready, contains, network, pair, programs};
use crate::system::{Catalogue, Outcome, Place, Side, Stage, User, xrc_file};

/// How valgrind is asked. Errors and losses make the program end with 99.
const VALGRIND: [&str; 6] = [
    "valgrind",
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--show-leak-kinds=definite",
    "--errors-for-leak-kinds=definite",
];

/// For programs that send bytes which they never wrote: padding of a structure, a fresh buffer. The
/// device copies those, adds them up and gives them to the kernel, as it must, and valgrind would
/// blame it. What they do is done by the other programs too.
const VALGRIND_UNWRITTEN: [&str; 7] = [
    VALGRIND[0],
    VALGRIND[1],
    VALGRIND[2],
    VALGRIND[3],
    VALGRIND[4],
    VALGRIND[5],
    "--undef-value-errors=no",
];

/// Programs that send such bytes.
const UNWRITTEN: [&str; 5] = ["read-write", "file-transfer", "ucmatose", "udaddy", "mckey"];

fn judge(program: &str) -> &'static [&'static str] {
    if UNWRITTEN.contains(&program) {
        &VALGRIND_UNWRITTEN
    } else {
        &VALGRIND
    }
}

/// Time for a test: the programs' own deadlines are shorter.
const SECONDS: u64 = 120;

/// C programs that are both sides at once. SERVER is an address.
const ALONE: [(&str, &[&str]); 7] = [
    ("cycles", &["verbs", "50"]),
    ("cycles", &["cm", "50"]),
    ("unsupported", &[]),
    ("cm-rules", &["SERVER"]),
    ("cm-datagram", &["SERVER", "239.77.1.2"]),
    ("multicast", &["rules", "ferroce_eth0"]),
    ("failures", &["absent", "SERVER"]),
];

/// C programs with a server for clients: program, options of both, arguments of the client, how
/// many clients.
const SERVED: [(&str, &[&str], &[&str], usize); 5] = [
    ("client-server", &[], &[], 2),
    ("read-write", &[], &[], 1),
    ("read-write", &["-r"], &[], 1),
    ("file-transfer", &[], &["200001", "4096"], 1),
    ("epoll", &[], &["200"], 2),
];

/// Ping-pongs of ibverbs-utils, with what only some of them have. Not `-e` with `-t`: then the
/// program arms its queue, takes all that is there, and ends with "poll CQ failed 2" at an event
/// for what it took already; the slower it runs, the surer.
const PING_PONGS: [(&str, &[&str]); 7] = [
    ("ibv_rc_pingpong", &["-c"]),
    ("ibv_rc_pingpong", &["-e", "-N", "-s", "20000"]),
    ("ibv_rc_pingpong", &["-N", "-t", "-s", "20000"]),
    ("ibv_uc_pingpong", &["-c", "-e"]),
    ("ibv_ud_pingpong", &["-c", "-e"]),
    ("ibv_srq_pingpong", &["-c", "-e", "-q", "3"]),
    ("ibv_xsrq_pingpong", &["-e"]),
];

/// Programs of rdmacm-utils: name, port, options of both sides, of the server, of the client.
type Connection = (
    &'static str,
    u16,
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);
const CONNECTIONS: [Connection; 5] = [
    (
        "rping",
        7174,
        &["-V", "-C", "10", "-a", "SERVER"],
        &["-s"],
        &["-c"],
    ),
    (
        "ucmatose",
        7471,
        &["-c", "3", "-C", "5"],
        &["-b", "SERVER"],
        &["-s", "SERVER"],
    ),
    (
        "udaddy",
        7174,
        &["-c", "3", "-C", "5"],
        &["-b", "SERVER"],
        &["-s", "SERVER"],
    ),
    ("cmtime", 7471, &["-c", "5"], &[], &["-s", "SERVER"]),
    ("rdma_server", 7471, &[], &[], &["-s", "SERVER"]),
];

pub(super) fn add(all: &mut Catalogue) {
    let mut add = |name: String, body: Box<dyn Fn(&Stage) -> Outcome + Send + Sync>| {
        let program = name.split('.').next().unwrap_or_default();
        let judge = judge(program);
        let watched = move |stage: &Stage| {
            stage.watched_by(judge);
            body(stage)
        };
        let name = format!("valgrind.{name}");
        all.at(&name, Place::OneSpace, User::Ordinary, SECONDS, watched);
    };
    for (program, words) in ALONE {
        let name = [&[program], words].concat().join(".");
        add(name, Box::new(move |stage| alone(stage, program, words)));
    }
    for (program, options, arguments, clients) in SERVED {
        let name = [&[program], options].concat().join(".");
        let body = move |stage: &Stage| {
            programs::served(stage, program, options, stage.ipv4(), arguments, clients)
        };
        add(name, Box::new(body));
    }
    add(
        "operations".into(),
        Box::new(|stage| programs::one_each(stage, "operations", &[], stage.ipv4())),
    );
    // Valgrind keeps freed memory, so the case that watches its own size is left to `memory`.
    for case in programs::PAIRED.into_iter().filter(|&c| c != "cycles") {
        let body = move |stage: &Stage| programs::failure(stage, case);
        add(format!("failures.{case}"), Box::new(body));
    }
    for case in ["killed-server", "killed-client"] {
        let body = move |stage: &Stage| programs::killed(stage, case);
        add(format!("failures.{case}"), Box::new(body));
    }
    for (program, options) in PING_PONGS {
        let name = [&[program], options].concat().join(".");
        add(
            name,
            Box::new(move |stage| ping_pong(stage, program, options)),
        );
    }
    for connection in CONNECTIONS {
        add(
            connection.0.into(),
            Box::new(move |stage| connect(stage, connection)),
        );
    }
    add("mckey".into(), Box::new(group));
    add("port-events".into(), Box::new(network::interface));
    let plain = |stage: &Stage| {
        stage.watched_by(&VALGRIND);
        ping_pong(stage, "ibv_rc_pingpong", &["-c"])
    };
    let (place, user) = (Place::Wire(1500), User::Ordinary);
    all.at("valgrind.ibv_rc_pingpong", place, user, SECONDS, plain);
}

/// Words with the server's address in its place.
fn filled_in<'s>(stage: &'s Stage, words: &[&'s str]) -> Vec<&'s str> {
    let address = |&word| if word == "SERVER" { stage.ipv4() } else { word };
    words.iter().map(address).collect()
}

fn alone(stage: &Stage, program: &str, words: &[&'static str]) -> Outcome {
    let program = stage.built(program);
    let words = [vec![&*program], filled_in(stage, words)].concat();
    stage.run(Side::A, &words).map(drop)
}

fn ping_pong(stage: &Stage, program: &str, options: &[&str]) -> Outcome {
    let _file = xrc_file::anew_for([program]);
    let server = [&[program, "-g", "0", "-n", "20"], options].concat();
    let client = [&server[..], &[stage.ipv4()]].concat();
    pair(stage, Ready::Tcp(18515), &server, &client).map(drop)
}

fn connect(stage: &Stage, (program, port, both, server, client): Connection) -> Outcome {
    let words = |own| filled_in(stage, &[both, own].concat());
    let other = if program == "rdma_server" {
        "rdma_client"
    } else {
        program
    };
    let (server, client) = (words(server), words(client));
    let server = [vec![program], server].concat();
    let client = [vec![other], client].concat();
    if program != "cmtime" {
        return pair(stage, Ready::Cm(port), &server, &client).map(drop);
    }
    // Its server never ends by itself.
    let mut server = stage.start(Side::A, &server)?;
    server.listens_on_cm(port)?;
    stage.run(Side::B, &client).map(drop)
}

/// The receiver has joined when it says so.
fn group(stage: &Stage) -> Outcome {
    stage.watched_by(&[]);
    let line_by_line = [&["stdbuf", "-oL"], judge("mckey")].concat();
    let mckey = ["mckey", "-m", "239.1.2.3", "-b", stage.ipv4(), "-C", "5"];
    let words = [&line_by_line[..], &mckey].concat();
    let mut receiver = stage.start(Side::A, &words)?;
    receiver.says("receiving data transfers")?;
    let mut sender = stage.start(Side::B, &[&words[..], &["-s"]].concat())?;
    sender.succeed()?;
    receiver.succeed()?;
    contains(&receiver.output(), "return status 0")
}
