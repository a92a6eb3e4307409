//! Agents, their clock and the network between them.

use std::collections::{BTreeMap, VecDeque};
use std::string::String;
use std::vec::Vec;

use crate::cm::{
    Agent, Config, ConversationEvent, ConversationEventKind, Ignored, MadPath, Output, Phase,
    Random,
};
use crate::ids::{DEFAULT_PKEY, Gid, Guid, Psn, Qpn};
use crate::mad::{CmMad, CommId, Mad, Message, PathSpec, PrivateData, Rej, Rep, Req, ServiceId};
use crate::time::Time;
use core::time::Duration;

pub(super) const A: usize = 0;
pub(super) const B: usize = 1;
pub(super) const HALF_OPEN: usize = 8;
/// A REQ goes out again after twice the packet life time and the response timeout; a REP or MRA
/// after the latter.
pub(super) const REQ_INTERVAL: Duration = Duration::from_millis(2 * 256 + 4096);
pub(super) const REP_INTERVAL: Duration = Duration::from_millis(4096);
pub(super) const TIMEWAIT: Duration = Duration::from_millis(512);

/// Chances in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lose: u64,
    pub(super) repeat: u64,
    /// Delays differ by up to this many milliseconds.
    pub(super) jitter: u64,
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) agents: Vec<Agent>,
    /// Events that nobody took yet, by agent.
    pub(super) events: Vec<VecDeque<ConversationEvent>>,
    /// Names of the messages that were sent, by agent, before any was lost.
    pub(super) sent: Vec<Vec<&'static str>>,
    pub(super) faults: Faults,
    /// Drops the messages of this name.
    pub(super) censored: Option<&'static str>,
    pub(super) last_sent: Option<CmMad>,
    /// Why agents ignored messages.
    pub(super) ignored: Vec<Ignored>,
    flight: BTreeMap<(Time, u64), (Gid, Gid, Mad)>,
    sequence: u64,
    random: u64,
}

pub(super) fn gid(agent: usize) -> Gid {
    Gid([
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0xff,
        0xff,
        10,
        0,
        0,
        u8::try_from(agent + 1).unwrap(),
    ])
}

pub(super) fn guid(agent: usize) -> Guid {
    Guid(0x0200_0000_0000_0000 + agent as u64)
}

/// Identifiers that are the same for the same seed (`SplitMix64`).
pub(super) fn seeded(seed: u64) -> Random {
    let mut state = seed;
    Random::new(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let agent = |i: u32| {
            Agent::new(Config {
                id_prefix: (i + 1) << 22,
                random: seeded(seed ^ u64::from(i)),
                max_half_open: HALF_OPEN,
            })
        };
        Self {
            now: Time(1_000_000_000),
            agents: (0..2).map(agent).collect(),
            events: (0..2).map(|_| VecDeque::new()).collect(),
            sent: (0..2).map(|_| Vec::new()).collect(),
            faults: Faults::default(),
            censored: None,
            last_sent: None,
            flight: BTreeMap::new(),
            ignored: Vec::new(),
            sequence: 0,
            random: seed.wrapping_mul(2).wrapping_add(1),
        }
    }

    /// A number below `n`.
    pub(super) fn draw(&mut self, n: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % n.max(1)
    }

    /// Takes what agents put out.
    pub(super) fn collect(&mut self) {
        for i in 0..self.agents.len() {
            while let Some(output) = self.agents[i].poll() {
                match output {
                    Output::Event(event) => self.events[i].push_back(event),
                    Output::Send(out) => {
                        assert_eq!(out.path.local, gid(i));
                        self.sent[i].push(out.mad.message.name());
                        self.last_sent = Some(out.mad.clone());
                        if self.censored != Some(out.mad.message.name()) {
                            self.post(out.path.local, out.path.remote, &out.mad);
                        }
                    }
                }
            }
        }
    }

    /// Puts a MAD on the network.
    pub(super) fn post(&mut self, from: Gid, to: Gid, mad: &CmMad) {
        let copies = if self.draw(1000) < self.faults.lose {
            0
        } else {
            1 + u64::from(self.draw(1000) < self.faults.repeat)
        };
        for _ in 0..copies {
            let delay = Duration::from_micros(100 + 1000 * self.draw(self.faults.jitter + 1));
            self.sequence += 1;
            self.flight
                .insert((self.now + delay, self.sequence), (from, to, mad.emit()));
        }
    }

    /// Lets time pass up to `until`, step by step.
    pub(super) fn run_until(&mut self, until: Time) {
        self.collect();
        while let Some(next) = self.next_step().filter(|&at| at <= until) {
            self.now = self.now.max(next);
            while let Some(entry) = self.flight.first_entry().filter(|e| e.key().0 <= self.now) {
                let (from, to, mad) = entry.remove();
                let mad = CmMad::parse(&mad).unwrap();
                if let Some(i) = (0..self.agents.len()).find(|&i| gid(i) == to) {
                    let taken = self.agents[i].on_mad(self.now, from, to, &mad);
                    self.ignored.extend(taken.err());
                }
                self.collect();
            }
            for i in 0..self.agents.len() {
                if self.agents[i].deadline().is_some_and(|at| at <= self.now) {
                    self.agents[i].on_deadline(self.now);
                }
                self.collect();
            }
        }
        self.now = until;
        self.agents.iter().for_each(Agent::check);
    }

    fn next_step(&self) -> Option<Time> {
        let deadlines = self.agents.iter().filter_map(Agent::deadline);
        deadlines.chain(self.flight.keys().map(|k| k.0)).min()
    }

    pub(super) fn run(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Time enough for what is on the network to arrive and be answered, too little for any resend.
    pub(super) fn settle(&mut self) {
        self.run(Duration::from_millis(1));
    }

    /// Runs until nothing is under way or due.
    pub(super) fn run_to_the_end(&mut self) {
        self.collect();
        while let Some(next) = self.next_step() {
            self.run_until(self.now.max(next));
        }
    }

    /// The oldest event of an agent.
    #[track_caller]
    pub(super) fn event(&mut self, agent: usize) -> ConversationEvent {
        self.events[agent].pop_front().expect("an event")
    }

    /// Names of an agent's events that nobody took yet.
    pub(super) fn names(&self, agent: usize) -> Vec<String> {
        self.events[agent]
            .iter()
            .map(|e| name_of(&e.kind))
            .collect()
    }

    #[track_caller]
    pub(super) fn expect_events(&mut self, agent: usize, names: &[&str]) {
        assert_eq!(self.names(agent), names, "events of agent {agent}");
        self.events[agent].clear();
    }

    #[track_caller]
    pub(super) fn expect_sent(&mut self, agent: usize, names: &[&str]) {
        assert_eq!(
            core::mem::take(&mut self.sent[agent]),
            names,
            "messages of agent {agent}"
        );
    }

    pub(super) fn path(from: usize, to: usize) -> MadPath {
        MadPath {
            local: gid(from),
            remote: gid(to),
            hop_limit: 64,
            traffic_class: 0,
        }
    }

    pub(super) fn connect(&mut self, from: usize, to: usize, qpn: u32) -> CommId {
        let req = req(from, to, qpn);
        let id = self.agents[from]
            .connect(self.now, Self::path(from, to), req, 16)
            .unwrap();
        self.collect();
        id
    }

    /// Up to a request that waits for the owner; both ids.
    #[track_caller]
    pub(super) fn requested(&mut self) -> (CommId, CommId) {
        let a = self.connect(A, B, 0x11);
        self.settle();
        let event = self.event(B);
        assert!(
            matches!(event.kind, ConversationEventKind::Request { .. }),
            "{event:?}"
        );
        (a, event.conversation)
    }

    /// Up to a reply that waits for the owner.
    #[track_caller]
    pub(super) fn replied(&mut self) -> (CommId, CommId) {
        let (a, b) = self.requested();
        self.agents[B].accept(self.now, b, rep(B, 0x22)).unwrap();
        self.settle();
        let event = self.event(A);
        assert!(
            matches!(event.kind, ConversationEventKind::Reply(_)),
            "{event:?}"
        );
        (a, b)
    }

    /// Up to a connection that stands on both sides.
    #[track_caller]
    pub(super) fn established(&mut self) -> (CommId, CommId) {
        let (a, b) = self.replied();
        self.agents[A].establish(a).unwrap();
        self.settle();
        self.expect_events(A, &[]);
        self.expect_events(B, &["Established"]);
        self.sent.iter_mut().for_each(Vec::clear);
        (a, b)
    }

    #[track_caller]
    pub(super) fn expect_phase(&self, agent: usize, id: CommId, phase: Option<Phase>) {
        assert_eq!(self.agents[agent].phase(id), phase);
    }
}

pub(super) fn req(from: usize, to: usize, qpn: u32) -> Req {
    Req {
        service_id: ServiceId::new(0x0106, 7471),
        local_ca_guid: guid(from),
        local_qpn: Qpn::new(qpn),
        responder_resources: 4,
        initiator_depth: 5,
        remote_cm_response_timeout: 20,
        local_cm_response_timeout: 20,
        starting_psn: Psn::new(0x12_3456),
        retry_count: 7,
        pkey: DEFAULT_PKEY,
        path_mtu: 3,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        primary: PathSpec {
            local_gid: gid(from),
            remote_gid: gid(to),
            hop_limit: 64,
            local_ack_timeout: 17,
            ..PathSpec::default()
        },
        private_data: PrivateData::new(b"hello").unwrap(),
        ..Req::default()
    }
}

pub(super) fn rep(from: usize, qpn: u32) -> Rep {
    Rep {
        local_qpn: Qpn::new(qpn),
        target_ack_delay: 15,
        local_ca_guid: guid(from),
        private_data: PrivateData::new(b"welcome").unwrap(),
        ..Rep::default()
    }
}

pub(super) fn no_data() -> PrivateData<{ Rej::PRIVATE }> {
    PrivateData::default()
}

pub(super) fn name_of(kind: &ConversationEventKind) -> String {
    match kind {
        ConversationEventKind::Request { .. } => "Request".into(),
        ConversationEventKind::Resolution { .. } => "Resolution".into(),
        ConversationEventKind::Resolved(rep) => std::format!("Resolved {}", rep.status.0),
        ConversationEventKind::Reply(_) => "Reply".into(),
        ConversationEventKind::Established => "Established".into(),
        ConversationEventKind::Rejected { reason, .. } => std::format!("Rejected {}", reason.0),
        ConversationEventKind::Unreachable => "Unreachable".into(),
        ConversationEventKind::Disconnected { timed_out: false } => "Disconnected".into(),
        ConversationEventKind::Disconnected { timed_out: true } => "Disconnected, timed out".into(),
        ConversationEventKind::TimewaitExit => "TimewaitExit".into(),
    }
}

/// The REJ that was sent last.
#[track_caller]
pub(super) fn rej_of(mad: Option<&CmMad>) -> Rej {
    match mad.map(|m| &m.message) {
        Some(Message::Rej(rej)) => *rej,
        other => panic!("no REJ but {other:?}"),
    }
}
