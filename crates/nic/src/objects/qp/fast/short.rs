//! Short messages to a process of this host go out at once: see
//! [`RcQp::poll_short`](ferroce_proto::rc::RcQp::poll_short). What is sent, and what is known
//! afterwards, is as after [`Qp::transmit`], which does everything else.

use ferroce_proto::rc::Cx;

use crate::base::carrier::Carrier;
use crate::link::path::{Path, Reach};
use crate::objects::qp::Qp;
use crate::objects::qp::input::fail_soon;
use crate::objects::qp::locked::Locked;
use crate::objects::qp::step::Now;
use crate::objects::qp::transport::Transport;

impl Qp {
    /// Builds what there is to send, if that is a short message and nothing else, and its link is a
    /// ring that has room. Returns whether it did: then [`send_short`](Self::send_short) is next,
    /// and there is nothing to transmit.
    pub(in crate::objects::qp) fn build_short(&self, locked: &mut Locked, cx: &mut Cx<'_>) -> bool {
        let is_known = matches!(
            locked.report.packets,
            Some(Carrier::Ring | Carrier::ShortRing)
        );
        if locked.queued || locked.retired || !is_known || self.goes_by_short_ring(locked) {
            return false;
        }
        let (Transport::Rc(rc), Some(path)) = (&mut locked.transport, &locked.path) else {
            return false;
        };
        let Reach::Link(egress) = &path.reach else {
            return false;
        };
        if egress.carrier() != Carrier::Ring || egress.is_blocked() {
            return false;
        }
        let batch = &mut locked.short;
        let Some(first) = rc.poll_short(cx, &mut batch.bytes) else {
            return false;
        };
        batch.addressing = path.addressing;
        if first > 0 {
            batch.ends.push(first);
        }
        batch.ends.push(batch.bytes.len());
        true
    }

    /// Sends what was built.
    pub(in crate::objects::qp) fn send_short(&self, locked: &mut Locked, now: &mut Now) {
        if !self.send_by_short_ring(locked) {
            self.send_by_ring(locked, now);
        }
        // On a lossless link packets start no timer, unless one was dropped.
        if locked.transport.deadline().or(locked.fails_at).is_some() {
            self.keep_timer(locked);
        }
    }

    fn send_by_ring(&self, locked: &mut Locked, now: &mut Now) {
        let Some(Path {
            reach: Reach::Link(egress),
            ..
        }) = &locked.path
        else {
            return;
        };
        let (packets, bytes) = (locked.short.ends.len(), locked.short.bytes.len());
        if egress.send_from(self.qpn, &mut locked.short) {
            self.tally.count_tx(packets, bytes);
            self.note_packets(locked, Carrier::Ring);
        } else if egress.has_ended() {
            fail_soon(locked, now.look());
        }
    }
}
