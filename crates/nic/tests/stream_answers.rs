//! Polls of a program that find the completion of what it has sent over TCP: which of them look on
//! for the peer's answer. Without a device thread nothing is read but by rounds of this program,
//! and the counter of bytes shows them. The settings are read when the device starts, so each test
//! runs in a process of its own: this program again.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::stream::{self, IWARP, Side};
use common::{End, cap, run_alone, wait_for};
use ferroce_proto::verbs::{SendOp, WcStatus};

#[track_caller]
fn run(test: &str) {
    let settings = [IWARP, ("FERROCE_PATH", "wire"), ("FERROCE_THREAD", "off")];
    let text = run_alone(test, &settings);
    assert!(text.contains("1 passed"), "{text}");
}

/// Two ends of this process, connected while a thread makes rounds.
fn pair() -> (Side, Side) {
    let (other, is_connected) = (End::new(cap()), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_connected.load(Ordering::Acquire) {
                other.cq.poll(1, &mut |_, _| {}).expect("no overflow");
                thread::yield_now();
            }
        });
        let pair = stream::pair();
        is_connected.store(true, Ordering::Release);
        pair
    })
}

fn read(end: &End) -> u64 {
    end.context.device().counters().rx_bytes()
}

/// Polls once, for the completion of a message that TCP has. Returns whether anything was read
/// meanwhile.
#[track_caller]
fn poll_reads(end: &End, wr_id: u64) -> bool {
    let (before, mut found) = (read(end), None);
    end.cq
        .poll(1, &mut |_, wc| found = Some((wc.wr_id, wc.status)))
        .expect("no overflow");
    assert_eq!(found, Some((wr_id, WcStatus::Success)));
    read(end) > before
}

/// Sends a message of no bytes. Returns whether the poll for its completion looked on and read it
/// at the other end.
#[track_caller]
fn looks(from: &End, to: &End) -> bool {
    to.recv(1, vec![]);
    from.send(2, SendOp::Send, vec![]);
    let looked = poll_reads(from, 2);
    to.done(1);
    looked
}

/// Sends messages until the poll for one of them looks on.
fn warm_up(from: &End, to: &End) {
    wait_for("a look that finds something", || looks(from, to));
}

#[test]
fn a_poll_looks_on_where_one_connection_brings_a_little() {
    run("child_looks");
}

#[test]
#[ignore = "run by the test above"]
fn child_looks() {
    let (a, b) = pair();
    warm_up(&a.end, &b.end);
    // Messages by turns: several connections bring something.
    for _ in 0..10 {
        looks(&b.end, &a.end);
        assert!(!looks(&a.end, &b.end));
    }
    warm_up(&a.end, &b.end);
    // The connection has been silent for a while.
    for _ in 0..1000 {
        b.end.cq.poll(1, &mut |_, _| {}).expect("no overflow");
    }
    assert!(!looks(&a.end, &b.end));
}

#[test]
fn a_poll_that_leaves_completions_in_the_queue_looks_for_nothing() {
    run("child_in_hand");
}

#[test]
#[ignore = "run by the test above"]
fn child_in_hand() {
    let (a, b) = pair();
    let (a, b) = (&a.end, &b.end);
    for _ in 0..10 {
        warm_up(a, b);
        b.recv(1, vec![]);
        b.recv(2, vec![]);
        a.send(3, SendOp::Send, vec![]);
        a.send(4, SendOp::Send, vec![]);
        assert!(!poll_reads(a, 3));
        poll_reads(a, 4);
        b.done(1);
        b.done(2);
    }
}
