//! A message that completed early and is not taken yet stays as it was when a new run of its short
//! ring begins behind it.

mod common;

use std::sync::Arc;

use common::short_rings::{arm_for_later, end_with_channel, run_without_thread};
use common::{Buffer, End, cap, next_completion, pattern};
use ferroce_nic::CompChannel;
use ferroce_proto::verbs::{Mtu, SendOp, WcStatus};

/// Bytes of a message: they lie in the body of the short ring.
const LEN: usize = 200;
/// Receives that are posted, each with a place of its own, and messages with their own bytes.
const PLACES: usize = 32;
/// Bytes behind these for answers.
const ANSWER: usize = 8;
const RECEIVED: u64 = u64::MAX;
/// Messages by the ring after which a run begins, and a few more.
const BEHIND: usize = 12;

/// A sender whose receiver answers each message.
struct Talk {
    a: End,
    channel: Arc<CompChannel>,
    b: End,
    from: Buffer,
    to: Buffer,
    sent: usize,
    received: usize,
}

impl Talk {
    fn new() -> Self {
        let (a, channel) = end_with_channel();
        let b = End::new(cap());
        a.connect(b.qp.qpn(), b.gid(), Mtu::B1024);
        b.connect(a.qp.qpn(), a.gid(), Mtu::B1024);
        let from = Buffer::new(&a.pd, pattern(PLACES * LEN + ANSWER, 3));
        let to = Buffer::new(&b.pd, vec![0; PLACES * LEN + ANSWER]);
        let talk = Self {
            a,
            channel,
            b,
            from,
            to,
            sent: 0,
            received: 0,
        };
        for place in 0..PLACES {
            talk.receive(place);
            talk.receive_answer();
        }
        talk
    }

    fn receive(&self, number: usize) {
        let sge = self.to.sge(number % PLACES * LEN, LEN);
        self.b.recv(RECEIVED, vec![sge]);
    }

    fn receive_answer(&self) {
        self.a
            .recv(RECEIVED, vec![self.from.sge(PLACES * LEN, ANSWER)]);
    }

    /// Sends the next message, in `pieces` pieces.
    fn send(&mut self, pieces: usize) {
        let (from, len) = (self.sent % PLACES * LEN, LEN / pieces);
        let sges = (0..pieces).map(|piece| self.from.sge(from + piece * len, len));
        self.a.send(0, SendOp::Send, sges.collect());
        self.sent += 1;
    }

    /// Sends the next message. Returns whether it is done though nobody has polled since.
    fn completes_early(&mut self) -> bool {
        arm_for_later(&self.a, &self.channel);
        self.send(1);
        self.channel.pop().is_some()
    }

    /// The receiver takes the next message, which has its bytes.
    #[track_caller]
    fn take(&mut self) {
        loop {
            let wc = next_completion(&self.b.cq);
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            if wc.wr_id == RECEIVED {
                break;
            }
        }
        let number = self.received;
        let there = number % PLACES * LEN..(number % PLACES + 1) * LEN;
        let (to, from) = (self.to.snapshot(), self.from.snapshot());
        assert_eq!(to[there.clone()], from[there], "message {number}");
        self.received += 1;
        self.receive(number);
    }

    /// The receiver answers the last message.
    fn answer(&mut self) {
        self.take();
        let answer = self.to.sge(PLACES * LEN, ANSWER);
        self.b.send(0, SendOp::Send, vec![answer]);
        while next_completion(&self.a.cq).wr_id != RECEIVED {}
        self.receive_answer();
    }
}

#[test]
#[ignore = "run by the test below"]
fn with_messages_behind_it() {
    let mut talk = Talk::new();
    let mut tries = 0..200;
    while !talk.completes_early() {
        assert!(tries.next().is_some(), "no message is promised");
        // One queue pair of a process promises something: not this one.
        let _ = talk.a.qp.query();
        talk.answer();
    }
    // In two pieces a message goes by the ring.
    talk.send(2);
    for _ in 0..BEHIND {
        talk.send(1);
    }
    while talk.received < talk.sent {
        talk.take();
    }
}

#[test]
fn a_message_that_completed_early_arrives_as_it_was_sent() {
    run_without_thread("with_messages_behind_it");
}
