//! Startup frames: the MPA request and the MPA reply (RFC 5044, 7.1; RFC 6581, 4).

use alloc::vec::Vec;

use super::super::bytes::{array, u16_at};
use crate::ids::Qpn;

/// Request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Sent by the initiator.
    Request,
    /// Sent by the responder.
    Reply,
}

/// Bytes before the private data.
pub const HEADER_LEN: usize = 20;
/// Most private data that a frame may announce (RFC 5044, 7.1.1), with the READ words.
pub const MAX_PRIVATE: usize = 512;
/// Most private data that programs can give: the length has 8 bits in `struct rdma_conn_param`.
pub const MAX_PROGRAM_DATA: usize = 255;
/// Most private data that siw takes from its own program and that fits its arithmetic: it adds the
/// READ words in 8 bits (Linux 6.1 and 6.12).
pub const MAX_PROGRAM_DATA_SIW: usize = 251;
/// Value of IRD or ORD that says: not negotiated (RFC 6581, 4.2).
pub const NOT_NEGOTIATED: u16 = 0x3fff;
/// Bytes of the READ words.
const WORDS_LEN: usize = 4;

const KEY_LEN: usize = 16;
const MARKERS: u16 = 0x8000;
const CRC: u16 = 0x4000;
const REJECT: u16 = 0x2000;
const ENHANCED: u16 = 0x1000;
/// Bits that RFC 5044 reserves, by which two Ferroces know each other. The reply has another one
/// than the request: siw (Linux 6.1) answers with the flags of the request.
const FERROCE_REQUEST: u16 = 0x0400;
const FERROCE_REPLY: u16 = 0x0200;
const FERROCE_PEER: u16 = FERROCE_REQUEST | FERROCE_REPLY;
/// Beside the mark of a Ferroce. Request: the peer has an address of the initiator's own host, and
/// another way within that host is welcome. Reply: a [`Ticket`] for it is behind the private data.
const WITHIN_HOST: u16 = 0x0100;
const REVISION: u16 = 0x00ff;
const COUNT: u16 = 0x3fff;
const HIGH: u16 = 0x8000;
const LOW: u16 = 0x4000;

bitflags::bitflags! {
    /// Messages of no bytes that an initiator may begin the stream with, so that the responder may
    /// send (RFC 6581, 9).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Rtr: u8 {
        /// A SEND, which takes a receive of the program: never offered, never chosen.
        const SEND = 1;
        /// A WRITE.
        const WRITE = 1 << 1;
        /// A READ.
        const READ = 1 << 2;
    }
}

/// The words that the enhanced set-up puts before the private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadWords {
    /// READs of the peer that the sender can hold, below 2^14.
    pub ird: u16,
    /// READs that the sender wants outstanding, below 2^14.
    pub ord: u16,
    /// The initiator begins with one of these; `None` is the order of RFC 5044.
    pub rtr: Option<Rtr>,
}

/// What an initiator must show at the responder's process to go on within the host: only a
/// process that reads this TCP connection has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The responder's queue pair.
    pub qpn: Qpn,
    /// Drawn for this connection.
    pub nonce: u64,
}

impl Ticket {
    /// Bytes behind the private data of a reply.
    const LEN: usize = 12;

    fn emit(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.qpn.get().to_be_bytes());
        bytes[4..].copy_from_slice(&self.nonce.to_be_bytes());
        bytes
    }

    /// Takes a ticket off the end of what a reply has behind its READ words.
    fn split(rest: &[u8]) -> Option<(&[u8], Self)> {
        let (private, bytes) = rest.split_last_chunk::<{ Self::LEN }>()?;
        let qpn = u32::from_be_bytes(array(bytes, 0)?);
        let nonce = u64::from_be_bytes(array(bytes, 4)?);
        let ticket = Self {
            qpn: Qpn::new(qpn & 0x00ff_ffff),
            nonce,
        };
        Some((private, ticket))
    }
}

/// A startup frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Request or reply.
    pub kind: FrameKind,
    /// The sender wants markers in what it receives.
    pub markers: bool,
    /// The sender wants CRCs.
    pub crc: bool,
    /// Reply: the connection is refused.
    pub reject: bool,
    /// The sender is a Ferroce that says so.
    pub is_ferroce_peer: bool,
    /// Request of a Ferroce: the peer's address is of its own host.
    pub is_within_host: bool,
    /// Reply of a Ferroce to such a request, if it wants to go on within the host.
    pub ticket: Option<Ticket>,
    /// 1 or 2.
    pub revision: u8,
    /// Revision 2 with the enhanced set-up.
    pub words: Option<ReadWords>,
    /// The program's private data.
    pub private: Vec<u8>,
}

/// Why a set-up failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartupError {
    /// The peer's first bytes are no startup frame: it speaks something else.
    #[error("the peer speaks something else than MPA")]
    NotMpa,
    /// A revision other than 1 and 2.
    #[error("MPA revision {0}")]
    Revision(u8),
    /// More private data than a frame may have.
    #[error("{0} bytes of private data")]
    PrivateData(usize),
    /// An enhanced frame without room for its words.
    #[error("an enhanced frame without IRD and ORD")]
    NoWords,
    /// A reply that says it has a ticket, and has no room for one.
    #[error("a reply without the ticket that it announces")]
    NoTicket,
    /// The reply does not take the enhanced set-up that the request asked for.
    #[error("the reply has not the revision and the enhanced set-up of the request")]
    NotEnhanced,
    /// The initiator has sent more before its request was answered.
    #[error("the initiator did not wait for the reply")]
    Pipelined,
    /// The peer wants more READs than this end can hold.
    #[error("the peer wants {0} READs outstanding, which are more than this end can hold")]
    InsufficientIrd(u16),
    /// The reply names no ready-to-receive message of those that were offered.
    #[error("no matching ready-to-receive message")]
    NoMatchingRtr,
    /// The peer has closed the connection.
    #[error("the peer has closed the connection")]
    Closed,
    /// The frame did not come in time.
    #[error("no startup frame in time")]
    TimedOut,
}

impl FrameKind {
    const fn key(self) -> &'static [u8; KEY_LEN] {
        match self {
            Self::Request => b"MPA ID Req Frame",
            Self::Reply => b"MPA ID Rep Frame",
        }
    }

    const fn is_ferroce_peer(self) -> u16 {
        match self {
            Self::Request => FERROCE_REQUEST,
            Self::Reply => FERROCE_REPLY,
        }
    }
}

impl ReadWords {
    fn emit(self) -> [u8; WORDS_LEN] {
        let flag = |on: bool, bit: u16| if on { bit } else { 0 };
        let rtr = self.rtr.unwrap_or_default();
        let ird =
            self.ird & COUNT | flag(self.rtr.is_some(), HIGH) | flag(rtr.contains(Rtr::SEND), LOW);
        let ord = self.ord & COUNT
            | flag(rtr.contains(Rtr::WRITE), HIGH)
            | flag(rtr.contains(Rtr::READ), LOW);
        let [[a, b], [c, d]] = [ird.to_be_bytes(), ord.to_be_bytes()];
        [a, b, c, d]
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (ird, ord) = (u16_at(bytes, 0)?, u16_at(bytes, 2)?);
        let flag = |word: u16, bit, rtr| {
            if word & bit != 0 { rtr } else { Rtr::empty() }
        };
        let offered =
            flag(ird, LOW, Rtr::SEND) | flag(ord, HIGH, Rtr::WRITE) | flag(ord, LOW, Rtr::READ);
        Some(Self {
            ird: ird & COUNT,
            ord: ord & COUNT,
            rtr: (ird & HIGH != 0).then_some(offered),
        })
    }
}

impl Frame {
    /// The frame as it is on the wire.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let flag = |on: bool, bit: u16| if on { bit } else { 0 };
        let word = flag(self.markers, MARKERS)
            | flag(self.crc, CRC)
            | flag(self.reject, REJECT)
            | flag(self.words.is_some(), ENHANCED)
            | flag(self.is_ferroce_peer, self.kind.is_ferroce_peer())
            | flag(self.is_within_host || self.ticket.is_some(), WITHIN_HOST)
            | u16::from(self.revision);
        let words = self.words.map(ReadWords::emit);
        let words = words.as_ref().map_or(&[][..], |words| &words[..]);
        let ticket = self.ticket.map(Ticket::emit);
        let ticket = ticket.as_ref().map_or(&[][..], |ticket| &ticket[..]);
        let length = u16::try_from(words.len() + self.private.len() + ticket.len())
            .expect("invariant: private data was checked against the program's limit");
        let mut out = Vec::with_capacity(HEADER_LEN + usize::from(length));
        out.extend_from_slice(self.kind.key());
        out.extend_from_slice(&word.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(words);
        out.extend_from_slice(&self.private);
        out.extend_from_slice(ticket);
        out
    }

    /// Reads a frame from the beginning of a stream. Returns it with its length; `None` if some of
    /// it has not come yet.
    ///
    /// # Errors
    /// [`StartupError`], as early as the bytes tell.
    pub fn parse(kind: FrameKind, bytes: &[u8]) -> Result<Option<(Self, usize)>, StartupError> {
        let Some(start) = FrameStart::parse(kind, bytes)? else {
            return Ok(None);
        };
        let FrameStart {
            word,
            revision,
            is_enhanced,
            ..
        } = start;
        let end = HEADER_LEN + start.length;
        let Some(rest) = bytes.get(HEADER_LEN..end) else {
            return Ok(None);
        };
        let words = ReadWords::parse(rest).filter(|_| is_enhanced);
        let rest = if is_enhanced {
            &rest[WORDS_LEN..]
        } else {
            rest
        };
        let is_ferroce_peer = word & FERROCE_PEER == kind.is_ferroce_peer();
        let is_within_host = is_ferroce_peer && word & WITHIN_HOST != 0;
        let ends = (kind == FrameKind::Reply && is_within_host).then(|| Ticket::split(rest));
        let (private, ticket) = match ends {
            None => (rest, None),
            Some(None) => return Err(StartupError::NoTicket),
            Some(Some((private, ticket))) => (private, Some(ticket)),
        };
        let frame = Self {
            kind,
            markers: word & MARKERS != 0,
            crc: word & CRC != 0,
            reject: word & REJECT != 0 && kind == FrameKind::Reply,
            is_ferroce_peer,
            is_within_host: is_within_host && kind == FrameKind::Request,
            ticket,
            revision,
            words,
            private: private.to_vec(),
        };
        Ok(Some((frame, end)))
    }
}

/// What stands before the private data of a frame.
struct FrameStart {
    /// Flags and revision.
    word: u16,
    revision: u8,
    /// READ words come first (RFC 6581, 9).
    is_enhanced: bool,
    /// Bytes that follow.
    length: usize,
}

impl FrameStart {
    /// Reads and checks it; `None` if some of it has not come yet.
    fn parse(kind: FrameKind, bytes: &[u8]) -> Result<Option<Self>, StartupError> {
        let seen = bytes.len().min(KEY_LEN);
        if bytes[..seen] != kind.key()[..seen] {
            return Err(StartupError::NotMpa);
        }
        let Some((word, length)) = u16_at(bytes, KEY_LEN).zip(u16_at(bytes, KEY_LEN + 2)) else {
            return Ok(None);
        };
        let revision = array(&(word & REVISION).to_be_bytes(), 1).map_or(0, u8::from_be_bytes);
        if !matches!(revision, 1 | 2) {
            return Err(StartupError::Revision(revision));
        }
        let length = usize::from(length);
        if length > MAX_PRIVATE {
            return Err(StartupError::PrivateData(length));
        }
        let is_enhanced = revision == 2 && word & ENHANCED != 0;
        if is_enhanced && length < WORDS_LEN {
            return Err(StartupError::NoWords);
        }
        Ok(Some(Self {
            word,
            revision,
            is_enhanced,
            length,
        }))
    }
}

#[cfg(test)]
mod tests;
