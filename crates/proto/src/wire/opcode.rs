//! The opcode of the BTH and what it implies: service, role, position in the message, extension headers.

/// The 8-bit opcode of the BTH. Unknown values survive a round trip; the table accessors answer `None` for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// What a packet asks for or answers, without its position.
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
}
