//! `ferroce run --sockets`: programs on sockets, in Python, which know nothing of it.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::contains;
use crate::system::stage::Launch;
use crate::system::{Catalogue, Outcome, Place, Process, Side, Stage, USERS, User};

const SCRIPT: &str = include_str!("sockets.py");
/// How long `connect` waits for the server, in microseconds.
const WAIT: &str = "FERROCE_SOCKETS_WAIT";
/// How long connections stay on TCP after short ones, in milliseconds.
const REST: &str = "FERROCE_SOCKETS_REST";
/// So long that a server that accepts through the library is never late.
const PATIENT: &str = "30000000";

pub(super) fn add(all: &mut Catalogue) {
    for user in USERS {
        all.at("sockets.exchange", Place::Loopback, user, 60, exchange);
    }
    let user = User::Ordinary;
    all.at("sockets.exchange", Place::OneSpace, user, 60, exchange);
    all.at("sockets.two-hosts", Place::Wire(1500), user, 60, two_hosts);
    let place = Place::Loopback;
    all.at("sockets.plain-peers", place, user, 60, plain_peers);
    all.at("sockets.stranger", place, user, 60, stranger);
    all.at("sockets.raw-accept", place, user, 60, raw_accept);
    all.at("sockets.stopped", place, user, 60, stopped);
    all.at("sockets.killed", place, user, 60, killed);
    all.at("sockets.many", place, user, 300, many);
    all.at("sockets.many-programs", place, user, 300, many_programs);
    all.at("sockets.off", place, user, 60, off);
    all.at("sockets.few-files", place, user, 60, few_files);
}

/// The words of a program of the script.
fn words<'w>(stage: &Stage, what: &'w [&'w str]) -> Vec<&'w str> {
    let mut words = vec!["/usr/bin/python3", "-c", SCRIPT, what[0], stage.ipv4()];
    words.extend(&what[1..]);
    words
}

/// A program of the script under `ferroce run --sockets`.
fn program<'s>(stage: &'s Stage, side: Side, what: &[&str]) -> Launch<'s> {
    let mut launch = stage.with_option(side, "--sockets", &words(stage, what));
    launch.label(what[0]).env(WAIT, PATIENT).env(REST, "0");
    launch
}

/// The same without Ferroce.
fn plain<'s>(stage: &'s Stage, side: Side, what: &[&str]) -> Launch<'s> {
    let mut launch = stage.bare(side, &words(stage, what));
    launch.label(what[0]);
    launch
}

fn served(launch: &Launch<'_>) -> Result<Process, String> {
    let mut server = launch.start()?;
    server.says("listens")?;
    Ok(server)
}

/// Runs a client to its end, and wants it to say this.
fn tells(launch: &Launch<'_>, text: &str) -> Outcome {
    let mut client = launch.start()?;
    client.succeed()?;
    contains(&client.output(), text)
}

/// All bytes come back over streams, and `ferroce sockets` shows them.
fn exchange(stage: &Stage) -> Outcome {
    let server = served(&program(stage, Side::A, &["serve"]))?;
    tells(
        &program(stage, Side::B, &["call", "30"]),
        "tcp 0 streams 30",
    )?;
    let mut open = program(stage, Side::B, &["until-end"]).start()?;
    open.says("connected True")?;
    let mut list = stage
        .bare(Side::B, &[&stage.built("ferroce"), "sockets"])
        .start()?;
    list.succeed()?;
    let list = list.output();
    contains(&list, "carried by a stream")?;
    contains(&list, &format!(" -> {}:7700", stage.ipv4()))?;
    drop(server);
    open.succeed()
}

fn two_hosts(stage: &Stage) -> Outcome {
    let _server = served(&program(stage, Side::A, &["serve"]))?;
    tells(
        &program(stage, Side::B, &["call", "10"]),
        "tcp 10 streams 0",
    )
}

/// One end without Ferroce.
fn plain_peers(stage: &Stage) -> Outcome {
    let server = served(&program(stage, Side::A, &["serve"]))?;
    tells(&plain(stage, Side::B, &["call", "10"]), "tcp 10 streams 0")?;
    drop(server);
    let _server = served(&plain(stage, Side::A, &["serve"]))?;
    tells(
        &program(stage, Side::B, &["call", "10"]),
        "tcp 10 streams 0",
    )
}

/// Another user's client gets no stream.
fn stranger(stage: &Stage) -> Outcome {
    let _server = served(&program(stage, Side::A, &["serve"]))?;
    let mut client = program(stage, Side::B, &["call", "10"]);
    tells(client.user(User::Second), "tcp 10 streams 0")
}

/// A server that accepts where no library sees it.
fn raw_accept(stage: &Stage) -> Outcome {
    let _server = served(&program(stage, Side::A, &["serve-raw"]))?;
    let mut client = program(stage, Side::B, &["call", "20"]);
    tells(client.env(WAIT, "2000"), "tcp 20 streams 0")
}

/// A server that is stopped: the client's connection is TCP, and works when the server goes on.
fn stopped(stage: &Stage) -> Outcome {
    let server = served(&program(stage, Side::A, &["serve"]))?;
    server.signal(Signal::SIGSTOP)?;
    let mut client = program(stage, Side::B, &["stopped"]);
    let mut client = client
        .env(WAIT, "2000")
        .within(Duration::from_secs(30))
        .start()?;
    client.says("connected False")?;
    server.signal(Signal::SIGCONT)?;
    client.succeed()
}

/// The end of a server that is killed is seen.
fn killed(stage: &Stage) -> Outcome {
    let server = served(&program(stage, Side::A, &["serve"]))?;
    let mut client = program(stage, Side::B, &["until-end"]).start()?;
    client.says("connected True")?;
    server.signal(Signal::SIGKILL)?;
    client.succeed()
}

/// A limit of open files that an ordinary user's programs can have, and the streams that it allows:
/// about a tenth of it.
const FILES: &str = "20000";
const STREAMS: std::ops::RangeInclusive<u32> = 1800..=1875;

/// 10,000 connections of one program at a time: those beyond the limit's tenth stay on TCP.
fn many(stage: &Stage) -> Outcome {
    let _server = served(&limited(stage, Side::A, FILES, &["serve"]))?;
    let mut client = limited(stage, Side::B, FILES, &["many", "10000"]).start()?;
    client.succeed()?;
    let output = client.output();
    let words: Vec<&str> = output.split_whitespace().collect();
    let number = |word: &str| word.parse::<u32>().map_err(|e| format!("{output}: {e}"));
    let ["tcp", tcp, "streams", streams] = words[..] else {
        return Err(format!("not counted: {output}"));
    };
    let (tcp, streams) = (number(tcp)?, number(streams)?);
    if tcp + streams == 10_000 && STREAMS.contains(&streams) {
        return Ok(());
    }
    Err(format!("{tcp} on TCP and {streams} streams"))
}

/// 10,200 streams at a time, of six servers and their clients.
fn many_programs(stage: &Stage) -> Outcome {
    let ports = ["7700", "7701", "7702", "7703", "7704", "7705"];
    let start = |side, port: &str, what: &[&str]| {
        let mut launch = limited(stage, side, FILES, what);
        launch.env("PORT", port).start()
    };
    let servers = ports.map(|port| start(Side::A, port, &["serve"]));
    let mut servers: Vec<Process> = servers.into_iter().collect::<Result<_, _>>()?;
    for server in &mut servers {
        server.says("listens")?;
    }
    let clients = ports.map(|port| start(Side::B, port, &["many-until-signal", "1700"]));
    let mut clients: Vec<Process> = clients.into_iter().collect::<Result<_, _>>()?;
    for client in &mut clients {
        client.says("tcp 0 streams 1700")?;
    }
    // All of them are connected still.
    for client in &mut clients {
        client.signal(Signal::SIGTERM)?;
        client.killed_by(Signal::SIGTERM)?;
    }
    Ok(())
}

/// The library with `FERROCE_SOCKETS=off`: everything stays on TCP, and works.
fn off(stage: &Stage) -> Outcome {
    let program = |side, what: &[&str]| {
        let mut launch = program(stage, side, what);
        launch.env("FERROCE_SOCKETS", "off");
        launch
    };
    let server = served(&program(Side::A, &["serve"]))?;
    tells(&program(Side::B, &["call", "30"]), "tcp 30 streams 0")?;
    tells(&program(Side::B, &["many", "200"]), "tcp 200 streams 0")?;
    let mut client = program(Side::B, &["until-end"]).start()?;
    client.says("connected False")?;
    server.signal(Signal::SIGSTOP)?;
    server.signal(Signal::SIGCONT)?;
    server.signal(Signal::SIGKILL)?;
    client.succeed()
}

/// A limit of open files that the program itself nearly reaches.
fn few_files(stage: &Stage) -> Outcome {
    let under = |side, what: &[&str]| limited(stage, side, "256", what);
    let _server = served(&under(Side::A, &["serve"]))?;
    tells(&under(Side::B, &["many", "200"]), "streams")
}

fn limited<'s>(stage: &'s Stage, side: Side, files: &str, what: &[&str]) -> Launch<'s> {
    let shell = format!("ulimit -n {files} && exec \"$@\"");
    let all = [&["sh", "-c", &shell, "sh"], &words(stage, what)[..]].concat();
    let mut launch = stage.with_option(side, "--sockets", &all);
    launch.label(what[0]).env(WAIT, PATIENT).env(REST, "0");
    launch
}
