//! The second wire: programs over iWARP (`ferroce run --wire iwarp`), within a namespace and
//! between two.

use nix::sys::signal::Signal;

use super::failure::shorten;
use super::perftest::measured;
use super::{Ready, contains};
use crate::system::{Catalogue, Outcome, Place, Side, Stage, User};

/// Over TCP.
pub(super) const WIRE: &str = "--wire=iwarp";
const PLACES: [Place; 3] = [Place::OneSpace, Place::Wire(1500), Place::Wire(9000)];
const PERFTEST: u16 = 18515;
pub(super) const RPING: u16 = 7174;
const UCMATOSE: u16 = 7471;

/// Names, places and words of perftest. All of it is run within a namespace. Of the places between
/// two, each has the messages that it cuts into other segments.
const PERFTEST_ROWS: &[(&str, &[Place], &[&str])] = {
    const HERE: &[Place] = &[Place::OneSpace];
    &[
        (
            "ib_send_bw",
            &[Place::OneSpace, Place::Wire(9000)],
            &["ib_send_bw", "-n", "1000"],
        ),
        (
            "ib_send_lat",
            &[Place::OneSpace, Place::Wire(1500)],
            &["ib_send_lat", "-n", "1000"],
        ),
        (
            "ib_send_lat.events",
            HERE,
            &["ib_send_lat", "-e", "-n", "500"],
        ),
        (
            "ib_write_bw",
            &[Place::OneSpace, Place::Wire(1500)],
            &["ib_write_bw", "-n", "500", "-q", "8"],
        ),
        ("ib_write_lat", HERE, &["ib_write_lat", "-n", "1000"]),
        (
            "ib_read_bw",
            &[Place::OneSpace, Place::Wire(1500), Place::Wire(9000)],
            &["ib_read_bw", "-n", "1000"],
        ),
        ("ib_read_lat", HERE, &["ib_read_lat", "-n", "1000"]),
        // Between two Ferroces there are atomics (RFC 7306).
        ("ib_atomic_lat", HERE, &["ib_atomic_lat", "-n", "500"]),
        // Its bandwidth test would send more than there are receives: with a shared receive queue
        // perftest counts no credits, and over iWARP a SEND without a receive ends the connection.
        (
            "ib_send_lat.shared",
            HERE,
            &["ib_send_lat", "-n", "500", "--use-srq"],
        ),
    ]
};

pub(super) fn add(all: &mut Catalogue) {
    for (name, places, words) in PERFTEST_ROWS {
        for place in *places {
            all.at(
                &format!("iwarp.{name}"),
                *place,
                User::Ordinary,
                60,
                |stage| {
                    let words = [*words, &["-F", "-R"]].concat();
                    let client = [&words[..], &[stage.ipv4()]].concat();
                    measured(&pair(stage, PERFTEST, &words, &client)?)
                },
            );
        }
    }
    for place in PLACES {
        let user = User::Ordinary;
        all.at("iwarp.rping.ipv4", place, user, 60, |stage| {
            rping(stage, stage.ipv4())
        });
        all.at("iwarp.rping.ipv6", place, user, 60, |stage| {
            rping(stage, stage.ipv6())
        });
        all.at("iwarp.ucmatose", place, user, 60, |stage| {
            let client = ["ucmatose", "-c", "20", "-C", "10", "-s", stage.ipv4()];
            let server = ["ucmatose", "-c", "20", "-C", "10"];
            contains(&pair(stage, UCMATOSE, &server, &client)?, "test complete")
        });
        all.at("iwarp.rdma_client", place, user, 60, |stage| {
            let client = ["rdma_client", "-s", stage.ipv4()];
            pair(stage, UCMATOSE, &["rdma_server"], &client).map(drop)
        });
    }
    for place in [Place::OneSpace, Place::Wire(1500)] {
        all.at("iwarp.killed", place, User::Ordinary, 60, killed);
    }
    all.at(
        "iwarp.port-taken",
        Place::OneSpace,
        User::Ordinary,
        60,
        port_taken,
    );
    all.at("iwarp.trace", Place::Wire(1500), User::Ordinary, 60, trace);
    all.at(
        "iwarp.devices",
        Place::OneSpace,
        User::Ordinary,
        30,
        devices,
    );
}

/// Runs a server and a client over iWARP; what the client printed.
pub(super) fn pair(
    stage: &Stage,
    port: u16,
    server: &[&str],
    client: &[&str],
) -> Result<String, String> {
    let mut server = stage.with_option(Side::A, WIRE, server).start()?;
    Ready::Tcp(port).wait(&mut server)?;
    let mut client = stage.with_option(Side::B, WIRE, client).start()?;
    client.succeed()?;
    server.succeed()?;
    Ok(client.output())
}

fn rping(stage: &Stage, address: &str) -> Outcome {
    let options = ["-V", "-C", "100", "-S", "65535"];
    let server = [&["rping", "-s", "-a", address], &options[..]].concat();
    let client = [&["rping", "-c", "-a", address], &options[..]].concat();
    pair(stage, RPING, &server, &client).map(drop)
}

/// A client whose server is killed in the middle of everything hears of it.
fn killed(stage: &Stage) -> Outcome {
    let server = ["rping", "-s", "-a", stage.ipv4()];
    let client = ["rping", "-c", "-v", "-a", stage.ipv4(), "-C", "10000000"];
    let mut server = stage.with_option(Side::A, WIRE, &server).start()?;
    Ready::Tcp(RPING).wait(&mut server)?;
    let mut client = stage.with_option(Side::B, WIRE, &client).start()?;
    client.until("pinged 50 times", |p| p.output().lines().count() > 50)?;
    server.signal(Signal::SIGKILL)?;
    server.killed_by(Signal::SIGKILL)?;
    // Its status is 0: rping takes the end of a connection for a usual one.
    client.end()?;
    let told = contains(&client.output(), "DISCONNECT");
    shorten(&client)?;
    told?;
    rping(stage, stage.ipv4())
}

/// The TCP port is the listener's alone, and free again with it.
fn port_taken(stage: &Stage) -> Outcome {
    let words = ["rping", "-s", "-a", stage.ipv4(), "-P"];
    let mut first = stage.with_option(Side::A, WIRE, &words).start()?;
    Ready::Tcp(RPING).wait(&mut first)?;
    let mut second = stage.with_option(Side::A, WIRE, &words).start()?;
    second.refuse()?;
    contains(&second.output(), "Address already in use")?;
    first.signal(Signal::SIGKILL)?;
    first.killed_by(Signal::SIGKILL)?;
    rping(stage, stage.ipv4())
}

/// `trace` tells of every segment.
fn trace(stage: &Stage) -> Outcome {
    let words = ["rping", "-s", "-a", stage.ipv4(), "-C", "3"];
    let mut launch = stage.with_option(Side::A, WIRE, &words);
    let mut server = launch.env("FERROCE_LOG", "ferroce::packet=trace").start()?;
    Ready::Tcp(RPING).wait(&mut server)?;
    let words = ["rping", "-c", "-a", stage.ipv4(), "-C", "3"];
    stage
        .with_option(Side::B, WIRE, &words)
        .start()?
        .succeed()?;
    server.succeed()?;
    let output = server.output();
    for (way, opcode) in [
        (" in ", "opcode: Send,"),
        (" out ", "opcode: ReadRequest,"),
        (" in ", "opcode: ReadResponse,"),
        (" out ", "opcode: Write,"),
    ] {
        let mut lines = output.lines();
        let told = lines.any(|line| line.contains(way) && line.contains(opcode));
        if !told {
            return Err(format!("no {way:?} with {opcode:?}: {output}"));
        }
    }
    Ok(())
}

/// The kinds of devices that there are.
fn devices(stage: &Stage) -> Outcome {
    let list = |option| {
        let mut launch = stage.with_option(Side::A, option, &["ibv_devinfo"]);
        let mut process = launch.label("ibv_devinfo").start()?;
        process.succeed()?;
        Ok::<_, String>(process.output())
    };
    for (option, iwarp, others) in [
        ("--wire=iwarp", true, false),
        ("--wire=both", true, true),
        ("--wire=rocev2", false, true),
    ] {
        let output = list(option)?;
        let found = ["iWARP (1)", "InfiniBand (0)"].map(|kind| output.contains(kind));
        if found != [iwarp, others] {
            return Err(format!("{option}: {output}"));
        }
    }
    Ok(())
}
