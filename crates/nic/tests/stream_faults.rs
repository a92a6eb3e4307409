//! `FERROCE_FAULT` over iWARP: what it does to a stream, and what programs see of it. The settings
//! are read when the device starts, so each test runs in a process of its own: this program again.

mod common;

use common::stream::{IWARP, Side, pair};
use common::{Buffer, pattern, run_alone};
use ferroce_nic::cm::EventKind;
use ferroce_nic::{Counters, Nic};
use ferroce_proto::verbs::{QpState, SendOp, WcStatus};

/// Runs a test over TCP. Returns what it printed.
#[track_caller]
fn run(test: &str, fault: &str, crc: &str) -> String {
    let settings = [
        IWARP,
        ("FERROCE_PATH", "wire"),
        ("FERROCE_FAULT", fault),
        ("FERROCE_IWARP_CRC", crc),
    ];
    let text = run_alone(test, &settings);
    assert!(text.contains("1 passed"), "{fault}: {text}");
    text
}

#[test]
fn a_slow_stream_in_pieces_carries_every_operation() {
    for crc in ["off", "on"] {
        run("child_operations", "short=100%,seed=2", crc);
        run("child_operations", "short=20%,delay=2ms,seed=3", crc);
    }
}

#[test]
#[ignore = "run by the test above"]
fn child_operations() {
    let (a, b) = pair();
    for len in [0, 1, 3000, 200_000] {
        let bytes = pattern(len, 5);
        let from = Buffer::new(&a.end.pd, bytes.clone());
        let to = Buffer::new(&b.end.pd, vec![0; len]);
        b.end.recv(1, vec![]);
        a.end
            .send(2, SendOp::Write(to.remote(0)), vec![from.sge(0, len)]);
        a.end.send(3, SendOp::Send, vec![]);
        a.end.done(2);
        a.end.done(3);
        b.end.done(1);
        assert_eq!(to.snapshot(), bytes);
        let back = Buffer::new(&a.end.pd, vec![0; len]);
        a.end
            .send(4, SendOp::Read(to.remote(0)), vec![back.sge(0, len)]);
        a.end.done(4);
        assert_eq!(back.snapshot(), bytes);
    }
    a.disconnect();
    for side in [&a, &b] {
        side.hears(EventKind::Disconnected, 0);
    }
}

#[test]
fn what_is_sent_waits_for_the_delay() {
    run("child_delay", "delay=40ms", "off");
}

#[test]
#[ignore = "run by the test above"]
fn child_delay() {
    let (a, b) = pair();
    let target = Buffer::new(&b.end.pd, vec![0; 8]);
    let back = Buffer::new(&a.end.pd, vec![0; 8]);
    for wr_id in 0..3 {
        let start = std::time::Instant::now();
        a.end
            .send(wr_id, SendOp::Read(target.remote(0)), vec![back.sge(0, 8)]);
        a.end.done(wr_id);
        let took = start.elapsed().as_millis();
        assert!(took >= 80, "there and back in {took} ms");
    }
}

#[test]
fn a_crc_finds_damage_and_ends_the_connection() {
    let text = run("child_damaged", "corrupt=2%,seed=6", "on");
    assert!(!text.contains("has no CRCs"), "{text}");
}

#[test]
#[ignore = "run by the test above"]
fn child_damaged() {
    const LEN: usize = 10_000;
    let (a, b) = pair();
    let bytes = pattern(LEN, 8);
    let from = Buffer::new(&a.end.pd, bytes.clone());
    for wr_id in 0..1000 {
        let to = Buffer::new(&b.end.pd, vec![0; LEN]);
        b.end.recv(wr_id, vec![to.sge(0, LEN)]);
        a.end.send(wr_id, SendOp::Send, vec![from.sge(0, LEN)]);
        let status = a.end.completion().status;
        let received = b.end.completion().status;
        if received == WcStatus::WrFlushErr {
            has_failed(&a, &b);
            return assert_eq!(ends(&a), [1, 1, 1, 0]);
        }
        assert_eq!((status, received), (WcStatus::Success, WcStatus::Success));
        assert_eq!(to.snapshot(), bytes);
    }
    panic!("nothing was damaged");
}

/// Counts of [`Counters::STREAM_ENDS`], of both ends.
fn ends(side: &Side) -> [u64; 4] {
    let counters = side.end.context.device().counters();
    Counters::STREAM_ENDS.map(|(_, end)| counters.stream_ends(end))
}

/// Both ends hear of the end, and nothing more can be sent.
#[track_caller]
fn has_failed(a: &Side, b: &Side) {
    for side in [a, b] {
        side.hears(EventKind::Disconnected, 0);
        assert_eq!(side.end.qp.state(), QpState::Err);
        side.end.send(1 << 20, SendOp::Send, vec![]);
        let wc = side.end.completion();
        assert_eq!((wc.wr_id, wc.status), (1 << 20, WcStatus::WrFlushErr));
    }
}

#[test]
fn damage_without_crcs_is_said() {
    let text = run("child_undetected", "corrupt=100%,seed=1", "off");
    assert!(text.contains("has no CRCs"), "{text}");
}

#[test]
#[ignore = "run by the test above"]
fn child_undetected() {
    let (a, _b) = pair();
    a.end.send(1, SendOp::Send, vec![]);
    // However it ends: bytes have gone.
    assert_eq!(a.end.completion().wr_id, 1);
}

#[test]
fn a_cut_connection_fails_at_both_ends() {
    run("child_cut", "cut=100KiB", "off");
    run("child_cut", "cut=100KiB,delay=1ms", "on");
    run("child_cut", "cut=1%,seed=5", "off");
}

#[test]
#[ignore = "run by the test above"]
fn child_cut() {
    const LEN: usize = 1 << 20;
    let (a, b) = pair();
    let from = Buffer::new(&a.end.pd, pattern(LEN, 2));
    let to = Buffer::new(&b.end.pd, vec![0; LEN]);
    b.end.recv(1, vec![to.sge(0, LEN)]);
    a.end.send(2, SendOp::Send, vec![from.sge(0, LEN)]);
    for (side, wr_id) in [(&a, 2), (&b, 1)] {
        let wc = side.end.completion();
        assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::WrFlushErr));
    }
    has_failed(&a, &b);
    assert_eq!(ends(&a), [0, 0, 0, 2]);
}

#[test]
fn words_of_the_other_wire_are_refused() {
    for (wire, fault) in [
        ("iwarp", "drop=1%"),
        ("rocev2", "cut=1%"),
        ("both", "lose=1%"),
    ] {
        let settings = [("FERROCE_WIRE", wire), ("FERROCE_FAULT", fault)];
        let text = run_alone("child_refused", &settings);
        assert!(text.contains("1 passed"), "{text}");
        let said = format!("ferroce: FERROCE_FAULT: \"{fault}\" makes no sense");
        assert!(text.contains(&said), "{text}");
    }
}

#[test]
#[ignore = "run by the test above"]
fn child_refused() {
    let refused = Nic::get().expect_err("a fault that makes no sense");
    assert_eq!(refused.errno, libc::EINVAL);
}
