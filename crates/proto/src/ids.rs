//! Newtypes of the field. Each defines its order and range once.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const MASK24: u32 = 0x00ff_ffff;

/// Packet sequence number, 24 bits, compared modulo 2^24.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// The low 24 bits of `raw`.
    #[must_use]
    pub const fn new(raw: u32) -> Self {
        Self(raw & MASK24)
    }

    /// The number, below 2^24.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN `n` packets later.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// The PSN `n` packets earlier.
    #[must_use]
    pub const fn minus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_sub(n))
    }

    /// Signed distance `self - other`, in -2^23 .. 2^23.
    #[must_use]
    pub const fn distance(self, other: Self) -> i32 {
        // The difference of 24 bits is moved to the top, where its sign is that of an i32.
        (self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8
    }

    /// Whether `self` comes before `other`.
    #[must_use]
    pub const fn before(self, other: Self) -> bool {
        self.distance(other) < 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "psn {:#08x}", self.0)
    }
}

/// Queue pair number, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Qpn(u32);

impl Qpn {
    /// The subnet management queue pair, which Ethernet does not have.
    pub const SMI: Self = Self(0);
    /// The general services queue pair, where connection management lives.
    pub const GSI: Self = Self(1);
    /// Destination of every multicast packet.
    pub const MULTICAST: Self = Self(MASK24);
    /// The low 24 bits of `raw`.
    #[must_use]
    pub const fn new(raw: u32) -> Self {
        Self(raw & MASK24)
    }

    /// The number, below 2^24.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qpn {:#x}", self.0)
    }
}

/// Number of an XRC shared receive queue, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Srqn(u32);

impl Srqn {
    /// The low 24 bits of `raw`.
    #[must_use]
    pub const fn new(raw: u32) -> Self {
        Self(raw & MASK24)
    }

    /// The number, below 2^24.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Srqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "srqn {:#x}", self.0)
    }
}

/// A memory key (`L_Key` or `R_Key`): 32 unpredictable bits that name a region or window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Key(pub u32);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {:#010x}", self.0)
    }
}

/// Message sequence number of an AETH, 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Msn(u32);

impl Msn {
    /// The low 24 bits of `raw`.
    #[must_use]
    pub const fn new(raw: u32) -> Self {
        Self(raw & MASK24)
    }

    /// The number, below 2^24.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The next message's number.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0 + 1)
    }
}

/// Identifies a protection domain within one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PdId(pub u32);

/// Global identifier: the 16 bytes of an IPv6 address, or an IPv4 address as `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID of an IP address on `RoCEv2`.
    #[must_use]
    pub const fn from_ip(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }

    /// The IP address that this GID stands for on `RoCEv2`.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        let v6 = Ipv6Addr::from(self.0);
        v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
    }

    /// Whether it is an IPv4 or IPv6 multicast group.
    #[must_use]
    pub fn is_multicast(self) -> bool {
        self.ip().is_multicast()
    }

    /// Whether all 16 bytes are zero: an empty table entry.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Self {
        Self::from_ip(IpAddr::V4(ip))
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gid {}", Ipv6Addr::from(self.0))
    }
}

/// EUI-64 of a device (node GUID, CA GUID), as the number whose big-endian bytes go on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Guid(pub u64);

/// The partition key of every Ferroce port: the default partition, full member.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// `Q_Key` of QP1.
pub const GSI_QKEY: u32 = 0x8001_0000;
