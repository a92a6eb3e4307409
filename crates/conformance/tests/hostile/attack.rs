//! Attackers: hosts that know every number, send what they like, and cannot use the address of a
//! peer.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_conformance::raw::RawPeer;
use ferroce_conformance::{Bench, End};
use ferroce_proto::ids::{GSI_QKEY, Gid, Psn, Qpn};
use ferroce_proto::testkit::Rng;
use ferroce_proto::verbs::{QpState, RemoteAddr};
use ferroce_proto::wire::{
    Aeth, AtomicEth, Bth, Deth, ExtHeaders, HeaderSet, Opcode, Packet, Reth, Syndrome,
};

use super::healthy::{PAUSE, StopOnPanic, Target};
use super::mads;

/// Packets between pauses.
const BURST: u64 = 40;
/// Packets that are an attack, however little an attacker gets of the processor.
const LEAST: u64 = 1000;

/// An attacker: a stranger, and the legitimate peer of a queue pair that it may ruin.
pub(crate) struct Attacker {
    stranger: RawPeer,
    victim: End,
    peer: RawPeer,
}

impl Attacker {
    fn new(bench: &Bench) -> Self {
        // Played by hand, the peer is on the wire, or would be: packets are looked at in the same
        // way.
        let victim = bench.end(ferroce_conformance::bench::Spec::default());
        let device = IpAddr::from([127, 0, 0, 1]);
        let peer = RawPeer::new(device, victim.qpn());
        let attacker = Self {
            stranger: RawPeer::new(device, victim.qpn()),
            victim,
            peer,
        };
        attacker.revive();
        attacker
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.stranger.gid().ip()
    }

    pub(crate) fn gid(&self) -> Gid {
        self.stranger.gid()
    }

    /// Takes the victim from wherever it is to RTS.
    fn revive(&self) {
        let (to, at) = (self.peer.qpn(), self.peer.gid());
        // Packets sent before may arrive in between, and one of them may ruin the queue pair in RTR
        // already.
        let tries = 0..1000;
        let alive = tries.into_iter().any(|_| {
            self.victim.to(QpState::Reset);
            self.victim.try_go_to(QpState::Rts, to, at).is_ok()
        });
        assert!(alive, "the victim does not get to RTS");
        for wr_id in 0..8 {
            self.victim.recv(wr_id, vec![self.victim.sge(0, 4096)]);
        }
        while self.victim.side().poll().is_ok_and(|wc| wc.is_some()) {}
        while self.victim.side().event().is_some() {}
    }
}

/// Headers that an opcode calls for, with contents that are right, wrong, or chance.
fn headers(rng: &mut Rng, opcode: Opcode, at: RemoteAddr) -> ExtHeaders {
    let set = opcode
        .info()
        .map_or(HeaderSet::empty(), |info| info.headers);
    let length = rng.pick(&[0, 1, 8, 1024, 4096, 1 << 20, 1 << 31, u32::MAX]);
    let va = rng.pick(&[at.addr, at.addr + 1, 0, u64::MAX - 7, at.addr + 40_000]);
    let rkey = at.rkey;
    let mut ext = ExtHeaders::default();
    if set.contains(HeaderSet::RETH) {
        ext.reth = Some(Reth { va, rkey, length });
    }
    if set.contains(HeaderSet::ATOMIC) {
        ext.atomic = Some(AtomicEth {
            va,
            rkey,
            swap_or_add: rng.bits(),
            compare: rng.bits(),
        });
    }
    if set.contains(HeaderSet::AETH) {
        ext.aeth = Some(Aeth {
            syndrome: Syndrome::decode(rng.below32(256) as u8),
            msn: ferroce_proto::ids::Msn::new(rng.below32(1 << 24)),
        });
    }
    if set.contains(HeaderSet::DETH) {
        ext.deth = Some(Deth {
            qkey: rng.pick(&[GSI_QKEY, 0, 0x0123_4567]),
            src_qp: Qpn::new(rng.below32(1 << 24)),
        });
    }
    if set.contains(HeaderSet::ATOMIC_ACK) {
        ext.atomic_ack = Some(rng.bits());
    }
    if set.contains(HeaderSet::IMM) {
        ext.imm = Some([1, 2, 3, 4]);
    }
    if set.contains(HeaderSet::IETH) {
        ext.ieth = Some(rkey);
    }
    ext
}

/// A packet of any kind for a queue pair.
fn packet(rng: &mut Rng, qpn: Qpn, psn: Psn, at: RemoteAddr) -> Vec<u8> {
    let opcode = Opcode(rng.below32(256) as u8);
    let mut bth = Bth::new(opcode, qpn, psn);
    bth.ack_req = rng.per_mille(500);
    let length = rng.pick(&[0, 1, 8, 255, 256, 1023, 1024, 1025, 4096, 4100]);
    let payload = vec![0xbb; length];
    let mut bytes = Vec::new();
    Packet {
        bth,
        ext: headers(rng, opcode, at),
        payload: &payload,
    }
    .emit(&mut bytes);
    match rng.below(6) {
        0 => bytes.truncate(rng.below(bytes.len() as u64) as usize),
        1 => {
            for _ in 0..=rng.below(4) {
                let at = rng.below(bytes.len().min(44) as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
        }
        _ => {}
    }
    bytes
}

/// One datagram of a stranger.
fn strange(attacker: &Attacker, rng: &mut Rng, targets: &[Target], port: u16) {
    let target = rng.pick(targets);
    let at = RemoteAddr {
        addr: target.addr,
        rkey: target.rkey,
    };
    let psn = Psn::new(rng.below32(1 << 24));
    match rng.below(8) {
        0..=2 => {
            let qpn = if rng.per_mille(800) {
                target.qpn
            } else {
                Qpn::new(rng.below32(1 << 24))
            };
            let bytes = packet(rng, qpn, psn, at);
            attacker.stranger.send_packet(&bytes);
        }
        3 => {
            let mut bytes = packet(rng, target.qpn, psn, at);
            bytes.extend_from_slice(&rng.below32(u32::MAX).to_be_bytes());
            attacker.stranger.send_datagram(&bytes);
        }
        4 => {
            let length = rng.pick(&[0, 1, 3, 4, 11, 12, 15, 16, 17, 300, 5000, 60_000]);
            let noise: Vec<_> = (0..length).map(|_| rng.below32(256) as u8).collect();
            attacker.stranger.send_datagram(&noise);
        }
        _ => send_mad(attacker, rng, port),
    }
}

fn send_mad(attacker: &Attacker, rng: &mut Rng, port: u16) {
    let mad = mads::mad(attacker, rng, port);
    let mut bytes = Vec::new();
    let length = if rng.per_mille(50) {
        rng.below(256) as usize
    } else {
        256
    };
    Packet {
        bth: Bth::new(
            Opcode::UD_SEND_ONLY,
            Qpn::GSI,
            Psn::new(rng.below32(1 << 24)),
        ),
        ext: ExtHeaders {
            deth: Some(Deth {
                qkey: if rng.per_mille(950) { GSI_QKEY } else { 7 },
                src_qp: Qpn::GSI,
            }),
            ..ExtHeaders::default()
        },
        payload: &mad[..length],
    }
    .emit(&mut bytes);
    attacker.stranger.send_packet(&bytes);
}

/// One packet of the victim's own peer, near the PSN that is expected, with the keys of others.
fn familiar(attacker: &Attacker, rng: &mut Rng, targets: &[Target]) {
    if attacker.victim.state() != QpState::Rts {
        attacker.revive();
    }
    let target = rng.pick(targets);
    let own = RemoteAddr {
        addr: attacker.victim.memory().base(),
        rkey: attacker.victim.key(),
    };
    let foreign = RemoteAddr {
        addr: target.addr,
        rkey: target.rkey,
    };
    let at = if rng.per_mille(500) { own } else { foreign };
    let ahead = rng.pick(&[0, 0, 0, 1, 2, u32::MAX, u32::MAX - 3]);
    let psn = attacker.victim.expected_psn().plus(ahead);
    let bytes = packet(rng, attacker.victim.qpn(), psn, at);
    attacker.peer.send_packet(&bytes);
}

/// Attacks until told to stop.
pub(crate) fn run_until(
    stop: &AtomicBool,
    seed: u64,
    (bench, targets, port): (&Bench, &[Target], u16),
) {
    let _guard = StopOnPanic(stop);
    let attacker = Attacker::new(bench);
    let mut rng = Rng::new(seed);
    let mut count = 0_u64;
    while !stop.load(Ordering::Relaxed) || count < LEAST {
        for _ in 0..BURST {
            if rng.per_mille(300) {
                familiar(&attacker, &mut rng, targets);
            } else {
                strange(&attacker, &mut rng, targets, port);
            }
            count += 1;
        }
        std::thread::park_timeout(PAUSE);
    }
    println!("attacker {seed}: {count} packets");
}
