//! Small messages of busy queue pairs go by short rings: nothing is lost, doubled or out of order
//! when they do, begin to, or end.
//!
//! Whether a short ring is used depends on whether its receiver polls. The tests that need one run
//! in a program of their own without device thread, where nobody goes to sleep; the others hold
//! whether there is one or not.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use common::peer::{self, ASKS, Peer, RECEIVED, connect_back};
use common::short_rings::{
    Both, LEN, RECV, Seeded, Side, end_with_channel, run, run_without_thread, sleep_for,
};
use common::{Buffer, DEADLINE, End, cap, next_completion, pattern, run_alone, wait_for};
use ferroce_nic::{Carrier, Qp};
use ferroce_proto::verbs::{AttrMask, Mtu, QpAttr, QpState, SendOp, Wc, WcStatus};

#[test]
#[ignore = "run by the test below"]
fn alone_a_conversation() {
    let mut both = Both::new();
    both.warm_up();
    for _ in 0..1000 {
        both.exchange();
    }
    assert_eq!(both.carrier(0), Some(Carrier::ShortRing));
    let before = both.sides[0].end.context.device().counters().tx_packets();
    both.exchange();
    let after = both.sides[0].end.context.device().counters().tx_packets();
    assert_eq!(after - before, 2, "two messages, and no acknowledgement");
}

#[test]
fn a_conversation_goes_by_short_rings() {
    run_without_thread("alone_a_conversation");
}

#[test]
#[ignore = "run by the test below"]
fn alone_many_conversations() {
    // Both ways of a process to itself are in one link, which has 512.
    let mut pairs: Vec<_> = (0..250).map(|_| Both::new()).collect();
    for both in &mut pairs {
        both.warm_up();
    }
    // Those that began first have kept theirs, and are looked at.
    for both in &mut pairs {
        (0..10).for_each(|_| both.exchange());
        assert_eq!(
            [0, 1].map(|side| both.carrier(side)),
            [Some(Carrier::ShortRing); 2]
        );
    }
}

#[test]
fn each_of_many_queue_pairs_has_a_short_ring() {
    run_without_thread("alone_many_conversations");
}

#[test]
#[ignore = "run by the test below"]
fn alone_without_short_rings() {
    let mut both = Both::new();
    for _ in 0..200 {
        both.exchange();
    }
    assert_eq!(both.carrier(0), Some(Carrier::Ring));
}

#[test]
fn short_rings_can_be_turned_off() {
    let off = [("FERROCE_THREAD", "off"), ("FERROCE_SHORT_RINGS", "off")];
    run("alone_without_short_rings", &off);
}

#[test]
fn the_old_name_of_their_variable_is_read_and_said_once() {
    let off = [("FERROCE_THREAD", "off"), ("FERROCE_RING_LANES", "off")];
    let text = run_alone("alone_without_short_rings", &off);
    assert!(text.contains("1 passed"), "{text}");
    let line = "ferroce: FERROCE_RING_LANES is called FERROCE_SHORT_RINGS now\n";
    assert_eq!(text.matches(line).count(), 1, "{text}");
}

/// Lengths of what was sent and not received yet, of each direction.
type UnderWay = [VecDeque<(usize, bool)>; 2];

/// Takes a completion of a side, and holds it against what is under way to it.
fn check(both: &mut Both, under_way: &mut UnderWay, side: usize, wc: &Wc) {
    assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
    let this = &mut both.sides[side];
    if wc.wr_id != u64::MAX {
        assert_eq!(this.sent.pop_front(), Some(wc.wr_id), "in order, once");
        return;
    }
    let (length, immediate) = under_way[side].pop_front().expect("something was sent");
    assert_eq!(wc.byte_len as usize, length);
    assert_eq!(wc.imm.is_some(), immediate);
    this.received += 1;
}

/// One of the things that programs do. Returns whether something will be received.
fn anything(both: &mut Both, seeded: &mut Seeded, side: usize) -> Option<(usize, bool)> {
    let there = &both.sides[1 - side].buffer;
    let (remote, small) = (there.remote(LEN / 4), seeded.below(130));
    let (length, op) = match seeded.below(40) {
        0 => (seeded.below(RECV), SendOp::Send),
        5..12 => (seeded.below(RECV / 8), SendOp::Send),
        1 => (small, SendOp::Write(remote)),
        2 => (8, SendOp::Read(remote)),
        3 => (small, SendOp::SendImm([1, 2, 3, 4])),
        4 => (8, SendOp::FetchAdd { remote, add: 1 }),
        _ => (small, SendOp::Send),
    };
    both.send(side, length, op);
    match op {
        SendOp::Send => Some((length, false)),
        SendOp::SendImm(_) => Some((length, true)),
        _ => None,
    }
}

#[test]
#[ignore = "run by the test below"]
fn alone_anything() {
    let (mut both, mut by_short_ring) = (Both::new(), 0);
    let mut under_way = UnderWay::default();
    let mut receives = [0, 0];
    for seed in 0..40 {
        both.warm_up();
        let mut seeded = Seeded(seed);
        for _ in 0..300 {
            let side = seeded.below(2);
            // Sometimes there are too few receives.
            if receives[side] < 100 && seeded.below(12) > 0 {
                both.receive(side);
                receives[side] += 1;
            }
            if both.sides[side].sent.len() < 100
                && let Some(sent) = anything(&mut both, &mut seeded, side)
            {
                under_way[1 - side].push_back(sent);
                by_short_ring += usize::from(both.carrier(side) == Some(Carrier::ShortRing));
            }
            for _ in 0..seeded.below(4) {
                let mut found = None;
                let cq = Arc::clone(&both.sides[side].end.cq);
                cq.poll(1, &mut |_, wc| found = Some(*wc)).unwrap();
                if let Some(wc) = found {
                    receives[side] -= usize::from(wc.wr_id == u64::MAX);
                    check(&mut both, &mut under_way, side, &wc);
                }
            }
        }
        for side in [0, 1] {
            while receives[side] < under_way[side].len() {
                both.receive(side);
                receives[side] += 1;
            }
        }
        wait_for("the rest", || {
            for side in [0, 1] {
                let mut found = None;
                let cq = Arc::clone(&both.sides[side].end.cq);
                cq.poll(1, &mut |_, wc| found = Some(*wc)).unwrap();
                if let Some(wc) = found {
                    receives[side] -= usize::from(wc.wr_id == u64::MAX);
                    check(&mut both, &mut under_way, side, &wc);
                }
            }
            let open = |side: &Side| !side.sent.is_empty();
            !both.sides.iter().any(open) && under_way.iter().all(VecDeque::is_empty)
        });
        // The exchanges that warm up take their own.
        for (side, left) in receives.iter_mut().enumerate() {
            for _ in 0..std::mem::take(left) {
                both.send(1 - side, 8, SendOp::Send);
                let received = both.sides[side].received + 1;
                both.settle(side, received);
                let received = both.sides[1 - side].received;
                both.settle(1 - side, received);
            }
        }
    }
    println!("{by_short_ring} by short ring");
    assert!(by_short_ring > 100, "{by_short_ring}");
}

#[test]
fn whatever_comes_between_messages_of_a_short_ring_keeps_its_place() {
    run_without_thread("alone_anything");
}

#[test]
#[ignore = "run by the test below"]
fn alone_not_ready() {
    let mut both = Both::new();
    for round in 0..10 {
        both.warm_up();
        let received = both.sides[1].received;
        for _ in 0..5 {
            both.send(0, 8 + round, SendOp::Send);
        }
        for _ in 0..2000 {
            let taken = both.sides[1].end.cq.poll(1, &mut |_, _| {}).unwrap();
            assert_eq!(taken, 0, "there is no receive");
        }
        for _ in 0..5 {
            both.receive(1);
        }
        both.settle(1, received + 5);
        let received = both.sides[0].received;
        both.settle(0, received);
    }
}

#[test]
fn what_finds_no_receive_in_a_short_ring_comes_again() {
    run_without_thread("alone_not_ready");
}

/// So many messages, each of which is answered before anything else is polled for.
fn converse(both: &mut Both, messages: usize) {
    for turn in 0..messages {
        let (from, to) = (turn % 2, (turn + 1) % 2);
        both.receive(to);
        both.send(from, 8, SendOp::Send);
        let mut is_there = false;
        wait_for("the message", || {
            let mut take = |_, wc: &Wc| is_there |= wc.wr_id == u64::MAX;
            both.sides[to].end.cq.poll(1, &mut take).unwrap();
            is_there
        });
    }
}

#[test]
#[ignore = "run by the test below"]
fn alone_more_than_one() {
    for (more, room) in [(2, 1), (10, 16), (50, 16)] {
        let mut both = Both::new();
        both.warm_up();
        converse(&mut both, 40);
        // They come in one go; a side that has always answered is thought to answer the first one.
        let mut lengths = Vec::new();
        for message in 0..more {
            both.receive(1);
            both.send(0, 1 + message, SendOp::Send);
        }
        let mut polls = Vec::new();
        wait_for("all of them", || {
            let before = lengths.len();
            let mut take = |_, wc: &Wc| {
                assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
                if wc.wr_id == u64::MAX {
                    lengths.push(wc.byte_len as usize);
                }
            };
            both.sides[1].end.cq.poll(room, &mut take).unwrap();
            polls.push(lengths.len() - before);
            lengths.len() == more
        });
        let first = polls.iter().find(|taken| **taken > 0);
        assert_eq!(first, Some(&1), "in a conversation there is one: {polls:?}");
        let all = (0..more).map(|message| 1 + message);
        assert!(lengths.iter().copied().eq(all), "{lengths:?}");
    }
}

#[test]
fn messages_without_an_answer_between_them_all_come_after_a_conversation() {
    run_without_thread("alone_more_than_one");
}

#[test]
#[ignore = "run by the test below"]
fn alone_both_end() {
    for state in [QpState::Err, QpState::Reset] {
        let mut both = Both::new();
        both.warm_up();
        converse(&mut both, 41);
        let last = both.next - 1;
        to_state(&both.sides[1].end.qp, state);
        to_state(&both.sides[0].end.qp, QpState::Err);
        loop {
            let wc = both.sides[0].end.completion();
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            if wc.wr_id == last {
                break;
            }
        }
    }
}

/// The last message of a conversation, whose receiver ends instead of answering, and its sender
/// after it.
#[test]
fn what_was_taken_before_the_end_is_done() {
    run_without_thread("alone_both_end");
}

#[test]
#[ignore = "run by the test below"]
fn alone_an_end() {
    let ends: [fn(&Qp); 3] = [
        Qp::destroy,
        |qp| to_state(qp, QpState::Err),
        |qp| to_state(qp, QpState::Reset),
    ];
    // Each waits for all its retries: all at once.
    let ended = ends.map(|end| {
        let mut both = Both::new();
        both.warm_up();
        both.receive(1);
        both.send(0, 8, SendOp::Send);
        end(&both.sides[1].end.qp);
        for _ in 0..3 {
            both.send(0, 8, SendOp::Send);
        }
        both
    });
    for both in ended {
        // What was sent before may have been taken, or not.
        let mut statuses = Vec::new();
        while statuses.len() < 4 {
            statuses.push(next_completion(&both.sides[0].end.cq).status);
        }
        let failed = statuses.iter().position(|s| *s != WcStatus::Success);
        let first = failed.expect("nobody is there to take it");
        assert_eq!(statuses[first], WcStatus::RetryExcErr, "{statuses:?}");
        let rest = &statuses[first + 1..];
        assert!(
            rest.iter().all(|s| *s == WcStatus::WrFlushErr),
            "{statuses:?}"
        );
    }
}

fn to_state(qp: &Qp, qp_state: QpState) {
    let attr = QpAttr {
        qp_state,
        ..QpAttr::default()
    };
    qp.modify(&attr, AttrMask::STATE).unwrap();
}

#[test]
fn the_end_of_a_receiver_is_heard_of_in_a_short_ring() {
    run_without_thread("alone_an_end");
}

#[test]
#[ignore = "run by the test below"]
fn alone_again() {
    let mut both = Both::new();
    for _ in 0..40 {
        both.warm_up();
        for side in [0, 1] {
            to_state(&both.sides[side].end.qp, QpState::Reset);
        }
        for side in [0, 1] {
            let (here, there) = (&both.sides[side].end, &both.sides[1 - side].end);
            here.connect(there.qp.qpn(), there.gid(), Mtu::B1024);
        }
    }
}

/// More often than there are short rings: each must have been given back.
#[test]
fn a_short_ring_is_given_back_at_a_reset() {
    run_without_thread("alone_again");
}

/// A side that polled, and so has a short ring, goes to sleep for the next message, or for the
/// completion of his own.
#[test]
#[ignore = "run by the test below"]
fn with_short_rings_asleep() {
    let ((a, wakes_a), (b, wakes_b)) = (end_with_channel(), end_with_channel());
    a.connect(b.qp.qpn(), b.gid(), Mtu::B1024);
    b.connect(a.qp.qpn(), a.gid(), Mtu::B1024);
    let (of_a, of_b) = (
        Buffer::new(&a.pd, pattern(64, 1)),
        Buffer::new(&b.pd, vec![0; 64]),
    );
    for wr_id in 0..common::rounds(3000) as u64 {
        b.recv(wr_id, vec![of_b.sge(0, 64)]);
        a.send(wr_id, SendOp::Send, vec![of_a.sge(0, 8)]);
        if wr_id % 100 > 60 {
            sleep_for(&b, &wakes_b, 1);
            sleep_for(&a, &wakes_a, 1);
        } else {
            assert_eq!(next_completion(&b.cq).status, WcStatus::Success);
            assert_eq!(next_completion(&a.cq).status, WcStatus::Success);
        }
    }
}

#[test]
fn a_sleeping_program_hears_of_what_comes_by_a_short_ring() {
    run("with_short_rings_asleep", &[]);
}

/// Receives of both ends of a conversation with another process.
const RECEIVES: u64 = 64;

/// The peer: answers each message, polling.
#[test]
#[ignore = "run by the tests below"]
fn child_echo() {
    let end = End::new(cap());
    let buffer = Buffer::new(&end.pd, vec![0; 4096]);
    connect_back(&end, &buffer);
    for _ in peer::RECEIVES..RECEIVES {
        end.recv(RECEIVED, vec![buffer.sge(0, 64)]);
    }
    loop {
        let mut came = None;
        end.cq.poll(1, &mut |_, wc| came = Some(*wc)).unwrap();
        let Some(wc) = came else { continue };
        if wc.status != WcStatus::Success {
            return;
        }
        if wc.byte_len > 0 {
            end.recv(RECEIVED, vec![buffer.sge(0, 64)]);
            end.send(1000, SendOp::Send, vec![buffer.sge(0, 8)]);
        }
    }
}

/// How far a conversation with a peer that is killed has come.
#[derive(Debug, Default)]
struct Conversation {
    sent: u64,
    done: u64,
    received: u64,
    failed: bool,
    /// The peer was killed: it may have taken messages that it will not answer.
    is_alone: bool,
}

impl Conversation {
    fn has_room(&self) -> bool {
        let unanswered = self.sent - self.received.min(self.sent);
        !self.failed && self.sent - self.done < 16 && (self.is_alone || unanswered < 16)
    }

    fn note(&mut self, peer: &Peer, wc: &Wc) {
        if wc.wr_id == RECEIVED {
            if wc.status == WcStatus::Success {
                self.received += 1;
                peer.receive();
            }
            return;
        }
        assert_eq!(wc.wr_id, self.done, "in order, once");
        self.done += 1;
        let expected: &[WcStatus] = match self.failed {
            true => &[WcStatus::WrFlushErr],
            false => &[WcStatus::Success, WcStatus::RetryExcErr],
        };
        assert!(expected.contains(&wc.status), "{wc:?}");
        self.failed |= wc.status != WcStatus::Success;
    }
}

/// A conversation with another process that is killed in the middle: each message has one
/// completion, in order, of which the last ones fail; and what is received before that comes from
/// messages that were sent.
#[test]
#[ignore = "run by the test below"]
fn with_short_rings_killed() {
    for exchanges in [100, 1000, 5000, 5001, 7000] {
        let mut peer = Peer::start("child_echo", "-");
        for _ in peer::RECEIVES..RECEIVES {
            peer.receive();
        }
        let (mut so_far, mut last) = (Conversation::default(), Instant::now());
        while !so_far.failed || so_far.done < so_far.sent {
            if so_far.has_room() {
                peer.send(so_far.sent, ASKS);
                so_far.sent += 1;
            }
            if so_far.sent >= exchanges && !so_far.is_alone {
                peer.child.kill().unwrap();
                so_far.is_alone = true;
            }
            let mut came = None;
            peer.end.cq.poll(1, &mut |_, wc| came = Some(*wc)).unwrap();
            if let Some(wc) = came {
                so_far.note(&peer, &wc);
                last = Instant::now();
            }
            assert!(
                last.elapsed() < DEADLINE,
                "nothing comes any more: {so_far:?}"
            );
        }
        let Conversation { sent, received, .. } = so_far;
        assert!(received <= sent, "{received} of {sent}");
        peer.child.wait().unwrap();
    }
}

#[test]
fn a_killed_peer_ends_a_conversation() {
    run("with_short_rings_killed", &[]);
}
