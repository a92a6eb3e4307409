//! Memory of a peer, by its key.

use std::fmt;
use std::ops::Range;

/// A peer's memory region.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::qp::Operation;
/// use ferroce::mem::{Access, MemoryRegion, RemoteRegion};
/// let pair = pair()?;
/// // The peer's memory, as it was told, say, in private data.
/// let theirs = MemoryRegion::new(&pair.domain, 64, Access::Remote)?;
/// let told = theirs.remote().to_bytes();
///
/// let remote = RemoteRegion::from_bytes(&told).ok_or("not a region")?;
/// let ours = MemoryRegion::of_bytes(&pair.domain, *b"hello", Access::LocalWrite)?;
/// pair.near.post_send(1, Operation::Write(remote.at(8)), &[ours.slice(0..5)?])?;
/// pair.completions.wait()?.result?;
/// let mut came = [0; 5];
/// theirs.read(8, &mut came)?;
/// assert_eq!(&came, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RemoteRegion {
    /// Address of the first byte, in the peer.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Its key (`R_Key` of the IBTA specification): 32 bits.
    pub rkey: u32,
}

impl RemoteRegion {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 20;

    /// A form to send to peers: address, length and key, big-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&self.address.to_be_bytes());
        out[8..16].copy_from_slice(&self.length.to_be_bytes());
        out[16..].copy_from_slice(&self.rkey.to_be_bytes());
        out
    }

    /// Reads what a peer sent. `None` if it is too short.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (address, rest) = bytes.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let rkey = rest.first_chunk()?;
        Some(Self {
            address: u64::from_be_bytes(*address),
            length: u64::from_be_bytes(*length),
            rkey: u32::from_be_bytes(*rkey),
        })
    }

    /// A part of it. None if it is not within.
    #[must_use]
    pub fn slice(self, range: Range<u64>) -> Option<Self> {
        let within = range.start <= range.end && range.end <= self.length;
        within.then(|| Self {
            address: self.address.wrapping_add(range.start),
            length: range.end - range.start,
            rkey: self.rkey,
        })
    }

    /// The place `offset` bytes from its start.
    #[must_use]
    pub fn at(self, offset: u64) -> RemoteAddress {
        RemoteAddress {
            address: self.address.wrapping_add(offset),
            rkey: self.rkey,
        }
    }
}

impl fmt::Display for RemoteRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            length,
            rkey,
        } = self;
        write!(f, "{length} bytes at {address:#x}, key {rkey:#x}")
    }
}

/// A place in a peer's memory. The peer checks it: a wrong one costs the connection, not memory.
///
/// ```
/// use ferroce::mem::RemoteRegion;
/// let region = RemoteRegion { address: 0x1000, length: 64, rkey: 7 };
/// let place = region.at(16); // for `Operation::Write` and `Operation::Read`
/// assert_eq!((place.address, place.rkey), (0x1010, 7));
/// assert_eq!(place.to_string(), "0x1010, key 0x7");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RemoteAddress {
    /// Address, in the peer.
    pub address: u64,
    /// Key of its region.
    pub rkey: u32,
}

impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, rkey } = self;
        write!(f, "{address:#x}, key {rkey:#x}")
    }
}

#[cfg(test)]
mod tests {
    use super::RemoteRegion;

    #[test]
    fn a_remote_region_survives_the_trip() {
        let region = RemoteRegion {
            address: 0x7f00_1234_5678,
            length: 4096,
            rkey: 0xdead_beef,
        };
        let mut bytes = region.to_bytes().to_vec();
        assert_eq!(RemoteRegion::from_bytes(&bytes), Some(region));
        bytes.push(0); // private data comes padded
        assert_eq!(RemoteRegion::from_bytes(&bytes), Some(region));
        assert_eq!(RemoteRegion::from_bytes(&bytes[..19]), None);
    }

    #[test]
    fn a_part_of_a_remote_region_lies_within_it() {
        let region = RemoteRegion {
            address: 0x1000,
            length: 64,
            rkey: 1,
        };
        let part = region.slice(16..64).map(|part| (part.address, part.length));
        assert_eq!(part, Some((0x1010, 48)));
        assert_eq!(region.slice(16..65), None);
        let (start, end) = (20, 16);
        assert_eq!(region.slice(start..end), None);
    }
}
