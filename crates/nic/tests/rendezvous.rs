//! Long SENDs and WRITEs with immediate within a host, whose bytes the receiver's process fetches.

mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::{ALL, Buffer, DEADLINE, End, pair, pattern, rounds, wait_for};
use ferroce_nic::{DirectWay, Mr};
use ferroce_proto::rc::MAX_RENDEZVOUS;
use ferroce_proto::verbs::{AttrMask, Mtu, QpAttr, QpState, SendOp, WcOpcode, WcStatus};

const LEN: usize = 64 << 10;
/// What is put into memory that was taken back.
const CANARY: u8 = 0x5c;

fn fetched(end: &End) -> u64 {
    end.context.device().counters().direct(DirectWay::In)
}

/// Bytes that are nowhere alike, none of them [`CANARY`].
fn without_canary() -> Vec<u8> {
    let mut bytes = pattern(LEN, 4);
    bytes.iter_mut().for_each(|byte| *byte &= 0x3f);
    bytes
}

/// Two ends of which each knows the other's board.
fn acquainted() -> (End, End) {
    let (a, b) = pair(Mtu::B4096);
    let (from, to) = (
        Buffer::new(&a.pd, vec![1; 8]),
        Buffer::new(&b.pd, vec![0; 8]),
    );
    let direct = || a.context.device().counters().direct(DirectWay::Out);
    let before = direct();
    wait_for("the direct way", || {
        a.send(0, SendOp::Write(to.remote(0)), vec![from.sge(0, 8)]);
        a.done(0);
        direct() > before
    });
    (a, b)
}

#[test]
fn long_messages_are_fetched_and_arrive_as_they_were() {
    let (a, b) = acquainted();
    let most = MAX_RENDEZVOUS as usize;
    for (n, len) in [20_000, LEN, (3 << 20) + 1, most, most + 1]
        .into_iter()
        .enumerate()
    {
        let (from, to) = (
            Buffer::new(&a.pd, pattern(len, n as u64)),
            Buffer::new(&b.pd, vec![0; len]),
        );
        let before = fetched(&b);
        let third = len / 3;
        b.recv(1, vec![to.sge(0, third), to.sge(third, len - third)]);
        a.send(2, SendOp::SendImm([9; 4]), vec![from.sge(0, len)]);
        assert_eq!(b.done(1).byte_len as usize, len);
        a.done(2);
        assert!(to.snapshot() == pattern(len, n as u64), "{len} bytes");
        // Of other tests, too: that the last one goes by packets cannot be told.
        assert!(fetched(&b) > before || len > most, "{len} bytes");
    }
}

/// Many on their way to one place: the bytes of each are there when its receive completes, and
/// those of the next only when it has one too.
#[test]
fn writes_with_immediate_are_a_stream_and_wait_for_receives() {
    const COUNT: u64 = 8;
    let (a, b) = acquainted();
    let to = Buffer::new(&b.pd, vec![0; LEN]);
    let from: Vec<_> = (0..COUNT)
        .map(|n| Buffer::new(&a.pd, pattern(LEN, n)))
        .collect();
    let before = fetched(&b);
    for (n, from) in (0..).zip(&from) {
        let op = SendOp::WriteImm(to.remote(0), [n; 4]);
        a.send(n.into(), op, vec![from.sge(0, LEN)]);
    }
    for n in 0..COUNT {
        b.recv(n, vec![]);
        let wc = b.done(n);
        assert_eq!(wc.opcode, WcOpcode::RecvRdmaWithImm);
        assert_eq!(wc.byte_len as usize, LEN);
        assert!(to.snapshot() == pattern(LEN, n), "message {n}");
        a.done(n);
    }
    assert!(fetched(&b) >= before + COUNT);
}

/// In order with what else is sent, and waiting for a receive as everything does.
#[test]
fn a_long_message_keeps_its_place() {
    let (a, b) = acquainted();
    let (from, to) = (
        Buffer::new(&a.pd, pattern(LEN, 1)),
        Buffer::new(&b.pd, vec![0; LEN]),
    );
    for n in 0..6_u64 {
        let len = if n % 2 == 0 { LEN } else { 100 };
        a.send(n, SendOp::Send, vec![from.sge(0, len)]);
    }
    a.send(6, SendOp::Read(to.remote(0)), vec![from.sge(0, 8)]);
    for n in 0..6 {
        b.recv(n, vec![to.sge(0, LEN)]);
    }
    for n in 0..6 {
        assert_eq!(
            b.done(n).byte_len as usize,
            if n % 2 == 0 { LEN } else { 100 }
        );
    }
    for n in 0..=6 {
        a.done(n);
    }
}

/// How a program takes back memory of a rendezvous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Deregistered,
    MovedToErr,
    /// By a work request that fails: what is behind it is flushed.
    Failed,
}

/// One round: SENDs under way while their memory is taken back and filled with something else.
fn race(kind: Taken, wait: Duration) {
    const COUNT: usize = 6;
    let (a, b) = acquainted();
    let to = Buffer::new(&b.pd, vec![0; COUNT * LEN]);
    let mut memory = without_canary();
    let addr = memory.as_ptr() as u64;
    let mr = Mr::register(&a.pd, addr, LEN as u64, addr, ALL).expect("a region");
    let sge = |lkey| ferroce_proto::verbs::Sge {
        addr,
        length: u32::try_from(LEN).expect("32 bits"),
        lkey,
    };
    for n in 0..COUNT {
        b.recv(n as u64, vec![to.sge(n * LEN, LEN)]);
    }
    for n in 0..COUNT {
        let op = match n % 2 {
            0 => SendOp::Send,
            _ => SendOp::WriteImm(to.remote(n * LEN), [0; 4]),
        };
        a.send(n as u64, op, vec![sge(mr.key())]);
    }
    let start = Instant::now();
    while start.elapsed() < wait {
        std::hint::spin_loop();
    }
    let to_err = QpAttr {
        qp_state: QpState::Err,
        ..QpAttr::default()
    };
    match kind {
        Taken::Deregistered => drop(mr),
        Taken::MovedToErr => a.qp.modify(&to_err, AttrMask::STATE).expect("moved"),
        Taken::Failed => {
            let mut wrong = mr.key();
            wrong.0 ^= 1;
            a.send(99, SendOp::Send, vec![sge(wrong)]);
            wait_for("the end", || {
                let mut last = None;
                let polled = a.cq.poll(1, &mut |_, wc| last = Some(wc.status));
                polled.expect("no overflow");
                last.is_some_and(|status| status != WcStatus::Success)
            });
        }
    }
    memory.fill(CANARY);
    black_box(&memory);
    // Until the last of them is through: nothing is under way then.
    wait_for("the end of all", || {
        a.cq.poll(64, &mut |_, _| ()).expect("no overflow");
        a.qp.state() == QpState::Err || start.elapsed() > Duration::from_millis(20)
    });
    b.qp.modify(&to_err, AttrMask::STATE).expect("moved");
    let seen = to.snapshot();
    let mut received = 0;
    while received < COUNT {
        let wc = b.completion();
        if matches!(wc.opcode, WcOpcode::Send | WcOpcode::RdmaWrite) {
            continue;
        }
        received += 1;
        let slot = usize::try_from(wc.wr_id).expect("small") * LEN;
        let spoilt = seen[slot..slot + LEN].contains(&CANARY);
        let expected = wc.status == WcStatus::Success;
        assert!(
            !expected || seen[slot..slot + LEN] == without_canary(),
            "{kind:?}"
        );
        // A sender that is told by a completion only is not waited for: a message that fails may
        // have some of what is there now.
        assert!(
            kind == Taken::Failed || !spoilt,
            "{kind:?}: read after it was taken back"
        );
    }
    assert!(start.elapsed() < DEADLINE);
}

#[test]
fn memory_of_a_rendezvous_that_was_taken_back_is_not_read() {
    for kind in [Taken::Deregistered, Taken::MovedToErr, Taken::Failed] {
        let (all, start) = (rounds(40), Instant::now());
        for round in 0..all as u64 {
            race(kind, Duration::from_nanos(round % 40 * 1300));
        }
        println!("{kind:?}: {all} rounds, {:?}", start.elapsed());
    }
}
