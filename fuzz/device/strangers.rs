//! Records that a process of another user sends to a slot's socket.

pub fn run(data: &[u8]) {
    ferroce_nic::fuzzing::strangers(data);
}
