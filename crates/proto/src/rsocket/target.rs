//! Places in the peer's memory, in the form in which one host writes them into the other's.

/// Byte order of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Network byte order.
    Big,
}

impl ByteOrder {
    /// This host's.
    pub const NATIVE: Self = if cfg!(target_endian = "big") {
        Self::Big
    } else {
        Self::Little
    };

    fn put_u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    fn put_u64(self, value: u64) -> [u8; 8] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }
}

/// A range of memory with its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Virtual address in its owner.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// Bytes; 0 stands for no target.
    pub length: u32,
}

impl Target {
    /// Bytes of its written form.
    pub const LEN: usize = 16;
    /// Where the length is in it: it must become visible last.
    pub const LENGTH_AT: usize = 12;

    /// The form that a host of this byte order reads.
    #[must_use]
    pub fn to_bytes(self, order: ByteOrder) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&order.put_u64(self.address));
        bytes[8..12].copy_from_slice(&order.put_u32(self.key));
        bytes[12..].copy_from_slice(&order.put_u32(self.length));
        bytes
    }

    /// Reads the form for a host of this byte order.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN], order: ByteOrder) -> Self {
        let [
            a0,
            a1,
            a2,
            a3,
            a4,
            a5,
            a6,
            a7,
            k0,
            k1,
            k2,
            k3,
            l0,
            l1,
            l2,
            l3,
        ] = *bytes;
        Self {
            address: order.u64([a0, a1, a2, a3, a4, a5, a6, a7]),
            key: order.u32([k0, k1, k2, k3]),
            length: order.u32([l0, l1, l2, l3]),
        }
    }
}

/// An entry of an iomap table: memory that its owner lets the peer write to, under an offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IomapEntry {
    /// Where it begins, in the numbers of `riowrite`.
    pub offset: u64,
    /// The memory.
    pub target: Target,
}

impl IomapEntry {
    /// Bytes of its written form.
    pub const LEN: usize = 24;

    /// The form that a host of this byte order reads.
    #[must_use]
    pub fn to_bytes(self, order: ByteOrder) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&order.put_u64(self.offset));
        bytes[8..].copy_from_slice(&self.target.to_bytes(order));
        bytes
    }

    /// Reads the form for a host of this byte order.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN], order: ByteOrder) -> Self {
        let (offset, target) = bytes.split_at(8);
        Self {
            offset: order.u64(offset.try_into().unwrap_or_default()),
            target: Target::from_bytes(target.try_into().unwrap_or(&[0; Target::LEN]), order),
        }
    }

    /// The remote address of `offset`, and how many bytes of the entry lie from there on. `None` if
    /// the entry does not hold it, or the peer has given a range that no memory has.
    #[must_use]
    pub fn find(&self, offset: u64) -> Option<(u64, u32)> {
        let inside = offset.checked_sub(self.offset)?;
        let left = u64::from(self.target.length).checked_sub(inside)?;
        let address = self.target.address.checked_add(inside)?;
        let left = u32::try_from(left).ok().filter(|left| *left > 0)?;
        Some((address, left))
    }
}
