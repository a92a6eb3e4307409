//! Round trips, hostile bytes and packets that others built.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::ids::{Key, Msn, Psn, Srqn};
use crate::wire::{Aeth, AtomicEth, Deth, Feth, Operation, Position, Reth, Syndrome};

/// Bytes of a hexadecimal text; blanks are ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits
        .chunks(2)
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}

/// Opcodes that the parser accepts and describes.
fn spoken_opcodes() -> Vec<Opcode> {
    (0..=u8::MAX)
        .map(Opcode)
        .filter(|o| o.info().is_some())
        .collect()
}

prop_compose! {
    fn any_bth()(
        opcode in prop::sample::select(spoken_opcodes()),
        (solicited, migreq, ack_req) in any::<(bool, bool, bool)>(),
        (pkey, congestion) in any::<(u16, u8)>(),
        qpn in 1..1_u32 << 24,
        psn in 0..1_u32 << 24,
    ) -> Bth {
        let mut bth = Bth::new(opcode, Qpn::new(qpn), Psn::new(psn));
        (bth.solicited, bth.migreq, bth.ack_req) = (solicited, migreq, ack_req);
        (bth.pkey, bth.congestion) = (pkey, congestion);
        bth
    }
}

/// The headers of `set` with fields made from `seed`.
fn headers_for(set: HeaderSet, seed: [u64; 3], word: u32) -> ExtHeaders {
    let has = |header, there: ExtHeaders| {
        if set.contains(header) {
            there
        } else {
            ExtHeaders::default()
        }
    };
    let [va, swap_or_add, compare] = seed;
    let (qkey, rkey) = (word, Key(word ^ 0x5555));
    let all = ExtHeaders {
        deth: Some(Deth {
            qkey,
            src_qp: Qpn::new(word),
        }),
        xrceth: Some(Srqn::new(word)),
        feth: Some(Feth(word)),
        reth: Some(Reth {
            va,
            rkey,
            length: word,
        }),
        atomic: Some(AtomicEth {
            va,
            rkey,
            swap_or_add,
            compare,
        }),
        aeth: Some(Aeth {
            syndrome: Syndrome::decode(word.to_be_bytes()[0]),
            msn: Msn::new(word),
        }),
        atomic_ack: Some(compare),
        imm: Some(word.to_be_bytes()),
        ieth: Some(rkey),
    };
    ExtHeaders {
        deth: has(HeaderSet::DETH, all).deth,
        xrceth: has(HeaderSet::XRCETH, all).xrceth,
        feth: has(HeaderSet::FETH, all).feth,
        reth: has(HeaderSet::RETH, all).reth,
        atomic: has(HeaderSet::ATOMIC, all).atomic,
        aeth: has(HeaderSet::AETH, all).aeth,
        atomic_ack: has(HeaderSet::ATOMIC_ACK, all).atomic_ack,
        imm: has(HeaderSet::IMM, all).imm,
        ieth: has(HeaderSet::IETH, all).ieth,
    }
}

proptest! {
    #[test]
    fn emitted_packets_parse_to_themselves(
        bth in any_bth(),
        seed in any::<[u64; 3]>(),
        word in any::<u32>(),
        payload in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let set = bth.opcode.info().unwrap().headers;
        let packet = Packet { bth, ext: headers_for(set, seed, word), payload: &payload };
        prop_assert_eq!(packet.ext.set(), set);
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        prop_assert_eq!(bytes.len(), packet.wire_len());
        prop_assert_eq!(bytes.len() % 4, 0);
        prop_assert!(bytes[bytes.len() - usize::from(pad_count(payload.len()))..].iter().all(|&b| b == 0));
        prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
    }

    #[test]
    fn any_bytes_parse_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..96), opcode in any::<u8>(), tame in any::<bool>()) {
        let mut bytes = bytes;
        if tame && bytes.len() > 2 {
            bytes[0] = opcode;
            bytes[1] &= 0xf0;
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            prop_assert_eq!(Packet::dest_qp(&bytes), Some(packet.bth.dest_qp));
            prop_assert!(packet.payload.len() + Bth::LEN <= bytes.len());
        }
    }

    #[test]
    fn a_cut_packet_is_refused_or_has_less_payload(bth in any_bth(), keep in 0_usize..80) {
        let set = bth.opcode.info().unwrap().headers;
        let packet = Packet { bth, ext: headers_for(set, [1, 2, 3], 4), payload: &[7; 17] };
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        bytes.truncate(keep);
        let need = Bth::LEN + set.wire_len() + 3;
        match Packet::parse(&bytes) {
            Ok(cut) => prop_assert_eq!(cut.payload.len(), bytes.len() - need),
            Err(WireError::TooShort { need: told, got }) => {
                prop_assert_eq!(got, bytes.len());
                prop_assert!(told == need || told == Bth::LEN);
                prop_assert!(got < told);
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

#[test]
fn write_only_of_five_bytes_is_emitted_as_the_example() {
    let bth = Bth {
        ack_req: true,
        ..Bth::new(
            Opcode::rc(Operation::Write, Position::Only),
            Qpn::new(0x11),
            Psn::new(0x100),
        )
    };
    let reth = Reth {
        va: 0x7f00_1234_5678,
        rkey: Key(0x12345),
        length: 5,
    };
    let packet = Packet {
        bth,
        ext: ExtHeaders {
            reth: Some(reth),
            ..ExtHeaders::default()
        },
        payload: b"HELLO",
    };
    let mut bytes = Vec::new();
    packet.emit(&mut bytes);
    assert_eq!(
        bytes,
        hex("0a30ffff0000001180000100 00007f001234567800012345 00000005 48454c4c4f000000")
    );
}

#[test]
fn acknowledge_is_read_as_the_example() {
    let bytes = hex("1100ffff0000001000000100 1f000001");
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(
        packet.bth,
        Bth::new(Opcode::RC_ACKNOWLEDGE, Qpn::new(0x10), Psn::new(0x100))
    );
    assert_eq!(
        packet.ext.aeth,
        Some(Aeth {
            syndrome: Syndrome::ACK,
            msn: Msn::new(1)
        })
    );
    assert!(packet.payload.is_empty());
}

#[test]
fn solicited_send_is_read_as_the_example() {
    let bytes = hex("0480ffff0000001280fffffe 70696e67");
    let packet = Packet::parse(&bytes).unwrap();
    assert!(packet.bth.solicited && packet.bth.ack_req);
    assert_eq!(
        (packet.bth.psn, packet.payload),
        (Psn::new(0x00ff_fffe), &b"ping"[..])
    );
}

#[test]
fn uc_packet_of_another_implementation_is_read() {
    let bytes = hex("2460ffff000000d300cf1710 4630818be28935d90e9a95505401be885e500000");
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(
        packet.bth.opcode,
        Opcode::uc(Operation::Send, Position::Only).unwrap()
    );
    assert!(packet.bth.migreq && !packet.bth.solicited);
    assert_eq!(packet.payload.len(), 18);
}

#[test]
fn what_no_queue_pair_can_take_is_refused_with_its_reason() {
    let refused = |text| Packet::parse(&hex(text)).unwrap_err();
    assert_eq!(
        refused("0400ffff00000011000000"),
        WireError::TooShort { need: 12, got: 11 }
    );
    assert_eq!(refused("0401ffff0000001100000000"), WireError::Version(1));
    assert_eq!(refused("0400ffff0000000000000000"), WireError::QpZero);
    assert_eq!(
        refused("8100ffff4000011800000000"),
        WireError::UnknownOpcode(0x81)
    );
    assert_eq!(
        refused("a400ffff0000001100000000"),
        WireError::TooShort { need: 16, got: 12 },
        "an XRC SEND has an XRCETH"
    );
    assert_eq!(
        refused("0430ffff0000001100000000 0000"),
        WireError::TooShort { need: 15, got: 14 }
    );
}

#[test]
fn undefined_rc_operation_reaches_the_transport() {
    let packet_bytes = hex("1500ffff0000001180000100 01020304");
    let packet = Packet::parse(&packet_bytes).unwrap();
    assert_eq!(packet.bth.opcode.info(), None);
    assert_eq!(
        (packet.ext, packet.payload),
        (ExtHeaders::default(), &[1, 2, 3, 4][..])
    );
}
