//! Carrying out requests that came in order: lengths, keys, placement, completion.

use core::sync::atomic::{Ordering, fence};

use super::Cx;
use super::config::{MAX_MESSAGE, QpShared, packets_of};
use super::fault::{Fault, Reject};
use super::message::PartialMessage;
use super::resources::{AnswerKind, Resource};
use super::responder::{Responder, Stop, recv_completion};
use super::scatter;
use super::target::{HeldReceive, Target};
use crate::ids::Psn;
use crate::mr::Access;
use crate::verbs::{Wc, WcImm, WcOpcode};
use crate::wire::{AtomicEth, Feth, NakCode, OpInfo, Operation, Packet, Reth, Selectivity};

impl Responder {
    /// Carries out a request that came in order.
    pub(crate) fn execute(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Stop> {
        let invalid = Reject::invalid(packet.bth.psn);
        // Opcodes of UC and UD are as unknown to an RC queue pair as undefined ones.
        let info = packet
            .bth
            .opcode
            .info()
            .filter(|info| info.service == shared.config.service())
            .ok_or(invalid)?;
        let target = Target::of(shared, cx, packet)?;
        // All packets of a message name one XRC shared receive queue.
        if self.message.as_ref().is_some_and(|m| m.target() != target) {
            return Err(invalid.into());
        }
        match info.operation {
            Operation::Send | Operation::SendImm | Operation::SendInvalidate => {
                self.on_send(shared, cx, packet, info, target)
            }
            Operation::Write | Operation::WriteImm => {
                self.on_write(shared, cx, packet, info, target)
            }
            // No other request may come inside a message: the sequence of opcodes is a check of
            // IBTA volume 1, chapter 9.
            _ if self.message.is_some() => Err(invalid.into()),
            Operation::PlacedImm
            | Operation::Rendezvous
            | Operation::RendezvousImm
            | Operation::RendezvousWriteImm => {
                self.execute_within_host(shared, cx, packet, info.operation, target)
            }
            operation => self
                .execute_answered(shared, cx, packet, operation, target)
                .map_err(Stop::Reject),
        }
    }

    /// Carries out a request whose bytes do not come in packets. Only a process of this host sends
    /// such ones.
    fn execute_within_host(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        operation: Operation,
        target: Target,
    ) -> Result<(), Stop> {
        let ext = &packet.ext;
        match (operation, ext.reth, ext.imm, ext.atomic) {
            _ if !shared.link.lossless => Err(Reject::invalid(packet.bth.psn).into()),
            (Operation::PlacedImm, Some(reth), Some(imm), _) => {
                self.on_placed(shared, cx, packet, reth, imm, target)
            }
            (
                Operation::Rendezvous | Operation::RendezvousImm | Operation::RendezvousWriteImm,
                ..,
                Some(request),
            ) => self.on_rendezvous(shared, cx, packet, request, target),
            _ => Err(Reject::invalid(packet.bth.psn).into()),
        }
    }

    /// Carries out a request that is answered by a response of its own.
    fn execute_answered(
        &mut self,
        shared: &QpShared,
        cx: &Cx<'_>,
        packet: &Packet<'_>,
        operation: Operation,
        target: Target,
    ) -> Result<(), Reject> {
        let (psn, ext) = (packet.bth.psn, &packet.ext);
        match (operation, ext.reth, ext.feth, ext.atomic) {
            (Operation::ReadRequest, Some(reth), ..) => {
                self.on_read(shared, cx, packet, reth, target)
            }
            (Operation::AtomicWrite, Some(reth), ..) => {
                self.on_atomic_write(shared, cx, packet, reth, target)
            }
            (Operation::Flush, Some(reth), Some(feth), _) => {
                self.on_flush(shared, cx, psn, feth, reth, target)
            }
            (Operation::CompareSwap | Operation::FetchAdd, .., Some(operands)) => {
                self.on_atomic(shared, cx, packet, operation, operands, target)
            }
            // The opcode is a response, or one that no request has.
            _ => Err(Reject::invalid(psn)),
        }
    }

    fn on_send(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        info: OpInfo,
        target: Target,
    ) -> Result<(), Stop> {
        let psn = packet.bth.psn;
        let received = PartialMessage::received_before(self.message.as_ref(), info)
            .ok_or_else(|| Reject::invalid(psn))?;
        // A SEND takes its receive with its first packet. So an RNR NAK refuses whole messages.
        if info.position.starts() {
            self.take_recv(shared, cx, target)?;
        }
        check_length(shared, packet, info)?;
        let Some(recv) = &self.held else {
            return Err(Reject::invalid(psn).into());
        };
        let after = place_in_recv(cx, recv, received, packet)?;
        self.message = Some(PartialMessage::Send {
            received: after,
            target,
        });
        if info.position.ends() {
            let imm = finish_send(shared, cx, packet, target)?;
            self.complete_recv(shared, cx, packet, WcOpcode::Recv, after, imm)?;
            self.finish_message();
        }
        self.took(packet.bth.ack_req);
        Ok(())
    }

    fn on_write(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        info: OpInfo,
        target: Target,
    ) -> Result<(), Stop> {
        let psn = packet.bth.psn;
        let invalid = Reject::invalid(psn);
        let started = PartialMessage::write_before(self.message.as_ref(), packet, info, target)
            .ok_or(invalid)?;
        // `qp_access_flags` of ibv_modify_qp(3). IBTA has an invalid request here; only a key makes
        // an access error.
        if !allows(shared, Access::REMOTE_WRITE) {
            return Err(invalid.into());
        }
        // The immediate is in the last packet, so the WRITE takes its receive there.
        if packet.ext.imm.is_some() {
            self.take_recv(shared, cx, target)?;
        }
        check_length(shared, packet, info)?;
        let after = started.place(shared, cx, packet, info)?;
        self.message = Some(PartialMessage::Write(after));
        if info.position.ends() {
            if let Some(imm) = packet.ext.imm {
                let (len, imm) = (after.length(), Some(WcImm::Imm(imm)));
                let opcode = WcOpcode::RecvRdmaWithImm;
                self.complete_recv(shared, cx, packet, opcode, len, imm)?;
            }
            self.finish_message();
        }
        self.took(packet.bth.ack_req);
        Ok(())
    }

    fn on_read(
        &mut self,
        shared: &QpShared,
        cx: &Cx<'_>,
        packet: &Packet<'_>,
        reth: Reth,
        target: Target,
    ) -> Result<(), Reject> {
        let psn = packet.bth.psn;
        let (va, rkey, length) = (reth.va, reth.rkey, reth.length);
        // The order of the checks decides the NAK: depth, length, key.
        self.check_resources(shared, Access::REMOTE_READ, psn)?;
        // IBTA C9-94.
        if length > MAX_MESSAGE {
            return Err(Reject::invalid(psn));
        }
        let need = Access::REMOTE_READ;
        cx.rights
            .open_remote(rkey, target.accessor(shared), va, u64::from(length), need)
            .map_err(|_| Reject::access(psn))?;
        // The responses have the PSNs from this one on, so the next request is behind them.
        let packets = packets_of(length, shared.attr.path_mtu);
        self.accept(
            shared,
            psn,
            packets,
            target,
            AnswerKind::Read { va, rkey, length },
        );
        Ok(())
    }

    /// Eight bytes that become visible at once. It is answered as a READ of nothing, so it takes a
    /// place among those.
    fn on_atomic_write(
        &mut self,
        shared: &QpShared,
        cx: &Cx<'_>,
        packet: &Packet<'_>,
        reth: Reth,
        target: Target,
    ) -> Result<(), Reject> {
        let psn = packet.bth.psn;
        let need = Access::REMOTE_WRITE;
        self.check_resources(shared, need, psn)?;
        // IBTA annex A19.
        if reth.length != 8 || packet.payload.len() != 8 || !reth.va.is_multiple_of(8) {
            return Err(Reject::invalid(psn));
        }
        let span = cx
            .rights
            .open_remote(reth.rkey, target.accessor(shared), reth.va, 8, need)
            .map_err(|_| Reject::access(psn))?;
        if span.addr() % 8 != 0 {
            return Err(Reject::invalid(psn));
        }
        cx.memory
            .write(span, packet.payload)
            .map_err(|_| Reject::operational(psn))?;
        let operation = Operation::AtomicWrite;
        self.accept(shared, psn, 1, target, AnswerKind::Done { operation, reth });
        Ok(())
    }

    /// A FLUSH: earlier writes are visible to all of this host when it is answered. It is answered
    /// as a READ of nothing, so it takes a place among those. (IBTA annex A19.)
    fn on_flush(
        &mut self,
        shared: &QpShared,
        cx: &Cx<'_>,
        psn: Psn,
        feth: Feth,
        reth: Reth,
        target: Target,
    ) -> Result<(), Reject> {
        let (Some(placement), Some(selectivity)) = (feth.placement(), feth.selectivity()) else {
            return Err(Reject::invalid(psn));
        };
        let need = Access::to_flush(placement);
        self.check_resources(shared, need, psn)?;
        let by = target.accessor(shared);
        // A FLUSH of a whole region names no range.
        let length = match selectivity {
            Selectivity::Range => u64::from(reth.length),
            Selectivity::Region => 0,
        };
        cx.rights
            .check_remote(reth.rkey, by, need)
            .and_then(|()| {
                cx.rights
                    .open_remote(reth.rkey, by, reth.va, length, need)
                    .map(|_| ())
            })
            .map_err(|_| Reject::access(psn))?;
        // The writes of this queue pair are in memory already; other processors must see them
        // before they see the answer.
        fence(Ordering::SeqCst);
        let operation = Operation::Flush;
        self.accept(shared, psn, 1, target, AnswerKind::Done { operation, reth });
        Ok(())
    }

    fn on_atomic(
        &mut self,
        shared: &QpShared,
        cx: &Cx<'_>,
        packet: &Packet<'_>,
        operation: Operation,
        request: AtomicEth,
        target: Target,
    ) -> Result<(), Reject> {
        let psn = packet.bth.psn;
        self.check_resources(shared, Access::REMOTE_ATOMIC, psn)?;
        // IBTA volume 1, chapter 9: an atomic that is not aligned is an invalid request.
        if !request.va.is_multiple_of(8) {
            return Err(Reject::invalid(psn));
        }
        let need = Access::REMOTE_ATOMIC;
        let span = cx
            .rights
            .open_remote(request.rkey, target.accessor(shared), request.va, 8, need)
            .map_err(|_| Reject::access(psn))?;
        // With an iova of its own a region may be aligned for the peer and not in memory.
        if span.addr() % 8 != 0 {
            return Err(Reject::invalid(psn));
        }
        let AtomicEth {
            swap_or_add,
            compare,
            ..
        } = request;
        let original = if operation == Operation::FetchAdd {
            cx.memory.fetch_add(span, swap_or_add)
        } else {
            cx.memory.compare_swap(span, compare, swap_or_add)
        }
        .map_err(|_| Reject::operational(psn))?;
        let kind = AnswerKind::Atomic {
            operation,
            request,
            original,
        };
        self.accept(shared, psn, 1, target, kind);
        Ok(())
    }

    /// Whether a READ or atomic is allowed and within depth.
    fn check_resources(&self, shared: &QpShared, need: Access, psn: Psn) -> Result<(), Reject> {
        let depth = shared.attr.max_dest_rd_atomic;
        // Zero resources refuse all, and a requester above the agreed depth breaks the agreement.
        // Both are invalid requests.
        if allows(shared, need) && self.replies.resources.has_room(depth) {
            Ok(())
        } else {
            Err(Reject::invalid(psn))
        }
    }

    /// Takes on a READ or atomic, which is to be answered by `packets` responses. The MSN counts it
    /// here, before the answer. (IBTA C9-148.)
    fn accept(
        &mut self,
        shared: &QpShared,
        psn: Psn,
        packets: u32,
        target: Target,
        kind: AnswerKind,
    ) {
        self.msn = self.msn.next();
        self.expected = self.expected.plus(packets);
        let depth = shared.attr.max_dest_rd_atomic;
        let msn = self.msn;
        let resource = Resource {
            psn,
            packets,
            msn,
            target,
            kind,
        };
        self.replies.resources.push(depth, resource);
    }

    /// Makes sure that a receive work request is held. A WRITE without immediate takes none. (IBTA
    /// 10.7.2.2, C10-87.)
    pub(super) fn take_recv(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        target: Target,
    ) -> Result<(), Stop> {
        // A message whose rendezvous was refused took its receive then, and comes again by packets.
        if self.held.is_none() {
            let taken = if shared.config.takes_shared() {
                target.take_shared(cx)?
            } else {
                let own = self.recv.pop_front();
                own.map(|wr| HeldReceive::own(wr, target))
                    .ok_or(Stop::NotReady)?
            };
            self.held = Some(taken);
        }
        Ok(())
    }

    /// Completes the receive work request in hand.
    pub(super) fn complete_recv(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        opcode: WcOpcode,
        byte_len: u32,
        imm: Option<WcImm>,
    ) -> Result<(), Reject> {
        let Some(recv) = self.held.take() else {
            return Ok(());
        };
        let wc = Wc {
            opcode,
            byte_len,
            imm,
            ..recv_completion(shared, &recv.wr)
        };
        // The SE bit of the packet wakes a queue that was armed for solicited events
        // (ibv_req_notify_cq(3)).
        if recv.complete(cx, wc, packet.bth.solicited) {
            Ok(())
        } else {
            Err(Reject::CQ_OVERFLOW)
        }
    }

    /// A SEND or WRITE packet is done with. (READs and atomics are acknowledged by their answers.)
    pub(super) fn took(&mut self, ack_req: bool) {
        self.expected = self.expected.plus(1);
        if ack_req {
            self.replies.owe_ack();
        }
    }

    pub(super) fn finish_message(&mut self) {
        self.message = None;
        self.msn = self.msn.next();
    }
}

/// Whether the queue pair itself lets peers do this.
pub(super) fn allows(shared: &QpShared, need: Access) -> bool {
    shared.attr.qp_access_flags.contains(need)
}

/// Full packets carry exactly the path MTU, the last one at least a byte, an only one anything up
/// to the MTU. (IBTA C9-92.)
fn check_length(shared: &QpShared, packet: &Packet<'_>, info: OpInfo) -> Result<(), Reject> {
    let mtu = shared.mtu() as usize;
    let len = packet.payload.len();
    let right = match (info.position.starts(), info.position.ends()) {
        (_, false) => len == mtu,
        (false, true) => (1..=mtu).contains(&len),
        (true, true) => len <= mtu,
    };
    if right {
        Ok(())
    } else {
        Err(Reject::invalid(packet.bth.psn))
    }
}

/// Takes the immediate or the key that the last packet of a SEND brings besides its payload.
fn finish_send(
    shared: &QpShared,
    cx: &mut Cx<'_>,
    packet: &Packet<'_>,
    target: Target,
) -> Result<Option<WcImm>, Reject> {
    let Some(key) = packet.ext.ieth else {
        return Ok(packet.ext.imm.map(WcImm::Imm));
    };
    // The payload is in place already. A refused invalidation fails the receive all the same.
    if cx.rights.invalidate(key, target.accessor(shared)).is_ok() {
        cx.sink.invalidated(key);
        return Ok(Some(WcImm::Invalidated(key)));
    }
    Err(Reject {
        recv: Some(Fault::REMOTE_INVALIDATE),
        ..Reject::access(packet.bth.psn)
    })
}

/// Puts the payload of a SEND packet into its receive, after `received` bytes. Returns how many
/// there are now.
fn place_in_recv(
    cx: &Cx<'_>,
    recv: &HeldReceive,
    received: u32,
    packet: &Packet<'_>,
) -> Result<u32, Reject> {
    let psn = packet.bth.psn;
    let sges = &recv.wr.sges;
    // The elements of the list are one buffer, which is filled in their order.
    let room = scatter::total(sges).min(u64::from(MAX_MESSAGE));
    let after = u32::try_from(packet.payload.len())
        .ok()
        .and_then(|len| received.checked_add(len))
        .filter(|&after| u64::from(after) <= room)
        .ok_or_else(|| Reject::recv(NakCode::InvalidRequest, psn, Fault::MESSAGE_TOO_LONG))?;
    // A bad key is a fault of the receiver: the sender hears of a remote operational error.
    scatter::scatter(cx, recv.pd, sges, u64::from(received), packet.payload)
        .map_err(|_| Reject::recv(NakCode::RemoteOperational, psn, Fault::LOCAL_KEY))?;
    Ok(after)
}
