//! Two queue pairs of the device, of any type, under arbitrary calls: post, modify, register, bind,
//! resize, destroy, in any order.
//!
//! Whatever the calls: no panic; each work request that was accepted completes once, in order;
//! nothing is written behind the registered memory.

mod memory;
mod player;
mod states;
mod work;

use ferroce_conformance::bench::{ALL, Path, Spec};
use ferroce_conformance::{Bench, Ends, Entry};
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{Mtu, QpCap, QpType};

use super::input::Input;
use player::Player;

/// Calls of one run.
const MAX_CALLS: usize = 120;
/// Bytes of each end's memory.
const MEMORY: usize = 1 << 14;

const TYPES: [QpType; 4] = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcSend];

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
        let specs = specs(input, flags);
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

/// What the ends are made as.
fn specs(input: &mut Input<'_>, flags: u8) -> [Spec; 2] {
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
    specs
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
