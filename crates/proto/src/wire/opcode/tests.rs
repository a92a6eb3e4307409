//! The table against the specification.

use super::table::number_of;
use super::*;
use std::vec::Vec;

#[test]
fn every_defined_opcode_is_rebuilt_from_its_description() {
    for raw in 0..=u8::MAX {
        let Some(info) = Opcode(raw).info() else {
            continue;
        };
        assert_eq!(Opcode(raw).service(), Some(info.service));
        let rebuilt = raw & 0xe0 | number_of(info.operation, info.position);
        assert_eq!(rebuilt, raw, "{:?}", Opcode(raw));
    }
}

#[test]
fn each_service_defines_the_operations_that_the_specification_gives_it() {
    let defined = |class: u8| -> Vec<u8> {
        (0..32)
            .filter(|n| Opcode(class | n).info().is_some())
            .collect()
    };
    let rc: Vec<u8> = (0..=0x17)
        .filter(|&n| n != 0x15)
        .chain([0x1c, 0x1d])
        .collect();
    assert_eq!(defined(0x00), rc);
    assert_eq!(defined(0x20), (0..=0x0b).collect::<Vec<_>>());
    assert_eq!(defined(0x60), [4, 5]);
    assert_eq!(
        defined(0xa0),
        (0..=0x17).filter(|&n| n != 0x15).collect::<Vec<_>>()
    );
    for class in [0x40, 0x80, 0xe0] {
        assert!(defined(class).is_empty());
    }
    // A manufacturer's own.
    let own = [
        Opcode::PLACED_IMM,
        Opcode::RENDEZVOUS,
        Opcode::RENDEZVOUS_IMM,
        Opcode::RENDEZVOUS_WRITE_IMM,
    ];
    assert_eq!(defined(0xc0), own.map(|opcode| opcode.0 & 0x1f));
}

#[test]
fn headers_are_those_of_the_specification() {
    let len = |opcode: Opcode| opcode.info().map(|i| i.headers.wire_len());
    assert_eq!(
        len(Opcode::rc(Operation::WriteImm, Position::Only)),
        Some(20)
    );
    assert_eq!(len(Opcode::RC_ATOMIC_ACKNOWLEDGE), Some(12));
    assert_eq!(
        len(Opcode::rc(Operation::CompareSwap, Position::Only)),
        Some(28)
    );
    assert_eq!(
        len(Opcode::rc(Operation::ReadResponse, Position::Middle)),
        Some(0)
    );
    assert_eq!(len(Opcode::UD_SEND_ONLY_IMM), Some(12));
    assert_eq!(
        len(Opcode(0xac)),
        Some(20),
        "XRC READ request has an XRCETH"
    );
    assert_eq!(len(Opcode(0xb1)), Some(4), "XRC acknowledge has none");
}

#[test]
fn early_packets_of_a_send_with_immediate_are_plain() {
    assert_eq!(
        Opcode::rc(Operation::SendImm, Position::First),
        Opcode(0x00)
    );
    assert_eq!(
        Opcode::rc(Operation::WriteImm, Position::Middle),
        Opcode(0x07)
    );
    assert_eq!(
        Opcode::uc(Operation::Write, Position::Last),
        Some(Opcode(0x28))
    );
    assert_eq!(Opcode::uc(Operation::ReadRequest, Position::Only), None);
}
