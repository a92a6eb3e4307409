//! Datagrams to packets.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use ferroce_os::udp::{Received, RecvRing, UdpSocket};
use ferroce_proto::ids::Gid;
use ferroce_proto::wire::icrc::{self, Addresses, Encapsulation, Ident, IdentHistory};

use crate::link::{Addressing, Inbound};

/// The longest datagram: 4096 bytes of payload and less than 128 of headers, pad and ICRC.
const DATAGRAM: usize = 4096 + 128;
/// Room for the longest run that the kernel makes of datagrams.
const RUN: usize = 1 << 16;
/// Datagrams or runs per system call.
const SLOTS: usize = 8;
/// Peers whose way to fill the IPv4 Identification is remembered. Strangers can fill the list; then it starts again.
const MAX_PEERS: usize = 4096;

/// Room to receive, and what is known of the peers.
#[derive(Debug)]
pub(super) struct Receiver {
    ring: RecvRing,
    peers: HashMap<IpAddr, IdentHistory>,
    /// What the last datagram of a socket said of those that found no room.
    lost: HashMap<RawFd, u32>,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            ring: RecvRing::new(SLOTS, RUN),
            peers: HashMap::new(),
            lost: HashMap::new(),
        }
    }

    /// Receives up to about `budget` datagrams from each of some sockets. Returns whether there may be more.
    pub(super) fn recv<const N: usize>(
        &mut self,
        sockets: [Option<&UdpSocket>; N],
        budget: usize,
        each: &mut dyn FnMut(Option<Inbound<'_>>),
    ) -> bool {
        let mut more = false;
        for socket in sockets.into_iter().flatten() {
            more |= self.recv_from(socket, budget, each);
        }
        more
    }

    /// Receives from one socket until it is empty or the budget is used up.
    fn recv_from(
        &mut self,
        socket: &UdpSocket,
        mut left: usize,
        each: &mut dyn FnMut(Option<Inbound<'_>>),
    ) -> bool {
        while left > 0 {
            let got = match socket.recv_many(&mut self.ring) {
                Ok(got) => got,
                Err(e) => {
                    tracing::warn!(target: "ferroce::wire", "receiving from UDP port {} failed: {e}", socket.port());
                    return false;
                }
            };
            for received in self.ring.iter() {
                if received.lost != 0 {
                    note_lost(&mut self.lost, socket, received.lost);
                }
                let history = received
                    .src
                    .is_ipv4()
                    .then(|| history_of(&mut self.peers, received.src));
                open(&received, history, each);
                left = left.saturating_sub(
                    received
                        .payload
                        .len()
                        .div_ceil(received.segment.max(1))
                        .max(1),
                );
            }
            if got < self.ring.capacity() {
                return false;
            }
        }
        true
    }
}

/// A socket says how many datagrams found no room in it so far.
fn note_lost(known: &mut HashMap<RawFd, u32>, socket: &UdpSocket, lost: u32) {
    if known.insert(socket.as_raw_fd(), lost) != Some(lost) {
        tracing::debug!(target: "ferroce::wire", "{lost} datagrams to UDP port {} were lost since nobody took them in time", socket.port());
    }
}

/// What is known of a peer.
fn history_of(peers: &mut HashMap<IpAddr, IdentHistory>, peer: IpAddr) -> &mut IdentHistory {
    if peers.len() >= MAX_PEERS && !peers.contains_key(&peer) {
        peers.clear();
    }
    peers.entry(peer).or_default()
}

/// Gives the packets of a datagram or run to `each`, or `None` for each that is none.
fn open(
    received: &Received<'_>,
    history: Option<&mut IdentHistory>,
    each: &mut dyn FnMut(Option<Inbound<'_>>),
) {
    let (src, dst) = (Gid::from_ip(received.src), Gid::from_ip(received.dst));
    let encap = Addresses::from_gids(src, dst).map(|addresses| Encapsulation {
        addresses,
        src_port: received.src_port,
    });
    let addressing = Addressing {
        src,
        dst,
        hop_limit: received.ttl,
        traffic_class: received.tos,
        flow_label: received.flow_label,
        ifindex: received.ifindex,
    };
    let mut idents = Idents::new(history);
    for datagram in received.segments() {
        let packet = encap
            .filter(|_| !received.truncated && datagram.len() <= DATAGRAM)
            .and_then(|encap| idents.verify(&encap, datagram));
        if packet.is_none() {
            let (src, port) = (received.src, received.src_port);
            tracing::debug!(target: "ferroce::wire", "{} bytes from {src} port {port} have a wrong ICRC", datagram.len());
        }
        each(packet.map(|packet| Inbound {
            addressing,
            src_port: received.src_port,
            packet,
        }));
    }
}

/// The Identifications of a run's datagrams. What they were before the kernel joined them cannot be seen; they usually count up.
struct Idents<'a> {
    /// What is known of the peer, if it uses IPv4.
    history: Option<&'a mut IdentHistory>,
    guess: Ident,
}

impl<'a> Idents<'a> {
    fn new(history: Option<&'a mut IdentHistory>) -> Self {
        let guess = history.as_ref().map_or(Ident::ZERO, |h| h.expected());
        Self { history, guess }
    }

    /// The packet in the run's next datagram, if its ICRC is right.
    fn verify<'d>(&mut self, encap: &Encapsulation, datagram: &'d [u8]) -> Option<&'d [u8]> {
        let verified = icrc::verify_as(encap, self.guess, datagram);
        self.guess = verified.map_or(self.guess, |(_, ident)| ident).next();
        let (packet, ident) = verified?;
        let admitted = self.history.as_mut().is_none_or(|h| h.admit(ident));
        admitted.then_some(packet)
    }
}
