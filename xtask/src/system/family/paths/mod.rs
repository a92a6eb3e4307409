//! What the kernel, a user or a namespace refuses makes nothing fail: the next best path is taken,
//! and `ferroce devices --paths`, the log and a counter say which one and why. Every byte is
//! verified (`tests/c/paths.c`).

mod refusals;

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::contains;
use crate::system::{Catalogue, Outcome, Place, Process, Side, Stage, User};

use refusals::{BEST, Due, Lacks, NO_COPIES, NOTHING, REFUSALS, RINGS};

/// Log filter under which a process tells of its paths.
const LOG: (&str, &str) = ("FERROCE_LOG", "ferroce::path=debug,ferroce::direct=debug");

/// A server and a client that do not have the same user, though some of them read each other's
/// user id as 65534, and some run under the same number in another user namespace.
const STRANGERS: [(User, User); 9] = [
    (User::Ordinary, User::Second),
    (User::Unmapped, User::UnmappedSecond),
    (User::Nobody, User::UnmappedSecond),
    (User::Ordinary, User::Unmapped),
    (User::Unmapped, User::Ordinary),
    (User::Root, User::Unmapped),
    (User::Root, User::Container),
    (User::Container, User::Second),
    (User::Container, User::ContainerSecond),
];

/// Linux that can tell processes apart which have neither a user nor a PID where the other one is.
const TELLS_APART: [u32; 2] = [6, 16];

pub(super) fn add(all: &mut Catalogue) {
    for (name, user, server, client, due) in REFUSALS {
        let name = format!("paths.{name}");
        all.at(&name, Place::Loopback, user, 60, move |stage| {
            refusal(stage, (server, client), due)
        });
    }
    all.at(
        "paths.ptrace-scope",
        Place::Loopback,
        User::Ordinary,
        60,
        |stage| refusal(stage, (NOTHING, NOTHING), by_ptrace_scope()),
    );
    for mtu in [1500, 9000] {
        all.at(
            "paths.network-namespace",
            Place::Wire(mtu),
            User::Ordinary,
            60,
            |stage| {
                let due = Due {
                    packets: &["wire"],
                    packets_why: "not an address of this host",
                    direct: None,
                    direct_why: "",
                    counter: "",
                    mapped: false,
                };
                refusal(stage, (NOTHING, NOTHING), due)
            },
        );
    }
    for (server, client) in STRANGERS {
        let name = format!("paths.strangers.{}-{}", server.name(), client.name());
        all.at(&name, Place::Loopback, User::Ordinary, 60, move |stage| {
            strangers(stage, server, client)
        });
    }
    for user in [User::Root, User::Ordinary] {
        all.at("paths.machine", Place::Loopback, user, 30, machine);
    }
    all.at(
        "paths.machine-iwarp",
        Place::Loopback,
        User::Ordinary,
        30,
        machine_over_iwarp,
    );
}

/// What this machine's `kernel.yama.ptrace_scope` means for two processes of an ordinary user,
/// neither the other one's child.
fn by_ptrace_scope() -> Due {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    match scope.as_deref().map(str::trim) {
        Err(_) | Ok("0") => BEST,
        Ok(_) => Due {
            direct_why: "kernel.yama.ptrace_scope",
            ..NO_COPIES
        },
    }
}

/// The two work on each other, and neither gives the other a descriptor or lets it into its memory.
/// Their logs tell: root is a stranger to a process whose user namespace has no number for it.
fn strangers(stage: &Stage, server: User, client: User) -> Outcome {
    let has_names = |user| !matches!(user, User::Container | User::ContainerSecond);
    let works = (has_names(server) && has_names(client)) || kernel()? >= TELLS_APART;
    let run_by = |user| Lacks {
        user: Some(user),
        ..NOTHING
    };
    let mut server = start(stage, Side::A, run_by(server), &["server"])?;
    let port = super::programs::port_of(&mut server)?;
    let words = ["client", stage.ipv4(), &port];
    let mut client = start(stage, Side::B, run_by(client), &words)?;
    if !works {
        client.refuse()?;
        return server.signal_all(Signal::SIGKILL);
    }
    client.says("done")?;
    server.says("done")?;
    let offers_none = "the other process offers no direct way";
    contains(&client.output(), offers_none)?;
    for process in [&client, &server] {
        contains(&process.output(), "packets by Unix socket")?;
        if process.output().contains("WRITE and READ direct") {
            return Err(format!(
                "{} takes a stranger for its own user",
                process.label
            ));
        }
    }
    server.signal_all(Signal::SIGTERM)?;
    client.succeed()?;
    server.succeed()
}

/// Major and minor number of the running Linux.
fn kernel() -> Result<[u32; 2], String> {
    let path = "/proc/sys/kernel/osrelease";
    let release = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok([major, minor]),
        _ => Err(format!("{path}: {release}")),
    }
}

/// The two work on each other; then the client's path is as it is due, and told everywhere.
fn refusal(stage: &Stage, (server, client): (Lacks, Lacks), due: Due) -> Outcome {
    let mut server = start(stage, Side::A, server, &["server"])?;
    let port = super::programs::port_of(&mut server)?;
    let mut client = start(stage, Side::B, client, &["client", stage.ipv4(), &port])?;
    client.says("done")?;
    server.says("done")?;
    let told = told(stage, Side::B)?;
    check(&told, server.pid(), due)?;
    if let Some(direct) = due.direct {
        let way = if direct {
            "WRITE and READ direct"
        } else {
            "WRITE and READ by packets ("
        };
        contains(&client.output(), way)?;
    }
    // The first of them is the first to be used.
    contains(&client.output(), &format!("packets by {}", due.packets[0]))?;
    server.signal(Signal::SIGTERM)?;
    client.succeed()?;
    server.succeed()
}

fn start(stage: &Stage, side: Side, lacks: Lacks, words: &[&str]) -> Result<Process, String> {
    let program = stage.built("paths");
    let words = [lacks.inside, &[&*program], words, lacks.refused].concat();
    let mut launch = stage.program(side, &words);
    launch.label("paths").env(LOG.0, LOG.1);
    if let Some((name, value)) = lacks.env {
        launch.env(name, value);
    }
    if let Some(user) = lacks.user {
        launch.user(user);
    }
    launch.start()
}

/// What `ferroce devices --paths` says. Root is told of all users' processes.
fn told(stage: &Stage, side: Side) -> Result<Value, String> {
    told_over(stage, side, "rocev2")
}

/// As [`told`], where devices speak `wire`.
fn told_over(stage: &Stage, side: Side, wire: &str) -> Result<Value, String> {
    let words = [&stage.built("ferroce"), "devices", "--paths", "--json"];
    let mut asker = stage
        .bare(side, &words)
        .user(User::Root)
        .env("FERROCE_WIRE", wire)
        .label("ask")
        .start()?;
    asker.succeed()?;
    serde_json::from_str(&asker.output()).map_err(|e| format!("devices --paths --json: {e}"))
}

/// Looks at the process that is not the server.
fn check(told: &Value, server: u32, due: Due) -> Outcome {
    let processes = told["processes"].as_array().map_or(&[][..], Vec::as_slice);
    let client = processes.iter().find(|p| p["pid"] != server);
    let client = client.ok_or_else(|| format!("the client is not told of: {told}"))?;
    let flow = &client["survey"]["flows"][0];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let wrong = |what: &str| Err(format!("{what}: {client:#}"));
    if !due.packets.contains(&&*text(&flow["packets"]))
        || !text(&flow["packets_why"]).contains(due.packets_why)
    {
        return wrong("the way of packets");
    }
    if flow["direct"].as_bool() != due.direct {
        return wrong("the way of READ and WRITE");
    }
    let is_mapped = |what: &str| flow[what].as_bool().unwrap_or_default();
    if ["mapped", "atomics_direct"].map(is_mapped) != [due.mapped; 2] {
        return wrong("memory that is mapped, and atomics there");
    }
    let neighbours = client["survey"]["neighbours"].to_string();
    if !(text(&flow["direct_why"]) + &neighbours).contains(due.direct_why) {
        return wrong("the reason of READ and WRITE");
    }
    let counts = client["survey"]["counts"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let counted = |c: &Value| c["what"] == due.counter && c["value"].as_u64() > Some(0);
    if !due.counter.is_empty() && !counts.iter().any(counted) {
        return wrong("the counter");
    }
    Ok(())
}

/// With no process there, both paths of the machine are tried, and a process that is stopped is
/// told of as such.
fn machine(stage: &Stage) -> Outcome {
    let told = told(stage, Side::A)?;
    tried_by(&told, "same host", RINGS)?;
    tried_by(&told, "between hosts", &["wire"])?;
    let mut server = stage.start(Side::A, &[&stage.built("paths"), "server"])?;
    super::programs::port_of(&mut server)?;
    server.signal(Signal::SIGSTOP)?;
    let ferroce = stage.built("ferroce");
    let mut table = stage
        .bare(Side::A, &[&ferroce, "devices", "--paths"])
        .start()?;
    table.succeed()?;
    for text in [
        "same host",
        "UDP port 4791",
        "does not answer: it is stopped",
    ] {
        contains(&table.output(), text)?;
    }
    server.signal(Signal::SIGKILL)?;
    server.killed_by(Signal::SIGKILL)
}

/// A path was tried, and one of `packets` carried it.
fn tried_by<'a>(told: &'a Value, path: &str, packets: &[&str]) -> Result<&'a Value, String> {
    let all = told["tried"].as_array().map_or(&[][..], Vec::as_slice);
    let tried = all.iter().find(|tried| tried["path"] == path);
    let tried = tried.ok_or_else(|| format!("{path} was not tried: {told:#}"))?;
    if !packets.iter().any(|by| tried["flow"]["packets"] == *by) {
        return Err(format!("{path} is not by {packets:?}: {tried:#}"));
    }
    Ok(tried)
}

/// Over iWARP, READs and WRITEs within the host are direct as well.
fn machine_over_iwarp(stage: &Stage) -> Outcome {
    let told = told_over(stage, Side::A, "iwarp")?;
    let within = tried_by(&told, "same host", RINGS)?;
    if within["flow"]["direct"] != true {
        return Err(format!("READ and WRITE are not direct: {within:#}"));
    }
    tried_by(&told, "between hosts", &["TCP"]).map(drop)
}
