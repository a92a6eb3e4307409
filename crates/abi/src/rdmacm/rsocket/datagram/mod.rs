//! Datagram sockets.
//!
//! Each has a UDP socket and, for each address of this host that it uses, a UD queue pair. The
//! first datagram to a peer goes by UDP and tells the number of the own queue pair; the peer's
//! answer tells its number, and datagrams go by UD then. What UD cannot take (it is longer than a
//! packet, the peer is a group, a device has no UD) stays with UDP.
//!
//! Both are read within the socket's calls, by the caller: there is no thread.

mod endpoint;
mod epoll;
mod peers;
#[cfg(test)]
mod tests;
mod transfer;
mod udp;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ferroce_proto::ids::Qpn;
use ferroce_proto::rsocket::datagram::{self, Hello, HelloKind};
use libc::c_int;

use super::endpoint::Polled;
use super::errno::{Errno, Result};
use super::wait::{Awaited, Waiters, wait_unless};
use crate::rdmacm::lock;
use endpoint::DatagramEndpoint;
use epoll::Epoll;
use peers::{Peers, Told, canonical, is_usable};
use udp::Udp;

/// Bytes that wait to be received, at most: later ones are dropped, as UDP drops them.
const INBOX: usize = 1 << 20;
/// What a datagram in the inbox costs beside its bytes.
const INBOX_ENTRY: usize = 64;
/// UDP packets that a call takes at once.
const BATCH: usize = 32;
/// Longest UDP packet.
const PACKET: usize = 1 << 16;
/// How long an address is left to UDP after no endpoint could be made there, or one has failed.
const RETRY: Duration = Duration::from_secs(5);

/// Options that fill the error queue of a UDP socket. It is readable while that queue has entries,
/// which only the program could take, so a thread that sleeps for the socket would not sleep.
const ERROR_QUEUE: [(c_int, c_int); 5] = [
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
    (libc::SOL_SOCKET, SO_TIMESTAMPING_NEW),
    (libc::SOL_SOCKET, libc::SO_TXTIME),
];
/// `SO_TIMESTAMPING` with 64 bits of time (asm-generic/socket.h).
const SO_TIMESTAMPING_NEW: c_int = 65;

/// A datagram and its sender.
type Datagram = (SocketAddr, Vec<u8>);

/// UD at an address of this host, or how long UDP serves there before another try.
type Ud = std::result::Result<DatagramEndpoint, Instant>;

/// What the lock of a socket holds. Peers are dropped before the endpoints that they name.
#[derive(Debug)]
struct State {
    peers: Peers,
    /// By address of this host.
    endpoints: BTreeMap<IpAddr, Ud>,
    /// When a call last found no UD datagram left: those that are found next came later.
    drained: Instant,
    inbox: VecDeque<Datagram>,
    inbox_bytes: usize,
    /// The address that the socket is bound to, once it is.
    local: Option<SocketAddr>,
    connected: Option<SocketAddr>,
    /// What a call has to tell: an ICMP message came.
    error: Option<Errno>,
    no_reads: bool,
    no_writes: bool,
    /// A thread asked whether it can send, and the UDP socket had no room.
    awaits_room: bool,
    /// Room for a UDP packet.
    packet: Vec<u8>,
}

/// A datagram socket.
#[derive(Debug)]
pub(super) struct DatagramSocket {
    domain: c_int,
    nonblocking: AtomicBool,
    state: Mutex<State>,
    udp: Udp,
    /// Readable if the UDP socket or the channel of an endpoint is.
    epoll: Epoll,
    waiters: Waiters,
}

impl Awaited for DatagramSocket {
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn arm(&self) {
        self.state()
            .endpoints()
            .for_each(|endpoint| endpoint.queue().arm());
    }

    fn fds(&self, add: &mut dyn FnMut(RawFd)) {
        add(self.epoll.fd());
    }

    fn take_events(&self) {
        // No short cut: each channel's events are to be taken.
        let taken = self
            .state()
            .endpoints()
            .filter(|endpoint| endpoint.queue().take_events())
            .count();
        if taken > 0 {
            self.waiters.wake_others();
        }
    }
}

impl State {
    fn endpoints(&mut self) -> impl Iterator<Item = &mut DatagramEndpoint> {
        self.endpoints.values_mut().flatten()
    }

    fn keep(&mut self, datagram: Datagram) {
        let bytes = datagram.1.len() + INBOX_ENTRY;
        if self.no_reads || self.inbox_bytes + bytes > INBOX {
            return;
        }
        self.inbox_bytes += bytes;
        self.inbox.push_back(datagram);
    }

    fn pop(&mut self) -> Option<Datagram> {
        let datagram = self.inbox.pop_front()?;
        self.inbox_bytes -= datagram.1.len() + INBOX_ENTRY;
        Some(datagram)
    }

    /// Takes UD datagrams, and what was sent.
    fn take_ud(&mut self) -> Polled {
        let (now, since) = (Instant::now(), self.drained);
        let (mut came, mut all) = (Vec::new(), Polled::Nothing);
        for endpoint in self.endpoints.values_mut().flatten() {
            let polled = endpoint.poll(|datagram| {
                let Some((source, bytes)) = datagram::parse(datagram.bytes) else {
                    return;
                };
                let source = canonical(source);
                let is_true = source.ip() == datagram.ip.to_canonical();
                if is_true && self.peers.is_from(source, datagram.qpn, since, now) {
                    came.push((source, bytes.to_vec()));
                }
            });
            all = match (all, polled) {
                (Polled::Part, _) | (_, Polled::Part) => Polled::Part,
                (Polled::Nothing, Polled::Nothing) => Polled::Nothing,
                _ => Polled::All,
            };
        }
        if all != Polled::Part {
            self.drained = now;
        }
        for datagram in came {
            if self
                .connected
                .is_none_or(|peer| canonical(peer) == datagram.0)
            {
                self.keep(datagram);
            }
        }
        all
    }
}

impl DatagramSocket {
    /// A new socket of `AF_INET` or `AF_INET6`.
    pub(super) fn create(domain: c_int) -> Result<Arc<Self>> {
        let udp = Udp::new(domain)?;
        let epoll = Epoll::new()?;
        epoll.add(udp.fd())?;
        let state = State {
            peers: Peers::default(),
            endpoints: BTreeMap::new(),
            drained: Instant::now(),
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            local: None,
            connected: None,
            error: None,
            no_reads: false,
            no_writes: false,
            awaits_room: false,
            packet: vec![0; PACKET],
        };
        Ok(Arc::new(Self {
            domain,
            nonblocking: AtomicBool::new(false),
            state: Mutex::new(state),
            udp,
            epoll,
            waiters: Waiters::default(),
        }))
    }

    pub(super) fn domain(&self) -> c_int {
        self.domain
    }

    pub(super) fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Release);
    }

    pub(super) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn wait_unless<T>(&self, nonblocking: bool, attempt: impl FnMut() -> Option<T>) -> Result<T> {
        wait_unless(nonblocking || self.is_nonblocking(), self, attempt)
    }

    /// `rbind`.
    pub(super) fn bind(&self, addr: SocketAddr) -> Result<()> {
        let mut state = self.state();
        self.udp.bind(addr)?;
        state.local = Some(self.udp.local_addr()?);
        Ok(())
    }

    /// `rconnect`: only this peer is heard, and sends need no address.
    pub(super) fn connect(&self, peer: SocketAddr) -> Result<()> {
        let mut state = self.state();
        self.udp.connect(peer)?;
        state.local = Some(self.udp.local_addr()?);
        state.connected = Some(self.udp.peer_addr()?);
        Ok(())
    }

    /// `rshutdown`: ends directions of the socket.
    ///
    /// # Errors
    /// ENOTCONN for a socket that is not connected. Its directions have ended nevertheless, as in
    /// the kernel (`inet_shutdown`).
    pub(super) fn shutdown(&self, how: c_int) -> Result<()> {
        let mut state = self.state();
        let shut = self.udp.shutdown(how);
        if !matches!(shut, Ok(()) | Err(Errno(libc::ENOTCONN))) {
            return shut;
        }
        state.no_reads |= how != libc::SHUT_WR;
        state.no_writes |= how != libc::SHUT_RD;
        self.set_events(&state);
        drop(state);
        self.waiters.wake_all();
        shut
    }

    /// Has those events of the UDP socket wake threads that any may wait for. After the end of
    /// reading it is readable for ever.
    fn set_events(&self, state: &State) {
        let mut events = 0;
        if !state.no_reads {
            events |= libc::EPOLLIN;
        }
        if state.awaits_room {
            events |= libc::EPOLLOUT;
        }
        // It cannot fail: the descriptor was added, and needs no memory now.
        let _ = self.epoll.set(self.udp.fd(), events);
    }

    /// `rgetsockname`.
    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        self.udp.local_addr().ok()
    }

    /// `rgetpeername`.
    pub(super) fn peer_addr(&self) -> Result<SocketAddr> {
        self.udp.peer_addr()
    }

    /// `rsetsockopt`: those of the UDP socket, but for [`ERROR_QUEUE`].
    pub(super) fn set_option(&self, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
        if ERROR_QUEUE.contains(&(level, name)) {
            return Err(Errno(libc::ENOPROTOOPT));
        }
        self.udp.set_option(level, name, value)
    }

    /// `rgetsockopt`.
    pub(super) fn get_option(&self, level: c_int, name: c_int) -> Result<Vec<u8>> {
        if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR)
            && let Some(Errno(errno)) = self.state().error.take()
        {
            return Ok(errno.to_ne_bytes().to_vec());
        }
        self.udp.get_option(level, name)
    }

    /// Takes what has come by both ways. Sleeping threads are told if there was anything: it may be
    /// theirs, and their descriptors say nothing of it any more.
    fn pump(&self, state: &mut State) {
        let mut packet = std::mem::take(&mut state.packet);
        let mut taken = 0;
        while taken < BATCH {
            match self.udp.receive(&mut packet) {
                Ok(Some((len, from))) => self.on_packet(state, &packet[..len], from),
                Ok(None) => break,
                Err(error) => state.error = Some(error),
            }
            taken += 1;
        }
        state.packet = packet;
        let polled = state.take_ud();
        if polled != Polled::Nothing {
            self.drop_failed(state);
        }
        let has_room = state.awaits_room && self.udp.is_writable();
        if has_room {
            state.awaits_room = false;
            self.set_events(state);
        }
        match polled {
            Polled::Nothing if taken == 0 && !has_room => {}
            Polled::Nothing | Polled::All => self.waiters.wake_others(),
            // An armed queue says nothing of what it holds already, so no thread may sleep now.
            Polled::Part => self.waiters.wake_all(),
        }
    }

    /// Drops endpoints that have failed, and what peers told of them: UDP serves instead.
    fn drop_failed(&self, state: &mut State) {
        for (local, ud) in &mut state.endpoints {
            if let Ok(endpoint) = ud
                && endpoint.has_failed()
            {
                tracing::warn!(target: "ferroce::rdmacm", %local, "an rsocket's UD queue pair has failed: UDP serves");
                // The address handles go first.
                state.peers.forget(*local);
                let _ = self.epoll.remove(endpoint.queue().fd());
                *ud = Err(Instant::now() + RETRY);
            }
        }
    }

    fn on_packet(&self, state: &mut State, packet: &[u8], from: SocketAddr) {
        let Some((hello, bytes)) = Hello::parse(packet) else {
            return;
        };
        // Behind a translator of addresses a peer cannot be reached by UD.
        let told = hello.address.to_canonical();
        if told == from.ip().to_canonical() {
            self.learn(state, from, &hello);
        }
        if hello.kind == HelloKind::Data {
            state.keep((canonical(from), bytes.to_vec()));
        }
    }

    fn learn(&self, state: &mut State, from: SocketAddr, hello: &Hello) {
        let Some((local, qpn)) = self.own_number(state, from) else {
            return;
        };
        let State {
            peers, endpoints, ..
        } = &mut *state;
        let told = Told {
            qpn: hello.qpn,
            is_answer: hello.kind == HelloKind::Answer,
        };
        let is_known = peers.learn(from, told, local, Instant::now(), || {
            let endpoint = endpoints.get(&local)?.as_ref().ok()?;
            endpoint.address_handle(from.ip().to_canonical()).ok()
        });
        if is_known && hello.kind == HelloKind::Data {
            let answer = Hello {
                kind: HelloKind::Answer,
                qpn,
                address: local,
            };
            let (bytes, len) = answer.to_bytes();
            // If it is lost, the peer asks again with its next datagram.
            let _ = self
                .udp
                .send(&bytes[..len], self.unless_connected(state, from), true);
        }
    }

    /// A connected socket sends to its peer without an address.
    fn unless_connected(&self, state: &State, to: SocketAddr) -> Option<SocketAddr> {
        (state.connected != Some(to)).then_some(to)
    }

    /// The address of this host towards a peer, and the queue pair there, made when it is needed.
    fn own_number(&self, state: &mut State, peer: SocketAddr) -> Option<(IpAddr, Qpn)> {
        let local = self.own_ip(state, peer)?;
        if !is_usable(local) || !is_usable(peer.ip().to_canonical()) {
            return None;
        }
        let now = Instant::now();
        let ud = state.endpoints.entry(local).or_insert(Err(now));
        if matches!(ud, Err(until) if *until <= now) {
            let made = DatagramEndpoint::new(local).and_then(|endpoint| {
                self.epoll.add(endpoint.queue().fd())?;
                Ok(endpoint)
            });
            *ud = made.map_err(|Errno(errno)| {
                tracing::debug!(target: "ferroce::rdmacm", %local, errno, "datagrams stay with UDP");
                now + RETRY
            });
        }
        Some((local, ud.as_ref().ok()?.qpn()))
    }

    fn own_ip(&self, state: &State, peer: SocketAddr) -> Option<IpAddr> {
        match state.local.map(|local| local.ip().to_canonical()) {
            Some(ip) if !ip.is_unspecified() => Some(ip),
            _ => udp::local_ip_towards(peer).ok(),
        }
    }

    /// What can be done without waiting, of what is asked for (`poll(2)`).
    pub(super) fn revents(&self, events: i16) -> i16 {
        let mut state = self.state();
        self.pump(&mut state);
        let mut revents = 0;
        if !state.inbox.is_empty() || state.no_reads || state.error.is_some() {
            revents |= libc::POLLIN | libc::POLLRDNORM;
        }
        if state.no_reads {
            revents |= libc::POLLRDHUP;
        }
        let writable = libc::POLLOUT | libc::POLLWRNORM;
        // Which way the next datagram takes is not known before.
        if events & writable != 0 && state.endpoints().all(|endpoint| endpoint.has_room()) {
            if self.udp.is_writable() {
                revents |= writable;
            } else {
                state.awaits_room = true;
                self.set_events(&state);
            }
        }
        let mut always = 0;
        if state.error.is_some() {
            always |= libc::POLLERR;
        }
        if state.no_reads && state.no_writes {
            always |= libc::POLLHUP;
        }
        revents & events | always
    }
}
