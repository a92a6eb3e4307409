//! Several users on one host: both have the wire, and neither takes what belongs to others.

use nix::sys::signal::Signal;

use super::injected;
use super::victim::{Users, Victim};
use crate::system::family::{Ready, contains};
use crate::system::{Catalogue, Outcome, Place, Process, Side, Stage, User};

/// Seconds that a test may take on a busy machine.
const LIMIT: u64 = 90;
/// Rounds of a transfer that shows that it goes on.
const ROUNDS: u64 = 50;
/// A port that needs a right, and another one.
const LOW_PORT: &str = "80";
const OTHER_LOW_PORT: &str = "81";

pub(super) fn add(all: &mut Catalogue) {
    let wire = Place::Wire(1500);
    all.at("attacks.two-users", wire, User::Ordinary, LIMIT, two_users);
    let here = Place::OneSpace;
    all.at(
        "attacks.squat-wire",
        here,
        User::Ordinary,
        LIMIT,
        squat_wire,
    );
    all.at("attacks.squat-port", here, User::Root, LIMIT, squat_port);
}

/// The second user has no socket on the shared port: what is for it comes through the first one's
/// processes, until they end.
fn two_users(stage: &Stage) -> Outcome {
    let first = Victim::start(stage, "victim", Users::both(User::Ordinary))?;
    let users = Users {
        server: User::Second,
        client: User::Ordinary,
    };
    let mut second = Victim::start(stage, "victim", users)?;
    let ways = [
        (Side::A, User::Second, Side::B, User::Ordinary),
        (Side::B, User::Ordinary, Side::A, User::Second),
        (Side::A, User::Second, Side::A, User::Ordinary),
    ];
    for (server, its_user, client, other_user) in ways {
        let address = match server {
            Side::A => stage.ipv4(),
            Side::B => stage.client_ipv4(),
        };
        let at = [(server, its_user), (client, other_user)];
        let rping = [
            "rping", "-V", "-C", "20", "-S", "5000", "-p", "7200", "-a", address,
        ];
        let roles = [
            [&rping[..], &["-s"]].concat(),
            [&rping[..], &["-c"]].concat(),
        ];
        run_pair(stage, at, Ready::Cm(7200), &roles)?;
        let write = ["ib_write_bw", "-F", "-n", "200", "-p", "18600"];
        let roles = [write.to_vec(), [&write[..], &[address]].concat()];
        run_pair(stage, at, Ready::Tcp(18600), &roles)?;
    }
    let rounds = first.rounds().max(ROUNDS);
    second.goes_on(second.rounds() + ROUNDS)?;
    if first.rounds() < rounds {
        return Err("the first user's transfer stands still".into());
    }
    first.finish()?;
    // The port is free now: the second user takes it over with its connections.
    second.goes_on(second.rounds() + ROUNDS)?;
    second.finish()
}

/// Runs a server and a client to their ends.
fn run_pair(stage: &Stage, at: [(Side, User); 2], ready: Ready, words: &[Vec<&str>; 2]) -> Outcome {
    let start = |i: usize| stage.program(at[i].0, &words[i]).user(at[i].1).start();
    let mut server = start(0)?;
    ready.wait(&mut server)?;
    start(1)?.succeed()?;
    server.succeed()
}

fn squat(stage: &Stage, words: &[&str]) -> Result<Process, String> {
    let program = stage.built("squat");
    let words = [&[&program, "60"], words].concat();
    let mut attacker = stage.bare(Side::A, &words).user(User::Nobody).start()?;
    attacker.until("taken what it wants", |p| injected(p) > 0)?;
    Ok(attacker)
}

/// A plain socket on UDP port 4791: a line on stderr says what is missing, and the host's own paths
/// work.
fn squat_wire(stage: &Stage) -> Outcome {
    let attacker = squat(stage, &["udp"])?;
    let rping = ["rping", "-V", "-C", "20", "-a", stage.ipv4()];
    let server = [&rping[..], &["-s"]].concat();
    let mut server = stage
        .program(Side::A, &server)
        .user(User::Ordinary)
        .start()?;
    Ready::Cm(7174).wait(&mut server)?;
    call(stage, &[&rping[..], &["-c"]].concat())?;
    server.succeed()?;
    contains(
        &server.output(),
        "UDP port 4791 is owned by another user's process",
    )?;
    end(attacker)
}

/// A user on the names of root's port: root has it, its clients find root, and the user gets no
/// request.
fn squat_port(stage: &Stage) -> Outcome {
    let attacker = squat(stage, &["port", LOW_PORT])?;
    let rping = ["rping", "-V", "-C", "20", "-a", stage.ipv4(), "-p"];
    let server = [&rping[..], &[LOW_PORT, "-s"]].concat();
    let mut server = stage.program(Side::A, &server).user(User::Root).start()?;
    let names = format!("/proc/{}/net/unix", server.pid());
    let alternate = format!("@ferroce/port/tcp/{LOW_PORT}/");
    server.until("claimed its port", |_| {
        std::fs::read_to_string(&names).is_ok_and(|names| names.contains(&alternate))
    })?;
    call(stage, &[&rping[..], &[LOW_PORT, "-c"]].concat())?;
    server.succeed()?;
    let denied = [&rping[..], &[OTHER_LOW_PORT, "-s"]].concat();
    let mut denied = stage.program(Side::A, &denied).user(User::Second).start()?;
    denied.refuse()?;
    contains(&denied.output(), "Permission denied")?;
    if attacker.output().contains("took a request") {
        return Err("a user got a request to root's port".into());
    }
    end(attacker)
}

/// The second user's client ends well.
fn call(stage: &Stage, client: &[&str]) -> Outcome {
    let mut client = stage.program(Side::A, client).user(User::Second).start()?;
    client.succeed()
}

fn end(mut attacker: Process) -> Outcome {
    attacker.signal_all(Signal::SIGKILL)?;
    attacker.killed_by(Signal::SIGKILL)
}
