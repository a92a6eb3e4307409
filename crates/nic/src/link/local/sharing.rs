//! What processes say to each other about XRC targets that one has opened of another (see
//! [`crate::objects::xrc`]).
//!
//! | word | bytes after the kind and the word |
//! |---|---|
//! | 1 open | request (4), handle (4), target (4), interface (4), file: device (8), inode (8) |
//! | 2 modify | request (4), handle (4), target (4), mask (4), [attributes](super::attributes) |
//! | 3 query, 4 close | request (4), handle (4), target (4) |
//! | 5 done | request (4), attributes that the target has now |
//! | 6 refused | request (4), errno (4), reason (UTF-8) |
//! | 7 event | handle (4), event (4) |
//!
//! Words 1 to 4 go to the owner of the target, the others to the process that has opened it, whose
//! are the numbers of requests and handles.

use ferroce_proto::ids::Qpn;
use ferroce_proto::verbs::{AsyncEvent, AttrMask};

use super::attributes::Encoded;
use super::lending::{number, parse_place, place_bytes};
use crate::base::inode::DomainKey;

/// What is asked of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharingRequest<'a> {
    /// To be opened, through the domain of both processes.
    Open(DomainKey),
    /// `ibv_modify_qp`.
    Modify(AttrMask, &'a Encoded),
    /// `ibv_query_qp`.
    Query,
    /// To be closed: the handle is not used any more.
    Close,
}

/// A word about a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing<'a> {
    /// A question to the owner.
    Ask {
        /// Number of the question at the process that asks.
        request: u32,
        /// Number of the handle at the process that asks.
        handle: u32,
        /// The target.
        qpn: Qpn,
        /// What is asked.
        asked: SharingRequest<'a>,
    },
    /// The owner did what was asked.
    Done {
        /// The question.
        request: u32,
        /// The target's attributes.
        attributes: &'a Encoded,
    },
    /// The owner refused.
    Refused {
        /// The question.
        request: u32,
        /// Why.
        errno: i32,
        /// Why, for a person.
        reason: &'a str,
    },
    /// The target has raised an event.
    Event {
        /// The handle.
        handle: u32,
        /// The event.
        event: AsyncEvent,
    },
}

impl<'a> Sharing<'a> {
    /// The record, of a kind.
    pub(super) fn encode(&self, kind: u8) -> Vec<u8> {
        let record = |word: u8, numbers: &[u32], rest: &[u8]| {
            let bytes = numbers.iter().flat_map(|n| n.to_le_bytes());
            let head = [kind, word].into_iter().chain(bytes);
            head.chain(rest.iter().copied()).collect()
        };
        match *self {
            Self::Ask {
                request,
                handle,
                qpn,
                asked,
            } => {
                let names = [request, handle, qpn.get()];
                match asked {
                    SharingRequest::Open(place) => record(1, &names, &place_bytes(place)),
                    SharingRequest::Modify(mask, attributes) => {
                        let [a, b, c] = names;
                        record(2, &[a, b, c, mask.bits()], attributes)
                    }
                    SharingRequest::Query => record(3, &names, &[]),
                    SharingRequest::Close => record(4, &names, &[]),
                }
            }
            Self::Done {
                request,
                attributes,
            } => record(5, &[request], attributes),
            Self::Refused {
                request,
                errno,
                reason,
            } => record(6, &[request, errno.cast_unsigned()], reason.as_bytes()),
            Self::Event { handle, event } => record(7, &[handle, event as u32], &[]),
        }
    }

    /// Reads a record.
    pub(super) fn parse(record: &'a [u8]) -> Option<Self> {
        let (&[_, word], rest) = record.split_first_chunk()?;
        let (first, rest) = number(rest)?;
        match word {
            1..=4 => parse_ask(word, first, rest),
            5 => Some(Self::Done {
                request: first,
                attributes: rest.try_into().ok()?,
            }),
            6 => {
                let (errno, reason) = number(rest)?;
                Some(Self::Refused {
                    request: first,
                    errno: errno.cast_signed(),
                    reason: std::str::from_utf8(reason).ok()?,
                })
            }
            7 => {
                let (code, rest) = number(rest)?;
                let event = AsyncEvent::OF_QPS
                    .into_iter()
                    .find(|event| *event as u32 == code)?;
                rest.is_empty().then_some(Self::Event {
                    handle: first,
                    event,
                })
            }
            _ => None,
        }
    }
}

fn parse_ask(word: u8, request: u32, rest: &[u8]) -> Option<Sharing<'_>> {
    let (handle, rest) = number(rest)?;
    let (qpn, rest) = number(rest)?;
    let asked = match word {
        1 => SharingRequest::Open(parse_place(rest)?),
        2 => {
            let (mask, rest) = number(rest)?;
            SharingRequest::Modify(AttrMask::from_bits(mask)?, rest.try_into().ok()?)
        }
        3 if rest.is_empty() => SharingRequest::Query,
        4 if rest.is_empty() => SharingRequest::Close,
        _ => return None,
    };
    Some(Sharing::Ask {
        request,
        handle,
        qpn: Qpn::new(qpn),
        asked,
    })
}

#[cfg(test)]
mod tests {
    use super::super::attributes::LEN;
    use super::*;
    use crate::base::inode::Inode;

    #[test]
    fn every_word_is_read_as_it_was_written() {
        let place = DomainKey {
            ifindex: 3,
            inode: Inode {
                dev: 1 << 40,
                ino: u64::MAX,
            },
        };
        let attributes = &[7; LEN];
        let ask = |asked| Sharing::Ask {
            request: 1,
            handle: u32::MAX,
            qpn: Qpn::new(0x0012_3456),
            asked,
        };
        for word in [
            ask(SharingRequest::Open(place)),
            ask(SharingRequest::Modify(
                AttrMask::STATE | AttrMask::RATE_LIMIT,
                attributes,
            )),
            ask(SharingRequest::Query),
            ask(SharingRequest::Close),
            Sharing::Done {
                request: 9,
                attributes,
            },
            Sharing::Refused {
                request: 9,
                errno: libc::EINVAL,
                reason: "as the manual page says",
            },
            Sharing::Event {
                handle: 2,
                event: AsyncEvent::CommEst,
            },
        ] {
            let record = word.encode(9);
            assert_eq!(Sharing::parse(&record), Some(word));
            if !matches!(word, Sharing::Refused { .. }) {
                let (short, long) = (&record[..record.len() - 1], [&record[..], &[0]].concat());
                assert_eq!(Sharing::parse(short), None, "{word:?}");
                assert_eq!(Sharing::parse(&long), None, "{word:?}");
            }
        }
        let event = [9, 7, 0, 0, 0, 0, 18, 0, 0, 0];
        assert_eq!(Sharing::parse(&event), None, "an event of a port");
    }
}
