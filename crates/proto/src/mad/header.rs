//! The common MAD header and the datagram as a value.

use super::bytes::{Body, BodyMut};
use super::{CommId, Drep, Dreq, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};

/// A management datagram: always 256 bytes.
pub type Mad = [u8; 256];

const BASE_VERSION: u8 = 1;
const CLASS_CM: u8 = 0x07;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 0x03;

/// Attribute ids: which message it is.
mod attribute {
    pub(super) const REQ: u16 = 0x10;
    pub(super) const MRA: u16 = 0x11;
    pub(super) const REJ: u16 = 0x12;
    pub(super) const REP: u16 = 0x13;
    pub(super) const RTU: u16 = 0x14;
    pub(super) const DREQ: u16 = 0x15;
    pub(super) const DREP: u16 = 0x16;
    pub(super) const SIDR_REQ: u16 = 0x17;
    pub(super) const SIDR_REP: u16 = 0x18;
}

/// Why 256 bytes are not a connection manager message that is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MadError {
    /// Base version, class, class version or method is another one.
    #[error(
        "not a connection manager MAD (base version {base}, class {class:#04x} version {version}, method {method:#04x})"
    )]
    NotCm {
        /// Base version.
        base: u8,
        /// Management class.
        class: u8,
        /// Class version.
        version: u8,
        /// Method.
        method: u8,
    },
    /// An attribute that this connection manager does not use (path migration, or undefined).
    #[error("connection manager attribute {0:#06x} is not used here")]
    Attribute(u16),
}

/// A connection manager message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types carry the documentation")]
pub enum Message {
    Req(Req),
    Mra(Mra),
    Rej(Rej),
    Rep(Rep),
    Rtu(Rtu),
    Dreq(Dreq),
    Drep(Drep),
    SidrReq(SidrReq),
    SidrRep(SidrRep),
}

impl Message {
    /// The receiver's communication id as the sender knows it. REQ and `SIDR_REQ` have none, nor
    /// has a REJ for a conversation whose other end never answered.
    #[must_use]
    pub const fn remote_comm_id(&self) -> Option<CommId> {
        let id = match self {
            Self::Req(_) | Self::SidrReq(_) => return None,
            Self::SidrRep(m) => CommId(m.request_id),
            Self::Mra(m) => m.remote_comm_id,
            Self::Rej(m) => m.remote_comm_id,
            Self::Rep(m) => m.remote_comm_id,
            Self::Rtu(m) => m.remote_comm_id,
            Self::Dreq(m) => m.remote_comm_id,
            Self::Drep(m) => m.remote_comm_id,
        };
        if id.is_none() { None } else { Some(id) }
    }

    /// The sender's communication id. A `SIDR_REP` has none, and a REJ need not have one.
    #[must_use]
    pub const fn local_comm_id(&self) -> Option<CommId> {
        let id = match self {
            Self::SidrRep(_) => return None,
            Self::Req(m) => m.local_comm_id,
            Self::SidrReq(m) => CommId(m.request_id),
            Self::Mra(m) => m.local_comm_id,
            Self::Rej(m) => m.local_comm_id,
            Self::Rep(m) => m.local_comm_id,
            Self::Rtu(m) => m.local_comm_id,
            Self::Dreq(m) => m.local_comm_id,
            Self::Drep(m) => m.local_comm_id,
        };
        if id.is_none() { None } else { Some(id) }
    }

    /// The sender's communication id in a message that begins a conversation: in a REQ or
    /// `SIDR_REQ`.
    #[must_use]
    pub const fn asking_comm_id(&self) -> Option<CommId> {
        match self {
            Self::Req(m) => Some(m.local_comm_id),
            Self::SidrReq(m) => Some(CommId(m.request_id)),
            _ => None,
        }
    }

    /// Name of the message, for logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Req(_) => "REQ",
            Self::Mra(_) => "MRA",
            Self::Rej(_) => "REJ",
            Self::Rep(_) => "REP",
            Self::Rtu(_) => "RTU",
            Self::Dreq(_) => "DREQ",
            Self::Drep(_) => "DREP",
            Self::SidrReq(_) => "SIDR_REQ",
            Self::SidrRep(_) => "SIDR_REP",
        }
    }

    const fn attribute_id(&self) -> u16 {
        match self {
            Self::Req(_) => attribute::REQ,
            Self::Mra(_) => attribute::MRA,
            Self::Rej(_) => attribute::REJ,
            Self::Rep(_) => attribute::REP,
            Self::Rtu(_) => attribute::RTU,
            Self::Dreq(_) => attribute::DREQ,
            Self::Drep(_) => attribute::DREP,
            Self::SidrReq(_) => attribute::SIDR_REQ,
            Self::SidrRep(_) => attribute::SIDR_REP,
        }
    }

    /// ECE options travel in the header's attribute modifier.
    const fn attribute_modifier(&self) -> u32 {
        match self {
            Self::Req(m) => m.ece.options,
            Self::Rep(m) => m.ece.options,
            Self::SidrReq(m) => m.ece_options,
            Self::SidrRep(m) => m.ece.options,
            Self::Mra(_) | Self::Rej(_) | Self::Rtu(_) | Self::Dreq(_) | Self::Drep(_) => 0,
        }
    }
}

/// A connection manager datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmMad {
    /// Transaction id. MRA, REJ, REP and RTU repeat the REQ's; DREP the DREQ's; `SIDR_REP` the
    /// `SIDR_REQ`'s.
    pub tid: u64,
    /// The message behind the headers.
    pub message: Message,
}

impl CmMad {
    /// Reads a datagram.
    ///
    /// # Errors
    /// [`MadError`]: not of the connection manager's class, or a message that is not used here.
    pub fn parse(mad: &Mad) -> Result<Self, MadError> {
        let [base, class, version, method, ..] = *mad;
        // IBTA volume 1: class 7, version 2; all messages of the class use the method Send.
        if (base, class, version, method) != (BASE_VERSION, CLASS_CM, CLASS_VERSION, METHOD_SEND) {
            return Err(MadError::NotCm {
                base,
                class,
                version,
                method,
            });
        }
        let attribute_id = u16::from_be_bytes([mad[16], mad[17]]);
        let modifier = u32::from_be_bytes([mad[20], mad[21], mad[22], mad[23]]);
        let body = Body(mad);
        // LAP and APR load an alternate path, which connections do not get from here.
        let message = match attribute_id {
            attribute::REQ => Message::Req(Req::parse(body, modifier)),
            attribute::MRA => Message::Mra(Mra::parse(body)),
            attribute::REJ => Message::Rej(Rej::parse(body)),
            attribute::REP => Message::Rep(Rep::parse(body, modifier)),
            attribute::RTU => Message::Rtu(Rtu::parse(body)),
            attribute::DREQ => Message::Dreq(Dreq::parse(body)),
            attribute::DREP => Message::Drep(Drep::parse(body)),
            attribute::SIDR_REQ => Message::SidrReq(SidrReq::parse(body, modifier)),
            attribute::SIDR_REP => Message::SidrRep(SidrRep::parse(body, modifier)),
            other => return Err(MadError::Attribute(other)),
        };
        let mut tid = [0; 8];
        tid.copy_from_slice(&mad[8..16]);
        Ok(Self {
            tid: u64::from_be_bytes(tid),
            message,
        })
    }

    /// Writes the datagram; what it does not define is zero.
    #[must_use]
    pub fn emit(&self) -> Mad {
        let mut mad = [0; 256];
        mad[..4].copy_from_slice(&[BASE_VERSION, CLASS_CM, CLASS_VERSION, METHOD_SEND]);
        // Status, class-specific and reserved bytes stay 0.
        mad[8..16].copy_from_slice(&self.tid.to_be_bytes());
        mad[16..18].copy_from_slice(&self.message.attribute_id().to_be_bytes());
        mad[20..24].copy_from_slice(&self.message.attribute_modifier().to_be_bytes());
        let body = BodyMut(&mut mad);
        match &self.message {
            Message::Req(m) => m.emit(body),
            Message::Mra(m) => m.emit(body),
            Message::Rej(m) => m.emit(body),
            Message::Rep(m) => m.emit(body),
            Message::Rtu(m) => m.emit(body),
            Message::Dreq(m) => m.emit(body),
            Message::Drep(m) => m.emit(body),
            Message::SidrReq(m) => m.emit(body),
            Message::SidrRep(m) => m.emit(body),
        }
        mad
    }
}
