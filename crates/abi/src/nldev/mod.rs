//! What the kernel would answer on a socket of `NETLINK_RDMA` if the devices were its own.
//!
//! `rdma` of iproute2 asks there, and so do newer middlewares. Only questions are answered; what
//! would change a device is EPERM. The preloaded library of `ferroce run` (crate `ferroce-sysfs`)
//! takes requests to [`ferroce_rdma_netlink`] and puts its answer into the program's socket.
//!
//! Numbers and layout: `include/uapi/rdma/rdma_netlink.h` of the kernel. What a device has in other
//! processes is asked of them (`ferroce_nic::survey`): those of the own user, or for root of all.

mod answers;
mod message;
mod resources;

use std::ffi::{c_char, c_int};

use self::message::{NetlinkRequest, Reply};

/// `enum rdma_nldev_command`: the questions that are answered.
mod command {
    pub(super) const GET: u16 = 1;
    pub(super) const SET: u16 = 2;
    pub(super) const NEWLINK: u16 = 3;
    pub(super) const DELLINK: u16 = 4;
    pub(super) const PORT_GET: u16 = 5;
    pub(super) const SYS_GET: u16 = 6;
    pub(super) const SYS_SET: u16 = 7;
    pub(super) const RES_GET: u16 = 9;
    pub(super) const RES_QP_GET: u16 = 10;
    pub(super) const GET_CHARDEV: u16 = 15;
    pub(super) const STAT_SET: u16 = 16;
    pub(super) const STAT_GET: u16 = 17;
    pub(super) const STAT_DEL: u16 = 18;
}

/// `RDMA_NL_NLDEV`: the only part of the interface that asks about devices.
const CLIENT: u16 = 5;

/// Answers what a program has sent: one or more requests. `buffer` gets a block of `malloc` with
/// `length` bytes, whole messages one after the other. 0, or a negative errno.
///
/// # Safety
/// `request` has `size` bytes; `buffer` and `length` can be written.
pub unsafe extern "C" fn ferroce_rdma_netlink(
    request: *const c_char,
    size: usize,
    port: u32,
    buffer: *mut *mut c_char,
    length: *mut usize,
) -> c_int {
    crate::verbs::engine::first_use();
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(request.cast::<u8>(), size) };
    let answer = answer(bytes, port);
    // SAFETY: plain allocation; a byte more, as it is never of nothing then.
    let block = unsafe { libc::malloc(answer.len() + 1) }.cast::<u8>();
    if block.is_null() {
        return -libc::ENOMEM;
    }
    // SAFETY: the block is as long as the bytes; the other two are the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(answer.as_ptr(), block, answer.len());
        *buffer = block.cast();
        *length = answer.len();
    }
    0
}

/// The answers to all requests of a datagram.
fn answer(mut bytes: &[u8], port: u32) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some((request, rest)) = NetlinkRequest::split(bytes) {
        let mut reply = Reply::new(request, port);
        let outcome = if request.kind >> 10 == CLIENT {
            ask(&request, &mut reply)
        } else {
            Err(libc::EINVAL)
        };
        all.extend(reply.finish(outcome));
        bytes = rest;
    }
    all
}

/// Writes the answer to one request.
fn ask(request: &NetlinkRequest<'_>, reply: &mut Reply<'_>) -> Result<(), c_int> {
    use command::{
        DELLINK, GET, GET_CHARDEV, NEWLINK, PORT_GET, RES_GET, RES_QP_GET, SET, STAT_DEL, STAT_GET,
        STAT_SET, SYS_GET, SYS_SET,
    };
    match request.kind & 0x3ff {
        GET => answers::devices(request, reply),
        PORT_GET => answers::ports(request, reply),
        SYS_GET => answers::system(reply),
        GET_CHARDEV => answers::node(request, reply),
        STAT_GET => answers::statistics(request, reply),
        RES_GET => resources::summary(request, reply),
        RES_QP_GET => resources::queue_pairs(request, reply),
        SET | NEWLINK | DELLINK | SYS_SET | STAT_SET | STAT_DEL => Err(libc::EPERM),
        // The kernel's answer to a command that it does not know.
        _ => Err(libc::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::message::{ACK, DUMP};
    use super::*;

    /// A request with attributes of 32 bits.
    fn request(command: u16, flags: u16, attributes: &[(u16, u32)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let length = u32::try_from(16 + 8 * attributes.len()).unwrap();
        bytes.extend(length.to_ne_bytes());
        bytes.extend((CLIENT << 10 | command).to_ne_bytes());
        bytes.extend((1 | flags).to_ne_bytes());
        bytes.extend([7_u32.to_ne_bytes(), 0_u32.to_ne_bytes()].concat());
        for (kind, value) in attributes {
            bytes.extend([8_u16.to_ne_bytes(), kind.to_ne_bytes()].concat());
            bytes.extend(value.to_ne_bytes());
        }
        bytes
    }

    /// Type and flags of each message of an answer, and its content.
    fn messages(mut bytes: &[u8]) -> Vec<(u16, u16, Vec<u8>)> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let length = u32::from_ne_bytes(bytes[..4].try_into().unwrap()) as usize;
            let number = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap());
            assert_eq!(&bytes[8..12], 7_u32.to_ne_bytes(), "the request's number");
            assert_eq!(&bytes[12..16], 99_u32.to_ne_bytes(), "the socket's port");
            all.push((number(4), number(6), bytes[16..length].to_vec()));
            bytes = &bytes[length.next_multiple_of(4)..];
        }
        all
    }

    fn has(content: &[u8], text: &str) -> bool {
        content
            .windows(text.len() + 1)
            .any(|w| w == [text.as_bytes(), b"\0"].concat())
    }

    #[test]
    fn a_dump_has_a_message_for_each_device_and_an_end() {
        let all = messages(&answer(&request(command::GET, DUMP | ACK, &[]), 99));
        let (end, devices) = all.split_last().unwrap();
        assert_eq!((end.0, end.1, &end.2[..]), (3, 2, &[0; 4][..]));
        assert!(!devices.is_empty());
        assert!(devices.iter().all(|m| (m.0, m.1) == (CLIENT << 10 | 1, 2)));
        assert!(devices.iter().any(|m| has(&m.2, "ferroce_lo")));
    }

    #[test]
    fn a_port_is_asked_for_by_its_device() {
        let all = messages(&answer(
            &request(command::PORT_GET, ACK, &[(1, 0), (3, 1)]),
            99,
        ));
        assert_eq!(all.len(), 2, "an answer and an acknowledgement");
        assert_eq!((all[1].0, &all[1].2[..4]), (2, &[0; 4][..]));
        let all = messages(&answer(
            &request(command::PORT_GET, 0, &[(1, 0), (3, 1)]),
            99,
        ));
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn what_cannot_be_answered_is_an_error() {
        for (command, attributes, errno) in [
            (command::GET, &[(1, 999)][..], libc::ENODEV),
            (command::GET, &[], libc::EINVAL),
            (command::PORT_GET, &[(1, 0), (3, 2)], libc::EINVAL),
            (command::SET, &[(1, 0)], libc::EPERM),
            (200, &[], libc::EINVAL),
        ] {
            let all = messages(&answer(&request(command, ACK, attributes), 99));
            assert_eq!(all.len(), 1, "{command}");
            assert_eq!(all[0].0, 2);
            assert_eq!(&all[0].2[..4], (-errno).to_ne_bytes(), "{command}");
        }
    }

    #[test]
    fn requests_that_are_cut_are_passed_over() {
        let whole = request(command::GET, ACK, &[(1, 0)]);
        for length in 0..whole.len() {
            assert_eq!(answer(&whole[..length], 99), []);
        }
        let mut wrong = whole.clone();
        wrong[16] = 200;
        let all = messages(&answer(&wrong, 99));
        assert_eq!(&all[0].2[..4], (-libc::EINVAL).to_ne_bytes());
        assert_eq!(
            messages(&answer(&[&whole[..], &whole].concat(), 99)).len(),
            4
        );
    }
}
