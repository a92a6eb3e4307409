//! Authentication of packets between two processes that have the same pre-shared key.
//!
//! `docs/design/packet-authentication.md` has the threat model, the format and what was rejected.
//! In short: [`handshake`] exchanges nonces, [`Secret::direction`] makes a key per direction of
//! them, and [`TaggedConnection`] puts a tag behind each packet and checks it.
//!
//! The tag is keyed BLAKE3. It must stay a pseudorandom function: a sequence number is tagged again
//! when a packet is retransmitted, and a program may have changed the bytes in between. A tag that
//! needs a nonce once (GMAC, Poly1305) would give its key away.

mod connection;
mod datagram;
pub mod handshake;
mod key;

use core::fmt;

pub use connection::{SequencePosition, TaggedConnection};
pub use datagram::Datagrams;
pub use key::TagKey;

use crate::ids::{Gid, Qpn};

/// Bytes of a tag.
pub const TAG: usize = 16;
/// Bytes of the counter in front of a tag, where the PSN alone does not tell the sequence.
pub const COUNTER: usize = 8;
/// Bytes that a packet grows by, at most.
pub const MOST: usize = 16 + COUNTER + TAG;
/// The least bytes of a pre-shared key.
pub const LEAST_KEY: usize = 32;

/// A random number that serves one connection of a queue pair.
pub type Nonce = [u8; 16];

/// The addresses of a packet, which its tag covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagAddresses {
    /// Source GID.
    pub src: Gid,
    /// Destination GID.
    pub dst: Gid,
}

impl TagAddresses {
    /// Returns the addresses of what goes the other way.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
        }
    }
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// GID of this end.
    pub gid: Gid,
    /// Queue pair number of this end.
    pub qpn: Qpn,
    /// Nonce that this end has drawn for the connection.
    pub nonce: Nonce,
}

impl End {
    fn to_bytes(self) -> [u8; 36] {
        let mut bytes = [0; 36];
        bytes[..16].copy_from_slice(&self.gid.0);
        bytes[16..20].copy_from_slice(&self.qpn.get().to_be_bytes());
        bytes[20..].copy_from_slice(&self.nonce);
        bytes
    }
}

/// What is derived from the pre-shared key, one key per purpose.
pub struct Secret {
    handshake: TagKey,
    connection: TagKey,
    host: TagKey,
}

/// Keys are not printed.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

impl Secret {
    /// Keys of a pre-shared key, which must have [`LEAST_KEY`] unpredictable bytes or more: they
    /// are not stretched.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        let derive = |context| TagKey::new(blake3::derive_key(context, key));
        Self {
            handshake: derive("ferroce packet authentication 2026-11-23 handshake"),
            connection: derive("ferroce packet authentication 2026-11-23 connection"),
            host: derive("ferroce packet authentication 2026-11-23 host"),
        }
    }

    /// The key of handshake messages.
    pub(crate) fn handshake(&self) -> &TagKey {
        &self.handshake
    }

    /// The key of what goes from one host's device to another's: management datagrams and drain
    /// questions. The direction is in the addresses, which the tag covers.
    #[must_use]
    pub fn host(&self) -> &TagKey {
        &self.host
    }

    /// The key of one direction of a connection.
    #[must_use]
    pub fn direction(&self, from: &End, to: &End) -> TagKey {
        self.connection.derive(&[&from.to_bytes(), &to.to_bytes()])
    }
}

#[cfg(test)]
mod tests;
