//! A peer that is played by hand: a UDP socket on an address of the loopback network, and packets
//! built field by field.

mod build;
mod socket;

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_proto::ids::{Gid, Psn, Qpn};
use ferroce_proto::wire::icrc::{self, Addresses, Encapsulation};
use ferroce_proto::wire::{
    Bth, ExtHeaders, NakCode, OpInfo, Opcode, Operation, Packet, Position, ROCE_UDP_PORT, Syndrome,
};

use crate::bench::FIRST_PSN;
use crate::wait::DEADLINE;

pub use build::Building;

/// The number that the peer says its queue pair has. No device of our kind has such, whose process
/// would send from a port of its own.
const QPN: Qpn = Qpn::new(0x2bcd);

/// A peer played by hand.
#[derive(Debug)]
pub struct RawPeer {
    socket: UdpSocket,
    own: IpAddr,
    device: IpAddr,
    target: Qpn,
    /// PSN of the next request that goes out.
    psn: Cell<Psn>,
    /// PSN of the next request that has not come yet.
    expected: Cell<Psn>,
}

/// A packet of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types say it")]
pub struct Received {
    pub bth: Bth,
    pub ext: ExtHeaders,
    pub payload: Vec<u8>,
}

impl Received {
    /// What its opcode stands for.
    #[must_use]
    pub fn info(&self) -> OpInfo {
        self.bth.opcode.info().expect("a defined opcode")
    }

    /// The syndrome of its acknowledgement header.
    #[must_use]
    pub fn syndrome(&self) -> Option<Syndrome> {
        self.ext.aeth.map(|a| a.syndrome)
    }
}

/// An address of 127.0.0.0/8 that nobody else uses: it depends on the process, and differs from
/// call to call.
fn fresh_address() -> Ipv4Addr {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let n = (std::process::id() << 9)
        .wrapping_add(count)
        .wrapping_mul(0x9e37_79b1);
    let [a, b, c, _] = n.to_be_bytes();
    // 127.0.0.0/16 is left to others.
    Ipv4Addr::new(127, a | 1, b, c.clamp(1, 254))
}

impl RawPeer {
    /// A peer for the queue pair `target` of the device at the IPv4 address `device`.
    #[must_use]
    pub fn new(device: IpAddr, target: Qpn) -> Self {
        Self::at(fresh_address(), ROCE_UDP_PORT, device, target)
    }

    /// One at an address and port that need not be those of a peer: an impostor.
    #[must_use]
    pub fn at(own: Ipv4Addr, port: u16, device: IpAddr, target: Qpn) -> Self {
        let socket = socket::bind(own, port).expect("a socket beside the device's");
        socket.set_read_timeout(Some(DEADLINE)).expect("set");
        Self {
            socket,
            own: own.into(),
            device,
            target,
            psn: Cell::new(FIRST_PSN),
            expected: Cell::new(FIRST_PSN),
        }
    }

    /// Its queue pair.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        QPN
    }

    /// Its address.
    #[must_use]
    pub fn gid(&self) -> Gid {
        Gid::from_ip(self.own)
    }

    /// PSN of its next request.
    #[must_use]
    pub fn psn(&self) -> Psn {
        self.psn.get()
    }

    /// Goes on with another PSN.
    pub fn set_psn(&self, psn: Psn) {
        self.psn.set(psn);
    }

    /// Starts a packet of an operation, at a position of its message.
    pub fn packet(&self, operation: Operation, position: Position) -> Building<'_> {
        self.opcode(Opcode::rc(operation, position))
    }

    /// Starts a packet with any opcode.
    pub fn opcode(&self, opcode: Opcode) -> Building<'_> {
        Building::new(self, Bth::new(opcode, self.target, self.psn.get()))
    }

    /// Starts an acknowledgement of a PSN.
    pub fn acknowledge(&self, syndrome: Syndrome, psn: Psn) -> Building<'_> {
        let packet = self.packet(Operation::Acknowledge, Position::Only);
        packet.at(psn).aeth(syndrome)
    }

    fn encapsulation(&self, src: IpAddr, dst: IpAddr, src_port: u16) -> Encapsulation {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (src, dst) else {
            panic!("IPv4 only");
        };
        Encapsulation {
            addresses: Addresses::V4 { src, dst },
            src_port,
        }
    }

    /// The ICRC of a packet from here.
    fn icrc(&self, packet: &[u8]) -> [u8; icrc::LEN] {
        let port = self.socket.local_addr().expect("bound").port();
        let encap = self.encapsulation(self.own, self.device, port);
        icrc::compute(&encap, icrc::Ident::ZERO, packet)
    }

    /// Sends bytes as they are.
    pub fn send_datagram(&self, bytes: &[u8]) {
        let to = SocketAddr::new(self.device, ROCE_UDP_PORT);
        let sent = self.socket.send_to(bytes, to).expect("sent");
        assert_eq!(sent, bytes.len());
    }

    /// Sends a packet with its ICRC.
    pub fn send_packet(&self, packet: &[u8]) {
        self.send_datagram(&[packet, &self.icrc(packet)].concat());
    }

    /// The next packet of the device, whose ICRC must be right and which must be well-formed.
    #[track_caller]
    pub fn next(&self) -> Received {
        self.receive()
            .unwrap_or_else(|e| panic!("no packet of the device within {DEADLINE:?}: {e}"))
    }

    /// The same if it has come already.
    #[track_caller]
    pub fn next_if_any(&self) -> Option<Received> {
        self.socket.set_nonblocking(true).expect("set");
        let received = self.receive();
        self.socket.set_nonblocking(false).expect("set");
        received.ok()
    }

    #[track_caller]
    fn receive(&self) -> std::io::Result<Received> {
        let mut bytes = [0; 9000];
        let (len, from) = self.socket.recv_from(&mut bytes)?;
        assert_eq!(from.ip(), self.device);
        let encap = self.encapsulation(from.ip(), self.own, from.port());
        let (packet, _) = icrc::verify(&encap, &bytes[..len]).expect("a right ICRC");
        let packet = Packet::parse(packet).expect("a packet");
        assert_eq!(packet.bth.dest_qp, QPN);
        Ok(Received {
            bth: packet.bth,
            ext: packet.ext,
            payload: packet.payload.to_vec(),
        })
    }

    /// The device's next packet must be an acknowledgement with this syndrome and PSN.
    #[track_caller]
    pub fn answers(&self, syndrome: Syndrome, psn: Psn) {
        let answer = self.next();
        assert_eq!(answer.info().operation, Operation::Acknowledge);
        assert_eq!((answer.syndrome(), answer.bth.psn), (Some(syndrome), psn));
    }

    /// It must be a positive one.
    #[track_caller]
    pub fn acks(&self, psn: Psn) {
        self.answers(Syndrome::ACK, psn);
    }

    /// It must be a negative one.
    #[track_caller]
    pub fn naks(&self, code: NakCode, psn: Psn) {
        self.answers(Syndrome::Nak(code), psn);
    }

    /// The device's next request that it has not sent before, which must be this one. Repetitions
    /// are passed over: the peer is slow on a busy machine.
    #[track_caller]
    pub fn takes(&self, operation: Operation, position: Position) -> Received {
        loop {
            let packet = self.next();
            if packet.bth.psn.before(self.expected.get()) {
                continue;
            }
            let info = packet.info();
            assert_eq!((info.operation, info.position), (operation, position));
            assert_eq!(packet.bth.psn, self.expected.get(), "in order");
            self.expected.set(packet.bth.psn.plus(1));
            return packet;
        }
    }

    /// Expects the requests from a PSN on.
    pub fn expect_from(&self, psn: Psn) {
        self.expected.set(psn);
    }

    /// Does nothing wrong: sends a message that the device must acknowledge, and hears nothing
    /// before that. So it shows that the queue pair works and that all packets that were sent
    /// before had no answer.
    #[track_caller]
    pub fn is_heard(&self) {
        let psn = self.psn();
        self.packet(Operation::Send, Position::Only).go();
        self.acks(psn);
    }
}
