//! WRITEs, READs and atomics without FPDUs, between two processes of one host. The rules are those
//! of RoCEv2's ([`rc::direct`](crate::rc::DirectOp)), with two differences.
//!
//! There are no acknowledgements and no PSNs: the numbers of FPDUs stand for them. An operation is
//! carried out only if the peer has processed all that this end has sent. The peer publishes how
//! many FPDUs that were ([`Grant::expected`]). So nothing overtakes anything, and a READ finds what
//! was written before it.
//!
//! Nobody tells this end when the peer has caught up, so nothing waits for that: work that meets
//! FPDUs on their way goes by FPDUs. A WRITE with immediate takes a receive, and goes by them too.

use super::sends::{WorkFault, Wqe};
use super::{Gate, IwQp};
use crate::ids::{Psn, Qpn};
use crate::mr::{Access, Pieces, Rights, RightsError};
use crate::rc::direct::Moved;
use crate::rc::fault::Fault;
use crate::rc::scatter::{self, Extent, Opener};
use crate::rc::{Cx, Direct, DirectOp, Grant};
use crate::verbs::{Payload, QpState, RemoteAddr, SendOp};

/// The oldest work request, where it may be carried out without FPDUs.
struct Front<'a> {
    serial: u64,
    wqe: &'a Wqe,
    op: DirectOp,
    remote: RemoteAddr,
    /// Bytes that are done.
    done: u32,
}

impl IwQp {
    /// What the owner may do in place of [`transmit`](Self::transmit), if anything. `dest` is the
    /// peer's queue pair.
    #[must_use]
    pub fn next_direct(&self, dest: Qpn) -> Option<Direct> {
        let (front, stream) = (self.direct()?, self.stream.as_ref()?);
        Some(Direct {
            op: front.op,
            dest,
            psn: Psn::new(stream.outgoing.pushed()),
            remote: RemoteAddr {
                addr: front.remote.addr.wrapping_add(front.done.into()),
                ..front.remote
            },
            len: front.wqe.length - front.done,
        })
    }

    /// The next `len` bytes in this process's memory, in order.
    ///
    /// # Errors
    /// A local key does not open them.
    pub fn direct_pieces<'a>(
        &'a self,
        rights: &'a Rights,
        len: u32,
    ) -> Result<Pieces<'a>, RightsError> {
        let Some(front) = self.direct() else {
            return Ok(Pieces::new());
        };
        let by = Opener {
            pd: self.shared.config.pd,
            need: front.op.needs_here(),
        };
        let offset = front.done;
        scatter::pieces(rights, by, &front.wqe.wr.payload, Extent { offset, len })
    }

    /// The next `len` bytes were moved. Completes the work request if they were the last.
    pub fn on_direct(&mut self, cx: &mut Cx<'_>, len: u32) {
        let Some(front) = self.direct() else { return };
        let (serial, done, length) = (front.serial, front.done + len, front.wqe.length);
        if done < length {
            self.sends.moved = Moved::Bytes(done);
            return;
        }
        self.sends.moved = Moved::default();
        let outcome = self.sends.done(&self.shared, cx.sink, serial);
        self.settle(cx, outcome);
    }

    /// The atomic was carried out and found `original`. Completes the work request.
    pub fn on_direct_atomic(&mut self, cx: &mut Cx<'_>, original: u64) {
        let Some(front) = self.direct() else { return };
        let (serial, pd) = (front.serial, self.shared.config.pd);
        let placed = match &front.wqe.wr.payload {
            Payload::Sges(sges) => scatter::scatter(cx, pd, sges, 0, &original.to_ne_bytes()),
            Payload::Inline(_) => Ok(()),
        };
        let outcome = placed
            .map_err(|_| WorkFault::Of(serial, Fault::LOCAL_KEY))
            .and_then(|()| self.sends.done(&self.shared, cx.sink, serial));
        self.settle(cx, outcome);
    }

    /// The oldest work request cannot be carried out so: it goes by FPDUs, from its first byte on.
    pub fn refuse_direct(&mut self) {
        self.sends.moved = Moved::Refused;
    }

    /// What this queue pair grants its peer now, whose number is `peer`.
    #[must_use]
    pub fn grant(&self, peer: Qpn) -> Option<Grant> {
        let stream = self.stream.as_ref().filter(|_| self.is_running())?;
        let answered = Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let mut access = self.shared.attr.qp_access_flags & (Access::REMOTE_WRITE | answered);
        if self.shared.attr.max_dest_rd_atomic == 0 {
            access.remove(answered);
        }
        Some(Grant {
            peer,
            expected: Psn::new(stream.processed),
            access,
        })
    }

    /// Whether the stream carries messages both ways.
    fn is_running(&self) -> bool {
        let stream = self.stream.as_ref();
        let is_open = stream.is_some_and(|stream| stream.gate == Gate::Open);
        is_open && self.state() == QpState::Rts && self.ended.is_none() && !self.is_closing
    }

    /// The oldest work request, if nothing of this end is on its way or about to go.
    fn direct(&self) -> Option<Front<'_>> {
        let Moved::Bytes(done) = self.sends.moved else {
            return None;
        };
        let stream = self.stream.as_ref().filter(|_| self.is_running())?;
        let is_idle = stream.outgoing.left() == 0
            && self.turn.is_between_messages()
            && self.serves.front().is_none()
            && self.sends.asked.is_empty();
        let (serial, wqe) = self.sends.untouched().filter(|_| is_idle)?;
        let (op, remote) = match wqe.wr.op {
            SendOp::WriteImm(..) => None,
            other => DirectOp::of(&other),
        }?;
        let may = op == DirectOp::Write || self.shared.attr.max_rd_atomic > 0;
        (may && wqe.length > 0).then_some(Front {
            serial,
            wqe,
            op,
            remote,
            done,
        })
    }
}
