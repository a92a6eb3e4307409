//! CRC32C, the checksum at the end of each FPDU (RFC 5044, 4.4).

/// Bytes of the checksum.
pub const LEN: usize = 4;

/// The CRC32C of bytes whose beginning has the CRC32C `crc`, and whose rest is `data`. The CRC32C
/// of no bytes is 0.
#[must_use]
pub fn append(crc: u32, data: &[u8]) -> u32 {
    #[cfg(feature = "std")]
    return by_processor(crc, data);
    #[cfg(not(feature = "std"))]
    return by_table(crc, data);
}

/// As [`append`], by the widest instructions that the processor has.
#[cfg(feature = "std")]
#[expect(clippy::cast_possible_truncation, reason = "a CRC of 32 bits")]
fn by_processor(crc: u32, data: &[u8]) -> u32 {
    use crc_fast::{CrcAlgorithm::Crc32Iscsi, Digest, checksum};
    if crc == 0 {
        return checksum(Crc32Iscsi, data) as u32;
    }
    let mut digest = Digest::new_with_init_state(Crc32Iscsi, u64::from(!crc));
    digest.update(data);
    digest.finalize() as u32
}

/// The checksum as it is on the wire: the least significant byte first, as in iSCSI (RFC 3720).
#[must_use]
pub const fn to_wire(crc: u32) -> [u8; LEN] {
    crc.to_le_bytes()
}

/// Polynomial 0x1EDC6F41 with its bits in reverse.
#[cfg(any(test, not(feature = "std")))]
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The CRC of each byte alone.
#[cfg(any(test, not(feature = "std")))]
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        #[expect(clippy::cast_possible_truncation, reason = "an index below 256")]
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// As [`append`], for builds that cannot ask the processor for its instruction.
#[cfg(any(test, not(feature = "std")))]
fn by_table(crc: u32, data: &[u8]) -> u32 {
    let step = |crc: u32, &byte: &u8| TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ crc >> 8;
    !data.iter().fold(!crc, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_check_string_has_the_known_checksum() {
        assert_eq!(append(0, b"123456789"), 0xe306_9283);
        assert_eq!(by_table(0, b"123456789"), 0xe306_9283);
        assert_eq!(append(0, &[]), 0);
    }

    proptest! {
        #[test]
        fn library_and_table_agree_however_the_bytes_are_cut(
            data in proptest::collection::vec(any::<u8>(), 0..3000),
            cut in any::<prop::sample::Index>(),
        ) {
            let (head, rest) = data.split_at(cut.index(data.len() + 1));
            prop_assert_eq!(append(append(0, head), rest), by_table(0, &data));
        }
    }
}
