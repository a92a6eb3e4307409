//! What the two sides say to each other in SENDs, and the bytes that they verify.

use super::Outcome;

/// Bytes of a message. Bulk data never has this length, so that the server can tell them apart.
pub(super) const LENGTH: usize = 24;

/// What a side wants, or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Client: a SEND with these bytes follows. Are they right?
    Expect {
        /// See [`pattern`].
        seed: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Client: are these bytes at the start of your memory?
    Verify {
        /// See [`pattern`].
        seed: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Client: put such bytes at the start of your memory.
    Fill {
        /// See [`pattern`].
        seed: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Client: send 8 bytes back for all bulk data that follows, until
    /// [`Messages`](Self::Messages).
    Echo,
    /// Client: no more of that.
    Messages,
    /// Client: I am about to disconnect.
    Bye,
    /// Server: yes, done.
    Right,
    /// Server: byte number `at` is wrong.
    Wrong {
        /// The first wrong one.
        at: u64,
    },
}

impl Message {
    /// As bytes.
    pub(super) fn encode(self) -> [u8; LENGTH] {
        let words = match self {
            Self::Verify { seed, length } => [1, seed, length],
            Self::Fill { seed, length } => [2, seed, length],
            Self::Echo => [3, 0, 0],
            Self::Bye => [4, 0, 0],
            Self::Right => [5, 0, 0],
            Self::Wrong { at } => [6, at, 0],
            Self::Expect { seed, length } => [7, seed, length],
            Self::Messages => [8, 0, 0],
        };
        let mut out = [0; LENGTH];
        for (to, word) in out.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        out
    }

    /// Decodes a message.
    pub(super) fn decode(bytes: &[u8; LENGTH]) -> Outcome<Self> {
        let mut words = [0; 3];
        for (word, from) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_be_bytes(*from);
        }
        match words {
            [1, seed, length] => Ok(Self::Verify { seed, length }),
            [2, seed, length] => Ok(Self::Fill { seed, length }),
            [3, ..] => Ok(Self::Echo),
            [4, ..] => Ok(Self::Bye),
            [5, ..] => Ok(Self::Right),
            [6, at, _] => Ok(Self::Wrong { at }),
            [8, ..] => Ok(Self::Messages),
            [7, seed, length] => Ok(Self::Expect { seed, length }),
            [other, ..] => Err(format!(
                "the peer sent message {other}, which means nothing"
            )),
        }
    }
}

/// Bytes that look random and that both sides can make from a number.
pub(super) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        out.extend((word ^ (word >> 31)).to_le_bytes());
    }
    out.truncate(length);
    out
}

/// The first byte in which two slices of the same length differ.
pub(super) fn difference(is: &[u8], due: &[u8]) -> Option<usize> {
    is.iter().zip(due).position(|(a, b)| a != b)
}

#[cfg(test)]
mod tests {
    use super::{LENGTH, Message, difference, pattern};

    #[test]
    fn messages_survive_the_trip() {
        for message in [
            Message::Expect { seed: 1, length: 0 },
            Message::Verify {
                seed: 7,
                length: 1 << 20,
            },
            Message::Fill {
                seed: u64::MAX,
                length: 1,
            },
            Message::Echo,
            Message::Messages,
            Message::Bye,
            Message::Right,
            Message::Wrong { at: 3 },
        ] {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
        assert!(Message::decode(&[0xff; LENGTH]).is_err());
    }

    #[test]
    fn patterns_differ_and_a_difference_is_found() {
        let (a, mut b) = (pattern(1, 1001), pattern(1, 1001));
        assert_eq!(a.len(), 1001);
        assert_eq!(difference(&a, &b), None);
        b[1000] ^= 1;
        assert_eq!(difference(&a, &b), Some(1000));
        assert_ne!(pattern(2, 64), pattern(1, 64));
    }
}
