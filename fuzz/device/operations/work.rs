//! Work requests of any kind, right and wrong.

use ferroce_conformance::Entry;
use ferroce_conformance::bench::QKEY;
use ferroce_proto::ids::{Key, Qpn, Srqn};
use ferroce_proto::mr::{WindowBind, WindowType};
use ferroce_proto::verbs::{
    Datagram, Flush, Payload, Placement, QpType, RecvWr, RemoteAddr, Selectivity, SendFlags,
    SendOp, SendTo, SendWr, Sge,
};

use super::super::input::Input;
use super::{MEMORY, World, rights};

impl World {
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

    pub(super) fn post_send(&mut self, input: &mut Input<'_>, who: usize) {
        let op = self.operation(input, who);
        let mut flags = SendFlags::from_bits_truncate(u32::from(input.u8() & 7));
        let payload = if input.below(8) == 0 {
            flags |= SendFlags::INLINE;
            let len = usize::from(input.u8() & 63);
            Payload::Inline(input.take(len).into())
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

    pub(super) fn post_recv(&mut self, input: &mut Input<'_>, who: usize) {
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
}
