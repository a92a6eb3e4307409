//! The wire path within one process: `FERROCE_PATH=wire` sends packets to the own address out and
//! in through UDP 4791.
//!
//! The settings are read when the device starts, so each test runs in a process of its own: this
//! program again.

mod common;

use common::{Buffer, End, pair, pattern, run_on_wire, wait_for};
use ferroce_proto::rc::Noted;
use ferroce_proto::verbs::{Mtu, SendOp, WcImm, WcStatus};

#[test]
fn operations_over_a_good_wire() {
    run_on_wire("child_all_operations", "");
}

#[test]
fn operations_over_a_bad_wire() {
    run_on_wire(
        "child_all_operations",
        "drop=3%,dup=2%,reorder=2%,corrupt=1%,seed=11",
    );
}

#[test]
fn a_long_transfer_over_a_good_wire() {
    run_on_wire("child_long_transfer", "");
}

#[test]
fn a_long_transfer_over_a_slow_and_lossy_wire() {
    run_on_wire("child_long_transfer", "drop=1%,delay=300us,seed=5");
}

#[test]
#[ignore = "run by the tests above"]
fn child_all_operations() {
    for mtu in [Mtu::B256, Mtu::B1024, Mtu::B4096] {
        let (a, b) = pair(mtu);
        let sent = pattern(60_000, 9);
        let (here, there) = (
            Buffer::new(&a.pd, sent.clone()),
            Buffer::new(&b.pd, vec![0; 120_008]),
        );
        let aligned =
            usize::try_from(there.addr().next_multiple_of(8) - there.addr()).expect("below 8");
        for (wr_id, len) in (0..).zip([0, 1, 256, 4097, 60_000]) {
            b.recv(wr_id, vec![there.sge(0, 60_000)]);
            a.send(wr_id, SendOp::SendImm([4, 3, 2, 1]), vec![here.sge(0, len)]);
            let received = b.done(wr_id);
            assert_eq!(
                (received.byte_len as usize, received.imm),
                (len, Some(WcImm::Imm([4, 3, 2, 1])))
            );
            a.done(wr_id);
            assert_eq!(there.snapshot()[..len], sent[..len]);
            a.send(
                wr_id,
                SendOp::Write(there.remote(60_008)),
                vec![here.sge(0, len)],
            );
            a.done(wr_id);
            assert_eq!(there.snapshot()[60_008..60_008 + len], sent[..len]);
            b.send(wr_id, SendOp::Read(here.remote(0)), vec![there.sge(0, len)]);
            b.done(wr_id);
            assert_eq!(there.snapshot()[..len], sent[..len]);
        }
        a.send(
            1,
            SendOp::Write(there.remote(aligned)),
            vec![here.sge(0, 8)],
        );
        for wr_id in 2..40 {
            a.send(
                wr_id,
                SendOp::FetchAdd {
                    remote: there.remote(aligned),
                    add: 1,
                },
                vec![here.sge(16, 8)],
            );
        }
        for wr_id in 1..40 {
            a.done(wr_id);
        }
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
        let counted = word(&there.snapshot()[aligned..aligned + 8]);
        assert_eq!(
            counted,
            word(&sent[..8]).wrapping_add(38),
            "each atomic exactly once"
        );
    }
}

#[test]
#[ignore = "run by the tests above"]
fn child_long_transfer() {
    let (a, b) = pair(Mtu::B4096);
    let len = 4 << 20;
    let (here, there) = (
        Buffer::new(&a.pd, pattern(len, 3)),
        Buffer::new(&b.pd, vec![0; len]),
    );
    for wr_id in 0..4 {
        a.send(
            wr_id,
            SendOp::Write(there.remote(0)),
            vec![here.sge(0, len)],
        );
        b.send(wr_id, SendOp::Read(here.remote(0)), vec![there.sge(0, len)]);
    }
    for wr_id in 0..4 {
        a.done(wr_id);
        b.done(wr_id);
    }
    assert_eq!(there.snapshot(), pattern(len, 3));
    println!("timers: {}", a.context.device().counters().timeouts());
}

#[test]
fn what_goes_wrong_on_a_wire_is_counted() {
    run_on_wire("child_counts", "drop=5%,dup=5%,seed=3");
}

#[test]
#[ignore = "run by the test above"]
fn child_counts() {
    let counted = |end: &End| Noted::ALL.map(|what| end.context.device().counters().noted(what));
    let (a, b) = pair(Mtu::B256);
    assert_eq!(counted(&a), [0; Noted::ALL.len()]);
    let here = Buffer::new(&a.pd, pattern(60_000, 9));
    let there = Buffer::new(&b.pd, vec![0; 60_000]);
    // Before there is a receive.
    a.send(0, SendOp::Send, vec![here.sge(0, 100)]);
    wait_for("receiver that is not ready", || {
        counted(&a)[Noted::NotReadyHeard as usize] > 0
    });
    b.recv(0, vec![there.sge(0, 60_000)]);
    a.done(0);
    b.done(0);
    for wr_id in 1..20 {
        b.recv(wr_id, vec![there.sge(0, 60_000)]);
        a.send(wr_id, SendOp::Send, vec![here.sge(0, 60_000)]);
        a.send(wr_id, SendOp::Write(there.remote(0)), vec![here.sge(0, 9)]);
        a.done(wr_id);
        a.done(wr_id);
        b.done(wr_id);
    }
    // A round's messages are counted when it is over: a program may have their completions before.
    let done = || [Noted::Sent, Noted::Received].map(|what| counted(&a)[what as usize]);
    wait_for("count of all messages", || done().iter().sum::<u64>() >= 40);
    assert_eq!(done(), [20, 20]);
    let all = counted(&a);
    let of = |what: Noted| all[what as usize];
    for what in [
        Noted::DuplicateRequest,
        Noted::OutOfSequenceRequest,
        Noted::SequenceErrorHeard,
        Noted::NotReadySent,
    ] {
        assert!(of(what) > 0, "no {what:?} in {all:?}");
    }
    assert_eq!(of(Noted::RetryExceeded) + of(Noted::NotReadyExceeded), 0);
    // Nobody there any more: `b` speaks no more, and no packet finds it.
    b.qp.destroy();
    a.send(30, SendOp::Send, vec![here.sge(0, 9)]);
    assert_eq!(a.completion().status, WcStatus::RetryExcErr);
    let all = counted(&a);
    assert_eq!(all[Noted::RetryExceeded as usize], 1);
    assert!(all[Noted::Resent as usize] > 0);
}
