//! SENDs that are longer than a slot of a short ring, and than a packet. They go by it in order,
//! also where it is full, where there is no receive for them, and where their receives are not as
//! usual.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use common::short_rings::{Both, LEN, Seeded, run_without_thread};
use common::{Buffer, next_completion, pattern, wait_for};
use ferroce_nic::{Carrier, DirectWay};
use ferroce_proto::rc::MIN_RENDEZVOUS;
use ferroce_proto::verbs::{SendOp, Sge, Wc, WcStatus};

/// Bytes of a SEND from which on its bytes are fetched if it is alone.
const FETCHED: usize = MIN_RENDEZVOUS as usize;
/// Most bytes of a SEND whose bytes go by a short ring. Those of a longer one are always fetched.
const LONGEST: usize = 16 << 10;
/// Bytes of a receive.
const ROOM: usize = 20 << 10;
/// Lengths around those of slots and packets, and those that are fetched.
const LENGTHS: [usize; 19] = [
    104,
    105,
    107,
    108,
    256,
    1000,
    1024,
    1025,
    2048,
    4096,
    5001,
    FETCHED - 1,
    FETCHED,
    FETCHED + 1,
    12_345,
    LONGEST - 1,
    LONGEST,
    LONGEST + 1,
    ROOM,
];
/// Bytes of the memory that has the receives, and where they are, one behind the other.
const INTO: usize = 2 * LEN;
const RECEIVED: usize = LEN / 4;

/// Two ends that talk by short rings, with bytes of their own.
struct Talk {
    both: Both,
    from: Buffer,
    to: Buffer,
}

impl Talk {
    fn new() -> Self {
        let mut both = Both::new();
        both.warm_up();
        let [a, b] = &both.sides;
        let from = Buffer::new(&a.end.pd, pattern(LEN, 9));
        let to = Buffer::new(&b.end.pd, vec![0; INTO]);
        Self { both, from, to }
    }

    /// Memory for receives that has nothing in it.
    fn clear(&mut self) {
        self.to = Buffer::new(&self.both.sides[1].end.pd, vec![0; INTO]);
    }

    /// Messages of the receiver's device that it has fetched.
    fn fetched(&self) -> u64 {
        let counters = self.both.sides[1].end.context.device().counters();
        counters.direct(DirectWay::In)
    }

    /// Posts a receive at a place of its own.
    fn receive(&self, index: usize, pieces: impl Fn(Sge) -> Vec<Sge>) {
        let sge = self.to.sge(RECEIVED + index * ROOM, ROOM);
        self.both.sides[1].end.recv(u64::MAX, pieces(sge));
    }

    /// Sends `length` bytes from the place of message `index`.
    fn send(&mut self, index: usize, length: usize) {
        let sge = self.from.sge(place(index), length);
        let number = self.both.next;
        self.both.next += 1;
        let side = &mut self.both.sides[0];
        side.end.send(number, SendOp::Send, vec![sge]);
        side.sent.push_back(number);
    }

    /// Waits for all that was sent: returns how many bytes each message had that was received.
    fn settle(&mut self, messages: usize) -> Vec<usize> {
        let mut lengths = Vec::new();
        wait_for("all of them", || {
            self.poll(&mut lengths);
            lengths.len() == messages && self.both.sides[0].sent.is_empty()
        });
        lengths
    }

    fn poll(&mut self, lengths: &mut Vec<usize>) {
        let [a, b] = &mut self.both.sides;
        let each = &mut |_, wc: &Wc| {
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            lengths.push(wc.byte_len as usize);
        };
        b.end.cq.poll(16, each).unwrap();
        let cq = Arc::clone(&a.end.cq);
        let each = &mut |_, wc: &Wc| {
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            assert_eq!(a.sent.pop_front(), Some(wc.wr_id), "in order, once");
        };
        cq.poll(16, each).unwrap();
    }

    #[track_caller]
    fn check(&self, lengths: &[usize]) {
        let (from, to) = (self.from.snapshot(), self.to.snapshot());
        for (index, length) in lengths.iter().enumerate() {
            let [sent, came] = [place(index), RECEIVED + index * ROOM];
            let is_same = from[sent..sent + length] == to[came..came + length];
            assert!(is_same, "message {index} of {length} bytes");
            let behind = &to[came + length..came + ROOM];
            assert!(behind.iter().all(|byte| *byte == 0), "behind {index}");
        }
    }
}

/// Where the bytes of a message are: at any alignment.
fn place(index: usize) -> usize {
    index * 1031 % (LEN / 2)
}

#[test]
#[ignore = "run by the test below"]
fn alone_each_length() {
    let mut talk = Talk::new();
    for (index, length) in LENGTHS.into_iter().enumerate() {
        let counters = |talk: &Talk| {
            talk.both.sides[0]
                .end
                .context
                .device()
                .counters()
                .tx_packets()
        };
        talk.receive(index, |sge| vec![sge]);
        let before = counters(&talk);
        talk.send(index, length);
        assert_eq!(talk.settle(1), [length]);
        let packets = counters(&talk) - before;
        let expected = if length >= FETCHED {
            1
        } else {
            length.div_ceil(1024) as u64
        };
        assert_eq!(packets, expected, "{length}, and no acknowledgement");
        assert_eq!(talk.both.carrier(0), Some(Carrier::ShortRing), "{length}");
    }
    talk.check(&LENGTHS);
}

#[test]
fn messages_of_every_length_up_to_the_longest_go_by_short_rings() {
    run_without_thread("alone_each_length");
}

#[test]
#[ignore = "run by the test below"]
fn alone_full() {
    let (mut talk, mut seeded) = (Talk::new(), Seeded(7));
    // The window is narrow at first.
    for index in 0..40 {
        talk.receive(index, |sge| vec![sge]);
        talk.send(index, 4096);
        assert_eq!(talk.settle(1), [4096]);
    }
    for _ in 0..20 {
        // Twice as much as fits, and some that take no place.
        let lengths: Vec<usize> = (0..50)
            .map(|_| LONGEST / 2 + seeded.below(ROOM - LONGEST / 2))
            .collect();
        talk.clear();
        for (index, length) in lengths.iter().enumerate() {
            talk.receive(index, |sge| vec![sge]);
            talk.send(index, *length);
            assert_eq!(talk.both.carrier(0), Some(Carrier::ShortRing), "it waits");
        }
        assert_eq!(talk.settle(lengths.len()), lengths);
        assert_eq!(talk.both.carrier(0), Some(Carrier::ShortRing));
        talk.check(&lengths);
    }
}

#[test]
fn what_finds_a_short_ring_full_waits_for_it() {
    run_without_thread("alone_full");
}

#[test]
#[ignore = "run by the test below"]
fn alone_not_ready() {
    let mut talk = Talk::new();
    for _ in 0..5 {
        talk.clear();
        for (index, length) in LENGTHS.into_iter().enumerate() {
            talk.send(index, length);
        }
        let mut none = Vec::new();
        for _ in 0..2000 {
            talk.poll(&mut none);
        }
        assert_eq!(none, [], "there is no receive");
        for index in 0..LENGTHS.len() {
            talk.receive(index, |sge| vec![sge]);
        }
        assert_eq!(talk.settle(LENGTHS.len()), LENGTHS);
        talk.check(&LENGTHS);
        talk.both.sides[0].received = 0;
        talk.both.sides[1].received = 0;
        talk.both.warm_up();
    }
}

#[test]
fn a_long_message_that_finds_no_receive_comes_again_as_packets() {
    run_without_thread("alone_not_ready");
}

#[test]
#[ignore = "run by the test below"]
fn alone_in_pieces() {
    let mut talk = Talk::new();
    for (index, length) in LENGTHS.into_iter().enumerate() {
        let halves = |sge: Sge| {
            let length = sge.length / 2;
            let second = Sge {
                addr: sge.addr + u64::from(length),
                length,
                ..sge
            };
            vec![Sge { length, ..sge }, second]
        };
        talk.receive(index, halves);
        talk.send(index, length);
        assert_eq!(talk.both.carrier(0), Some(Carrier::ShortRing), "{length}");
        assert_eq!(talk.settle(1), [length]);
    }
    talk.check(&LENGTHS);
}

#[test]
fn a_long_message_is_taken_packet_by_packet_where_its_receive_has_pieces() {
    run_without_thread("alone_in_pieces");
}

#[test]
#[ignore = "run by the test below"]
fn alone_fetched() {
    let mut talk = Talk::new();
    let before = talk.fetched();
    let mut fetched = 0;
    for round in 0..50 {
        talk.clear();
        let lengths: Vec<usize> = (0..LENGTHS.len())
            .map(|at| LENGTHS[(at * 5 + round) % LENGTHS.len()])
            .collect();
        for (index, length) in lengths.iter().enumerate() {
            talk.receive(index, |sge| vec![sge]);
            talk.send(index, *length);
        }
        assert_eq!(talk.settle(lengths.len()), lengths);
        assert_eq!(talk.both.carrier(0), Some(Carrier::ShortRing));
        talk.check(&lengths);
        fetched += lengths.iter().filter(|length| **length > LONGEST).count() as u64;
    }
    assert!(talk.fetched() - before >= fetched);
}

#[test]
fn what_is_fetched_keeps_its_place_among_others() {
    run_without_thread("alone_fetched");
}

#[test]
#[ignore = "run by the test below"]
fn alone_taken_back() {
    let mut talk = Talk::new();
    // Its bytes cannot be fetched any more when the receive comes: it, and what is behind it, has
    // an end nevertheless.
    let lost = Buffer::new(&talk.both.sides[0].end.pd, pattern(LONGEST, 3));
    let sge = lost.sge(0, LONGEST);
    let number = talk.both.next;
    talk.both.next += 1;
    talk.both.sides[0].end.send(number, SendOp::Send, vec![sge]);
    drop(lost);
    talk.receive(0, |sge| vec![sge]);
    let a = &talk.both.sides[0].end;
    let wc = next_completion(&a.cq);
    assert_eq!((wc.wr_id, wc.status), (number, WcStatus::LocProtErr));
    assert!(
        talk.to.snapshot().iter().all(|byte| *byte == 0),
        "nothing came"
    );
}

#[test]
fn what_was_taken_back_before_it_was_fetched_does_not_arrive() {
    run_without_thread("alone_taken_back");
}
