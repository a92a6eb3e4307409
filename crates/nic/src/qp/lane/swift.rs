//! The shortest way of a short SEND: from what the program posts into a slot of the lane, past all batches.

use ferroce_os::memory::RawMemory;
use ferroce_os::ring::LONGEST;
use ferroce_proto::rc::RcQp;
use ferroce_proto::verbs::SendWr;

use super::Lanes;
use crate::core::read;
use crate::path::Carrier;
use crate::qp::Qp;
use crate::qp::step::Locked;
use crate::qp::transport::Transport;

impl Qp {
    /// Queues one SEND and sends it at once, if a lane runs and nothing else is to be done with it or before it. If not, returns it.
    #[inline]
    pub(in crate::qp) fn send_swiftly(&self, locked: &mut Locked, wr: SendWr) -> Option<SendWr> {
        let Some((rc, lanes)) = swift_way(locked) else {
            return Some(wr);
        };
        let mut room = [0; LONGEST];
        let written = {
            let rights = read(self.nic().rights());
            rc.write_swiftly((&rights, &RawMemory), &wr, &mut room)
        };
        match written {
            Some(len) if lanes.push(&room[..len]) => {
                rc.sent_swiftly(wr);
                lanes.wake();
                self.tally.count_tx(1, len);
                None
            }
            _ => Some(wr),
        }
    }
}

/// The transport and the lanes, if one runs and nothing else is under way on this side of the transport.
#[inline]
fn swift_way(locked: &mut Locked) -> Option<(&mut RcQp, &mut Lanes)> {
    let is_usual = !locked.queued
        && !locked.retired
        && locked.talk.is_idle()
        && locked.report.packets == Some(Carrier::Lane)
        && locked.fails_at.is_none()
        && locked.granted.is_some();
    let Transport::Rc(rc) = &mut locked.transport else {
        return None;
    };
    let out = locked.lanes.out.as_ref()?;
    let may = is_usual && out.runs() && !out.link.seems_asleep();
    may.then_some((rc, &mut locked.lanes))
}
