//! The unreliable datagram transport: one [`UdQp`] is a queue pair. Each send work request is one
//! packet to a destination of its own; nothing is acknowledged, repeated or put in order.
//!
//! The owner drives it as it drives an [`RcQp`](crate::rc::RcQp), with two differences:
//! [`next_datagram`](UdQp::next_datagram) says where the next packet goes, and a packet comes in
//! with the [`GrhRoute`] that it took, of which the program gets the GRH.
//!
//! | module | holds |
//! |---|---|
//! | `send` | posted work to packets |
//! | `receive` | packets to receive completions |
//! | `grh` | the 40 bytes in front of a received datagram |

mod grh;
mod receive;
mod send;

use alloc::collections::VecDeque;

use crate::ids::Psn;
use crate::qp::Limits;
use crate::rc::config::QpShared;
use crate::rc::modify::{assign, check};
use crate::rc::responder::flush_recvs;
use crate::rc::{Cx, ModifyError, RcConfig};
use crate::verbs::{AttrMask, Mtu, QpAttr, QpEvent, QpState, RecvWr, SendWr};
use crate::wire::Packet;

pub use grh::{GRH_LEN, GrhRoute};

const LIMITS: Limits = Limits {
    max_rd_atomic: 0,
    max_dest_rd_atomic: 0,
    max_mtu: Mtu::B4096,
};

/// An unreliable datagram queue pair.
#[derive(Debug)]
pub struct UdQp {
    shared: QpShared,
    send: VecDeque<SendWr>,
    recv: VecDeque<RecvWr>,
    psn: Psn,
    /// Most payload bytes of a packet.
    mtu: u32,
    comm_established: bool,
}

impl UdQp {
    /// A queue pair in RESET. `mtu` is the port's active MTU: a datagram is one packet.
    #[must_use]
    pub fn new(config: RcConfig, mtu: Mtu) -> Self {
        Self {
            shared: QpShared::new(config),
            send: VecDeque::new(),
            recv: VecDeque::new(),
            psn: Psn::default(),
            mtu: mtu.bytes(),
            comm_established: false,
        }
    }

    /// Sets the port's active MTU, which follows its interface.
    pub fn set_mtu(&mut self, mtu: Mtu) {
        self.mtu = mtu.bytes();
    }

    /// Whether a packet has another queue key than this queue pair's, so that it is not taken.
    #[must_use]
    pub fn refuses_key(&self, packet: &Packet<'_>) -> bool {
        let deth = packet.ext.deth;
        deth.is_some_and(|deth| deth.qkey != self.shared.attr.qkey)
    }

    /// Current state.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.shared.attr.qp_state
    }

    /// `ibv_modify_qp`: see [`RcQp::modify`](crate::rc::RcQp::modify).
    ///
    /// # Errors
    /// EINVAL with the reason; nothing was changed.
    pub fn modify(
        &mut self,
        cx: &mut Cx<'_>,
        attr: &QpAttr,
        mask: AttrMask,
    ) -> Result<(), ModifyError> {
        let from = self.state();
        // Packets leave as they are built, so between two of them the queue is drained.
        let to = check(&self.shared, attr, mask, &LIMITS, true)?;
        assign(&mut self.shared.attr, attr, mask);
        match (from, to) {
            (_, QpState::Reset) => {
                self.reset();
                return Ok(());
            }
            (_, QpState::Err) => self.enter_error(cx),
            (QpState::Rtr, QpState::Rts) => self.psn = self.shared.attr.sq_psn,
            (QpState::Rts, QpState::Sqd) if self.shared.attr.en_sqd_async_notify => {
                cx.sink.event(QpEvent::SqDrained);
            }
            _ => {}
        }
        self.shared.attr.qp_state = to;
        Ok(())
    }

    /// Current attributes (`ibv_query_qp`).
    #[must_use]
    pub fn query(&self) -> QpAttr {
        let mut attr = QpAttr {
            cur_qp_state: self.state(),
            ..self.shared.attr
        };
        if !matches!(self.state(), QpState::Reset | QpState::Init) {
            attr.sq_psn = self.psn;
        }
        attr
    }

    /// Goes to RESET: everything is forgotten without completions.
    fn reset(&mut self) {
        self.shared.reset();
        self.send.clear();
        self.recv.clear();
        self.comm_established = false;
    }

    /// A completion queue that it uses has overflowed, by whatever queue pair: goes to ERR, unless
    /// it is in RESET.
    pub fn on_cq_overflow(&mut self, cx: &mut Cx<'_>) {
        if !matches!(self.state(), QpState::Reset | QpState::Err) {
            self.on_overflow(cx);
        }
    }

    /// A completion found no room, and none can tell that the queue pair ends.
    fn on_overflow(&mut self, cx: &mut Cx<'_>) {
        cx.sink.event(QpEvent::Fatal);
        self.enter_error(cx);
    }

    /// Goes to ERR: all work requests are flushed.
    fn enter_error(&mut self, cx: &mut Cx<'_>) {
        let first_time = self.state() != QpState::Err;
        self.shared.attr.qp_state = QpState::Err;
        self.flush_send(cx);
        flush_recvs(&mut self.recv, &self.shared, cx);
        if self.shared.config.shared_recv && first_time {
            cx.sink.event(QpEvent::LastWqeReached);
        }
    }
}
