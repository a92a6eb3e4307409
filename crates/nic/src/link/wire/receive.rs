//! Datagrams to packets.

use std::collections::HashMap;
use std::net::IpAddr;

use ferroce_os::udp::{Received, RecvRing, UdpSocket};
use ferroce_proto::ids::Gid;
use ferroce_proto::wire::icrc::{self, Addresses, Encapsulation, IdentHistory};

use super::CHUNK;
use crate::link::{Addressing, Inbound};

/// Room for the longest datagram: 4096 bytes of payload and less than 128 of headers, pad and ICRC.
const DATAGRAM: usize = 4096 + 128;
/// Peers whose way to fill the IPv4 Identification is remembered. Strangers can fill the list; then it starts again.
const MAX_PEERS: usize = 4096;

/// Room to receive, and what is known of the peers.
#[derive(Debug)]
pub(super) struct Receiver {
    ring: RecvRing,
    peers: HashMap<IpAddr, IdentHistory>,
    /// Whose turn it is: the sockets take turns, so that a flood on one does not silence the other.
    v6_first: bool,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            ring: RecvRing::new(CHUNK, DATAGRAM),
            peers: HashMap::new(),
            v6_first: false,
        }
    }

    /// Receives up to about `budget` datagrams from both sockets. Returns whether there may be more.
    pub(super) fn recv(
        &mut self,
        v4: Option<&UdpSocket>,
        v6: Option<&UdpSocket>,
        budget: usize,
        each: &mut dyn FnMut(Option<Inbound<'_>>),
    ) -> bool {
        self.v6_first = !self.v6_first;
        let order = if self.v6_first { [v6, v4] } else { [v4, v6] };
        let mut left = budget;
        let mut more = false;
        for socket in order.into_iter().flatten() {
            more |= self.recv_from(socket, &mut left, each);
        }
        more
    }

    /// Receives from one socket until it is empty or the budget is used up.
    fn recv_from(
        &mut self,
        socket: &UdpSocket,
        left: &mut usize,
        each: &mut dyn FnMut(Option<Inbound<'_>>),
    ) -> bool {
        while *left > 0 {
            let got = match socket.recv_many(&mut self.ring) {
                Ok(got) => got,
                Err(e) => {
                    tracing::warn!(target: "ferroce::wire", "receiving from UDP port {} failed: {e}", socket.port());
                    return false;
                }
            };
            for received in self.ring.iter() {
                each(accept(&received, &mut self.peers));
            }
            *left = left.saturating_sub(got);
            if got < self.ring.capacity() {
                return false;
            }
        }
        true
    }
}

/// The packet in a datagram, if its ICRC is right.
fn accept<'a>(
    received: &Received<'a>,
    peers: &mut HashMap<IpAddr, IdentHistory>,
) -> Option<Inbound<'a>> {
    let inbound = check(received, peers);
    if inbound.is_none() {
        let Received {
            src,
            src_port,
            payload,
            ..
        } = received;
        tracing::debug!(target: "ferroce::wire", "{} bytes from {src} port {src_port} have a wrong ICRC", payload.len());
    }
    inbound
}

fn check<'a>(
    received: &Received<'a>,
    peers: &mut HashMap<IpAddr, IdentHistory>,
) -> Option<Inbound<'a>> {
    if received.truncated {
        return None;
    }
    let (src, dst) = (Gid::from_ip(received.src), Gid::from_ip(received.dst));
    let encap = Encapsulation {
        addresses: Addresses::from_gids(src, dst)?,
        src_port: received.src_port,
    };
    let (packet, ident) = icrc::verify(&encap, received.payload)?;
    if received.src.is_ipv4() {
        if peers.len() >= MAX_PEERS && !peers.contains_key(&received.src) {
            peers.clear();
        }
        if !peers.entry(received.src).or_default().admit(ident) {
            return None;
        }
    }
    let addressing = Addressing {
        src,
        dst,
        hop_limit: received.ttl,
        traffic_class: received.tos,
        flow_label: received.flow_label,
        ifindex: received.ifindex,
    };
    Some(Inbound { addressing, packet })
}
