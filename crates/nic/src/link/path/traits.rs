//! What the transport may expect of a path's link.

use ferroce_proto::rc::{LinkTraits, PACKET_COST};
use ferroce_proto::verbs::Mtu;

/// Unacknowledged bytes on the local path: the link has back-pressure of its own, this only bounds
/// what a slow peer holds up.
const LOCAL_IN_FLIGHT: u32 = 1 << 20;

/// Kernel memory that a datagram occupies beside its bytes: its structure, and the shared end of
/// its data block.
const SKB: u32 = 256;
const SKB_TAIL: u32 = 320;
/// Transport, UDP, IP and Ethernet headers of a packet, at most.
const HEADERS: u32 = 120;
/// UDP, IP and Ethernet headers and ICRC.
const OUTER: u32 = 66;
/// Bounds of the unacknowledged payload bytes on the wire.
const WIRE_MIN: u32 = 16 << 10;
const WIRE_MAX: u32 = 512 << 10;
/// Most bytes in flight of all queue pairs that send to one process.
const TOGETHER_MAX: u32 = 1 << 20;

/// Bytes that a packet of `packet` bytes (BTH through pad) occupies in a socket's buffer.
pub(crate) fn charge(packet: usize) -> u64 {
    let block = (packet as u64 + u64::from(OUTER + SKB_TAIL)).next_power_of_two();
    block + u64::from(SKB)
}

/// The link to a process of this host.
pub(crate) fn local() -> LinkTraits {
    LinkTraits {
        lossless: true,
        max_in_flight: LOCAL_IN_FLIGHT,
    }
}

/// The link to other hosts. `receive_buffer` is what the receiver's socket has (`SO_RCVBUF` as the
/// kernel reports it); this host's is the best guess for the peer's.
///
/// Linux charges a buffer with the blocks that datagrams lie in, not with their bytes. Of the usual
/// 208 KiB (`rmem_default`):
///
/// | payload | block | charged | packets in three quarters | their payload |
/// |---|---|---|---|---|
/// | 256 | 1024 | 1280 | 124 | 31 KiB |
/// | 1024 | 2048 | 2304 | 69 | 69 KiB |
/// | 4096 | 8192 | 8448 | 18 | 72 KiB |
///
/// A quarter is left out: the kernel gives room back late, only when that much was read.
pub(crate) fn wire(mtu: Mtu, receive_buffer: u32) -> LinkTraits {
    LinkTraits {
        lossless: false,
        max_in_flight: in_flight(mtu, receive_buffer, WIRE_MAX),
    }
}

/// What all queue pairs that send to a process over the wire may have in flight together: it has
/// one socket buffer for all of them.
pub(crate) fn wire_together(mtu: Mtu, receive_buffer: u32) -> u32 {
    in_flight(mtu, receive_buffer, TOGETHER_MAX)
}

/// What of a buffer packets may take, in the cost that the transport counts, which is a little per
/// packet beside the payload.
fn in_flight(mtu: Mtu, receive_buffer: u32, most: u32) -> u32 {
    let block = (mtu.bytes() + HEADERS + SKB_TAIL).next_power_of_two();
    let payload = receive_buffer / 4 * 3 / (block + SKB) * mtu.bytes();
    let packets = payload.clamp(WIRE_MIN, most) / mtu.bytes();
    packets * (mtu.bytes() + PACKET_COST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight_fits_the_receive_buffer() {
        let packets =
            |mtu: Mtu, buffer| wire(mtu, buffer).max_in_flight / (mtu.bytes() + PACKET_COST);
        assert_eq!(packets(Mtu::B4096, 212_992), 18);
        assert_eq!(packets(Mtu::B1024, 212_992), 69);
        assert_eq!(packets(Mtu::B256, 212_992), 124);
        assert_eq!(packets(Mtu::B4096, 1 << 30), WIRE_MAX / 4096);
        assert_eq!(packets(Mtu::B4096, 0), WIRE_MIN / 4096);
        // One has the usual buffer alone, but not all of a large one.
        let together = |buffer| wire_together(Mtu::B1024, buffer) / (1024 + PACKET_COST);
        assert_eq!((together(212_992), together(1 << 30)), (69, 1024));
    }
}
