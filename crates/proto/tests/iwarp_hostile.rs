//! A peer that breaks the rules of MPA, DDP or RDMAP: each violation is answered by the TERMINATE
//! with its own numbers, and changes nothing but what came before it.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

use ferroce_proto::ids::{Key, PdId};
use ferroce_proto::iwarp::ddp::{Header, Tagged, Untagged};
use ferroce_proto::iwarp::mpa::Wishes;
use ferroce_proto::iwarp::rdmap::{AtomicOp, AtomicRequest, AtomicResponse, Opcode, ReadRequest};
use ferroce_proto::iwarp::testkit::{Lone, Setup};
use ferroce_proto::iwarp::{Ended, StreamEvent, Teardown, Violation};
use ferroce_proto::mr::Access;
use ferroce_proto::testkit::{Arena, remote, sge, wr};
use ferroce_proto::verbs::{QpState, RecvWr, SendOp, WcStatus};

/// Length of the receive that is posted, and of the READ that is outstanding.
const LEN: u32 = 100;

/// A queue pair with one receive posted; its memory is zero.
fn lone(setup: Setup) -> Lone {
    let mut lone = Lone::new(setup);
    let (now, key) = (lone.now, lone.key);
    let recv = RecvWr {
        wr_id: 1,
        sges: vec![sge(key, 0, LEN)].into(),
    };
    let posted = lone.node.with(now, |qp, cx| qp.post_recv(cx, recv));
    assert_eq!(posted, Ok(()));
    lone
}

fn untagged(opcode: Opcode, payload: &[u8], change: impl FnOnce(&mut Untagged)) -> Vec<u8> {
    let mut header = Untagged {
        last: true,
        opcode,
        invalidate: Key(0),
        queue: opcode.queue().unwrap_or_default(),
        msn: 1,
        mo: 0,
    };
    change(&mut header);
    [&Header::Untagged(header).emit()[..], payload].concat()
}

fn tagged(opcode: Opcode, stag: Key, to: u64, payload: &[u8]) -> Vec<u8> {
    let header = Tagged {
        last: true,
        opcode,
        stag,
        to,
    };
    [&Header::Tagged(header).emit()[..], payload].concat()
}

fn read(stag: Key, to: u64, length: u32) -> Vec<u8> {
    let request = ReadRequest {
        sink_stag: Key(0x11),
        sink_to: 0x1000,
        length,
        source_stag: stag,
        source_to: to,
    };
    untagged(Opcode::ReadRequest, &request.emit(), |_| {})
}

fn atomic(stag: Key, to: u64) -> Vec<u8> {
    let op = AtomicOp::FetchAdd { add: 1 };
    let request = AtomicRequest {
        id: 1,
        stag,
        to,
        op,
    };
    untagged(Opcode::AtomicRequest, &request.emit(), |_| {})
}

/// The last of these ULPDUs must end the stream with this.
#[track_caller]
fn expect(mut lone: Lone, ulpdus: &[Vec<u8>], violation: Violation) -> Lone {
    for ulpdu in ulpdus {
        assert_eq!(lone.node.qp.state(), QpState::Rts, "{violation:?}");
        lone.says(ulpdu);
    }
    let ended = StreamEvent::Ended(Ended::Violation(violation));
    assert_eq!(lone.events().last(), Some(&ended));
    assert_eq!(lone.node.qp.teardown(), Teardown::Drain);
    let (reason, context) = lone.terminate().expect("a TERMINATE");
    assert_eq!(reason, violation.reason());
    // The connection with another make stays open for a while.
    if let Some(at) = lone.node.qp.deadline() {
        lone.node.qp.on_deadline(at);
    }
    assert_eq!(lone.node.qp.teardown(), Teardown::Close);
    // It repeats the length and the header of the segment.
    let ulpdu = ulpdus.last().expect("a segment");
    let is_tagged = ulpdu.first().is_some_and(|first| first & 0x80 != 0);
    let header = if is_tagged { 14 } else { 18 };
    if let Some(header) = ulpdu.get(..header) {
        let expected = [&(ulpdu.len() as u16).to_be_bytes()[..], header].concat();
        assert_eq!(&context[..expected.len()], expected, "{violation:?}");
    }
    // Nothing is heard any more.
    lone.says(&untagged(Opcode::Send, b"late", |_| {}));
    assert_eq!(lone.heard(), Vec::<Vec<u8>>::new());
    let recvs = &lone.node.results.recv;
    assert_eq!(recvs.len(), 1, "{violation:?}");
    lone
}

fn send(payload: &[u8]) -> Vec<u8> {
    untagged(Opcode::Send, payload, |_| {})
}

#[test]
fn violations_of_queue_0_have_their_codes() {
    let data = [7; LEN as usize + 1];
    let first = untagged(Opcode::Send, b"some", |h| h.last = false);
    let with = |change: fn(&mut Untagged)| untagged(Opcode::Send, b"more", change);
    for (ulpdus, violation) in [
        (vec![with(|h| h.msn = 0)], Violation::MsnRange),
        (vec![with(|h| h.msn = 2)], Violation::MsnRange),
        (vec![send(b""), send(b"")], Violation::MsnRange),
        (vec![send(b""), with(|h| h.msn = 2)], Violation::NoBuffer),
        (vec![with(|h| h.mo = 4)], Violation::BadOffset),
        (
            vec![first.clone(), with(|h| h.mo = 3)],
            Violation::BadOffset,
        ),
        (
            vec![first.clone(), with(|h| h.mo = 5)],
            Violation::BadOffset,
        ),
        (vec![first.clone(), with(|_| {})], Violation::BadOffset),
        (
            vec![first.clone(), with(|h| h.mo = u32::MAX)],
            Violation::BadOffset,
        ),
        (
            vec![
                first.clone(),
                with(|h| (h.mo, h.opcode) = (4, Opcode::SendSolicited)),
            ],
            Violation::UnexpectedOpcode,
        ),
        (vec![with(|h| h.queue = 4)], Violation::BadQueue),
        (vec![with(|h| h.queue = u32::MAX)], Violation::BadQueue),
        (vec![with(|h| h.queue = 1)], Violation::UnexpectedOpcode),
        (vec![with(|h| h.queue = 2)], Violation::UnexpectedOpcode),
        (vec![send(&data)], Violation::TooLong),
        (
            vec![
                first,
                untagged(Opcode::Send, &data[..LEN as usize - 3], |h| h.mo = 4),
            ],
            Violation::TooLong,
        ),
        (
            vec![untagged(Opcode::SendInvalidate, b"", |h| {
                h.invalidate = Key(5)
            })],
            Violation::CannotInvalidate,
        ),
        (
            vec![untagged(Opcode::Immediate, &[0; 7], |_| {})],
            Violation::MalformedRequest,
        ),
        (
            vec![untagged(Opcode::Immediate, &[9; 8], |_| {})],
            Violation::MalformedRequest,
        ),
        (
            vec![untagged(
                Opcode::Immediate,
                &[0, 0, 0, 1, 5, 5, 5, 5, 5],
                |_| {},
            )],
            Violation::TooLong,
        ),
    ] {
        let lone = expect(lone(Setup::default()), &ulpdus, violation);
        let status = lone.node.results.recv[0].0.status;
        let expected = match violation {
            Violation::CannotInvalidate => WcStatus::RemInvReqErr,
            Violation::TooLong if ulpdus[0][1] == 0x43 => WcStatus::LocLenErr,
            _ if ulpdus.len() == 2 && ulpdus[0].len() == 18 => WcStatus::Success,
            _ => WcStatus::WrFlushErr,
        };
        assert_eq!(status, expected, "{violation:?}");
    }
}

#[test]
fn violations_of_writes_have_their_codes_and_write_nothing() {
    let here = Arena::BASE;
    let end = here + (1 << 20);
    for (case, violation) in [
        ((0, here, 4), Violation::TaggedStag),
        ((1, end, 1), Violation::TaggedBounds),
        ((1, end - 3, 4), Violation::TaggedBounds),
        ((1, here - 1, 4), Violation::TaggedBounds),
        ((1, u64::MAX - 2, 4), Violation::TaggedWrap),
        ((2, here, 4), Violation::AccessRights),
        ((3, here, 4), Violation::TaggedNotAssociated),
        ((4, here, 4), Violation::TaggedNotAssociated),
        ((5, here, 65), Violation::TaggedBounds),
    ] {
        let mut lone = lone(Setup::default());
        let (which, to, len) = case;
        let key = keys(&mut lone)[which];
        let ulpdu = tagged(Opcode::Write, key, to, &vec![1; len]);
        let lone = expect(lone, &[ulpdu], violation);
        assert_eq!(lone.node.memory.get(here, 1 << 12), [0; 1 << 12]);
        assert_eq!(lone.node.memory.get(end - 16, 16), [0; 16]);
    }
}

/// Keys: none, all, local write only, of another domain, of a window that another queue pair has
/// bound, of a window of 64 bytes.
fn keys(lone: &mut Lone) -> [Key; 6] {
    let node = &mut lone.node;
    let other = ferroce_proto::mr::Accessor {
        qpn: ferroce_proto::ids::Qpn::new(0x77),
        ..node.accessor()
    };
    let all = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let local = Access::LOCAL_WRITE;
    [
        Key(0xbad),
        lone.key,
        node.register(0, 4096, local),
        node.register_in(PdId(9), 0, 4096, all | local),
        node.bound_window_by(other, 0, 64, all),
        node.bound_window(0, 64, all),
    ]
}

#[test]
fn violations_of_reads_and_atomics_have_their_codes_and_repeat_the_read() {
    let here = Arena::BASE;
    for (case, violation) in [
        ((0, here, 4), Violation::SourceStag),
        ((1, here + (1 << 20) - 2, 4), Violation::SourceBounds),
        ((1, here, u32::MAX), Violation::SourceBounds),
        ((1, u64::MAX - 2, 4), Violation::SourceWrap),
        ((2, here, 4), Violation::AccessRights),
        ((3, here, 4), Violation::SourceNotAssociated),
        ((4, here, 4), Violation::SourceNotAssociated),
    ] {
        let (which, to, length) = case;
        let mut reader = lone(Setup::default());
        let key = keys(&mut reader)[which];
        let request = read(key, to, length);
        reader.says(&request);
        let (reason, context) = reader.terminate().expect("a TERMINATE");
        assert_eq!(reason, violation.reason());
        // Length, DDP header and READ request.
        let expected = [&46u16.to_be_bytes()[..], &request[..]].concat();
        assert_eq!(context, expected);
        if length == 4 && violation != Violation::SourceWrap {
            let mut lone = lone(Setup::default());
            let key = keys(&mut lone)[which];
            expect(lone, &[atomic(key, to - to % 8 + 8)], violation);
        }
    }
    let mut lone = lone(Setup::default());
    let key = lone.key;
    lone.says(&atomic(key, here + 4));
    assert_eq!(
        lone.terminate().map(|t| t.0),
        Some(Violation::MalformedRequest.reason())
    );
}

#[test]
fn violations_of_requests_have_their_codes() {
    let good = read(Key(1), 0, 0);
    let bytes = &good[18..];
    let with =
        |payload: &[u8], change: fn(&mut Untagged)| untagged(Opcode::ReadRequest, payload, change);
    for (ulpdus, violation) in [
        (vec![with(bytes, |h| h.msn = 2)], Violation::MsnRange),
        (vec![with(bytes, |h| h.mo = 1)], Violation::BadOffset),
        (vec![with(bytes, |h| h.last = false)], Violation::TooLong),
        (vec![with(&[0; 29], |_| {})], Violation::TooLong),
        (vec![with(&bytes[1..], |_| {})], Violation::MalformedRequest),
        (
            vec![with(bytes, |h| h.queue = 0)],
            Violation::UnexpectedOpcode,
        ),
        (
            vec![untagged(Opcode::AtomicRequest, &[0xff; 52], |_| {})],
            Violation::MalformedRequest,
        ),
        // IRD is 4. Nothing was sent in between.
        (
            (1..=5)
                .map(|msn| untagged(Opcode::ReadRequest, bytes, |h| h.msn = msn))
                .collect(),
            Violation::TooManyReads,
        ),
        (
            vec![tagged(Opcode::ReadResponse, Key(1), 0, b"")],
            Violation::UnexpectedOpcode,
        ),
        (
            vec![tagged(Opcode::Send, Key(1), 0, b"")],
            Violation::UnexpectedOpcode,
        ),
        (
            vec![untagged(
                Opcode::AtomicResponse,
                &AtomicResponse { id: 1, original: 0 }.emit(),
                |_| {},
            )],
            Violation::UnexpectedOpcode,
        ),
    ] {
        expect(lone(Setup::default()), &ulpdus, violation);
    }
}

#[test]
fn what_is_no_segment_is_a_framing_error() {
    for ulpdu in [
        vec![],
        vec![0x41],
        vec![0xc1, 0x40],
        send(b"")[..17].to_vec(),
    ] {
        expect(lone(Setup::default()), &[ulpdu], Violation::Framing);
    }
}

/// Posts READs of some lengths into the memory from 0x1000 on, and hears of the requests.
fn reading(lens: &[u32]) -> (Lone, Vec<ReadRequest>) {
    let mut lone = lone(Setup::default());
    // A responder may send when it has heard of the initiator.
    lone.says(&tagged(Opcode::Write, Key(1), 0, b""));
    let (now, key) = (lone.now, lone.key);
    for (at, &len) in lens.iter().enumerate() {
        let sink = vec![sge(key, 0x1000 * (1 + at as u64), len)];
        let read = wr(at as u64, SendOp::Read(remote(Key(0x77), 0)), sink);
        let posted = lone.node.with(now, |qp, cx| qp.post_send(cx, read));
        assert_eq!(posted, Ok(()));
    }
    let heard = lone.heard();
    let requests = heard
        .iter()
        .filter_map(|ulpdu| ReadRequest::parse(&ulpdu[18..]));
    let requests: Vec<_> = requests.collect();
    assert_eq!(requests.len(), lens.len());
    (lone, requests)
}

#[test]
fn only_the_answer_to_the_oldest_read_is_taken() {
    let answer = |stag, to, last, len: usize| {
        let header = Tagged {
            last,
            opcode: Opcode::ReadResponse,
            stag,
            to,
        };
        [&Header::Tagged(header).emit()[..], &vec![3; len]].concat()
    };
    type Answers = fn(&[ReadRequest], &dyn Fn(Key, u64, bool, usize) -> Vec<u8>) -> Vec<Vec<u8>>;
    let cases: [(Answers, Violation); 9] = [
        // The second one, whose memory is as good.
        (
            |r, a| vec![a(r[1].sink_stag, r[1].sink_to, true, 50)],
            Violation::TaggedBounds,
        ),
        (
            |r, a| vec![a(Key(9), r[0].sink_to, true, 100)],
            Violation::TaggedStag,
        ),
        (
            |r, a| vec![a(r[0].sink_stag, r[0].sink_to + 1, true, 99)],
            Violation::TaggedBounds,
        ),
        (
            |r, a| vec![a(r[0].sink_stag, r[0].sink_to, true, 101)],
            Violation::TaggedBounds,
        ),
        (
            |r, a| vec![a(r[0].sink_stag, r[0].sink_to, true, 99)],
            Violation::TaggedBounds,
        ),
        (
            |r, a| vec![a(r[0].sink_stag, r[0].sink_to, false, 100)],
            Violation::TaggedBounds,
        ),
        (
            |r, a| {
                let (stag, to) = (r[0].sink_stag, r[0].sink_to);
                vec![a(stag, to, false, 40), a(stag, to, true, 60)]
            },
            Violation::TaggedBounds,
        ),
        (
            |r, a| {
                let (stag, to) = (r[0].sink_stag, r[0].sink_to);
                vec![a(stag, to, true, 100), a(stag, to, true, 100)]
            },
            Violation::TaggedBounds,
        ),
        (
            |_, _| {
                let response = AtomicResponse { id: 1, original: 0 };
                vec![untagged(Opcode::AtomicResponse, &response.emit(), |_| {})]
            },
            Violation::UnexpectedOpcode,
        ),
    ];
    for (answers, violation) in cases {
        let (lone, requests) = reading(&[100, 50]);
        let lone = expect(lone, &answers(&requests, &answer), violation);
        let statuses = lone.node.results.send_statuses();
        assert_eq!(statuses.len(), 2);
        assert!(statuses[1].1 == WcStatus::WrFlushErr, "{violation:?}");
        assert_eq!(lone.node.memory.get(Arena::BASE + 0x2000, 50), [0; 50]);
    }
    // The right answers, in two parts and one.
    let (mut lone, requests) = reading(&[100, 50]);
    for (at, last, len, to) in [(0, false, 40, 0), (0, true, 60, 40), (1, true, 50, 0)] {
        let request: &ReadRequest = &requests[at];
        lone.says(&answer(request.sink_stag, request.sink_to + to, last, len));
    }
    let done = [0, 1].map(|id| (id, WcStatus::Success));
    assert_eq!(lone.node.results.send_statuses(), done);
    assert_eq!(lone.node.memory.get(Arena::BASE + 0x1000, 100), [3; 100]);
}

#[test]
fn the_extensions_of_rfc_7306_are_refused_of_others() {
    let setup = Setup {
        a: Wishes {
            mark: false,
            ..Setup::WISHES
        },
        ..Setup::default()
    };
    for (ulpdu, violation) in [
        (
            untagged(Opcode::Immediate, &[0; 8], |_| {}),
            Violation::UnexpectedOpcode,
        ),
        (atomic(Key(1), 0), Violation::UnexpectedOpcode),
        (
            untagged(Opcode::AtomicResponse, &[0; 12], |_| {}),
            Violation::BadQueue,
        ),
    ] {
        expect(lone(setup), &[ulpdu], violation);
    }
}

#[test]
fn a_terminate_is_not_answered() {
    for (payload, reason) in [
        (vec![0x12, 2, 0xc0, 0], Violation::NoBuffer.reason()),
        // As siw sends it.
        (vec![0x21, 2, 0x03, 0], Violation::NoBuffer.reason()),
    ] {
        let mut lone = lone(Setup::default());
        lone.says(&untagged(Opcode::Terminate, &payload, |_| {}));
        let ended = StreamEvent::Ended(Ended::Terminated(reason));
        assert_eq!(lone.events(), [StreamEvent::Heard, ended]);
        assert_eq!(lone.heard(), Vec::<Vec<u8>>::new());
        assert_eq!(lone.node.qp.teardown(), Teardown::Close);
    }
}

/// Bytes that the framing refuses.
#[test]
fn wrong_crcs_and_markers_in_the_wrong_place_end_the_stream() {
    for (markers, at, violation) in [
        (false, 30, Violation::Crc),
        (true, 30, Violation::Crc),
        (true, 3, Violation::Framing),
    ] {
        // Of a stranger, too, the first FPDU may be the wrong one.
        let b = Wishes {
            markers,
            mark: at == 3,
            ..Setup::WISHES
        };
        let mut lone = lone(Setup {
            b,
            ..Setup::default()
        });
        let mut bytes = lone.fpdu(&send(b"corrupt on its way"));
        bytes[at] ^= 1;
        lone.write(&bytes);
        let ended = StreamEvent::Ended(Ended::Violation(violation));
        assert_eq!(lone.events(), [ended]);
        assert_eq!(lone.terminate().map(|t| t.0), Some(violation.reason()));
        assert_eq!(lone.node.memory.get(Arena::BASE, 100), [0; 100]);
    }
    // It shifts by a marker that is not there.
    let b = Wishes {
        markers: true,
        crc: false,
        ..Setup::WISHES
    };
    let a = Wishes {
        crc: false,
        ..Setup::WISHES
    };
    let mut lone = lone(Setup {
        a,
        b,
        ..Setup::default()
    });
    let bytes = lone.fpdu(&send(b"where is it"));
    lone.write(&bytes[4..]);
    let reason = Violation::Framing.reason();
    assert_eq!(lone.terminate().map(|t| t.0), Some(reason));
    let ended = StreamEvent::Ended(Ended::Violation(Violation::Framing));
    assert_eq!(lone.events().last(), Some(&ended));
}
