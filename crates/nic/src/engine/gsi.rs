//! QP1, the general services queue pair: MADs in and out for the connection manager, and what else
//! that needs of the engine.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_os::clock;
use ferroce_os::neighbour::Known;
use ferroce_os::poll::Interest;
use ferroce_os::unix::{Credentials, LocalUser, Relation, SocketKind, has_owner, owner_of};
use ferroce_proto::ids::{DEFAULT_PKEY, GSI_QKEY, Gid, Psn, Qpn};
use ferroce_proto::mad::Mad;
use ferroce_proto::time::Time;
use ferroce_proto::wire::{Bth, Deth, ExtHeaders, Opcode, Packet};

use crate::base::addressing::Addressing;
use crate::base::counters::DropReason;
use crate::base::denials::{Asker, Denial};
use crate::base::sync::lock;
use crate::base::token::Token;
use crate::cm::{Host, Via};
use crate::link::Batch;
use crate::link::local::{ConnectError, Frame, is_vouched};
use crate::link::path::{Egress, Policy};
use crate::link::stream::Connection;
use crate::link::wire::private_ports::PRIVATE_PORTS;
use crate::link::{Ingress, Origin};
use crate::{Device, Error, Nic};

/// Processes at most that get a copy of one MAD.
const SPREAD: usize = 64;
/// The membership bit of a partition key does not matter on receive.
const PKEY_MEMBER: u16 = 0x8000;

impl Host for Nic {
    fn slot(&self) -> u16 {
        self.services.numbers.slot()
    }

    fn now(&self) -> Time {
        clock::monotonic()
    }

    fn devices(&self) -> Vec<Arc<Device>> {
        self.services.devices.all()
    }

    fn is_local(&self, ip: IpAddr) -> bool {
        self.services.is_local(ip)
    }

    fn is_link_known(&self, dst: IpAddr, scope: u32) -> bool {
        !matches!(self.services.stations.known(dst, scope), Ok(Known::No))
    }

    fn send_mad_wire(&self, addressing: Addressing, mad: &Mad) {
        let repeated = lock(&self.repeats).count(addressing.dst, mad);
        let found = match repeated.checked_sub(1) {
            None => self.services.wire_to(addressing.dst),
            Some(private_port) => self
                .services
                .wire_to_private_port(addressing.dst, private_port % PRIVATE_PORTS),
        };
        let egress = match found {
            Ok((egress, _)) => egress,
            Err(e) => {
                tracing::debug!(target: "ferroce::cm", "MAD not sent: {}", e.reason);
                return;
            }
        };
        if egress.is_blocked() {
            // It may get lost, and a flood of requests must not pile up answers.
            tracing::debug!(target: "ferroce::cm", "MAD not sent: the socket is full");
            return;
        }
        let mut batch = Batch {
            addressing,
            ..egress.batch()
        };
        self.next_gsi_packet(mad).emit(&mut batch.bytes);
        if let Some(auth) = self.services.auth() {
            auth.add_tag(&addressing, &mut batch.bytes);
        }
        batch.end_packet();
        // A wire link is never gone.
        let _ = egress.send(Qpn::GSI, batch);
    }

    fn send_mad_local(&self, slot: u16, from: Gid, to: Gid, mad: &Mad) -> bool {
        let egress = self.services.peer_processes.reach_for_mad(slot);
        send_to(egress, &mad_frame(from, to, mad))
    }

    fn admits(&self, from: IpAddr, by: Option<Relation>) -> bool {
        let user = by.is_none_or(|by| by.is_own_user() || !self.services.peers.are_own_user());
        let admits = user && (self.services.is_local(from) || self.services.admits_host(from));
        if !admits {
            let asker = by.map_or(Asker::Host, Asker::from);
            self.services.counters.count_denied(asker, Denial::Peers);
        }
        admits
    }

    fn pass_on_mad(&self, slot: u16, from: Gid, to: Gid, mad: &Mad) -> bool {
        let frame = mad_frame(from, to, mad);
        let once = || {
            let egress = self.services.peer_processes.reach_for_stray_mad(slot);
            if matches!(egress, Err(ConnectError::NotNow { .. })) {
                self.services
                    .counters
                    .count_denied(Asker::Host, Denial::NoLink);
            }
            send_to(egress, &frame)
        };
        // The first link may lead to a process that is gone; another one may have its slot.
        once() || once()
    }

    fn spread_mad(&self, from: Gid, to: Gid, mad: &Mad) {
        for egress in self.services.peer_processes.some(SPREAD) {
            if egress.slot() != Some(self.services.numbers.slot()) {
                egress.send_frame(&mad_frame(from, to, mad));
            }
        }
    }

    fn watch(&self, fd: RawFd, token: u64) {
        let number = u32::try_from(token).expect("invariant: port space and port are 32 bits");
        if let Err(e) = self
            .services
            .poller
            .add(fd, Token::Cm(number).raw(), Interest::READ)
        {
            tracing::warn!(target: "ferroce::cm", "cannot watch a port: {e}");
        }
    }

    fn unwatch(&self, fd: RawFd) {
        if let Err(e) = self.services.poller.remove(fd) {
            tracing::warn!(target: "ferroce::cm", "cannot stop watching a port: {e}");
        }
    }

    fn watch_setup(&self, fd: RawFd, number: u32, interest: Interest) -> io::Result<()> {
        self.services
            .poller
            .add(fd, Token::Setup(number).raw(), interest)
    }

    fn rewatch_setup(&self, fd: RawFd, number: u32, interest: Interest) -> io::Result<()> {
        self.services
            .poller
            .modify(fd, Token::Setup(number).raw(), interest)
    }

    fn connect_stream(&self, qpn: Qpn, connection: Connection) -> Result<(), Error> {
        let qp = self.services.qps.find(qpn).ok_or_else(|| {
            Error::invalid(format!("this process has no queue pair {:#x}", qpn.get()))
        })?;
        qp.connect_stream(connection)
    }

    fn end_stream(&self, qpn: Qpn) {
        if let Some(qp) = self.services.qps.find(qpn) {
            qp.end_stream();
        }
    }

    fn admits_stream(&self, peer: IpAddr) -> Result<(), Error> {
        let refused = |why: &str| Err(Error::new(libc::EACCES, format!("{peer}: {why}")));
        if self.services.peers.are_own_user() {
            return refused("FERROCE_PEERS=own-user, and over TCP nobody tells the user of a peer");
        }
        if self.services.policy == Policy::Local && !self.services.is_local(peer) {
            return refused("FERROCE_PATH=local: connections to other hosts are switched off");
        }
        if !(self.services.is_local(peer) || self.services.admits_host(peer)) {
            return refused("FERROCE_PEERS leaves it out");
        }
        Ok(())
    }

    fn goes_within_host(&self, peer: IpAddr) -> bool {
        self.services.policy != Policy::Wire && self.services.is_local(peer)
    }

    fn user_of(&self, sender: Credentials) -> LocalUser {
        self.services.peer_processes.identity().sender_user(sender)
    }

    fn takes_wire_from(&self, by: LocalUser, to: Gid) -> bool {
        self.services.takes_wire_from(by, to)
    }

    fn owns_slot(&self, sender: Credentials, slot: u16) -> bool {
        let identity = self.services.peer_processes.identity();
        is_vouched(slot, sender, identity.relation_of_users(sender), identity)
    }

    fn count_denied(&self, asker: Asker, why: Denial) {
        self.services.counters.count_denied(asker, why);
    }

    fn asker(&self, slot: u16) -> Asker {
        self.services.peer_processes.asker(slot)
    }

    fn leaves_out_owner(&self, name: &str) -> bool {
        // Where the kernel does not say it, the CM's timeout will.
        let owner = owner_of(name, SocketKind::Messages).inspect_err(|error| {
            tracing::debug!(target: "ferroce::cm", name, %error, "the owner's user is not known");
        });
        owner.is_ok_and(|owner| owner.is_some_and(|owner| self.leaves_out(owner)))
    }

    fn is_left_out(&self, sign: &str, name: &str) -> bool {
        let has_sign = has_owner(sign).unwrap_or(false);
        if !has_sign {
            return false;
        }
        // Anybody could claim such a name. Where the kernel does not say whose it is, the CM's
        // timeout will end the request.
        let identity = self.services.peer_processes.identity();
        let owner = |name| owner_of(name, SocketKind::Messages).ok().flatten();
        let user = |owner: Option<Credentials>| owner.and_then(|owner| identity.user(owner));
        let signer = owner(sign);
        let is_another =
            signer.is_some_and(|owner| !identity.relation_of_users(owner).is_own_user());
        is_another && user(signer).is_some() && user(signer) == user(owner(name))
    }

    fn leaves_out_users(&self) -> bool {
        self.services.peers.are_own_user()
    }

    fn leaves_out(&self, owner: Credentials) -> bool {
        let relation = self
            .services
            .peer_processes
            .identity()
            .relation_of_users(owner);
        let leaves_out = self.leaves_out_users() && !relation.is_own_user();
        if leaves_out {
            self.services
                .counters
                .count_denied(relation.into(), Denial::Peers);
        }
        leaves_out
    }

    fn reschedule(&self) {
        if let Some(at) = self.cm().deadline() {
            self.services.sleeper.wake_for(at);
        }
    }
}

fn mad_frame(src: Gid, dst: Gid, mad: &Mad) -> Frame<'_> {
    Frame::Mad { src, dst, mad }
}

/// Sends a frame to another process. Returns false if there is no such process.
fn send_to(egress: Result<Arc<Egress>, ConnectError>, frame: &Frame<'_>) -> bool {
    match egress {
        Ok(egress) => egress.send_frame(frame),
        Err(ConnectError::NoSuchProcess(_)) => false,
        // The process is there, so its conversations must not end. The MAD is lost; conversations
        // repeat themselves.
        Err(e @ ConnectError::NotNow { .. }) => {
            tracing::debug!(target: "ferroce::cm", "MAD not sent: {e}");
            true
        }
    }
}

impl Nic {
    /// A UD packet from QP1 to QP1.
    fn next_gsi_packet<'a>(&self, mad: &'a Mad) -> Packet<'a> {
        let psn = self.gsi_psn.fetch_add(1, Ordering::Relaxed);
        let deth = Deth {
            qkey: GSI_QKEY,
            src_qp: Qpn::GSI,
        };
        Packet {
            bth: Bth::new(Opcode::UD_SEND_ONLY, Qpn::GSI, Psn::new(psn)),
            ext: ExtHeaders {
                deth: Some(deth),
                ..ExtHeaders::default()
            },
            payload: mad,
        }
    }

    /// A packet for QP1, which takes them from the wire only: MADs of this host come as frames,
    /// which name the process. Returns as [`on_mad`](crate::cm::CmService::on_mad).
    pub(super) fn on_gsi_packet(
        &self,
        came: Ingress<'_>,
        packet: &Packet<'_>,
    ) -> Result<bool, DropReason> {
        let addressing = came.addressing;
        if came.origin != Origin::WIRE || self.services.is_local(addressing.src.ip()) {
            return Err(DropReason::Origin);
        }
        // A broadcast comes to all processes of the host.
        if !self.services.is_local(addressing.dst.ip()) {
            return Err(DropReason::Address);
        }
        if packet.bth.opcode != Opcode::UD_SEND_ONLY {
            return Err(DropReason::Malformed);
        }
        if packet.bth.pkey | PKEY_MEMBER != DEFAULT_PKEY {
            return Err(DropReason::Pkey);
        }
        if packet.ext.deth.is_none_or(|deth| deth.qkey != GSI_QKEY) {
            return Err(DropReason::Qkey);
        }
        let mad = packet
            .payload
            .try_into()
            .map_err(|_| DropReason::Malformed)?;
        Ok(self
            .cm()
            .on_mad(addressing.src, addressing.dst, mad, Via::Wire))
    }
}
