//! Two reliable connected queue pairs under arbitrary work, packets, attribute changes, losses and
//! time.

mod trouble;

use std::time::Duration;

use ferroce_proto::ids::{Key, PdId, Srqn};
use ferroce_proto::mr::{Access, WindowBind, WindowType};
use ferroce_proto::testkit::{Faults, PD, Pair, Setup, Side, XrcQueue, remote, sge};
use ferroce_proto::verbs::{Mtu, Payload, QpState, RecvWr, SendFlags, SendOp, SendTo, SendWr, Sge};

use super::input::Input;
use super::posted::Posted;

/// Operations of one run.
const MAX_OPERATIONS: usize = 400;
/// Bytes of each node's memory.
const MEMORY: usize = 1 << 15;
/// Packets that are remembered, to be repeated or changed.
const MAX_TRACE: usize = 64;
/// The XRC shared receive queue of side B.
const XRC_SRQ: Srqn = Srqn::new(1);
/// Steps of the link and the clock that one operation may take.
const MAX_STEPS: usize = 64;

struct World {
    pair: Pair,
    setup: Setup,
    sends: [Posted; 2],
    recvs: [Posted; 2],
    wr_id: u64,
    /// Keys that a work request may name, good and bad.
    keys: [Vec<Key>; 2],
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(setup(&mut input));
    for _ in 0..MAX_OPERATIONS {
        if input.is_empty() {
            break;
        }
        let side = if input.flag() { Side::A } else { Side::B };
        world.operate(&mut input, side);
        world.check();
    }
    world.end();
}

fn setup(input: &mut Input<'_>) -> Setup {
    let flags = input.u8();
    let default = Setup::default();
    let mut setup = Setup {
        seed: input.u8().into(),
        memory: MEMORY,
        mtu: Mtu::from_code(1 + u32::from(flags >> 4 & 1)).unwrap_or(Mtu::B256),
        psn: input.u32(),
        rd_atomic: 1 + input.u8() % 8,
        timeout: input.u8() & 31,
        retry_cnt: input.u8() & 7,
        rnr_retry: input.u8() & 7,
        min_rnr_timer: input.u8() & 31,
        sq_sig_all: flags & 1 != 0,
        shared_recv: flags & 2 != 0,
        xrc: flags & 8 != 0,
        faults: Faults {
            drop: u32::from(input.u8()),
            duplicate: u32::from(input.u8()),
            reorder: u32::from(input.u8()),
        },
        ..default
    };
    setup.link.lossless = flags & 4 != 0;
    if setup.link.lossless {
        setup.faults = Faults::default();
    }
    setup.link.max_in_flight = 1 << (input.u8() % 20);
    setup
}

impl World {
    fn new(setup: Setup) -> Self {
        let mut pair = Pair::new(setup);
        pair.trace = Some(Vec::new());
        if setup.xrc {
            let queue = XrcQueue {
                pd: PD,
                wrs: [].into(),
                asks: false,
                completions: Vec::new(),
            };
            pair.b.results.xrc.insert(XRC_SRQ, queue);
        }
        let mut keys = [Side::A, Side::B].map(|side| vec![pair.key(side), Key(0xbad)]);
        for side in [Side::A, Side::B] {
            let node = pair.node(side);
            keys[side as usize].extend([
                node.register(0, 64, Access::LOCAL_WRITE),
                node.register(4096, 4096, Access::REMOTE_READ),
                node.register(8192, 4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE),
                node.register_in(PdId(9), 0, 4096, setup.access),
                node.bound_window(1024, 4096, setup.access),
            ]);
        }
        Self {
            pair,
            setup,
            sends: Default::default(),
            recvs: Default::default(),
            wr_id: 0,
            keys,
        }
    }

    fn operate(&mut self, input: &mut Input<'_>, side: Side) {
        match input.below(16) {
            0..=3 => self.post_send(input, side),
            4..=6 => self.post_recv(input, side),
            7..=9 => self.run_for(input),
            10 => self.repeat_or_change(input, side),
            11 => self.raw_packet(input, side),
            12 => self.modify(input, side),
            13 => self.change_rights(input, side),
            14 => self.disturb(input, side),
            _ => self.reconnect(side),
        }
        if let Some(trace) = &mut self.pair.trace {
            let extra = trace.len().saturating_sub(MAX_TRACE);
            trace.drain(..extra);
        }
    }

    /// A range in the node's memory, now and then one that is not.
    fn sge(&self, input: &mut Input<'_>, side: Side) -> Sge {
        let lkey = if input.below(8) == 0 {
            input.pick(&self.keys[side as usize]).unwrap_or_default()
        } else {
            self.pair.key(side)
        };
        let length = match input.below(4) {
            0 => u32::from(input.u8()),
            1 => 8,
            2 => u32::from(input.u16() & 0x0fff),
            _ => u32::from(input.u16()),
        };
        sge(lkey, input.u16().into(), length)
    }

    fn sges(&self, input: &mut Input<'_>, side: Side) -> Vec<Sge> {
        (0..input.below(4)).map(|_| self.sge(input, side)).collect()
    }

    fn operation(&self, input: &mut Input<'_>, side: Side) -> SendOp {
        let peer = side.peer();
        let rkey = if input.below(8) == 0 {
            input.pick(&self.keys[peer as usize]).unwrap_or_default()
        } else {
            self.pair.key(peer)
        };
        let offset = u64::from(input.u16());
        let there = remote(
            rkey,
            if input.below(8) == 0 {
                offset
            } else {
                offset & 0x3ff8
            },
        );
        match input.below(10) {
            0 => SendOp::Send,
            1 => SendOp::SendImm(input.array()),
            2 => SendOp::SendInvalidate(rkey),
            3 => SendOp::Write(there),
            4 => SendOp::WriteImm(there, input.array()),
            5 | 6 => SendOp::Read(there),
            7 => SendOp::CompareSwap {
                remote: there,
                compare: input.u8().into(),
                swap: input.u64(),
            },
            8 => SendOp::FetchAdd {
                remote: there,
                add: input.u64(),
            },
            9 if input.below(2) == 0 => SendOp::BindWindow(self.bind(input, side)),
            _ => SendOp::LocalInvalidate(input.pick(&self.keys[side as usize]).unwrap_or_default()),
        }
    }

    /// A bind of one of the node's keys to another, most of them nonsense.
    fn bind(&self, input: &mut Input<'_>, side: Side) -> WindowBind {
        let keys = &self.keys[side as usize];
        let window = input.pick(keys).unwrap_or_default();
        WindowBind {
            window,
            key: Key(window.0 ^ u32::from(input.u8())),
            kind: if input.below(4) == 0 {
                WindowType::One
            } else {
                WindowType::Two
            },
            region: input.pick(keys),
            addr: remote(window, u64::from(input.u16())).addr,
            length: u64::from(input.u8()),
            access: Access::from_bits_truncate(u32::from(input.u8())),
        }
    }

    fn post_send(&mut self, input: &mut Input<'_>, side: Side) {
        let op = self.operation(input, side);
        let mut flags = SendFlags::from_bits_truncate(u32::from(input.u8() & 7));
        let payload = if input.below(8) == 0 {
            flags |= SendFlags::INLINE;
            let len = input.u8().into();
            Payload::Inline(input.take(len).into())
        } else {
            Payload::Sges(self.sges(input, side).into())
        };
        self.wr_id += 1;
        let to = if self.setup.xrc {
            let number = match input.below(8) {
                0 => Srqn::new(input.u8().into()),
                _ => XRC_SRQ,
            };
            SendTo::XrcSrq(number)
        } else {
            SendTo::Peer
        };
        let wr = SendWr {
            to,
            wr_id: self.wr_id,
            op,
            flags,
            payload,
        };
        // An unsignalled failure completes, too: what was accepted must be on the list before the
        // queue pair works on it.
        let posted = &mut self.sends[side as usize].open;
        posted.push_back((
            self.wr_id,
            self.setup.sq_sig_all || flags.contains(SendFlags::SIGNALED),
        ));
        if self.pair.try_send(side, wr).is_err() {
            posted.pop_back();
        }
    }

    fn post_recv(&mut self, input: &mut Input<'_>, side: Side) {
        let sges = self.sges(input, side);
        self.wr_id += 1;
        let wr_id = self.wr_id;
        if self.setup.xrc {
            let queued = self
                .pair
                .b
                .results
                .xrc
                .values()
                .map(|queue| queue.wrs.len());
            if side == Side::B && queued.sum::<usize>() < 64 {
                self.pair.xrc_recv(XRC_SRQ, wr_id, sges);
            }
            return;
        }
        if self.setup.shared_recv {
            if self.pair.node(side).results.shared_recv.len() < 64 {
                self.pair.shared_recv(side, wr_id, sges);
            }
            return;
        }
        let now = self.pair.now;
        let wr = RecvWr {
            wr_id,
            sges: sges.into(),
        };
        if self
            .pair
            .node(side)
            .with(now, |qp, cx| qp.post_recv(cx, wr))
            .is_ok()
        {
            self.recvs[side as usize].open.push_back((wr_id, true));
        }
    }

    fn run_for(&mut self, input: &mut Input<'_>) {
        let until = self.pair.now + Duration::from_micros(1 << (input.u8() % 24));
        for _ in 0..=input.below(MAX_STEPS) {
            if !self.pair.step(until) {
                break;
            }
        }
    }

    fn check(&mut self) {
        for side in [Side::A, Side::B] {
            let results = &self.pair.node(side).results;
            self.sends[side as usize].check(&results.send);
            if !self.setup.shared_recv && !self.setup.xrc {
                self.recvs[side as usize].check(&results.recv);
            }
        }
    }

    /// In the error state everything that is open completes at once.
    fn end(&mut self) {
        for side in [Side::A, Side::B] {
            if self.pair.node(side).qp.state() != QpState::Reset {
                self.pair.to_state(side, QpState::Err);
                self.check();
                self.sends[side as usize].check_empty();
                self.recvs[side as usize].check_empty();
            }
        }
    }
}
