//! Short messages that go out at once leave the same packets and the same state as if they went the
//! general way.

mod common;

use std::time::Duration;

use common::workload::{MAX_OPS, MEMORY, Workload};
use common::{SOON, expect_more, seeds};
use ferroce_proto::ids::Key;
use ferroce_proto::rc::{LinkTraits, MAX_SHORT};
use ferroce_proto::testkit::{Faults, Pair, Rng, Setup, Side, remote, wr};
use ferroce_proto::verbs::{
    AttrMask, Mtu, Payload, PostError, QpState, RecvWr, SendFlags, SendOp, SendWr, WcStatus,
};
use ferroce_proto::wire::{Operation, Packet};

const LOSSLESS: LinkTraits = LinkTraits {
    lossless: true,
    max_in_flight: 1 << 20,
};

/// Two pairs to which the same happens; only the first sends short messages at once.
struct Twins([Pair; 2]);

impl Twins {
    fn new(setup: Setup) -> Self {
        let pair = |shorts| {
            let mut pair = Pair::new(setup);
            (pair.shorts, pair.trace) = (shorts, Some(Vec::new()));
            pair
        };
        Self([pair(Some(0)), pair(None)])
    }

    /// Does the same to both, and compares what comes of it.
    fn both<R: PartialEq + std::fmt::Debug>(&mut self, what: impl Fn(&mut Pair) -> R) -> R {
        let [short, general] = &mut self.0;
        let result = what(short);
        assert_eq!(result, what(general));
        assert_eq!(
            format!("{:?} {:?}", short.a.qp, short.b.qp),
            format!("{:?} {:?}", general.a.qp, general.b.qp),
            "states of the queue pairs"
        );
        let [one, other] = [short, general].map(|pair| pair.trace.replace(Vec::new()));
        assert_eq!(one, other, "packets");
        let [short, general] = &self.0;
        assert_eq!(
            format!("{:?} {:?}", short.a.results, short.b.results),
            format!("{:?} {:?}", general.a.results, general.b.results),
            "completions and events"
        );
        result
    }

    fn shorts(&self) -> usize {
        self.0[0].shorts.unwrap_or_default()
    }

    /// A random work request, mostly a short message; rarely one that fails.
    fn request(&self, rng: &mut Rng, wr_id: u64, side: Side) -> SendWr {
        let pair = &self.0[0];
        let to = remote(pair.key(side.peer()), rng.below(1000) * 8);
        let length = match rng.below(10) {
            0 => 0,
            1..=7 => rng.below32(200),
            8 => rng.below32(2 * MAX_SHORT),
            _ => rng.below32(10_000),
        };
        let mut sges = vec![pair.sge(side, rng.below(1000), length)];
        if rng.per_mille(200) {
            sges.push(pair.sge(side, 5000, rng.below32(100)));
        }
        if rng.per_mille(1) {
            sges[0].lkey = Key(7);
        }
        let op = match rng.below(12) {
            0 => SendOp::SendImm([1, 2, 3, 4]),
            1 => SendOp::Write(to),
            2 => SendOp::WriteImm(to, [5, 6, 7, 8]),
            3 => SendOp::Read(to),
            4 if length >= 8 => SendOp::FetchAdd { remote: to, add: 1 },
            _ => SendOp::Send,
        };
        let mut request = wr(wr_id, op, sges);
        request.flags = SendFlags::from_bits_truncate(rng.below32(8));
        if op == SendOp::Send && length <= 200 && rng.per_mille(300) {
            request.payload = Payload::Inline(vec![0x5a; length as usize].into());
            request.flags |= SendFlags::INLINE;
        }
        request
    }

    /// One of the things that happen to queue pairs.
    fn anything(&mut self, rng: &mut Rng, wr_id: u64) {
        let side = rng.pick(&[Side::A, Side::B]);
        match rng.below(20) {
            0..=9 => {
                let request = self.request(rng, wr_id, side);
                let posted = self.both(|pair| post(pair, side, &request));
                assert!(posted.is_ok() || posted == Err(PostError::QueueFull(64)));
            }
            10..=12 => {
                for _ in 0..rng.below(8) {
                    let length = if rng.per_mille(2) { 50 } else { 20_000 };
                    let posted = self.both(|pair| receive(pair, side, wr_id, length));
                    assert!(posted.is_ok() || posted == Err(PostError::QueueFull(64)));
                }
            }
            13 if rng.per_mille(200) => {
                for state in [QpState::Sqd, QpState::Rts] {
                    let changed = self.both(|pair| {
                        let (now, (attr, mask)) = (pair.now, pair.step_attr(side, state));
                        let mask = mask & AttrMask::STATE;
                        let node = pair.node(side);
                        node.with(now, |qp, cx| qp.modify(cx, &attr, mask))
                    });
                    if changed.is_ok() {
                        let request = self.request(rng, wr_id, side);
                        let posted = self.both(|pair| post(pair, side, &request));
                        assert!(posted.is_ok() || posted == Err(PostError::QueueFull(64)));
                    }
                }
            }
            14 if rng.per_mille(200) => {
                let paused = rng.per_mille(500);
                self.both(|pair| pair.pause_into(side, paused));
            }
            14 => self.both(|pair| pair.pause_into(side, false)),
            _ => {
                let wait = Duration::from_micros(rng.pick(&[5, 20, 50, 500]));
                self.both(|pair| {
                    pair.settle(wait);
                    pair.now = pair.now + wait;
                });
            }
        }
    }
}

#[test]
fn short_messages_leave_what_the_general_way_leaves() {
    let mut shorts = 0;
    for seed in seeds(25) {
        let mut rng = Rng::new(seed);
        let lossy = Faults {
            drop: 20,
            duplicate: 20,
            reorder: 50,
        };
        let is_lossless = seed % 3 != 0;
        let setup = Setup {
            seed,
            psn: 0xff_ffe0,
            mtu: rng.pick(&[Mtu::B256, Mtu::B1024, Mtu::B4096]),
            link: if is_lossless {
                LOSSLESS
            } else {
                Setup::default().link
            },
            faults: if is_lossless {
                Faults::default()
            } else {
                lossy
            },
            ..Setup::default()
        };
        let mut twins = Twins::new(setup);
        for wr_id in 0..400 {
            twins.anything(&mut rng, wr_id);
        }
        twins.both(|pair| {
            pair.pause_into(Side::A, false);
            pair.pause_into(Side::B, false);
            pair.settle(Duration::from_secs(1));
        });
        shorts += twins.shorts();
    }
    expect_more(shorts, 500, 25);
}

#[test]
fn workloads_come_out_right_with_short_messages_sent_at_once() {
    let mut shorts = 0;
    for seed in seeds(20) {
        let mut pair = Pair::new(Setup {
            seed,
            memory: MEMORY,
            link: LOSSLESS,
            ..Setup::default()
        });
        pair.shorts = Some(0);
        Workload::new(&mut pair, seed, [MAX_OPS, MAX_OPS]).run(&mut pair);
        shorts += pair.shorts.unwrap_or_default();
    }
    expect_more(shorts, 20, 20);
}

/// A pair in which B has just got a message that wants an acknowledgement.
fn pair_that_owes_an_acknowledgement() -> Pair {
    pair_that_owes_one_over(LOSSLESS)
}

fn pair_that_owes_one_over(link: LinkTraits) -> Pair {
    let mut pair = Pair::new(Setup {
        link,
        ..Setup::default()
    });
    let (to, from) = (pair.whole(Side::B), pair.sge(Side::A, 0, 8));
    pair.recv(Side::B, 1, to);
    pair.send(Side::A, wr(1, SendOp::Send, vec![from]));
    pair.transmit(Side::A);
    pair.until(SOON, |pair| !pair.b.results.recv.is_empty());
    pair
}

#[test]
fn an_acknowledgement_goes_before_the_message_that_answers() {
    let mut pair = pair_that_owes_an_acknowledgement();
    let answer = wr(2, SendOp::Send, vec![pair.sge(Side::B, 0, 30)]);
    pair.send(Side::B, answer);
    let (mut out, now) = (Vec::new(), pair.now);
    let first = pair.b.with(now, |qp, cx| qp.poll_short(cx, &mut out));
    let (acknowledgement, message) = out.split_at(first.expect("both"));
    let operations = [acknowledgement, message].map(|bytes| {
        let packet = Packet::parse(bytes).expect("well-formed");
        packet.bth.opcode.info().expect("known").operation
    });
    assert_eq!(operations, [Operation::Acknowledge, Operation::Send]);
}

/// What B sends next.
fn next_operation(pair: &mut Pair) -> Option<Operation> {
    let (mut out, now) = (Vec::new(), pair.now);
    let any = pair.b.with(now, |qp, cx| qp.poll_transmit(cx, &mut out));
    any.then(|| {
        let packet = Packet::parse(&out).expect("well-formed");
        packet.bth.opcode.info().expect("known").operation
    })
}

#[test]
fn on_the_wire_the_acknowledgement_may_follow_an_answer_and_only_that() {
    let wire = LinkTraits {
        lossless: false,
        ..LOSSLESS
    };
    let word = Some(Operation::Acknowledge);
    let (send, write) = (Some(Operation::Send), Some(Operation::Write));
    let (long, most) = (MAX_SHORT + 1, 64 << 10);
    for (link, length, operation, expected) in [
        (wire, 30, send, [send, word, None]),
        (wire, 0, None, [word, None, None]),
        (wire, long, send, [word, send, send]),
        (wire, long, write, [write, write, word]),
        (wire, most + 1, write, [word, write, write]),
        (LOSSLESS, 30, send, [word, send, None]),
    ] {
        let mut pair = pair_that_owes_one_over(link);
        let op = match operation {
            Some(Operation::Send) => Some(SendOp::Send),
            Some(_) => Some(SendOp::Write(remote(pair.key(Side::A), 0))),
            None => None,
        };
        if let Some(op) = op {
            let answer = wr(2, op, vec![pair.sge(Side::B, 0, length)]);
            let now = pair.now;
            let posted = pair.b.with(now, |qp, cx| qp.post_send(cx, answer));
            posted.expect("there is room");
        }
        pair.b.qp.let_ack_follow();
        let sent = [(); 3].map(|()| next_operation(&mut pair));
        assert_eq!(sent, expected, "{length} bytes over {link:?}");
    }
}

#[test]
fn no_more_goes_before_the_acknowledgement_than_the_message_that_it_may_follow() {
    let mut pair = pair_that_owes_one_over(LinkTraits {
        lossless: false,
        ..LOSSLESS
    });
    let now = pair.now;
    let write = |pair: &mut Pair| {
        let op = SendOp::Write(remote(pair.key(Side::A), 0));
        let answer = wr(2, op, vec![pair.sge(Side::B, 0, MAX_SHORT + 1)]);
        let posted = pair.b.with(now, |qp, cx| qp.post_send(cx, answer));
        posted.expect("there is room");
    };
    write(&mut pair);
    pair.b.qp.let_ack_follow();
    write(&mut pair);
    let sent = [(); 4].map(|()| next_operation(&mut pair));
    let (word, message) = (Some(Operation::Acknowledge), Some(Operation::Write));
    assert_eq!(sent, [message, message, word, message]);
}

#[test]
fn a_message_whose_bytes_are_not_there_changes_nothing_until_its_turn() {
    let mut pair = pair_that_owes_an_acknowledgement();
    let mut sge = pair.sge(Side::B, 0, 30);
    sge.lkey = Key(7);
    pair.send(Side::B, wr(2, SendOp::Send, vec![sge]));
    let before = format!("{:?}", pair.b.qp);
    let (mut out, now) = (vec![1, 2, 3], pair.now);
    let first = pair.b.with(now, |qp, cx| qp.poll_short(cx, &mut out));
    assert_eq!((first, &out[..]), (None, &[1, 2, 3][..]));
    assert_eq!(format!("{:?}", pair.b.qp), before);
    pair.transmit(Side::B);
    expect_status(&pair, WcStatus::LocProtErr);
}

#[test]
fn what_is_not_short_or_not_alone_goes_the_general_way() {
    let mut pair = Pair::new(Setup {
        link: LOSSLESS,
        mtu: Mtu::B4096,
        ..Setup::default()
    });
    let now = pair.now;
    let short = |pair: &mut Pair| {
        let mut out = Vec::new();
        pair.a.with(now, |qp, cx| qp.poll_short(cx, &mut out))
    };
    assert_eq!(short(&mut pair), None, "nothing to send");
    for (lengths, goes) in [
        (&[MAX_SHORT][..], true),
        (&[MAX_SHORT + 1], false),
        (&[1, 1], false),
        (&[1], true),
    ] {
        for &length in lengths {
            let from = pair.sge(Side::A, 0, length);
            pair.send(Side::A, wr(1, SendOp::Send, vec![from]));
        }
        assert_eq!(short(&mut pair).is_some(), goes, "{lengths:?}");
        pair.transmit(Side::A);
    }
}

#[test]
fn time_matters_until_a_round_trip_is_known_and_again_when_a_packet_was_dropped() {
    let mut pair = Pair::new(Setup {
        link: LOSSLESS,
        ..Setup::default()
    });
    assert!(pair.a.qp.needs_time_to_send());
    let (to, from) = (pair.whole(Side::B), pair.sge(Side::A, 0, 8));
    pair.recv(Side::B, 1, to);
    pair.send(Side::A, wr(1, SendOp::Send, vec![from]));
    pair.until(SOON, |pair| !pair.a.results.send.is_empty());
    assert!(!pair.a.qp.needs_time_to_send());
    pair.send(Side::A, wr(2, SendOp::Send, vec![from]));
    pair.cut_into(Side::B, true);
    pair.transmit(Side::A);
    let now = pair.now;
    pair.a.with(now, |qp, cx| qp.on_dropped(cx));
    assert!(pair.a.qp.needs_time_to_send());
    assert!(pair.a.qp.deadline() > Some(now));
}

/// Posts a receive of so many bytes.
fn receive(pair: &mut Pair, side: Side, wr_id: u64, length: u32) -> Result<(), PostError> {
    let (now, sges) = (pair.now, vec![pair.sge(side, 40_000, length)]);
    let recv = RecvWr {
        wr_id,
        sges: sges.into(),
    };
    let node = pair.node(side);
    node.with(now, |qp, cx| qp.post_recv(cx, recv))
}

/// Posts, and sends what can go.
fn post(pair: &mut Pair, side: Side, request: &SendWr) -> Result<(), PostError> {
    let posted = pair.try_send(side, request.clone());
    pair.transmit(side);
    posted
}

fn expect_status(pair: &Pair, status: WcStatus) {
    assert_eq!(pair.b.results.send_statuses(), [(2, status)]);
}
