//! Sending and receiving datagrams.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use ferroce_proto::ids::Qpn;
use ferroce_proto::rsocket::datagram::{self, Hello, HelloKind};
use libc::c_int;

use super::super::buffers::Buffers;
use super::super::errno::{Errno, Result};
use super::{Datagram, DatagramSocket, PACKET, State};

/// How a datagram goes.
enum Way {
    /// By UD: it has gone.
    Ud,
    /// In this UDP packet, to this address unless the socket is connected to it.
    Udp(Vec<u8>, Option<SocketAddr>),
}

impl DatagramSocket {
    /// Sends a datagram; without an address to the peer that the socket is connected to.
    pub(in super::super) fn send(
        &self,
        mut from: Buffers<'_>,
        to: Option<SocketAddr>,
        nonblocking: bool,
    ) -> Result<isize> {
        let len = from.left();
        let way = self.wait_unless(nonblocking, || self.try_send(&mut from, to).transpose())?;
        if let Way::Udp(packet, to) = way? {
            // Not under the lock, since it may wait.
            let nonblocking = nonblocking || self.is_nonblocking();
            self.udp.send(&packet, to, nonblocking)?;
        }
        isize::try_from(len).map_err(|_| Errno(libc::EMSGSIZE))
    }

    /// `None`: as many datagrams are on their way as there may be.
    fn try_send(&self, from: &mut Buffers<'_>, to: Option<SocketAddr>) -> Result<Option<Way>> {
        let mut state = self.state();
        if state.no_writes {
            return Err(Errno(libc::EPIPE));
        }
        self.pump(&mut state);
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        let peer = to.or(state.connected).ok_or(Errno(libc::EDESTADDRREQ))?;
        if state.local.is_none() {
            let any = match self.domain {
                libc::AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            self.udp.bind((any, 0).into())?;
            state.local = Some(self.udp.local_addr()?);
        }
        let port = state.local.map_or(0, |local| local.port());
        let state = &mut *state;
        if let Some(known) = state.peers.fresh(peer, Instant::now())
            && let Some(Ok(endpoint)) = state.endpoints.get_mut(&known.local)
        {
            let (header, header_len) = datagram::header((known.local, port).into());
            if header_len + from.left() <= endpoint.mtu() {
                if !endpoint.has_room() {
                    return Ok(None);
                }
                let target = (&known.handle, known.qpn);
                endpoint.send(target, &header[..header_len], from)?;
                return Ok(Some(Way::Ud));
            }
        }
        let packet = self.hello(state, peer, from)?;
        Ok(Some(Way::Udp(packet, self.unless_connected(state, peer))))
    }

    /// The UDP packet of a datagram: it tells the own number.
    fn hello(
        &self,
        state: &mut State,
        peer: SocketAddr,
        from: &mut Buffers<'_>,
    ) -> Result<Vec<u8>> {
        if from.left() > PACKET {
            return Err(Errno(libc::EMSGSIZE));
        }
        // Without a number the peer stays with UDP, too.
        let own_number = self.own_number(state, peer);
        if own_number.is_some() {
            state.peers.ask(peer, Instant::now());
        }
        let (address, qpn) = own_number.unwrap_or_else(|| {
            let own = self.own_ip(state, peer);
            (
                own.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
                Qpn::new(0),
            )
        });
        let hello = Hello {
            kind: HelloKind::Data,
            qpn,
            address,
        };
        let (header, header_len) = hello.to_bytes();
        let mut packet = header[..header_len].to_vec();
        from.advance(from.left(), |piece, len| {
            // SAFETY: bytes of the program's buffer.
            packet.extend_from_slice(unsafe { std::slice::from_raw_parts(piece, len) });
        });
        Ok(packet)
    }

    /// Receives a datagram: its length, which may be more than there is room for, and its sender.
    pub(in super::super) fn receive(
        &self,
        to: &mut Buffers<'_>,
        flags: c_int,
    ) -> Result<(usize, SocketAddr)> {
        let nonblocking = flags & libc::MSG_DONTWAIT != 0;
        let peek = flags & libc::MSG_PEEK != 0;
        let (from, bytes) = self.wait_unless(nonblocking, || self.take(peek).transpose())??;
        let mut rest = &bytes[..];
        to.advance(bytes.len(), |piece, len| {
            let (now, later) = rest.split_at(len);
            // SAFETY: room in the program's buffer.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), piece, len) };
            rest = later;
        });
        Ok((bytes.len(), self.as_domain(from)))
    }

    fn take(&self, peek: bool) -> Result<Option<Datagram>> {
        let mut state = self.state();
        if state.inbox.is_empty() {
            self.pump(&mut state);
        }
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        let datagram = match peek {
            true => state.inbox.front().cloned(),
            false => state.pop(),
        };
        if datagram.is_none() && state.no_reads {
            return Ok(Some(((Ipv4Addr::UNSPECIFIED, 0).into(), Vec::new())));
        }
        Ok(datagram)
    }

    /// An address as programs of this socket's family see it.
    fn as_domain(&self, addr: SocketAddr) -> SocketAddr {
        match (self.domain, addr.ip()) {
            (libc::AF_INET6, IpAddr::V4(v4)) => (v4.to_ipv6_mapped(), addr.port()).into(),
            _ => addr,
        }
    }
}
