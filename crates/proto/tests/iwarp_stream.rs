//! Random work of both ends over a byte stream that is cut anywhere, delayed, closed and reset at
//! every point: each work request completes once and in order, and what has completed is true.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use common::{bytes, expect_more, seeds};
use ferroce_proto::iwarp::mpa::{Rtr, Wishes};
use ferroce_proto::iwarp::testkit::{Cut, Pair, Setup};
use ferroce_proto::testkit::{Arena, Rng, Side, remote, wr};
use ferroce_proto::verbs::{QpState, SendFlags, SendOp, WcImm, WcOpcode, WcStatus};

/// Bytes that each message has for itself in each of the areas below.
const SLOT: u64 = 8 << 10;
/// Most work requests of a side.
const MOST: usize = 12;
/// What is sent and read; nothing writes there.
const SOURCE: u64 = 0;
/// Where WRITEs and atomics of the peer land.
const TARGET: u64 = 0x2_0000;
/// Where READs and atomics put what they brought.
const SINK: u64 = 0x4_0000;
/// Where SENDs land.
const RECEIVES: u64 = 0x6_0000;
const MEMORY: usize = 0x8_0000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
    Add,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    kind: Kind,
    len: u32,
}

impl Message {
    const fn takes_receive(self) -> bool {
        matches!(self.kind, Kind::Send | Kind::SendImm | Kind::WriteImm)
    }
}

/// Prints the seed of a run that panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

fn plan(rng: &mut Rng) -> Vec<Message> {
    let count = 1 + rng.below32(MOST as u32 - 1);
    let mut message = || {
        let kinds = [
            Kind::Send,
            Kind::SendImm,
            Kind::Write,
            Kind::WriteImm,
            Kind::Read,
            Kind::Add,
        ];
        let kind = rng.pick(&kinds);
        let longest = rng.pick(&[2, 40, 1500, SLOT as u32]);
        let len = if kind == Kind::Add {
            8
        } else {
            rng.below32(longest)
        };
        Message { kind, len }
    };
    (0..count).map(|_| message()).collect()
}

fn setup(seed: u64) -> Setup {
    let mut rng = Rng::new(seed ^ 0x1a);
    let mut wishes = || Wishes {
        crc: rng.per_mille(500),
        markers: rng.per_mille(300),
        ird: 1 + rng.below32(6) as u16,
        ord: 1 + rng.below32(6) as u16,
        max_ird: 8,
        rtr: rng.pick(&[Rtr::empty(), Rtr::WRITE, Rtr::READ]),
        ..Setup::WISHES
    };
    let (a, b) = (wishes(), wishes());
    Setup {
        seed,
        memory: MEMORY,
        a,
        b,
        segment: rng.pick(&[536, 1448, 8948, 65_536]),
        buffer: rng.pick(&[700, 5000, 65_536]),
        ..Setup::default()
    }
}

struct World {
    pair: Pair,
    plans: [Vec<Message>; 2],
    sources: [Vec<u8>; 2],
}

impl World {
    fn new(setup: Setup) -> Self {
        let mut rng = Rng::new(setup.seed);
        let plans = [plan(&mut rng), plan(&mut rng)];
        let sources = [0, 1].map(|_| bytes(&mut rng, TARGET as usize));
        let mut pair = Pair::new(setup);
        for side in [Side::A, Side::B] {
            let source = &sources[side as usize];
            let memory = &pair.node(side).memory;
            memory.put(Arena::BASE + SOURCE, source);
            memory.put(Arena::BASE + TARGET, source);
        }
        let mut world = Self {
            pair,
            plans,
            sources,
        };
        for side in [Side::A, Side::B] {
            world.post(side);
        }
        world
    }

    fn post(&mut self, side: Side) {
        let pair = &mut self.pair;
        let theirs = &self.plans[side.peer() as usize];
        let receives = theirs.iter().filter(|m| m.takes_receive()).count() as u64;
        for id in 0..receives {
            let sge = pair.sge(side, RECEIVES + id * SLOT, SLOT as u32);
            pair.recv(side, id, vec![sge]);
        }
        let key = pair.key(side.peer());
        for (id, message) in (0..).zip(&self.plans[side as usize]) {
            let imm = (id as u32).to_be_bytes();
            let target = remote(key, TARGET + id * SLOT);
            let source = remote(key, SOURCE + id * SLOT);
            let (op, from) = match message.kind {
                Kind::Send => (SendOp::Send, SOURCE),
                Kind::SendImm => (SendOp::SendImm(imm), SOURCE),
                Kind::Write => (SendOp::Write(target), SOURCE),
                Kind::WriteImm => (SendOp::WriteImm(target, imm), SOURCE),
                Kind::Read => (SendOp::Read(source), SINK),
                Kind::Add => (
                    SendOp::FetchAdd {
                        remote: target,
                        add: 1,
                    },
                    SINK,
                ),
            };
            let (at, cut) = (from + id * SLOT, message.len / 3);
            let first = pair.sge(side, at, cut);
            let rest = pair.sge(side, at + u64::from(cut), message.len - cut);
            let mut wr = wr(id, op, vec![first, rest]);
            if id % 4 == 3 {
                wr.flags |= SendFlags::FENCE;
            }
            pair.send(side, wr);
        }
    }

    /// The bytes of a message of a side at some place of a node.
    fn holds(&self, (of, at): (Side, u64), id: u64, len: u32, source: Side) -> bool {
        let node = match of {
            Side::A => &self.pair.a,
            Side::B => &self.pair.b,
        };
        let from = (SOURCE + id * SLOT) as usize;
        let expected = &self.sources[source as usize][from..from + len as usize];
        node.memory.get(Arena::BASE + at, len as usize) == expected
    }

    /// What has completed must be true. Returns how many work requests succeeded.
    fn check(&mut self, side: Side) -> usize {
        let plan = self.plans[side as usize].clone();
        let results = &self.pair.node(side).results;
        let statuses = results.send_statuses();
        let ids: Vec<_> = statuses.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, (0..plan.len() as u64).collect::<Vec<_>>());
        let done = statuses
            .iter()
            .take_while(|(_, s)| *s == WcStatus::Success)
            .count();
        assert!(
            statuses[done..]
                .iter()
                .all(|(_, s)| *s == WcStatus::WrFlushErr)
        );
        // An answer shows that everything before its request has arrived (RFC 5040, 5.5).
        let is_answered = |m: &Message| matches!(m.kind, Kind::Read | Kind::Add);
        let arrived = plan[..done]
            .iter()
            .rposition(is_answered)
            .map_or(0, |last| last + 1);
        for (id, message) in (0..).zip(&plan[..done]) {
            let at = id * SLOT;
            let is_true = match message.kind {
                Kind::Read => self.holds((side, SINK + at), id, message.len, side.peer()),
                Kind::Add => self.holds((side, SINK + at), id, 8, side.peer()),
                Kind::Write | Kind::WriteImm if (id as usize) < arrived => {
                    self.holds((side.peer(), TARGET + at), id, message.len, side)
                }
                _ => true,
            };
            assert!(is_true, "{side:?} {id} {message:?}");
        }
        self.check_receives(side.peer(), &plan, arrived);
        done
    }

    fn check_receives(&mut self, side: Side, plan: &[Message], arrived: usize) {
        let takers: Vec<_> = (0..).zip(plan).filter(|(_, m)| m.takes_receive()).collect();
        let completions: Vec<_> = {
            let results = &self.pair.node(side).results;
            results.recv.iter().map(|(wc, _)| *wc).collect()
        };
        assert_eq!(completions.len(), takers.len());
        let mut is_over = false;
        for ((slot, wc), (id, message)) in (0..).zip(&completions).zip(&takers) {
            assert_eq!(wc.wr_id, slot);
            is_over |= wc.status != WcStatus::Success;
            if is_over {
                assert_eq!(wc.status, WcStatus::WrFlushErr);
                assert!(*id >= arrived as u64, "{side:?} {id} was lost");
                continue;
            }
            let imm = (message.kind != Kind::Send).then(|| WcImm::Imm((*id as u32).to_be_bytes()));
            assert_eq!((wc.byte_len, wc.imm), (message.len, imm));
            let place = if wc.opcode == WcOpcode::Recv {
                RECEIVES + slot * SLOT
            } else {
                TARGET + id * SLOT
            };
            assert!(self.holds((side, place), *id, message.len, side.peer()));
        }
    }
}

#[test]
fn all_work_of_both_ends_arrives_however_the_stream_is_cut() {
    for seed in seeds(200) {
        let _seed = Seed(seed);
        let mut world = World::new(setup(seed));
        let plans = [world.plans[0].len(), world.plans[1].len()];
        world
            .pair
            .until(|p| [p.a.results.send.len(), p.b.results.send.len()] == plans);
        world.pair.run();
        for side in [Side::A, Side::B] {
            assert_eq!(world.check(side), plans[side as usize]);
            let node = world.pair.node(side);
            assert_eq!(node.qp.state(), QpState::Rts);
            assert!(
                node.results
                    .recv_statuses()
                    .iter()
                    .all(|r| r.1 == WcStatus::Success)
            );
        }
    }
}

#[test]
fn a_stream_that_ends_anywhere_flushes_what_has_not_happened() {
    let (mut flushed, mut complete) = (0, 0);
    let base = 600;
    for seed in seeds(base) {
        let _seed = Seed(seed);
        let mut rng = Rng::new(seed ^ 0xc07);
        let mut cut = |likely| {
            let longest = rng.pick(&[60, 2000, 30_000]);
            let (after, reset) = (rng.below(longest) as usize, rng.per_mille(500));
            rng.per_mille(likely).then_some(Cut { after, reset })
        };
        let setup = Setup {
            cuts: [cut(800), cut(500)],
            // Few work requests, so that it often ends within one.
            ..setup(seed % 50)
        };
        let mut world = World::new(setup);
        world.pair.run();
        if world.pair.a.qp.state() == QpState::Rts {
            world.pair.reset();
        }
        for side in [Side::A, Side::B] {
            assert_eq!(world.pair.node(side).qp.state(), QpState::Err);
            let of = world.plans[side as usize].len();
            let done = world.check(side);
            flushed += of - done;
            complete += done;
        }
    }
    expect_more(flushed, 400, base);
    expect_more(complete, 400, base);
}

/// One run, ended behind each of its bytes.
#[test]
fn a_stream_may_end_behind_any_byte() {
    let whole = {
        let mut world = World::new(setup(3));
        world.pair.run();
        [world.pair.written[1].len(), world.pair.written[0].len()]
    };
    for to in [0, 1] {
        for after in (0..whole[to]).filter(|at| *at < 300 || at % 97 == 0) {
            let mut cuts = [None, None];
            cuts[to] = Some(Cut {
                after,
                reset: after % 2 == 0,
            });
            let mut world = World::new(Setup { cuts, ..setup(3) });
            world.pair.run();
            for side in [Side::A, Side::B] {
                world.check(side);
            }
        }
    }
}
