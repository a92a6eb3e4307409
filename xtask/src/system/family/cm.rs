//! rdmacm-utils.

use nix::sys::signal::Signal;

use super::{Ready, contains, pair};
use crate::system::{Catalogue, Outcome, Place, Side, Stage, User};

/// The port of rping, ucmatose, rdma_server and cmtime.
const PORT: Ready = Ready::Cm(7471);
/// rping, ucmatose and the rest have different ones.
const RPING_PORT: Ready = Ready::Cm(7174);

pub(super) fn add(all: &mut Catalogue) {
    all.everywhere("rping.ipv4", 30, |stage| {
        rping(stage, stage.ipv4(), &["-V", "-C", "100", "-S", "65535"])
    });
    all.everywhere("rping.ipv6", 30, |stage| {
        rping(stage, stage.ipv6(), &["-V", "-C", "100", "-S", "65535"])
    });
    all.everywhere("rping.own-qp", 30, |stage| {
        rping(stage, stage.ipv4(), &["-V", "-C", "100", "-q"])
    });
    for (place, user) in [
        (Place::OneSpace, User::Ordinary),
        (Place::Wire(1500), User::Ordinary),
    ] {
        all.at("rping.verbose-ipv4", place, user, 60, |stage| {
            verbose_rping(stage, stage.ipv4())
        });
        all.at("rping.verbose-ipv6", place, user, 60, |stage| {
            verbose_rping(stage, stage.ipv6())
        });
    }
    all.everywhere("rping.persistent", 60, persistent);
    all.everywhere("rping.crowd", 60, crowd);
    let variants: [(&str, &'static [&'static str]); 3] = [
        ("plain", &[]),
        ("connections-100", &["-c", "100"]),
        ("messages", &["-C", "10", "-S", "65536"]),
    ];
    for (name, options) in variants {
        all.everywhere(&format!("ucmatose.{name}"), 60, move |stage| {
            ucmatose(stage, stage.ipv4(), options)
        });
    }
    all.everywhere("ucmatose.ipv6", 60, |stage| {
        ucmatose(stage, stage.ipv6(), &["-f", "ip"])
    });
    all.everywhere("ucmatose.migrate", 60, |stage| {
        ucmatose(stage, stage.ipv4(), &["-m", "-c", "10"])
    });
    all.everywhere("rdma_client", 30, |stage| {
        let address = stage.ipv4();
        pair(
            stage,
            PORT,
            &["rdma_server"],
            &["rdma_client", "-s", address],
        )
        .map(drop)
    });
    all.everywhere("cmtime", 90, |stage| {
        // Its server takes one client after the other and never ends by itself.
        let mut server = stage.start(Side::A, &["cmtime"])?;
        PORT.wait(&mut server)?;
        let words = ["cmtime", "-c", "1000", "-s", stage.ipv4()];
        let mut client = stage.start(Side::B, &words)?;
        client.succeed()?;
        contains(&client.output(), "disconnect")
    });
}

fn rping(stage: &Stage, address: &str, options: &[&str]) -> Outcome {
    let server = [&["rping", "-s", "-a", address], options].concat();
    let client = [&["rping", "-c", "-a", address], options].concat();
    pair(stage, RPING_PORT, &server, &client).map(drop)
}

/// The longest that rping takes, every byte printed: it must have printed each of the 1000 pings.
fn verbose_rping(stage: &Stage, address: &str) -> Outcome {
    let options = ["-v", "-C", "1000", "-S", "65535"];
    let mut server = stage.start(
        Side::A,
        &[&["rping", "-s", "-a", address], &options[..]].concat(),
    )?;
    RPING_PORT.wait(&mut server)?;
    let mut client = stage.start(
        Side::B,
        &[&["rping", "-c", "-a", address], &options[..]].concat(),
    )?;
    client.succeed()?;
    server.succeed()?;
    for process in [&server, &client] {
        let output = process.output();
        let pings = output.matches("ping data: rdma-ping-").count();
        if pings != 1000 || output.len() < 1000 * 65_500 {
            let bytes = output.len();
            return Err(format!(
                "{}: {pings} pings in {bytes} bytes, not 1000 of 65534",
                process.label
            ));
        }
        // 64 MB that tell nothing more.
        std::fs::write(&process.log, "1000 pings of full length\n").map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// A server for any number of clients, four at once and again four.
///
/// rping itself loses a connect request that comes while it is busy with the one before, so each
/// client starts when the one before is connected; they go on together.
fn persistent(stage: &Stage) -> Outcome {
    let address = stage.ipv4();
    let mut server = stage.start(Side::A, &["rping", "-s", "-P", "-S", "4096", "-a", address])?;
    RPING_PORT.wait(&mut server)?;
    for _ in 0..2 {
        let client = [
            "stdbuf", "-oL", "rping", "-c", "-v", "-V", "-C", "2000", "-S", "4096", "-a", address,
        ];
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut client = stage.start(Side::B, &client)?;
            client.says("ping data")?;
            clients.push(client);
        }
        for client in &mut clients {
            client.succeed()?;
        }
    }
    server.signal(Signal::SIGTERM)?;
    server.killed_by(Signal::SIGTERM)
}

/// Several servers and clients at once: whatever arrives on the UDP port that they share must find
/// the right one.
fn crowd(stage: &Stage) -> Outcome {
    let ports: Vec<String> = (7001..7007).map(|port: u16| port.to_string()).collect();
    let command = |role, port| {
        [
            "rping",
            role,
            "-a",
            stage.ipv4(),
            "-p",
            port,
            "-V",
            "-C",
            "50",
            "-S",
            "30000",
        ]
    };
    let mut servers = Vec::new();
    for port in &ports {
        servers.push(stage.start(Side::A, &command("-s", port))?);
    }
    for (server, port) in servers.iter_mut().zip(7001..) {
        server.listens_on_cm(port)?;
    }
    let clients: Result<Vec<_>, String> = ports
        .iter()
        .map(|port| stage.start(Side::B, &command("-c", port)))
        .collect();
    for process in clients?.iter_mut().chain(&mut servers) {
        process.succeed()?;
    }
    Ok(())
}

fn ucmatose(stage: &Stage, address: &str, options: &[&str]) -> Outcome {
    let server = [&["ucmatose", "-b", address], options].concat();
    let client = [&["ucmatose", "-s", address], options].concat();
    let (_, client) = pair(stage, PORT, &server, &client)?;
    contains(&client, "test complete")?;
    contains(&client, "return status 0")
}
