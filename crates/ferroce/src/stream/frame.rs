//! What the ends of a stream send each other.

use crate::Error;

/// Bytes before the data of every message: what it is (one byte), three zeros, and the sender's
/// count of data messages that it has read (big-endian).
pub(super) const HEADER: usize = 8;

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes of the stream.
    Data = 1,
    /// Nothing but the count.
    Count = 2,
    /// The sender sends no more data.
    End = 3,
}

/// The header of a message.
pub(super) fn header(kind: Kind, count: u32) -> [u8; HEADER] {
    let [a, b, c, d] = count.to_be_bytes();
    [kind as u8, 0, 0, 0, a, b, c, d]
}

/// Reads a header. `None` if it is none.
pub(super) fn parse(message: &[u8]) -> Option<(Kind, u32)> {
    let &[kind, 0, 0, 0, a, b, c, d] = message.first_chunk::<HEADER>()? else {
        return None;
    };
    let kind = match kind {
        1 => Kind::Data,
        2 => Kind::Count,
        3 => Kind::End,
        _ => return None,
    };
    Some((kind, u32::from_be_bytes([a, b, c, d])))
}

/// What an end tells in the private data of the connection: how many buffers it has for data, and
/// how many bytes fit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) buffers: u16,
    pub(super) bytes: u32,
}

/// What the bytes of data messages are to programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Bytes in order, however they are cut.
    Stream,
    /// A message each.
    Channel,
}

impl Form {
    /// What its offers begin with: a name and a version.
    fn magic(self) -> &'static [u8; 6] {
        match self {
            Self::Stream => b"FeSt\x00\x01",
            Self::Channel => b"FeCh\x00\x01",
        }
    }

    /// What a peer is that has no end of this form.
    pub(super) fn wanted(self) -> Error {
        Error::Protocol(match self {
            Self::Stream => "the peer's end of the connection is not a stream",
            Self::Channel => "the peer's end of the connection is not a channel",
        })
    }
}

impl Offer {
    /// Name and version, the number of buffers and their length, big-endian.
    pub(super) fn to_bytes(self, form: Form) -> [u8; 12] {
        let mut out = [0; 12];
        out[..6].copy_from_slice(form.magic());
        out[6..8].copy_from_slice(&self.buffers.to_be_bytes());
        out[8..].copy_from_slice(&self.bytes.to_be_bytes());
        out
    }

    /// Reads what a peer told. `None` if its end has another form, or nothing could be sent to it.
    pub(super) fn parse(form: Form, private_data: &[u8]) -> Option<Self> {
        let rest = private_data.strip_prefix(form.magic())?;
        let (buffers, rest) = rest.split_first_chunk()?;
        let (buffers, bytes) = (
            u16::from_be_bytes(*buffers),
            u32::from_be_bytes(*rest.first_chunk()?),
        );
        (buffers > 0 && bytes > 0).then_some(Self { buffers, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::{Form, Kind, Offer, header, parse};

    #[test]
    fn headers_and_offers_survive_the_trip() {
        for kind in [Kind::Data, Kind::Count, Kind::End] {
            assert_eq!(parse(&header(kind, 0x0102_0304)), Some((kind, 0x0102_0304)));
        }
        let offer = Offer {
            buffers: 3,
            bytes: 70_000,
        };
        for (form, other) in [(Form::Stream, Form::Channel), (Form::Channel, Form::Stream)] {
            let mut bytes = offer.to_bytes(form).to_vec();
            bytes.push(0); // private data comes padded
            assert_eq!(Offer::parse(form, &bytes), Some(offer));
            assert_eq!(Offer::parse(other, &bytes), None);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        assert_eq!(parse(&[1, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(parse(&[4, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(parse(&[1, 0, 1, 0, 0, 0, 0, 0]), None);
        assert_eq!(Offer::parse(Form::Stream, b"GET / HTTP/1.1"), None);
        let nothing = Offer {
            buffers: 0,
            bytes: 1,
        };
        assert_eq!(
            Offer::parse(Form::Stream, &nothing.to_bytes(Form::Stream)),
            None
        );
    }
}
