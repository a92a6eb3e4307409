//! The 32-bit messages: the immediate of a WRITE, on iWARP the bytes of a SEND.

/// Largest number of bytes that one data message can announce.
pub const MAX_DATA: u32 = VALUE;

/// Bits that hold the value; those above hold the type.
const VALUE: u32 = (1 << TYPE_SHIFT) - 1;
const TYPE_SHIFT: u32 = 29;
const TYPE_UPDATE: u32 = 4;
const TYPE_IOMAP: u32 = 6;
const TYPE_CONTROL: u32 = 7;

/// What ends a direction, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The sender neither sends nor receives any more.
    Disconnect,
    /// Has no effect.
    KeepAlive,
    /// The sender sends no more data.
    Shutdown,
    /// A number that version 1 does not define; ignored, as librdmacm does.
    Other(u32),
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The WRITE put this many bytes behind the previous ones. Uses a credit.
    Data(u32),
    /// New credit limit. The WRITE may have put a new target into the receiver's list.
    Update {
        /// Messages that the receiver may have sent in all, modulo 2^16.
        limit: u16,
    },
    /// The WRITE filled this entry of the receiver's iomap table. Uses a credit.
    Iomap(u32),
    /// See [`Control`].
    Control(Control),
}

impl Message {
    /// Reads a message. Reserved types are data, as for librdmacm.
    #[must_use]
    pub fn decode(word: u32) -> Self {
        let value = word & VALUE;
        match word >> TYPE_SHIFT {
            TYPE_UPDATE => Self::Update {
                limit: u16::try_from(value & u32::from(u16::MAX)).unwrap_or(u16::MAX),
            },
            TYPE_IOMAP => Self::Iomap(value),
            TYPE_CONTROL => Self::Control(match value {
                0 => Control::Disconnect,
                1 => Control::KeepAlive,
                2 => Control::Shutdown,
                other => Control::Other(other),
            }),
            _ => Self::Data(value),
        }
    }

    /// The message as a number; values above 29 bits are cut.
    #[must_use]
    pub fn encode(self) -> u32 {
        let (kind, value) = match self {
            Self::Data(bytes) => (0, bytes),
            Self::Update { limit } => (TYPE_UPDATE, limit.into()),
            Self::Iomap(index) => (TYPE_IOMAP, index),
            Self::Control(control) => (
                TYPE_CONTROL,
                match control {
                    Control::Disconnect => 0,
                    Control::KeepAlive => 1,
                    Control::Shutdown => 2,
                    Control::Other(value) => value,
                },
            ),
        };
        kind << TYPE_SHIFT | (value & VALUE)
    }
}
