//! A listener on iWARP whose process has no descriptor left: this program again, with few of them.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::stream::{IWARP, Listener};
use common::{DEADLINE, End, cap, wait_for};

/// A request without private data (RFC 5044, 7.1).
const REQUEST: &[u8; 20] = b"MPA ID Req Frame\x00\x01\x00\x00";
/// Processor time of the device thread meanwhile, at most.
const BUSY: Duration = Duration::from_millis(50);
/// Less than the time after which a silent connection is closed in any case.
const SOON: Duration = Duration::from_secs(4);
/// How long a connection waits in vain.
const STARVED: Duration = Duration::from_millis(200);

fn run_with_few_descriptors(test: &str) {
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 128; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test, "--ignored"])
        .envs([IWARP])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("1 passed"), "{text}");
}

/// Takes all descriptors but one.
fn take_descriptors() -> Vec<File> {
    let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    taken.pop();
    taken
}

#[test]
fn a_listener_without_descriptors_rests_and_accepts_when_there_are_some() {
    run_with_few_descriptors("child_starved");
}

#[test]
#[ignore = "run by the test above"]
fn child_starved() {
    let (listener, end) = (Listener::new(), End::new(cap()));
    let mut thread = device_thread();
    let taken = take_descriptors();
    let before = processor_time(&mut thread);
    let mut peer = TcpStream::connect(listener.addr()).unwrap();
    let begun = Instant::now();
    wait_for("a while", || begun.elapsed() >= STARVED);
    let busy = processor_time(&mut thread) - before;
    assert!(busy < BUSY, "{busy:?}");
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
    let begun = Instant::now();
    let mut silent = TcpStream::connect(listener.addr()).unwrap();
    silent.set_read_timeout(Some(DEADLINE)).unwrap();
    // Both ends of it.
    wait_for("the silent connection", || open_descriptors() == before + 2);
    let _taken = take_descriptors();
    let mut peer = TcpStream::connect(listener.addr()).unwrap();
    peer.write_all(REQUEST).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
    assert!(begun.elapsed() < SOON);
    listener.request(end);
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// What the kernel says of the device thread's time.
fn device_thread() -> File {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let mut paths = tasks.map(|task| task.unwrap().path());
    let is_it = |path: &PathBuf| std::fs::read(path.join("comm")).unwrap() == b"ferroce\n";
    File::open(paths.find(is_it).unwrap().join("schedstat")).unwrap()
}

fn processor_time(thread: &mut File) -> Duration {
    let mut text = String::new();
    thread.rewind().unwrap();
    thread.read_to_string(&mut text).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}
