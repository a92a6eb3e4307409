//! Lengths of FPDUs (RFC 5044, 4.2 and 4.5).

use super::super::crc;

/// Bytes of the length field in front of the ULPDU.
pub const LENGTH_LEN: usize = 2;
/// Longest ULPDU that the length field can tell.
pub const MAX_ULPDU: usize = 65_535;
/// Longest ULPDU that this end sends among markers: their back pointers have 16 bits, too.
pub const MAX_MARKED_ULPDU: usize = 64_768;
/// Shortest limit on a ULPDU, however short the segments of TCP are (RFC 5044, 5.1).
pub const MIN_LIMIT: usize = 128;
/// Bytes of the stream from one marker to the next.
pub const MARKER_SPACING: usize = 512;
/// Bytes of a marker.
pub const MARKER_LEN: usize = 4;

/// Zero bytes behind a ULPDU of `len` bytes, 0 to 3.
#[must_use]
pub const fn pad(len: usize) -> usize {
    (LENGTH_LEN + len).wrapping_neg() & 3
}

/// Bytes of the FPDU of a ULPDU of `len` bytes, without markers.
#[must_use]
pub const fn fpdu_len(len: usize) -> usize {
    LENGTH_LEN + len + pad(len) + crc::LEN
}

/// Longest ULPDU whose FPDU fits a TCP segment of `emss` bytes (RFC 5044, 4.5: MULPDU), and what
/// the length fields can tell.
#[must_use]
pub const fn max_ulpdu(emss: usize, markers: bool) -> usize {
    let (between, limit) = if markers {
        (MARKER_LEN * emss.div_ceil(MARKER_SPACING), MAX_MARKED_ULPDU)
    } else {
        (0, MAX_ULPDU)
    };
    let around = LENGTH_LEN + crc::LEN + between + emss % 4;
    let fits = emss.saturating_sub(around);
    if fits < MIN_LIMIT {
        MIN_LIMIT
    } else if fits > limit {
        limit
    } else {
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_segment_fits_and_a_longer_one_does_not() {
        for emss in MIN_LIMIT + 20..9000 {
            let longest = max_ulpdu(emss, false);
            assert!(fpdu_len(longest) <= emss, "{emss}");
            assert!(fpdu_len(longest + 4) > emss, "{emss}");
            // Wherever the markers fall.
            let marked = fpdu_len(max_ulpdu(emss, true));
            let markers =
                (marked + emss.div_ceil(MARKER_SPACING) * MARKER_LEN).div_ceil(MARKER_SPACING);
            assert!(marked + markers * MARKER_LEN <= emss, "{emss}");
        }
        assert_eq!(max_ulpdu(1448, false), 1442);
        assert_eq!(max_ulpdu(1 << 20, false), MAX_ULPDU);
        assert_eq!(max_ulpdu(1 << 20, true), MAX_MARKED_ULPDU);
        assert_eq!(max_ulpdu(0, false), MIN_LIMIT);
    }
}
