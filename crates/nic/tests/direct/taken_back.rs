//! Memory that is taken back while peers are at it.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::process::Signal;
use crate::common::{self, Buffer, Bytes, pattern, wait_for};
use crate::other_process::peer::Peer;
use crate::other_process::race::{self, race_all};
use crate::other_process::reach::{self, Kind};
use crate::other_process::{CANARY, SEED};

/// Rounds of each kind of end: deregistration, the queue pair's move to ERR, its destruction.
fn races(peer: &mut Peer) {
    // By packets the end of a queue pair is told by silence: that takes its time.
    let ways = [
        ("register", 0, 300),
        ("register", 1, 12),
        ("register", 2, 12),
    ];
    race_all(peer, &ways);
}

/// Promise 1 on the direct way: deregistration, and the queue pair's end, against operations that
/// are under way.
#[test]
fn memory_that_was_taken_back_is_not_touched() {
    race::by_the_direct_way(races);
}

#[test]
#[ignore = "run by the test below"]
fn race_by_packets() {
    race::by_packets(races);
}

/// The same by packets, through shared memory, through sockets, and on the wire.
#[test]
fn nor_by_packets() {
    let paths = [
        ("FERROCE_RINGS", "on"),
        ("FERROCE_RINGS", "off"),
        ("FERROCE_PATH", "wire"),
    ];
    race::by_packets_alone("taken_back::race_by_packets", &paths);
}

/// A process that is killed in the middle of a copy does not hold up those whose memory it used.
#[test]
fn an_initiator_that_is_killed_lets_go() {
    for round in 0..12 {
        let mut peer = Peer::start_direct();
        peer.ask("flood");
        let first = || std::hint::black_box(&peer.buffer).snapshot()[0];
        wait_for("a WRITE", || first() == pattern(1, SEED)[0]);
        let until = Instant::now() + Duration::from_micros(round * 97);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        peer.child.kill().expect("killed");
        let buffer = std::mem::replace(&mut peer.buffer, Buffer::new(&peer.end.pd, vec![0; 8]));
        let start = Instant::now();
        let mut bytes = buffer.deregister();
        assert!(
            start.elapsed() < common::DEADLINE,
            "held up for {:?}",
            start.elapsed()
        );
        bytes.fill(CANARY);
        peer.child.wait().expect("ended");
        assert!(bytes.snapshot().iter().all(|byte| *byte == CANARY));
    }
}

/// Nor does one that becomes another program: it lives, and its board says for ever what it was in
/// the middle of.
#[test]
fn an_initiator_that_executes_a_program_lets_go() {
    for round in 0..12 {
        let mut peer = Peer::start_direct();
        peer.ask(&format!("end-flood {}", 2000 + round * 97));
        let replacement = Buffer::new(&peer.end.pd, vec![0; 8]);
        let buffer = std::mem::replace(&mut peer.buffer, replacement);
        let program = format!("/proc/{}/comm", peer.child.id());
        let name = || std::fs::read_to_string(&program).expect("it lives");
        wait_for("another program", || name() == "sleep\n");
        let taker = Taker::new(buffer);
        let taken = taker.taken.recv_timeout(common::DEADLINE);
        let bytes = taken.expect("held up by a process that has no more to do with it");
        taker.thread.join().expect("taken");
        assert!(bytes.snapshot().iter().all(|byte| *byte == CANARY));
    }
}

/// A thread that takes memory back.
struct Taker {
    thread: JoinHandle<()>,
    /// Where the system tells of it.
    at: PathBuf,
    taken: Receiver<Bytes>,
}

impl Taker {
    fn new(buffer: Buffer) -> Self {
        let ((me, begun), (done, taken)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            let me_at = std::fs::read_link("/proc/thread-self").expect("a thread");
            me.send(me_at).expect("heard");
            let mut bytes = buffer.deregister();
            bytes.fill(CANARY);
            done.send(bytes).expect("heard");
        });
        let at = Path::new("/proc").join(begun.recv().expect("begun"));
        Self { thread, at, taken }
    }

    /// The memory, or nothing: it is held up. Time says nothing on a busy machine, but a thread
    /// that waits for a copy's end sleeps and looks, and sleeps again, and no other one does.
    fn has_it(&self) -> Option<Bytes> {
        const SLEEPS: u64 = 50;
        let mut bytes = None;
        wait_for("memory that is taken back, or a wait for it", || {
            bytes = self.taken.try_recv().ok();
            bytes.is_some() || self.sleeps() >= SLEEPS
        });
        bytes
    }

    /// How often it has slept. None any more when it has ended.
    fn sleeps(&self) -> u64 {
        let status = std::fs::read_to_string(self.at.join("status")).unwrap_or_default();
        let sleeps = |line: &str| {
            line.strip_prefix("voluntary_ctxt_switches:")?
                .trim()
                .parse()
                .ok()
        };
        status.lines().find_map(sleeps).unwrap_or(0)
    }
}

/// Stops an initiator at some moment of its copies and takes the memory back. Returns whether that
/// had to wait: then `release` let it go on, and nothing has touched the memory since.
fn taken_back_from_a_stopped_one(kind: Kind, release: impl FnOnce(&mut Peer)) -> bool {
    let mut peer = Peer::start_direct();
    let buffer = Buffer::of(&peer.end.pd, kind(&peer.end));
    peer.connect((buffer.addr(), buffer.key()));
    peer.ask("flood");
    let first = || std::hint::black_box(&buffer).snapshot()[0];
    wait_for("a WRITE", || first() == pattern(1, SEED)[0]);
    peer.stop();
    let taker = Taker::new(buffer);
    let soon = taker.has_it();
    let held_up = soon.is_none();
    let bytes = soon.unwrap_or_else(|| {
        release(&mut peer);
        let later = taker.taken.recv_timeout(common::DEADLINE);
        later.expect("let go")
    });
    if !held_up {
        peer.signal(Signal::SIGCONT);
    }
    taker.thread.join().expect("taken");
    // What the other one still has in its hands fails.
    let until = Instant::now() + Duration::from_millis(5);
    while Instant::now() < until {
        let now = bytes.snapshot();
        assert!(now.iter().all(|byte| *byte == CANARY), "touched");
    }
    held_up
}

/// A process that is stopped between its look at the rights and the end of its copy would go on
/// with the copy later: nobody gets the memory back before it has gone on, or has ended.
#[test]
fn a_stopped_initiator_is_waited_for_until_it_goes_on_or_ends() {
    let releases: [fn(&mut Peer); 2] = [
        |peer| peer.signal(Signal::SIGCONT),
        |peer| peer.child.kill().expect("killed"),
    ];
    for kind in reach::kinds() {
        for release in releases {
            let mut tries = (0..100).map(|_| taken_back_from_a_stopped_one(kind, release));
            assert!(tries.any(|held_up| held_up), "never in a copy");
        }
    }
}
