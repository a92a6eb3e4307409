//! The wire link: `RoCEv2` in UDP, to everything that is not a process of this network namespace.
//!
//! All sockets of a namespace share port 4791, so a datagram may reach another process than it is
//! meant for; that process forwards it. What queue pairs send to each other goes in
//! [`private_ports`] that are received by nobody else.

mod bad_network;
mod membership;
pub(crate) mod private_ports;
mod receive;
mod send;
mod shared_port;

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use ferroce_os::multicast::Witness;
use ferroce_os::udp::UdpSocket;
use ferroce_proto::ids::Gid;
use ferroce_proto::wire::ROCE_UDP_PORT;

use super::InboundRun;
use super::fault::LinkFault;
use crate::Error;
use crate::base::sync::lock;

use self::private_ports::{Receivers, Senders};
use bad_network::PacketFaults;
use receive::WireReceiver;
use shared_port::{SharedPort, SharedPortSign};

/// Which sockets to receive from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// The one for IPv4.
    V4,
    /// The one for IPv6.
    V6,
    /// Both of these.
    Shared,
    /// The one of a flow, by number: see [`WireLink::receive_flow`].
    Flow(u32),
}

/// UDP sockets for both IP versions.
#[derive(Debug)]
pub(crate) struct WireLink {
    v4: Option<SharedPort>,
    v6: Option<SharedPort>,
    /// Tells other users' processes that a Ferroce is on the port.
    sign: Mutex<Option<SharedPortSign>>,
    /// None: everything is sent from port 4791, and no flow has a socket.
    senders: Option<Senders>,
    receivers: Receivers,
    /// Taken out by the thread that receives, so that no lock is held while packets are handled.
    receiver: Mutex<Option<Box<WireReceiver>>>,
    bad_network: Option<PacketFaults>,
    /// The errno of the last datagram that the kernel refused to send.
    last_refusal: AtomicI32,
    /// The kernel cuts runs of packets into datagrams.
    cuts: AtomicBool,
    /// Nothing is sent any more.
    left: AtomicBool,
    /// See [`Witness`]; by group and interface.
    witnesses: Mutex<HashMap<(Gid, u32), Witness>>,
}

impl WireLink {
    /// Opens UDP port 4791 on all addresses, shared with other processes of the same user, for the
    /// process that has `slot`; `None`: without private ports. Where another user's Ferroce has the
    /// port, it is a guest there (see [`shared_port`]).
    ///
    /// # Errors
    /// EADDRINUSE if anybody else owns the port; EAFNOSUPPORT in a namespace without IP; EMFILE and
    /// the like.
    pub(crate) fn open(slot: Option<u16>, fault: Option<LinkFault>) -> Result<Self, Error> {
        Self::open_at(ROCE_UDP_PORT, slot, fault)
    }

    fn open_at(port: u16, slot: Option<u16>, fault: Option<LinkFault>) -> Result<Self, Error> {
        // Before the port is bound: it is looked for by processes that find the port taken.
        let sign = SharedPortSign::put_up(port);
        let v4 = SharedPort::open(port, false)?;
        let v6 = SharedPort::open(port, true)?;
        if v4.is_none() && v6.is_none() {
            return Err(Error::new(
                libc::EAFNOSUPPORT,
                "neither IPv4 nor IPv6 sockets can be made here",
            ));
        }
        let has_port = v4.iter().chain(&v6).any(|shared| shared.inbox().is_some());
        let bad_network = fault.map(PacketFaults::new).transpose()?;
        let cuts = v4
            .iter()
            .chain(&v6)
            .all(|shared| shared.out().can_segment());
        Ok(Self {
            v4,
            v6,
            sign: Mutex::new(sign.filter(|_| has_port)),
            senders: slot.map(Senders::new),
            receivers: Receivers::default(),
            receiver: Mutex::new(Some(Box::new(WireReceiver::new()))),
            bad_network,
            last_refusal: AtomicI32::new(0),
            cuts: AtomicBool::new(cuts),
            left: AtomicBool::new(false),
            witnesses: Mutex::default(),
        })
    }

    /// The ports of both versions.
    fn ports(&self) -> impl Iterator<Item = &SharedPort> {
        self.v4.iter().chain(&self.v6)
    }

    /// The port of an address's version.
    fn port_of(&self, gid: Gid) -> Option<&SharedPort> {
        match gid.ip() {
            IpAddr::V4(_) => self.v4.as_ref(),
            IpAddr::V6(_) => self.v6.as_ref(),
        }
    }

    /// The socket that a destination is reached by.
    fn socket_to(&self, dst: Gid) -> Option<&UdpSocket> {
        self.port_of(dst).map(SharedPort::out)
    }

    /// Whether what comes to the shared port of an IP version comes by the socket that sends.
    pub(crate) fn hears_by_out(&self, v6: bool) -> bool {
        let shared = if v6 { &self.v6 } else { &self.v4 };
        shared.as_ref().is_some_and(SharedPort::hears_by_out)
    }

    /// The user whose processes pass on what comes to an address, where this process is a guest.
    pub(crate) fn holder(&self, dst: Gid) -> Option<u32> {
        self.port_of(dst)?.holder()
    }

    /// Whether this process is a guest for some version.
    pub(crate) fn is_guest(&self) -> bool {
        self.ports().any(|shared| shared.inbox().is_none())
    }

    /// Tries to get the port where this process is a guest. Returns the versions (6 or not) and
    /// descriptors of sockets that receive from now on.
    pub(crate) fn take_port(&self) -> Vec<(bool, RawFd)> {
        let mut sign = lock(&self.sign);
        if self.left.load(Ordering::Relaxed) || !self.is_guest() {
            return Vec::new();
        }
        let port = self.ports().next().map_or(ROCE_UDP_PORT, SharedPort::port);
        let fresh = if sign.is_none() {
            SharedPortSign::put_up(port)
        } else {
            None
        };
        let versions = [(false, &self.v4), (true, &self.v6)];
        let taken = versions.map(|(v6, shared)| Some((v6, shared.as_ref()?.take()?)));
        let taken: Vec<_> = taken.into_iter().flatten().collect();
        if !taken.is_empty() {
            *sign = sign.take().or(fresh);
        }
        taken
    }

    /// The descriptor by which a destination is reached, from a private port if one is given: it is
    /// writable when a blocked [`send`](Self::send) can go on.
    pub(crate) fn fd_to(&self, dst: Gid, private_port: Option<u8>) -> Option<RawFd> {
        match private_port {
            Some(_) => self.sender(dst, private_port),
            None => self.socket_to(dst),
        }
        .map(AsRawFd::as_raw_fd)
    }

    /// The descriptor of the bad network's timer, if there is one: readable when
    /// [`recv`](Self::recv) has to send on what was held back.
    pub(crate) fn timer_fd(&self) -> Option<RawFd> {
        self.bad_network.as_ref().map(|bad| bad.timer_fd())
    }

    /// Bytes that the smaller of the sockets holds while nobody takes them out, as the kernel
    /// counts (`SO_RCVBUF`). A peer of our kind holds as much: that bounds what may be on the way
    /// to it, and what it may be asked to send.
    pub(crate) fn receive_buffer(&self) -> u32 {
        let bytes = self
            .ports()
            .map(|shared| shared.out().receive_buffer())
            .min()
            .unwrap_or(0);
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Whether the kernel cuts runs of packets that are sent, and joins those that come.
    pub(crate) fn runs(&self) -> (bool, bool) {
        let joins = self.ports().all(|shared| shared.out().can_join());
        (self.cuts.load(Ordering::Relaxed), joins)
    }

    /// Leaves the port to the other processes. What has come so far can still be received; what is
    /// sent from now on is lost.
    pub(crate) fn leave(&self) {
        // Under the lock, so that no port is taken any more once this one has it.
        let mut sign = lock(&self.sign);
        self.left.store(true, Ordering::Relaxed);
        *sign = None;
        drop(sign);
        for socket in self.ports().filter_map(SharedPort::inbox) {
            if let Err(error) = socket.leave() {
                tracing::debug!(target: "ferroce::wire", %error, "the port was not left");
            }
        }
    }

    /// Receives from some sockets, up to about `budget` of each (see [`WireReceiver`]). Hands to
    /// `each` the packets of a few datagrams, or `None` for one whose ICRC is wrong or that is too
    /// short or too long for a packet. Returns whether there may be more. Only one thread receives
    /// at a time; a second one is told that there may be more.
    pub(crate) fn recv(
        &self,
        of: Of,
        budget: usize,
        each: &mut dyn FnMut(Option<InboundRun<'_>>),
    ) -> bool {
        if let Some(bad) = &self.bad_network {
            bad.flush(&mut |frame| self.send_frame(frame));
        }
        let Some(mut receiver) = lock(&self.receiver).take() else {
            return true;
        };
        let [v4, v6] = [&self.v4, &self.v6].map(|shared| shared.as_ref()?.inbox());
        let more = match of {
            Of::V4 => receiver.recv([v4], budget, each),
            Of::V6 => receiver.recv([v6], budget, each),
            Of::Shared => receiver.recv([v4, v6], budget, each),
            Of::Flow(number) => self.receivers.find(number).is_some_and(|flow| {
                receiver.recv([Some(&flow.socket)], budget, &mut |run| {
                    flow.mark_used();
                    each(run);
                })
            }),
        };
        *lock(&self.receiver) = Some(receiver);
        more
    }
}

#[cfg(test)]
mod tests;
