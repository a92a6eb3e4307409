//! Datagrams to packets.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use ferroce_os::udp::{Received, RecvRing, UdpSocket};
use ferroce_proto::auth;
use ferroce_proto::ids::Gid;
use ferroce_proto::wire::icrc::{Addresses, Encapsulation, Icrc, Ident, IdentHistory};

use crate::base::addressing::Addressing;
use crate::link::InboundRun;

/// The longest datagram: 4096 bytes of payload and less than 128 of headers, pad and ICRC, and a
/// tag.
const DATAGRAM: usize = 4096 + 128 + auth::MOST;
/// Room for the longest run that the kernel makes of datagrams.
const RUN: usize = 1 << 16;
/// Datagrams or runs per system call.
const SLOTS: usize = 8;
/// Slots while long runs come: more would push each other out of the cache before their bytes are
/// moved, and the sender would wait for a word about the first of them until the last is done.
const LONG_SLOTS: usize = 4;
/// Bytes from which on a run is long.
const LONG: usize = RUN / 4;
/// Bytes that count as one datagram against the budget, unless there are more datagrams in them.
const UNIT: usize = 1024;
/// Packets that are handed on at once, at most: while they are worked on, their queue pair is
/// locked, and they are to stay in the cache from the check of the ICRC until their bytes are
/// moved.
const TOGETHER: usize = 16;
/// Peers whose way to fill the IPv4 Identification is remembered. Strangers can fill the list; then
/// it starts again.
const MAX_PEERS: usize = 4096;

/// Room to receive, and what is known of the peers.
///
/// What it may receive at once is counted in datagrams, long ones as several: 1024 bytes each.
#[derive(Debug)]
pub(super) struct WireReceiver {
    ring: RecvRing,
    peers: HashMap<IpAddr, IdentHistory>,
    /// What the last datagram of a socket said of those that found no room.
    lost: HashMap<RawFd, u32>,
}

impl WireReceiver {
    pub(super) fn new() -> Self {
        Self {
            ring: RecvRing::new(SLOTS, RUN),
            peers: HashMap::new(),
            lost: HashMap::new(),
        }
    }

    /// Receives up to about `budget` from each of some sockets. Returns whether there may be more.
    pub(super) fn recv<const N: usize>(
        &mut self,
        sockets: [Option<&UdpSocket>; N],
        budget: usize,
        each: &mut dyn FnMut(Option<InboundRun<'_>>),
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
        each: &mut dyn FnMut(Option<InboundRun<'_>>),
    ) -> bool {
        while left > 0 {
            let got = match socket.recv_many(&mut self.ring) {
                Ok(got) => got,
                Err(e) => {
                    tracing::warn!(target: "ferroce::wire", "receiving from UDP port {} failed: {e}", socket.port());
                    return false;
                }
            };
            let mut long = false;
            for received in self.ring.iter() {
                if received.lost != 0 {
                    note_lost(&mut self.lost, socket, received.lost);
                }
                let history = received
                    .src
                    .is_ipv4()
                    .then(|| history_of(&mut self.peers, received.src));
                open(&received, history, each);
                let len = received.payload.len();
                left = left.saturating_sub(len.div_ceil(received.segment.clamp(1, UNIT)).max(1));
                long |= len >= LONG;
            }
            let all = got < self.ring.capacity();
            self.ring.limit(if long { LONG_SLOTS } else { SLOTS });
            if all {
                return false;
            }
        }
        true
    }
}

/// Counts datagrams that a socket had no room for, by what it says of all so far.
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

/// Gives the packets of a datagram or run to `each`, some at a time, or `None` for each that is
/// none.
fn open(
    received: &Received<'_>,
    history: Option<&mut IdentHistory>,
    each: &mut dyn FnMut(Option<InboundRun<'_>>),
) {
    let (src, dst) = (Gid::from_ip(received.src), Gid::from_ip(received.dst));
    let mut icrc = Addresses::from_gids(src, dst).map(|addresses| {
        Icrc::new(&Encapsulation {
            addresses,
            src_port: received.src_port,
        })
    });
    let run = InboundRun {
        addressing: Addressing {
            src,
            dst,
            hop_limit: received.ttl,
            traffic_class: received.tos,
            flow_label: received.flow_label,
            ifindex: received.ifindex,
        },
        src_port: received.src_port,
        packets: &[],
    };
    let mut idents = Idents::new(history);
    let mut good = Together::new();
    for datagram in received.segments() {
        let packet = icrc
            .as_mut()
            .filter(|_| !received.truncated && datagram.len() <= DATAGRAM)
            .and_then(|icrc| idents.verify(icrc, datagram));
        let Some(packet) = packet else {
            let (src, port) = (received.src, received.src_port);
            tracing::debug!(target: "ferroce::wire", "{} bytes from {src} port {port} have a wrong ICRC", datagram.len());
            good.hand_on(&run, each);
            each(None);
            continue;
        };
        if good.push(packet) {
            good.hand_on(&run, each);
        }
    }
    good.hand_on(&run, each);
}

/// Packets of a run that are handed on together.
struct Together<'a> {
    packets: [&'a [u8]; TOGETHER],
    count: usize,
}

impl<'a> Together<'a> {
    const fn new() -> Self {
        Self {
            packets: [&[]; TOGETHER],
            count: 0,
        }
    }

    /// Adds one. Returns whether there is room for no more.
    fn push(&mut self, packet: &'a [u8]) -> bool {
        self.packets[self.count] = packet;
        self.count += 1;
        self.count == TOGETHER
    }

    /// Gives away what there is; `run` says how it came.
    fn hand_on(&mut self, run: &InboundRun<'_>, each: &mut dyn FnMut(Option<InboundRun<'_>>)) {
        let packets = &self.packets[..std::mem::take(&mut self.count)];
        if !packets.is_empty() {
            each(Some(InboundRun { packets, ..*run }));
        }
    }
}

/// The Identifications of a run's datagrams. What they were before the kernel joined them cannot be
/// seen; they usually count up.
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
    fn verify<'d>(&mut self, icrc: &mut Icrc, datagram: &'d [u8]) -> Option<&'d [u8]> {
        let verified = icrc.verify(self.guess, datagram);
        self.guess = verified.map_or(self.guess, |(_, ident)| ident).next();
        let (packet, ident) = verified?;
        let admitted = self.history.as_mut().is_none_or(|h| h.admit(ident));
        admitted.then_some(packet)
    }
}
