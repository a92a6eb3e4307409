//! Promise 1 where messages go by short rings, whose queue pairs remember the region that they used
//! last. Once a deregistration or another registration has returned, nothing is read from the
//! memory or written to it. Work that names it fails as it does without short rings.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use common::short_rings::{Both, Seeded};
use common::{ALL, Bytes, DEADLINE, End, rounds, run_alone, wait_for};
use ferroce_nic::{Carrier, Mr, Pd};
use ferroce_proto::verbs::{AttrMask, Mtu, QpAttr, QpState, SendOp, Sge, Wc, WcStatus};

/// What is in the memory once it is taken back.
const CANARY: u8 = 0xc5;
/// What is in it before.
const CONTENT: u8 = 0x3a;
/// Bytes of a message, and of a receive.
const SLOT: usize = 64;
/// Receives that are posted.
const SLOTS: usize = 16;
/// Messages that are on their way at once: for each there is a receive, whatever the receiver has
/// not looked at yet.
const WINDOW: usize = SLOTS / 2;
const LEN: usize = SLOT * SLOTS;

/// Ways to take memory back.
#[derive(Clone, Copy, Debug)]
enum Way {
    Deregister,
    Drop,
    Elsewhere,
    OtherPd,
}

/// Which end's memory is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Senders,
    Receivers,
}

/// The memory of a round, and its region until it is taken back.
struct Lent {
    memory: Bytes,
    region: Arc<Mr>,
    /// Where the region may go.
    elsewhere: Bytes,
    other_pd: Arc<Pd>,
}

impl Lent {
    fn new(end: &End) -> Self {
        let memory = Bytes::Own(vec![CONTENT; LEN]);
        Self {
            region: memory.register(&end.pd, ALL),
            memory,
            elsewhere: Bytes::Own(vec![0; LEN]),
            other_pd: Pd::alloc(&end.context).unwrap(),
        }
    }

    fn slots(&self) -> [Sge; SLOTS] {
        std::array::from_fn(|slot| Sge {
            addr: self.memory.addr() + (slot * SLOT) as u64,
            length: u32::try_from(SLOT).unwrap(),
            lkey: self.region.key(),
        })
    }

    /// Takes the memory back, and writes the canary over it. The rest must live until nobody works
    /// with it.
    fn take_back(self, way: Way) -> (Bytes, impl Drop) {
        let Self {
            mut memory,
            region,
            elsewhere,
            other_pd,
        } = self;
        let left = match way {
            Way::Drop => {
                drop(region);
                None
            }
            Way::Deregister => {
                region.deregister().unwrap();
                Some(region)
            }
            Way::Elsewhere => {
                let range = Some((elsewhere.addr(), LEN as u64));
                region.reregister(range, None, None).unwrap();
                Some(region)
            }
            Way::OtherPd => {
                region.reregister(None, Some(&other_pd), None).unwrap();
                Some(region)
            }
        };
        memory.fill(CANARY);
        (memory, Left(left, elsewhere, other_pd))
    }
}

/// What is left of a region's surroundings. The region goes first.
struct Left(Option<Arc<Mr>>, Bytes, Arc<Pd>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0 = None;
        assert!(self.1.snapshot().iter().all(|byte| *byte == 0));
        assert_eq!(self.2.users(), 0);
    }
}

/// Sends from these slots until that fails. Returns the status of the first message that did.
fn send(end: &End, slots: &[Sge; SLOTS]) -> WcStatus {
    let (start, mut under_way, mut failed) = (Instant::now(), 0, None);
    let mut slot = slots.iter().cycle();
    while failed.is_none() || under_way > 0 {
        if failed.is_none() && under_way < WINDOW {
            end.send(0, SendOp::Send, vec![*slot.next().unwrap()]);
            under_way += 1;
        }
        let each = &mut |_, wc: &Wc| {
            under_way -= 1;
            match (failed, wc.status) {
                (None, WcStatus::Success) => {}
                (None, status) => failed = Some(status),
                (Some(_), status) => assert_eq!(status, WcStatus::WrFlushErr),
            }
        };
        end.cq.poll(4, each).unwrap();
        assert!(start.elapsed() < DEADLINE, "never refused");
    }
    failed.unwrap()
}

/// What sender and receiver of a round are told, and tell.
#[derive(Default)]
struct Round {
    received: AtomicUsize,
    is_over: AtomicBool,
}

impl Round {
    /// Receives into these slots, and looks at what came with `check`, until that fails, or the
    /// round is over. Returns the status of the first that failed, if one did.
    fn receive(&self, end: &End, slots: &[Sge; SLOTS], check: impl Fn(usize)) -> Option<WcStatus> {
        let post = |slot: usize| end.recv(slot as u64, vec![slots[slot]]);
        (0..SLOTS).for_each(post);
        let start = Instant::now();
        while !self.is_over.load(Ordering::Acquire) {
            let mut found = Vec::new();
            end.cq.poll(3, &mut |_, wc| found.push(*wc)).unwrap();
            for wc in found {
                if wc.status != WcStatus::Success {
                    return Some(wc.status);
                }
                let slot = usize::try_from(wc.wr_id).unwrap();
                check(slot);
                post(slot);
                self.received.fetch_add(1, Ordering::Release);
            }
            assert!(start.elapsed() < DEADLINE, "never over");
        }
        None
    }
}

/// Messages go from one end to the other by other threads; at some moment the memory at one end is
/// taken back. Returns what came of it, and whether they went by a short ring until then.
fn race(both: &Both, (whose, way): (Whose, Way), seeded: &mut Seeded) -> (String, bool) {
    let [a, b] = &both.sides;
    let usual = [a, b].map(|side| Lent::new(&side.end));
    let lent = Lent::new(match whose {
        Whose::Senders => &a.end,
        Whose::Receivers => &b.end,
    });
    let slots = match whose {
        Whose::Senders => [lent.slots(), usual[1].slots()],
        Whose::Receivers => [usual[0].slots(), lent.slots()],
    };
    let into = &usual[1].memory;
    let check = |slot: usize| {
        if whose == Whose::Senders {
            let bytes = into.snapshot();
            let came = &bytes[slot * SLOT..][..SLOT];
            assert!(came.iter().all(|b| *b == CONTENT), "of another's memory");
        }
    };
    let (round, begin) = (Round::default(), seeded.below(60));
    let (memory, left, result) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&a.end, &slots[0]));
        let receiver = scope.spawn(|| round.receive(&b.end, &slots[1], check));
        wait_for("messages", || {
            round.received.load(Ordering::Acquire) >= begin
        });
        for _ in 0..seeded.below(200) {
            std::hint::spin_loop();
        }
        let by_short_ring = both.carrier(0) == Some(Carrier::ShortRing);
        let (memory, left) = lent.take_back(way);
        let sent = sender.join().unwrap();
        round
            .is_over
            .store(whose == Whose::Senders, Ordering::Release);
        let received = receiver.join().unwrap();
        let outcome = format!("{whose:?} {way:?} {sent:?} {received:?}");
        (memory, left, (outcome, by_short_ring))
    });
    reset(both);
    assert!(memory.snapshot().iter().all(|b| *b == CANARY), "written to");
    drop(left);
    result
}

fn reset(both: &Both) {
    let attr = QpAttr {
        qp_state: QpState::Reset,
        ..QpAttr::default()
    };
    for side in &both.sides {
        side.end.qp.modify(&attr, AttrMask::STATE).unwrap();
    }
}

fn connect(both: &Both) {
    for side in [0, 1] {
        let (here, there) = (&both.sides[side].end, &both.sides[1 - side].end);
        here.connect(there.qp.qpn(), there.gid(), Mtu::B1024);
    }
}

#[test]
#[ignore = "run by the tests below"]
fn alone_race() {
    let (mut both, mut seeded) = (Both::new(), Seeded(7));
    let has_short_rings = std::env::var_os("FERROCE_SHORT_RINGS").is_none();
    let (mut outcomes, mut by_short_ring, all) = (BTreeSet::new(), 0, rounds(1000));
    let ways = [Way::Deregister, Way::Drop, Way::Elsewhere, Way::OtherPd];
    for round in 0..all {
        if has_short_rings {
            both.warm_up();
        }
        let whose = [Whose::Senders, Whose::Receivers][round % 2];
        let way = ways[round / 2 % ways.len()];
        let (outcome, short_ring) = race(&both, (whose, way), &mut seeded);
        outcomes.insert(outcome);
        by_short_ring += usize::from(short_ring);
        connect(&both);
    }
    println!("{by_short_ring} of {all} by short ring\nseen");
    assert!(
        !has_short_rings || by_short_ring > all / 20,
        "{by_short_ring} by short ring"
    );
    for outcome in outcomes {
        println!("{outcome}");
    }
    println!();
}

/// What a run of the test above has seen.
fn seen(more: &[(&str, &str)]) -> Vec<String> {
    let environment = [&[("FERROCE_THREAD", "off")], more].concat();
    let text = run_alone("alone_race", &environment);
    assert!(text.contains("1 passed"), "{text}");
    println!("{text}");
    let (_, seen) = text.split_once("seen\n").unwrap();
    let lines = seen.lines().take_while(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[test]
fn memory_that_was_taken_back_is_not_touched_by_messages_of_a_short_ring() {
    let by_short_rings = seen(&[]);
    let by_the_ring = seen(&[("FERROCE_SHORT_RINGS", "off"), ("FERROCE_ROUNDS", "64")]);
    assert_eq!(by_short_rings, by_the_ring, "with short rings, and without");
    assert_eq!(by_short_rings.len(), 8, "each ends in one way");
}
