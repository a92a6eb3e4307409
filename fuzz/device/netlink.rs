//! What the kernel says of network interfaces.

pub fn run(data: &[u8]) {
    ferroce_os::fuzzing::netlink(data);
}
