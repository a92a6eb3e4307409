//! What a process offers with the hello of a link: things beyond records, each with descriptors if
//! it needs any.
//!
//! An offer is tag (1), number of descriptors (1), length of the value (2, little-endian), value.
//! The descriptors travel with the hello, in the order of the offers. A receiver passes over tags
//! that it does not know, so an offer can be added without a new version; nobody may rely on an
//! offer being taken unless the peer says so.
//!
//! | tag | offer | value | descriptors |
//! |---|---|---|---|
//! | 1 | a ring for the records of this link (`ferroce_os::ring`) | bytes of it (4) | the memory file |
//! | 4 | short rings behind the records of that ring | none | none |
//! | 2 | the process's board (`crate::services::direct`), to processes of its user | none | the board |

use std::os::fd::BorrowedFd;

use ferroce_os::fd::Fd;

/// A ring.
pub(super) const RING: u8 = 1;

/// Short rings of the ring. Tag 3 was that of 16 short rings with another layout: a process that
/// offers those gets none of these, and the other way round.
pub(super) const SHORT_RINGS: u8 = 4;

/// Most bytes of all offers of a hello.
const MAX_BYTES: usize = 1024;

/// Tag of the offer of a board.
pub(super) const BOARD: u8 = 2;

/// Something to offer.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfferedPart<'a> {
    pub(super) tag: u8,
    pub(super) value: &'a [u8],
    pub(super) descriptors: &'a [BorrowedFd<'a>],
}

/// Something that was offered. Fewer descriptors than announced may have come: none at all from a
/// process that is not trusted with them (see [`Incoming`](super::Incoming)).
#[derive(Debug)]
pub(super) struct Offered<'a> {
    pub(super) tag: u8,
    pub(super) value: &'a [u8],
    pub(super) descriptors: Vec<Fd>,
}

/// Writes offers.
pub(super) fn encode(offers: &[OfferedPart<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for offer in offers {
        let count = u8::try_from(offer.descriptors.len());
        let len = u16::try_from(offer.value.len());
        bytes.extend([offer.tag, count.expect("invariant: a hello carries few")]);
        bytes.extend(len.expect("invariant: offers are small").to_le_bytes());
        bytes.extend_from_slice(offer.value);
    }
    debug_assert!(bytes.len() <= MAX_BYTES);
    bytes
}

/// Reads offers and gives each its descriptors. `None`: they make no sense.
pub(super) fn parse(mut bytes: &[u8], descriptors: Vec<Fd>) -> Option<Vec<Offered<'_>>> {
    let mut descriptors = descriptors.into_iter();
    let mut offers = Vec::new();
    if bytes.len() > MAX_BYTES {
        return None;
    }
    while !bytes.is_empty() {
        let (&[tag, count, l0, l1], rest) = bytes.split_first_chunk()?;
        let (value, rest) = rest.split_at_checked(u16::from_le_bytes([l0, l1]).into())?;
        let descriptors = descriptors.by_ref().take(count.into()).collect();
        offers.push(Offered {
            tag,
            value,
            descriptors,
        });
        bytes = rest;
    }
    Some(offers)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use ferroce_os::eventfd::EventFd;

    use super::*;

    #[test]
    fn what_is_offered_is_read_again() {
        let fd = EventFd::counter().unwrap();
        let offers = [
            OfferedPart {
                tag: 1,
                value: b"abc",
                descriptors: &[fd.as_fd(), fd.as_fd()],
            },
            OfferedPart {
                tag: 9,
                value: b"",
                descriptors: &[],
            },
        ];
        let bytes = encode(&offers);
        let read = parse(&bytes, Vec::new()).unwrap();
        assert_eq!((read[0].tag, read[0].value), (1, &b"abc"[..]));
        assert_eq!((read[1].tag, read[1].value), (9, &b""[..]));
        assert!(read.iter().all(|o| o.descriptors.is_empty()), "none came");
        assert!(parse(&[], Vec::new()).unwrap().is_empty());
    }

    #[test]
    fn cut_offers_make_no_sense() {
        let bytes = encode(&[OfferedPart {
            tag: 1,
            value: b"abc",
            descriptors: &[],
        }]);
        for len in 1..bytes.len() {
            assert!(parse(&bytes[..len], Vec::new()).is_none(), "{len} bytes");
        }
        assert!(parse(&[0; MAX_BYTES + 4], Vec::new()).is_none());
    }
}
