//! Both ends of a stream of FPDUs: captured bytes, markers, and cuts at every place.

use alloc::vec;

use super::*;
use crate::iwarp::ddp::Segment;
use crate::iwarp::mpa::Deframer;
use crate::iwarp::mpa::fpdu::MARKER_SPACING;
use crate::iwarp::terminate::Violation;
use crate::iwarp::vectors::{FPDUS_WITH_CRC, FPDUS_WITHOUT_CRC, hex};
use core::convert::Infallible;
use proptest::prelude::*;

fn agreement(crc: bool, markers: bool) -> Agreement {
    Agreement {
        is_initiator: true,
        revision: 2,
        crc,
        markers_in: markers,
        markers_out: markers,
        ird: 1,
        ord: 1,
        ready: None,
        is_ferroce_peer: false,
        ticket: None,
    }
}

/// The stream of some ULPDUs.
fn stream(agreement: &Agreement, ulpdus: &[Vec<u8>]) -> Vec<u8> {
    let mut framing = Framing::new(agreement);
    let mut outgoing = OutgoingFpdus::<()>::default();
    for ulpdu in ulpdus {
        let fill = |_: &mut Vec<u8>| Ok::<_, Infallible>(());
        let Ok(()) = outgoing.push(&mut framing, ulpdu, fill, None);
    }
    let mut out = Vec::new();
    for run in outgoing.runs() {
        match run {
            Run::Bytes(bytes) => out.extend_from_slice(bytes),
            Run::Payload { .. } => panic!("nothing was left where it is"),
        }
    }
    assert_eq!(out.len(), outgoing.left());
    out
}

/// The ULPDUs of a stream that comes in parts.
fn receive(
    agreement: &Agreement,
    stream: &[u8],
    mut next_part: impl FnMut() -> usize,
) -> Result<Vec<Vec<u8>>, Violation> {
    let mut deframer = Deframer::new(agreement);
    let mut ulpdus = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let (part, later) = rest.split_at(next_part().clamp(1, rest.len()));
        let mut at = 0;
        loop {
            let taken = deframer.take(&part[at..])?;
            at += taken.used;
            match taken.ulpdu {
                Some(ulpdu) => ulpdus.push(ulpdu.to_vec()),
                None => break,
            }
        }
        assert_eq!(at, part.len());
        rest = later;
    }
    assert!(!deframer.in_fpdu());
    Ok(ulpdus)
}

#[test]
fn captured_fpdus_are_read_and_written() {
    for (crc, fpdus) in [(true, &FPDUS_WITH_CRC[..]), (false, &FPDUS_WITHOUT_CRC)] {
        let agreement = agreement(crc, false);
        let bytes: Vec<u8> = fpdus.iter().flat_map(|fpdu| hex(fpdu)).collect();
        let ulpdus = receive(&agreement, &bytes, || usize::MAX).unwrap();
        assert_eq!(ulpdus.len(), fpdus.len());
        for ulpdu in &ulpdus {
            let segment = Segment::parse(ulpdu).unwrap();
            let again = [&segment.header.emit()[..], segment.payload].concat();
            assert_eq!(&again, ulpdu);
        }
        assert_eq!(stream(&agreement, &ulpdus), bytes);
    }
}

#[test]
fn markers_stand_every_512_bytes_and_point_back() {
    let agreement = agreement(true, true);
    // The second FPDU begins where a marker is due: 4 + 508 bytes are before it.
    let bytes = stream(&agreement, &[vec![1; 502], vec![2; 1200]]);
    let marker = |n: usize| &bytes[n * MARKER_SPACING..n * MARKER_SPACING + 4];
    assert_eq!(marker(0), [0; 4]);
    assert_eq!(marker(1), [0; 4]);
    assert_eq!(marker(2), [0, 0, 1, 252]);
    assert_eq!(marker(3), [0, 0, 3, 252]);
    let mut wrong = bytes.clone();
    wrong[2 * MARKER_SPACING + 3] ^= 4;
    let received = receive(&agreement, &wrong, || 100);
    assert_eq!(received, Err(Violation::Framing));
    // Markers that nobody asked for are a length that disagrees, or a wrong CRC.
    let plain = self::agreement(true, false);
    assert!(receive(&plain, &bytes, || usize::MAX).is_err());
}

#[test]
fn a_changed_byte_is_found_by_the_crc_before_anything_is_given_away() {
    for markers in [false, true] {
        let agreement = agreement(true, markers);
        let bytes = stream(&agreement, &[vec![7; 40]]);
        let first = if markers { 4 } else { 0 };
        for at in first + 2..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x10;
            let received = receive(&agreement, &wrong, || 9);
            assert_eq!(received, Err(Violation::Crc), "{at}");
        }
    }
}

#[test]
fn the_rest_of_an_fpdu_that_has_begun_is_kept() {
    let mut framing = Framing::new(&agreement(false, false));
    let mut outgoing = OutgoingFpdus::default();
    assert!(!framing.copies());
    for number in 0..3 {
        outgoing.push_payload(&[9; 14], 'p', 10, Some(number));
    }
    let fill = |out: &mut Vec<u8>| {
        out.extend_from_slice(b"copied");
        Ok::<_, Infallible>(())
    };
    let Ok(()) = outgoing.push(&mut framing, &[8; 14], fill, Some(3));
    assert_eq!(outgoing.left(), 3 * 32 + 28);
    let mut done = Vec::new();
    outgoing.took(32 + 20, |number| done.push(number));
    assert_eq!(done, [0]);
    assert!(outgoing.in_fpdu());
    let next = outgoing.runs().next();
    let (offset, len) = (4, 6);
    assert_eq!(
        next,
        Some(Run::Payload {
            of: &'p',
            offset,
            len
        })
    );
    outgoing.drop_unbegun(&mut framing);
    assert_eq!(outgoing.left(), 12);
    outgoing.took(12, |number| done.push(number));
    assert_eq!((done, outgoing.left()), (vec![0, 1], 0));
    assert!(!outgoing.in_fpdu());
    let refused = outgoing.push(&mut framing, &[8; 14], |_| Err("unmapped"), None);
    assert_eq!((refused, outgoing.runs().count()), (Err("unmapped"), 0));
}

/// What TCP has taken of some FPDUs, and one that follows when those that had not begun are
/// dropped.
fn after_a_drop(agreement: &Agreement, lens: &[usize], taken: usize) -> (Vec<u8>, usize) {
    let mut framing = Framing::new(agreement);
    let mut outgoing = OutgoingFpdus::<()>::default();
    let nothing = |_: &mut Vec<u8>| Ok::<_, Infallible>(());
    for &len in lens {
        let Ok(()) = outgoing.push(&mut framing, &vec![1; len], nothing, Some(0));
    }
    let all = |outgoing: &OutgoingFpdus<()>| {
        let mut bytes = Vec::new();
        for run in outgoing.runs() {
            if let Run::Bytes(run) = run {
                bytes.extend_from_slice(run);
            }
        }
        bytes
    };
    let mut bytes = all(&outgoing);
    bytes.truncate(taken);
    let mut whole = 0;
    outgoing.took(bytes.len(), |_| whole += 1);
    let begun = usize::from(outgoing.in_fpdu());
    outgoing.drop_unbegun(&mut framing);
    let Ok(()) = outgoing.push(&mut framing, &[2; 30], nothing, None);
    bytes.extend(all(&outgoing));
    (bytes, whole + begun + 1)
}

proptest! {
    #[test]
    fn a_stream_goes_on_behind_what_was_dropped(
        lens in proptest::collection::vec(0usize..900, 0..6),
        flags in any::<[bool; 2]>(),
        taken in 0usize..3000,
    ) {
        let agreement = agreement(flags[0], flags[1]);
        let (bytes, count) = after_a_drop(&agreement, &lens, taken);
        let received = receive(&agreement, &bytes, || 1000).unwrap();
        prop_assert_eq!(received.len(), count);
        prop_assert_eq!(received.last(), Some(&vec![2; 30]));
    }

    #[test]
    fn what_is_sent_is_received_however_the_stream_is_cut(
        lens in proptest::collection::vec((0usize..3000, any::<u8>()), 0..8),
        flags in any::<[bool; 2]>(),
        cuts in proptest::collection::vec(1usize..1500, 1..20),
    ) {
        let agreement = agreement(flags[0], flags[1]);
        let ulpdus: Vec<Vec<u8>> = lens.iter().map(|&(len, fill)| vec![fill; len]).collect();
        let bytes = stream(&agreement, &ulpdus);
        let mut cuts = cuts.iter().copied().cycle();
        let received = receive(&agreement, &bytes, || cuts.next().unwrap_or(1));
        prop_assert_eq!(received, Ok(ulpdus));
    }

    #[test]
    fn any_stream_is_taken_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        flags in any::<[bool; 2]>(),
        cut in 1usize..100,
    ) {
        let mut deframer = Deframer::new(&agreement(flags[0], flags[1]));
        for part in bytes.chunks(cut) {
            let mut at = 0;
            while let Ok(taken) = deframer.take(&part[at..]) {
                at += taken.used;
                if taken.ulpdu.is_none() {
                    break;
                }
            }
        }
    }
}
