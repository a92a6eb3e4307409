//! A listener on iWARP whose process has no descriptor left: this program again, with few of them.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use common::stream::{IWARP, Listener};
use common::{DEADLINE, End, cap, wait_for};

/// A request without private data (RFC 5044, 7.1).
const REQUEST: &[u8; 20] = b"MPA ID Req Frame\x00\x01\x00\x00";
/// What the log says of a connection that is not accepted.
const REFUSED: &str = "is not accepted";
/// How long a connection waits in vain.
const STARVED: Duration = Duration::from_millis(200);

fn run_with_few_descriptors(test: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 128; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test, "--ignored"])
        .envs([IWARP, ("FERROCE_LOG", "warn")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("1 passed"), "{text}");
    text
}

/// Takes all descriptors but one.
fn take_descriptors() -> Vec<File> {
    let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    taken.pop();
    taken
}

#[test]
fn a_listener_without_descriptors_rests_and_accepts_when_there_are_some() {
    let text = run_with_few_descriptors("child_starved");
    let refusals = text.matches(REFUSED).count();
    // One each 20 ms, and what the test takes longer.
    assert!((1..1000).contains(&refusals), "{refusals} refusals");
}

#[test]
#[ignore = "run by the test above"]
fn child_starved() {
    let (listener, end) = (Listener::new(), End::new(cap()));
    let taken = take_descriptors();
    let mut peer = TcpStream::connect(listener.addr()).unwrap();
    let begun = Instant::now();
    wait_for("a while", || begun.elapsed() >= STARVED);
    drop(taken);
    peer.write_all(REQUEST).unwrap();
    listener.request(end);
}

#[test]
fn without_descriptors_a_silent_connection_makes_room_for_the_next() {
    run_with_few_descriptors("child_crowded");
}

#[test]
#[ignore = "run by the test above"]
fn child_crowded() {
    let (listener, end) = (Listener::new(), End::new(cap()));
    let before = open_descriptors();
    let mut silent = TcpStream::connect(listener.addr()).unwrap();
    silent.set_read_timeout(Some(DEADLINE)).unwrap();
    // Both ends of it.
    wait_for("the silent connection", || open_descriptors() == before + 2);
    let _taken = take_descriptors();
    let mut peer = TcpStream::connect(listener.addr()).unwrap();
    peer.write_all(REQUEST).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
    listener.request(end);
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
