//! What the device's poller and the device thread's own report readiness for.

use crate::base::numbers::LinkId;

/// Bits of the number below the kind.
const KIND_SHIFT: u32 = 56;

/// A watched descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// Somebody wants the device thread to look for work.
    Wake,
    /// The device's poller, for the device thread: any of the following.
    Device,
    /// Other processes connect here.
    Listener,
    /// The link that another process has to this one.
    In(LinkId),
    /// A way out to another process.
    Out(u32),
    /// A descriptor of the wire link.
    Wire(u32),
    /// A descriptor of the connection manager, with its own number.
    Cm(u32),
    /// Word that interfaces have changed.
    Network,
    /// A TCP listener, or a connection that is being set up, with its own number.
    Setup(u32),
    /// The TCP connection of a queue pair.
    Stream(u32),
}

impl Token {
    pub(crate) fn raw(self) -> u64 {
        let (kind, number) = match self {
            Self::Wake => (0, 0),
            Self::Listener => (1, 0),
            Self::In(LinkId(n)) => (2, n),
            Self::Out(n) => (3, n),
            Self::Wire(n) => (4, n),
            Self::Cm(n) => (5, n),
            Self::Network => (6, 0),
            Self::Setup(n) => (7, n),
            Self::Stream(n) => (8, n),
            Self::Device => (9, 0),
        };
        kind << KIND_SHIFT | u64::from(number)
    }

    pub(crate) fn from_raw(raw: u64) -> Option<Self> {
        let number = u32::try_from(raw & u64::from(u32::MAX)).expect("invariant: 32 bits");
        Some(match raw >> KIND_SHIFT {
            0 => Self::Wake,
            1 => Self::Listener,
            2 => Self::In(LinkId(number)),
            3 => Self::Out(number),
            4 => Self::Wire(number),
            5 => Self::Cm(number),
            6 => Self::Network,
            7 => Self::Setup(number),
            8 => Self::Stream(number),
            9 => Self::Device,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_poller() {
        for token in [
            Token::Wake,
            Token::Device,
            Token::Listener,
            Token::In(LinkId(u32::MAX)),
            Token::Out(7),
            Token::Wire(1),
            Token::Cm(0),
            Token::Network,
            Token::Setup(3),
            Token::Stream(0x4011),
        ] {
            assert_eq!(Token::from_raw(token.raw()), Some(token));
        }
        assert_eq!(Token::from_raw(u64::MAX), None);
    }
}
