//! Markers: 4 bytes in every 512 of the stream that point back to the beginning of their FPDU (RFC
//! 5044, 4.3). They are counted from the first byte behind the startup frames.

use super::fpdu::{MARKER_LEN, MARKER_SPACING};

/// Where the stream is between two markers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spacing {
    /// Bytes since the beginning of the last marker; 0 where a marker comes next.
    position: usize,
}

impl Spacing {
    /// Whether a marker comes next.
    pub(super) const fn at_marker(self) -> bool {
        self.position < MARKER_LEN
    }

    /// Bytes of the marker that are still to come, if one is next.
    pub(super) const fn marker_left(self) -> usize {
        MARKER_LEN.saturating_sub(self.position)
    }

    /// Bytes that come before the next marker.
    pub(super) const fn room(self) -> usize {
        MARKER_SPACING - self.position
    }

    /// Some bytes have gone by, not more than there are up to the next marker.
    pub(super) const fn pass(&mut self, bytes: usize) {
        self.position = (self.position + bytes) % MARKER_SPACING;
    }

    /// The last bytes do not go by after all.
    pub(super) const fn go_back(&mut self, bytes: usize) {
        let back = bytes % MARKER_SPACING;
        self.position = (self.position + MARKER_SPACING - back) % MARKER_SPACING;
    }
}

/// A marker. `back` is the distance from the length field of its FPDU, 0 between two FPDUs.
pub(super) fn emit(back: usize) -> [u8; MARKER_LEN] {
    let back = u16::try_from(back).expect("invariant: marked FPDUs are shorter than 64 KiB");
    let [high, low] = back.to_be_bytes();
    [0, 0, high, low]
}

/// The distance that a marker tells. Its reserved half is not looked at.
pub(super) const fn back([_, _, high, low]: [u8; MARKER_LEN]) -> usize {
    u16::from_be_bytes([high, low]) as usize
}
