//! Many queue pairs of one process send to those of another, which has one socket buffer for all of
//! them: together they do not overrun it, and each gets its part.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use common::write;
use ferroce_proto::ids::Qpn;
use ferroce_proto::rc::{Budget, LinkTraits, PACKET_COST, Stake};
use ferroce_proto::testkit::{Pair, Setup, Side, remote, wr};
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{Mtu, QpState, SendOp, WcStatus};
use ferroce_proto::wire::Packet;

/// One way.
const DELAY: Duration = Duration::from_micros(20);
/// What each WRITE has.
const MESSAGE: u32 = 16 << 10;
/// Packets of 1 KiB that the buffer holds.
const BUFFER: usize = 64;
/// Those that are meant to be in it: as in the device a part is left, for what is sent again.
const MEANT: u32 = 48;
/// What queue pairs count for that.
const WHOLE: u32 = MEANT * (1024 + PACKET_COST);

/// Something on its way: the pair that it belongs to, and the bytes.
type Flying = BTreeMap<(Time, u64), (usize, Vec<u8>)>;

/// The queue pairs of two processes.
struct Crowd {
    pairs: Vec<Pair>,
    /// The account, unless each queue pair is to look after itself.
    budget: Option<Budget>,
    stakes: Vec<Stake>,
    now: Time,
    to_b: Flying,
    to_a: Flying,
    sent: u64,
    /// The socket of B, and how long B takes for a packet.
    buffer: VecDeque<(usize, Vec<u8>)>,
    pace: Duration,
    taken_at: Time,
    /// Most packets that were ever in the buffer.
    deepest: usize,
    dropped: usize,
    /// Pairs whose B is not there.
    deaf: Vec<usize>,
    called: VecDeque<usize>,
}

impl Crowd {
    fn new(count: u32, pace: Duration, setup: Setup) -> Self {
        let setup = Setup {
            link: LinkTraits {
                lossless: false,
                max_in_flight: WHOLE,
            },
            memory: MESSAGE as usize,
            mtu: Mtu::B1024,
            ..setup
        };
        let stakes = (0..count).map(|n| Stake::new(Qpn::new(n), WHOLE)).collect();
        Self {
            pairs: (0..count).map(|_| Pair::new(setup)).collect(),
            budget: Some(Budget::default()),
            stakes,
            now: Time(1_000_000),
            to_b: Flying::new(),
            to_a: Flying::new(),
            sent: 0,
            buffer: VecDeque::new(),
            pace,
            taken_at: Time(0),
            deepest: 0,
            dropped: 0,
            deaf: Vec::new(),
            called: VecDeque::new(),
        }
    }

    /// As the device does: what a queue pair may send goes out, then others may be called.
    fn transmit(&mut self, n: usize) {
        let (now, pair) = (self.now, &mut self.pairs[n]);
        let qp = &mut pair.a.qp;
        if let Some(budget) = &mut self.budget {
            let in_flight = qp.in_flight();
            let more = match qp.wants_request() {
                true => budget.ask(&mut self.stakes[n], in_flight, now),
                false => 0,
            };
            qp.set_allowance(in_flight + more);
        }
        for packet in pull(pair, Side::A, now) {
            self.sent += 1;
            self.to_b.insert((now + DELAY, self.sent), (n, packet));
        }
        let qp = &mut self.pairs[n].a.qp;
        qp.set_allowance(u64::MAX);
        if let Some(budget) = &mut self.budget {
            let (in_flight, wants) = (qp.in_flight(), qp.wants_request());
            let called = budget.settle(&mut self.stakes[n], in_flight, wants, now);
            self.called.extend(called.map(|qpn| qpn.get() as usize));
        }
    }

    /// Goes to the next thing that happens. Returns the pair of which A may send now, if any.
    fn step(&mut self) -> Option<usize> {
        if let Some(n) = self.called.pop_front() {
            return Some(n);
        }
        let deadline = |(n, pair): (usize, &Pair)| pair.a.qp.deadline().map(|at| (at, n));
        let due = self.pairs.iter().enumerate().filter_map(deadline).min();
        let takes = (!self.buffer.is_empty()).then(|| self.taken_at + self.pace);
        let arrivals = [&self.to_a, &self.to_b].map(|f| f.first_key_value().map(|(k, _)| k.0));
        let next = arrivals.into_iter().chain([takes, due.map(|(at, _)| at)]);
        self.now = next.flatten().min().unwrap().max(self.now);
        let now = self.now;
        while let Some(first) = self.to_b.first_entry().filter(|e| e.key().0 <= now) {
            let (n, packet) = first.remove();
            if self.buffer.len() >= BUFFER {
                self.dropped += 1;
            } else if !self.deaf.contains(&n) {
                self.buffer.push_back((n, packet));
                self.deepest = self.deepest.max(self.buffer.len());
            }
        }
        if takes.is_some_and(|at| at <= now) {
            self.take();
        }
        if let Some(first) = self.to_a.first_entry().filter(|e| e.key().0 <= now) {
            let (n, packet) = first.remove();
            hand(&mut self.pairs[n], Side::A, now, &packet);
            return Some(n);
        }
        let (at, n) = due?;
        (at <= now).then(|| {
            self.pairs[n].a.with(now, |qp, cx| qp.on_deadline(cx));
            n
        })
    }

    /// B takes a packet from its socket, and answers.
    fn take(&mut self) {
        self.taken_at = self.now;
        let (n, packet) = self.buffer.pop_front().unwrap();
        hand(&mut self.pairs[n], Side::B, self.now, &packet);
        for answer in pull(&mut self.pairs[n], Side::B, self.now) {
            self.sent += 1;
            self.to_a.insert((self.now + DELAY, self.sent), (n, answer));
        }
    }

    /// Every queue pair has work all the time, for so long. Returns how many WRITEs of each were
    /// done.
    fn run(&mut self, time: Duration) -> Vec<usize> {
        let end = self.now + time;
        let mut posted = vec![0; self.pairs.len()];
        for n in 0..self.pairs.len() {
            self.top_up(n, &mut posted);
            self.transmit(n);
        }
        while self.now < end {
            if let Some(n) = self.step() {
                self.top_up(n, &mut posted);
                self.transmit(n);
            }
        }
        let done = |pair: &Pair| pair.a.results.send.len();
        self.pairs.iter().map(done).collect()
    }

    /// Eight WRITEs of a queue pair are always posted.
    fn top_up(&mut self, n: usize, posted: &mut [usize]) {
        let pair = &mut self.pairs[n];
        while pair.a.qp.state() == QpState::Rts && posted[n] < pair.a.results.send.len() + 8 {
            pair.send(Side::A, write(pair, 1, MESSAGE));
            posted[n] += 1;
        }
    }
}

/// What a node has to send.
fn pull(pair: &mut Pair, side: Side, now: Time) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| {
        let mut packet = Vec::new();
        let node = pair.node(side);
        let sent = node.with(now, |qp, cx| qp.poll_transmit(cx, &mut packet));
        sent.then_some(packet)
    })
    .collect()
}

/// Gives a packet to a node.
fn hand(pair: &mut Pair, side: Side, now: Time, packet: &[u8]) {
    let packet = Packet::parse(packet).unwrap();
    pair.node(side)
        .with(now, |qp, cx| qp.on_packet(cx, &packet));
}

/// Most are served at most twice as much as the least.
#[track_caller]
fn assert_fair(done: &[usize]) {
    let (least, most) = (done.iter().min().unwrap(), done.iter().max().unwrap());
    assert!(*least > 0 && most <= &(2 * least), "{done:?}");
}

/// A packet of 1 KiB in 2 µs: 0.5 GB/s.
const QUICK: Duration = Duration::from_micros(2);

#[test]
fn thirty_two_queue_pairs_do_not_overrun_one_buffer_and_have_equal_parts() {
    let mut crowd = Crowd::new(32, QUICK, Setup::default());
    let done = crowd.run(Duration::from_millis(40));
    assert_eq!((crowd.deepest, crowd.dropped), (MEANT as usize, 0));
    assert_fair(&done);
    // The receiver was never idle: that is its pace.
    let packets: usize = done.iter().sum::<usize>() * 16;
    assert!(packets > 18_000, "{packets} of 20000");
}

#[test]
fn without_an_account_they_do() {
    let mut crowd = Crowd::new(32, QUICK, Setup::default());
    crowd.budget = None;
    crowd.run(Duration::from_millis(20));
    assert!(crowd.dropped > 1000, "{}", crowd.dropped);
}

#[test]
fn a_few_share_too_and_one_has_all() {
    for count in [1, 2, 3, 5] {
        let mut crowd = Crowd::new(count, QUICK, Setup::default());
        let done = crowd.run(Duration::from_millis(20));
        assert_eq!(crowd.dropped, 0);
        assert_fair(&done);
        let packets: usize = done.iter().sum::<usize>() * 16;
        assert!(packets > 9000, "{packets} of 10000 by {count}");
    }
}

#[test]
fn a_wait_in_line_costs_no_retry() {
    // Once round the line takes longer than the local ACK timer runs, four times 67 ms, and there
    // is one run only.
    let setup = Setup {
        timeout: 14,
        retry_cnt: 0,
        ..Setup::default()
    };
    let mut crowd = Crowd::new(40, Duration::from_micros(600), setup);
    let done = crowd.run(Duration::from_secs(2));
    assert_eq!(crowd.dropped, 0);
    assert!(done.iter().all(|&done| done > 0), "{done:?}");
    for pair in &crowd.pairs {
        let statuses = pair.a.results.send_statuses();
        assert!(
            statuses.iter().all(|(_, s)| *s == WcStatus::Success),
            "{statuses:?}"
        );
    }
}

#[test]
fn a_queue_pair_that_is_not_answered_does_not_hold_up_the_others() {
    // They hold the whole buffer, and try again for ever.
    let setup = Setup {
        timeout: 0,
        ..Setup::default()
    };
    let mut crowd = Crowd::new(20, 10 * QUICK, setup);
    crowd.deaf = (0..10).collect();
    let done = crowd.run(Duration::from_secs(2));
    assert_eq!(done[..10], [0; 10]);
    assert_fair(&done[10..]);
    let packets: usize = done.iter().sum::<usize>() * 16;
    assert!(packets > 50_000, "{packets} of 100000");
}

#[test]
fn reads_share_the_buffer_into_which_their_answers_come() {
    // What is asked for counts as what is sent: the account is the same, so no more comes back than
    // goes.
    let mut crowd = Crowd::new(32, QUICK, Setup::default());
    let mut asked = 0;
    for n in 0..32 {
        let pair = &mut crowd.pairs[n];
        let from = remote(pair.key(Side::B), 0);
        let to = pair.sge(Side::A, 0, MESSAGE);
        pair.send(Side::A, wr(1, SendOp::Read(from), vec![to]));
        crowd.transmit(n);
        asked += crowd.pairs[n].a.qp.in_flight();
    }
    assert!(
        asked <= WHOLE.into() && asked > u64::from(WHOLE) / 4 * 3,
        "{asked}"
    );
}
