//! Anything may come from a peer, and anything may be asked by the program: no panic, no loop, no
//! lost or double completion.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use std::collections::VecDeque;
use std::time::Duration;

use common::{bytes, seeds};
use ferroce_proto::ids::{Key, Msn, Psn};
use ferroce_proto::mr::{Access, WindowBind, WindowType};
use ferroce_proto::rc::LinkTraits;
use ferroce_proto::testkit::{Arena, Faults, Pair, Rng, Setup, Side, sge, wr};
use ferroce_proto::verbs::{
    AttrMask, Payload, QpAttr, QpState, RemoteAddr, SendFlags, SendOp, Sge, WcStatus,
};
use ferroce_proto::wire::{
    Aeth, AtomicEth, Bth, ExtHeaders, HeaderSet, Opcode, Packet, Reth, Syndrome,
};

/// One queue pair that is ill-treated, and what it must still tell.
struct Victim {
    pair: Pair,
    rng: Rng,
    keys: Vec<Key>,
    /// Posted send work requests without completion: number, signalled.
    sends: VecDeque<(u64, bool)>,
    recvs: VecDeque<u64>,
    next: u64,
    seen: (usize, usize),
}

impl Victim {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::new(Setup {
            seed,
            memory: 1 << 16,
            psn: rng.pick(&[0, 0xff_fff0, 77]),
            rd_atomic: rng.pick(&[1, 2, 16]),
            rnr_retry: rng.pick(&[0, 3, 7]),
            timeout: rng.pick(&[0, 5, 14]),
            link: LinkTraits {
                lossless: rng.per_mille(300),
                max_in_flight: rng.pick(&[0, 1000, 65536, u32::MAX]),
            },
            faults: Faults {
                drop: 50,
                duplicate: 50,
                reorder: 50,
            },
            ..Setup::default()
        });
        let mut keys = vec![
            pair.key(Side::A),
            pair.key(Side::B),
            Key(0),
            Key(0xffff_ffff),
        ];
        for node in [&mut pair.a, &mut pair.b] {
            keys.push(node.register(100, 1000, Access::all()));
            keys.push(node.register(0, 5000, Access::REMOTE_READ));
            keys.push(node.bound_window(0, 5000, Access::all()));
        }
        Self {
            pair,
            rng,
            keys,
            sends: VecDeque::new(),
            recvs: VecDeque::new(),
            next: 0,
            seen: (0, 0),
        }
    }

    fn key(&mut self) -> Key {
        // Mostly one that works, so that something happens.
        if self.rng.per_mille(700) {
            self.keys[0]
        } else {
            self.rng.pick(&self.keys.clone())
        }
    }

    fn length(&mut self) -> u32 {
        let n = self.rng.below32(6000);
        self.rng
            .pick(&[0, 1, 8, 1023, 1024, 1025, 2048, n, n, 1 << 31, u32::MAX])
    }

    fn address(&mut self) -> u64 {
        let n = Arena::BASE + self.rng.below(1 << 16);
        self.rng.pick(&[n & !7, n & !7, n & !7, n, 0, u64::MAX])
    }

    fn syndrome(&mut self) -> Syndrome {
        let random = self.rng.bits() as u8;
        let byte = self.rng.pick(&[
            0x1f, 0x1f, 0x1f, 0x20, 0x21, 0x60, 0x60, 0x61, 0x62, 0x63, 0x64, random,
        ]);
        Syndrome::decode(byte)
    }

    /// A packet that could come from a peer that is broken or worse.
    fn packet(&mut self) -> Vec<u8> {
        let attr = self.pair.a.qp.query();
        let near = self.rng.below32(12).wrapping_sub(4);
        let near = if self.rng.per_mille(600) { 0 } else { near };
        let any = Psn::new(self.rng.bits() as u32);
        let base = self.rng.pick(&[
            attr.rq_psn,
            attr.rq_psn,
            attr.sq_psn,
            attr.sq_psn.plus(0xff_fffe),
            any,
        ]);
        let raw = if self.rng.per_mille(900) {
            self.rng.below32(0x18)
        } else {
            self.rng.below32(256)
        };
        let opcode = Opcode(raw as u8);
        let headers = opcode
            .info()
            .map_or(HeaderSet::empty(), |info| info.headers);
        let reth = Reth {
            va: self.address(),
            rkey: self.key(),
            length: self.length(),
        };
        let atomic = AtomicEth {
            va: self.address(),
            rkey: self.key(),
            swap_or_add: 1,
            compare: 0,
        };
        let aeth = Aeth {
            syndrome: self.syndrome(),
            msn: Msn::new(self.rng.bits() as u32),
        };
        let ext = ExtHeaders {
            reth: headers.contains(HeaderSet::RETH).then_some(reth),
            atomic: headers.contains(HeaderSet::ATOMIC).then_some(atomic),
            aeth: headers.contains(HeaderSet::AETH).then_some(aeth),
            atomic_ack: headers.contains(HeaderSet::ATOMIC_ACK).then_some(5),
            imm: headers.contains(HeaderSet::IMM).then_some([1; 4]),
            ieth: headers.contains(HeaderSet::IETH).then(|| self.keys[6]),
            ..ExtHeaders::default()
        };
        let has_payload = opcode.info().is_none_or(|info| info.has_payload);
        let len = if has_payload {
            (self.length() % 5000) as usize
        } else {
            0
        };
        let payload = bytes(&mut self.rng, len);
        let bth = Bth {
            ack_req: self.rng.per_mille(500),
            solicited: self.rng.per_mille(100),
            ..Bth::new(opcode, self.pair.a.qp.config().qpn, base.plus(near))
        };
        let mut out = Vec::new();
        Packet {
            bth,
            ext,
            payload: &payload,
        }
        .emit(&mut out);
        out
    }

    fn post_send(&mut self) {
        let to = RemoteAddr {
            addr: self.address(),
            rkey: self.key(),
        };
        let op = match self.rng.below(10) {
            0 => SendOp::Send,
            1 => SendOp::SendImm([0; 4]),
            2 => SendOp::SendInvalidate(self.keys[9]),
            3 => SendOp::Write(to),
            4 => SendOp::WriteImm(to, [0; 4]),
            5 => SendOp::Read(to),
            6 => SendOp::FetchAdd { remote: to, add: 1 },
            7 => SendOp::CompareSwap {
                remote: to,
                compare: 1,
                swap: 2,
            },
            8 => SendOp::BindWindow(WindowBind {
                window: self.keys[6],
                key: self.keys[6],
                kind: WindowType::Two,
                region: Some(to.rkey),
                addr: to.addr,
                length: self.rng.below(64),
                access: Access::REMOTE_WRITE,
            }),
            _ => SendOp::LocalInvalidate(self.keys[6]),
        };
        let list = self.list();
        let mut request = wr(self.next, op, list);
        request.flags = SendFlags::from_bits_truncate(self.rng.below32(16));
        if self.rng.per_mille(100) {
            request.payload = Payload::Inline(vec![1; 20].into());
        }
        let signalled = request.flags.contains(SendFlags::SIGNALED);
        if self.pair.try_send(Side::A, request).is_ok() {
            self.sends.push_back((self.next, signalled));
        }
        self.next += 1;
    }

    fn list(&mut self) -> Vec<Sge> {
        (0..self.rng.below(4))
            .map(|_| {
                let key = self.key();
                let length = self.length() % 4000;
                sge(key, self.rng.below(60_000), length)
            })
            .collect()
    }

    fn post_recv(&mut self) {
        let sges = self.list();
        let wr = ferroce_proto::verbs::RecvWr {
            wr_id: self.next,
            sges: sges.into(),
        };
        let now = self.pair.now;
        if self.pair.a.with(now, |qp, cx| qp.post_recv(cx, wr)).is_ok() {
            self.recvs.push_back(self.next);
        }
        self.next += 1;
    }

    fn modify(&mut self) {
        let state = self.rng.pick(&[
            QpState::Rtr,
            QpState::Rts,
            QpState::Sqd,
            QpState::Err,
            QpState::Reset,
            QpState::Init,
        ]);
        let (mut attr, mut mask) = self.pair.step_attr(Side::A, state);
        if self.rng.per_mille(300) {
            mask = AttrMask::STATE | AttrMask::from_bits_truncate(self.rng.bits() as u32);
        } else if self.rng.per_mille(300) {
            mask = AttrMask::STATE;
        }
        attr.max_rd_atomic = self.rng.below32(6) as u8;
        attr.max_dest_rd_atomic = self.rng.below32(6) as u8;
        attr.path_mtu = self.pair.a.qp.query().path_mtu;
        let now = self.pair.now;
        let done = self
            .pair
            .a
            .with(now, |qp, cx| qp.modify(cx, &attr, mask))
            .is_ok();
        if done && state == QpState::Reset {
            self.reap();
            self.sends.clear();
            self.recvs.clear();
        }
    }

    fn act(&mut self) {
        let now = self.pair.now;
        match self.rng.below(100) {
            0..40 => {
                let bytes = self.packet();
                if let Ok(packet) = Packet::parse(&bytes) {
                    self.pair.a.with(now, |qp, cx| qp.on_packet(cx, &packet));
                }
            }
            40..65 => self.post_send(),
            65..80 => self.post_recv(),
            80..90 => {
                self.pair.step(now + Duration::from_millis(100));
            }
            90..92 => self.pair.a.with(now, |qp, cx| qp.on_deadline(cx)),
            92 => self.pair.a.with(now, |qp, cx| qp.on_dropped(cx)),
            93 => {
                let link = LinkTraits {
                    lossless: self.rng.per_mille(500),
                    max_in_flight: self.rng.below32(100_000),
                };
                self.pair.a.qp.set_link(link);
            }
            94 if self.rng.per_mille(200) => {
                self.pair.a.with(now, |qp, cx| qp.on_peer_dead(cx));
            }
            95 => {
                let key = self.rng.pick(&self.keys.clone());
                if self.rng.per_mille(100) {
                    self.pair.a.rights.remove(key);
                }
            }
            96..98 => self.modify(),
            _ => self.pair.transmit(Side::A),
        }
        self.reap();
    }

    /// Every completion belongs to the oldest work requests: only unsignalled ones may be passed
    /// over.
    fn reap(&mut self) {
        let results = &self.pair.a.results;
        for (wc, _) in &results.send[self.seen.0..] {
            loop {
                let (id, signalled) = self
                    .sends
                    .pop_front()
                    .expect("a completion of something posted");
                if id == wc.wr_id {
                    assert!(signalled || wc.status != WcStatus::Success);
                    break;
                }
                assert!(!signalled, "{id} was passed over by {wc:?}");
            }
        }
        for (wc, _) in &results.recv[self.seen.1..] {
            assert_eq!(self.recvs.pop_front(), Some(wc.wr_id));
        }
        self.seen = (results.send.len(), results.recv.len());
        if self.pair.a.qp.state() == QpState::Err {
            assert!(
                self.sends.iter().all(|(_, signalled)| !signalled),
                "all is flushed"
            );
            self.sends.clear();
            assert!(self.recvs.is_empty(), "all is flushed");
            assert_eq!(self.pair.a.qp.deadline(), None);
        }
    }
}

#[test]
fn nothing_a_peer_or_a_program_does_confuses_a_queue_pair() {
    for seed in seeds(3000) {
        let outcome = std::panic::catch_unwind(|| {
            let mut victim = Victim::new(seed);
            for _ in 0..120 {
                victim.act();
            }
            if victim.pair.a.qp.state() != QpState::Reset {
                victim.pair.to_state(Side::A, QpState::Err);
            }
            victim.reap();
            victim.pair.transmit(Side::A);
            assert!(!victim.pair.a.qp.wants_transmit());
        });
        if let Err(panic) = outcome {
            eprintln!("failed with seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn attributes_of_a_queue_pair_in_reset_do_not_survive() {
    let mut pair = Pair::new(Setup::default());
    pair.to_state(Side::A, QpState::Reset);
    let attr = pair.a.qp.query();
    assert_eq!(
        attr,
        QpAttr {
            cap: attr.cap,
            ..QpAttr::default()
        }
    );
}
