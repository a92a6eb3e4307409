//! What processes of another user tell the connection manager over local sockets.

pub fn run(data: &[u8]) {
    ferroce_nic::fuzzing::speakers(data);
}
