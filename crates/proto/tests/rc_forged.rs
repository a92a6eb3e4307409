//! A forged packet ahead of what is expected, between two Ferroces: the connection goes on, and
//! what it carries is right.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

#[path = "../../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, dead_code, reason = "a library where it lives")]
mod fuzz;

mod common;

use std::time::Duration;

use common::{bytes, seeds, until_sent, write};
use ferroce_proto::testkit::{Faults, Rng, Side};
use ferroce_proto::verbs::WcStatus;
use fuzz::reorder::{self, KINDS, Transfer};

/// Inside the window of what is kept, at its end, and beyond it.
const AHEAD: [u32; 8] = [1, 2, 20, 900, 1000, 1030, 20_000, 3_000_000];
const MESSAGES: usize = 8;

#[test]
fn a_forged_packet_does_not_harm_an_idle_connection() {
    for kind in KINDS {
        for ahead in AHEAD {
            let what = format!("{kind:?}, {ahead} ahead");
            let mut transfer = Transfer::new(Faults::default());
            transfer.post();
            transfer.finish(&what);
            transfer.forge(kind, ahead, 4);
            for _ in 0..MESSAGES {
                transfer.post();
                transfer.finish(&what);
            }
        }
    }
}

#[test]
fn a_forged_packet_does_not_harm_a_busy_connection() {
    for kind in KINDS {
        for ahead in AHEAD {
            for steps in [0, 1, 2, 5, 13, 34] {
                let what = format!("{kind:?}, {ahead} ahead after {steps} steps");
                let mut transfer = Transfer::new(Faults::default());
                for _ in 0..MESSAGES {
                    transfer.post();
                }
                transfer.step(steps);
                transfer.forge(kind, ahead, 4);
                transfer.finish(&what);
            }
        }
    }
}

/// Nothing else than an acknowledgement tells A that its message has arrived.
#[test]
fn messages_one_by_one_do_not_wait_for_what_was_forged() {
    for (kind, ahead) in KINDS
        .iter()
        .flat_map(|kind| AHEAD.map(|ahead| (*kind, ahead)))
    {
        let mut transfer = Transfer::new(Faults::default());
        transfer.forge(kind, ahead, 4);
        let pair = &mut transfer.pair;
        let start = pair.now;
        for n in 0..50 {
            pair.send(Side::A, write(pair, n, 100));
            until_sent(pair, Side::A, n as usize + 1);
        }
        let done: Vec<_> = (0..50).map(|n| (n, WcStatus::Success)).collect();
        assert_eq!(
            pair.a.results.send_statuses(),
            done,
            "{kind:?}, {ahead} ahead"
        );
        let took = pair.now.since(start);
        assert!(
            took < Duration::from_millis(10),
            "{kind:?}, {ahead} ahead: {took:?}"
        );
    }
}

#[test]
fn forged_packets_with_any_psn_at_any_time_do_no_harm() {
    for seed in seeds(400) {
        let mut rng = Rng::new(seed);
        let len = rng.below(600) as usize;
        let input = bytes(&mut rng, len);
        let outcome = std::panic::catch_unwind(|| reorder::run(&input));
        if let Err(panic) = outcome {
            eprintln!("failed with seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
