//! Messages that no well-behaved peer sends.

use core::time::Duration;
use std::vec::Vec;

use proptest::prelude::*;

use super::world::*;
use crate::cm::Phase;
use crate::mad::{Answered, CmMad, CommId, Drep, Mad, Message, Rej, RejReason};

/// A MAD of the connection manager's class with any content; its ids are often those of real
/// conversations.
fn mad(attribute: u8, fill: Vec<u8>, local: Option<CommId>, remote: Option<CommId>) -> CmMad {
    let mut mad: Mad = [0; 256];
    mad.copy_from_slice(&fill);
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[16..18].copy_from_slice(&[0, attribute]);
    if let Some(id) = local {
        mad[24..28].copy_from_slice(&id.0.to_be_bytes());
    }
    if let Some(id) = remote {
        mad[28..32].copy_from_slice(&id.0.to_be_bytes());
    }
    CmMad::parse(&mad).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever comes, in whatever state: no panic, and memory that the number of own calls and the
    /// cap bound.
    #[test]
    fn nothing_breaks_the_agent(
        seed: u64,
        steps in proptest::collection::vec(
            (0x10u8..0x19, proptest::collection::vec(any::<u8>(), 256), 0usize..8, 0usize..8, 0u64..20_000),
            1..60,
        ),
    ) {
        let mut w = World::new(seed);
        let mut ids = Vec::new();
        let (a, b) = w.established();
        ids.extend([a, b]);
        ids.push(w.connect(A, B, 0x12));
        ids.push(w.agents[A].resolve(w.now, World::path(A, B), Default::default()).unwrap());
        w.settle();
        while let Some(event) = w.events[B].pop_front() {
            ids.push(event.conversation);
        }
        for (attribute, fill, local, remote, wait) in steps {
            let mad = mad(attribute, fill, ids.get(local).copied(), ids.get(remote).copied());
            let (from, to) = if seed & 1 == 0 { (A, B) } else { (B, A) };
            w.post(gid(from), gid(to), &mad);
            w.run(Duration::from_millis(wait));
            for agent in &w.agents {
                prop_assert!(agent.len() <= 5 + HALF_OPEN);
            }
        }
    }
}

/// Messages of a stranger in the peer's name. The stranger knows the peer's GUID and queue pair
/// number, and guesses one of the two communication ids. The connection must stand.
#[test]
fn one_guessed_number_ends_no_connection() {
    for attempt in 0..6 {
        let mut w = World::new(10);
        let (a, b) = w.established();
        let stale = req(A, B, 0x11);
        let message = match attempt {
            0 => {
                let mut req = stale;
                req.local_comm_id = CommId(1 << 22 | 5);
                Message::Req(req)
            }
            1 | 2 => Message::Rej(Rej {
                remote_comm_id: b,
                answered: [Answered::Req, Answered::Rep][attempt - 1],
                ..Rej::new(RejReason::CONSUMER_DEFINED)
            }),
            3 => {
                let mut rej = Rej {
                    local_comm_id: a,
                    ..Rej::new(RejReason::TIMEOUT)
                };
                rej.info[..8].copy_from_slice(&guid(A).0.to_be_bytes());
                Message::Rej(rej)
            }
            // It was not asked.
            4 => Message::Drep(Drep {
                local_comm_id: a,
                remote_comm_id: b,
                ..Drep::default()
            }),
            _ => Message::Drep(Drep {
                remote_comm_id: b,
                ..Drep::default()
            }),
        };
        let mad = CmMad { tid: 7, message };
        w.post(gid(A), gid(B), &mad);
        w.settle();
        w.expect_events(A, &[]);
        w.expect_events(B, &[]);
        for (agent, id) in [(A, a), (B, b)] {
            w.expect_phase(agent, id, Some(Phase::Established));
        }
        // Nor did it leave anything that keeps the connection from ending.
        w.agents[A].disconnect(w.now, a).unwrap();
        w.settle();
        w.expect_events(B, &["Disconnected"]);
    }
}
