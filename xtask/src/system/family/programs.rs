//! The C programs of `tests/c`, compiled against Debian's headers.

use nix::sys::signal::Signal;

use crate::system::{Catalogue, Outcome, PLACES, Place, Process, Side, Stage, USERS, User};

/// Kinds of failure that take a server and a client (see `tests/c/failures.c`).
pub(super) const PAIRED: [&str; 11] = [
    "rejected",
    "reply-refused",
    "server-parts",
    "wrong-rkey",
    "too-long",
    "no-receive",
    "deregistered",
    "exits",
    "last-words",
    "bad-lkey",
    "cycles",
];
/// Kinds that the program stages alone, with processes of its own.
const ALONE: [&str; 4] = ["absent", "in-use", "killed-server", "killed-client"];

/// Ways of waiting for completion events (see `tests/c/wait.c`).
const WAYS: [&str; 7] = [
    "block", "poll", "epoll", "level", "mix", "example", "threads",
];

/// Looks up an address of the server.
type Address = fn(&Stage) -> &'static str;
/// Names of the address families, and the server's address of each.
const FAMILIES: [(&str, Address); 2] = [("ipv4", Stage::ipv4), ("ipv6", Stage::ipv6)];

pub(super) fn add(all: &mut Catalogue) {
    operations(all);
    without_server(all);
    transfers(all);
    asleep(all);
    for case in PAIRED {
        all.everywhere(&format!("c.failures.{case}"), 90, move |stage| {
            failure(stage, case)
        });
    }
    connection_manager(all);
    failures_alone(all);
}

/// Each operation between a client and a server, once.
fn operations(all: &mut Catalogue) {
    for (name, ip) in FAMILIES {
        all.everywhere(&format!("c.client-server.{name}"), 60, move |stage| {
            served(stage, "client-server", &[], ip(stage), &[], 4)
        });
        all.everywhere(&format!("c.operations.{name}"), 60, move |stage| {
            one_each(stage, "operations", &[], ip(stage))
        });
        all.everywhere(&format!("c.read-write.write.{name}"), 60, move |stage| {
            served(stage, "read-write", &[], ip(stage), &[], 2)
        });
    }
    all.everywhere("c.read-write.read", 60, |stage| {
        served(stage, "read-write", &["-r"], stage.ipv4(), &[], 2)
    });
}

/// Many bytes, and many messages to a server of several clients.
fn transfers(all: &mut Catalogue) {
    // Three chunks of 10 MiB and one that is not full.
    all.everywhere("c.file-transfer", 120, |stage| {
        served(stage, "file-transfer", &[], stage.ipv4(), &["33000001"], 1)
    });
    all.everywhere("c.file-transfer.small-chunks", 120, |stage| {
        served(
            stage,
            "file-transfer",
            &[],
            stage.ipv4(),
            &["3000001", "4096"],
            2,
        )
    });
    all.everywhere("c.epoll", 120, |stage| {
        served(stage, "epoll", &[], stage.ipv4(), &["2000"], 3)
    });
    all.everywhere("c.epoll.large", 120, |stage| {
        served(
            stage,
            "epoll",
            &["-s", "200000"],
            stage.ipv4(),
            &["200", "200000"],
            1,
        )
    });
}

/// The connection manager within one process.
fn connection_manager(all: &mut Catalogue) {
    for place in PLACES.into_iter().filter(|p| !matches!(p, Place::Wire(_))) {
        for user in USERS {
            all.at("c.cm-rules", place, user, 60, |stage| {
                let words = [&*stage.built("cm-rules"), stage.ipv4()];
                stage.run(Side::A, &words).map(drop)
            });
            for ((name, ip), group) in FAMILIES.into_iter().zip(["239.77.1.2", "ff15::77:1"]) {
                let name = format!("c.cm-datagram.{name}");
                all.at(&name, place, user, 60, move |stage| {
                    let program = stage.built("cm-datagram");
                    let mut words = vec![&*program, ip(stage), group];
                    if place == Place::Loopback && group.contains(':') {
                        // Linux routes no IPv6 group over lo.
                        words.push("quiet");
                    }
                    stage.run(Side::A, &words).map(drop)
                });
            }
        }
    }
}

/// Failures that the program stages with processes of its own.
fn failures_alone(all: &mut Catalogue) {
    for place in PLACES {
        for user in USERS {
            for case in ALONE {
                let name = format!("c.failures.{case}");
                match place {
                    Place::Wire(_) if case.starts_with("killed") => {
                        all.at(&name, place, user, 90, move |stage| killed(stage, case));
                    }
                    Place::Wire(_) => {}
                    _ => all.at(&name, place, user, 90, move |stage| {
                        stage
                            .run(Side::A, &[&stage.built("failures"), case, stage.ipv4()])
                            .map(drop)
                    }),
                }
            }
        }
    }
}

/// Programs that need no other process.
fn without_server(all: &mut Catalogue) {
    for (name, ip) in FAMILIES {
        for program in ["rsockets", "rsocket-datagrams"] {
            let name = format!("c.{program}.{name}");
            all.at(&name, Place::OneSpace, User::Ordinary, 60, move |stage| {
                let words = [&*stage.built(program), ip(stage)];
                stage.run(Side::A, &words).map(drop)
            });
        }
    }
    all.everywhere("c.unsupported", 20, |stage| {
        stage.run(Side::A, &[&stage.built("unsupported")]).map(drop)
    });
    let place = Place::Wire(1500);
    all.at("c.no-neighbour", place, User::Ordinary, 60, no_neighbour);
    all.at("c.silent-peer", place, User::Ordinary, 40, |stage| {
        let words = [
            &*stage.built("silent-peer"),
            stage.ipv4(),
            stage.client_ipv4(),
        ];
        stage.run(Side::A, &words).map(drop)
    });
}

/// A peer in the cable's network that nobody is.
fn no_neighbour(stage: &Stage) -> Outcome {
    let words = [&*stage.built("no-neighbour"), stage.ipv4(), "10.99.0.77"];
    stage.run(Side::A, &words).map(drop)
}

/// Programs that sleep until there is a completion event.
fn asleep(all: &mut Catalogue) {
    for place in [Place::Loopback, Place::Wire(1500)] {
        for mode in ["cm", "cm-blocking"] {
            all.at(
                &format!("c.crowd.{mode}"),
                place,
                User::Ordinary,
                60,
                move |stage| crowd(stage, mode),
            );
        }
    }
    for way in WAYS {
        for place in [Place::Loopback, Place::Wire(1500)] {
            let name = format!("c.wait.{way}");
            all.at(&name, place, User::Ordinary, 110, move |stage| {
                waits(stage, way)
            });
        }
    }
}

/// A server that sleeps, with requests of 40 clients for a second, some thousand of them.
fn crowd(stage: &Stage, mode: &str) -> Outcome {
    let program = stage.built("crowd");
    let mut server = stage.start(Side::A, &[&program, mode, "server", "1024"])?;
    let port = port_of(&mut server)?;
    let load = ["1024", "40", "1", "2000"];
    let client = [
        &[&*program, mode, "client"],
        &load[..],
        &[stage.ipv4(), &port],
    ]
    .concat();
    stage.run(Side::B, &client)?;
    server.succeed()
}

/// Both sides wait for their events in one way.
fn waits(stage: &Stage, way: &str) -> Outcome {
    let program = stage.built("wait");
    let mut server = stage.start(Side::A, &[&program, "server", way])?;
    let port = port_of(&mut server)?;
    stage.run(Side::B, &[&program, "client", stage.ipv4(), &port, way])?;
    server.succeed()
}

/// A server that serves some clients at once and then ends.
pub(super) fn served(
    stage: &Stage,
    program: &str,
    options: &[&str],
    address: &str,
    arguments: &[&str],
    clients: usize,
) -> Outcome {
    let program = stage.built(program);
    let count = clients.to_string();
    let mut server = stage.start(
        Side::A,
        &[&[&program, "server"], options, &["-n", &count]].concat(),
    )?;
    let port = port_of(&mut server)?;
    let client_options = options
        .iter()
        .filter(|&&option| option == "-r")
        .copied()
        .collect::<Vec<_>>();
    let words = [
        &[&*program, "client"],
        &client_options[..],
        &[address, &port],
        arguments,
    ]
    .concat();
    let started: Result<Vec<_>, String> =
        (0..clients).map(|_| stage.start(Side::B, &words)).collect();
    for mut client in started? {
        client.succeed()?;
    }
    server.succeed()
}

pub(super) fn failure(stage: &Stage, case: &str) -> Outcome {
    one_each(stage, "failures", &[case], stage.ipv4())
}

/// A server for one client, and that.
pub(super) fn one_each(stage: &Stage, program: &str, case: &[&str], address: &str) -> Outcome {
    let program = stage.built(program);
    let mut server = stage.start(Side::A, &[&[&*program, "server"], case].concat())?;
    let port = port_of(&mut server)?;
    let words = [&[&*program, "client"], case, &[address, &port]].concat();
    let mut client = stage.start(Side::B, &words)?;
    client.succeed()?;
    server.succeed()
}

/// One side is killed while the client writes into the server's memory; the other checks what it is
/// told.
pub(super) fn killed(stage: &Stage, case: &str) -> Outcome {
    let program = stage.built("failures");
    let mut server = stage.start(Side::A, &[&program, "server", case])?;
    let port = port_of(&mut server)?;
    let mut client = stage.start(Side::B, &[&program, "client", case, stage.ipv4(), &port])?;
    client.says("transferring")?;
    let (dead, mut alive) = if case == "killed-server" {
        (server, client)
    } else {
        (client, server)
    };
    dead.signal(Signal::SIGKILL)?;
    alive.succeed()
}

/// The port that a server says it listens on.
pub(in crate::system) fn port_of(server: &mut Process) -> Result<String, String> {
    const LINE: &str = "listening on port ";
    server.until("told its port", |p| {
        p.output().lines().any(|line| line.starts_with(LINE))
    })?;
    let output = server.output();
    let port = output.lines().find_map(|line| line.strip_prefix(LINE));
    port.map(str::to_owned).ok_or_else(|| "no port".into())
}
