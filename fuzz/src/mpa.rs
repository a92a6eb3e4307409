//! A byte stream: startup frames, FPDUs, segments.

use ferroce_proto::ids::Qpn;
use ferroce_proto::iwarp::ddp::Segment;
use ferroce_proto::iwarp::mpa::{
    Agreement, Asked, Deframer, Frame, FrameKind, Framing, Initiator, Outcome, OutgoingFpdus,
    Responder, Rtr, Run, Ticket, Wishes, WithinHost,
};
use ferroce_proto::iwarp::{Chunk, Terminate, Violation};
use ferroce_proto::time::Time;

use super::input::Input;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.u8();
    let cut = 1 + usize::from(input.u8());
    let stream = input.take(usize::MAX);
    for kind in [FrameKind::Request, FrameKind::Reply] {
        if let Ok(Some((frame, len))) = Frame::parse(kind, stream) {
            assert!(len <= stream.len());
            let again = frame.emit();
            assert_eq!(Frame::parse(kind, &again), Ok(Some((frame, again.len()))));
        }
    }
    if let Some((to, chunk)) = Chunk::parse(stream) {
        let mut again = Vec::new();
        chunk.emit(to, &mut again);
        assert_eq!(Chunk::parse(&again), Some((to, chunk)));
    }
    set_up(flags, stream, cut);
    frames(flags, stream, cut);
}

/// Both ends of a set-up end it at most once, and agree with what the peer's frame allows.
fn set_up(flags: u8, stream: &[u8], cut: usize) {
    let wishes = Wishes {
        revision: 1 + (flags & 1),
        crc: flags & 2 != 0,
        markers: flags & 4 != 0,
        ird: 8,
        max_ird: 16,
        ord: 8,
        rtr: Rtr::from_bits_truncate(flags >> 3),
        mark: flags & 0x40 != 0,
        within_host: WithinHost::Welcome,
    };
    let (mut initiator, _) = Initiator::new(Time(0), wishes, &[]).expect("good wishes");
    let mut outcomes = 0;
    for part in stream.chunks(cut) {
        let (used, outcome) = initiator.on_bytes(part);
        assert!(used <= part.len());
        outcomes += usize::from(outcome.is_some());
        if let Some(Outcome::Accepted { agreement, .. }) = outcome {
            assert!(agreement.ord <= 8 && agreement.ird <= 16);
        }
    }
    assert!(outcomes <= 1);
    let mut responder = Responder::new(Time(0));
    let wishes = Wishes {
        within_host: WithinHost::With(Ticket {
            qpn: Qpn::new(0x12_3456),
            nonce: 7,
        }),
        ..wishes
    };
    for part in stream.chunks(cut) {
        if let Some(Asked::Request { .. }) = responder.on_bytes(part) {
            let (reply, agreement) = responder
                .accept(&wishes, b"private")
                .expect("not too much")
                .expect("a request waits");
            let parsed = Frame::parse(FrameKind::Reply, &reply);
            assert!(matches!(parsed, Ok(Some((frame, len)))
                if len == reply.len() && frame.ticket == agreement.ticket));
            assert!(agreement.ord <= 8 && agreement.ird <= 16);
        }
    }
}

/// FPDUs are the same however the stream is cut, and are written as they were read.
fn frames(flags: u8, stream: &[u8], cut: usize) {
    let agreement = Agreement {
        is_initiator: false,
        revision: 2,
        crc: flags & 2 != 0,
        markers_in: flags & 4 != 0,
        markers_out: flags & 4 != 0,
        ird: 1,
        ord: 1,
        ready: None,
        is_ferroce_peer: true,
        ticket: None,
    };
    let whole = receive(&agreement, stream, stream.len().max(1));
    let (ulpdus, _) = &whole;
    assert_eq!(receive(&agreement, stream, cut), whole);
    for ulpdu in ulpdus {
        if let Ok(segment) = Segment::parse(ulpdu) {
            let again = [&segment.header.emit()[..], segment.payload].concat();
            assert_eq!(Segment::parse(&again), Ok(segment));
            let _ = Terminate::reason_of(segment.payload);
        }
    }
    let mut framing = Framing::new(&agreement);
    let mut outgoing = OutgoingFpdus::<()>::default();
    for ulpdu in ulpdus.iter().filter(|ulpdu| ulpdu.len() < 60_000) {
        let nothing = |_: &mut Vec<u8>| Ok::<_, ()>(());
        assert_eq!(outgoing.push(&mut framing, ulpdu, nothing, None), Ok(()));
    }
    let mut again = Vec::new();
    for run in outgoing.runs() {
        if let Run::Bytes(bytes) = run {
            again.extend_from_slice(bytes);
        }
    }
    let (same, fault) = receive(&agreement, &again, cut);
    assert_eq!(fault, None);
    assert!(
        same.iter()
            .eq(ulpdus.iter().filter(|ulpdu| ulpdu.len() < 60_000))
    );
}

fn receive(agreement: &Agreement, stream: &[u8], cut: usize) -> (Vec<Vec<u8>>, Option<Violation>) {
    let mut deframer = Deframer::new(agreement);
    let mut ulpdus = Vec::new();
    for part in stream.chunks(cut) {
        let mut at = 0;
        loop {
            match deframer.take(&part[at..]) {
                Err(violation) => return (ulpdus, Some(violation)),
                Ok(taken) => {
                    at += taken.used;
                    match taken.ulpdu {
                        Some(ulpdu) => ulpdus.push(ulpdu.to_vec()),
                        None => break,
                    }
                }
            }
        }
    }
    (ulpdus, None)
}
