//! The guest tests.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::harness::Guest;
use crate::system::Process;

/// A test's verdict: why it failed, for a person.
pub(super) type Outcome = Result<(), String>;

/// A test.
pub(super) struct Case {
    /// Its name, without what the link is.
    pub(super) name: String,
    /// Time for it.
    pub(super) limit: Duration,
    /// Its code.
    pub(super) body: Box<dyn Fn(&Guest) -> Outcome>,
}

/// Our address and the guest's.
pub(super) const IPV4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// As above.
pub(super) const IPV6: [&str; 2] = ["fd77::1", "fd77::2"];

/// Which side is the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    Here,
    There,
}

/// All tests for a link of this MTU.
pub(super) fn all(mtu: u32) -> Vec<Case> {
    // Payload bytes of a packet: with headers it must fit the link.
    let largest = if mtu > 4200 { "4096" } else { "1024" };
    let mut all = Vec::new();
    let mut add = |name: String, seconds: u64, body: Box<dyn Fn(&Guest) -> Outcome>| {
        all.push(Case {
            name,
            limit: Duration::from_secs(seconds),
            body,
        });
    };
    for (server, which) in [
        (Server::Here, "server-here"),
        (Server::There, "server-there"),
    ] {
        for (ips, version) in [(IPV4, "ipv4"), (IPV6, "ipv6")] {
            for (size, options) in [("small", ["-C", "20"]), ("large", ["-S", "65535"])] {
                let body = move |guest: &Guest| rping(guest, server, ips, &options);
                add(
                    format!("rping.{version}.{size}.{which}"),
                    60,
                    Box::new(body),
                );
            }
            let body =
                move |guest: &Guest| pingpong(guest, server, ips, &["-n", "100", "-c", "-e"]);
            add(
                format!("ibv_rc_pingpong.{version}.{which}"),
                60,
                Box::new(body),
            );
        }
        let body = move |guest: &Guest| {
            let options = ["-n", "20", "-c", "-e", "-s", "300000", "-m", largest];
            pingpong(guest, server, IPV4, &options)
        };
        add(format!("ibv_rc_pingpong.large.{which}"), 60, Box::new(body));
        for program in ["ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw"] {
            add(
                format!("{program}.{which}"),
                60,
                Box::new(move |guest| perftest(guest, server, program)),
            );
        }
        add(
            format!("client-server.{which}"),
            60,
            Box::new(move |guest| client_server(guest, server)),
        );
        add(
            format!("killed-there.{which}"),
            90,
            Box::new(move |guest| killed_there(guest, server)),
        );
    }
    add("killed-here".to_owned(), 90, Box::new(killed_here));
    all.extend(super::matrix::all());
    all
}

/// Starts the server where it belongs, waits until it can be called, and starts the client: what is here, what is there.
pub(super) fn start(
    guest: &Guest,
    server: Server,
    here: &[&str],
    there: &[&str],
    ready: Ready,
) -> Result<(Process, Process), String> {
    match server {
        Server::Here => {
            let mut here = guest.here(here)?;
            match ready {
                Ready::Tcp(port) => here.listens_on_tcp(port)?,
                Ready::Cm(port) => here.listens_on_cm(port)?,
            }
            Ok((here, guest.there(there)?))
        }
        Server::There => {
            let there = guest.there(there)?;
            match ready {
                Ready::Tcp(port) => {
                    guest.until("listened", &format!("ss -ltnH sport = {port} | grep -q ."))?
                }
                Ready::Cm(port) => {
                    guest.until(
                        "listened",
                        &format!("rdma resource show cm_id | grep LISTEN | grep -q \":{port}\\b\""),
                    )?;
                }
            }
            Ok((guest.here(here)?, there))
        }
    }
}

/// How one knows that a server can be called.
#[derive(Clone, Copy)]
pub(super) enum Ready {
    Tcp(u16),
    Cm(u16),
}

/// Both must end with 0, the client first.
pub(super) fn both(server: Server, (mut here, mut there): (Process, Process)) -> Outcome {
    match server {
        Server::Here => there.succeed().and_then(|()| here.succeed()),
        Server::There => here.succeed().and_then(|()| there.succeed()),
    }
}

fn rping(guest: &Guest, server: Server, [ours, theirs]: [&str; 2], options: &[&str]) -> Outcome {
    let (at, [here_role, there_role]) = roles(server, [ours, theirs]);
    let here = [&["rping", here_role, "-a", at, "-V", "-C", "10"], options].concat();
    let there = [&["rping", there_role, "-a", at, "-V", "-C", "10"], options].concat();
    both(
        server,
        start(guest, server, &here, &there, Ready::Cm(7174))?,
    )
}

/// The server's address, and rping's options for who is what.
pub(super) fn roles(server: Server, [ours, theirs]: [&str; 2]) -> (&str, [&'static str; 2]) {
    match server {
        Server::Here => (ours, ["-s", "-c"]),
        Server::There => (theirs, ["-c", "-s"]),
    }
}

/// The program's own TCP connection stays with IPv4; `ips` say which GIDs it uses.
fn pingpong(guest: &Guest, server: Server, ips: [&str; 2], options: &[&str]) -> Outcome {
    outcome_of_pingpong(
        guest,
        server,
        ips,
        &[&["ibv_rc_pingpong"], options].concat(),
    )
}

/// As above, for any ping-pong: the program and its options.
pub(super) fn outcome_of_pingpong(
    guest: &Guest,
    server: Server,
    [ours, theirs]: [&str; 2],
    words: &[&str],
) -> Outcome {
    let index = guest.gid_index(ours)?;
    let here = [words, &["-g", &index]].concat();
    // The guest's GIDs: 0 link-local, 1 IPv4, 2 IPv6.
    let number = if theirs.contains(':') { "2" } else { "1" };
    let there = [words, &["-g", number]].concat();
    let (here, there) = match server {
        Server::Here => (here, [there, vec![IPV4[0]]].concat()),
        Server::There => ([here, vec![IPV4[1]]].concat(), there),
    };
    both(
        server,
        start(guest, server, &here, &there, Ready::Tcp(18515))?,
    )
}

/// The retry timeout is a second (code 18): an emulated processor that is busy polling may well leave its network alone for longer
/// than the usual 67 ms.
fn perftest(guest: &Guest, server: Server, program: &str) -> Outcome {
    let here = [program, "-F", "-n", "100", "-u", "18", "-x", "0"];
    let there = [program, "-F", "-n", "100", "-u", "18", "-x", "1"];
    let (here, there) = match server {
        Server::Here => (here.to_vec(), [&there[..], &[IPV4[0]]].concat()),
        Server::There => ([&here[..], &[IPV4[1]]].concat(), there.to_vec()),
    };
    both(
        server,
        start(guest, server, &here, &there, Ready::Tcp(18515))?,
    )
}

/// The client disconnects as soon as both messages have arrived.
fn client_server(guest: &Guest, server: Server) -> Outcome {
    let (here, there) = (guest.built("client-server"), guest.share("client-server")?);
    let serve = ["server", "-n", "1", "-p", "9123"];
    let (ours, theirs) = (["client", IPV4[1], "9123"], ["client", IPV4[0], "9123"]);
    let (here, there) = match server {
        Server::Here => (
            [&[&*here], &serve[..]].concat(),
            [&[&*there], &theirs[..]].concat(),
        ),
        Server::There => (
            [&[&*here], &ours[..]].concat(),
            [&[&*there], &serve[..]].concat(),
        ),
    };
    both(
        server,
        start(guest, server, &here, &there, Ready::Cm(9123))?,
    )
}

/// The guest's program dies in mid-transfer; its kernel disconnects for it, which ends our side.
fn killed_there(guest: &Guest, server: Server) -> Outcome {
    let (at, [here_role, there_role]) = roles(server, IPV4);
    let options = ["-a", at, "-C", "1000000", "-v", "-S", "100"];
    let here = [&["rping", here_role], &options[..]].concat();
    let there = [&["rping", there_role], &options[..]].concat();
    let (mut here, there) = start(guest, server, &here, &there, Ready::Cm(7174))?;
    here.until("pinged 10 times", |p| {
        p.output().matches("ping data").count() > 10
    })?;
    guest.there(&["killall", "-9", "rping"])?.succeed()?;
    // rping's server takes a lost client for a normal end.
    here.end()?;
    drop(there);
    rping(guest, server, IPV4, &[])
}

/// The target of the guest's WRITEs dies; nobody tells the guest, whose work fails.
fn killed_here(guest: &Guest) -> Outcome {
    // Line by line: the test waits for what it prints.
    let here = ["stdbuf", "-oL", "ib_write_bw", "-F", "-D", "5", "-x", "0"];
    let there = ["ib_write_bw", "-F", "-D", "5", "-x", "1", IPV4[0]];
    let (mut here, mut there) = start(guest, Server::Here, &here, &there, Ready::Tcp(18515))?;
    here.says("#bytes")?;
    here.signal(Signal::SIGKILL)?;
    there.refuse()?;
    rping(guest, Server::Here, IPV4, &[])
}
