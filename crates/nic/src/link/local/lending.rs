//! What processes say to each other about receives that one lends to another (see
//! [`crate::objects::xrc`]).
//!
//! | word | bytes after the kind and the word |
//! |---|---|
//! | 1 ask | target (4), queue (4), interface (4), file: device (8), inode (8) |
//! | 2 no such queue | target (4), queue (4) |
//! | 3 empty, 8 not empty any more | target (4), queue (4) |
//! | 4 lent | target (4), queue (4), loan (4), bytes that it has room for (8) |
//! | 5 back, unused | loan (4) |
//! | 6 a part of the message | loan (4), bytes |
//! | 7 done | loan (4), status, opcode, what the next is, solicited, immediate or key (4), length (4), vendor error (4), target (4), source (4) |
//!
//! Ask, back, part and done go to the owner of the queue, the others to the owner of the target.

use ferroce_proto::ids::{Key, Qpn, Srqn};
use ferroce_proto::verbs::{Wc, WcFlags, WcImm, WcOpcode, WcStatus};

use crate::base::inode::{DomainKey, Inode};

/// Statuses that a receive may end with.
const STATUSES: [WcStatus; 7] = [
    WcStatus::Success,
    WcStatus::LocLenErr,
    WcStatus::LocQpOpErr,
    WcStatus::LocProtErr,
    WcStatus::WrFlushErr,
    WcStatus::RemInvReqErr,
    WcStatus::RemAccessErr,
];

/// What an owner says to a process that asks for a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LendAnswer {
    /// The domain has no such queue.
    NoSuchQueue,
    /// The queue is empty; the owner speaks again when it is not.
    Empty,
    /// The queue is not empty any more: a target that still needs a receive may ask again.
    Ready,
    /// A receive, by its number, with room for `room` bytes.
    Lent {
        /// Number by which the owner knows the loan.
        loan: u32,
        /// Bytes.
        room: u64,
    },
}

/// A word about receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lending<'a> {
    /// A target needs a receive.
    Ask {
        /// The target, of the sender.
        qpn: Qpn,
        /// The queue, of the receiver.
        srq: Srqn,
        /// The domain of both.
        place: DomainKey,
    },
    /// The answer.
    LendAnswer {
        /// The target, of the receiver.
        qpn: Qpn,
        /// The queue, of the sender.
        srq: Srqn,
        /// The answer.
        answer: LendAnswer,
    },
    /// A receive is not needed.
    Back {
        /// Which.
        loan: u32,
    },
    /// The next bytes of the message.
    Part {
        /// The receive.
        loan: u32,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// A receive is done. `wr_id` is nothing.
    Done {
        /// Which.
        loan: u32,
        /// Completion of the receive.
        wc: Wc,
        /// The sender asks for an event.
        solicited: bool,
    },
}

impl<'a> Lending<'a> {
    /// The record, of a kind.
    pub(super) fn encode(&self, kind: u8) -> Vec<u8> {
        let numbers = |word: u8, numbers: &[u32]| {
            let bytes = numbers.iter().flat_map(|n| n.to_le_bytes());
            [kind, word].into_iter().chain(bytes).collect::<Vec<u8>>()
        };
        match *self {
            Self::Ask { qpn, srq, place } => {
                let mut record = numbers(1, &[qpn.get(), srq.get()]);
                record.extend(place_bytes(place));
                record
            }
            Self::LendAnswer { qpn, srq, answer } => match answer {
                LendAnswer::NoSuchQueue => numbers(2, &[qpn.get(), srq.get()]),
                LendAnswer::Empty => numbers(3, &[qpn.get(), srq.get()]),
                LendAnswer::Ready => numbers(8, &[qpn.get(), srq.get()]),
                LendAnswer::Lent { loan, room } => {
                    let mut record = numbers(4, &[qpn.get(), srq.get(), loan]);
                    record.extend(room.to_le_bytes());
                    record
                }
            },
            Self::Back { loan } => numbers(5, &[loan]),
            Self::Part { loan, bytes } => [&numbers(6, &[loan])[..], bytes].concat(),
            Self::Done {
                loan,
                wc,
                solicited,
            } => {
                let mut record = numbers(7, &[loan]);
                record.extend(encode_wc(&wc, solicited));
                record
            }
        }
    }

    /// Reads a record.
    pub(super) fn parse(record: &'a [u8]) -> Option<Self> {
        let (&[_, word], rest) = record.split_first_chunk()?;
        let (first, rest) = number(rest)?;
        if let 5..=7 = word {
            return match word {
                5 => rest.is_empty().then_some(Self::Back { loan: first }),
                6 => Some(Self::Part {
                    loan: first,
                    bytes: rest,
                }),
                _ => {
                    let (wc, solicited) = parse_wc(rest)?;
                    Some(Self::Done {
                        loan: first,
                        wc,
                        solicited,
                    })
                }
            };
        }
        let (second, rest) = number(rest)?;
        let (qpn, srq) = (Qpn::new(first), Srqn::new(second));
        let answer = match word {
            1 => {
                return Some(Self::Ask {
                    qpn,
                    srq,
                    place: parse_place(rest)?,
                });
            }
            2 if rest.is_empty() => LendAnswer::NoSuchQueue,
            3 if rest.is_empty() => LendAnswer::Empty,
            8 if rest.is_empty() => LendAnswer::Ready,
            4 => {
                let (loan, rest) = number(rest)?;
                let room = u64::from_le_bytes(rest.try_into().ok()?);
                LendAnswer::Lent { loan, room }
            }
            _ => return None,
        };
        Some(Self::LendAnswer { qpn, srq, answer })
    }
}

/// The number at the beginning of bytes, and what follows it.
pub(super) fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number), rest))
}

/// The bytes of a place.
pub(super) fn place_bytes(place: DomainKey) -> Vec<u8> {
    let Inode { dev, ino } = place.inode;
    let file = [dev, ino].map(u64::to_le_bytes).concat();
    [&place.ifindex.to_le_bytes()[..], &file].concat()
}

/// The place that all of the bytes are.
pub(super) fn parse_place(bytes: &[u8]) -> Option<DomainKey> {
    let (ifindex, rest) = number(bytes)?;
    let (dev, ino) = rest.split_first_chunk()?;
    Some(DomainKey {
        ifindex,
        inode: Inode {
            dev: u64::from_le_bytes(*dev),
            ino: u64::from_le_bytes(ino.try_into().ok()?),
        },
    })
}

fn encode_wc(wc: &Wc, solicited: bool) -> Vec<u8> {
    let status = STATUSES.iter().position(|known| *known == wc.status);
    let (what, imm) = match wc.imm {
        None => (0, [0; 4]),
        Some(WcImm::Imm(bytes)) => (1, bytes),
        Some(WcImm::Invalidated(key)) => (2, key.0.to_le_bytes()),
    };
    let status = status
        .and_then(|at| u8::try_from(at).ok())
        .unwrap_or(u8::MAX);
    let with_imm = wc.opcode == WcOpcode::RecvRdmaWithImm;
    let mut bytes = vec![status, with_imm.into(), what, solicited.into()];
    bytes.extend(imm);
    for number in [wc.byte_len, wc.vendor_err, wc.qp_num.get(), wc.src_qp.get()] {
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

fn parse_wc(bytes: &[u8]) -> Option<(Wc, bool)> {
    let (&[status, with_imm, what, solicited], rest) = bytes.split_first_chunk()?;
    let (imm, rest) = rest.split_first_chunk()?;
    let (byte_len, rest) = number(rest)?;
    let (vendor_err, rest) = number(rest)?;
    let (qpn, rest) = number(rest)?;
    let (source, rest) = number(rest)?;
    let status = STATUSES.get(usize::from(status));
    let wc = Wc {
        wr_id: 0,
        status: status.copied().unwrap_or(WcStatus::GeneralErr),
        opcode: match with_imm {
            0 => WcOpcode::Recv,
            _ => WcOpcode::RecvRdmaWithImm,
        },
        vendor_err,
        byte_len,
        imm: match what {
            0 => None,
            1 => Some(WcImm::Imm(*imm)),
            _ => Some(WcImm::Invalidated(Key(u32::from_le_bytes(*imm)))),
        },
        qp_num: Qpn::new(qpn),
        src_qp: Qpn::new(source),
        sl: 0,
        flags: WcFlags::empty(),
    };
    rest.is_empty().then_some((wc, solicited != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each word, and of each answer.
    fn words() -> [Lending<'static>; 8] {
        let (qpn, srq) = (Qpn::new(0x0012_3456), Srqn::new(0x0065_4321));
        let place = DomainKey {
            ifindex: 3,
            inode: Inode {
                dev: 1 << 40,
                ino: u64::MAX,
            },
        };
        let answer = |answer| Lending::LendAnswer { qpn, srq, answer };
        [
            Lending::Ask { qpn, srq, place },
            answer(LendAnswer::NoSuchQueue),
            answer(LendAnswer::Empty),
            answer(LendAnswer::Ready),
            answer(LendAnswer::Lent {
                loan: 9,
                room: 1 << 33,
            }),
            Lending::Back { loan: 9 },
            Lending::Part {
                loan: 9,
                bytes: b"bytes",
            },
            Lending::Done {
                loan: 9,
                wc: completion(qpn),
                solicited: true,
            },
        ]
    }

    fn completion(qpn: Qpn) -> Wc {
        Wc {
            wr_id: 0,
            status: WcStatus::WrFlushErr,
            opcode: WcOpcode::RecvRdmaWithImm,
            vendor_err: 7,
            byte_len: u32::MAX,
            imm: Some(WcImm::Invalidated(Key(0xdead_beef))),
            qp_num: qpn,
            src_qp: Qpn::new(0x0011_2233),
            sl: 0,
            flags: WcFlags::empty(),
        }
    }

    #[test]
    fn every_word_is_read_as_it_was_written() {
        for word in words() {
            let record = word.encode(8);
            assert_eq!(Lending::parse(&record), Some(word));
            if !matches!(word, Lending::Part { .. }) {
                let shorter = &record[..record.len() - 1];
                let longer = [&record[..], &[0]].concat();
                assert_eq!(Lending::parse(shorter), None, "{word:?}");
                assert_eq!(Lending::parse(&longer), None, "{word:?}");
            }
        }
        assert_eq!(Lending::parse(&[8, 9, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
