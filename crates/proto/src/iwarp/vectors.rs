//! Bytes that others have sent, for tests.

use std::vec::Vec;

/// FPDUs whose CRC tshark 4.0.17 found right: a WRITE of no bytes (which siw sends as its
/// ready-to-receive message), a SEND, a READ request and its response.
pub(super) const FPDUS_WITH_CRC: [&str; 4] = [
    "000e c140 00000001 0000000000000000 ebd34c5f",
    "0018 4143 00000000 00000000 00000001 00000000 73656e646d65 0000 b72cf3c8",
    "002e 4141 00000000 00000001 00000001 00000000 00000011 0000000000001000 00000005
     00000022 0000000000002000 c1bc7a86",
    "0013 c142 00000011 0000000000001000 3132333435 000000 22277580",
];

/// FPDUs of siw of Linux 6.1, without CRC: a SEND of rsockets, and a READ request of rping.
pub(super) const FPDUS_WITHOUT_CRC: [&str; 2] = [
    "0016 4143 00000000 00000000 00000001 00000000 80010080 00000000",
    "002e 4141 00000000 00000001 00000001 00000000 16aa8700 000055da7af493b0 00000040
     1505b100 000055e6c746f370 00000000",
];

/// Bytes from hexadecimal digits; other characters separate.
pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| u8::try_from(digit).expect("a digit"))
        .collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}
