//! The opcode of the BTH and what it implies: service, role, position in the message, extension headers.

use core::fmt;

/// The 8-bit opcode of the BTH. Unknown values survive a round trip; [`info`](Self::info) answers `None` for them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

/// Transport service that an opcode's upper three bits name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum Service {
    Rc,
    Uc,
    Rd,
    Ud,
    Xrc,
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum Position {
    First,
    Middle,
    Last,
    Only,
}

impl Position {
    /// Whether the message starts here (First or Only).
    #[must_use]
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }
    /// Whether the message ends here (Last or Only).
    #[must_use]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
    /// The position of a packet that does or does not start and end its message.
    #[must_use]
    pub const fn from_ends(starts: bool, ends: bool) -> Self {
        match (starts, ends) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }
}

/// What a packet asks for or answers, without its position.
///
/// First and Middle packets of a message with immediate data or an invalidate are plain SEND and WRITE packets: only the
/// last packet tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum Operation {
    Send,
    SendImm,
    SendInvalidate,
    Write,
    WriteImm,
    ReadRequest,
    ReadResponse,
    Acknowledge,
    AtomicAcknowledge,
    CompareSwap,
    FetchAdd,
    Flush,
    AtomicWrite,
}

impl Operation {
    /// Whether it travels from responder to requester.
    #[must_use]
    pub const fn is_response(self) -> bool {
        matches!(
            self,
            Self::ReadResponse | Self::Acknowledge | Self::AtomicAcknowledge
        )
    }
}

bitflags::bitflags! {
    /// Extension headers of a packet. On the wire they stand in the order of this list.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct HeaderSet: u16 {
        /// Datagram header, 8 bytes.
        const DETH = 1;
        /// XRC header, 4 bytes. Ferroce knows where it stands but does not speak XRC.
        const XRCETH = 1 << 1;
        /// FLUSH header, 4 bytes.
        const FETH = 1 << 2;
        /// RDMA header, 16 bytes.
        const RETH = 1 << 3;
        /// Atomic request header, 28 bytes.
        const ATOMIC = 1 << 4;
        /// Acknowledgement header, 4 bytes.
        const AETH = 1 << 5;
        /// Original value of an atomic, 8 bytes.
        const ATOMIC_ACK = 1 << 6;
        /// Immediate data, 4 bytes.
        const IMM = 1 << 7;
        /// Key to invalidate, 4 bytes.
        const IETH = 1 << 8;
    }
}

impl HeaderSet {
    /// Bytes that the headers of the set take.
    #[must_use]
    pub const fn wire_len(self) -> usize {
        const LENGTHS: [usize; 9] = [8, 4, 4, 16, 28, 4, 8, 4, 4];
        let mut total = 0;
        let mut bit = 0;
        while bit < LENGTHS.len() {
            if self.bits() & (1 << bit) != 0 {
                total += LENGTHS[bit];
            }
            bit += 1;
        }
        total
    }
}

/// What an opcode stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpInfo {
    /// Transport service.
    pub service: Service,
    /// What is asked or answered.
    pub operation: Operation,
    /// Position in the message; Only for operations that never span packets.
    pub position: Position,
    /// Extension headers between the BTH and the payload.
    pub headers: HeaderSet,
    /// Whether a payload may follow the headers.
    pub has_payload: bool,
}

/// All opcodes at once: parsing looks one up per packet.
static TABLE: [Option<OpInfo>; 256] = table();

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

/// What one opcode stands for, `None` if no service that is named here defines it.
const fn describe(opcode: u8) -> Option<OpInfo> {
    let number = opcode & 0x1f;
    let (service, defined) = match opcode & 0xe0 {
        Opcode::RC => (Service::Rc, true),
        Opcode::UC => (Service::Uc, number <= 0x0b),
        Opcode::UD => (Service::Ud, number == 0x04 || number == 0x05),
        // FLUSH and ATOMIC WRITE are defined for RC alone.
        Opcode::XRC => (Service::Xrc, number <= 0x17),
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

/// What the lower five bits of an opcode stand for, with the headers that RC uses.
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

/// The lower five bits of the opcode of the packet at `position` of a message of `operation`.
const fn number_of(operation: Operation, position: Position) -> u8 {
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
    }
}

impl Opcode {
    const RC: u8 = 0x00;
    const UC: u8 = 0x20;
    const UD: u8 = 0x60;
    const XRC: u8 = 0xa0;

    /// RC READ request.
    pub const RC_READ_REQUEST: Self = Self::rc(Operation::ReadRequest, Position::Only);
    /// RC acknowledge (ACK, NAK, RNR NAK).
    pub const RC_ACKNOWLEDGE: Self = Self::rc(Operation::Acknowledge, Position::Only);
    /// RC atomic acknowledge.
    pub const RC_ATOMIC_ACKNOWLEDGE: Self = Self::rc(Operation::AtomicAcknowledge, Position::Only);
    /// UD SEND, what every MAD travels in.
    pub const UD_SEND_ONLY: Self = Self(Self::UD | 0x04);
    /// UD SEND with immediate.
    pub const UD_SEND_ONLY_IMM: Self = Self(Self::UD | 0x05);
    /// Congestion notification packet: belongs to no service, carries 16 zero bytes. [`info`](Self::info) has none for it.
    pub const CNP: Self = Self(0x81);

    /// The opcode of the RC packet at `position` of a message of `operation`.
    ///
    /// It exists for every pair: First and Middle packets of the variants with immediate or invalidate are plain ones, and
    /// for operations that fit in one packet the position does not matter.
    #[must_use]
    pub const fn rc(operation: Operation, position: Position) -> Self {
        Self(Self::RC | number_of(operation, position))
    }

    /// As [`rc`](Self::rc) for UC, which has SEND and WRITE with and without immediate only.
    #[must_use]
    pub const fn uc(operation: Operation, position: Position) -> Option<Self> {
        let opcode = Self(Self::UC | number_of(operation, position));
        if opcode.info().is_some() {
            Some(opcode)
        } else {
            None
        }
    }

    /// What the opcode stands for; `None` if RC, UC, UD and XRC do not define it.
    #[must_use]
    pub const fn info(self) -> Option<OpInfo> {
        TABLE[self.0 as usize]
    }

    /// The service that the upper three bits name, also when the operation is not defined.
    #[must_use]
    pub const fn service(self) -> Option<Service> {
        Some(match self.0 & 0xe0 {
            Self::RC => Service::Rc,
            Self::UC => Service::Uc,
            0x40 => Service::Rd,
            Self::UD => Service::Ud,
            Self::XRC => Service::Xrc,
            _ => return None,
        })
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info() {
            Some(i) => write!(
                f,
                "{:?} {:?} {:?} ({:#04x})",
                i.service, i.operation, i.position, self.0
            ),
            None => write!(f, "opcode {:#04x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
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
        for class in [0x40, 0x80, 0xc0, 0xe0] {
            assert!(defined(class).is_empty());
        }
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
}
