//! Two reliable connected queue pairs under arbitrary work, packets, attribute changes, losses and time.

use std::collections::VecDeque;
use std::time::Duration;

use ferroce_proto::ids::{Key, PdId, Psn};
use ferroce_proto::mr::Access;
use ferroce_proto::testkit::{Faults, Pair, Setup, Side, remote, sge};
use ferroce_proto::verbs::{
    AttrMask, Mtu, Payload, QpState, SendFlags, SendOp, SendWr, Sge, Wc, WcStatus,
};
use ferroce_proto::wire::Packet;

use super::input::Input;

/// Operations of one run.
const MAX_OPERATIONS: usize = 400;
/// Bytes of each node's memory.
const MEMORY: usize = 1 << 15;
/// Packets that are remembered, to be repeated or changed.
const MAX_TRACE: usize = 64;
/// Steps of the link and the clock that one operation may take.
const MAX_STEPS: usize = 64;

const STATES: [QpState; 7] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Sqd,
    QpState::Sqe,
    QpState::Err,
];

/// Work requests of one queue that were accepted and have not completed, oldest first.
#[derive(Default)]
struct Posted {
    open: VecDeque<(u64, bool)>,
    /// Completions that were looked at.
    seen: usize,
}

impl Posted {
    /// Each completion must be of the oldest open request that has to complete. Requests without a signal complete silently
    /// on success.
    fn check(&mut self, completions: &[(Wc, bool)]) {
        for (wc, _) in &completions[self.seen..] {
            loop {
                let (wr_id, signalled) = self
                    .open
                    .pop_front()
                    .unwrap_or_else(|| panic!("{wc:?} completes nothing that is open"));
                if wr_id == wc.wr_id {
                    assert!(
                        signalled || wc.status != WcStatus::Success,
                        "{wc:?} was not asked for"
                    );
                    break;
                }
                assert!(!signalled, "{wr_id} was passed over by {wc:?}");
            }
        }
        self.seen = completions.len();
    }

    /// After a flush nothing is left that has to complete.
    fn check_empty(&self) {
        assert!(
            !self.open.iter().any(|&(_, signalled)| signalled),
            "never completed: {:?}",
            self.open
        );
    }
}

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
        let mut keys = [Side::A, Side::B].map(|side| vec![pair.key(side), Key(0xbad)]);
        for side in [Side::A, Side::B] {
            let node = pair.node(side);
            keys[side as usize].extend([
                node.register(0, 64, Access::LOCAL_WRITE),
                node.register(4096, 4096, Access::REMOTE_READ),
                node.register(8192, 4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE),
                node.register_in(PdId(9), 0, 4096, setup.access),
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
            _ => SendOp::LocalInvalidate(input.pick(&self.keys[side as usize]).unwrap_or_default()),
        }
    }

    fn post_send(&mut self, input: &mut Input<'_>, side: Side) {
        let op = self.operation(input, side);
        let mut flags = SendFlags::from_bits_truncate(u32::from(input.u8() & 7));
        let payload = if input.below(8) == 0 {
            flags |= SendFlags::INLINE;
            let len = input.u8().into();
            Payload::Inline(input.take(len).to_vec())
        } else {
            Payload::Sges(self.sges(input, side))
        };
        self.wr_id += 1;
        let wr = SendWr {
            wr_id: self.wr_id,
            op,
            flags,
            payload,
        };
        // An unsignalled failure completes, too: what was accepted must be on the list before the queue pair works on it.
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
        if self.setup.shared_recv {
            if self.pair.node(side).results.shared_recv.len() < 64 {
                self.pair.shared_recv(side, wr_id, sges);
            }
            return;
        }
        let now = self.pair.now;
        let wr = ferroce_proto::verbs::RecvWr { wr_id, sges };
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

    /// A packet that was seen arrives again, with some of its bytes changed.
    fn repeat_or_change(&mut self, input: &mut Input<'_>, side: Side) {
        let trace = self.pair.trace.as_deref().unwrap_or_default();
        let to_here: Vec<&Vec<u8>> = trace
            .iter()
            .filter(|(from, _)| *from != side)
            .map(|(_, bytes)| bytes)
            .collect();
        let Some(mut bytes) = input.pick(&to_here).cloned() else {
            return;
        };
        for _ in 0..input.below(4) {
            let at = input.below(bytes.len().min(256));
            bytes[at] ^= input.u8();
        }
        self.arrive(side, &bytes);
    }

    fn raw_packet(&mut self, input: &mut Input<'_>, side: Side) {
        let psn = Psn::new(self.setup.psn).plus(u32::from(input.u8()).wrapping_sub(4));
        let [_, p0, p1, p2] = psn.get().to_be_bytes();
        let mut bytes = vec![
            input.u8() & 0x1f,
            input.u8() & 0xf0,
            0xff,
            0xff,
            0,
            0,
            0,
            1,
            0x80,
            p0,
            p1,
            p2,
        ];
        let len = input.below(96);
        bytes.extend_from_slice(input.take(len));
        self.arrive(side, &bytes);
    }

    fn arrive(&mut self, side: Side, bytes: &[u8]) {
        let Ok(packet) = Packet::parse(bytes) else {
            return;
        };
        let now = self.pair.now;
        self.pair
            .node(side)
            .with(now, |qp, cx| qp.on_packet(cx, &packet));
    }

    fn modify(&mut self, input: &mut Input<'_>, side: Side) {
        let state = STATES[input.below(STATES.len())];
        let (mut attr, usual) = self.pair.step_attr(side, state);
        let mask = match input.below(4) {
            0 => usual,
            1 => usual ^ AttrMask::from_bits_retain(1 << input.below(32)),
            2 => AttrMask::STATE,
            _ => AttrMask::from_bits_retain(input.u32()),
        };
        attr.cur_qp_state = STATES[input.below(STATES.len())];
        attr.timeout = input.u8() & 63;
        attr.retry_cnt = input.u8() & 15;
        attr.max_rd_atomic = input.u8();
        attr.max_dest_rd_atomic = input.u8();
        attr.en_sqd_async_notify = input.flag();
        attr.qp_access_flags = Access::from_bits_retain(u32::from(input.u8()));
        let now = self.pair.now;
        let node = self.pair.node(side);
        let before = node.qp.query();
        match node.with(now, |qp, cx| qp.modify(cx, &attr, mask)) {
            Ok(()) if self.pair.node(side).qp.state() == QpState::Reset => self.forget(side),
            Ok(()) => {}
            Err(why) => {
                assert!(!why.reason.is_empty());
                assert_eq!(
                    self.pair.node(side).qp.query(),
                    before,
                    "refused, yet something changed"
                );
            }
        }
    }

    /// A move to RESET ends what is open without completions.
    fn forget(&mut self, side: Side) {
        self.check();
        self.sends[side as usize].open.clear();
        self.recvs[side as usize].open.clear();
    }

    fn change_rights(&mut self, input: &mut Input<'_>, side: Side) {
        let keys = &mut self.keys[side as usize];
        let node = self.pair.node(side);
        match input.below(4) {
            0 => {
                // The first key is the whole memory's; without it there is little to see.
                if let Some(key) = input.pick(&keys[1..]) {
                    node.rights.remove(key);
                }
            }
            1 => {
                if let Some(key) = input.pick(keys) {
                    // Refused for a key of the other domain, or one that is gone.
                    let _ = node.rights.invalidate(key, ferroce_proto::testkit::PD);
                }
            }
            _ if keys.len() < 64 => {
                let (at, len) = (
                    u64::from(input.u16() & 0x3fff),
                    u64::from(input.u16() & 0x3fff),
                );
                keys.push(node.register(
                    at,
                    len,
                    Access::from_bits_truncate(u32::from(input.u8())),
                ));
            }
            _ => {}
        }
    }

    fn disturb(&mut self, input: &mut Input<'_>, side: Side) {
        let now = self.pair.now;
        let on = input.flag();
        match input.below(6) {
            0 => self.pair.pause_into(side, on),
            1 => self.pair.lose_into(side),
            2 => self.pair.cut_into(side, on),
            3 => self.pair.node(side).with(now, |qp, cx| qp.on_dropped(cx)),
            4 => self.pair.node(side).with(now, |qp, cx| qp.on_peer_dead(cx)),
            _ => self.pair.node(side).with(now, |qp, cx| qp.on_deadline(cx)),
        }
    }

    /// From RESET to RTS, both ends, as after a new connection.
    fn reconnect(&mut self, side: Side) {
        for side in [side, side.peer()] {
            self.pair.to_state(side, QpState::Reset);
            self.forget(side);
            self.pair.lose_into(side);
        }
        for side in [side, side.peer()] {
            let link = self.setup.link;
            self.pair.node(side).qp.set_link(link);
            for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
                self.pair.to_state(side, state);
            }
        }
    }

    fn check(&mut self) {
        for side in [Side::A, Side::B] {
            let results = &self.pair.node(side).results;
            self.sends[side as usize].check(&results.send);
            if !self.setup.shared_recv {
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
