//! What a hostile peer of the same user writes into a ring and its short rings.

pub fn run(data: &[u8]) {
    ferroce_os::fuzzing::ring(data);
}
