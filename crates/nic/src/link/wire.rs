//! The wire link: `RoCEv2` in UDP, to everything that is not a process of this network namespace.
//!
//! All sockets of a namespace share port 4791, so a datagram may reach another process than it is meant for; that process
//! forwards it. Because the socket is bound, every datagram also leaves *from* port 4791: the UDP source port, which may vary
//! freely in `RoCEv2` to spread flows over parallel routes, does not vary here.

mod bad_network;
mod membership;
mod receive;

use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use ferroce_os::udp::{Datagram, UdpSocket};
use ferroce_proto::ids::Gid;
use ferroce_proto::wire::ROCE_UDP_PORT;
use ferroce_proto::wire::icrc::{self, Addresses, Encapsulation, Ident};

use super::fault::{Fault, Frame};
use super::{Addressing, Batch, Inbound, Sent};
use crate::Error;
use crate::core::lock;

use bad_network::BadNetwork;
use receive::Receiver;

/// Datagrams per system call.
const CHUNK: usize = 32;
/// UDP sockets for both IP versions.
#[derive(Debug)]
pub(crate) struct WireLink {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
    /// Taken out by whoever receives, so that no lock is held while packets are handled.
    receiver: Mutex<Option<Box<Receiver>>>,
    bad_network: Option<BadNetwork>,
    /// The errno of the last datagram that the kernel refused to send.
    last_refusal: AtomicI32,
    /// Nothing is sent any more.
    left: AtomicBool,
}

impl WireLink {
    /// Opens UDP port 4791 on all addresses, shared with other processes of the same user.
    ///
    /// # Errors
    /// EADDRINUSE if somebody owns the port who does not share it; EAFNOSUPPORT in a namespace without IP; EMFILE and the
    /// like.
    pub(crate) fn open(fault: Option<Fault>) -> Result<Self, Error> {
        Self::open_at(ROCE_UDP_PORT, fault)
    }

    fn open_at(port: u16, fault: Option<Fault>) -> Result<Self, Error> {
        let v4 = optional(UdpSocket::bind_v4(port), port)?;
        let v6 = optional(UdpSocket::bind_v6(port), port)?;
        if v4.is_none() && v6.is_none() {
            return Err(Error::new(
                libc::EAFNOSUPPORT,
                "neither IPv4 nor IPv6 sockets can be made here",
            ));
        }
        let bad_network = fault.map(BadNetwork::new).transpose()?;
        Ok(Self {
            v4,
            v6,
            receiver: Mutex::new(Some(Box::new(Receiver::new()))),
            bad_network,
            last_refusal: AtomicI32::new(0),
            left: AtomicBool::new(false),
        })
    }

    /// The sockets.
    fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        self.v4.iter().chain(&self.v6)
    }

    /// The socket that a destination is reached by.
    fn socket_to(&self, dst: Gid) -> Option<&UdpSocket> {
        match dst.ip() {
            IpAddr::V4(_) => self.v4.as_ref(),
            IpAddr::V6(_) => self.v6.as_ref(),
        }
    }

    /// The descriptor by which a destination is reached: it is writable when a blocked [`send`](Self::send) can go on.
    pub(crate) fn fd_to(&self, dst: Gid) -> Option<RawFd> {
        self.socket_to(dst).map(AsRawFd::as_raw_fd)
    }

    /// The descriptor of the bad network's timer, if there is one: readable when [`recv`](Self::recv) has to send on what was
    /// held back.
    pub(crate) fn timer_fd(&self) -> Option<RawFd> {
        self.bad_network.as_ref().map(|bad| bad.timer_fd())
    }

    /// Bytes that the smaller of the sockets holds while nobody takes them out, as the kernel counts (`SO_RCVBUF`). A peer of
    /// our kind holds as much: that bounds what may be on the way to it, and what it may be asked to send.
    pub(crate) fn receive_buffer(&self) -> u32 {
        let bytes = self
            .sockets()
            .filter_map(|s| s.receive_buffer().ok())
            .min()
            .unwrap_or(0);
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Leaves the port to the other processes. What has come so far can still be received; what is sent from now on is lost.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Relaxed);
        for socket in self.sockets() {
            if let Err(error) = socket.leave() {
                tracing::debug!(target: "ferroce::wire", %error, "the port was not left");
            }
        }
    }

    /// Sends a batch, each packet with its ICRC.
    ///
    /// What the kernel refuses for another reason than a full socket (too long for the interface, no route, an address that
    /// went away …) counts as lost on the way: the transport finds out as it does for any loss.
    pub(crate) fn send(&self, batch: &mut Batch) -> Sent {
        if self.left.load(Ordering::Relaxed) {
            batch.clear();
            return Sent::All;
        }
        let addressing = batch.addressing;
        let (Some(socket), Some(addresses)) = (
            self.socket_to(addressing.dst),
            Addresses::from_gids(addressing.src, addressing.dst),
        ) else {
            self.refused(batch.ends.len(), libc::EAFNOSUPPORT, &addressing);
            batch.clear();
            return Sent::All;
        };
        let encap = Encapsulation {
            addresses,
            src_port: socket.port(),
        };
        if let Some(bad) = &self.bad_network {
            bad.admit(&encap, batch);
            bad.flush(&mut |frame| self.send_frame(frame));
            return Sent::All;
        }
        let mut sent = 0;
        while sent < batch.ends.len() {
            match self.send_chunk(socket, &encap, batch, sent) {
                Ok(more) => sent += more,
                Err(Full(more)) => {
                    batch.discard(sent + more);
                    return Sent::Blocked;
                }
            }
        }
        batch.clear();
        Sent::All
    }

    /// Sends up to [`CHUNK`] packets of a batch from the `first`. Returns how many went or were lost.
    fn send_chunk(
        &self,
        socket: &UdpSocket,
        encap: &Encapsulation,
        batch: &Batch,
        first: usize,
    ) -> Result<usize, Full> {
        let mut crcs = [[0; icrc::LEN]; CHUNK];
        let mut datagrams = [datagram(socket, &batch.addressing, [&[], &[]]); CHUNK];
        let mut ready = 0;
        for ((packet, crc), slot) in batch
            .packets()
            .skip(first)
            .zip(&mut crcs)
            .zip(&mut datagrams)
        {
            *crc = icrc::compute(encap, Ident::ZERO, packet);
            slot.parts = [packet, crc];
            ready += 1;
        }
        let mut done = 0;
        while done < ready {
            match socket.send_many(&datagrams[done..ready]) {
                Ok(went) => done += went,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Err(Full(done)),
                Err(e) => {
                    self.refused(1, e.raw_os_error().unwrap_or(0), &batch.addressing);
                    done += 1;
                }
            }
        }
        Ok(done)
    }

    /// The kernel refused `count` datagrams. The first time for a reason is worth a warning.
    fn refused(&self, count: usize, errno: i32, to: &Addressing) {
        let why = std::io::Error::from_raw_os_error(errno);
        let (from, to) = (to.src.ip(), to.dst.ip());
        if self.last_refusal.swap(errno, Ordering::Relaxed) == errno {
            tracing::debug!(target: "ferroce::wire", "{count} datagrams from {from} to {to} were not sent: {why}");
        } else {
            tracing::warn!(target: "ferroce::wire", "{count} datagrams from {from} to {to} were not sent: {why}");
        }
    }

    /// Sends a frame that came through the bad network. Returns false if the socket is full.
    fn send_frame(&self, frame: &Frame) -> bool {
        let to = &frame.addressing;
        let Some(socket) = self.socket_to(to.dst) else {
            return true;
        };
        match socket.send_many(&[datagram(socket, to, [&frame.bytes, &[]])]) {
            Ok(_) => true,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => false,
            Err(e) => {
                self.refused(1, e.raw_os_error().unwrap_or(0), to);
                true
            }
        }
    }

    /// Receives up to about `budget` datagrams and hands each to `each`: its packet, or `None` if the ICRC is wrong or it is too
    /// short or too long for one. Returns whether there may be more. Only one thread receives at a time; a second one is told
    /// that there may be more.
    pub(crate) fn recv(&self, budget: usize, each: &mut dyn FnMut(Option<Inbound<'_>>)) -> bool {
        if let Some(bad) = &self.bad_network {
            bad.flush(&mut |frame| self.send_frame(frame));
        }
        let Some(mut receiver) = lock(&self.receiver).take() else {
            return true;
        };
        let more = receiver.recv(self.v4.as_ref(), self.v6.as_ref(), budget, each);
        *lock(&self.receiver) = Some(receiver);
        more
    }
}

/// The socket is full; this many packets went before.
struct Full(usize);

/// A datagram to the port that the socket itself is bound to: both ends use the same.
fn datagram<'a>(socket: &UdpSocket, to: &Addressing, parts: [&'a [u8]; 2]) -> Datagram<'a> {
    Datagram {
        dst: to.dst.ip(),
        port: socket.port(),
        src: to.src.ip(),
        ifindex: to.ifindex,
        ttl: to.hop_limit,
        tos: to.traffic_class,
        flow_label: to.flow_label,
        parts,
    }
}

/// A socket, or `None` if the kernel has no such IP version.
fn optional(bound: std::io::Result<UdpSocket>, port: u16) -> Result<Option<UdpSocket>, Error> {
    let error = match bound {
        Ok(socket) => return Ok(Some(socket)),
        Err(error) => error,
    };
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    match errno {
        // EADDRNOTAVAIL: IPv6 was switched off after the kernel started.
        libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL => Ok(None),
        libc::EADDRINUSE => Err(Error::new(
            errno,
            format!(
                "UDP port {port} is owned by another user's process or by the kernel's rxe (module rdma_rxe); without it \
                 there are no connections to other hosts"
            ),
        )),
        _ => Err(Error::new(
            errno,
            format!("UDP port {port} cannot be opened: {error}"),
        )),
    }
}

#[cfg(test)]
mod tests;
