//! The private data of connect request and reply. Big-endian, whatever the hosts are.

use super::target::{ByteOrder, Target};

const VERSION: u8 = 1;
const FLAG_BIG_ENDIAN: u8 = 1;
const FLAG_IOMAP: u8 = 2;

/// Size of an iomap table, as it is carried in 8 bits: up to 128 exactly, above in multiples of
/// 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IomapSize(u8);

impl IomapSize {
    const COARSE: u8 = 0x80;

    /// The largest size that can be carried and is not above `entries`.
    #[must_use]
    pub fn at_most(entries: u16) -> Self {
        match entries {
            0..=128 => Self(entries.to_be_bytes()[1]),
            129..=255 => Self(Self::COARSE),
            _ => Self(Self::COARSE | (entries >> 8).min(0x7f).to_be_bytes()[1]),
        }
    }

    /// Number of entries.
    #[must_use]
    pub const fn entries(self) -> u16 {
        match self.0 {
            exact @ 0..=Self::COARSE => exact as u16,
            coarse => ((coarse & !Self::COARSE) as u16) << 8,
        }
    }
}

/// What each side tells the other when they connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionData {
    /// Byte order of its host.
    pub order: ByteOrder,
    /// Whether it understands iomap messages.
    pub has_iomaps: bool,
    /// Messages that it can take before it says more.
    pub credits: u16,
    /// Size of its iomap table, which lies behind the list of targets.
    pub iomap_size: IomapSize,
    /// Where it wants to be told of targets: a list of two.
    pub list: Target,
    /// The first target.
    pub buffer: Target,
}

/// Why private data is not that of an rsocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRsocket {
    /// Too short.
    #[error("{0} bytes of private data; an rsocket has 40")]
    Short(usize),
    /// Another version of the protocol.
    #[error("version {0} of the rsocket protocol; version 1 is the only one known")]
    Version(u8),
}

impl ConnectionData {
    /// Bytes of its form on the wire.
    pub const LEN: usize = 40;
    /// Elements of a list of targets.
    pub const TARGETS: u32 = 2;
    /// Where an iomap table begins behind the address of a list.
    pub const IOMAPS_AT: u64 = 32;

    /// Form on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let order = match self.order {
            ByteOrder::Big => FLAG_BIG_ENDIAN,
            ByteOrder::Little => 0,
        };
        let iomaps = if self.has_iomaps { FLAG_IOMAP } else { 0 };
        bytes[0] = VERSION;
        bytes[1] = order | iomaps;
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = self.iomap_size.0;
        bytes[8..24].copy_from_slice(&self.list.to_bytes(ByteOrder::Big));
        bytes[24..].copy_from_slice(&self.buffer.to_bytes(ByteOrder::Big));
        bytes
    }

    /// Reads private data, which may be followed by padding.
    ///
    /// # Errors
    /// It is not that of a version 1 rsocket.
    pub fn parse(bytes: &[u8]) -> Result<Self, NoRsocket> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk().ok_or(NoRsocket::Short(bytes.len()))?;
        if bytes[0] != VERSION {
            return Err(NoRsocket::Version(bytes[0]));
        }
        let target = |at: usize| {
            let bytes = bytes[at..].first_chunk().unwrap_or(&[0; Target::LEN]);
            Target::from_bytes(bytes, ByteOrder::Big)
        };
        Ok(Self {
            order: if bytes[1] & FLAG_BIG_ENDIAN == 0 {
                ByteOrder::Little
            } else {
                ByteOrder::Big
            },
            has_iomaps: bytes[1] & FLAG_IOMAP != 0,
            credits: u16::from_be_bytes([bytes[2], bytes[3]]),
            iomap_size: IomapSize(bytes[7]),
            list: target(8),
            buffer: target(24),
        })
    }
}
