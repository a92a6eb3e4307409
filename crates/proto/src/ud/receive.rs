//! Packets to receive completions.

use super::{GRH_LEN, GrhRoute, LIMITS, UdQp};
use crate::rc::fault::Fault;
use crate::rc::requester::failed;
use crate::rc::responder::recv_completion;
use crate::rc::{Cx, SharedRecv, post, scatter};
use crate::verbs::{PostError, QpEvent, QpState, RecvWr, Wc, WcFlags, WcImm};
use crate::wire::{Deth, Operation, Packet, Service};

impl UdQp {
    /// Queues a receive work request. In ERR it is accepted and flushed.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_recv(&mut self, cx: &mut Cx<'_>, wr: RecvWr) -> Result<(), PostError> {
        post::check_recv(&self.shared, wr.sges.len(), self.recv.len())?;
        self.recv.push_back(wr);
        if self.state() == QpState::Err {
            self.enter_error(cx);
        }
        Ok(())
    }

    /// A packet for this queue pair, or for a group that it is in, whose `P_Key` and ICRC were
    /// right. Returns false if it was dropped: wrong state, wrong `Q_Key`, not a datagram, too
    /// long. Without a receive it is dropped as well, as datagrams are.
    pub fn on_packet(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>, route: &GrhRoute) -> bool {
        let receives = matches!(
            self.state(),
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        );
        let Some(deth) = self.admit(packet).filter(|_| receives) else {
            return false;
        };
        if self.state() == QpState::Rtr && !self.comm_established {
            self.comm_established = true;
            cx.sink.event(QpEvent::CommEstablished);
        }
        let Some(recv) = self.take_recv(cx) else {
            return true;
        };
        let wc = recv_completion(&self.shared, &recv.wr);
        let done = place(cx, &recv, packet, route).map(|byte_len| Wc {
            byte_len,
            src_qp: deth.src_qp,
            imm: packet.ext.imm.map(WcImm::Imm),
            sl: route.packet_type(),
            flags: WcFlags::GRH,
            ..wc
        });
        match done {
            Ok(wc) => {
                if !cx.sink.recv_completion(wc, packet.bth.solicited) {
                    self.on_overflow(cx);
                }
            }
            Err(fault) => {
                cx.sink.recv_completion(failed(wc, fault), true);
                self.enter_error(cx);
            }
        }
        true
    }

    /// The datagram header, if this is a datagram with the right `Q_Key` (IBTA 9.6.1) that is not
    /// longer than the largest MTU allows. Without that limit a stranger could end the queue pair
    /// of every program whose receives have room for one packet.
    fn admit(&self, packet: &Packet<'_>) -> Option<Deth> {
        let info = packet.bth.opcode.info()?;
        let is_datagram = info.service == Service::Ud
            && matches!(info.operation, Operation::Send | Operation::SendImm)
            && packet.payload.len() <= LIMITS.max_mtu.bytes() as usize;
        packet
            .ext
            .deth
            .filter(|deth| is_datagram && deth.qkey == self.shared.attr.qkey)
    }

    fn take_recv(&mut self, cx: &mut Cx<'_>) -> Option<SharedRecv> {
        if self.shared.config.shared_recv {
            return cx.sink.take_shared_recv();
        }
        Some(SharedRecv {
            wr: self.recv.pop_front()?,
            pd: self.shared.config.pd,
        })
    }
}

/// Puts the GRH and the payload into the buffers. Returns the bytes of both.
fn place(
    cx: &Cx<'_>,
    recv: &SharedRecv,
    packet: &Packet<'_>,
    route: &GrhRoute,
) -> Result<u32, Fault> {
    let (sges, pd) = (&recv.wr.sges, recv.pd);
    let bytes = GRH_LEN + packet.payload.len();
    let byte_len = u32::try_from(bytes).map_err(|_| Fault::MESSAGE_TOO_LONG)?;
    if scatter::total(sges) < u64::from(byte_len) {
        return Err(Fault::MESSAGE_TOO_LONG);
    }
    let grh = route.grh(packet.wire_len());
    scatter::scatter(cx, pd, sges, 0, &grh)
        .and_then(|()| scatter::scatter(cx, pd, sges, GRH_LEN as u64, packet.payload))
        .map_err(|_| Fault::LOCAL_KEY)?;
    Ok(byte_len)
}
