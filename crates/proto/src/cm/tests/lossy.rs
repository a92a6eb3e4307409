//! Many conversations over a network that loses, repeats and reorders, with owners that act at
//! random.

use core::time::Duration;
use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;

use super::world::*;
use crate::cm::{Agent, ConversationEventKind, Phase};
use crate::mad::{CommId, RejReason};

/// What happened to a conversation, in order.
type History = BTreeMap<(usize, CommId), Vec<String>>;

struct Owners {
    world: World,
    history: History,
    next_qpn: u32,
}

impl Owners {
    /// Takes events and reacts to them, each owner in its own way.
    fn react(&mut self) {
        for agent in [A, B] {
            while let Some(event) = self.world.events[agent].pop_front() {
                let id = event.conversation;
                self.history
                    .entry((agent, id))
                    .or_default()
                    .push(name_of(&event.kind));
                self.answer(agent, id, &event.kind);
                self.world.collect();
            }
        }
    }

    fn answer(&mut self, agent: usize, id: CommId, kind: &ConversationEventKind) {
        let w = &mut self.world;
        let (now, dice) = (w.now, w.draw(10));
        match kind {
            ConversationEventKind::Request { .. } if dice == 0 => {
                let _ = w.agents[agent].reject(now, id, RejReason::CONSUMER_DEFINED, no_data());
            }
            ConversationEventKind::Request { .. } if dice == 1 => {
                let _ = w.agents[agent].delay(id);
            }
            ConversationEventKind::Request { .. } => {
                self.next_qpn += 1;
                let _ = w.agents[agent].accept(now, id, rep(agent, self.next_qpn));
            }
            ConversationEventKind::Reply(_) if dice == 0 => {
                let _ = w.agents[agent].reject(now, id, RejReason::CONSUMER_DEFINED, no_data());
            }
            ConversationEventKind::Reply(_) => {
                let _ = w.agents[agent].establish(id);
            }
            ConversationEventKind::Disconnected { .. } if dice < 7 => {
                let _ = w.agents[agent].disconnect(now, id);
            }
            ConversationEventKind::Disconnected { .. } => w.agents[agent].destroy(now, id),
            _ => {}
        }
    }

    /// Something that an owner does by itself.
    fn act(&mut self) {
        let w = &mut self.world;
        let agent = usize::try_from(w.draw(2)).unwrap();
        if w.draw(4) == 0 {
            self.next_qpn += 1;
            w.connect(agent, 1 - agent, self.next_qpn);
            return;
        }
        let ids: Vec<CommId> = self
            .history
            .keys()
            .filter(|k| k.0 == agent)
            .map(|k| k.1)
            .collect();
        if ids.is_empty() {
            return;
        }
        let id = ids[usize::try_from(w.draw(ids.len() as u64)).unwrap()];
        let now = w.now;
        match (w.draw(8), w.agents[agent].phase(id)) {
            (0, _) => w.agents[agent].destroy(now, id),
            (1..4, _) => {
                let _ = w.agents[agent].disconnect(now, id);
            }
            (4, Some(Phase::MraReqSent)) => {
                self.next_qpn += 1;
                let _ = w.agents[agent].accept(now, id, rep(agent, self.next_qpn));
            }
            _ => {}
        }
    }
}

/// Each event at most once, nothing after the last one, and the order that owners rely on.
fn check_history(seed: u64, history: &History) {
    for ((agent, id), events) in history {
        let at = |name: &str| events.iter().position(|e| e.starts_with(name));
        let context = || std::format!("seed {seed}, agent {agent}, {id:?}: {events:?}");
        for (i, name) in events.iter().enumerate() {
            let first = name.split([' ', ',']).next().unwrap();
            assert_eq!(at(first), Some(i), "twice: {}", context());
        }
        let last = events.len() - 1;
        assert!(
            at("TimewaitExit").is_none_or(|i| i == last),
            "{}",
            context()
        );
        assert!(at("Unreachable").is_none_or(|i| i == last), "{}", context());
        if let (Some(up), Some(down)) = (at("Established"), at("Disconnected")) {
            assert!(up < down, "{}", context());
        }
        assert!(at("Reply").is_none_or(|i| i == 0), "{}", context());
        assert!(at("Request").is_none_or(|i| i == 0), "{}", context());
        assert!(
            !(at("Disconnected").is_some() && at("Unreachable").is_some()),
            "{}",
            context()
        );
    }
}

fn run(seed: u64, faults: Faults) {
    let mut owners = Owners {
        world: World::new(seed),
        history: History::new(),
        next_qpn: 0x100,
    };
    owners.world.faults = faults;
    for _ in 0..60 {
        owners.act();
        let wait = owners.world.draw(3000);
        let until = owners.world.now + Duration::from_millis(wait);
        while owners.world.now < until {
            let step = (owners.world.now + Duration::from_millis(200)).min(until);
            owners.world.run_until(step);
            owners.react();
        }
    }
    // Everybody lets go: whatever the network does, nothing may be left in the end.
    let keys: Vec<(usize, CommId)> = owners.history.keys().copied().collect();
    for (agent, id) in keys {
        let now = owners.world.now;
        owners.world.agents[agent].destroy(now, id);
    }
    let limit = owners.world.now + Duration::from_secs(100_000);
    while owners.world.agents.iter().any(|a| !a.is_empty()) {
        owners.world.run(Duration::from_secs(60));
        owners.react();
        for agent in [A, B] {
            let now = owners.world.now;
            let mine: Vec<CommId> = owners
                .history
                .keys()
                .filter(|k| k.0 == agent)
                .map(|k| k.1)
                .collect();
            mine.into_iter()
                .for_each(|id| owners.world.agents[agent].destroy(now, id));
        }
        assert!(
            owners.world.now < limit,
            "seed {seed}: conversations that never end"
        );
    }
    check_history(seed, &owners.history);
}

#[test]
fn conversations_survive_loss_repetition_and_reordering() {
    for seed in 0..2000 {
        let faults = Faults {
            lose: 50 * (seed % 5),
            repeat: 100 * (seed % 3),
            jitter: 40 * (seed % 4),
        };
        run(seed, faults);
    }
}

#[test]
fn conversations_end_even_on_a_network_that_is_down_half_of_the_time() {
    for seed in 0..300 {
        run(
            seed,
            Faults {
                lose: 500,
                repeat: 200,
                jitter: 6000,
            },
        );
    }
}

/// With an eighth of all messages lost, sixteen tries are enough for every connection.
#[test]
fn a_lossy_network_does_not_prevent_connections() {
    for seed in 0..1000 {
        let mut w = World::new(seed);
        w.faults = Faults {
            lose: 125,
            repeat: 100,
            jitter: 30,
        };
        let a = w.connect(A, B, 0x11);
        let mut b = None;
        let mut log = Vec::new();
        while log.last().is_none_or(|last| last != "Established") {
            w.run(Duration::from_millis(100));
            while let Some(event) = w.events[B].pop_front() {
                log.push(name_of(&event.kind));
                if matches!(event.kind, ConversationEventKind::Request { .. }) {
                    b = Some(event.conversation);
                    w.agents[B]
                        .accept(w.now, event.conversation, rep(B, 0x22))
                        .unwrap();
                }
            }
            while let Some(event) = w.events[A].pop_front() {
                assert!(
                    matches!(event.kind, ConversationEventKind::Reply(_)),
                    "seed {seed}: {event:?}"
                );
                w.agents[A].establish(a).unwrap();
            }
            assert!(w.now.0 < 200_000_000_000, "seed {seed}: {log:?}");
        }
        assert_eq!(log, ["Request", "Established"], "seed {seed}");
        w.agents[A].disconnect(w.now, a).unwrap();
        while w.names(B).is_empty() {
            w.run(Duration::from_millis(100));
        }
        w.agents[B].destroy(w.now, b.unwrap());
        w.run_to_the_end();
        w.expect_events(A, &["Disconnected", "TimewaitExit"]);
        assert!(w.agents.iter().all(Agent::is_empty), "seed {seed}");
    }
}
