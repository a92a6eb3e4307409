//! Bind, listen, and the resolution of addresses and routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ferroce_proto::cm::PACKET_LIFETIME;
use ferroce_proto::ids::Gid;
use ferroce_proto::verbs::Mtu;

use super::neighbour::scope_of;
use super::ports::{Holder, Names, PortChange, PortKey};
use super::request::source_gid;
use super::service::Work;
use super::state::{IdState, PortHold, Progress};
use super::{EventKind, EventParam, PortSpace, Route};
use crate::objects::device::Protocol;
use crate::{Device, Error};

/// Backlog of a listener that asks for none, and the longest.
const MAX_BACKLOG: usize = 1024;
/// Bytes of a packet that are not payload, at most: IPv6, UDP, transport headers, ICRC.
const HEADERS: u32 = 96;
/// Hop limit of routes: the usual default of hosts.
const HOP_LIMIT: u8 = 64;

impl Work<'_> {
    /// Claims the RDMA port of an address for an identifier.
    pub(super) fn bind_port(
        &mut self,
        key: u64,
        addr: SocketAddr,
        device: Option<Arc<Device>>,
    ) -> Result<(), Error> {
        let id = self.state.id(key)?;
        let holder = Holder {
            id: key,
            ip: addr.ip(),
            af_only: id.options.af_only,
            reuse: id.options.reuse_addr,
            listening: false,
        };
        let wanted = PortKey {
            ps: id.ps,
            port: addr.port(),
        };
        let names = Names {
            prefix: self.host.names(),
            signs: self.host.leaves_out_users(),
        };
        let (port, change) = self.state.ports.bind(names, wanted, holder)?;
        if let PortChange::New(fds) = change {
            for fd in fds {
                self.host.watch(fd, port.token());
            }
        }
        let id = self.state.id_mut(key)?;
        id.src = Some(with_port(addr, port.port));
        id.port = Some(PortHold::Claimed(port.port));
        id.device = device;
        id.progress = Progress::Bound;
        Ok(())
    }

    /// The device of a specific address; none for a wildcard.
    pub(super) fn device_to_bind(&self, ip: IpAddr) -> Result<Option<Arc<Device>>, Error> {
        if ip.is_unspecified() {
            return Ok(None);
        }
        if let Some(device) = self.device_of(ip) {
            return Ok(Some(device));
        }
        let errno = if self.host.is_local(ip) {
            libc::ENODEV
        } else {
            libc::EADDRNOTAVAIL
        };
        Err(Error::new(
            errno,
            format!("no device of this host has the address {ip}"),
        ))
    }

    pub(super) fn listen(&mut self, key: u64, backlog: u32) -> Result<(), Error> {
        let id = self.state.id(key)?;
        id.expect("rdma_listen", &[Progress::Idle, Progress::Bound])?;
        if id.progress == Progress::Idle {
            self.bind(key, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
        }
        let id = self.state.id(key)?;
        let Some(PortHold::Claimed(port)) = id.port else {
            return Err(Error::invalid(
                "rdma_listen on an identifier that was made to connect",
            ));
        };
        let ps = id.ps;
        self.state.ports.listen(PortKey { ps, port }, key)?;
        let id = self.state.id_mut(key)?;
        let wanted = usize::try_from(backlog).unwrap_or(usize::MAX);
        id.backlog.limit = if wanted == 0 {
            MAX_BACKLOG
        } else {
            wanted.min(MAX_BACKLOG)
        };
        id.progress = Progress::Listening;
        let limit = id.backlog.limit;
        self.listen_on_tcp(key, limit)
    }

    pub(super) fn resolve_addr(
        &mut self,
        key: u64,
        src: Option<SocketAddr>,
        dst: SocketAddr,
        timeout: Duration,
    ) -> Result<(), Error> {
        let id = self.state.id(key)?;
        id.expect("rdma_resolve_addr", &[Progress::Idle, Progress::Bound])?;
        let bound = if id.progress == Progress::Bound {
            id.src
        } else {
            src
        };
        if bound.is_some_and(|src| src.is_ipv4() != dst.is_ipv4()) {
            return Err(Error::invalid(format!(
                "source and destination {dst} are of different families"
            )));
        }
        if id.progress == Progress::Idle {
            self.bind_source(key, src, dst)?;
        }
        match self.find_address(key, dst) {
            Ok(dst) => self.resolve_link(key, dst, timeout),
            Err(e) => {
                tracing::debug!(target: "ferroce::cm", id = key, %dst, reason = %e, "address not resolved");
                self.tell(key, EventKind::AddrError, -e.errno, EventParam::None);
            }
        }
        Ok(())
    }

    /// Gives an identifier that will connect its source: an address if the program has one, and a
    /// port.
    fn bind_source(
        &mut self,
        key: u64,
        src: Option<SocketAddr>,
        dst: SocketAddr,
    ) -> Result<(), Error> {
        if let Some(src) = src.filter(|src| src.port() != 0) {
            return self.bind(key, src);
        }
        let any = SocketAddr::new(any_like(dst.ip()), 0);
        let src = src.unwrap_or(any);
        let device = self.device_to_bind(src.ip())?;
        let ps = self.state.id(key)?.ps;
        let port = self.state.ports.sources.take(self.host.names(), ps)?;
        let id = self.state.id_mut(key)?;
        id.src = Some(with_port(src, port));
        id.port = Some(PortHold::Source(port));
        id.device = device;
        id.progress = Progress::Bound;
        Ok(())
    }

    /// Settles the device, the source and the destination. Returns the destination.
    fn find_address(&mut self, key: u64, dst: SocketAddr) -> Result<SocketAddr, Error> {
        let id = self.state.id(key)?;
        let src = id.src.ok_or_else(|| Error::invalid("no source address"))?;
        let dst_ip = if dst.ip().is_unspecified() {
            loopback_like(dst.ip())
        } else {
            dst.ip()
        };
        // Its answers would be dropped.
        let is_host = !dst_ip.is_multicast() && !self.host.is_local(dst_ip);
        if is_host && !self.host.admits(dst_ip, None) {
            let why = format!("FERROCE_PEERS leaves {dst_ip} out");
            return Err(Error::new(libc::EACCES, why));
        }
        self.check_port_owner(id.ps, SocketAddr::new(dst_ip, dst.port()))?;
        let src_ip = self.source_toward(src.ip(), dst_ip, scope_of(dst))?;
        let device = self.device_of(src_ip).ok_or_else(|| {
            Error::new(
                libc::ENODEV,
                format!("{src_ip}, from where {dst_ip} is reached, is of no device"),
            )
        })?;
        let ps = self.state.id(key)?.ps;
        check_port_space(ps, &device)?;
        let id = self.state.id_mut(key)?;
        id.src = Some(with_ip(src, src_ip, &device));
        let dst = with_ip(dst, dst_ip, &device);
        id.dst = Some(dst);
        id.device = Some(device);
        Ok(dst)
    }

    /// The source address to reach `dst` with: the one that the identifier is bound to, else the
    /// route's.
    fn source_toward(&self, bound: IpAddr, dst: IpAddr, scope: u32) -> Result<IpAddr, Error> {
        // Groups are on the network of the source address, whatever the routes say.
        if dst.is_multicast() && !bound.is_unspecified() {
            return Ok(bound);
        }
        let chosen = self
            .host
            .source_for(dst, scope)
            .map_err(|e| Error::system("no route", &e))?;
        Ok(if bound.is_unspecified() {
            chosen
        } else {
            bound
        })
    }

    pub(super) fn resolve_route(&mut self, key: u64) -> Result<(), Error> {
        self.state
            .id(key)?
            .expect("rdma_resolve_route", &[Progress::AddrResolved])?;
        let id = self.state.id_mut(key)?;
        let dst = id
            .dst
            .ok_or_else(|| Error::invalid("the address is not resolved"))?;
        let (kind, status) = match find_route(id, dst) {
            Ok(route) => {
                id.route = Some(route);
                id.progress = Progress::RouteResolved;
                (EventKind::RouteResolved, 0)
            }
            Err(e) => {
                tracing::debug!(target: "ferroce::cm", id = key, reason = %e, "route not resolved");
                (EventKind::RouteError, -e.errno)
            }
        };
        self.tell(key, kind, status, EventParam::None);
        Ok(())
    }

    pub(super) fn set_route(&mut self, key: u64, route: Route) -> Result<(), Error> {
        let id = self.state.id_mut(key)?;
        id.expect("setting a path", &[Progress::AddrResolved])?;
        let dst = id
            .dst
            .ok_or_else(|| Error::invalid("the address is not resolved"))?;
        let found = find_route(id, dst)?;
        if (route.sgid, route.dgid) != (found.sgid, found.dgid) {
            return Err(Error::invalid(format!(
                "the path is from {} to {}, the identifier's addresses are {} and {}",
                route.sgid.ip(),
                route.dgid.ip(),
                found.sgid.ip(),
                found.dgid.ip()
            )));
        }
        id.route = Some(Route {
            sgid_index: found.sgid_index,
            mtu: route.mtu.min(found.mtu),
            ..route
        });
        id.progress = Progress::RouteResolved;
        self.tell(key, EventKind::RouteResolved, 0, EventParam::None);
        Ok(())
    }
}

/// The path from the source of an identifier to `dst`.
pub(super) fn find_route(id: &IdState, dst: SocketAddr) -> Result<Route, Error> {
    let resolved = id.device.as_ref().zip(id.src);
    let (device, src) = resolved.ok_or_else(|| Error::invalid("the address is not resolved"))?;
    let netdev_mtu = device.port().netdev_mtu;
    let mtu = Mtu::at_most(netdev_mtu.saturating_sub(HEADERS)).ok_or_else(|| {
        Error::invalid(format!(
            "{} has an MTU of {netdev_mtu}, too small for RDMA",
            device.netdev()
        ))
    })?;
    let (sgid, sgid_index) = source_gid(device, Gid::from_ip(src.ip()));
    Ok(Route {
        sgid,
        dgid: Gid::from_ip(dst.ip()),
        sgid_index,
        mtu,
        flow_label: flow_label(src, dst),
        hop_limit: HOP_LIMIT,
        traffic_class: id.options.tos,
        // An ACK timeout of 0 means never, which says nothing about the path.
        packet_life_time: id
            .options
            .ack_timeout
            .filter(|&t| t > 0)
            .map_or(PACKET_LIFETIME, |t| t - 1),
    })
}

/// The flow label that the program gave with the destination, else one that both ends compute from
/// the ports.
fn flow_label(src: SocketAddr, dst: SocketAddr) -> u32 {
    const MASK: u32 = 0xf_ffff;
    match dst {
        SocketAddr::V6(v6) if v6.flowinfo() & MASK != 0 => v6.flowinfo() & MASK,
        _ => (u32::from(src.port()) * 31 + u32::from(dst.port())) & MASK,
    }
}

/// iWARP has connections only.
pub(super) fn check_port_space(ps: PortSpace, device: &Device) -> Result<(), Error> {
    if device.protocol() == Protocol::Iwarp && ps != PortSpace::Tcp {
        return Err(Error::new(
            libc::ENODEV,
            format!(
                "{} speaks iWARP, which has connections of port space TCP only, not {}",
                device.name(),
                ps.name()
            ),
        ));
    }
    Ok(())
}

fn any_like(ip: IpAddr) -> IpAddr {
    if ip.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    }
}

fn loopback_like(ip: IpAddr) -> IpAddr {
    if ip.is_ipv4() {
        Ipv4Addr::LOCALHOST.into()
    } else {
        Ipv6Addr::LOCALHOST.into()
    }
}

fn with_port(mut addr: SocketAddr, port: u16) -> SocketAddr {
    addr.set_port(port);
    addr
}

/// The address with another IP; a link-local one gets the device's interface as its scope unless it
/// has one.
fn with_ip(mut addr: SocketAddr, ip: IpAddr, device: &Device) -> SocketAddr {
    addr.set_ip(ip);
    if let SocketAddr::V6(v6) = &mut addr
        && v6.ip().is_unicast_link_local()
        && v6.scope_id() == 0
    {
        v6.set_scope_id(device.ifindex());
    }
    addr
}
