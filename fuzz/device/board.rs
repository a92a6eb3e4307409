//! What a hostile peer of the same user writes on its board.

pub fn run(data: &[u8]) {
    ferroce_nic::fuzzing::board(data);
}
