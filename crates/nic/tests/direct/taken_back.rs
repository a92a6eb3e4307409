//! Memory that is taken back while peers are at it.

use std::time::{Duration, Instant};

use crate::common::{self, Buffer, pattern, wait_for};
use crate::other_process::peer::Peer;
use crate::other_process::race::{self, race_all};
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

/// Promise 1 on the direct way: deregistration, and the queue pair's end, against operations that are under way.
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

/// Stops an initiator at some moment of its copies and takes the memory back. Returns whether that had to wait: then `release` let it
/// go on, and nothing has touched the memory since.
fn taken_back_from_a_stopped_one(release: impl FnOnce(&mut Peer)) -> bool {
    const SOON: Duration = Duration::from_millis(100);
    let mut peer = Peer::start_direct();
    peer.ask("flood");
    let first = || std::hint::black_box(&peer.buffer).snapshot()[0];
    wait_for("a WRITE", || first() == pattern(1, SEED)[0]);
    peer.stop();
    let buffer = std::mem::replace(&mut peer.buffer, Buffer::new(&peer.end.pd, vec![0; 8]));
    let (done, taken) = std::sync::mpsc::channel();
    let taker = std::thread::spawn(move || {
        let mut bytes = buffer.deregister();
        bytes.fill(CANARY);
        done.send(bytes).expect("heard");
    });
    let (held_up, bytes) = match taken.recv_timeout(SOON) {
        Ok(bytes) => {
            peer.signal("CONT");
            (false, bytes)
        }
        Err(_) => {
            release(&mut peer);
            (true, taken.recv_timeout(common::DEADLINE).expect("let go"))
        }
    };
    taker.join().expect("taken");
    // What the other one still has in its hands fails.
    let until = Instant::now() + Duration::from_millis(5);
    while Instant::now() < until {
        let now = bytes.snapshot();
        assert!(now.iter().all(|byte| *byte == CANARY), "touched");
    }
    held_up
}

/// A process that is stopped between its look at the rights and the end of its copy would go on with the copy later: nobody gets
/// the memory back before it has gone on, or has ended.
#[test]
fn a_stopped_initiator_is_waited_for_until_it_goes_on_or_ends() {
    let hit = |release: fn(&mut Peer)| (0..100).any(|_| taken_back_from_a_stopped_one(release));
    assert!(hit(|peer| peer.signal("CONT")), "never in a copy");
    assert!(
        hit(|peer| peer.child.kill().expect("killed")),
        "never in a copy"
    );
}
