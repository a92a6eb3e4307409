//! Bytes that were captured from librdmacm 44, pairs of streams, and peers that break the rules.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::datagram::{self, Hello, HelloKind};
use super::outgoing::{Sizes, WriteChunk};
use super::{
    ByteOrder, ConnectionData, Control, IomapEntry, IomapSize, Message, Shutdown, Stream,
    StreamViolation, Target,
};
use crate::ids::Qpn;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits
        .chunks(2)
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}

#[test]
fn private_data_are_those_of_librdmacm() {
    // REQ of `rstream -s`, captured.
    let captured = hex(
        "01 02 0180 000000 00 000055d68aa83000 00000302 00000002 00007fe0975b7000 000004a7 00080000",
    );
    let data = ConnectionData {
        order: ByteOrder::Little,
        has_iomaps: true,
        credits: 384,
        iomap_size: IomapSize::default(),
        list: Target {
            address: 0x55d6_8aa8_3000,
            key: 0x302,
            length: 2,
        },
        buffer: Target {
            address: 0x7fe0_975b_7000,
            key: 0x4a7,
            length: 0x80000,
        },
    };
    assert_eq!(data.to_bytes().to_vec(), captured);
    assert_eq!(ConnectionData::parse(&captured), Ok(data));
    let padded = [captured.clone(), vec![0; 16]].concat();
    assert_eq!(ConnectionData::parse(&padded), Ok(data));
    assert!(ConnectionData::parse(&captured[..39]).is_err());
    let other = [&[2], &captured[1..]].concat();
    assert!(ConnectionData::parse(&other).is_err());
}

#[test]
fn messages_and_targets_are_those_of_librdmacm() {
    for (word, message) in [
        (0x8000_0180, Message::Update { limit: 384 }),
        (0x0000_0010, Message::Data(16)),
        (0xc000_0000, Message::Iomap(0)),
        (0xe000_0000, Message::Control(Control::Disconnect)),
        (0xe000_0002, Message::Control(Control::Shutdown)),
    ] {
        assert_eq!(Message::decode(word), message);
        assert_eq!(message.encode(), word);
    }
    let target = Target {
        address: 0x7fe0_9763_7000,
        key: 0x4a7,
        length: 0x80000,
    };
    let captured = hex("00706397e07f0000 a7040000 00000800");
    assert_eq!(target.to_bytes(ByteOrder::Little).to_vec(), captured);
    let entry = hex("0000000000000000 10e8f31dbe550000 64170000 88130000");
    let entry = IomapEntry::from_bytes(entry.first_chunk().unwrap(), ByteOrder::Little);
    assert_eq!(entry.target.length, 5000);
    assert_eq!(entry.find(4999), Some((entry.target.address + 4999, 1)));
    assert_eq!(entry.find(5000), None);
}

#[test]
fn iomap_sizes_are_carried_in_eight_bits() {
    let carried: Vec<u16> = [0, 1, 128, 129, 255, 256, 700, u16::MAX]
        .map(|n| IomapSize::at_most(n).entries())
        .to_vec();
    assert_eq!(carried, [0, 1, 128, 128, 128, 256, 512, 0x7f00]);
}

#[test]
fn datagram_headers_survive_the_round_trip() {
    for address in ["10.1.2.3", "fd00::7"] {
        let address = address.parse().unwrap();
        let hello = Hello {
            kind: HelloKind::Answer,
            qpn: Qpn::new(0x12_3456),
            address,
        };
        let (bytes, length) = hello.to_bytes();
        assert_eq!(Hello::parse(&bytes[..length]), Some((hello, &[][..])));
        assert_eq!(Hello::parse(&bytes[..length - 1]), None);
        let source = core::net::SocketAddr::new(address, 7174);
        let (bytes, length) = datagram::header(source);
        let packet = [&bytes[..length], b"abc"].concat();
        assert_eq!(datagram::parse(&packet), Some((source, &b"abc"[..])));
        assert_eq!(datagram::parse(&packet[..length - 1]), None);
    }
    let (bytes, _) = datagram::header("10.1.2.3:7174".parse().unwrap());
    assert_eq!(bytes[..8], hex("04 08 1c06 0a010203")[..]);
}

const LIST: u64 = 0x1000;
const RING: u64 = 0x10_0000;

/// One end with its memory; what it posts lies on the way until the other end takes it.
struct End {
    stream: Stream,
    list: [Target; 2],
    ring: Vec<u8>,
    half: u32,
    send_ring: Vec<u8>,
    way: Vec<Flight>,
}

enum Flight {
    Data(u64, Vec<u8>, Message),
    Update(usize, Option<Target>, Message),
    Control(Message),
}

fn told(half: u32, credits: u16) -> ConnectionData {
    ConnectionData {
        order: ByteOrder::NATIVE,
        has_iomaps: true,
        credits,
        iomap_size: IomapSize::default(),
        list: Target {
            address: LIST,
            key: 1,
            length: 2,
        },
        buffer: Target {
            address: RING,
            key: 2,
            length: half,
        },
    }
}

impl End {
    fn new(half: u32, credits: u16, sizes: Sizes, peer: &ConnectionData) -> Self {
        Self {
            stream: Stream::new(sizes, half, credits, peer),
            list: [Target::default(); 2],
            ring: vec![0; 2 * half as usize],
            half,
            send_ring: vec![0; sizes.ring as usize],
            way: Vec::new(),
        }
    }

    fn fetch_target(&mut self) {
        if let Some(slot) = self.stream.wants_target() {
            match core::mem::take(&mut self.list[slot]) {
                Target { length: 0, .. } => self.stream.no_target(),
                target => self.stream.outgoing.set_target(target),
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() {
            self.fetch_target();
            let want = u32::try_from(bytes.len() - sent).unwrap();
            let Some(chunk) = self.stream.outgoing.next_chunk(want) else {
                break;
            };
            let part = &bytes[sent..sent + chunk.length as usize];
            let data = self.through_ring(&chunk, part);
            let message = Message::Data(chunk.length);
            self.way.push(Flight::Data(chunk.address, data, message));
            sent += part.len();
        }
        sent
    }

    fn through_ring(&mut self, chunk: &WriteChunk, part: &[u8]) -> Vec<u8> {
        let Some(staged) = chunk.staged else {
            return part.to_vec();
        };
        let (at, first) = (staged.at as usize, staged.first as usize);
        self.send_ring[at..at + first].copy_from_slice(&part[..first]);
        self.send_ring[..staged.second as usize].copy_from_slice(&part[first..]);
        [
            &self.send_ring[at..at + first],
            &self.send_ring[..staged.second as usize],
        ]
        .concat()
    }

    fn update(&mut self) {
        if self.stream.incoming.owes_update() && self.stream.outgoing.take_control() {
            let update = self.stream.incoming.take_update().unwrap();
            let target = update.half.map(|half| Target {
                address: RING + u64::from(half.offset),
                key: 2,
                length: self.half,
            });
            let slot = update.half.map_or(0, |half| half.slot);
            let message = Message::Update {
                limit: update.limit,
            };
            self.way.push(Flight::Update(slot, target, message));
        }
    }

    fn read(&mut self, want: u32) -> Vec<u8> {
        let ranges = self.stream.incoming.ranges(0, want);
        let bytes: Vec<u8> = ranges
            .iter()
            .flat_map(|r| self.ring[r.at as usize..][..r.length as usize].to_vec())
            .collect();
        self.stream
            .incoming
            .consume(u32::try_from(bytes.len()).unwrap());
        bytes
    }
}

/// The oldest message on the way arrives.
fn deliver(from: &mut End, to: &mut End) {
    if from.way.is_empty() {
        return;
    }
    let message = match from.way.remove(0) {
        Flight::Data(address, data, message) => {
            let at = usize::try_from(address - RING).unwrap();
            to.ring[at..at + data.len()].copy_from_slice(&data);
            message
        }
        Flight::Update(slot, target, message) => {
            if let Some(target) = target {
                to.list[slot] = target;
            }
            message
        }
        Flight::Control(message) => message,
    };
    to.stream.on_message(message).unwrap();
    from.stream.outgoing.on_completed();
}

fn pair(halves: (u32, u32), credits: u16, inline: u32) -> (End, End) {
    let sizes = |ring| Sizes {
        ring,
        queue: 16,
        inline,
    };
    let (a, b) = (told(halves.0, credits), told(halves.1, credits));
    (
        End::new(halves.0, credits, sizes(3000), &b),
        End::new(halves.1, credits, sizes(5000), &a),
    )
}

proptest! {
    /// Any order of writes, reads and arrivals gives the bytes in order, and never stops for good.
    #[test]
    fn streams_carry_every_byte(
        steps in prop::collection::vec((0u8..5, 1u32..9000), 1..300),
        half in 1u32..5000,
        credits in 16u16..64,
        inline in 0u32..128,
    ) {
        let (mut a, mut b) = pair((half, 700), credits, inline);
        let (mut sent, mut got) = (Vec::new(), Vec::new());
        let mut counter = 0u8;
        let mut write = |a: &mut End, size: u32, sent: &mut Vec<u8>| {
            let bytes: Vec<u8> = (0..size).map(|i| counter.wrapping_add(i.to_be_bytes()[3])).collect();
            let n = a.send(&bytes);
            counter = counter.wrapping_add(7);
            sent.extend_from_slice(&bytes[..n]);
        };
        for (what, size) in steps {
            match what {
                0 => write(&mut a, size, &mut sent),
                1 => got.extend(b.read(size)),
                2 => { a.update(); b.update(); }
                3 => deliver(&mut a, &mut b),
                _ => deliver(&mut b, &mut a),
            }
        }
        let goal = sent.len() + 20_000;
        for _ in 0..1_000_000 {
            if sent.len() < goal { write(&mut a, 100, &mut sent); }
            deliver(&mut a, &mut b);
            got.extend(b.read(1000));
            a.update();
            b.update();
            deliver(&mut b, &mut a);
            if got.len() >= goal { break; }
        }
        prop_assert!(got.len() >= goal);
        prop_assert_eq!(&got[..], &sent[..got.len()]);
    }

    /// Whatever a peer sends, the ring's account stays right.
    #[test]
    fn hostile_messages_are_bounded(words in prop::collection::vec(any::<u32>(), 1..200)) {
        let (mut end, _) = pair((1000, 1000), 16, 0);
        for word in words {
            let small = if word & 1 == 0 { word } else { word & 0xe000_03ff };
            if end.stream.on_message(Message::decode(small)).is_err() { break; }
            prop_assert!(end.stream.incoming.unread() <= 2000);
            let n = end.stream.incoming.unread() / 2;
            prop_assert_eq!(end.read(n).len(), n as usize);
            end.update();
            end.way.clear();
        }
    }
}

#[test]
fn a_peer_without_room_or_credits_is_refused() {
    let (mut end, _) = pair((1000, 1000), 16, 0);
    let refused = end.stream.on_message(Message::Data(1001));
    assert_eq!(
        refused,
        Err(StreamViolation::Room {
            sent: 1001,
            room: 1000
        })
    );
    for _ in 0..16 {
        end.stream.on_message(Message::Data(1)).unwrap();
    }
    let refused = end.stream.on_message(Message::Data(1));
    assert_eq!(refused, Err(StreamViolation::Credits(16)));
}

#[test]
fn credits_stop_a_sender_until_the_peer_reads() {
    let (mut a, mut b) = pair((1000, 1000), 6, 64);
    b.update();
    deliver(&mut b, &mut a);
    let sent = (0..20).filter(|_| a.send(b"x") == 1).count();
    assert_eq!(sent, 6);
    for _ in 0..6 {
        deliver(&mut a, &mut b);
    }
    assert!(!a.stream.outgoing.is_writable());
    assert_eq!(b.read(3), b"xxx");
    b.update();
    deliver(&mut b, &mut a);
    assert_eq!(a.send(b"yyy"), 3);
}

#[test]
fn directions_end_as_the_protocol_says() {
    let (mut a, mut b) = pair((1000, 1000), 16, 64);
    assert_eq!(a.stream.shutdown(Shutdown::Write), Some(Control::Shutdown));
    assert_eq!(a.stream.shutdown(Shutdown::Write), None);
    a.way
        .push(Flight::Control(Message::Control(Control::Shutdown)));
    assert!(a.stream.outgoing.take_control());
    deliver(&mut a, &mut b);
    assert!(b.stream.has_ended() && b.stream.is_writing() && b.stream.is_open());
    assert_eq!(b.send(b"last"), 4);
    // Reading is over, so the end of writing is the end of all.
    assert_eq!(
        b.stream.shutdown(Shutdown::Write),
        Some(Control::Disconnect)
    );
    deliver(&mut b, &mut a);
    a.stream
        .on_message(Message::Control(Control::Disconnect))
        .unwrap();
    assert_eq!(a.read(10), b"last");
    assert!(a.stream.has_ended() && !a.stream.is_writing() && !a.stream.is_open());
    assert_eq!(a.stream.shutdown(Shutdown::Both), None);
}
