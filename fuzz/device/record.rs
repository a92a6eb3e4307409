//! Records of the local link.

pub fn run(data: &[u8]) {
    ferroce_nic::fuzzing::record(data);
}
