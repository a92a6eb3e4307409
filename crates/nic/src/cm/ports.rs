//! Ports and their owners, in this process and in the network namespace.
//!
//! A port that somebody asked for (or that was drawn for `bind` with port 0) is claimed by an
//! abstract datagram socket `ferroce/port/<port space>/<port>`. The kernel makes the name exclusive
//! in the network namespace and frees it with the process; requests for the port from other
//! processes of the host arrive on it. Several identifiers of one process share a claim where the
//! addresses or options allow. Ports that need a right have more ([`low_ports`](super::low_ports)).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use ferroce_os::unix::Dgram;

use super::PortSpace;
use super::low_ports::{LowClaim, LowPorts};
use super::source_ports::{SourcePorts, candidates};
use crate::Error;

/// A port of a port space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PortKey {
    pub(super) ps: PortSpace,
    pub(super) port: u16,
}

impl PortKey {
    /// The name of the socket that claims it, of those that begin with `names`.
    pub(super) fn name(self, names: &str) -> String {
        format!("{names}port/{}/{}", self.ps.name(), self.port)
    }

    /// The name of the [`PortSign`] at it.
    pub(super) fn sign(self, names: &str) -> String {
        format!("{names}own-user/{}/{}", self.ps.name(), self.port)
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

    /// Whether one of two that conflict is for all addresses.
    fn meets_wildcard(&self, other: &Self) -> bool {
        self.ip.is_unspecified() || other.ip.is_unspecified()
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

/// What holds the name of a port.
#[derive(Debug)]
enum Hold {
    Open(Dgram),
    Low(LowClaim),
}

impl Hold {
    fn socket(&self) -> &Dgram {
        match self {
            Self::Open(socket) => socket,
            Self::Low(low) => &low.socket,
        }
    }

    /// The descriptors to watch.
    fn fds(&self) -> Vec<RawFd> {
        let bell = match self {
            Self::Open(_) => None,
            Self::Low(low) => Some(low.bell.as_raw_fd()),
        };
        bell.into_iter()
            .chain([self.socket().as_raw_fd()])
            .collect()
    }
}

/// Says that the owner of a port deals with its own user only (`FERROCE_PEERS=own-user`): an
/// abstract name beside the port's. A process that sends requests looks for it, so that nothing
/// need be read and answered here. It counts if both names have the same owner.
#[derive(Debug)]
struct PortSign {
    _socket: Dgram,
}

impl PortSign {
    fn put_up(name: &str) -> Option<Self> {
        let socket = Dgram::sign(name).inspect_err(|error| {
            tracing::debug!(target: "ferroce::cm", name, %error, "other users will not be told at once that they are left out");
        });
        socket.ok().map(|socket| Self { _socket: socket })
    }
}

/// Names that a process claims, and what it says by them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    /// What all of them begin with.
    pub(super) prefix: &'a str,
    /// Whether ports have a [`PortSign`].
    pub(super) signs: bool,
}

#[derive(Debug)]
struct PortClaim {
    hold: Hold,
    holders: Vec<Holder>,
    _sign: Option<PortSign>,
}

/// All ports of this process.
#[derive(Debug)]
pub(super) struct Ports {
    claims: BTreeMap<PortKey, PortClaim>,
    pub(super) low: LowPorts,
    /// Ports of identifiers that only connect.
    pub(super) sources: SourcePorts,
}

/// What became of a claim, for the host's watch list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PortChange {
    /// Nothing to watch or unwatch.
    None,
    /// Descriptors to watch from now on.
    New(Vec<RawFd>),
    /// Descriptors that go: unwatch them, then call [`Ports::drop_claim`].
    Gone(Vec<RawFd>),
}

impl Ports {
    /// No ports.
    pub(super) fn new() -> Self {
        Self {
            claims: BTreeMap::new(),
            low: LowPorts::read(),
            sources: SourcePorts::default(),
        }
    }

    /// Holds a port for an identifier; port 0 draws one from the ephemeral range. Returns the port.
    pub(super) fn bind(
        &mut self,
        names: Names<'_>,
        key: PortKey,
        holder: Holder,
    ) -> Result<(PortKey, PortChange), Error> {
        if key.port != 0 {
            return self.hold(names, key, holder).map(|change| (key, change));
        }
        for port in candidates(&self.sources.range()) {
            let key = PortKey { port, ..key };
            if self.claims.contains_key(&key) {
                continue;
            }
            match self.hold(names, key, holder) {
                Ok(change) => return Ok((key, change)),
                Err(e) if [libc::EADDRINUSE, libc::EADDRNOTAVAIL].contains(&e.errno) => {}
                Err(e) => return Err(e),
            }
        }
        Err(none_left(key.ps))
    }

    fn hold(
        &mut self,
        names: Names<'_>,
        key: PortKey,
        holder: Holder,
    ) -> Result<PortChange, Error> {
        if let Some(claim) = self.claims.get_mut(&key) {
            if let Some(other) = claim.holders.iter().find(|o| holder.conflicts_with(o)) {
                return Err(in_use(key, holder.meets_wildcard(other), SAME_PROCESS));
            }
            claim.holders.push(holder);
            return Ok(PortChange::None);
        }
        if self.sources.uses(key) {
            let by = "as the source of a connection of this process";
            return Err(in_use(key, holder.ip.is_unspecified(), by));
        }
        // First the sign: a process that finds the port finds the sign, too.
        let _sign = names
            .signs
            .then(|| PortSign::put_up(&key.sign(names.prefix)))
            .flatten();
        let hold = self.claim(&key.name(names.prefix), key, holder.ip.is_unspecified())?;
        let fds = hold.fds();
        let claim = PortClaim {
            hold,
            holders: vec![holder],
            _sign,
        };
        self.claims.insert(key, claim);
        Ok(PortChange::New(fds))
    }

    fn claim(&self, name: &str, key: PortKey, wildcard: bool) -> Result<Hold, Error> {
        let taken = || in_use(key, wildcard, "by another process");
        if self.low.has(key.port) {
            return self.low.claim(name)?.map(Hold::Low).ok_or_else(taken);
        }
        let socket = Dgram::bind(name).map_err(|e| match e.raw_os_error() {
            Some(libc::EADDRINUSE) => taken(),
            _ => Error::system("claim of an RDMA port", &e),
        })?;
        Ok(Hold::Open(socket))
    }

    /// Marks a holder as listening. Options that let it share the port do not let it share a port
    /// that listens.
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
        let mut others = claim.holders.iter().filter(|other| other.id != id);
        if let Some(other) = others.find(|other| alone.conflicts_with(other)) {
            return Err(in_use(key, alone.meets_wildcard(other), SAME_PROCESS));
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

    /// Whether this process has claimed a port, so that requests for it are this process's to
    /// answer.
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
        self.claims.get(&key).map(|claim| claim.hold.socket())
    }

    /// Other processes may want to know whose port it is.
    pub(super) fn answer_bell(&self, key: PortKey) {
        if let Some(Hold::Low(low)) = self.claims.get(&key).map(|claim| &claim.hold) {
            low.answer_bell();
        }
    }

    /// Ends an identifier's hold.
    pub(super) fn release(&mut self, key: PortKey, id: u64) -> PortChange {
        let Some(claim) = self.claims.get_mut(&key) else {
            return PortChange::None;
        };
        claim.holders.retain(|h| h.id != id);
        if claim.holders.is_empty() {
            PortChange::Gone(claim.hold.fds())
        } else {
            PortChange::None
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
}

const SAME_PROCESS: &str = "by another identifier of this process";

/// The refusal of a port that is taken. The kernel's errno says whether one of the two identifiers
/// has or wants all addresses (`cma_check_port`).
fn in_use(key: PortKey, wildcard: bool, by: &str) -> Error {
    let errno = if wildcard {
        libc::EADDRNOTAVAIL
    } else {
        libc::EADDRINUSE
    };
    Error::new(
        errno,
        format!("RDMA {} port {} is in use {by}", key.ps.name(), key.port),
    )
}

pub(super) fn none_left(ps: PortSpace) -> Error {
    let name = ps.name();
    Error::new(
        libc::EADDRNOTAVAIL,
        format!("no RDMA {name} port of the ephemeral range is free"),
    )
}
