//! Bytes of long FPDUs that are read straight to their places: what lands, what may not, and that
//! rules and TERMINATEs stay the same.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use common::bytes;
use ferroce_proto::ids::Key;
use ferroce_proto::iwarp::Violation;
use ferroce_proto::iwarp::ddp::{Header, Tagged, Untagged};
use ferroce_proto::iwarp::mpa::Wishes;
use ferroce_proto::iwarp::rdmap::{Opcode, ReadRequest};
use ferroce_proto::iwarp::testkit::{Lone, Setup};
use ferroce_proto::testkit::{Arena, Rng, remote, sge, wr};
use ferroce_proto::verbs::{QpState, RecvWr, SendFlags, SendOp, WcStatus};

/// Bytes of a payload.
const LEN: usize = 40_000;
/// Bytes of an FPDU that come before it lands: its beginning.
const BEGINNING: usize = 100;
/// Bytes at the end of a payload that never land.
const TAIL: usize = 64;
/// What the beginning has of a payload behind its header.
const IN_BEGINNING: usize = BEGINNING - 2 - Tagged::LEN;

fn lone(crc: bool) -> Lone {
    let wishes = Wishes {
        crc,
        ..Setup::WISHES
    };
    Lone::new(Setup {
        a: wishes,
        b: wishes,
        ..Setup::default()
    })
}

fn payload() -> Vec<u8> {
    bytes(&mut Rng::new(7), LEN)
}

fn tagged(opcode: Opcode, stag: Key, to: u64) -> Vec<u8> {
    let header = Tagged {
        last: true,
        opcode,
        stag,
        to,
    };
    [&Header::Tagged(header).emit()[..], &payload()].concat()
}

fn send() -> Vec<u8> {
    let header = Untagged {
        last: true,
        opcode: Opcode::Send,
        invalidate: Key(0),
        queue: 0,
        msn: 1,
        mo: 0,
    };
    [&Header::Untagged(header).emit()[..], &payload()].concat()
}

/// The peer sends a ULPDU whose FPDU comes in parts. Returns how many bytes landed.
fn says_in_parts(lone: &mut Lone, ulpdu: &[u8], parts: &[usize]) -> usize {
    let fpdu = lone.fpdu(ulpdu);
    let mut rest = &fpdu[..];
    let mut landed = 0;
    for &part in parts {
        let (now, later) = rest.split_at(part);
        landed += lone.write_in_place(now);
        rest = later;
    }
    landed + lone.write_in_place(rest)
}

fn post_receive(lone: &mut Lone, lengths: &[u32]) {
    let (now, key) = (lone.now, lone.key);
    let mut at = 0;
    let sges = lengths.iter().map(|&length| {
        let of_this = sge(key, at, length);
        at += u64::from(length);
        of_this
    });
    let sges = sges.collect();
    let recv = RecvWr { wr_id: 1, sges };
    let posted = lone.node.with(now, |qp, cx| qp.post_recv(cx, recv));
    assert_eq!(posted, Ok(()));
}

#[test]
fn a_write_lands_but_for_its_ends() {
    let mut lone = lone(false);
    let ulpdu = tagged(Opcode::Write, lone.key, Arena::BASE);
    let landed = says_in_parts(&mut lone, &ulpdu, &[BEGINNING, 1, 1000, 5]);
    assert_eq!(landed, LEN - IN_BEGINNING - TAIL);
    assert_eq!(lone.node.memory.get(Arena::BASE, LEN), payload());
    // The next FPDU finds everything as it was.
    lone.says(&ulpdu);
    assert_eq!(lone.node.qp.state(), QpState::Rts);
}

#[test]
fn the_end_of_a_write_is_not_in_memory_before_the_rest() {
    let mut lone = lone(false);
    let ulpdu = tagged(Opcode::Write, lone.key, Arena::BASE);
    let fpdu = lone.fpdu(&ulpdu);
    let before_end = 2 + Tagged::LEN + LEN - TAIL;
    lone.write_in_place(&fpdu[..BEGINNING]);
    lone.write_in_place(&fpdu[BEGINNING..before_end + TAIL / 2]);
    let there = lone.node.memory.get(Arena::BASE, LEN);
    assert_eq!(there[..LEN - TAIL], payload()[..LEN - TAIL]);
    assert_eq!(there[LEN - TAIL..], [0; TAIL]);
    lone.write_in_place(&fpdu[before_end + TAIL / 2..]);
    assert_eq!(lone.node.memory.get(Arena::BASE, LEN), payload());
}

#[test]
fn a_send_lands_in_all_elements_of_a_receive_and_completes_once() {
    let mut lone = lone(false);
    post_receive(&mut lone, &[1000, 30_000, 20_000]);
    let landed = says_in_parts(&mut lone, &send(), &[BEGINNING, 3000]);
    assert!(landed > LEN - BEGINNING - TAIL);
    assert_eq!(lone.node.memory.get(Arena::BASE, LEN), payload());
    assert_eq!(lone.node.results.recv_statuses(), [(1, WcStatus::Success)]);
    assert_eq!(lone.node.results.recv[0].0.byte_len, LEN as u32);
}

#[test]
fn a_receive_may_still_be_posted_while_a_send_comes() {
    let mut lone = lone(false);
    let fpdu = lone.fpdu(&send());
    assert_eq!(lone.write_in_place(&fpdu[..BEGINNING]), 0);
    assert_eq!(lone.write_in_place(&fpdu[BEGINNING..10_000]), 0);
    post_receive(&mut lone, &[LEN as u32]);
    assert!(lone.write_in_place(&fpdu[10_000..]) > 0);
    assert_eq!(lone.node.results.recv_statuses(), [(1, WcStatus::Success)]);
    assert_eq!(lone.node.memory.get(Arena::BASE, LEN), payload());
}

#[test]
fn an_answer_lands_in_all_elements_of_its_read() {
    let mut lone = lone(false);
    let request = asked(&mut lone, LEN as u32);
    let answer = tagged(Opcode::ReadResponse, request.sink_stag, request.sink_to);
    let landed = says_in_parts(&mut lone, &answer, &[BEGINNING]);
    assert_eq!(landed, LEN - IN_BEGINNING - TAIL);
    assert_eq!(lone.node.memory.get(Arena::BASE, LEN), payload());
    assert_eq!(lone.node.results.send_statuses(), [(5, WcStatus::Success)]);
}

/// Posts a READ into two elements. Returns what the peer is asked for.
fn asked(lone: &mut Lone, len: u32) -> ReadRequest {
    let (now, key) = (lone.now, lone.key);
    let sges = vec![sge(key, 0, 10_000), sge(key, 10_000, len - 10_000)];
    let mut read = wr(5, SendOp::Read(remote(Key(9), 0)), sges);
    read.flags = SendFlags::SIGNALED;
    let posted = lone.node.with(now, |qp, cx| qp.post_send(cx, read));
    assert_eq!(posted, Ok(()));
    let request = lone.heard().remove(0);
    ReadRequest::parse(&request[Untagged::LEN..]).expect("a request")
}

#[test]
fn an_answer_that_ends_too_early_leaves_nothing_in_memory() {
    let mut lone = lone(false);
    let request = asked(&mut lone, LEN as u32 + 1);
    let answer = tagged(Opcode::ReadResponse, request.sink_stag, request.sink_to);
    expect_refused(&mut lone, &answer, Violation::TaggedBounds);
}

/// Checks that a TERMINATE gives a reason and repeats length and header of a segment.
#[track_caller]
fn expect_terminate(lone: &mut Lone, ulpdu: &[u8], violation: Violation) {
    let (reason, context) = lone.terminate().expect("a TERMINATE");
    assert_eq!(reason, violation.reason());
    assert_eq!(context[..2], (ulpdu.len() as u16).to_be_bytes());
    assert_eq!(context[2..16], ulpdu[..14], "the segment that came");
}

/// Checks that nothing of an FPDU is in memory when the stream has ended by `violation`.
#[track_caller]
fn expect_refused(lone: &mut Lone, ulpdu: &[u8], violation: Violation) {
    let fpdu = lone.fpdu(ulpdu);
    lone.write_in_place(&fpdu[..BEGINNING]);
    assert_eq!(lone.write_in_place(&fpdu[BEGINNING..]), 0);
    expect_terminate(lone, ulpdu, violation);
    let size = Setup::default().memory;
    let there = lone.node.memory.get(Arena::BASE, size);
    assert!(there.iter().all(|&byte| byte == 0));
}

#[test]
fn a_segment_that_is_refused_leaves_nothing_in_memory() {
    let mut unknown = lone(false);
    let ulpdu = tagged(Opcode::Write, Key(0x99), Arena::BASE);
    expect_refused(&mut unknown, &ulpdu, Violation::TaggedStag);

    // Its end is beyond the memory.
    let mut bounds = lone(false);
    let end = Arena::BASE + Setup::default().memory as u64;
    let ulpdu = tagged(Opcode::Write, bounds.key, end - LEN as u64 + 1);
    expect_refused(&mut bounds, &ulpdu, Violation::TaggedBounds);

    let mut long = lone(false);
    post_receive(&mut long, &[LEN as u32 - 1]);
    expect_refused(&mut long, &send(), Violation::TooLong);

    let mut unasked = lone(false);
    let ulpdu = tagged(Opcode::ReadResponse, unasked.key, Arena::BASE);
    expect_refused(&mut unasked, &ulpdu, Violation::UnexpectedOpcode);
}

#[test]
fn nothing_lands_by_a_key_that_was_taken_back() {
    let mut lone = lone(false);
    let ulpdu = tagged(Opcode::Write, lone.key, Arena::BASE);
    let fpdu = lone.fpdu(&ulpdu);
    lone.write_in_place(&fpdu[..BEGINNING]);
    assert!(lone.write_in_place(&fpdu[BEGINNING..10_000]) > 0);
    let before = lone.node.memory.get(Arena::BASE, LEN);
    let key = lone.key;
    assert!(lone.node.rights.remove(key).is_some());
    assert_eq!(lone.write_in_place(&fpdu[10_000..]), 0);
    assert_eq!(lone.node.memory.get(Arena::BASE, LEN), before);
    expect_terminate(&mut lone, &ulpdu, Violation::TaggedStag);
}

#[test]
fn a_terminate_about_the_end_of_what_has_landed_repeats_the_header_that_came() {
    let mut lone = lone(false);
    let ulpdu = tagged(Opcode::Write, lone.key, Arena::BASE);
    let fpdu = lone.fpdu(&ulpdu);
    let before_end = fpdu.len() - TAIL;
    lone.write_in_place(&fpdu[..BEGINNING]);
    assert!(lone.write_in_place(&fpdu[BEGINNING..before_end]) > 0);
    let key = lone.key;
    assert!(lone.node.rights.remove(key).is_some());
    lone.write_in_place(&fpdu[before_end..]);
    expect_terminate(&mut lone, &ulpdu, Violation::TaggedStag);
}

#[test]
fn a_terminate_about_the_next_segment_repeats_that_one() {
    let mut lone = lone(false);
    let ulpdu = tagged(Opcode::Write, lone.key, Arena::BASE);
    says_in_parts(&mut lone, &ulpdu, &[BEGINNING]);
    let next = tagged(Opcode::Write, Key(0x99), Arena::BASE + 8);
    lone.says(&next);
    expect_terminate(&mut lone, &next, Violation::TaggedStag);
}

#[test]
fn with_crcs_an_fpdu_is_collected_and_checked_before_anything_is_placed() {
    for broken in [false, true] {
        let mut lone = lone(true);
        let ulpdu = tagged(Opcode::Write, lone.key, Arena::BASE);
        let mut fpdu = lone.fpdu(&ulpdu);
        fpdu[LEN / 2] ^= u8::from(broken);
        let (beginning, rest) = fpdu.split_at(BEGINNING);
        let (middle, end) = rest.split_at(20_000);
        assert!(
            [beginning, middle]
                .iter()
                .all(|part| lone.write_in_place(part) == 0)
        );
        assert_eq!(lone.node.memory.get(Arena::BASE, LEN), vec![0; LEN]);
        assert_eq!(lone.write_in_place(end), 0);
        let expected = if broken { vec![0; LEN] } else { payload() };
        assert_eq!(lone.node.memory.get(Arena::BASE, LEN), expected);
        let reason = lone.terminate().map(|(reason, _)| reason);
        assert_eq!(reason, broken.then(|| Violation::Crc.reason()));
    }
}
