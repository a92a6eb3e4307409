//! Frames captured of siw, and any bytes.

use super::*;
use crate::iwarp::vectors::hex;
use alloc::vec;
use proptest::prelude::*;

fn enhanced(kind: FrameKind, ird: u16, ord: u16, private: &[u8]) -> Frame {
    Frame {
        kind,
        markers: false,
        crc: false,
        reject: false,
        is_ferroce_peer: false,
        is_within_host: false,
        ticket: None,
        revision: 2,
        words: Some(ReadWords {
            ird,
            ord,
            rtr: None,
        }),
        private: private.to_vec(),
    }
}

/// Each frame is what siw of Linux 6.1 sent.
#[test]
fn frames_of_siw_are_read_and_written() {
    let (request, reply) = (FrameKind::Request, FrameKind::Reply);
    for (bytes, frame) in [
        (
            "4d504120494420526571204672616d65 1002 0009 00080004 68656c6c6f",
            enhanced(request, 8, 4, b"hello"),
        ),
        (
            "4d504120494420526571204672616d65 1002 0004 0001 0001",
            enhanced(request, 1, 1, b""),
        ),
        (
            "4d504120494420526570204672616d65 1002 0004 0001 0001",
            enhanced(reply, 1, 1, b""),
        ),
    ] {
        let bytes = hex(bytes);
        let len = bytes.len();
        assert_eq!(
            Frame::parse(frame.kind, &bytes),
            Ok(Some((frame.clone(), len)))
        );
        assert_eq!(frame.emit(), bytes);
        for cut in 0..len {
            assert_eq!(Frame::parse(frame.kind, &bytes[..cut]), Ok(None), "{cut}");
        }
    }
}

#[test]
fn what_is_no_frame_is_told_by_its_first_wrong_byte() {
    let parse = |bytes: &[u8]| Frame::parse(FrameKind::Request, bytes);
    assert_eq!(parse(b"GET"), Err(StartupError::NotMpa));
    assert_eq!(parse(b"MPA ID Rep"), Err(StartupError::NotMpa));
    let with = |word: u16, length: u16| {
        let mut bytes = b"MPA ID Req Frame".to_vec();
        bytes.extend(word.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        parse(&bytes)
    };
    assert_eq!(with(0x0000, 0), Err(StartupError::Revision(0)));
    assert_eq!(with(0x0003, 0), Err(StartupError::Revision(3)));
    assert_eq!(with(0x0001, 513), Err(StartupError::PrivateData(513)));
    assert_eq!(with(0x0001, 512), Ok(None));
    assert_eq!(with(0x1002, 3), Err(StartupError::NoWords));
    assert!(with(0x1001, 0).is_ok_and(|frame| frame.is_some_and(|(f, _)| f.words.is_none())));
}

proptest! {
    #[test]
    fn any_frame_is_read_back(
        flags in any::<[bool; 6]>(),
        numbers in (0u16..0x4000, 0u16..0x4000, proptest::option::of(0u8..8)),
        private in proptest::collection::vec(any::<u8>(), 0..=MAX_PROGRAM_DATA),
        kind in prop_oneof![Just(FrameKind::Request), Just(FrameKind::Reply)],
        (nonce, more) in (any::<u64>(), 0usize..5),
    ) {
        let [markers, crc, reject, is_ferroce_peer, within_host, two] = flags;
        let within_host = within_host && is_ferroce_peer;
        let is_reply = kind == FrameKind::Reply;
        let (ird, ord, rtr) = numbers;
        let rtr = rtr.map(Rtr::from_bits_truncate);
        let frame = Frame {
            kind,
            markers,
            crc,
            reject: reject && is_reply,
            is_ferroce_peer,
            is_within_host: within_host && !is_reply,
            ticket: (within_host && is_reply).then_some(Ticket {
                qpn: Qpn::new(0x12_3456),
                nonce,
            }),
            revision: 1 + u8::from(two),
            words: two.then_some(ReadWords { ird, ord, rtr }),
            private,
        };
        let mut bytes = frame.emit();
        let len = bytes.len();
        bytes.extend(vec![0x55; more]);
        prop_assert_eq!(Frame::parse(kind, &bytes), Ok(Some((frame, len))));
    }
}
