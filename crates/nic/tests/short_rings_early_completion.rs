//! A message that its receiver has promised is done when it is in the short ring, and comes
//! whatever either side does next.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use common::peer::{ASKS, Peer, RECEIVED, connect_back};
use common::process::{Signal, signal, stop};
use common::short_rings::{Seeded, arm_for_later, end_with_channel, run, run_without_thread};
use common::{
    Buffer, DEADLINE, End, INIT, RTR, RTS, attributes, cap, next_completion, pattern, rounds,
    wait_for,
};
use ferroce_nic::{CompChannel, Qp};
use ferroce_os::fd::set_nonblocking;
use ferroce_proto::ids::Key;
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{
    AttrMask, Mtu, Payload, QpAttr, QpState, RecvWr, SendFlags, SendOp, SendTo, SendWr, Wc,
    WcStatus,
};

/// Bytes of a message, and of a receive.
const LEN: usize = 8;
/// Where messages are, and where they are received.
const BYTES: usize = 4096;
const HALF: usize = BYTES / 2;

/// Two ends of this process that talk to each other. Nothing happens but by polls.
struct Talk {
    a: End,
    channel: Arc<CompChannel>,
    b: End,
    /// Of both.
    memory: [Buffer; 2],
    /// Messages so far, each of which has its own bytes.
    number: usize,
}

impl Talk {
    /// So many receives at each end.
    fn new(receives: usize) -> Self {
        let (a, channel) = end_with_channel();
        let b = End::new(cap());
        for (end, peer) in [(&a, &b), (&b, &a)] {
            let attr = QpAttr {
                // A second in all (8 x 134 ms): a peer that has ended says nothing.
                timeout: 13,
                ..attributes(peer.qp.qpn(), peer.gid(), Mtu::B1024)
            };
            end.connect_with(&attr).unwrap();
        }
        let memory = [(&a, 5), (&b, 9)].map(|(end, seed)| {
            let mut bytes = pattern(BYTES, seed);
            bytes[HALF..].fill(0);
            Buffer::new(&end.pd, bytes)
        });
        let talk = Self {
            a,
            channel,
            b,
            memory,
            number: 0,
        };
        for _ in 0..receives {
            talk.receive(0);
            talk.receive(1);
        }
        talk
    }

    fn end(&self, side: usize) -> &End {
        [&self.a, &self.b][side]
    }

    fn receive(&self, side: usize) {
        let sge = self.memory[side].sge(HALF, LEN);
        self.end(side).recv(RECEIVED, vec![sge]);
    }

    fn send(&mut self, side: usize, len: usize) {
        let from = self.number * LEN % (HALF - BYTES / 4);
        let sge = self.memory[side].sge(from, len);
        self.end(side).send(0, SendOp::Send, vec![sge]);
        self.number += 1;
    }

    /// A side polls until it has received the message of the other.
    #[track_caller]
    fn take(&self, side: usize) {
        loop {
            let wc = next_completion(&self.end(side).cq);
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            if wc.wr_id == RECEIVED {
                return;
            }
        }
    }

    /// Sends a message from the first side. Returns whether it is done though nobody has polled
    /// since.
    fn send_first(&mut self, len: usize) -> bool {
        self.arm_first();
        self.send(0, len);
        self.channel.pop().is_some()
    }

    /// See [`arm_for_later`].
    fn arm_first(&self) {
        arm_for_later(&self.a, &self.channel);
    }

    /// The second side answers what the first one has sent.
    fn answer(&mut self) {
        self.take(1);
        self.receive(1);
        self.send(1, LEN);
        self.take(0);
        self.receive(0);
    }

    /// The first side waits for the event of an answer.
    fn wait(&mut self) {
        self.send(0, LEN);
        self.take(1);
        self.receive(1);
        self.arm_first();
        self.send(1, LEN);
        // Those that `send_first` takes leave their counts.
        while self.channel.take_count().is_ok() && self.channel.pop().is_none() {}
        self.take(0);
        self.receive(0);
    }

    /// Talks until a message of the first side is done when it is sent. It is not received then.
    #[track_caller]
    fn until_completed_early(&mut self) {
        for _ in 0..200 {
            if self.send_first(LEN) {
                return;
            }
            // One queue pair of a process promises something: not this one.
            let _ = self.a.qp.query();
            self.answer();
        }
        panic!("no message is promised");
    }

    /// What the first side has sent last is complete, and in the memory of the second one.
    #[track_caller]
    fn last_is_there(&self, there: &[u8]) {
        let wc = self.a.done(0);
        assert_eq!(wc.qp_num, self.a.qp.qpn());
        let from = (self.number - 1) * LEN % (HALF - BYTES / 4);
        let sent = &self.memory[0].snapshot()[from..from + LEN];
        assert_eq!(&there[HALF..HALF + LEN], sent);
    }

    /// The next completion of a receive of the second side is that of a message.
    #[track_caller]
    fn is_received(&self) {
        let wc = loop {
            let wc = next_completion(&self.b.cq);
            if wc.wr_id == RECEIVED {
                break wc;
            }
        };
        assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
    }
}

fn set_state(qp: &Qp, state: QpState) {
    let attr = QpAttr {
        qp_state: state,
        ..QpAttr::default()
    };
    qp.modify(&attr, AttrMask::STATE).unwrap();
}

#[test]
#[ignore = "run by the test below"]
fn without_a_look() {
    let mut talk = Talk::new(16);
    talk.until_completed_early();
    for _ in 0..100 {
        talk.take(1);
        talk.last_is_there(&talk.memory[1].snapshot());
        talk.receive(1);
        talk.send(1, LEN);
        talk.take(0);
        talk.receive(0);
        assert!(talk.send_first(LEN), "as long as they talk");
    }
    drop(talk);
    // One receive at a time, which is posted just before the answer, is enough.
    let mut talk = Talk::new(1);
    talk.until_completed_early();
    talk.answer();
}

#[test]
fn a_message_is_done_before_anybody_looks() {
    run_without_thread("without_a_look");
}

#[test]
#[ignore = "run by the test below"]
fn with_a_mode_that_changes() {
    let mut talk = Talk::new(16);
    talk.until_completed_early();
    talk.answer();
    talk.wait();
    talk.arm_first();
    set_nonblocking(talk.channel.fd()).unwrap();
    for _ in 0..3 {
        let none = talk.channel.take_count().unwrap_err();
        assert_eq!(none.kind(), ErrorKind::WouldBlock, "{none}");
    }
}

#[test]
fn a_program_that_has_waited_and_is_not_to_wait_any_more_does_not() {
    run_without_thread("with_a_mode_that_changes");
}

#[test]
#[ignore = "run by the test below"]
fn with_a_receiver_that_ends() {
    type End = (&'static str, fn(&Talk));
    let ends: [End; 5] = [
        ("error", |talk| set_state(&talk.b.qp, QpState::Err)),
        ("reset", |talk| set_state(&talk.b.qp, QpState::Reset)),
        ("destroyed", |talk| talk.b.qp.destroy()),
        ("nothing to write", |talk| {
            let mr = &talk.memory[1].mr;
            mr.reregister(None, None, Some(Access::empty())).unwrap();
        }),
        ("its own mistake", |talk| {
            let mut sge = talk.memory[1].sge(0, LEN);
            sge.lkey = Key(!sge.lkey.0);
            talk.b.send(1, SendOp::Send, vec![sge]);
            assert_eq!(talk.b.qp.state(), QpState::Err);
        }),
    ];
    for (how, end) in ends {
        let mut talk = Talk::new(16);
        talk.until_completed_early();
        end(&talk);
        println!("{how}");
        talk.last_is_there(&talk.memory[1].snapshot());
        // Completions of a queue pair that is reset are dropped with it.
        if how != "reset" {
            talk.is_received();
        }
    }
}

#[test]
fn it_comes_though_its_receiver_ends() {
    run_without_thread("with_a_receiver_that_ends");
}

#[test]
#[ignore = "run by the test below"]
fn with_a_region_that_is_deregistered() {
    let mut talk = Talk::new(16);
    talk.until_completed_early();
    let none = Buffer::new(&talk.b.pd, vec![0; LEN]);
    let [_, memory] = &mut talk.memory;
    let there = std::mem::replace(memory, none).deregister();
    talk.last_is_there(&there.snapshot());
    talk.is_received();
    assert!(!talk.send_first(LEN), "that memory is closed");
}

#[test]
fn it_comes_before_its_memory_is_deregistered() {
    run_without_thread("with_a_region_that_is_deregistered");
}

#[test]
#[ignore = "run by the test below"]
fn with_a_sender_that_ends() {
    let ends: [fn(&Talk); 3] = [
        |talk| set_state(&talk.a.qp, QpState::Err),
        |talk| set_state(&talk.a.qp, QpState::Reset),
        |talk| talk.a.qp.destroy(),
    ];
    for end in ends {
        let mut talk = Talk::new(16);
        talk.until_completed_early();
        end(&talk);
        talk.is_received();
    }
}

#[test]
fn it_comes_though_its_sender_ends() {
    run_without_thread("with_a_sender_that_ends");
}

#[test]
#[ignore = "run by the test below"]
fn without_a_receive_for_it() {
    let mut talk = Talk::new(16);
    talk.until_completed_early();
    talk.answer();
    assert!(!talk.send_first(LEN + 1), "too long for its receive");
    let wc = next_completion(&talk.a.cq);
    assert_eq!(wc.status, WcStatus::RemInvReqErr, "{wc:?}");
    drop(talk);

    let mut talk = Talk::new(1);
    talk.until_completed_early();
    talk.take(1);
    // Answered without a receive for the next one.
    talk.send(1, LEN);
    talk.take(0);
    talk.receive(0);
    assert!(!talk.send_first(LEN), "no receive");
    talk.receive(1);
    talk.take(1);
}

#[test]
fn what_has_no_receive_does_not_complete_early() {
    run_without_thread("without_a_receive_for_it");
}

/// Sends behind a message that is done go by another queue pair, over the ring.
#[test]
#[ignore = "run by the test below"]
fn with_another_queue_pair() {
    let mut talk = Talk::new(16);
    let [from, to] = [talk.a.another_qp(), talk.b.another_qp()];
    for (qp, peer, end) in [(&from, &to, &talk.b), (&to, &from, &talk.a)] {
        for (state, mask) in [
            (QpState::Init, INIT),
            (QpState::Rtr, RTR),
            (QpState::Rts, RTS),
        ] {
            let attr = QpAttr {
                qp_state: state,
                ..attributes(peer.qpn(), end.gid(), Mtu::B1024)
            };
            qp.modify(&attr, mask).unwrap();
        }
    }
    let sges = || vec![talk.memory[1].sge(HALF, LEN)].into();
    let receive = RecvWr {
        wr_id: RECEIVED,
        sges: sges(),
    };
    to.post_one_recv(receive).unwrap();
    talk.until_completed_early();
    let payload = Payload::Sges(vec![talk.memory[0].sge(0, LEN)].into());
    let send = SendWr {
        to: SendTo::Peer,
        wr_id: 1,
        op: SendOp::Send,
        flags: SendFlags::empty(),
        payload,
    };
    from.post_one_send(send).unwrap();
    let received = |wc: &Wc| (wc.wr_id == RECEIVED).then_some(wc.qp_num);
    let next = || loop {
        if let Some(qpn) = received(&next_completion(&talk.b.cq)) {
            break qpn;
        }
    };
    assert_eq!([next(), next()], [talk.b.qp.qpn(), to.qpn()]);
    from.destroy();
    to.destroy();
}

#[test]
fn what_is_sent_later_by_another_queue_pair_comes_later() {
    run_without_thread("with_another_queue_pair");
}

/// Two threads talk, and a third one ends the receiver at any moment: what the sender holds for
/// done was received.
#[test]
#[ignore = "run by the test below"]
fn with_an_end_at_any_moment() {
    let mut seeded = Seeded(3);
    for round in 0..rounds(60) {
        let talk = Talk::new(16);
        let (done, received) = (AtomicU64::new(0), AtomicU64::new(0));
        let ended = AtomicBool::new(false);
        let patience = seeded.below(1 << 14);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                talk_on(&talk, 0, &ended, |wc| {
                    done.fetch_add(u64::from(wc.wr_id != RECEIVED), Ordering::Relaxed);
                });
            });
            scope.spawn(|| {
                talk_on(&talk, 1, &ended, |wc| {
                    received.fetch_add(u64::from(wc.wr_id == RECEIVED), Ordering::Relaxed);
                });
            });
            wait_for("talk", || received.load(Ordering::Relaxed) > 100);
            for _ in 0..patience {
                std::hint::spin_loop();
            }
            if round % 2 == 0 {
                set_state(&talk.b.qp, QpState::Err);
            } else {
                let mr = &talk.memory[1].mr;
                mr.reregister(None, None, Some(Access::empty())).unwrap();
            }
            ended.store(true, Ordering::Release);
        });
        let (done, received) = (done.into_inner(), received.into_inner());
        assert!(
            done <= received,
            "round {round}: {done} done, {received} received"
        );
    }
}

/// Polls, and sends to each message one of its own, until something fails, or until the other has
/// `ended` and all is done. `each` is told of what succeeds.
fn talk_on(talk: &Talk, side: usize, ended: &AtomicBool, each: impl Fn(&Wc)) {
    let end = talk.end(side);
    let send = || {
        let sge = talk.memory[side].sge(0, LEN);
        end.send(0, SendOp::Send, vec![sge]);
        1
    };
    let mut open = if side == 0 { send() } else { 0 };
    let start = Instant::now();
    loop {
        let mut came = None;
        // What came before the end is in the queue when this is so.
        let has_ended = ended.load(Ordering::Acquire);
        end.cq.poll(1, &mut |_, wc| came = Some(*wc)).unwrap();
        assert!(start.elapsed() < DEADLINE, "side {side}");
        match came {
            None if open == 0 && has_ended => return,
            None => std::hint::spin_loop(),
            Some(wc) if wc.status != WcStatus::Success => return,
            Some(wc) if wc.wr_id == RECEIVED => {
                each(&wc);
                talk.receive(side);
                open += send();
            }
            Some(wc) => {
                each(&wc);
                open -= 1;
            }
        }
    }
}

#[test]
fn what_is_held_for_done_was_received_whenever_the_receiver_ends() {
    run("with_an_end_at_any_moment", &[]);
    run_without_thread("with_an_end_at_any_moment");
}

/// Answers as long as it is asked.
#[test]
#[ignore = "run by the test below"]
fn child_that_answers() {
    let end = End::new(cap());
    let buffer = Buffer::new(&end.pd, vec![0; 4096]);
    connect_back(&end, &buffer);
    answer(&end, &buffer, |_| false);
}

/// Answers messages until so many are enough. Returns how many there were.
fn answer(end: &End, buffer: &Buffer, mut enough: impl FnMut(u64) -> bool) -> u64 {
    let mut received = 0;
    loop {
        let mut came = None;
        end.cq.poll(1, &mut |_, wc| came = Some(*wc)).unwrap();
        match came {
            Some(wc) if wc.wr_id == RECEIVED && wc.status == WcStatus::Success => {
                received += 1;
                end.recv(RECEIVED, vec![buffer.sge(0, 64)]);
                end.send(0, SendOp::Send, vec![buffer.sge(64, ASKS)]);
            }
            Some(_) => {}
            None if enough(received) => return received,
            None => std::hint::spin_loop(),
        }
    }
}

#[test]
#[ignore = "run by the test below"]
fn with_a_stopped_peer() {
    let peer = Peer::start("child_that_answers", "-");
    let start = Instant::now();
    // On a busy machine the peer's device thread mostly has it asleep before the signal comes, and
    // the next try may be seconds away.
    while start.elapsed() < 5 * DEADLINE {
        peer.converse();
        // It is stopped before it sleeps, right after an exchange.
        stop(peer.child.id());
        peer.send(1, ASKS);
        let mut done = false;
        for _ in 0..100 {
            let each = &mut |_, wc: &Wc| done |= wc.wr_id == 1 && wc.status == WcStatus::Success;
            peer.end.cq.poll(1, each).unwrap();
        }
        signal(peer.child.id(), Signal::SIGCONT);
        if done {
            // The answer comes as well.
            assert_eq!(peer.end.completion().wr_id, RECEIVED);
            return;
        }
        // It went by the ring, since the peer seemed to sleep.
        peer.take_answer(1);
    }
    panic!("no message was done while its receiver was stopped");
}

#[test]
fn a_message_to_a_process_that_is_stopped_is_done() {
    run("with_a_stopped_peer", &[]);
    run_without_thread("with_a_stopped_peer");
}

/// Talks, and is gone as soon as its last message is done.
#[test]
#[ignore = "run by the test below"]
fn child_that_is_gone() {
    let end = End::new(cap());
    let buffer = Buffer::new(&end.pd, vec![0; 4096]);
    let word = connect_back(&end, &buffer);
    let (how, messages) = word.split_once(' ').unwrap();
    let messages = messages.parse().unwrap();
    let (mut sent, mut answered) = (0, 0);
    while sent < messages {
        end.send(sent, SendOp::Send, vec![buffer.sge(64, ASKS)]);
        let mut is_done = false;
        sent += 1;
        while !is_done || answered < sent && sent < messages {
            let wc = end.completion();
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            if wc.wr_id == RECEIVED {
                answered += 1;
                end.recv(RECEIVED, vec![buffer.sge(0, 64)]);
            } else {
                is_done = true;
            }
        }
    }
    match how {
        "exit" => std::process::exit(0),
        _ => std::process::abort(),
    }
}

#[test]
#[ignore = "run by the test below"]
fn with_a_sender_that_is_gone() {
    for (round, how) in (0..rounds(20)).zip(["exit", "abort"].into_iter().cycle()) {
        let messages = 150 + round as u64;
        let mut peer = Peer::start("child_that_is_gone", &format!("{how} {messages}"));
        let (end, buffer, child) = (&peer.end, &peer.buffer, &mut peer.child);
        let mut gone = None;
        let received = answer(end, buffer, |received| {
            if gone.is_none() && child.try_wait().unwrap().is_some() {
                gone = Some(Instant::now());
            }
            gone.is_some_and(|at| received >= messages || at.elapsed() > DEADLINE)
        });
        assert_eq!(received, messages, "{how}");
    }
}

#[test]
fn what_was_done_comes_though_the_process_of_its_sender_is_gone() {
    run("with_a_sender_that_is_gone", &[]);
    run_without_thread("with_a_sender_that_is_gone");
}
