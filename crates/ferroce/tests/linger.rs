//! Streams that are dropped: what was written arrives, and nothing stays behind.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::DEADLINE;
use common::door::{connector, endpoint, incoming, listener};
use ferroce::endpoint::Listener;
use ferroce::stream::{Stream, StreamRoom};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Tells a process that runs one of these tests what it is.
const ROLE: &str = "FERROCE_TEST_ROLE";
/// The same, and where its peer is.
const PEER: &str = "FERROCE_TEST_PEER";

/// As much as the default room takes without a reader.
const LENGTH: usize = 8 * (16 << 10);

fn bytes() -> Vec<u8> {
    (0..LENGTH)
        .map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13).to_le_bytes()[0])
        .collect()
}

fn connect(address: SocketAddr) -> Stream {
    let connector = connector(&endpoint());
    let connecting = Stream::connect(&connector, address, StreamRoom::default());
    connecting.wait().unwrap()
}

fn accept(listener: &Listener) -> Stream {
    let accepting = Stream::accept(incoming(listener), StreamRoom::default());
    accepting.wait().unwrap()
}

/// The accepted and the connected end, which have endpoints of their own that nobody else has.
fn pair() -> (Stream, Stream) {
    let (listener, address) = listener(&endpoint());
    let connecting = thread::spawn(move || connect(address));
    (accept(&listener), connecting.join().unwrap())
}

/// Everything up to the end, which must come in time.
fn read_all(mut stream: Stream) -> (io::Result<usize>, Vec<u8>) {
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        (stream.blocking().read_to_end(&mut all), all)
    });
    wait_for("the end of the stream", || reader.is_finished());
    reader.join().unwrap()
}

#[track_caller]
fn wait_for(what: &str, mut reached: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < DEADLINE, "not in time: {what}");
        thread::park_timeout(Duration::from_millis(1));
    }
}

/// One of these tests in a process of its own, in a role.
fn other_process(test: &str, role: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, role);
    command
}

fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// Runs a test in a process of its own. Its output is not for the program that counts tests here.
#[track_caller]
fn run(mut command: Command) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|s| String::from_utf8_lossy(&s).into_owned());
    assert!(output.status.success(), "{}{}", said[0], said[1]);
}

#[test]
fn what_was_written_arrives_and_the_end_behind_it() {
    for _ in 0..10 {
        let (reader, mut writer) = pair();
        writer.set_linger(DEADLINE);
        writer.blocking().write_all(&bytes()).unwrap();
        // Its endpoint is served by nobody any more.
        drop(writer);
        let (ended, all) = read_all(reader);
        assert_eq!(ended.unwrap(), LENGTH);
        assert!(all == bytes());
    }
}

/// The 10 seconds that it has then are not always enough on a slow machine.
#[test]
fn a_stream_lingers_if_nothing_was_said() {
    let arrives = || {
        let (reader, mut writer) = pair();
        writer.blocking().write_all(&bytes()).unwrap();
        drop(writer);
        read_all(reader).0.is_ok()
    };
    assert!((0..10).any(|_| arrives()));
}

#[test]
fn both_ends_may_be_dropped_with_bytes_on_their_way() {
    for _ in 0..10 {
        let (mut one, mut other) = pair();
        one.set_linger(DEADLINE);
        one.blocking().write_all(&bytes()).unwrap();
        other.blocking().write_all(&bytes()).unwrap();
        // It finds all, and then the end, though what it wrote itself is read by nobody.
        drop(one);
        let (ended, all) = read_all(other);
        assert_eq!(ended.unwrap(), LENGTH);
        assert!(all == bytes());
    }
}

#[test]
fn an_abort_is_told_from_an_end() {
    for by_linger in [false, true] {
        let (mut reader, mut writer) = pair();
        writer.blocking().write_all(b"the last words").unwrap();
        let mut came = [0; 14];
        reader.blocking().read_exact(&mut came).unwrap();
        if by_linger {
            writer.set_linger(Duration::ZERO);
            drop(writer);
        } else {
            writer.abort();
        }
        let (ended, all) = read_all(reader);
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert!(all.is_empty());
    }
}

/// Threads of this process that finish streams.
fn lingering() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name == "ferroce-linger\n").count()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// An endpoint's descriptors are closed when its queues are gone, and those when their queue pairs
/// are.
#[test]
fn nothing_is_left_when_all_has_arrived() {
    if role().is_none() {
        return run(other_process(
            "nothing_is_left_when_all_has_arrived",
            "alone",
        ));
    }
    let exchange = || {
        let (reader, mut writer) = pair();
        writer.set_linger(DEADLINE);
        writer.blocking().write_all(&bytes()).unwrap();
        drop(writer);
        assert_eq!(read_all(reader).0.unwrap(), LENGTH);
    };
    // What the first use of a device opens stays open.
    exchange();
    wait_for("no thread", || lingering() == 0);
    let before = descriptors();
    for _ in 0..20 {
        exchange();
    }
    wait_for("no thread", || lingering() == 0);
    wait_for("no descriptor", || descriptors() <= before);
}

/// Of the software device's wire, on which packets are late and some get lost. With another device
/// they do not.
fn on_a_slow_wire(mut command: Command) -> Command {
    command.env("FERROCE_PATH", "wire");
    command.env("FERROCE_FAULT", "delay=150ms,drop=2%,seed=11");
    command
}

#[test]
fn what_was_written_arrives_though_its_process_returns_from_main() {
    let this = "what_was_written_arrives_though_its_process_returns_from_main";
    if let Ok(peer) = env::var(PEER) {
        let mut stream = connect(peer.parse().unwrap());
        stream.set_linger(DEADLINE);
        stream.blocking().write_all(&bytes()).unwrap();
        return;
    }
    if role().is_none() {
        return run(on_a_slow_wire(other_process(this, "alone")));
    }
    let (listener, address) = listener(&endpoint());
    for _ in 0..2 {
        let mut command = other_process(this, "writer");
        command.env(PEER, address.to_string());
        let writer = thread::spawn(move || run(command));
        let reader = accept(&listener);
        writer.join().unwrap();
        let (ended, all) = read_all(reader);
        assert_eq!(ended.unwrap(), LENGTH);
        assert!(all == bytes());
    }
}

/// Ends it, whatever becomes of the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A process that accepts two streams and then does nothing, its device neither.
fn frozen_peer(test: &str) -> (Killed, [Stream; 2]) {
    let mut command = other_process(test, "frozen");
    let mut child = Killed(
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let said = BufReader::new(child.0.stdout.take().unwrap());
    let mut lines = said.lines().map(io::Result::unwrap);
    let address = lines.find_map(|line| line.strip_prefix("at ")?.parse().ok());
    let address = address.unwrap();
    let streams = [(); 2].map(|()| connect(address));
    assert!(lines.any(|line| line == "accepted"));
    let pid = signal(&child.0, Signal::SIGSTOP);
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    wait_for("the peer stops", || state().contains(") T "));
    (child, streams)
}

fn signal(child: &Child, signal: Signal) -> Pid {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    kill(pid, signal).unwrap();
    pid
}

#[test]
fn a_peer_that_does_not_answer_is_waited_for_no_longer_than_was_said() {
    let this = "a_peer_that_does_not_answer_is_waited_for_no_longer_than_was_said";
    match role().as_deref() {
        None => return run(other_process(this, "alone")),
        Some("frozen") => {
            let (listener, address) = listener(&endpoint());
            println!("\nat {address}");
            let _held = [(); 2].map(|()| accept(&listener));
            println!("accepted");
            // Until it is stopped, and then killed.
            return drop(io::stdin().read(&mut [0]));
        }
        Some(_) => {}
    }
    assert!((0..5).any(|_| the_shorter_limit_is_kept(this)));
}

/// Whether the stream of two that may wait for a shorter time was seen to be given up while the
/// other one still waited. If this process stands still for too long, it is not seen, or the peer
/// is lost to both.
fn the_shorter_limit_is_kept(test: &str) -> bool {
    /// The transport's retries take longer.
    const BEFORE_THE_LOSS: Duration = Duration::from_secs(8);
    /// Long enough to see both threads, on a busy machine too.
    const SHORTER: Duration = Duration::from_secs(2);
    let (peer, [mut long, mut short]) = frozen_peer(test);
    let begun = Instant::now();
    let in_time = || begun.elapsed() < BEFORE_THE_LOSS;
    let until = |threads| wait_for("threads", || lingering() == threads || !in_time());
    long.set_linger(DEADLINE);
    short.set_linger(SHORTER);
    for stream in [&mut long, &mut short] {
        stream.blocking().write_all(b"hello?").unwrap();
    }
    // Each has an endpoint of its own, and so a thread, which has its name some time after it has
    // begun.
    drop(long);
    until(1);
    drop(short);
    until(2);
    until(1);
    let held = lingering() == 1 && in_time();
    // The other one gets its answer.
    signal(&peer.0, Signal::SIGCONT);
    wait_for("no thread", || lingering() == 0);
    held
}
