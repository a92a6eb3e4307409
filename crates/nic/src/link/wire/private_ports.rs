//! Private ports: what one process sends to another has a source port of its own.
//!
//! All processes of a namespace share port 4791, and of datagrams with the same addresses and ports
//! the kernel gives all to one of them. `RoCEv2` leaves the source port free. So a sender uses one
//! that names it and, as far as 4 bits go, the receiver: `0xC000 + slot of the sender * 16 + slot
//! of the receiver % 16`. It lies where the specification wants it. A receiver knows in advance
//! from which port its peers will send, and asks the kernel for just that
//! ([`UdpSocket::receiver`]). Nobody is in between, no other process can hold it up, and it has a
//! socket buffer for each peer.
//!
//! Nothing depends on it. A sender whose port is taken uses 4791; what comes from elsewhere, or
//! meets a receiver that has too many peers, goes by the shared port and is passed on. Peers of
//! other makes have source ports of their own choice: the flow of one that had to be passed on a
//! few times gets a socket, too ([`Strays`]).

use std::collections::HashMap;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

use ferroce_os::udp::UdpSocket;
use ferroce_proto::ids::Gid;

use super::WireLink;
use crate::base::sync::{read, write};
use crate::link::Inbound;

/// Private ports out of a process, per IP version.
pub(crate) const PRIVATE_PORTS: u8 = 16;
/// The source ports that the specification has in mind.
const FIRST_PORT: u16 = 0xC000;
/// Sockets for private ports into a process.
const MAX_RECEIVERS: usize = 128;
/// Number of packets of a flow that are passed on before it gets a socket.
const STRAYS: u8 = 8;
/// Flows that are counted at once; strangers can fill the list, then it starts again.
const MAX_STRAYS: usize = 256;

/// The private port to the process that has a slot.
pub(crate) fn private_port_to(slot: u16) -> u8 {
    slot.to_le_bytes()[0] % PRIVATE_PORTS
}

/// The port that the process of slot `from` sends from, in one of its private ports.
pub(crate) fn private_port_number(from: u16, private_port: u8) -> u16 {
    FIRST_PORT | from << PRIVATE_PORTS.trailing_zeros() | u16::from(private_port % PRIVATE_PORTS)
}

/// What comes from one port of a peer to one of our addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PortFlow {
    /// Our address.
    pub(crate) local: Gid,
    /// The peer's.
    pub(crate) peer: Gid,
    /// Its port.
    pub(crate) port: u16,
}

impl PortFlow {
    /// The flow that a packet came with.
    pub(crate) fn of(inbound: &Inbound<'_>) -> Self {
        Self {
            local: inbound.addressing.dst,
            peer: inbound.addressing.src,
            port: inbound.src_port,
        }
    }
}

/// The sockets that send from private ports, each opened when it is first needed; `None` where that
/// was not possible.
#[derive(Debug)]
pub(super) struct Senders {
    slot: u16,
    v4: [OnceLock<Option<UdpSocket>>; PRIVATE_PORTS as usize],
    v6: [OnceLock<Option<UdpSocket>>; PRIVATE_PORTS as usize],
}

impl Senders {
    pub(super) fn new(slot: u16) -> Self {
        Self {
            slot,
            v4: Default::default(),
            v6: Default::default(),
        }
    }

    /// The socket of a private port.
    pub(super) fn socket(&self, v6: bool, private_port: u8) -> Option<&UdpSocket> {
        let sockets = if v6 { &self.v6 } else { &self.v4 };
        let socket = sockets[usize::from(private_port % PRIVATE_PORTS)].get_or_init(|| {
            let port = private_port_number(self.slot, private_port);
            UdpSocket::sender(v6, port)
                .inspect_err(|error| {
                    tracing::debug!(target: "ferroce::wire", port, %error, "sending from port 4791, which may reach another process first");
                })
                .ok()
        });
        socket.as_ref()
    }
}

/// A socket that receives a flow.
#[derive(Debug)]
pub(super) struct FlowSocket {
    pub(super) socket: UdpSocket,
    /// Something has come since somebody last looked for a socket that may go.
    used: AtomicBool,
}

impl FlowSocket {
    /// Notes that a datagram has come by this socket.
    pub(super) fn mark_used(&self) {
        self.used.store(true, Ordering::Relaxed);
    }
}

/// The sockets that receive flows, by number.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    known: RwLock<KnownFlows>,
}

#[derive(Debug, Default)]
struct KnownFlows {
    by_flow: HashMap<PortFlow, u32>,
    by_number: HashMap<u32, Arc<FlowSocket>>,
    next: u32,
}

impl Receivers {
    pub(super) fn find(&self, number: u32) -> Option<Arc<FlowSocket>> {
        read(&self.known).by_number.get(&number).cloned()
    }

    fn has(&self, flow: &PortFlow) -> bool {
        read(&self.known).by_flow.contains_key(flow)
    }
}

impl KnownFlows {
    /// Makes room for one more: a socket by which nothing has come since the last time goes.
    /// Returns whether there is room. What has come and nobody has taken out yet would be lost with
    /// the socket: then it only hears no more, and goes another time.
    fn make_room(&mut self) -> bool {
        if self.by_number.len() < MAX_RECEIVERS {
            return true;
        }
        let unused = |receiver: &FlowSocket| !receiver.used.swap(false, Ordering::Relaxed);
        let silent = self.by_number.iter().find(|(_, r)| unused(r));
        let Some((&number, receiver)) = silent else {
            return false;
        };
        self.by_flow.retain(|_, other| *other != number);
        if let Err(error) = receiver.socket.leave() {
            tracing::debug!(target: "ferroce::wire", %error, "a flow's socket is closed while it hears");
        }
        let is_empty = !receiver.socket.has_waiting();
        if is_empty {
            self.by_number.remove(&number);
        }
        is_empty
    }
}

impl WireLink {
    /// Whether something sent to `dst` can go out from a private port.
    pub(crate) fn has_private_port(&self, dst: Gid, private_port: u8) -> bool {
        self.sender(dst, Some(private_port)).is_some()
    }

    /// The socket that sends to `dst` from a private port, if there is one.
    pub(super) fn sender(&self, dst: Gid, private_port: Option<u8>) -> Option<&UdpSocket> {
        let senders = self.senders.as_ref()?;
        self.socket_to(dst)?;
        senders.socket(dst.ip().is_ipv6(), private_port?)
    }

    /// Asks the kernel for a flow. Returns the number and the descriptor of a new socket; `None`:
    /// there is one already, or none can be made, which a guest never can. `ifindex` is the scope
    /// of link-local addresses.
    pub(crate) fn receive_flow(&self, flow: PortFlow, ifindex: u32) -> Option<(u32, RawFd)> {
        let port = self
            .senders
            .as_ref()
            .and_then(|_| self.port_of(flow.local)?.inbox())?
            .port();
        if self.receivers.has(&flow) {
            return None;
        }
        let mut known = write(&self.receivers.known);
        if known.by_flow.contains_key(&flow) || !known.make_room() {
            return None;
        }
        let (local, peer) = (flow.local.ip(), flow.peer.ip());
        let socket = UdpSocket::receiver(local, port, (peer, flow.port).into(), ifindex)
            .inspect_err(|error| {
                tracing::debug!(target: "ferroce::wire", %local, %peer, port = flow.port, %error, "no socket for a flow");
            })
            .ok()?;
        let (number, fd) = (known.next, socket.as_raw_fd());
        known.next = known.next.wrapping_add(1) & (u32::MAX >> 1);
        let used = AtomicBool::new(true);
        known
            .by_number
            .insert(number, Arc::new(FlowSocket { socket, used }));
        known.by_flow.insert(flow, number);
        tracing::debug!(target: "ferroce::wire", %local, %peer, port = flow.port, "a socket for a flow");
        Some((number, fd))
    }
}

/// Counts packets that other processes passed on.
#[derive(Debug, Default)]
pub(crate) struct Strays(HashMap<PortFlow, u8>);

impl Strays {
    /// A packet of a flow was passed on to this process. Returns whether the flow deserves a
    /// socket.
    pub(crate) fn count(&mut self, flow: PortFlow) -> bool {
        if self.0.len() >= MAX_STRAYS {
            self.0.clear();
        }
        let count = self.0.entry(flow).or_default();
        *count = count.wrapping_add(1);
        count.is_multiple_of(STRAYS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_processes_has_a_port_for_entropy() {
        assert_eq!(private_port_number(0, 0), 0xC000);
        assert_eq!(private_port_number(1023, private_port_to(1023)), 0xFFFF);
        assert_eq!(private_port_number(1, private_port_to(0x12)), 0xC012);
        let mut ports: Vec<u16> = (0..1024)
            .flat_map(|slot| {
                (0..PRIVATE_PORTS).map(move |private_port| private_port_number(slot, private_port))
            })
            .collect();
        ports.dedup();
        assert_eq!(ports.len(), 1 << 14);
    }

    #[test]
    fn a_flow_that_strays_deserves_a_socket() {
        let flow = PortFlow {
            local: Gid([1; 16]),
            peer: Gid([2; 16]),
            port: 0xC123,
        };
        let mut strays = Strays::default();
        let deserved = (0..STRAYS).filter(|_| strays.count(flow)).count();
        assert_eq!(deserved, 1);
        for port in 0..1000 {
            strays.count(PortFlow { port, ..flow });
        }
        assert!(strays.0.len() <= MAX_STRAYS);
    }
}
