//! A key and the tags that it makes.

use alloc::vec::Vec;
use core::fmt;

use blake3::{Hash, Hasher};

use super::{COUNTER, TAG, TagAddresses};
use crate::wire::Bth;

/// Offset of the byte with FECN and BECN in the BTH, which switches change.
const CONGESTION_AT: usize = 4;

/// A key for tags.
#[derive(Clone)]
pub struct TagKey([u8; 32]);

/// Keys are not printed.
impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TagKey").finish_non_exhaustive()
    }
}

impl TagKey {
    pub(super) const fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// Another key, of this one and of what tells it from others. Only the concatenation counts, so
    /// parts have fixed lengths.
    pub(super) fn derive(&self, parts: &[&[u8]]) -> Self {
        let mut hasher = Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The tag of a packet, BTH to pad.
    #[must_use]
    pub fn tag(&self, sequence: u64, addresses: &TagAddresses, packet: &[u8]) -> [u8; TAG] {
        let mut head = [0; 8 + 32 + Bth::LEN];
        head[..8].copy_from_slice(&sequence.to_be_bytes());
        head[8..24].copy_from_slice(&addresses.src.0);
        head[24..40].copy_from_slice(&addresses.dst.0);
        let (bth, rest) = packet.split_at(packet.len().min(Bth::LEN));
        let end = 40 + bth.len();
        head[40..end].copy_from_slice(bth);
        if bth.len() > CONGESTION_AT {
            head[40 + CONGESTION_AT] = 0;
        }
        let mut hasher = Hasher::new_keyed(&self.0);
        hasher.update(&head[..end]);
        hasher.update(rest);
        let mut tag = [0; TAG];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..TAG]);
        tag
    }

    /// Whether a tag is that of a packet. The comparison takes the same time whatever differs.
    #[must_use]
    pub(super) fn is_tag(
        &self,
        sequence: u64,
        addresses: &TagAddresses,
        packet: &[u8],
        tag: &[u8],
    ) -> bool {
        let right = self.tag(sequence, addresses, packet);
        tag.try_into().is_ok_and(|tag| is_same(&right, tag))
    }

    /// Takes the tag off a packet, if it is right for the sequence. The comparison takes the same
    /// time whatever differs.
    #[must_use]
    pub fn take_tag<'a>(
        &self,
        sequence: u64,
        addresses: &TagAddresses,
        tagged: &'a [u8],
    ) -> Option<&'a [u8]> {
        let (packet, tag) = tagged.split_last_chunk::<TAG>()?;
        let right = self.tag(sequence, addresses, packet);
        is_same(&right, tag).then_some(packet)
    }

    /// Puts a counter and a tag behind the packet that begins at `start`.
    pub fn add_counted_tag(
        &self,
        counter: u64,
        addresses: &TagAddresses,
        bytes: &mut Vec<u8>,
        start: usize,
    ) {
        let tag = self.tag(counter, addresses, &bytes[start..]);
        bytes.extend_from_slice(&counter.to_be_bytes());
        bytes.extend_from_slice(&tag);
    }

    /// Takes counter and tag off a packet. Returns both if the tag is right; whether the counter
    /// is, is the caller's matter.
    #[must_use]
    pub fn take_counted_tag<'a>(
        &self,
        addresses: &TagAddresses,
        tagged: &'a [u8],
    ) -> Option<(&'a [u8], u64)> {
        let (rest, tag) = tagged.split_last_chunk::<TAG>()?;
        let (packet, counter) = rest.split_last_chunk::<COUNTER>()?;
        let counter = u64::from_be_bytes(*counter);
        let right = self.tag(counter, addresses, packet);
        is_same(&right, tag).then_some((packet, counter))
    }
}

/// Compares in the same time whatever differs: hashes are compared so.
fn is_same(a: &[u8; TAG], b: &[u8; TAG]) -> bool {
    let widen = |tag: &[u8; TAG]| {
        let mut bytes = [0; 32];
        bytes[..TAG].copy_from_slice(tag);
        Hash::from_bytes(bytes)
    };
    widen(a) == widen(b)
}
