//! What goes wrong outside: nobody there, peers killed in mid-transfer.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::{Ready, contains, pair};
use crate::system::{Catalogue, Outcome, PLACES, Place, Process, Side, Stage, USERS, User};

const PORT: Ready = Ready::Cm(7174);

pub(super) fn add(all: &mut Catalogue) {
    all.everywhere("absent.no-listener", 30, no_listener);
    for place in PLACES {
        // Over a wire it takes the connection manager more than a minute to give up: once is
        // enough.
        if place != Place::Wire(9000) {
            all.at("absent.no-process", place, User::Ordinary, 120, nobody);
        }
        all.at("absent.no-host", place, User::Ordinary, 30, no_host);
        if matches!(place, Place::Wire(_)) {
            all.at("absent.neighbour", place, User::Ordinary, 30, no_neighbour);
        }
    }
    // Over a wire a process that dies looks like a host that dies: only a process with work
    // under way is told, and rping may have none.
    for place in [Place::Loopback, Place::OneSpace] {
        for user in USERS {
            all.at("killed.server", place, user, 60, |stage| {
                killed(stage, Victim::Server)
            });
            all.at("killed.client", place, user, 60, |stage| {
                killed(stage, Victim::Client)
            });
        }
    }
    all.everywhere("killed.while-listening", 30, while_listening);
    all.everywhere("killed.write-target", 60, write_target);
    all.everywhere("port.in-use", 20, port_in_use);
}

fn client(stage: &Stage, address: &str) -> Result<Process, String> {
    stage.start(Side::B, &["rping", "-c", "-a", address, "-C", "10"])
}

/// A transfer between new processes on the same port, at once.
fn works(stage: &Stage) -> Outcome {
    let address = stage.ipv4();
    let server = ["rping", "-s", "-a", address, "-C", "10", "-V"];
    pair(
        stage,
        PORT,
        &server,
        &["rping", "-c", "-a", address, "-C", "10", "-V"],
    )
    .map(drop)
}

/// Another port is served: the connection is refused, and soon.
fn no_listener(stage: &Stage) -> Outcome {
    let mut server = stage.start(
        Side::A,
        &["rping", "-s", "-P", "-p", "9999", "-a", stage.ipv4()],
    )?;
    Ready::Cm(9999).wait(&mut server)?;
    let mut client = stage
        .program(Side::B, &["rping", "-c", "-a", stage.ipv4(), "-C", "1"])
        .within(Duration::from_secs(10))
        .start()?;
    client.refuse()?;
    works(stage)
}

/// The host is there, and no program that speaks RDMA on it.
fn nobody(stage: &Stage) -> Outcome {
    client(stage, stage.ipv4())?.refuse()?;
    works(stage)
}

/// Nobody has the address.
fn no_host(stage: &Stage) -> Outcome {
    client(stage, "10.99.0.77")?.refuse()?;
    works(stage)
}

/// Nobody has the address, and it would be on the local network: that is told within the time of
/// the call, as by the kernel.
fn no_neighbour(stage: &Stage) -> Outcome {
    let mut client = client(stage, "10.99.0.77")?;
    client.refuse()?;
    contains(&client.output(), "RDMA_CM_EVENT_ADDR_ERROR, error -110")
}

#[derive(Clone, Copy)]
enum Victim {
    Server,
    Client,
}

/// One side dies in mid-transfer: the other ends by itself, and the port can be used again at once.
fn killed(stage: &Stage, victim: Victim) -> Outcome {
    let address = stage.ipv4();
    let endless = ["-C", "10000000", "-S", "4096", "-v"];
    let mut server = stage.start(
        Side::A,
        &[&["rping", "-s", "-a", address], &endless[..]].concat(),
    )?;
    PORT.wait(&mut server)?;
    let mut client = stage.start(
        Side::B,
        &[&["rping", "-c", "-a", address], &endless[..]].concat(),
    )?;
    for process in [&mut server, &mut client] {
        process.until("pinged 50 times", |p| p.output().lines().count() > 50)?;
    }
    let (dead, mut alive) = match victim {
        Victim::Server => (server, client),
        Victim::Client => (client, server),
    };
    dead.signal(Signal::SIGKILL)?;
    // rping's server takes a lost client for a normal end.
    let told = alive.end();
    for process in [&dead, &alive] {
        shorten(process)?;
    }
    told?;
    works(stage)
}

/// rping fills the disk with what it prints; the last lines tell enough.
pub(super) fn shorten(process: &Process) -> Outcome {
    let output = process.output();
    let lines: Vec<&str> = output
        .lines()
        .filter(|line| !line.contains("ping data: rdma-ping"))
        .collect();
    std::fs::write(&process.log, lines.join("\n")).map_err(|e| e.to_string())
}

/// A server that is killed leaves a port that the next one gets.
fn while_listening(stage: &Stage) -> Outcome {
    for _ in 0..3 {
        let mut server = stage.start(Side::A, &["rping", "-s", "-a", stage.ipv4()])?;
        PORT.wait(&mut server)?;
        server.signal(Signal::SIGKILL)?;
        server.killed_by(Signal::SIGKILL)?;
    }
    works(stage)
}

/// The target of WRITEs dies: the writer's work completes in error, as with a NIC whose peer is
/// gone.
fn write_target(stage: &Stage) -> Outcome {
    // Line by line: the test waits for what it prints.
    let server = ["stdbuf", "-oL", "ib_write_bw", "-F", "-D", "30"];
    let mut target = stage.start(Side::A, &server)?;
    target.listens_on_tcp(18515)?;
    let mut writer = stage.start(Side::B, &[&server[..], &[stage.ipv4()]].concat())?;
    writer.says("remote address")?;
    writer.says("#bytes")?;
    target.signal(Signal::SIGKILL)?;
    writer.refuse()?;
    contains(&writer.output(), "Failed status 12:")?;
    works(stage)
}

/// Two servers cannot have one port.
fn port_in_use(stage: &Stage) -> Outcome {
    let words = ["rping", "-s", "-P", "-a", stage.ipv4()];
    let mut first = stage.start(Side::A, &words)?;
    PORT.wait(&mut first)?;
    let mut second = stage.start(Side::A, &words)?;
    second.refuse()
}
