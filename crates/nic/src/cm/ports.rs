//! Ports: who has which, in this process and in the network namespace.
//!
//! A port that somebody asked for (or that was drawn for `bind` with port 0) is claimed by an abstract datagram socket
//! `ferroce/port/<port space>/<port>`. The kernel makes the name exclusive in the network namespace and frees it with the
//! process; requests for the port from other processes of the host arrive on it. Several identifiers of one process share
//! a claim where the addresses or options allow.
//!
//! The source port of an identifier that only connects gets no requests, and there may be thousands of them: such ports come
//! from blocks, each claimed by one socket `ferroce/ports/<port space>/<first>`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use ferroce_os::{random, unix::Dgram};

use super::PortSpace;
use crate::Error;

/// Ports of a block: one per bit of its map.
const BLOCK: u16 = 64;
/// Draws before a search from the start of the range.
const DRAWS: u32 = 64;

/// A port of a port space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PortKey {
    pub(super) ps: PortSpace,
    pub(super) port: u16,
}

impl PortKey {
    /// The name of the socket that claims it.
    pub(super) fn name(self) -> String {
        format!("ferroce/port/{}/{}", self.ps.name(), self.port)
    }
    /// As the host hands it back.
    pub(super) fn token(self) -> u64 {
        u64::from(self.ps as u16) << 16 | u64::from(self.port)
    }
    pub(super) fn from_token(token: u64) -> Option<Self> {
        let ps = PortSpace::from_code(u16::try_from(token >> 16).ok()?)?;
        Some(Self {
            ps,
            port: u16::try_from(token & 0xffff).ok()?,
        })
    }
}

/// An identifier's hold on a claimed port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    /// Key of the identifier.
    pub(super) id: u64,
    /// Address that it is bound to; unspecified for any.
    pub(super) ip: IpAddr,
    pub(super) af_only: bool,
    pub(super) reuse: bool,
    pub(super) listening: bool,
}

impl Holder {
    fn conflicts_with(&self, other: &Self) -> bool {
        if self.reuse && other.reuse && !other.listening {
            return false;
        }
        if self.ip.is_ipv6() != other.ip.is_ipv6() && (self.v6_only() || other.v6_only()) {
            return false;
        }
        self.ip.is_unspecified() || other.ip.is_unspecified() || self.ip == other.ip
    }
    /// Takes no IPv4: every IPv6 address but the unspecified one of a dual-stack identifier.
    fn v6_only(&self) -> bool {
        self.ip.is_ipv6() && (self.af_only || !self.ip.is_unspecified())
    }
    /// How well a request for `ip` fits: 0 not at all, 3 exactly.
    fn fits(&self, ip: IpAddr) -> u8 {
        match (
            self.ip == ip,
            self.ip.is_unspecified(),
            self.ip.is_ipv6() == ip.is_ipv6(),
        ) {
            (true, ..) => 3,
            (false, true, true) => 2,
            (false, true, false) if self.ip.is_ipv6() && !self.af_only => 1,
            _ => 0,
        }
    }
}

#[derive(Debug)]
struct Claim {
    socket: Dgram,
    holders: Vec<Holder>,
}

#[derive(Debug)]
struct Block {
    ps: PortSpace,
    first: u16,
    used: u64,
    /// Holds the name; nothing comes on it.
    _socket: Dgram,
}

/// All ports of this process.
#[derive(Debug, Default)]
pub(super) struct Ports {
    claims: BTreeMap<PortKey, Claim>,
    blocks: Vec<Block>,
    /// The host's ephemeral ports, once read.
    range: Option<(u16, u16)>,
}

/// What became of a claim, for the host's watch list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing to watch or unwatch.
    None,
    /// This descriptor is new.
    New(RawFd),
    /// This descriptor goes; unwatch it, then call [`Ports::drop_claim`].
    Gone(RawFd),
}

impl Ports {
    /// Holds a port for an identifier; port 0 draws one from the ephemeral range. Returns the port.
    pub(super) fn bind(
        &mut self,
        key: PortKey,
        holder: Holder,
    ) -> Result<(PortKey, Change), Error> {
        if key.port != 0 {
            return self.hold(key, holder).map(|change| (key, change));
        }
        for port in candidates(self.range()) {
            let key = PortKey { port, ..key };
            if self.claims.contains_key(&key) {
                continue;
            }
            match self.hold(key, holder) {
                Ok(change) => return Ok((key, change)),
                Err(e) if e.errno == libc::EADDRINUSE => {}
                Err(e) => return Err(e),
            }
        }
        Err(none_left(key.ps))
    }

    fn hold(&mut self, key: PortKey, holder: Holder) -> Result<Change, Error> {
        if let Some(claim) = self.claims.get_mut(&key) {
            if claim
                .holders
                .iter()
                .any(|other| holder.conflicts_with(other))
            {
                return Err(in_use(key, "by another identifier of this process"));
            }
            claim.holders.push(holder);
            return Ok(Change::None);
        }
        if self
            .block_of(key)
            .is_some_and(|(block, bit)| block.used & bit != 0)
        {
            return Err(in_use(key, "as the source of a connection of this process"));
        }
        let socket = Dgram::bind(&key.name()).map_err(|e| match e.raw_os_error() {
            Some(libc::EADDRINUSE) => in_use(key, "by another process"),
            _ => Error::system("claim of an RDMA port", &e),
        })?;
        let fd = socket.as_raw_fd();
        self.claims.insert(
            key,
            Claim {
                socket,
                holders: vec![holder],
            },
        );
        Ok(Change::New(fd))
    }

    /// Marks a holder as listening. Options that let it share the port do not let it share a port that listens.
    pub(super) fn listen(&mut self, key: PortKey, id: u64) -> Result<(), Error> {
        let Some(claim) = self.claims.get_mut(&key) else {
            return Err(Error::invalid("the identifier has no port to listen on"));
        };
        let Some(at) = claim.holders.iter().position(|h| h.id == id) else {
            return Err(Error::invalid("the identifier has no port to listen on"));
        };
        let alone = Holder {
            reuse: false,
            ..claim.holders[at]
        };
        if claim
            .holders
            .iter()
            .any(|other| other.id != id && alone.conflicts_with(other))
        {
            return Err(in_use(key, "by another identifier of this process"));
        }
        claim.holders[at].listening = true;
        Ok(())
    }

    /// Options changed after the bind.
    pub(super) fn update(&mut self, key: PortKey, id: u64, change: impl FnOnce(&mut Holder)) {
        if let Some(claim) = self.claims.get_mut(&key)
            && let Some(holder) = claim.holders.iter_mut().find(|h| h.id == id)
        {
            change(holder);
        }
    }

    /// Whether this process has claimed a port, so that requests for it are this process's to answer.
    pub(super) fn is_claimed(&self, key: PortKey) -> bool {
        self.claims.contains_key(&key)
    }

    /// The listener for a request to `ip`.
    pub(super) fn listener(&self, key: PortKey, ip: IpAddr) -> Option<u64> {
        let holders = &self.claims.get(&key)?.holders;
        let fitting = holders.iter().filter(|h| h.listening && h.fits(ip) > 0);
        fitting.max_by_key(|h| h.fits(ip)).map(|h| h.id)
    }

    /// The socket that claims a port.
    pub(super) fn socket(&self, key: PortKey) -> Option<&Dgram> {
        self.claims.get(&key).map(|claim| &claim.socket)
    }

    /// Ends an identifier's hold.
    pub(super) fn release(&mut self, key: PortKey, id: u64) -> Change {
        let Some(claim) = self.claims.get_mut(&key) else {
            return Change::None;
        };
        claim.holders.retain(|h| h.id != id);
        if claim.holders.is_empty() {
            Change::Gone(claim.socket.as_raw_fd())
        } else {
            Change::None
        }
    }

    /// Frees a port that nobody holds any more.
    pub(super) fn drop_claim(&mut self, key: PortKey) {
        if self
            .claims
            .get(&key)
            .is_some_and(|claim| claim.holders.is_empty())
        {
            self.claims.remove(&key);
        }
    }

    /// A source port for an identifier that only connects.
    pub(super) fn take_source(&mut self, ps: PortSpace) -> Result<u16, Error> {
        let range = self.range();
        for block in self.blocks.iter_mut().filter(|b| b.ps == ps) {
            if let Some(port) = block.take(range) {
                return Ok(port);
            }
        }
        for start in candidates((range.0 / BLOCK, range.1 / BLOCK)) {
            let first = start * BLOCK;
            if self.blocks.iter().any(|b| b.ps == ps && b.first == first) {
                continue;
            }
            match Dgram::bind(&format!("ferroce/ports/{}/{first}", ps.name())) {
                Ok(socket) => {
                    let mut block = Block {
                        ps,
                        first,
                        used: 0,
                        _socket: socket,
                    };
                    if let Some(port) = block.take(range) {
                        self.blocks.push(block);
                        return Ok(port);
                    }
                }
                Err(e) if e.raw_os_error() == Some(libc::EADDRINUSE) => {}
                Err(e) => return Err(Error::system("claim of RDMA source ports", &e)),
            }
        }
        Err(none_left(ps))
    }

    /// Gives a source port back. An unused block stays if it is the only one of its port space.
    pub(super) fn release_source(&mut self, key: PortKey) {
        let first = key.port - key.port % BLOCK;
        let Some(at) = self
            .blocks
            .iter()
            .position(|b| b.ps == key.ps && b.first == first)
        else {
            return;
        };
        self.blocks[at].used &= !(1 << (key.port - first));
        let others = self
            .blocks
            .iter()
            .any(|b| b.ps == key.ps && b.first != first);
        if self.blocks[at].used == 0 && others {
            self.blocks.swap_remove(at);
        }
    }

    fn range(&mut self) -> (u16, u16) {
        *self.range.get_or_insert_with(ephemeral_range)
    }

    fn block_of(&self, key: PortKey) -> Option<(&Block, u64)> {
        let first = key.port - key.port % BLOCK;
        let block = self
            .blocks
            .iter()
            .find(|b| b.ps == key.ps && b.first == first)?;
        Some((block, 1 << (key.port - first)))
    }
}

impl Block {
    /// A free port of the block that is in the range and that nobody has claimed by itself.
    fn take(&mut self, (low, high): (u16, u16)) -> Option<u16> {
        for offset in 0..BLOCK {
            let port = self.first + offset;
            if self.used & (1 << offset) != 0 || port < low || port > high {
                continue;
            }
            let key = PortKey { ps: self.ps, port };
            if Dgram::bind(&key.name()).is_ok() {
                self.used |= 1 << offset;
                return Some(port);
            }
        }
        None
    }
}

/// Numbers of a range: some random ones, then all in order.
fn candidates((low, high): (u16, u16)) -> impl Iterator<Item = u16> {
    let span = u32::from(high - low) + 1;
    let draw = move |_| low + u16::try_from(random::u32() % span).unwrap_or(0);
    (0..DRAWS).map(draw).chain(low..=high)
}

/// The host's range of ephemeral ports.
fn ephemeral_range() -> (u16, u16) {
    const DEFAULT: (u16, u16) = (32768, 60999);
    let parse = |text: String| {
        let mut numbers = text.split_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(low)), Some(Ok(high))) if 0 < low && low <= high => Some((low, high)),
            _ => None,
        }
    };
    let read = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    ferroce_os::thread::uncancellable(read)
        .ok()
        .and_then(parse)
        .unwrap_or(DEFAULT)
}

fn in_use(key: PortKey, by: &str) -> Error {
    Error::new(
        libc::EADDRINUSE,
        format!("RDMA {} port {} is in use {by}", key.ps.name(), key.port),
    )
}

fn none_left(ps: PortSpace) -> Error {
    let name = ps.name();
    Error::new(
        libc::EADDRNOTAVAIL,
        format!("no RDMA {name} port of the ephemeral range is free"),
    )
}
