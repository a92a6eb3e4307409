//! READs and WRITEs over iWARP within a host, which the initiator carries out itself: between two
//! processes, each of which is this program again.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use common::process::{Signal, signal, stop};
use common::stream::{IWARP, Listener, Side, ask};
use common::{Buffer, End, cap, pattern, run_alone, wait_for};
use ferroce_nic::DirectWay;
use ferroce_nic::cm::EventKind;
use ferroce_proto::ids::Key;
use ferroce_proto::verbs::{QpState, RemoteAddr, SendOp, WcStatus};

const LEN: usize = 100_000;

#[track_caller]
fn run(test: &str, environment: &[(&str, &str)]) {
    let text = run_alone(test, &[&[IWARP], environment].concat());
    assert!(text.contains("1 passed"), "{environment:?}: {text}");
}

/// The other process, and this one's end of the connection to it.
struct Target {
    child: Child,
    say: ChildStdin,
    side: Side,
    remote: RemoteAddr,
    /// As long as the memory of the other process.
    buffer: Buffer,
}

impl Target {
    fn start() -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["--exact", "child_target", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let say = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut lines = lines.map(|line| line.expect("a line"));
        let said = lines.find_map(|line| Some(line.split_once("target ")?.1.to_owned()));
        let said = said.expect("where it is");
        let mut words = said.split(' ');
        let mut word = || words.next().expect("three words").to_owned();
        let side = ask(word().parse().expect("an address"));
        side.hears(EventKind::Established, 0);
        let remote = RemoteAddr {
            addr: word().parse().expect("a number"),
            rkey: Key(word().parse().expect("a number")),
        };
        let buffer = Buffer::new(&side.end.pd, vec![0; LEN]);
        Self {
            child,
            say,
            side,
            remote,
            buffer,
        }
    }

    fn send(&self, wr_id: u64, op: SendOp) {
        let all = vec![self.buffer.sge(0, LEN)];
        self.side.end.send(wr_id, op, all);
    }

    /// READs and WRITEs that were carried out directly.
    fn counted(&self) -> [u64; 2] {
        let counters = self.side.end.context.device().counters();
        [DirectWay::In, DirectWay::Out].map(|way| counters.direct(way))
    }

    /// READs until that is done directly: the other process may not have met this one yet.
    fn until_direct(&self) {
        wait_for("the direct way", || {
            self.send(0, SendOp::Read(self.remote));
            self.side.end.done(0);
            self.side.end.qp.path_report().direct == Some(Ok(()))
        });
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tells where it is, and sends a message for each line.
#[test]
#[ignore = "the other process of the tests below"]
fn child_target() {
    let end = End::new(cap());
    let buffer = Buffer::new(&end.pd, pattern(LEN, 4));
    let listener = Listener::new();
    let (at, addr, key) = (listener.addr(), buffer.addr(), buffer.key().0);
    println!("target {at} {addr} {key}");
    let side = listener.request(end);
    side.id.accept(&side.param()).expect("accepted");
    side.hears(EventKind::Established, 0);
    for line in std::io::stdin().lines() {
        assert_eq!(line.expect("a line"), "answer");
        side.end.send(1, SendOp::Send, vec![buffer.sge(0, LEN)]);
        side.end.done(1);
    }
}

#[test]
fn reads_and_writes_within_a_host_need_no_peer() {
    run("child_stopped", &[("FERROCE_PATH", "local")]);
}

#[test]
#[ignore = "run by the test above"]
fn child_stopped() {
    let target = Target::start();
    target.until_direct();
    assert_eq!(target.buffer.snapshot(), pattern(LEN, 4));
    let [reads, writes] = target.counted();
    stop(target.child.id());
    let bytes = pattern(LEN, 5);
    let other = Buffer::new(&target.side.end.pd, bytes.clone());
    let sges = vec![other.sge(0, 100), other.sge(100, LEN - 100)];
    target.side.end.send(1, SendOp::Write(target.remote), sges);
    target.side.end.done(1);
    target.send(2, SendOp::Read(target.remote));
    assert_eq!(target.side.end.done(2).byte_len as usize, LEN);
    assert_eq!(target.buffer.snapshot(), bytes);
    assert_eq!(target.counted(), [reads + 1, writes + 1]);
    // A SEND is the other process's to take, and what is behind it does not overtake it.
    target.side.end.send(3, SendOp::Send, vec![]);
    target.side.end.done(3);
    target.send(4, SendOp::Write(target.remote));
    target.side.end.done(4);
    assert_eq!(target.counted(), [reads + 1, writes + 1]);
    signal(target.child.id(), Signal::SIGCONT);
    // It finds no receive, and ends the connection.
    target.side.hears(EventKind::Disconnected, 0);
    assert_eq!(target.side.end.qp.state(), QpState::Err);
}

#[test]
fn what_the_initiator_has_written_is_what_the_other_process_sends() {
    for direct in ["1", "0"] {
        let settings = [("FERROCE_PATH", "local"), ("FERROCE_DIRECT", direct)];
        run("child_written", &settings);
    }
}

#[test]
#[ignore = "run by the test above"]
fn child_written() {
    let is_direct = std::env::var("FERROCE_DIRECT").is_ok_and(|value| value == "1");
    let mut target = Target::start();
    if is_direct {
        target.until_direct();
    }
    for round in 0..20 {
        let bytes = pattern(LEN, round);
        let from = Buffer::new(&target.side.end.pd, bytes.clone());
        let all = vec![from.sge(0, LEN)];
        target.side.end.send(1, SendOp::Write(target.remote), all);
        target.side.end.done(1);
        target.side.end.recv(2, vec![target.buffer.sge(0, LEN)]);
        // A READ behind it has it, whichever way they went.
        let back = Buffer::new(&target.side.end.pd, vec![0; LEN]);
        let all = vec![back.sge(0, LEN)];
        target.side.end.send(3, SendOp::Read(target.remote), all);
        target.side.end.done(3);
        assert_eq!(back.snapshot(), bytes);
        writeln!(target.say, "answer").expect("told");
        target.side.end.done(2);
        assert_eq!(target.buffer.snapshot(), bytes);
    }
    let [reads, writes] = target.counted();
    assert!(
        !is_direct || (reads > 20 && writes >= 20),
        "{reads} {writes}"
    );
    assert!(is_direct || (reads, writes) == (0, 0), "{reads} {writes}");
}

#[test]
fn a_key_that_grants_nothing_ends_the_connection() {
    run("child_refused", &[("FERROCE_PATH", "local")]);
}

#[test]
#[ignore = "run by the test above"]
fn child_refused() {
    let target = Target::start();
    target.until_direct();
    let [reads, writes] = target.counted();
    let wrong = RemoteAddr {
        rkey: Key(target.remote.rkey.0 ^ 0x0f0f),
        ..target.remote
    };
    target.send(1, SendOp::Read(wrong));
    let wc = target.side.end.completion();
    assert_eq!((wc.wr_id, wc.status), (1, WcStatus::WrFlushErr));
    target.side.hears(EventKind::Disconnected, 0);
    assert_eq!(target.counted(), [reads, writes]);
}
