//! Malformed and malicious packets and MADs on a live device under load: what is healthy does not
//! notice, nothing grows.
//!
//! The path is chosen when the device starts, so each test runs in a process of its own: this
//! program again.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

#[path = "hostile/attack.rs"]
mod attack;
#[path = "hostile/healthy.rs"]
mod healthy;
#[path = "hostile/mads.rs"]
mod mads;
#[path = "hostile/resources.rs"]
mod resources;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ferroce_conformance::namespace::start_apart;
use ferroce_conformance::{Bench, Ends, Entry, Path};
use healthy::{Connection, Service};
use resources::Resources;

/// How long the device is attacked.
const ATTACK: Duration = Duration::from_millis(2500);
/// Healthy connections.
const CONNECTIONS: u64 = 3;
/// Threads that attack.
const ATTACKERS: u64 = 3;
/// What the process may have more of at the end: memory that allocators keep, a few buffers.
const ROOM: Resources = Resources {
    bytes: 96 << 20,
    descriptors: 16,
};

#[track_caller]
fn run(path: &str) {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env("FERROCE_PATH", path);
    let output = start_apart(&mut command).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
    println!("{text}");
}

#[test]
fn connections_over_the_wire_survive() {
    run("wire");
}

#[test]
fn connections_on_the_local_path_survive() {
    run("auto");
}

#[test]
#[ignore = "run by the tests above"]
fn child() {
    let path = match std::env::var("FERROCE_PATH").as_deref() {
        Ok("wire") => Path::Wire4,
        _ => Path::Local,
    };
    let bench = Bench {
        entry: Entry::Rust,
        path,
        ends: Ends::Together,
    };
    let connections: Vec<_> = (0..CONNECTIONS)
        .map(|n| Connection::new(&bench, n))
        .collect();
    let targets: Vec<_> = connections.iter().flat_map(Connection::targets).collect();
    let service = Service::start();
    // Everything that is made once is there now.
    service.connect();
    for connection in &connections {
        connection.round(0);
    }
    let before = Resources::now();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for connection in &connections {
            scope.spawn(|| connection.run_until(&stop));
        }
        scope.spawn(|| service.run_until(&stop));
        for seed in 0..ATTACKERS {
            let (bench, targets, port) = (&bench, &targets, service.port());
            let stop = &stop;
            scope.spawn(move || attack::run_until(stop, seed, (bench, targets, port)));
        }
        let start = Instant::now();
        while start.elapsed() < ATTACK && !stop.load(Ordering::Relaxed) {
            std::thread::park_timeout(ATTACK / 50);
        }
        stop.store(true, Ordering::Relaxed);
    });
    for connection in &connections {
        connection.check_unharmed();
    }
    service.connect();
    let grown = Resources::now().beyond(before);
    println!("{grown:?} more than before");
    assert!(grown.fits(ROOM), "{grown:?} more than before, {before:?}");
}
