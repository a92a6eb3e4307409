//! Two processes: this program starts itself again as the peer. They tell each other numbers over
//! the peer's standard streams.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::process::Signal;
use common::{
    Buffer, DEADLINE, End, attributes, cap, next_completion, pattern, process, run_over_the_wire,
};
use ferroce_proto::ids::{Gid, Key, Qpn};
use ferroce_proto::verbs::{AttrMask, Mtu, QpAttr, QpState, RemoteAddr, SendOp, WcStatus};

const LEN: usize = 1 << 20;
const SEED: u64 = 77;

/// What an end tells the other.
struct Hello {
    qpn: Qpn,
    remote: RemoteAddr,
}

impl Hello {
    fn of(end: &End, buffer: &Buffer) -> Self {
        Self {
            qpn: end.qp.qpn(),
            remote: buffer.remote(0),
        }
    }

    fn line(&self) -> String {
        format!(
            "hello {} {} {}",
            self.qpn.get(),
            self.remote.addr,
            self.remote.rkey.0
        )
    }

    fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace().skip(1);
        let mut next = || {
            words
                .next()
                .expect("a number")
                .parse::<u64>()
                .expect("a number")
        };
        let (qpn, addr, rkey) = (next(), next(), next());
        let small = |n: u64| u32::try_from(n).expect("32 bits");
        Self {
            qpn: Qpn::new(small(qpn)),
            remote: RemoteAddr {
                addr,
                rkey: Key(small(rkey)),
            },
        }
    }
}

/// The peer process, with its end connected to one of ours.
struct Peer {
    child: Child,
    say: Option<ChildStdin>,
    hear: BufReader<ChildStdout>,
    end: End,
    buffer: Buffer,
    remote: RemoteAddr,
}

impl Peer {
    fn start() -> Self {
        Self::start_with(attributes(Qpn::default(), Gid::default(), Mtu::B4096).timeout)
    }

    /// As [`start`](Self::start), with a local ACK timeout.
    fn start_with(timeout: u8) -> Self {
        let end = End::new(cap());
        let buffer = Buffer::new(&end.pd, vec![0; LEN]);
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "child_peer", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut say = child.stdin.take().expect("a pipe");
        let mut hear = BufReader::new(child.stdout.take().expect("a pipe"));
        writeln!(say, "{}", Hello::of(&end, &buffer).line()).expect("told");
        let hello = Hello::parse(&hear_word(&mut hear, "hello"));
        let attr = attributes(hello.qpn, end.gid(), Mtu::B4096);
        end.connect_with(&QpAttr { timeout, ..attr })
            .expect("connected");
        writeln!(say, "connected").expect("told");
        Self {
            child,
            say: Some(say),
            hear,
            end,
            buffer,
            remote: hello.remote,
        }
    }

    fn tell(&mut self, word: &str) {
        writeln!(self.say.as_mut().expect("a pipe"), "{word}").expect("told");
    }

    fn signal(&self, signal: Signal) {
        process::signal(self.child.id(), signal);
    }

    /// Stops all threads of the process.
    fn stop(&self) {
        process::stop(self.child.id());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next line that contains the word; the test harness prints others.
fn hear_word(from: &mut impl BufRead, word: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(
            from.read_line(&mut line).expect("a line") > 0,
            "the peer ended before it said {word}"
        );
        if let Some(at) = line.find(word) {
            return line.split_off(at);
        }
    }
}

/// The peer: posts a receive, then does what it is told while it sits in a read of its standard
/// input.
#[test]
#[ignore = "run by the tests below"]
fn child_peer() {
    let end = End::new(cap());
    let buffer = Buffer::new(&end.pd, pattern(LEN, SEED));
    let mut input = std::io::stdin().lock();
    let hello = Hello::parse(&hear_word(&mut input, "hello"));
    end.connect(hello.qpn, end.gid(), Mtu::B4096);
    for wr_id in 0..8 {
        end.recv(wr_id, vec![buffer.sge(0, LEN)]);
    }
    println!("{}", Hello::of(&end, &buffer).line());
    hear_word(&mut input, "connected");
    loop {
        let mut line = String::new();
        if input.read_line(&mut line).expect("a line") == 0 {
            return;
        }
        match line.trim() {
            "receive" => println!("received {}", end.completion().byte_len),
            "spin" => {
                let until = Instant::now() + Duration::from_millis(20);
                while Instant::now() < until {
                    assert_eq!(end.cq.poll(1, &mut |_, _| {}).expect("no overflow"), 0);
                }
                println!("spun");
            }
            "send" => {
                end.send(1, SendOp::Send, vec![buffer.sge(0, LEN)]);
                end.done(1);
                println!("sent");
            }
            other => panic!("told to {other}"),
        }
    }
}

#[test]
fn messages_go_both_ways_between_processes() {
    let mut peer = Peer::start();
    peer.end.recv(3, vec![peer.buffer.sge(0, LEN)]);
    peer.tell("send");
    assert_eq!(peer.end.done(3).byte_len as usize, LEN);
    hear_word(&mut peer.hear, "sent");
    assert_eq!(peer.buffer.snapshot(), pattern(LEN, SEED));
    peer.end
        .send(4, SendOp::Send, vec![peer.buffer.sge(0, 1000)]);
    peer.end.done(4);
    peer.tell("receive");
    assert!(hear_word(&mut peer.hear, "received").contains("1000"));
}

#[test]
fn one_sided_operations_are_answered_while_the_peer_sits_in_read() {
    let peer = Peer::start();
    peer.end
        .send(1, SendOp::Read(peer.remote), vec![peer.buffer.sge(0, LEN)]);
    peer.end.done(1);
    assert_eq!(peer.buffer.snapshot(), pattern(LEN, SEED));
}

#[test]
fn a_peer_that_polled_and_then_turned_away_still_answers() {
    let mut peer = Peer::start();
    for wr_id in 0..20 {
        peer.tell("spin");
        hear_word(&mut peer.hear, "spun");
        let bytes = vec![peer.buffer.sge(0, 8)];
        peer.end.send(wr_id, SendOp::Read(peer.remote), bytes);
        peer.end.done(wr_id);
    }
}

#[test]
fn a_killed_peer_fails_work_at_once_and_the_next_one_works() {
    // Over the wire each waits for all its retries: all at once.
    let peers = [0, 200, 1000, 3000].map(killed_after);
    for peer in &peers {
        let start = Instant::now();
        let statuses: Vec<_> = (0..16)
            .map(|_| next_completion(&peer.end.cq).status)
            .collect();
        assert!(start.elapsed() < DEADLINE);
        let failed = statuses.iter().position(|s| *s != WcStatus::Success);
        if let Some(first) = failed {
            assert_eq!(statuses[first], WcStatus::RetryExcErr, "{statuses:?}");
            assert!(
                statuses[first + 1..]
                    .iter()
                    .all(|s| *s == WcStatus::WrFlushErr),
                "{statuses:?}"
            );
        }
    }
}

/// A peer that is killed `delay` microseconds after READs of its memory began.
fn killed_after(delay: u64) -> Peer {
    let peer = Peer::start();
    for wr_id in 0..16 {
        peer.end.send(
            wr_id,
            SendOp::Read(peer.remote),
            vec![peer.buffer.sge(0, LEN)],
        );
    }
    let until = Instant::now() + Duration::from_micros(delay);
    while Instant::now() < until {
        std::thread::yield_now();
    }
    peer.signal(Signal::SIGKILL);
    peer
}

#[test]
fn a_stopped_peer_costs_no_retry() {
    // 17 ms, of which the device makes 67.
    let peer = Peer::start_with(12);
    peer.stop();
    for wr_id in 0..4 {
        let bytes = vec![peer.buffer.sge(0, LEN)];
        peer.end.send(wr_id, SendOp::Send, bytes);
    }
    // All retries that the queue pair is allowed would be used up by then, were they counted: 8 x
    // 67 ms.
    let until = Instant::now() + Duration::from_millis(900);
    while Instant::now() < until {
        peer.end
            .cq
            .poll(1, &mut |_, wc| panic!("{wc:?}"))
            .expect("no overflow");
        std::thread::sleep(Duration::from_millis(5));
    }
    peer.signal(Signal::SIGCONT);
    for wr_id in 0..4 {
        peer.end.done(wr_id);
    }
}

#[test]
fn a_peer_that_ends_properly_is_heard_to_its_last_word() {
    for _ in 0..10 {
        let mut peer = Peer::start();
        peer.end.recv(3, vec![peer.buffer.sge(0, LEN)]);
        peer.tell("send");
        hear_word(&mut peer.hear, "sent");
        peer.say = None;
        peer.child.wait().expect("ended");
        assert_eq!(peer.end.done(3).byte_len as usize, LEN);
    }
}

#[test]
fn an_idle_device_costs_no_processor_time() {
    let peer = Peer::start();
    let stat = format!("/proc/{}/stat", peer.child.id());
    let ticks = || {
        let stat = std::fs::read_to_string(&stat).expect("stat");
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        let field = |n: usize| {
            fields
                .split_whitespace()
                .nth(n)
                .expect("a field")
                .parse::<u64>()
                .expect("a number")
        };
        field(11) + field(12)
    };
    // A hundredth of a second each. On a busy machine it may still be on its way to its rest.
    let in_half_a_second = || {
        let before = ticks();
        std::thread::sleep(Duration::from_millis(500));
        ticks() - before
    };
    assert!((0..10).any(|_| in_half_a_second() <= 1), "never idle");
}

#[test]
fn a_queue_pair_that_waits_for_a_stopped_peer_can_be_used_for_another() {
    let stopped = Peer::start();
    stopped.stop();
    // More than the link holds.
    for wr_id in 0..8 {
        let bytes = vec![stopped.buffer.sge(0, LEN)];
        stopped.end.send(wr_id, SendOp::Send, bytes);
    }
    let reset = QpAttr {
        qp_state: QpState::Reset,
        ..QpAttr::default()
    };
    stopped
        .end
        .qp
        .modify(&reset, AttrMask::STATE)
        .expect("RESET");
    let other = End::new(cap());
    stopped.end.connect(other.qp.qpn(), other.gid(), Mtu::B1024);
    other.connect(stopped.end.qp.qpn(), stopped.end.gid(), Mtu::B1024);
    other.recv(1, vec![]);
    stopped.end.send(9, SendOp::Send, vec![]);
    other.done(1);
    stopped.end.done(9);
}

/// Runs tests of this program with the wire forced, in both processes. All their packets go to the
/// same UDP address, so those for one of the two land in the other (or in a third that happens to
/// run) and are forwarded.
#[test]
fn the_same_over_the_wire() {
    for test in [
        "messages_go_both_ways_between_processes",
        "one_sided_operations_are_answered_while_the_peer_sits_in_read",
        "a_killed_peer_fails_work_at_once_and_the_next_one_works",
    ] {
        run_over_the_wire(test);
    }
}
