//! Two connection managers that talk over a link which loses, repeats and changes MADs, while their
//! owners do anything.

use std::collections::VecDeque;
use std::time::Duration;

use ferroce_proto::cm::{Agent, Config, ConversationEventKind, MadPath, Output, Random};
use ferroce_proto::ids::{Gid, Guid, Qpn};
use ferroce_proto::mad::{CmMad, CommId, Mad, PrivateData, RejReason, Rep, Req, ServiceId};
use ferroce_proto::testkit::Rng;
use ferroce_proto::time::Time;

use super::input::Input;

/// Steps of one run.
const MAX_STEPS: usize = 300;
/// MADs under way; what comes on top is lost.
const MAX_FLYING: usize = 32;
/// Requests that wait for their owner.
const MAX_HALF_OPEN: usize = 8;
/// What one input may bring out, beyond what grows with the number of conversations.
const MAX_OUTPUTS: usize = 8;

/// One connection manager and its owner.
struct Node {
    agent: Agent,
    gid: Gid,
    /// Conversations that the owner was told of, or began.
    known: Vec<CommId>,
    /// MADs on their way here.
    arriving: VecDeque<Mad>,
}

impl Node {
    fn new(number: u8) -> Self {
        let config = Config {
            id_prefix: u32::from(number) << 22,
            random: seeded(number),
            max_half_open: MAX_HALF_OPEN,
        };
        Self {
            agent: Agent::new(config),
            gid: Gid([number; 16]),
            known: Vec::new(),
            arriving: VecDeque::new(),
        }
    }

    fn guid(&self) -> Guid {
        Guid(self.gid.0[0].into())
    }
}

/// The same identifiers in each run.
fn seeded(number: u8) -> Random {
    let mut rng = Rng::new(number.into());
    Random::new(move || rng.bits())
}

struct World {
    now: Time,
    nodes: [Node; 2],
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World {
        now: Time(1),
        nodes: [Node::new(1), Node::new(2)],
    };
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        let side = input.below(2);
        world.step(&mut input, side);
    }
    world.end();
}

impl World {
    fn step(&mut self, input: &mut Input<'_>, side: usize) {
        let now = self.now;
        match input.below(10) {
            0 => self.connect(input, side),
            1..=3 => self.deliver(input, side),
            4 => self.inject(input, side),
            5 => self.pass_time(input, side),
            6 => {
                let gone = CommId(input.u32());
                let all = input.flag();
                self.nodes[side]
                    .agent
                    .on_process_gone(now, |_, id| all || id == gone);
            }
            _ => self.command(input, side),
        }
        self.collect(side);
    }

    fn connect(&mut self, input: &mut Input<'_>, side: usize) {
        let peer = self.nodes[1 - side].gid;
        let node = &mut self.nodes[side];
        let path = MadPath::reply(peer, node.gid);
        let req = Req {
            service_id: ServiceId(input.u64()),
            local_ca_guid: node.guid(),
            local_qpn: Qpn::new(input.u8().into()),
            remote_cm_response_timeout: input.u8() & 31,
            local_cm_response_timeout: input.u8() & 31,
            max_cm_retries: input.u8() & 15,
            ..Req::default()
        };
        let life_time = input.u8() & 31;
        node.known
            .extend(node.agent.connect(self.now, path, req, life_time));
    }

    /// The next MAD arrives, twice, or changed, or not at all.
    fn deliver(&mut self, input: &mut Input<'_>, side: usize) {
        let Some(mut mad) = self.nodes[side].arriving.pop_front() else {
            return;
        };
        let fate = input.below(8);
        match fate {
            0 => return,
            1 => self.nodes[side].arriving.push_back(mad),
            2 => mad[input.below(256)] ^= input.u8(),
            _ => {}
        }
        self.receive(side, &mad);
    }

    /// A MAD that nobody sent: the common header and as many bytes as the input spares.
    fn inject(&mut self, input: &mut Input<'_>, side: usize) {
        let mut mad = [0; 256];
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[17] = 0x10 + input.u8() % 9;
        let (at, len) = (24 + input.below(128), input.below(64));
        let bytes = input.take(len);
        mad[at..at + bytes.len()].copy_from_slice(bytes);
        if input.flag() {
            let id = input.pick(&self.nodes[side].known).unwrap_or_default();
            mad[28..32].copy_from_slice(&id.0.to_be_bytes());
        }
        self.receive(side, &mad);
    }

    fn receive(&mut self, side: usize, mad: &Mad) {
        let Ok(mad) = CmMad::parse(mad) else { return };
        let (from, to) = (self.nodes[1 - side].gid, self.nodes[side].gid);
        let _ = self.nodes[side].agent.on_mad(self.now, from, to, &mad);
    }

    fn pass_time(&mut self, input: &mut Input<'_>, side: usize) {
        let next = self.nodes[side].agent.deadline();
        self.now = match next {
            Some(at) if input.flag() => self.now.max(at),
            _ => self.now + Duration::from_millis(input.u16().into()),
        };
        let agent = &mut self.nodes[side].agent;
        agent.on_deadline(self.now);
        assert!(
            agent.deadline().is_none_or(|at| at > self.now),
            "a deadline stays in the past"
        );
    }

    fn command(&mut self, input: &mut Input<'_>, side: usize) {
        let now = self.now;
        let node = &mut self.nodes[side];
        let id = input.pick(&node.known).unwrap_or(CommId(7));
        // Whether a command fits the state is the agent's matter: it answers with an error if not.
        let _ = match input.below(8) {
            0 => {
                let rep = Rep {
                    local_qpn: Qpn::new(input.u8().into()),
                    local_ca_guid: node.guid(),
                    ..Rep::default()
                };
                node.agent.accept(now, id, rep)
            }
            1 => node
                .agent
                .reject(now, id, RejReason(input.u16()), PrivateData::default()),
            2 => node.agent.delay(id),
            3 => node.agent.establish(id),
            4 => node.agent.notify_established(id),
            5 => node.agent.disconnect(now, id),
            6 => {
                node.agent.discard(id);
                Ok(())
            }
            _ => {
                node.agent.destroy(now, id);
                Ok(())
            }
        };
    }

    /// Takes what came out of an agent: MADs go on their way, requests become known.
    fn collect(&mut self, side: usize) {
        let bound = MAX_OUTPUTS + 4 * (self.nodes[side].agent.len() + self.nodes[side].known.len());
        let mut count = 0;
        while let Some(output) = self.nodes[side].agent.poll() {
            count += 1;
            match output {
                Output::Send(send) => {
                    let there = &mut self.nodes[1 - side].arriving;
                    if there.len() < MAX_FLYING {
                        there.push_back(send.mad.emit());
                    }
                }
                Output::Event(event) => {
                    if let ConversationEventKind::Request { .. }
                    | ConversationEventKind::Resolution { .. } = event.kind
                    {
                        self.nodes[side].known.push(event.conversation);
                    }
                }
            }
        }
        assert!(count <= bound, "{count} outputs of one input");
    }

    /// Owners let everything go, the link goes silent, and time passes.
    fn end(&mut self) {
        for side in 0..2 {
            for id in std::mem::take(&mut self.nodes[side].known) {
                self.nodes[side].agent.destroy(self.now, id);
                while self.nodes[side].agent.poll().is_some() {}
            }
            let agent = &mut self.nodes[side].agent;
            let mut expiries = 0;
            while let Some(at) = agent.deadline() {
                self.now = self.now.max(at);
                agent.on_deadline(self.now);
                while agent.poll().is_some() {}
                expiries += 1;
                assert!(expiries < 100_000, "deadlines without end");
            }
            assert!(agent.is_empty(), "{} conversations are left", agent.len());
        }
    }
}
