//! Packets from the wire, which any process of this host may have to get.

use ferroce_proto::auth::handshake::AuthMessage;
use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;
use ferroce_proto::wire::{Drain, ROCE_UDP_PORT};

use super::{Dispatch, dest_qp};
use crate::Nic;
use crate::base::counters::DropReason;
use crate::base::denials::{Asker, Denial};
use crate::base::numbers::slot_of;
use crate::link::local::{ConnectError, Frame};
use crate::link::wire::private_ports::PortFlow;
use crate::link::{Inbound, InboundRun};
use crate::services::auth::{Auth, is_of_device};

impl Dispatch {
    /// Packets that came over the wire together. A stream's are given to its queue pair together.
    pub(in crate::engine) fn on_inbound_run(&mut self, nic: &Nic, run: &InboundRun<'_>, now: Time) {
        if !nic.services.admits_host(run.addressing.src.ip()) {
            for inbound in run.singly() {
                self.on_unlisted(nic, &inbound, now);
            }
            return;
        }
        let of_stream = run.packets.chunk_by(|a, b| dest_qp(a) == dest_qp(b));
        for packets in of_stream {
            let run = InboundRun { packets, ..*run };
            if !self.deliver_run(nic, &run, now) {
                for inbound in run.singly() {
                    self.on_inbound(nic, &inbound, now);
                }
            }
        }
    }

    /// A packet from a host that this process does not deal with. Another process of this host may,
    /// and the connection manager looks for itself.
    fn on_unlisted(&mut self, nic: &Nic, inbound: &Inbound<'_>, now: Time) {
        let dest = dest_qp(inbound.packet).filter(|dest| {
            let is_elsewhere =
                *dest != Qpn::MULTICAST && slot_of(*dest) != nic.services.numbers.slot();
            *dest == Qpn::GSI || is_elsewhere
        });
        if dest.is_none() || Drain::is_one(inbound.packet) {
            return nic.deny_host();
        }
        self.on_inbound(nic, inbound, now);
    }

    /// Gives packets with the same destination to that queue pair of this process. Returns false if
    /// there is no such, or if they are not all for it.
    fn deliver_run(&mut self, nic: &Nic, run: &InboundRun<'_>, now: Time) -> bool {
        let Some(dest) = run.packets.first().and_then(|packet| dest_qp(packet)) else {
            return false;
        };
        let is_own = slot_of(dest) == nic.services.numbers.slot()
            && dest != Qpn::GSI
            && dest != Qpn::MULTICAST
            && !run.addressing.dst.is_multicast()
            && !run
                .packets
                .iter()
                .any(|packet| Drain::is_one(packet) || AuthMessage::is_one(packet));
        if !is_own {
            return false;
        }
        let Some(qp) = self.find(nic, dest) else {
            return false;
        };
        qp.on_wire_packet(now);
        let dropped = qp.on_run(run, now);
        self.taken += run.packets.len().saturating_sub(dropped.len());
        for why in dropped {
            nic.drop_packet(run.came(), dest, why);
        }
        self.packets += run.packets.len();
        true
    }

    /// A packet that came over the wire; it may be for any process of this host.
    fn on_inbound(&mut self, nic: &Nic, inbound: &Inbound<'_>, now: Time) {
        if Drain::is_one(inbound.packet) && nic.services.answer_drain(inbound, now) {
            return;
        }
        let Some(dest) = dest_qp(inbound.packet) else {
            nic.counters().count_dropped(DropReason::Malformed);
            return;
        };
        if dest == Qpn::GSI
            || dest == Qpn::MULTICAST
            || slot_of(dest) == nic.services.numbers.slot()
        {
            self.on_own(nic, inbound, now);
            return;
        }
        let egress = nic.services.peer_processes.reach_for_stray(slot_of(dest));
        if matches!(egress, Err(ConnectError::NotNow { .. })) {
            nic.counters().count_denied(Asker::Host, Denial::NoLink);
        }
        if egress.is_ok_and(|egress| egress.send_frame(&Frame::Forwarded(*inbound))) {
            nic.counters().count_forwarded();
            self.taken += 1;
            self.passed_on += 1;
        } else {
            nic.counters().count_dropped(DropReason::Forward);
        }
    }

    /// A packet for a queue pair of this process went to another one first. If that goes on, its
    /// flow gets a socket. What comes from the shared port is no flow: it may be of several
    /// processes.
    pub(super) fn on_stray(&mut self, nic: &Nic, inbound: &Inbound<'_>) {
        let found =
            dest_qp(inbound.packet).is_some_and(|dest| nic.services.qps.find(dest).is_some());
        if found
            && inbound.src_port != ROCE_UDP_PORT
            && !inbound.addressing.dst.is_multicast()
            && self.strays.count(PortFlow::of(inbound))
        {
            nic.services
                .expect_flow(&inbound.addressing, inbound.src_port);
        }
    }

    /// A packet from the wire for this process.
    pub(super) fn on_own(&mut self, nic: &Nic, inbound: &Inbound<'_>, now: Time) {
        match nic.services.auth() {
            Some(auth) => self.on_own_tagged(nic, auth, inbound, now),
            None => self.on_own_open(nic, inbound, now),
        }
    }

    /// As [`on_own`](Self::on_own), where a key is set.
    fn on_own_tagged(&mut self, nic: &Nic, auth: &Auth, inbound: &Inbound<'_>, now: Time) {
        if AuthMessage::is_one(inbound.packet) {
            return nic.services.on_handshake(auth, inbound, now);
        }
        let dest = dest_qp(inbound.packet).unwrap_or_default();
        if is_of_device(inbound.packet) {
            return match inbound.opened(auth) {
                Some(opened) => self.on_own_open(nic, &opened, now),
                None => nic.drop_packet(inbound.came(), dest, DropReason::Unauthenticated),
            };
        }
        let run = InboundRun {
            addressing: inbound.addressing,
            src_port: inbound.src_port,
            packets: &[inbound.packet],
        };
        if !self.deliver_run(nic, &run, now) {
            // A group's packets have no peer that could have tagged them.
            let why = if inbound.addressing.dst.is_multicast() {
                DropReason::Unauthenticated
            } else {
                DropReason::NoQp
            };
            nic.drop_packet(inbound.came(), dest, why);
        }
    }

    /// A packet from the wire for this process that needs no tag, or that had a right one.
    fn on_own_open(&mut self, nic: &Nic, inbound: &Inbound<'_>, now: Time) {
        if let Some(answer) = Drain::parse(inbound.packet).filter(|drain| drain.room.is_some()) {
            nic.services.on_drain_answer(inbound.came(), &answer, now);
            return;
        }
        self.src_port = inbound.src_port;
        match self.deliver(nic, inbound.came(), inbound.packet, now) {
            // Anybody may send management datagrams: they are counted by themselves.
            Ok(()) if dest_qp(inbound.packet) == Some(Qpn::GSI) => {}
            Ok(()) => self.taken += 1,
            Err((by, why)) => nic.drop_packet(inbound.came(), by, why),
        }
        self.src_port = 0;
    }
}
