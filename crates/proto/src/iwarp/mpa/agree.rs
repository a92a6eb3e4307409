//! What the two ends of a connection agree on.

use super::frame::{Frame, FrameKind, NOT_NEGOTIATED, ReadWords, Rtr, StartupError, Ticket};

/// Wishes of one end for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Revision of a request; a reply has that of its request.
    pub revision: u8,
    /// CRCs. Both ends compute them if either wants to.
    pub crc: bool,
    /// Markers in what this end receives.
    pub markers: bool,
    /// READs and atomics of the peer that this end serves at once.
    pub ird: u16,
    /// Most that this end could serve, if the peer wants more than `ird`.
    pub max_ird: u16,
    /// READs and atomics that this end wants outstanding.
    pub ord: u16,
    /// Ready-to-receive messages that an initiator offers and that a responder takes; none leaves
    /// the order of RFC 5044.
    pub rtr: Rtr,
    /// Says that this end is a Ferroce, by a bit that RFC 5044 reserves.
    pub mark: bool,
    /// What this end says of a way within the host.
    pub within_host: WithinHost,
}

/// Whether a connection may go on within the host, by other means than TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithinHost {
    /// No: the peer's address is not of this host, or TCP is wanted.
    No,
    /// An initiator would like to.
    Welcome,
    /// A responder would like to, if the initiator does.
    With(Ticket),
}

impl WithinHost {
    const fn ticket(self) -> Option<Ticket> {
        match self {
            Self::With(ticket) => Some(ticket),
            Self::No | Self::Welcome => None,
        }
    }
}

/// The agreed ready-to-receive message of an initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// A WRITE of no bytes.
    Write,
    /// A READ of no bytes.
    Read,
}

/// What holds for the connection, as one end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// This end sent the request.
    pub is_initiator: bool,
    /// Revision of the frames.
    pub revision: u8,
    /// FPDUs have CRCs.
    pub crc: bool,
    /// The peer puts markers into what it sends.
    pub markers_in: bool,
    /// This end puts markers into what it sends.
    pub markers_out: bool,
    /// READs and atomics of the peer that this end serves at once.
    pub ird: u16,
    /// READs and atomics that this end may have outstanding.
    pub ord: u16,
    /// The initiator begins with this message.
    pub ready: Option<Ready>,
    /// Both ends have said that they are Ferroces.
    pub is_ferroce_peer: bool,
    /// The initiator may show this at the responder's process. Neither end sends an FPDU before it
    /// is known which way they go.
    pub ticket: Option<Ticket>,
}

impl Wishes {
    fn words(&self) -> ReadWords {
        let ord_for_read = u16::from(self.rtr.contains(Rtr::READ));
        ReadWords {
            ird: self.ird.min(NOT_NEGOTIATED - 1),
            // A READ as the first message takes a place of its own (siw raises 0 to 1 as well).
            ord: self.ord.clamp(ord_for_read, NOT_NEGOTIATED - 1),
            rtr: (!self.rtr.is_empty()).then_some(self.rtr),
        }
    }

    /// The request of these wishes.
    pub(super) fn request(&self, private: &[u8]) -> Frame {
        Frame {
            kind: FrameKind::Request,
            markers: self.markers,
            crc: self.crc,
            reject: false,
            is_ferroce_peer: self.mark,
            is_within_host: self.mark && self.within_host == WithinHost::Welcome,
            ticket: None,
            revision: self.revision,
            words: (self.revision >= 2).then(|| self.words()),
            private: private.to_vec(),
        }
    }

    /// The reply that accepts a request, and what holds then (RFC 5044, 7.1.1; RFC 6581, 4 and 5).
    ///
    /// The responder lowers its ORD to the initiator's IRD, and raises its IRD to the initiator's
    /// ORD as far as it can.
    pub(super) fn reply(&self, request: &Frame, private: &[u8]) -> (Frame, Agreement) {
        let ready = choose(self.rtr, request);
        let is_ferroce_peer = self.mark && request.is_ferroce_peer;
        let goes = is_ferroce_peer && request.is_within_host;
        let mut agreement = Agreement {
            is_initiator: false,
            revision: request.revision,
            crc: self.crc || request.crc,
            markers_in: self.markers,
            markers_out: request.markers,
            ird: self.ird,
            ord: self.ord,
            ready,
            is_ferroce_peer,
            ticket: self.within_host.ticket().filter(|_| goes),
        };
        if let Some(theirs) = request.words {
            if theirs.ird != NOT_NEGOTIATED {
                agreement.ord = self.ord.min(theirs.ird);
            }
            if theirs.ord != NOT_NEGOTIATED {
                agreement.ird = self.ird.max(theirs.ord.min(self.max_ird));
            }
            if ready == Some(Ready::Read) {
                agreement.ird = agreement.ird.max(1);
            }
        }
        let words = request.words.map(|_| ReadWords {
            ird: agreement.ird.min(NOT_NEGOTIATED - 1),
            ord: agreement.ord.min(NOT_NEGOTIATED - 1),
            rtr: ready.map(Ready::as_rtr),
        });
        let frame = Frame {
            kind: FrameKind::Reply,
            markers: self.markers,
            crc: agreement.crc,
            reject: false,
            is_ferroce_peer,
            is_within_host: false,
            ticket: agreement.ticket,
            revision: request.revision,
            words,
            private: private.to_vec(),
        };
        (frame, agreement)
    }

    /// What holds after a reply that accepts the request of these wishes.
    pub(super) fn settle(&self, reply: &Frame) -> Result<Agreement, StartupError> {
        let asked = self.words();
        let mut agreement = Agreement {
            is_initiator: true,
            revision: reply.revision,
            crc: self.crc || reply.crc,
            markers_in: self.markers,
            markers_out: reply.markers,
            ird: self.ird,
            ord: self.ord,
            ready: None,
            is_ferroce_peer: self.mark && reply.is_ferroce_peer,
            ticket: reply
                .ticket
                .filter(|_| self.within_host == WithinHost::Welcome),
        };
        if self.revision < 2 {
            return Ok(agreement);
        }
        let theirs = reply.words.ok_or(StartupError::NotEnhanced)?;
        if theirs.ord != NOT_NEGOTIATED {
            if theirs.ord > self.max_ird.max(self.ird) {
                return Err(StartupError::InsufficientIrd(theirs.ord));
            }
            agreement.ird = theirs.ord;
        }
        if theirs.ird != NOT_NEGOTIATED {
            agreement.ord = asked.ord.min(theirs.ird);
        }
        agreement.ready = match (theirs.rtr, asked.rtr) {
            (None, _) => None,
            (Some(chosen), Some(offered)) => {
                let ready = Ready::of(chosen & offered).ok_or(StartupError::NoMatchingRtr)?;
                Some(ready)
            }
            (Some(_), None) => return Err(StartupError::NoMatchingRtr),
        };
        Ok(agreement)
    }
}

impl Ready {
    /// The one to use of some: a WRITE rather than a READ, which takes a place among the READs.
    fn of(rtr: Rtr) -> Option<Self> {
        if rtr.contains(Rtr::WRITE) {
            Some(Self::Write)
        } else {
            rtr.contains(Rtr::READ).then_some(Self::Read)
        }
    }

    const fn as_rtr(self) -> Rtr {
        match self {
            Self::Write => Rtr::WRITE,
            Self::Read => Rtr::READ,
        }
    }
}

/// The ready-to-receive message that a responder chooses. Without one that both know it answers in
/// the order of RFC 5044, where the initiator sends first as well.
fn choose(taken: Rtr, request: &Frame) -> Option<Ready> {
    let offered = request.words.and_then(|words| words.rtr)?;
    Ready::of(offered & taken)
}
