//! Big-endian and bit-field access to the fixed offsets of a MAD.
//!
//! All offsets are constants of the layouts, below 256, so the slicing here cannot fail.

use super::Mad;

/// Offset of the first byte after the common MAD header; the layouts count from here.
pub(super) const BODY: usize = 24;

/// Reads fields; offsets count from the end of the common header.
#[derive(Clone, Copy)]
pub(super) struct Body<'a>(pub(super) &'a Mad);

impl Body<'_> {
    pub(super) fn bytes<const N: usize>(self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&self.0[BODY + at..BODY + at + N]);
        out
    }

    pub(super) fn u8(self, at: usize) -> u8 {
        self.0[BODY + at]
    }

    pub(super) fn u16(self, at: usize) -> u16 {
        u16::from_be_bytes(self.bytes(at))
    }

    pub(super) fn u24(self, at: usize) -> u32 {
        let [a, b, c] = self.bytes(at);
        u32::from_be_bytes([0, a, b, c])
    }

    pub(super) fn u32(self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes(at))
    }

    pub(super) fn u64(self, at: usize) -> u64 {
        u64::from_be_bytes(self.bytes(at))
    }

    /// `width` bits of a byte, counted from its most significant bit.
    pub(super) fn bits(self, at: usize, first: u32, width: u32) -> u8 {
        (self.u8(at) >> (8 - first - width)) & mask(width)
    }

    pub(super) fn bit(self, at: usize, position: u32) -> bool {
        self.bits(at, position, 1) != 0
    }

    pub(super) fn private<const N: usize>(self, at: usize) -> PrivateData<N> {
        PrivateData(self.bytes(at))
    }
}

/// Writes fields into a MAD that is zero at first; offsets count from the end of the common header.
pub(super) struct BodyMut<'a>(pub(super) &'a mut Mad);

impl BodyMut<'_> {
    pub(super) fn bytes(&mut self, at: usize, value: &[u8]) {
        self.0[BODY + at..BODY + at + value.len()].copy_from_slice(value);
    }

    pub(super) fn u8(&mut self, at: usize, value: u8) {
        self.0[BODY + at] = value;
    }

    pub(super) fn u16(&mut self, at: usize, value: u16) {
        self.bytes(at, &value.to_be_bytes());
    }

    /// The low 24 bits of `value`.
    pub(super) fn u24(&mut self, at: usize, value: u32) {
        self.bytes(at, &value.to_be_bytes()[1..]);
    }

    pub(super) fn u32(&mut self, at: usize, value: u32) {
        self.bytes(at, &value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, at: usize, value: u64) {
        self.bytes(at, &value.to_be_bytes());
    }

    /// Sets `width` bits of a byte, counted from its most significant bit; higher bits of `value`
    /// are dropped.
    pub(super) fn bits(&mut self, at: usize, first: u32, width: u32, value: u8) {
        self.0[BODY + at] |= (value & mask(width)) << (8 - first - width);
    }

    pub(super) fn bit(&mut self, at: usize, position: u32, value: bool) {
        self.bits(at, position, 1, u8::from(value));
    }
}

const fn mask(width: u32) -> u8 {
    0xff >> (8 - width)
}

/// Private data of a message: always the whole area, since the sender's true length is not on the
/// wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData<const N: usize>(pub [u8; N]);

impl<const N: usize> PrivateData<N> {
    /// `data` padded with zeros, `None` if it is longer than the area.
    #[must_use]
    pub fn new(data: &[u8]) -> Option<Self> {
        let mut area = [0; N];
        area.get_mut(..data.len())?.copy_from_slice(data);
        Some(Self(area))
    }
}

impl<const N: usize> Default for PrivateData<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> core::fmt::Debug for PrivateData<N> {
    /// The bytes up to the last one that is not zero.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let used = self
            .0
            .iter()
            .rposition(|&b| b != 0)
            .map_or(0, |last| last + 1);
        for byte in &self.0[..used] {
            write!(f, "{byte:02x}")?;
        }
        write!(f, "({used} of {N} used)")
    }
}
