//! Both wires at once (`ferroce run --wire both`), a TCP port that others have or want, and iWARP
//! through a program that relays TCP.

use nix::sys::signal::Signal;

use super::iwarp::{RPING, WIRE};
use super::{Process, Ready, contains};
use crate::system::{Catalogue, Outcome, Place, Side, Stage, User};

pub(super) fn add(all: &mut Catalogue) {
    for place in [Place::OneSpace, Place::Wire(1500)] {
        let user = User::Ordinary;
        all.at("iwarp.both.clients", place, user, 60, clients_of_both);
        all.at("iwarp.relay", place, user, 60, relay);
    }
    for (name, run) in [
        ("iwarp.both.tcp-first", tcp_first as fn(&Stage) -> Outcome),
        ("iwarp.both.rdma-first", rdma_first),
    ] {
        all.at(name, Place::OneSpace, User::Ordinary, 60, run);
    }
    all.at(
        "iwarp.both.takes-rocev2",
        Place::Wire(1500),
        User::Ordinary,
        60,
        takes_rocev2,
    );
}

/// A server at all addresses, for one client after the other and several at once.
const SERVER_OF_ALL: [&str; 3] = ["rping", "-s", "-P"];
/// Listens by TCP at all addresses: "listens", or why not. It ends when it is killed.
const TCP_SERVER: &str = "
import socket, sys, time
s = socket.socket()
try:
    s.bind(('', 7174))
    s.listen()
except OSError as e:
    sys.exit(str(e))
print('listens', flush=True)
time.sleep(60)
";

/// One server at all addresses has clients of both wires, at once.
fn clients_of_both(stage: &Stage) -> Outcome {
    let mut server = stage
        .with_option(Side::A, "--wire=both", &SERVER_OF_ALL)
        .start()?;
    Ready::Tcp(RPING).wait(&mut server)?;
    Ready::Cm(RPING).wait(&mut server)?;
    let words = ["rping", "-c", "-v", "-a", stage.ipv4(), "-C", "10000000"];
    let pings = |client: &Process| client.output().lines().count();
    let goes_on = |client: &mut Process| {
        let enough = pings(client) + 20;
        client.until("pinged 20 times", |p| pings(p) > enough)
    };
    let mut clients = Vec::new();
    for wire in [WIRE, "--wire=rocev2", "--wire=both"] {
        let mut launch = stage.with_option(Side::B, wire, &words);
        let mut client = launch.label(&wire["--wire=".len()..]).start()?;
        // rping takes one connection at a time: a second request would overwrite the first.
        goes_on(&mut client)?;
        clients.push(client);
    }
    clients.iter_mut().try_for_each(goes_on)?;
    clients.iter_mut().try_for_each(end)?;
    end(&mut server)
}

/// A client that has both kinds of devices connects over `RoCEv2`.
fn takes_rocev2(stage: &Stage) -> Outcome {
    let mut server = stage
        .with_option(Side::A, "--wire=both", &SERVER_OF_ALL)
        .start()?;
    Ready::Tcp(RPING).wait(&mut server)?;
    let client = ["rping", "-c", "-a", stage.ipv4(), "-C", "10"];
    for (wire, way) in [("--wire=both", "wire=100.0%"), (WIRE, "tcp=100.0%")] {
        let mut launch = stage.with_option(Side::B, wire, &client);
        let mut client = launch.env("FERROCE_SUMMARY", "1").start()?;
        client.succeed()?;
        contains(&client.output(), way)?;
    }
    end(&mut server)
}

/// A server of TCP that has the port keeps it: one at all addresses goes on without iWARP, and says
/// so.
fn tcp_first(stage: &Stage) -> Outcome {
    let mut owner = tcp_server(stage)?;
    owner.says("listens")?;
    let mut launch = stage.with_option(Side::A, "--wire=both", &SERVER_OF_ALL);
    let mut server = launch.env("FERROCE_LOG", "ferroce=warn").start()?;
    Ready::Cm(RPING).wait(&mut server)?;
    contains(&server.output(), "no connections over iWARP come here")?;
    let client = ["rping", "-c", "-a", stage.ipv4(), "-C", "10"];
    let mut client = stage
        .with_option(Side::B, "--wire=rocev2", &client)
        .start()?;
    client.succeed()?;
    end(&mut server)?;
    end(&mut owner)
}

/// A listener of the connection manager that came first has the TCP port if it serves iWARP, as
/// with the kernel's siw.
fn rdma_first(stage: &Stage) -> Outcome {
    for (wire, is_taken) in [("--wire=both", true), ("--wire=rocev2", false)] {
        let mut server = stage.with_option(Side::A, wire, &SERVER_OF_ALL).start()?;
        Ready::Cm(RPING).wait(&mut server)?;
        let mut second = tcp_server(stage)?;
        if is_taken {
            second.refuse()?;
            contains(&second.output(), "Address already in use")?;
        } else {
            second.says("listens")?;
            end(&mut second)?;
        }
        end(&mut server)?;
    }
    Ok(())
}

/// Relays connections to the port of rping's, as socat and tunnels do.
const RELAY: &str = "
import asyncio, sys
async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def relay(reader, writer):
    there = await asyncio.open_connection(sys.argv[1], 7174)
    await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))
async def main():
    server = await asyncio.start_server(relay, sys.argv[1], 7175)
    print('relays', flush=True)
    await server.serve_forever()
asyncio.run(main())
";

/// Through a program that relays TCP a connection goes by TCP, also within a host.
fn relay(stage: &Stage) -> Outcome {
    let words = ["/usr/bin/python3", "-c", RELAY, stage.ipv4()];
    let mut relay = stage.bare(Side::A, &words).label("relay").start()?;
    relay.says("relays")?;
    let options = ["-V", "-C", "50", "-S", "20000"];
    let server = [&["rping", "-s", "-a", stage.ipv4()], &options[..]].concat();
    let client = ["rping", "-c", "-a", stage.ipv4(), "-p", "7175"];
    let client = [&client[..], &options].concat();
    let mut server = stage.with_option(Side::A, WIRE, &server).start()?;
    Ready::Tcp(RPING).wait(&mut server)?;
    let mut launch = stage.with_option(Side::B, WIRE, &client);
    let mut client = launch.env("FERROCE_SUMMARY", "1").start()?;
    client.succeed()?;
    server.succeed()?;
    contains(&client.output(), "tcp=100.0%")?;
    end(&mut relay)
}

fn tcp_server(stage: &Stage) -> Result<Process, String> {
    let words = ["/usr/bin/python3", "-c", TCP_SERVER];
    stage.bare(Side::A, &words).label("tcp").start()
}

fn end(server: &mut Process) -> Outcome {
    server.signal(Signal::SIGKILL)?;
    server.killed_by(Signal::SIGKILL)
}
