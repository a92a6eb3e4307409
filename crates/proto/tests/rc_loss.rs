//! Random work over links that lose, repeat and disorder packets: everything arrives exactly once
//! and in order all the same.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use common::seeds;
use common::workload::{MEMORY, Workload};
use ferroce_proto::rc::LinkTraits;
use ferroce_proto::testkit::{Faults, Pair, Rng, Setup};
use ferroce_proto::verbs::Mtu;

/// Prints the seed of a run that panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

/// A random set-up.
fn setup(seed: u64, faults: Faults) -> Setup {
    let mut rng = Rng::new(seed ^ 0xa11);
    Setup {
        seed,
        memory: MEMORY,
        mtu: rng.pick(&[Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B4096]),
        psn: rng.pick(&[0, 0x7f_fff0, 0xff_fff0, rng.clone().below32(1 << 24)]),
        rd_atomic: rng.pick(&[1, 2, 4, 16]),
        link: LinkTraits {
            lossless: false,
            max_in_flight: rng.pick(&[2 << 10, 16 << 10, 64 << 10, 1 << 20]),
        },
        is_ferroce_peer: seed % 2 == 1,
        faults,
        ..Setup::default()
    }
}

fn run(seed: u64, faults: Faults, ops: [usize; 2], scarce: u32) {
    let _seed = Seed(seed);
    let mut pair = Pair::new(setup(seed, faults));
    let mut work = Workload::new(&mut pair, seed, ops);
    work.scarce = scarce;
    work.run(&mut pair);
}

#[test]
fn both_sides_over_a_good_link() {
    for seed in seeds(200) {
        run(seed, Faults::default(), [30, 30], 0);
    }
}

#[test]
fn a_few_losses() {
    let faults = Faults {
        drop: 10,
        duplicate: 5,
        reorder: 5,
    };
    for seed in seeds(300) {
        run(seed, faults, [30, 30], 0);
    }
}

#[test]
fn one_requester_at_twenty_percent_loss() {
    let faults = Faults {
        drop: 200,
        ..Faults::default()
    };
    for seed in seeds(300) {
        run(seed, faults, [30, 0], 0);
    }
}

#[test]
fn both_requesters_with_everything_going_wrong() {
    for seed in seeds(800) {
        let mut rng = Rng::new(seed);
        let faults = Faults {
            drop: rng.below32(200),
            duplicate: rng.below32(200),
            reorder: rng.below32(200),
        };
        run(seed, faults, [30, 30], 0);
    }
}

#[test]
fn duplicates_and_disorder_without_loss() {
    let faults = Faults {
        drop: 0,
        duplicate: 200,
        reorder: 200,
    };
    for seed in seeds(300) {
        run(seed, faults, [30, 30], 0);
    }
}

#[test]
fn receiver_not_ready_storms() {
    for seed in seeds(300) {
        let faults = Faults {
            drop: 30 * (seed as u32 % 3),
            ..Faults::default()
        };
        run(seed, faults, [30, 30], 1 + seed as u32 % 5);
    }
}
