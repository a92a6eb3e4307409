//! What peers, networks and programs do besides posting work.

use ferroce_proto::ids::Psn;
use ferroce_proto::mr::Access;
use ferroce_proto::testkit::Side;
use ferroce_proto::verbs::{AttrMask, QpState};
use ferroce_proto::wire::Packet;

use super::super::input::Input;
use super::World;

const STATES: [QpState; 7] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Sqd,
    QpState::Sqe,
    QpState::Err,
];

impl World {
    /// A packet that was seen arrives again, with some of its bytes changed.
    pub(super) fn repeat_or_change(&mut self, input: &mut Input<'_>, side: Side) {
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

    pub(super) fn raw_packet(&mut self, input: &mut Input<'_>, side: Side) {
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

    pub(super) fn modify(&mut self, input: &mut Input<'_>, side: Side) {
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

    pub(super) fn change_rights(&mut self, input: &mut Input<'_>, side: Side) {
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
                    // Refused for anything but a window that the queue pair has bound.
                    let by = node.accessor();
                    let _ = node.rights.invalidate(key, by);
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

    pub(super) fn disturb(&mut self, input: &mut Input<'_>, side: Side) {
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
    pub(super) fn reconnect(&mut self, side: Side) {
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
}
