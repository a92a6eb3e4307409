//! Words of 8 and 24 bits, of which the headers are made.

/// The lower 24 bits of a word on the wire, and what stands in the upper 8.
pub(super) const fn split(word: [u8; 4]) -> (u8, u32) {
    let [top, a, b, c] = word;
    (top, u32::from_be_bytes([0, a, b, c]))
}

/// A word on the wire from its upper 8 and its lower 24 bits.
pub(super) const fn join(top: u8, low: u32) -> [u8; 4] {
    let [_, a, b, c] = low.to_be_bytes();
    [top, a, b, c]
}
