//! The opcode of the BTH and what it implies: service, role, position in the message, extension
//! headers.

mod table;

use core::fmt;

use table::{TABLE, number_of};

/// The 8-bit opcode of the BTH. Unknown values survive a round trip; [`info`](Self::info) answers
/// `None` for them.
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

/// Operation that a packet asks for or answers, without its position.
///
/// First and Middle packets of a message with immediate data or an invalidate are plain SEND and
/// WRITE packets: only the last packet tells.
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
    /// WRITE with immediate whose bytes the requester has put in place itself:
    /// [`Opcode::PLACED_IMM`].
    PlacedImm,
    /// SEND whose bytes the responder fetches itself: [`Opcode::RENDEZVOUS`].
    Rendezvous,
    /// Rendezvous with immediate.
    RendezvousImm,
    /// WRITE with immediate whose bytes the responder fetches itself:
    /// [`Opcode::RENDEZVOUS_WRITE_IMM`].
    RendezvousWriteImm,
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
        /// XRC header, 4 bytes.
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

/// Meaning of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpInfo {
    /// Transport service.
    pub service: Service,
    /// Operation that is requested or answered.
    pub operation: Operation,
    /// Position in the message; Only for operations that never span packets.
    pub position: Position,
    /// Extension headers between the BTH and the payload.
    pub headers: HeaderSet,
    /// Whether a payload may follow the headers.
    pub has_payload: bool,
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
    /// RC WRITE with immediate between Ferroce processes of one host: the bytes are in place
    /// already, only the immediate is to be told of. Of the range that the specification leaves to
    /// manufacturers (IBTA 9.2.1); never on a wire.
    pub const PLACED_IMM: Self = Self(0xc2);
    /// RC SEND between Ferroce processes of one host: the packet says where in the requester's
    /// memory the bytes are, and the responder fetches them. Of the manufacturers' range, too;
    /// never on a wire. Its header is that of atomics: address and local key. A token is in the
    /// place of the first operand, and the length in that of the second.
    pub const RENDEZVOUS: Self = Self(0xc3);
    /// The same with immediate.
    pub const RENDEZVOUS_IMM: Self = Self(0xc4);
    /// RC WRITE with immediate between Ferroce processes of one host, as
    /// [`RENDEZVOUS`](Self::RENDEZVOUS); where the bytes go stands in a RETH.
    pub const RENDEZVOUS_WRITE_IMM: Self = Self(0xc5);
    /// Congestion notification packet: belongs to no service, carries 16 zero bytes.
    /// [`info`](Self::info) has none for it.
    pub const CNP: Self = Self(0x81);

    /// The opcode of the RC packet at `position` of a message of `operation`.
    ///
    /// Every pair has one. First and Middle packets of the variants with immediate or invalidate
    /// are plain ones. For operations that fit in one packet the position does not matter.
    #[must_use]
    pub const fn rc(operation: Operation, position: Position) -> Self {
        Self(Self::RC | number_of(operation, position))
    }

    /// The same operation and position of XRC, for an opcode of RC.
    #[must_use]
    pub const fn xrc(self) -> Self {
        Self(Self::XRC | self.0 & 0x1f)
    }

    /// The same operation and position of UC, for an opcode of RC that UC has too.
    #[must_use]
    pub const fn in_uc(self) -> Self {
        Self(Self::UC | self.0 & 0x1f)
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

    /// Meaning of the opcode; `None` if RC, UC, UD and XRC do not define it.
    #[must_use]
    pub const fn info(self) -> Option<OpInfo> {
        TABLE[self.0 as usize]
    }

    /// Whether it is one of our own, of the range that is left to manufacturers.
    const fn is_own(self) -> bool {
        Self::PLACED_IMM.0 <= self.0 && self.0 <= Self::RENDEZVOUS_WRITE_IMM.0
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
            _ if self.is_own() => Service::Rc,
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
mod tests;
