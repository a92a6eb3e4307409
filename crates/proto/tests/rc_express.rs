//! What is received the short way (module `fast::receive`) leaves the same packets, completions,
//! memory and state as what goes the general way.

mod common;

use std::time::Duration;

use common::{bytes, expect_more, seeds, split};
use ferroce_proto::ids::Key;
use ferroce_proto::rc::LinkTraits;
use ferroce_proto::testkit::{Arena, Faults, Pair, Rng, Setup, Side, remote, wr};
use ferroce_proto::verbs::{
    AttrMask, Mtu, PathMigState, PostError, QpAttr, QpState, RecvWr, SendFlags, SendOp, SendWr,
};

const LOSSLESS: LinkTraits = LinkTraits {
    lossless: true,
    max_in_flight: 1 << 20,
};

/// Bytes of memory of each node.
const MEMORY: usize = 20_000;

/// Two pairs to which the same happens; only the first receives the short way.
struct Twins([Pair; 2]);

impl Twins {
    fn new(setup: Setup) -> Self {
        Self([Some(0), None].map(|briefs| {
            let mut pair = Pair::new(setup);
            (pair.briefs, pair.trace) = (briefs, Some(Vec::new()));
            let mut rng = Rng::new(setup.seed);
            for node in [&pair.a, &pair.b] {
                node.memory.put(Arena::BASE, &bytes(&mut rng, MEMORY));
            }
            pair
        }))
    }

    /// Does the same to both, and compares what comes of it.
    #[track_caller]
    fn both<R: PartialEq + std::fmt::Debug>(&mut self, what: impl Fn(&mut Pair) -> R) -> R {
        let [short, general] = &mut self.0;
        let result = what(short);
        assert_eq!(result, what(general));
        let told = [&mut *short, general].map(|pair| {
            let packets = pair.trace.replace(Vec::new());
            let results = format!("{:?} {:?}", pair.a.results, pair.b.results);
            (packets, results, format!("{:?} {:?}", pair.a.qp, pair.b.qp))
        });
        assert_eq!(told[0], told[1], "packets, completions and states");
        result
    }

    fn briefs(&self) -> usize {
        self.0[0].briefs.unwrap_or_default()
    }

    #[track_caller]
    fn settle(&mut self) {
        self.both(|pair| pair.settle(Duration::from_millis(5)));
        let [short, general] = &self.0;
        for (one, other) in [(&short.a, &general.a), (&short.b, &general.b)] {
            let all = |memory: &Arena| memory.get(Arena::BASE, MEMORY);
            assert!(all(&one.memory) == all(&other.memory), "memory");
        }
    }
}

fn request(pair: &Pair, rng: &mut Rng, wr_id: u64, side: Side) -> SendWr {
    let to = remote(pair.key(side.peer()), rng.below(100) * 8);
    let length = match rng.below(10) {
        0 => 0,
        1..=7 => rng.below32(200),
        8 => 1024,
        _ => rng.below32(5000),
    };
    let op = match rng.below(16) {
        0 => SendOp::SendImm([1, 2, 3, 4]),
        1 => SendOp::Write(to),
        2 => SendOp::WriteImm(to, [5, 6, 7, 8]),
        3 => SendOp::Read(to),
        _ => SendOp::Send,
    };
    let mut request = wr(wr_id, op, vec![pair.sge(side, rng.below(500), length)]);
    request.flags = SendFlags::from_bits_truncate(rng.below32(8));
    request
}

/// A receive: mostly of one piece that is long enough; rarely one that fails.
fn receive(pair: &Pair, rng: &mut Rng, wr_id: u64, side: Side) -> RecvWr {
    let piece = |rng: &mut Rng, length| pair.sge(side, 8000 + rng.below(1000), length);
    let mut sges = match rng.below(20) {
        0 => vec![piece(rng, 50), piece(rng, 6000)],
        1 if rng.per_mille(100) => vec![],
        2 if rng.per_mille(100) => vec![piece(rng, 60)],
        3 if rng.per_mille(100) => vec![piece(rng, 1500)],
        _ => vec![piece(rng, 6000)],
    };
    if let Some(sge) = sges.first_mut()
        && rng.per_mille(1)
    {
        sge.lkey = Key(7);
    }
    RecvWr {
        wr_id,
        sges: sges.into(),
    }
}

/// One of the things that happen to queue pairs.
fn anything(twins: &mut Twins, rng: &mut Rng, wr_id: u64) {
    let side = rng.pick(&[Side::A, Side::B]);
    match rng.below(20) {
        0..=8 => {
            let request = request(&twins.0[0], rng, wr_id, side);
            let posted = twins.both(|pair| pair.try_send(side, request.clone()));
            assert!(matches!(posted, Ok(()) | Err(PostError::QueueFull(64))));
        }
        9..=14 => {
            for _ in 0..rng.below(6) {
                let receive = receive(&twins.0[0], rng, wr_id, side);
                let posted = twins.both(|pair| pair.try_recv(side, receive.clone()));
                assert!(matches!(posted, Ok(()) | Err(PostError::QueueFull(64))));
            }
        }
        15 => {
            twins.both(|pair| pair.step(pair.now + Duration::from_micros(50)));
        }
        16 if rng.per_mille(100) => {
            for state in [QpState::Sqd, QpState::Rts] {
                let _ = twins.both(|pair| {
                    let (attr, _) = pair.step_attr(side, state);
                    let now = pair.now;
                    let node = pair.node(side);
                    node.with(now, |qp, cx| qp.modify(cx, &attr, AttrMask::STATE))
                });
                twins.both(|pair| pair.step(pair.now + Duration::from_micros(50)));
            }
        }
        17 if rng.per_mille(50) => rearm(twins, side),
        _ => twins.settle(),
    }
}

/// An alternate path is loaded: the peers' packets arm it.
fn rearm(twins: &mut Twins, side: Side) {
    twins.both(|pair| {
        let (path, _) = pair.step_attr(side, QpState::Rtr);
        let attr = QpAttr {
            alt_ah_attr: path.ah_attr,
            alt_port_num: 1,
            path_mig_state: PathMigState::Rearm,
            ..path
        };
        let now = pair.now;
        let mask = AttrMask::ALT_PATH | AttrMask::PATH_MIG_STATE;
        let node = pair.node(side);
        node.with(now, |qp, cx| qp.modify(cx, &attr, mask)).is_ok()
    });
}

/// Random work on one pair, until it fails or `length` things have happened. Returns how many
/// packets went the short way, and how many Middle packets were taken together.
fn run(setup: Setup, length: u64) -> (usize, usize) {
    let mut twins = Twins::new(setup);
    let mut rng = Rng::new(setup.seed ^ 0x5eed);
    if rng.per_mille(100) {
        let room = rng.below32(40) as usize;
        twins.both(|pair| pair.b.results.cq_room = Some(room));
    }
    for wr_id in 0..length {
        anything(&mut twins, &mut rng, wr_id);
    }
    twins.settle();
    (twins.briefs(), twins.0[0].batch)
}

/// Packets are small, so messages have many.
#[test]
fn both_ways_leave_the_same_of_long_messages() {
    let mut batch = 0;
    for seed in seeds(24) {
        println!("seed {seed}");
        let bad = Faults {
            drop: 10,
            duplicate: 10,
            reorder: 10,
        };
        let setup = Setup {
            seed,
            memory: MEMORY,
            mtu: Mtu::B256,
            is_ferroce_peer: seed % 2 == 0,
            link: if seed % 3 == 0 {
                LOSSLESS
            } else {
                Setup::default().link
            },
            faults: if seed % 3 == 1 {
                bad
            } else {
                Faults::default()
            },
            ..Setup::default()
        };
        batch += run(setup, 150).1;
    }
    expect_more(batch, 300, 24);
}

/// READs, mostly long ones, of one piece or more, among a few messages.
#[test]
fn both_ways_leave_the_same_of_long_reads() {
    let mut batch = 0;
    for seed in seeds(60) {
        println!("seed {seed}");
        let mut rng = Rng::new(seed ^ 0x4ead);
        let mut twins = Twins::new(Setup {
            seed,
            memory: MEMORY,
            mtu: Mtu::B256,
            is_ferroce_peer: seed % 2 == 0,
            rd_atomic: rng.pick(&[1, 2, 4]),
            link: LinkTraits {
                lossless: false,
                max_in_flight: rng.pick(&[4 << 10, 16 << 10, 64 << 10]),
            },
            faults: if seed % 3 == 0 {
                Faults::default()
            } else {
                Faults {
                    drop: rng.below32(40),
                    duplicate: rng.below32(20),
                    reorder: rng.below32(20),
                }
            },
            ..Setup::default()
        });
        for wr_id in 0..60 {
            let pair = &twins.0[0];
            let length = rng.below32(9000);
            let pieces = rng.pick(&[1, 1, 1, 2]);
            let from = remote(pair.key(Side::B), rng.below(100) * 8);
            let op = rng.pick(&[SendOp::Read(from), SendOp::Read(from), SendOp::Write(from)]);
            let into = split(pair, Side::A, (rng.below(500), length), pieces);
            let request = wr(wr_id, op, into);
            let _ = twins.both(|pair| pair.try_send(Side::A, request.clone()));
            let until = Duration::from_micros(rng.below(60));
            twins.both(|pair| pair.step(pair.now + until));
            if rng.per_mille(100) {
                twins.settle();
            }
        }
        twins.settle();
        batch += twins.0[0].batch;
    }
    expect_more(batch, 3000, 60);
}

/// What came before a page that is gone is in its place, and the packet that finds it gone is
/// refused.
#[test]
fn both_ways_leave_the_same_where_memory_is_gone() {
    for write in [false, true] {
        let mut twins = Twins::new(Setup {
            memory: MEMORY,
            mtu: Mtu::B256,
            ..Setup::default()
        });
        for pair in &twins.0 {
            let gone = Arena::BASE + 8000 + 1700;
            pair.b.memory.unmap(gone, 1);
        }
        let pair = &twins.0[0];
        let op = if write {
            SendOp::Write(remote(pair.key(Side::B), 8000))
        } else {
            SendOp::Send
        };
        let request = wr(1, op, vec![pair.sge(Side::A, 0, 5000)]);
        let sges = vec![pair.sge(Side::B, 8000, 5000)].into();
        let receive = RecvWr { wr_id: 2, sges };
        twins.both(|pair| pair.try_recv(Side::B, receive.clone()).is_ok());
        twins.both(|pair| pair.try_send(Side::A, request.clone()).is_ok());
        twins.settle();
        let [together, _] = &twins.0;
        assert_eq!(together.b.qp.state(), QpState::Err);
        assert_eq!(
            together.batch, 5,
            "the first and the one behind them went the general way"
        );
        let placed = |from: &Arena, at| from.get(Arena::BASE + at, 6 * 256);
        assert!(placed(&together.a.memory, 0) == placed(&together.b.memory, 8000));
    }
}

#[test]
fn both_ways_leave_the_same_on_a_lossless_link() {
    let mut briefs = 0;
    for seed in seeds(40) {
        println!("seed {seed}");
        let setup = Setup {
            seed,
            memory: MEMORY,
            link: LOSSLESS,
            ..Setup::default()
        };
        briefs += run(setup, 200).0;
    }
    expect_more(briefs, 20, 40);
}

#[test]
fn both_ways_leave_the_same_on_a_bad_link() {
    let mut briefs = 0;
    for seed in seeds(20) {
        println!("seed {seed}");
        let setup = Setup {
            seed,
            memory: MEMORY,
            is_ferroce_peer: seed % 2 == 0,
            faults: Faults {
                drop: 30,
                duplicate: 20,
                reorder: 30,
            },
            ..Setup::default()
        };
        briefs += run(setup, 150).0;
    }
    expect_more(briefs, 20, 20);
}

#[test]
fn shared_receives_go_the_general_way() {
    let mut twins = Twins::new(Setup {
        memory: MEMORY,
        shared_recv: true,
        link: LOSSLESS,
        ..Setup::default()
    });
    for n in 0..20 {
        twins.both(|pair| {
            let sges = vec![pair.sge(Side::B, 9000, 100)];
            pair.shared_recv(Side::B, n, sges);
            pair.send(Side::A, wr(n, SendOp::Send, vec![pair.sge(Side::A, 0, 64)]));
        });
        twins.settle();
    }
    assert_eq!(twins.0[0].b.results.recv.len(), 20);
    assert_eq!(twins.briefs(), 20, "the acknowledgements alone");
}

/// A program that only receives may stay in RTR: there the first packet goes the general way, which
/// tells of it.
#[test]
fn both_ways_leave_the_same_in_rtr() {
    let setup = Setup {
        memory: MEMORY,
        link: LOSSLESS,
        ..Setup::default()
    };
    let mut twins = Twins([Some(0), None].map(|briefs| {
        let mut pair = Pair::unconnected(setup);
        (pair.briefs, pair.trace) = (briefs, Some(Vec::new()));
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            pair.to_state(Side::A, state);
            if state != QpState::Rts {
                pair.to_state(Side::B, state);
            }
        }
        pair
    }));
    for wr_id in 0..20 {
        let pair = &twins.0[0];
        let sges = vec![pair.sge(Side::B, 8000, 6000)].into();
        let receive = RecvWr { wr_id, sges };
        let request = wr(wr_id, SendOp::Send, vec![pair.sge(Side::A, wr_id, 30)]);
        twins.both(|pair| pair.try_recv(Side::B, receive.clone()).is_ok());
        twins.both(|pair| pair.try_send(Side::A, request.clone()).is_ok());
        twins.settle();
    }
    assert!(twins.briefs() >= 19, "{}", twins.briefs());
    assert_eq!(twins.0[0].b.qp.state(), QpState::Rtr);
}
