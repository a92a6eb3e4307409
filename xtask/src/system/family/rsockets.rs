//! Rsockets over the second wire, between two processes of Ferroce; and librdmacm's own preload,
//! which puts programs on rsockets.

use super::iwarp::pair;
use super::{Ready, contains};
use crate::system::copied::compared;
use crate::system::{Catalogue, Outcome, Place, Side, Stage, User};

/// Over TCP.
const WIRE: &str = "--wire=iwarp";
/// The port of rstream and riostream, and that of rcopy.
const PORT: u16 = 7471;
const RCOPY: u16 = 7427;
const IPERF3: u16 = 5201;
const PLACES: [Place; 2] = [Place::OneSpace, Place::Wire(1500)];

/// Names and options of both sides; the bytes are verified.
const ROWS: [(&str, &str, &str); 7] = [
    ("rstream.nonblocking", "rstream", "-C 10 -I 10 -S 5000 -T v"),
    ("rstream.polled", "rstream", "-C 10 -I 10 -S 5000 -T a -T v"),
    (
        "rstream.blocking",
        "rstream",
        "-C 10 -I 2 -S 1000000 -T b -T v",
    ),
    (
        "rstream.small",
        "rstream",
        "-C 20 -I 2 -S 1000000 -B 16384 -i 0 -T v",
    ),
    ("rstream.keepalive", "rstream", "-C 2000 -I 1 -S 64 -k 1"),
    (
        "riostream.nonblocking",
        "riostream",
        "-C 10 -I 10 -S 5000 -T v",
    ),
    (
        "riostream.blocking",
        "riostream",
        "-C 10 -I 10 -S 5000 -T b -T v",
    ),
];

pub(super) fn add(all: &mut Catalogue) {
    let user = User::Ordinary;
    for place in PLACES {
        for (name, program, options) in ROWS {
            let name = format!("rsockets.iwarp.{name}");
            all.at(&name, place, user, 60, move |stage| {
                stream(stage, program, options)
            });
        }
        all.at("rsockets.iwarp.rcopy", place, user, 60, copied);
        for (name, mode) in [("nonblocking", "n"), ("polled", "a"), ("blocking", "b")] {
            let name = format!("rsockets.preload.rstream.{name}");
            all.at(&name, place, user, 60, move |stage| {
                preloaded_rstream(stage, mode)
            });
        }
        all.at("rsockets.preload.iperf3", place, user, 60, preloaded_iperf3);
    }
    for (name, ip) in [
        ("ipv4", Stage::ipv4 as fn(&Stage) -> &'static str),
        ("ipv6", Stage::ipv6),
    ] {
        let name = format!("rsockets.iwarp.c.{name}");
        all.at(&name, Place::OneSpace, user, 60, move |stage| {
            let words = [&*stage.built("rsockets"), ip(stage)];
            let mut launch = stage.with_option(Side::A, WIRE, &words);
            launch.label("rsockets").start()?.succeed()
        });
    }
}

fn stream(stage: &Stage, program: &str, options: &str) -> Outcome {
    let server: Vec<&str> = [program]
        .into_iter()
        .chain(options.split_whitespace())
        .collect();
    let client = [&server[..], &["-s", stage.ipv4()]].concat();
    contains(&pair(stage, PORT, &server, &client)?, "custom")
}

/// A file, whose bytes are compared.
fn copied(stage: &Stage) -> Outcome {
    compared(|from, to| {
        let mut server = stage.with_option(Side::A, WIRE, &["rcopy"]).start()?;
        Ready::Tcp(RCOPY).wait(&mut server)?;
        let words = ["rcopy", from, &format!("{}:{to}", stage.ipv4())];
        stage.with_option(Side::B, WIRE, &words).start()?.succeed()
    })
}

/// A program that knows the kernel's sockets only: librdmacm's preload puts it on rsockets. Our
/// library's own calls must not come back into the preload.
fn preloaded(stage: &Stage, port: u16, server: &[&str], client: &[&str]) -> Outcome {
    let architecture = std::env::consts::ARCH;
    let library = format!("/usr/lib/{architecture}-linux-gnu/rsocket/librspreload.so.1");
    let start = |side, words: &[&str]| {
        let mut launch = stage.program(side, words);
        let launch = launch.env("LD_PRELOAD", &library);
        launch.env("FERROCE_SUMMARY", "1").start()
    };
    let mut server = start(Side::A, server)?;
    server.listens_on_cm(port)?;
    let mut client = start(Side::B, client)?;
    client.succeed()?;
    server.succeed()?;
    contains(&client.output(), " queue_pairs=")
}

fn preloaded_rstream(stage: &Stage, mode: &str) -> Outcome {
    let options = "-T s -T v -C 10 -I 10 -S 5000 -T";
    let words: Vec<&str> = options.split(' ').collect();
    let server = [&["rstream"], &words[..], &[mode]].concat();
    let client = [&server[..], &["-s", stage.ipv4()]].concat();
    preloaded(stage, PORT, &server, &client)
}

fn preloaded_iperf3(stage: &Stage) -> Outcome {
    let server = ["iperf3", "-s", "-1"];
    let client = ["iperf3", "-4", "-c", stage.ipv4(), "-n", "200M"];
    preloaded(stage, IPERF3, &server, &client)
}
