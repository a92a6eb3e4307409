//! The exchange of nonces before a connection.
//!
//! Each side asks the other's device, and each answers for its queue pairs. An answer changes
//! nothing at the one that gives it, so no order of asks, no loss and no replay matters: see
//! [`Nonces::answer_to`].

use alloc::vec::Vec;
use core::time::Duration;

use super::{End, Nonce, Secret, TAG, TagAddresses};
use crate::ids::{Gid, Psn, Qpn};
use crate::time::Time;
use crate::wire::{Bth, Opcode};

/// Opcodes of the range that is left to manufacturers (IBTA 9.2.1): other makes drop them.
const ASK: Opcode = Opcode(0xd0);
const ANSWER: Opcode = Opcode(0xd1);
const REJECTION: Opcode = Opcode(0xd2);
const MAGIC: [u8; 4] = *b"FRCA";
/// Bytes of a message.
pub const LEN: usize = Bth::LEN + 8 + 16 + 16 + TAG;
const TAG_AT: usize = LEN - TAG;

/// Time to the second ask, which doubles up to the last one's.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// How long a handshake may take.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Kind of a handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthKind {
    /// A question for the nonce of a queue pair.
    Ask,
    /// The nonce.
    Answer,
    /// The ask had a wrong tag: there is another key. It is not authenticated.
    Rejection,
}

/// A message of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthMessage {
    /// Step of the handshake.
    pub kind: AuthKind,
    /// The queue pair that it is for.
    pub to: Qpn,
    /// The queue pair that it is about, at its sender.
    pub from: Qpn,
    /// Challenge of the question that this asks, answers or rejects.
    pub challenge: Nonce,
    /// Nonce of the queue pair `from`; zero in a rejection.
    pub nonce: Nonce,
}

impl AuthMessage {
    /// Whether bytes are to be read by [`parse`](Self::parse), without a look at the rest.
    #[must_use]
    pub fn is_one(packet: &[u8]) -> bool {
        let opcode = packet.first().copied().map(Opcode);
        matches!(opcode, Some(ASK | ANSWER | REJECTION))
    }

    /// Reads one; `None` if it is none, or another manufacturer's. Its tag is still to be
    /// [verified](Self::is_authentic).
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let packet: &[u8; LEN] = packet.try_into().ok()?;
        let (head, rest) = packet.split_first_chunk()?;
        let bth = Bth::from_bytes(head);
        let kind = match bth.opcode {
            ASK => AuthKind::Ask,
            ANSWER => AuthKind::Answer,
            REJECTION => AuthKind::Rejection,
            _ => return None,
        };
        let (magic, rest) = rest.split_first_chunk::<4>()?;
        let (from, rest) = rest.split_first_chunk::<4>()?;
        let (challenge, rest) = rest.split_first_chunk()?;
        let (nonce, _) = rest.split_first_chunk()?;
        (*magic == MAGIC).then_some(Self {
            kind,
            to: bth.dest_qp,
            from: Qpn::new(u32::from_be_bytes(*from)),
            challenge: *challenge,
            nonce: *nonce,
        })
    }

    /// Appends it with its tag. A rejection has none: its sender has no key in common with its
    /// receiver.
    pub fn emit(&self, secret: &Secret, addresses: &TagAddresses, out: &mut Vec<u8>) {
        let start = out.len();
        let opcode = match self.kind {
            AuthKind::Ask => ASK,
            AuthKind::Answer => ANSWER,
            AuthKind::Rejection => REJECTION,
        };
        out.extend_from_slice(&Bth::new(opcode, self.to, Psn::new(0)).to_bytes(0));
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.from.get().to_be_bytes());
        out.extend_from_slice(&self.challenge);
        out.extend_from_slice(&self.nonce);
        let tag = match self.kind {
            AuthKind::Rejection => [0; TAG],
            _ => secret.handshake().tag(0, addresses, &out[start..]),
        };
        out.extend_from_slice(&tag);
    }

    /// Whether the tag of a message is right. That of a rejection never is.
    #[must_use]
    pub fn is_authentic(secret: &Secret, addresses: &TagAddresses, packet: &[u8]) -> bool {
        packet.len() == LEN
            && packet.first() != Some(&REJECTION.0)
            && secret.handshake().take_tag(0, addresses, packet).is_some()
    }

    /// The answer to an ask.
    #[must_use]
    pub fn answer(&self, nonce: Nonce) -> Self {
        self.back(AuthKind::Answer, nonce)
    }

    /// The rejection of an ask with a wrong tag.
    #[must_use]
    pub fn rejection(&self) -> Self {
        self.back(AuthKind::Rejection, [0; 16])
    }

    fn back(&self, kind: AuthKind, nonce: Nonce) -> Self {
        Self {
            kind,
            to: self.from,
            from: self.to,
            challenge: self.challenge,
            nonce,
        }
    }
}

const _: () = assert!(TAG_AT == 52);

/// The nonces of a queue pair: that of its connection, and that of the next one.
#[derive(Debug, Default)]
pub struct Nonces {
    next: Option<Nonce>,
    pub(super) used: Option<(Nonce, End)>,
}

impl Nonces {
    /// The nonce for the next connection; `draw` makes it.
    pub fn next(&mut self, draw: impl FnOnce() -> Nonce) -> Nonce {
        *self.next.get_or_insert_with(draw)
    }

    /// What an authentic ask of `asker` is told. `None`: the queue pair is connected to another
    /// one.
    ///
    /// A peer that is connected already (it asks with the nonce that this end has the keys of) is
    /// told this connection's nonce. A peer that asks with another one begins anew, so it is told
    /// that of the next connection.
    pub fn answer_to(&mut self, asker: &End, draw: impl FnOnce() -> Nonce) -> Option<Nonce> {
        match &self.used {
            Some((own, peer)) if peer == asker => Some(*own),
            Some((_, peer)) if (peer.gid, peer.qpn) != (asker.gid, asker.qpn) => None,
            _ => Some(self.next(draw)),
        }
    }

    /// The queue pair is connected: its nonce is used up. Returns it.
    pub fn connect(&mut self, peer: End, draw: impl FnOnce() -> Nonce) -> Nonce {
        let own = self.next(draw);
        self.next = None;
        self.used = Some((own, peer));
        own
    }

    /// The connection is over.
    pub fn disconnect(&mut self) {
        self.used = None;
    }
}

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody answered with a valid tag.
    Silence,
    /// The other host has another key.
    Rejected,
}

/// A queue pair's question for its peer's nonce.
#[derive(Debug)]
pub struct Asking {
    ask: AuthMessage,
    /// Addresses of messages from this end to the peer.
    addresses: TagAddresses,
    answer: Option<Nonce>,
    rejected: bool,
    wait: Duration,
    next_at: Time,
    until: Time,
}

impl Asking {
    /// Begins to ask for the nonce of `to`. `challenge` must be unpredictable, and new each time.
    #[must_use]
    pub fn new(own: &End, to: Qpn, addresses: TagAddresses, challenge: Nonce, now: Time) -> Self {
        Self::within(PATIENCE, own, to, addresses, challenge, now)
    }

    /// As [`new`](Self::new), with less patience.
    #[must_use]
    pub fn within(
        patience: Duration,
        own: &End,
        to: Qpn,
        addresses: TagAddresses,
        challenge: Nonce,
        now: Time,
    ) -> Self {
        Self {
            ask: AuthMessage {
                kind: AuthKind::Ask,
                to,
                from: own.qpn,
                challenge,
                nonce: own.nonce,
            },
            addresses,
            answer: None,
            rejected: false,
            wait: FIRST_WAIT,
            next_at: now,
            until: now + patience,
        }
    }

    /// Returns the next message to the peer, if it is due.
    pub fn poll(&mut self, now: Time) -> Option<AuthMessage> {
        if now < self.next_at || self.outcome(now).is_some() {
            return None;
        }
        self.next_at = now + self.wait;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        Some(self.ask)
    }

    /// When [`poll`](Self::poll) or [`outcome`](Self::outcome) should be called next.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.next_at.min(self.until)
    }

    /// The address and queue pair that are asked.
    #[must_use]
    pub fn asked(&self) -> (Gid, Qpn) {
        (self.addresses.dst, self.ask.to)
    }

    /// A message came with these addresses; `authentic` says that its tag is right. What does not
    /// answer the ask changes nothing.
    pub fn on_message(&mut self, came: &TagAddresses, message: &AuthMessage, authentic: bool) {
        let fits = *came == self.addresses.reversed()
            && (message.from, message.to) == (self.ask.to, self.ask.from)
            && message.challenge == self.ask.challenge;
        match message.kind {
            AuthKind::Answer if fits && authentic => self.answer = Some(message.nonce),
            AuthKind::Rejection if fits => self.rejected = true,
            _ => {}
        }
    }

    /// The peer's nonce, or why there is none; `None`: not yet. A rejection may be forged, so it
    /// ends no wait.
    #[must_use]
    pub fn outcome(&self, now: Time) -> Option<Result<Nonce, Failure>> {
        match self.answer {
            Some(nonce) => Some(Ok(nonce)),
            None if now < self.until => None,
            None if self.rejected => Some(Err(Failure::Rejected)),
            None => Some(Err(Failure::Silence)),
        }
    }
}
