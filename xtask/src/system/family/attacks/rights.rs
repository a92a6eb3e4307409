//! Processes that are not what they seem: children with inherited objects, programs with more
//! rights than their caller, and none of `/proc`.

use nix::sys::signal::Signal;

use super::{LIMIT, contains};
use crate::sh;
use crate::system::family::programs::port_of;
use crate::system::{Catalogue, Outcome, Place, Side, Stage, USERS, User};

pub(super) fn add(all: &mut Catalogue) {
    for place in [Place::Loopback, Place::Wire(1500)] {
        for user in USERS {
            all.at("attacks.inherited", place, user, LIMIT, inherited);
        }
    }
    all.at(
        "attacks.variables",
        Place::Loopback,
        User::Root,
        LIMIT,
        variables,
    );
    all.at(
        "attacks.peers",
        Place::Wire(1500),
        User::Ordinary,
        LIMIT,
        peers,
    );
    let here = Place::Loopback;
    all.at("attacks.peers", here, User::Ordinary, LIMIT, own_user);
    all.at("attacks.left-out", here, User::Ordinary, LIMIT, left_out);
    all.at(
        "attacks.no-proc",
        Place::Loopback,
        User::Root,
        LIMIT,
        no_proc,
    );
}

/// Children that were made in mid-transfer use what they have inherited.
fn inherited(stage: &Stage) -> Outcome {
    let program = stage.built("inherited");
    let mut server = stage.start(Side::A, &[&program, "server"])?;
    let port = port_of(&mut server)?;
    let mut client = stage.start(Side::B, &[&program, "client", stage.ipv4(), &port, "200"])?;
    client.succeed()?;
    server.succeed()
}

/// The caller's variables are heeded, but not by a program with another user's rights. It finds the
/// library by its run path.
fn variables(stage: &Stage) -> Outcome {
    let (plain, copy) = (stage.built("rights"), stage.built("rights-of-second"));
    let owner = User::Second.id().to_string();
    sh::output("cp", &[&plain, &copy])?;
    sh::output("chown", &[&owner, &copy])?;
    sh::output("chmod", &["4755", &copy])?;
    for (program, secure) in [(&plain, false), (&copy, true)] {
        let mut launch = stage.bare(Side::A, &[program]);
        launch.user(User::Ordinary);
        let mut process = launch.env("FERROCE_LOG", "ferroce=trace").start()?;
        process.succeed()?;
        let output = process.output();
        contains(&output, &format!("secure {}", u8::from(secure)))?;
        if output.contains("ferroce::") == secure {
            return Err(format!("FERROCE_LOG was heeded: {}", !secure));
        }
    }
    Ok(())
}

/// `FERROCE_PEERS` lets in the hosts that it lists. A program that asks for another one is told so
/// when it resolves the address.
fn peers(stage: &Stage) -> Outcome {
    let program = stage.built("victim");
    let mut server = stage.start(Side::A, &[&program, "server"])?;
    let port = port_of(&mut server)?;
    let ask = |list: &str| {
        let words = [&*program, "client", stage.ipv4(), &port, "20"];
        let mut launch = stage.program(Side::B, &words);
        launch.env("FERROCE_PEERS", list).start()
    };
    let mut refused = ask("own-user,192.0.2.0/24")?;
    refused.refuse()?;
    contains(
        &refused.output(),
        "RDMA_CM_EVENT_ADDR_ERROR with status -13",
    )?;
    ask(&format!("own-user,{}", stage.ipv4()))?.succeed()?;
    server.signal(Signal::SIGKILL)?;
    server.killed_by(Signal::SIGKILL)
}

/// `FERROCE_PEERS=own-user` asked from the client's side: a listener of another user is refused
/// when its address is resolved, and the own user's is not.
fn own_user(stage: &Stage) -> Outcome {
    let program = stage.built("victim");
    for (server_user, left_out) in [(User::Second, true), (User::Ordinary, false)] {
        let server = [&*program, "server"];
        let mut server = stage.program(Side::A, &server).user(server_user).start()?;
        let port = port_of(&mut server)?;
        let words = [&*program, "client", stage.ipv4(), &port, "20"];
        let mut client = stage.program(Side::B, &words);
        let mut client = client.env("FERROCE_PEERS", "own-user").start()?;
        if left_out {
            client.refuse()?;
            contains(&client.output(), "RDMA_CM_EVENT_ADDR_ERROR with status -13")?;
        } else {
            client.succeed()?;
        }
        server.signal(Signal::SIGKILL)?;
        server.killed_by(Signal::SIGKILL)?;
    }
    Ok(())
}

/// `FERROCE_PEERS=own-user` at the listener: another user's client is refused within a second, and
/// the own user's is served.
fn left_out(stage: &Stage) -> Outcome {
    let program = stage.built("victim");
    let mut server = stage.program(Side::A, &[&program, "server"]);
    let mut server = server.env("FERROCE_PEERS", "own-user").start()?;
    let port = port_of(&mut server)?;
    let words = [&*program, "client", stage.ipv4(), &port, "20"];
    let client = |user| stage.program(Side::B, &words).user(user).start();
    for stranger in [User::Second, User::Root] {
        let mut refused = client(stranger)?;
        refused.refuse()?;
        contains(&refused.output(), "RDMA_CM_EVENT_REJECTED with status 8")?;
    }
    client(User::Ordinary)?.succeed()?;
    server.signal(Signal::SIGKILL)?;
    server.killed_by(Signal::SIGKILL)
}

/// Everything works where `/proc` is not mounted, by packets, and one line says so.
fn no_proc(stage: &Stage) -> Outcome {
    let hidden = |words: &str| {
        let script = format!("mount -t tmpfs none /proc && exec {words}");
        [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            &*script,
        ]
        .map(str::to_owned)
        .to_vec()
    };
    let (ferroce, victim) = (stage.built("ferroce"), stage.built("paths"));
    let start = |side, words: String| {
        let words = hidden(&format!("{ferroce} run -- {words}"));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        stage.bare(side, &words).start()
    };
    start(Side::A, stage.built("rights"))?.succeed()?;
    let mut server = start(Side::A, format!("{victim} server"))?;
    let port = port_of(&mut server)?;
    let mut client = start(Side::B, format!("{victim} client {} {port}", stage.ipv4()))?;
    client.says("done")?;
    server.signal(Signal::SIGTERM)?;
    client.succeed()?;
    server.succeed()?;
    for process in [&server, &client] {
        let output = process.output();
        let said = output.lines().filter(|line| line.contains("/proc")).count();
        if said != 1 {
            return Err(format!("{}: {said} lines about /proc", process.label));
        }
    }
    Ok(())
}
