//! Two queue pairs of the device, of any type, under arbitrary calls: post, modify, register, bind, resize, destroy, in any order.
//!
//! Whatever the calls: no panic; each work request that was accepted completes once, in order; nothing is written behind the
//! registered memory.

use ferroce_conformance::bench::{ALL, Path, QKEY, Spec};
use ferroce_conformance::door::Change;
use ferroce_conformance::end::{to_init, to_rtr, to_rts};
use ferroce_conformance::wait::wait_for;
use ferroce_conformance::{Bench, End, Ends, Entry};
use ferroce_proto::ids::{Gid, Key, Psn, Qpn, Srqn};
use ferroce_proto::mr::{Access, WindowBind, WindowType};
use ferroce_proto::verbs::{
    AttrMask, Datagram, Flush, Mtu, Payload, Placement, QpAttr, QpCap, QpState, QpType, RecvWr,
    RemoteAddr, Selectivity, SendFlags, SendOp, SendTo, SendWr, Sge,
};

use super::input::Input;
use super::posted::Posted;

/// Calls of one run.
const MAX_CALLS: usize = 120;
/// Bytes of each end's memory.
const MEMORY: usize = 1 << 14;
/// Regions that an end has at once, besides the one over everything.
const MAX_REGIONS: usize = 6;
/// Memory windows that an end has at once.
const MAX_WINDOWS: usize = 4;

const TYPES: [QpType; 4] = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcSend];

const STATES: [QpState; 7] = ferroce_conformance::cases::states::STATES;

/// An end with what was asked of it.
struct Player {
    end: End,
    sends: Posted,
    recvs: Posted,
    /// Keys besides the one over everything: in use, and gone.
    live: Vec<Key>,
    dead: Vec<Key>,
    /// Regions that windows may be bound to: they stay until the end goes.
    bound: Vec<Key>,
    /// Windows by their first keys, and all keys that they were bound under.
    windows: Vec<Key>,
    window_keys: Vec<Key>,
    /// How a datagram reaches the ends.
    handle: Option<u32>,
    /// Receives come from a shared queue.
    shared: bool,
    /// The completion queue overflowed: nothing more is known.
    overflowed: bool,
}

struct World {
    bench: Bench,
    players: [Player; 2],
    next_id: u64,
    specs: [Spec; 2],
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    for _ in 0..MAX_CALLS {
        if input.is_empty() {
            break;
        }
        let who = input.below(2);
        world.call(&mut input, who);
        world.look();
    }
    world.end();
}

impl Player {
    fn new(bench: &Bench, spec: Spec) -> Self {
        let mut end = bench.end(spec);
        let own = end.gid();
        let handle = (spec.qp_type == QpType::Ud).then(|| end.handle_to(own));
        Self {
            end,
            bound: Vec::new(),
            windows: Vec::new(),
            window_keys: Vec::new(),
            handle,
            sends: Posted::default(),
            recvs: Posted::default(),
            live: Vec::new(),
            dead: Vec::new(),
            shared: spec.srq.is_some(),
            overflowed: false,
        }
    }

    /// Takes what has completed.
    fn look(&mut self) {
        while !self.overflowed {
            match self.end.side().poll() {
                Ok(Some(wc)) => {
                    assert_eq!(wc.qp_num, self.end.qpn());
                    if self.recvs.has(wc.wr_id) && self.shared {
                        // One that was in use at a RESET is gone, so there are gaps.
                        self.recvs.0.retain(|&(id, _)| id != wc.wr_id);
                    } else if self.recvs.has(wc.wr_id) {
                        self.recvs.complete(&wc);
                    } else {
                        self.sends.complete(&wc);
                    }
                }
                Ok(None) => break,
                Err(_) => self.overflowed = true,
            }
        }
        assert!(
            self.end.memory().guard_is_intact(),
            "written behind the memory"
        );
        while self.end.side().event().is_some() {}
    }

    /// Everything has been forgotten without completions.
    fn forget(&mut self) {
        self.sends.0.clear();
        if !self.shared {
            self.recvs.0.clear();
        }
    }

    /// In ERR everything completes.
    fn finish(&mut self) {
        if self.end.state() == QpState::Reset {
            return;
        }
        self.end.to(QpState::Err);
        wait_for("completion of everything", || {
            self.look();
            let waits = self.sends.waits() || (!self.shared && self.recvs.waits());
            (self.overflowed || !waits).then_some(())
        });
    }
}

/// Any rights.
fn rights(input: &mut Input<'_>) -> Access {
    let byte = input.u8();
    let flush = if byte & 0x80 == 0 {
        Access::empty()
    } else {
        Access::FLUSH_GLOBAL
    };
    Access::from_bits_truncate(u32::from(byte) & ALL.bits()) | flush
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let flags = input.u8();
        let entry = if flags & 1 == 0 {
            Entry::Rust
        } else {
            Entry::C
        };
        let bench = Bench {
            entry,
            path: Path::Local,
            ends: Ends::Together,
        };
        let kinds = input.u8();
        let qp_type = TYPES[usize::from(kinds & 3)];
        let mut spec = Spec {
            memory: MEMORY,
            // Receives of a shared queue stay when the queue pair goes.
            srq: (kinds & 12 == 4).then_some(8),
            sq_sig_all: flags & 2 != 0,
            cqe: if flags & 4 == 0 { 256 } else { 8 },
            cap: QpCap {
                max_send_wr: 1 + u32::from(flags >> 4),
                max_recv_wr: 1 + u32::from(flags >> 4),
                max_send_sge: 3,
                max_recv_sge: 3,
                max_inline_data: 32,
            },
            ..Spec::of(qp_type)
        };
        spec.attr.path_mtu = Mtu::B256;
        if qp_type == QpType::Rc {
            spec.access |= Access::FLUSH_GLOBAL;
            spec.attr.qp_access_flags |= Access::FLUSH_GLOBAL;
        }
        // Short, so that silence does not take long.
        (spec.attr.timeout, spec.attr.retry_cnt) = (1, 0);
        (spec.attr.min_rnr_timer, spec.attr.rnr_retry) = (1, input.u8() & 7);
        spec.attr.max_rd_atomic = 1 + (input.u8() & 3);
        let mut specs = [spec, spec];
        if qp_type == QpType::XrcSend {
            specs[0].srq = None;
            specs[1].srq = Some(8);
            specs[1].qp_type = QpType::XrcRecv;
        }
        let players = specs.map(|spec| Player::new(&bench, spec));
        let world = Self {
            bench,
            players,
            next_id: 1,
            specs,
        };
        if flags & 8 == 0 {
            for who in 0..2 {
                world.players[who]
                    .end
                    .connect(world.players[1 - who].end.qpn());
            }
        }
        world
    }

    fn call(&mut self, input: &mut Input<'_>, who: usize) {
        match input.below(20) {
            0..=4 => self.post_send(input, who),
            5..=7 => self.post_recv(input, who),
            8 => self.change(input, who),
            9 => self.go_on(who),
            10 | 11 => self.register(input, who),
            12 => self.deregister(input, who),
            13 => self.wait_a_little(input),
            14 => self.reconnect(),
            15 => self.window(who),
            16 => self.reregister(input, who),
            17 => self.resize(input, who),
            18 => self.arm(input, who),
            _ => self.replace(input, who),
        }
    }

    fn key(&self, input: &mut Input<'_>, who: usize) -> Key {
        let player = &self.players[who];
        let other = &self.players[1 - who];
        let key = match input.below(8) {
            0..=3 => Some(player.end.key()),
            4 | 5 => input.pick(&player.live),
            6 if input.flag() => input.pick(&player.window_keys),
            6 => input.pick(&player.dead),
            _ => Some(other.end.key()),
        };
        key.unwrap_or_else(|| Key(input.u32()))
    }

    fn sges(&self, input: &mut Input<'_>, who: usize) -> Vec<Sge> {
        let base = self.players[who].end.memory().base();
        (0..input.below(5))
            .map(|_| {
                let lkey = self.key(input, who);
                // Now and then past the end.
                let offset = u64::from(input.u16()) % (MEMORY as u64 + 64);
                let length = match input.below(4) {
                    0 => u32::from(input.u8()),
                    1 => 8,
                    2 => u32::from(input.u16() & 0x0fff),
                    _ => input.u32() >> input.below(32),
                };
                Sge {
                    addr: base + offset,
                    length,
                    lkey,
                }
            })
            .collect()
    }

    fn remote(&self, input: &mut Input<'_>, who: usize) -> RemoteAddr {
        let peer = 1 - who;
        let offset = u64::from(input.u16()) % (MEMORY as u64 + 64);
        let offset = if input.below(4) == 0 {
            offset
        } else {
            offset & !7
        };
        RemoteAddr {
            addr: self.players[peer].end.memory().base() + offset,
            rkey: self.key(input, peer),
        }
    }

    fn operation(&mut self, input: &mut Input<'_>, who: usize) -> SendOp {
        let remote = self.remote(input, who);
        match input.below(13) {
            // C programs post it with the builders, which the ends of other types are made without.
            12 if self.bench.entry == Entry::C && self.specs[who].qp_type != QpType::Rc => {
                SendOp::Send
            }
            12 => self.flush(input, remote),
            0 | 1 => SendOp::Send,
            2 => SendOp::SendImm(input.array()),
            3 => SendOp::SendInvalidate(self.key(input, 1 - who)),
            4 => SendOp::Write(remote),
            5 => SendOp::WriteImm(remote, input.array()),
            6 => SendOp::Read(remote),
            7 => SendOp::CompareSwap {
                remote,
                compare: input.u8().into(),
                swap: input.u64(),
            },
            8 => SendOp::FetchAdd {
                remote,
                add: input.u64(),
            },
            9 => SendOp::AtomicWrite(remote),
            10 => self.bind(input, who).unwrap_or(SendOp::Send),
            _ => SendOp::LocalInvalidate(self.key(input, who)),
        }
    }

    /// A FLUSH of a range or a region, with any placement.
    fn flush(&self, input: &mut Input<'_>, remote: RemoteAddr) -> SendOp {
        let flags = input.u8();
        SendOp::Flush(Flush {
            remote,
            length: input.u32() >> input.below(32),
            placement: Placement::from_bits_truncate(flags & 3),
            selectivity: if flags & 4 == 0 {
                Selectivity::Range
            } else {
                Selectivity::Region
            },
        })
    }

    /// A bind of one of the windows to a part of one of the regions, under any key.
    fn bind(&mut self, input: &mut Input<'_>, who: usize) -> Option<SendOp> {
        let player = &mut self.players[who];
        let window = input.pick(&player.windows)?;
        let region = input.pick(&player.live).unwrap_or_else(|| player.end.key());
        let key = Key(window.0 ^ u32::from(input.u8()));
        player.bound.push(region);
        player.window_keys.push(key);
        let offset = u64::from(input.u16()) % MEMORY as u64;
        Some(SendOp::BindWindow(WindowBind {
            window,
            key,
            kind: WindowType::Two,
            region: Some(region),
            addr: player.end.memory().base() + offset,
            length: (input.u16() & 0x0fff).into(),
            access: rights(input),
        }))
    }

    /// Whom a work request is for. Mostly the other end, now and then nobody.
    fn receiver(&self, input: &mut Input<'_>, who: usize) -> SendTo {
        let peer = &self.players[1 - who].end;
        match self.specs[who].qp_type {
            QpType::Ud => SendTo::Datagram(Datagram {
                ah: self.players[who].handle.expect("UD ends have one"),
                qpn: if input.below(8) == 0 {
                    Qpn::new(input.u32())
                } else {
                    peer.qpn()
                },
                qkey: if input.below(8) == 0 {
                    input.u32()
                } else {
                    QKEY
                },
            }),
            QpType::XrcSend if input.below(8) == 0 => SendTo::XrcSrq(Srqn::new(input.u32())),
            QpType::XrcSend => SendTo::XrcSrq(peer.side().srqn()),
            _ => SendTo::Peer,
        }
    }

    fn post_send(&mut self, input: &mut Input<'_>, who: usize) {
        let op = self.operation(input, who);
        let mut flags = SendFlags::from_bits_truncate(u32::from(input.u8() & 7));
        let payload = if input.below(8) == 0 {
            flags |= SendFlags::INLINE;
            let len = usize::from(input.u8() & 63);
            Payload::Inline(input.take(len).to_vec())
        } else {
            Payload::Sges(self.sges(input, who).into())
        };
        let wr_id = self.next_id();
        let to = self.receiver(input, who);
        let signalled = self.specs[who].sq_sig_all || flags.contains(SendFlags::SIGNALED);
        let player = &mut self.players[who];
        let wr = SendWr {
            wr_id,
            to,
            op,
            flags,
            payload,
        };
        if player.end.post(wr).is_ok() {
            player.sends.0.push_back((wr_id, signalled));
        }
    }

    fn post_recv(&mut self, input: &mut Input<'_>, who: usize) {
        let sges = self.sges(input, who);
        let wr_id = self.next_id();
        let player = &mut self.players[who];
        if player
            .end
            .side()
            .post_recv(RecvWr {
                wr_id,
                sges: sges.into(),
            })
            .is_ok()
        {
            player.recvs.0.push_back((wr_id, true));
        }
    }

    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Any change of attributes.
    fn change(&mut self, input: &mut Input<'_>, who: usize) {
        let peer = self.players[1 - who].end.qpn();
        let player = &mut self.players[who];
        let mut attr = player.end.attr(peer, player.end.gid());
        attr.qp_state = input.pick(&STATES).unwrap_or(QpState::Reset);
        attr.cur_qp_state = input.pick(&STATES).unwrap_or(QpState::Reset);
        attr.qp_access_flags = rights(input);
        attr.en_sqd_async_notify = input.flag();
        if input.below(4) == 0 {
            attr.rq_psn = Psn::new(input.u32());
            attr.sq_psn = Psn::new(input.u32());
            attr.dest_qp_num = Qpn::new(input.u32());
            attr.ah_attr.grh.dgid = Gid(input.array());
            attr.timeout = input.u8();
            attr.min_rnr_timer = input.u8();
            attr.max_dest_rd_atomic = input.u8();
        }
        let kind = self.specs[who].qp_type;
        let masks = [AttrMask::STATE, to_init(kind), to_rtr(kind), to_rts(kind)];
        let mut mask = input.pick(&masks).unwrap_or_default();
        if input.below(4) == 0 {
            mask ^= AttrMask::from_bits_truncate(1 << input.below(26));
        }
        let accepted = player.end.side().modify(&attr, mask).is_ok();
        if accepted && mask.contains(AttrMask::STATE) && attr.qp_state == QpState::Reset {
            // What had completed is forgotten with the rest, or still there: neither is told apart here.
            player.forget();
            while player.end.side().poll().is_ok_and(|wc| wc.is_some()) {}
        }
    }

    /// One step on the way to RTS.
    fn go_on(&mut self, who: usize) {
        let peer = self.players[1 - who].end.qpn();
        let end = &self.players[who].end;
        let kind = self.specs[who].qp_type;
        let (qp_state, mask) = match end.state() {
            QpState::Reset => (QpState::Init, to_init(kind)),
            QpState::Init => (QpState::Rtr, to_rtr(kind)),
            QpState::Rtr => (QpState::Rts, to_rts(kind)),
            _ => return,
        };
        let attr = QpAttr {
            qp_state,
            ..end.attr(peer, end.gid())
        };
        // The memory that a region is over may be gone, but attributes are right.
        assert_eq!(end.side().modify(&attr, mask), Ok(()), "to {qp_state}");
    }

    fn register(&mut self, input: &mut Input<'_>, who: usize) {
        let player = &mut self.players[who];
        if player.live.len() == MAX_REGIONS {
            return;
        }
        let offset = usize::from(input.u16()) % MEMORY;
        let len = usize::from(input.u16()) % (MEMORY - offset + 1);
        let access = rights(input);
        let side = player.end.side_mut();
        let key = if input.below(4) == 0 {
            side.register_elsewhere(offset, len, access)
        } else {
            side.register(offset, len, access)
        };
        player.live.extend(key);
    }

    fn deregister(&mut self, input: &mut Input<'_>, who: usize) {
        let player = &mut self.players[who];
        let free = |key: &Key| !player.bound.contains(key);
        if let Some(key) = input.pick(&player.live).filter(free) {
            player.live.retain(|k| *k != key);
            player.end.side_mut().deregister(key);
            player.dead.push(key);
        }
    }

    fn window(&mut self, who: usize) {
        let player = &mut self.players[who];
        if player.windows.len() < MAX_WINDOWS {
            player.windows.extend(player.end.side_mut().window());
        }
    }

    /// Changes a region. A refusal leaves it as it was.
    fn reregister(&mut self, input: &mut Input<'_>, who: usize) {
        let player = &mut self.players[who];
        let offset = usize::from(input.u16()) % MEMORY;
        let len = usize::from(input.u16()) % (MEMORY - offset + 1);
        let access = rights(input);
        let change = Change {
            range: input.flag().then_some((offset, len)),
            elsewhere: input.flag(),
            access: input.flag().then_some(access),
        };
        if let Some(key) = input.pick(&player.live) {
            let _ = player.end.side_mut().reregister(key, &change);
        }
    }

    /// Changes the size of the completion queue, which keeps what is in it.
    fn resize(&mut self, input: &mut Input<'_>, who: usize) {
        let _ = self.players[who].end.side().resize_cq(input.u16().into());
    }

    fn arm(&mut self, input: &mut Input<'_>, who: usize) {
        let player = &self.players[who];
        if player.shared {
            let _ = player.end.side().arm_srq(input.u8().into());
        }
    }

    /// Lets things happen: until something completes, or a number of looks.
    fn wait_a_little(&mut self, input: &mut Input<'_>) {
        for _ in 0..input.below(64) {
            self.look();
            std::thread::yield_now();
        }
    }

    fn reconnect(&mut self) {
        for who in 0..2 {
            self.players[who].end.to(QpState::Reset);
            self.players[who].forget();
            while self.players[who]
                .end
                .side()
                .poll()
                .is_ok_and(|wc| wc.is_some())
            {}
        }
        for who in 0..2 {
            let peer = self.players[1 - who].end.qpn();
            self.players[who].end.connect(peer);
        }
    }

    /// Destroys an end as it is, and makes another.
    fn replace(&mut self, input: &mut Input<'_>, who: usize) {
        if input.below(2) == 0 {
            self.players[who].finish();
        }
        self.players[who] = Player::new(&self.bench, self.specs[who]);
    }

    fn look(&mut self) {
        for player in &mut self.players {
            player.look();
        }
    }

    fn end(&mut self) {
        for player in &mut self.players {
            player.finish();
        }
    }
}
