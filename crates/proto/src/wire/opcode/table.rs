//! Meaning of each of the 256 opcodes.

use super::{HeaderSet, OpInfo, Opcode, Operation, Position, Service};

/// All opcodes at once: parsing looks one up per packet.
pub(super) static TABLE: [Option<OpInfo>; 256] = table();

/// Fills [`TABLE`].
const fn table() -> [Option<OpInfo>; 256] {
    let mut all = [None; 256];
    let mut opcode = 0_u8;
    loop {
        all[opcode as usize] = describe(opcode);
        if opcode == u8::MAX {
            return all;
        }
        opcode += 1;
    }
}

/// Meaning of an opcode, `None` if no service that is named here defines it.
const fn describe(opcode: u8) -> Option<OpInfo> {
    let number = opcode & 0x1f;
    let (service, defined) = match opcode & 0xe0 {
        Opcode::RC => (Service::Rc, true),
        Opcode::UC => (Service::Uc, number <= 0x0b),
        Opcode::UD => (Service::Ud, number == 0x04 || number == 0x05),
        // FLUSH and ATOMIC WRITE are defined for RC alone.
        Opcode::XRC => (Service::Xrc, number <= 0x17),
        _ if opcode == Opcode::PLACED_IMM.0 => return Some(PLACED_IMM),
        _ if opcode == Opcode::RENDEZVOUS.0 => return Some(RENDEZVOUS),
        _ if opcode == Opcode::RENDEZVOUS_IMM.0 => return Some(RENDEZVOUS_IMM),
        _ if opcode == Opcode::RENDEZVOUS_WRITE_IMM.0 => return Some(RENDEZVOUS_WRITE_IMM),
        _ => return None,
    };
    if !defined {
        return None;
    }
    let Some((operation, position, headers)) = describe_number(number) else {
        return None;
    };
    let has_payload = !matches!(
        operation,
        Operation::ReadRequest
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::Flush
    );
    let headers = match service {
        Service::Ud => headers.union(HeaderSet::DETH),
        Service::Xrc if !operation.is_response() => headers.union(HeaderSet::XRCETH),
        _ => headers,
    };
    Some(OpInfo {
        service,
        operation,
        position,
        headers,
        has_payload,
    })
}

const PLACED_IMM: OpInfo = OpInfo {
    service: Service::Rc,
    operation: Operation::PlacedImm,
    position: Position::Only,
    headers: HeaderSet::RETH.union(HeaderSet::IMM),
    has_payload: false,
};

const RENDEZVOUS: OpInfo = OpInfo {
    service: Service::Rc,
    operation: Operation::Rendezvous,
    position: Position::Only,
    headers: HeaderSet::ATOMIC,
    has_payload: false,
};

const RENDEZVOUS_IMM: OpInfo = OpInfo {
    operation: Operation::RendezvousImm,
    headers: HeaderSet::ATOMIC.union(HeaderSet::IMM),
    ..RENDEZVOUS
};

const RENDEZVOUS_WRITE_IMM: OpInfo = OpInfo {
    operation: Operation::RendezvousWriteImm,
    headers: HeaderSet::RETH
        .union(HeaderSet::ATOMIC)
        .union(HeaderSet::IMM),
    ..RENDEZVOUS
};

/// Meaning of the lower five bits of an opcode, with the headers that RC uses.
const fn describe_number(number: u8) -> Option<(Operation, Position, HeaderSet)> {
    use {HeaderSet as H, Operation as O, Position as P};
    Some(match number {
        0x00 => (O::Send, P::First, H::empty()),
        0x01 => (O::Send, P::Middle, H::empty()),
        0x02 => (O::Send, P::Last, H::empty()),
        0x03 => (O::SendImm, P::Last, H::IMM),
        0x04 => (O::Send, P::Only, H::empty()),
        0x05 => (O::SendImm, P::Only, H::IMM),
        0x06 => (O::Write, P::First, H::RETH),
        0x07 => (O::Write, P::Middle, H::empty()),
        0x08 => (O::Write, P::Last, H::empty()),
        0x09 => (O::WriteImm, P::Last, H::IMM),
        0x0a => (O::Write, P::Only, H::RETH),
        0x0b => (O::WriteImm, P::Only, H::RETH.union(H::IMM)),
        0x0c => (O::ReadRequest, P::Only, H::RETH),
        0x0d => (O::ReadResponse, P::First, H::AETH),
        0x0e => (O::ReadResponse, P::Middle, H::empty()),
        0x0f => (O::ReadResponse, P::Last, H::AETH),
        0x10 => (O::ReadResponse, P::Only, H::AETH),
        0x11 => (O::Acknowledge, P::Only, H::AETH),
        0x12 => (O::AtomicAcknowledge, P::Only, H::AETH.union(H::ATOMIC_ACK)),
        0x13 => (O::CompareSwap, P::Only, H::ATOMIC),
        0x14 => (O::FetchAdd, P::Only, H::ATOMIC),
        0x16 => (O::SendInvalidate, P::Last, H::IETH),
        0x17 => (O::SendInvalidate, P::Only, H::IETH),
        0x1c => (O::Flush, P::Only, H::FETH.union(H::RETH)),
        0x1d => (O::AtomicWrite, P::Only, H::RETH),
        _ => return None,
    })
}

/// The lower five bits (of a manufacturer's, all) of the opcode of the packet at `position` of a
/// message of `operation`.
pub(super) const fn number_of(operation: Operation, position: Position) -> u8 {
    use {Operation as O, Position as P};
    match (operation, position) {
        (O::Send | O::SendImm | O::SendInvalidate, P::First) => 0x00,
        (O::Send | O::SendImm | O::SendInvalidate, P::Middle) => 0x01,
        (O::Send, P::Last) => 0x02,
        (O::SendImm, P::Last) => 0x03,
        (O::Send, P::Only) => 0x04,
        (O::SendImm, P::Only) => 0x05,
        (O::Write | O::WriteImm, P::First) => 0x06,
        (O::Write | O::WriteImm, P::Middle) => 0x07,
        (O::Write, P::Last) => 0x08,
        (O::WriteImm, P::Last) => 0x09,
        (O::Write, P::Only) => 0x0a,
        (O::WriteImm, P::Only) => 0x0b,
        (O::ReadRequest, _) => 0x0c,
        (O::ReadResponse, P::First) => 0x0d,
        (O::ReadResponse, P::Middle) => 0x0e,
        (O::ReadResponse, P::Last) => 0x0f,
        (O::ReadResponse, P::Only) => 0x10,
        (O::Acknowledge, _) => 0x11,
        (O::AtomicAcknowledge, _) => 0x12,
        (O::CompareSwap, _) => 0x13,
        (O::FetchAdd, _) => 0x14,
        (O::SendInvalidate, P::Last) => 0x16,
        (O::SendInvalidate, P::Only) => 0x17,
        (O::Flush, _) => 0x1c,
        (O::AtomicWrite, _) => 0x1d,
        (O::PlacedImm, _) => Opcode::PLACED_IMM.0,
        (O::Rendezvous, _) => Opcode::RENDEZVOUS.0,
        (O::RendezvousImm, _) => Opcode::RENDEZVOUS_IMM.0,
        (O::RendezvousWriteImm, _) => Opcode::RENDEZVOUS_WRITE_IMM.0,
    }
}
