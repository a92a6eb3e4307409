//! Changes of the queue pairs' attributes and states, and their ends.

use ferroce_conformance::door::EINVAL;
use ferroce_conformance::end::{to_init, to_rtr, to_rts};
use ferroce_proto::ids::{Gid, Psn, Qpn};
use ferroce_proto::verbs::{AttrMask, QpAttr, QpState};

use super::super::input::Input;
use super::player::Player;
use super::{World, rights};

const STATES: [QpState; 7] = ferroce_conformance::cases::states::STATES;

impl World {
    /// Any change of attributes.
    pub(super) fn change(&mut self, input: &mut Input<'_>, who: usize) {
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
            // What had completed is forgotten with the rest, or still there: neither is told apart
            // here.
            player.forget();
            while player.end.side().poll().is_ok_and(|wc| wc.is_some()) {}
        }
    }

    /// One step on the way to RTS.
    pub(super) fn go_on(&mut self, who: usize) {
        let peer = self.players[1 - who].end.qpn();
        let end = &self.players[who].end;
        let kind = self.specs[who].qp_type;
        let before = end.state();
        let (qp_state, mask) = match before {
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
        let went = end.side().modify(&attr, mask);
        // A packet that was still on its way may have ruined it in RTR, and only there.
        let ruined = before == QpState::Rtr && went == Err(EINVAL) && end.state() == QpState::Err;
        assert!(went == Ok(()) || ruined, "to {qp_state}: {went:?}");
    }

    pub(super) fn reconnect(&mut self) {
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
            self.players[who].connect(peer);
        }
    }

    /// Destroys an end as it is, and makes another.
    pub(super) fn replace(&mut self, input: &mut Input<'_>, who: usize) {
        if input.below(2) == 0 {
            self.players[who].finish();
        }
        self.players[who] = Player::new(&self.bench, self.specs[who]);
    }
}
