//! Addresses of C programs.

pub fn run(data: &[u8]) {
    ferroce_abi::fuzzing::sockaddr(data);
}
