//! Packets captured from hardware and other implementations, and the recovery of the
//! Identification.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// Bytes of a hexadecimal text; blanks are ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits
        .chunks(2)
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}

/// Reads a captured IPv4 packet: encapsulation, fields of the header, and the datagram (BTH through
/// ICRC).
fn captured_v4(text: &str) -> (Encapsulation, Ident, Vec<u8>) {
    let bytes = hex(text);
    let address = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
    let encap = Encapsulation {
        addresses: Addresses::V4 {
            src: address(12),
            dst: address(16),
        },
        src_port: u16::from_be_bytes([bytes[20], bytes[21]]),
    };
    let ident = Ident {
        id: u16::from_be_bytes([bytes[4], bytes[5]]),
        dont_fragment: bytes[6] == DF,
    };
    (encap, ident, bytes[28..].to_vec())
}

const DF: u8 = 0x40;

/// Checks that a captured IPv4 packet is computed as it was captured, and verified with its own
/// Identification.
#[track_caller]
fn agrees_with_capture(text: &str) {
    let (encap, ident, datagram) = captured_v4(text);
    let (packet, received) = datagram.split_last_chunk().unwrap();
    assert_eq!(compute(&encap, ident, packet), *received);
    assert_eq!(verify(&encap, &datagram), Some((packet, ident)));
}

#[test]
fn congestion_notification_of_a_connectx_4() {
    agrees_with_capture(
        "45c2003c718c4000401191610a0011010a001201 000012b700280000 8100ffff4000011800000000
         00000000000000000000000000000000 82fd002a",
    );
}

#[test]
fn uc_send_of_a_packet_builder() {
    agrees_with_capture(
        "4501004004784000 40110000 c0a80007c0a80007 c00012b7002c0000 2460ffff000000d300cf1710
         4630818be28935d90e9a95505401be885e500000 78f353f3",
    );
}

#[test]
fn rc_write_with_identification_zero() {
    agrees_with_capture(
        "4500004400004000401126a70a0000010a000002 d00012b700300000 0a30ffff0000001180000100
         00007f0012345678000123450000000548454c4c4f000000 96357306",
    );
}

#[test]
fn rc_acknowledge_of_a_peer_that_numbers_its_packets() {
    let text = "4500003012344000401114870a0000020a000001d00012b7001c00001100ffff00000010000001001f0000019d9166c7";
    agrees_with_capture(text);
    let (encap, _, datagram) = captured_v4(text);
    assert_eq!(
        compute(&encap, Ident::ZERO, &datagram[..16]),
        [0x73, 0x69, 0xf7, 0x03]
    );
}

#[test]
fn rc_send_over_ipv6() {
    let v6 = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
    let encap = Encapsulation {
        addresses: Addresses::V6 {
            src: v6(1),
            dst: v6(2),
        },
        src_port: 0xd001,
    };
    let datagram = hex("0480ffff0000001280fffffe 70696e67 1b6c7831");
    let (packet, received) = datagram.split_last_chunk().unwrap();
    assert_eq!(compute(&encap, Ident::ZERO, packet), *received);
    assert_eq!(verify(&encap, &datagram), Some((packet, Ident::ZERO)));
    let mut damaged = datagram.clone();
    damaged[15] ^= 0x10;
    assert_eq!(verify(&encap, &damaged), None);
}

#[test]
fn the_constant_for_the_missing_routing_header_is_the_crc_of_ones() {
    assert_eq!(crc32fast::hash(&[0xff; 8]), AFTER_ONES);
}

#[test]
fn congestion_marks_and_short_datagrams() {
    let (encap, ident, mut datagram) = captured_v4(
        "4500004400004000401126a70a0000010a000002 d00012b700300000 0a30ffff0000001180000100
         00007f0012345678000123450000000548454c4c4f000000 96357306",
    );
    datagram[4] = 0xc0;
    assert!(
        verify(&encap, &datagram).is_some_and(|(_, found)| found == ident),
        "FECN and BECN are not covered"
    );
    for len in 0..LEN {
        assert_eq!(verify(&encap, &datagram[..len]), None);
    }
}

/// A datagram over IPv4 with fields from the arguments.
fn datagram(packet: &[u8], src: u32, ident: Ident) -> (Encapsulation, Vec<u8>) {
    let addresses = Addresses::V4 {
        src: Ipv4Addr::from(src),
        dst: Ipv4Addr::new(192, 0, 2, 7),
    };
    let encap = Encapsulation {
        addresses,
        src_port: 0xc123,
    };
    let mut bytes = packet.to_vec();
    bytes.extend_from_slice(&compute(&encap, ident, packet));
    (encap, bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_identification_is_recovered(
        packet in prop::collection::vec(any::<u8>(), 0..4200),
        src in any::<u32>(),
        id in any::<u16>(),
        dont_fragment in any::<bool>(),
    ) {
        let ident = Ident { id, dont_fragment };
        let (encap, bytes) = datagram(&packet, src, ident);
        prop_assert_eq!(verify(&encap, &bytes), Some((&packet[..], ident)));
    }

    #[test]
    fn any_bytes_are_verified_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..128), src in any::<u32>()) {
        let (encap, _) = datagram(&[], src, Ident::ZERO);
        if let Some((packet, ident)) = verify(&encap, &bytes) {
            prop_assert_eq!(&compute(&encap, ident, packet)[..], &bytes[packet.len()..]);
        }
    }
}

/// A generator with a fixed seed, so that the counts below never change.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[test]
fn random_damage_is_taken_for_an_identification_once_in_32768() {
    const TRIES: usize = 1 << 18;
    let mut state = 7;
    let (encap, good) = datagram(&[0x55; 64], 0x0a00_0001, Ident::ZERO);
    let mut history = IdentHistory::default();
    for _ in 0..100 {
        assert!(history.admit(Ident::ZERO));
    }
    let (mut verified, mut believed) = (0, 0);
    for _ in 0..TRIES {
        let mut bytes = good.clone();
        let noise = splitmix(&mut state).to_le_bytes();
        let at = usize::try_from(splitmix(&mut state) % 56).unwrap();
        bytes[at..at + 8]
            .iter_mut()
            .zip(noise)
            .for_each(|(b, n)| *b ^= n);
        if let Some((_, ident)) = verify(&encap, &bytes) {
            verified += 1;
            believed += usize::from(history.admit(ident));
        }
        assert!(
            history.admit(Ident::ZERO),
            "undamaged packets arrive in between"
        );
    }
    // The expected number is 8; a Poisson variable with that mean is above 24 once in a million.
    assert!(
        (1..=24).contains(&verified),
        "{verified} of {TRIES} damaged packets verified"
    );
    assert_eq!(believed, 0, "a peer that leaves the field 0 is held to it");
}
