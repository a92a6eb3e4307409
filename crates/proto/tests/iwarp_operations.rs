//! Every operation of an iWARP queue pair, between two ends over a stream that is cut anywhere.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use common::bytes;
use ferroce_proto::iwarp::ddp::Header;
use ferroce_proto::iwarp::mpa::{Ready, Rtr, Wishes};
use ferroce_proto::iwarp::rdmap::Opcode;
use ferroce_proto::iwarp::testkit::{Pair, Setup};
use ferroce_proto::iwarp::{SegmentWay, StreamEvent};
use ferroce_proto::mr::{Access, Piece};
use ferroce_proto::rc::SharedRecv;
use ferroce_proto::testkit::{Arena, PD, Rng, Side, remote, sge, wr};
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{
    Flush, Payload, Placement, PostError, QpState, RecvWr, Selectivity, SendFlags, SendOp, SendWr,
    WcImm, WcOpcode, WcStatus,
};

/// Where messages land.
const THERE: u64 = 0x4_0000;

/// Each way of framing.
fn framings() -> impl Iterator<Item = Setup> {
    [false, true].into_iter().flat_map(|crc| {
        [false, true].into_iter().flat_map(move |markers| {
            [1448, 65_536].into_iter().map(move |segment| {
                let wishes = Wishes {
                    crc,
                    markers,
                    ..Setup::WISHES
                };
                Setup {
                    a: wishes,
                    b: wishes,
                    segment,
                    ..Setup::default()
                }
            })
        })
    })
}

/// Fills A's memory from its beginning. Returns what is there.
fn fill(pair: &mut Pair, len: usize) -> Vec<u8> {
    let data = bytes(&mut Rng::new(len as u64), len);
    pair.a.memory.put(Arena::BASE, &data);
    data
}

fn there(pair: &Pair, len: usize) -> Vec<u8> {
    pair.b.memory.get(Arena::BASE + THERE, len)
}

/// One signalled work request of A's first bytes.
fn work(pair: &Pair, wr_id: u64, op: SendOp, len: u32) -> SendWr {
    let half = len / 2;
    let sges = vec![
        pair.sge(Side::A, 0, half),
        pair.sge(Side::A, 0, 0),
        pair.sge(Side::A, half.into(), len - half),
    ];
    wr(wr_id, op, sges)
}

fn to_b(pair: &Pair) -> ferroce_proto::verbs::RemoteAddr {
    remote(pair.key(Side::B), THERE)
}

#[test]
fn messages_of_any_length_arrive_in_every_framing() {
    for setup in framings() {
        for len in [0usize, 1, 3, 4, 17, 1406, 1424, 1425, 5000, 70_000, 200_000] {
            let mut pair = Pair::new(setup);
            let data = fill(&mut pair, len);
            let recv = vec![pair.sge(Side::B, THERE + 0x4_0000, len as u32 + 5)];
            pair.recv(Side::B, 7, recv);
            let write = work(&pair, 1, SendOp::Write(to_b(&pair)), len as u32);
            let send = work(&pair, 2, SendOp::Send, len as u32);
            let read = wr(
                3,
                SendOp::Read(to_b(&pair)),
                vec![
                    pair.sge(Side::A, 0x8_0000, len as u32 / 3),
                    pair.sge(Side::A, 0x8_0000 + len as u64 / 3, (len - len / 3) as u32),
                ],
            );
            for wr in [write, send, read] {
                pair.send(Side::A, wr);
            }
            pair.until(|p| p.a.results.send.len() == 3 && p.b.results.recv.len() == 1);
            assert_eq!(there(&pair, len), data);
            assert_eq!(pair.b.memory.get(Arena::BASE + THERE + 0x4_0000, len), data);
            assert_eq!(pair.a.memory.get(Arena::BASE + 0x8_0000, len), data);
            let statuses = [1, 2, 3].map(|id| (id, WcStatus::Success));
            assert_eq!(pair.a.results.send_statuses(), statuses);
            assert_eq!(pair.a.results.send[2].0.byte_len, len as u32);
            let (wc, solicited) = pair.b.results.recv[0];
            assert_eq!((wc.wr_id, wc.byte_len, solicited), (7, len as u32, false));
            assert_eq!((wc.opcode, wc.imm), (WcOpcode::Recv, None));
        }
    }
}

#[test]
fn immediates_and_solicited_events_reach_the_receiver() {
    for setup in framings() {
        let mut pair = Pair::new(setup);
        let len = 3000u32;
        let data = fill(&mut pair, len as usize);
        for id in 0..5 {
            let place = vec![pair.sge(Side::B, 0x8_0000 + id * 0x1_0000, len)];
            pair.recv(Side::B, id, place);
        }
        let imm = [1, 2, 3, 4];
        let mut plain = work(&pair, 0, SendOp::Write(to_b(&pair)), 12);
        plain.flags = SendFlags::empty();
        pair.send(Side::A, plain);
        for (id, op, len) in [
            (1, SendOp::SendImm(imm), len),
            (2, SendOp::SendImm(imm), 0),
            (3, SendOp::WriteImm(to_b(&pair), imm), len),
            (4, SendOp::WriteImm(to_b(&pair), imm), 0),
            (5, SendOp::Send, 1),
        ] {
            let mut wr = work(&pair, id, op, len);
            wr.flags |= SendFlags::SOLICITED;
            pair.send(Side::A, wr);
        }
        pair.until(|p| p.b.results.recv.len() == 5 && p.a.results.send.len() == 5);
        let seen: Vec<_> = pair
            .b
            .results
            .recv
            .iter()
            .map(|(wc, solicited)| {
                assert!(solicited);
                (wc.opcode, wc.byte_len, wc.imm)
            })
            .collect();
        let imm = Some(WcImm::Imm(imm));
        let expected = [
            (WcOpcode::Recv, len, imm),
            (WcOpcode::Recv, 0, imm),
            (WcOpcode::RecvRdmaWithImm, len, imm),
            (WcOpcode::RecvRdmaWithImm, 0, imm),
            (WcOpcode::Recv, 1, None),
        ];
        assert_eq!(seen, expected);
        assert_eq!(
            pair.b.memory.get(Arena::BASE + 0x8_0000, len as usize),
            data
        );
        assert_eq!(there(&pair, len as usize), data);
    }
}

#[test]
fn atomics_give_what_was_there() {
    let mut pair = Pair::new(Setup::default());
    pair.b.memory.put(Arena::BASE + THERE, &5u64.to_ne_bytes());
    let target = to_b(&pair);
    let result = |pair: &Pair, at| vec![pair.sge(Side::A, at, 8)];
    let add = SendOp::FetchAdd {
        remote: target,
        add: 37,
    };
    let swap = |compare| SendOp::CompareSwap {
        remote: target,
        compare,
        swap: 9,
    };
    for (id, op) in [add, swap(42), swap(42)].into_iter().enumerate() {
        let sges = result(&pair, 8 * id as u64);
        pair.send(Side::A, wr(id as u64, op, sges));
    }
    pair.until(|p| p.a.results.send.len() == 3);
    let word = |at| pair.a.memory.word(Arena::BASE + at);
    assert_eq!([word(0), word(8), word(16)], [5, 42, 9]);
    assert_eq!(pair.b.memory.word(Arena::BASE + THERE), 9);
    let opcodes: Vec<_> = pair
        .a
        .results
        .send
        .iter()
        .map(|(wc, _)| wc.opcode)
        .collect();
    assert_eq!(
        opcodes,
        [WcOpcode::FetchAdd, WcOpcode::CompSwap, WcOpcode::CompSwap]
    );
}

#[test]
fn a_send_with_invalidate_takes_a_window_back() {
    let mut pair = Pair::new(Setup::default());
    let window = pair.b.bound_window(0, 64, Access::REMOTE_WRITE);
    pair.recv(Side::B, 1, vec![]);
    let send = wr(1, SendOp::SendInvalidate(window), vec![]);
    pair.send(Side::A, send);
    pair.until(|p| !p.b.results.recv.is_empty());
    let imm = pair.b.results.recv[0].0.imm;
    assert_eq!(imm, Some(WcImm::Invalidated(window)));
    assert!(!pair.b.rights.may_invalidate(window, pair.b.accessor()));
    // The peer's next WRITE there finds nothing.
    let write = wr(
        2,
        SendOp::Write(remote(window, 0)),
        vec![pair.sge(Side::A, 0, 4)],
    );
    pair.send(Side::A, write);
    pair.run();
    assert_eq!(pair.b.qp.state(), QpState::Err);
}

#[test]
fn local_operations_wait_for_what_is_before_them() {
    let mut pair = Pair::new(Setup::default());
    let window = pair.a.bound_window(0, 64, Access::REMOTE_WRITE);
    let read = wr(
        1,
        SendOp::Read(to_b(&pair)),
        vec![pair.sge(Side::A, 0, 50_000)],
    );
    pair.send(Side::A, read);
    pair.send(Side::A, wr(2, SendOp::LocalInvalidate(window), vec![]));
    pair.send(
        Side::A,
        wr(3, SendOp::Write(to_b(&pair)), vec![pair.sge(Side::A, 0, 4)]),
    );
    let valid = |p: &Pair| p.a.rights.may_invalidate(window, p.a.accessor());
    pair.until(|p| !valid(p));
    assert!(!pair.a.results.send.is_empty());
    pair.until(|p| p.a.results.send.len() == 3);
}

#[test]
fn reads_keep_within_the_smaller_limit_and_a_fence_waits_for_them() {
    let b = Wishes {
        ird: 2,
        max_ird: 2,
        ..Setup::WISHES
    };
    let mut pair = Pair::new(Setup {
        b,
        ..Setup::default()
    });
    let data = bytes(&mut Rng::new(9), 6 * 4000);
    pair.b.memory.put(Arena::BASE + THERE, &data);
    for id in 0..6 {
        let from = remote(pair.key(Side::B), THERE + 4000 * id);
        let sges = vec![pair.sge(Side::A, 4000 * id, 4000)];
        pair.send(Side::A, wr(id, SendOp::Read(from), sges));
    }
    // It sends what the last READ brings.
    let mut fenced = wr(
        6,
        SendOp::Write(remote(pair.key(Side::B), 0)),
        vec![pair.sge(Side::A, 20_000, 4000)],
    );
    fenced.flags |= SendFlags::FENCE;
    pair.send(Side::A, fenced);
    pair.until(|p| p.a.results.send.len() == 7);
    pair.run();
    assert_eq!(pair.a.memory.get(Arena::BASE, data.len()), data);
    assert_eq!(pair.b.memory.get(Arena::BASE, 4000), data[20_000..]);
    assert_eq!(pair.a.qp.state(), QpState::Rts);
}

#[test]
fn work_completes_when_tcp_has_it_and_in_order() {
    let setup = Setup {
        buffer: 3000,
        ..Setup::default()
    };
    let mut pair = Pair::new(setup);
    let sges = |pair: &Pair, len| vec![pair.sge(Side::A, 0, len)];
    let write = SendOp::Write(to_b(&pair));
    let long = wr(1, write, sges(&pair, 100_000));
    pair.send(Side::A, long);
    pair.step(Time(u64::MAX));
    assert!(pair.a.results.send.is_empty(), "TCP has not all of it");
    pair.until(|p| p.a.results.send.len() == 1);
    // A WRITE behind a READ is handed over before the READ is answered, and completes after it.
    let read = wr(2, SendOp::Read(to_b(&pair)), sges(&pair, 40_000));
    let short = wr(3, write, sges(&pair, 1));
    pair.send(Side::A, read);
    pair.send(Side::A, short);
    pair.until(|p| p.a.results.send.len() == 3);
    let statuses = [1, 2, 3].map(|id| (id, WcStatus::Success));
    assert_eq!(pair.a.results.send_statuses(), statuses);
}

#[test]
fn a_short_payload_goes_in_one_piece_with_its_header() {
    // A longer one stays where it is, between its header and what ends the FPDU.
    for (len, expected) in [(1, 1), (512, 1), (513, 3)] {
        let wishes = Wishes {
            crc: false,
            ..Setup::WISHES
        };
        let mut pair = Pair::new(Setup {
            a: wishes,
            b: wishes,
            ..Setup::default()
        });
        let data = fill(&mut pair, len);
        let len = u32::try_from(len).unwrap();
        let write = SendOp::Write(to_b(&pair));
        let sges = vec![pair.sge(Side::A, 0, len)];
        pair.send(Side::A, wr(1, write, sges));
        let (now, mut pieces) = (pair.now, 0);
        let mut refuse = |offered: &[Piece<'_>]| {
            pieces = offered.len();
            0
        };
        pair.a.with(now, |qp, cx| qp.transmit(cx, &mut refuse));
        assert_eq!(pieces, expected, "{len}");
        pair.run();
        assert!(there(&pair, data.len()) == data);
    }
}

#[test]
fn a_shared_receive_queue_serves_with_its_own_domain() {
    let setup = Setup {
        shared_recv: true,
        ..Setup::default()
    };
    let mut pair = Pair::new(setup);
    let data = fill(&mut pair, 2000);
    let place = sge(pair.key(Side::B), THERE, 2000);
    let wr_of = RecvWr {
        wr_id: 4,
        sges: vec![place].into(),
    };
    let shared = SharedRecv { wr: wr_of, pd: PD };
    pair.b.results.shared_recv.push_back(shared);
    let send = work(&pair, 1, SendOp::Send, 2000);
    pair.send(Side::A, send);
    pair.until(|p| !p.b.results.recv.is_empty());
    assert_eq!(there(&pair, 2000), data);
}

#[test]
fn inline_data_needs_no_key() {
    let mut pair = Pair::new(Setup::default());
    let mut inline = wr(1, SendOp::Write(to_b(&pair)), vec![]);
    inline.flags |= SendFlags::INLINE;
    inline.payload = Payload::Inline(b"hello"[..].into());
    pair.send(Side::A, inline);
    pair.run();
    assert_eq!(there(&pair, 5), b"hello");
}

#[test]
fn towards_others_only_what_rfc_5040_has_is_accepted() {
    let alone = Wishes {
        mark: false,
        ..Setup::WISHES
    };
    let mut pair = Pair::new(Setup {
        b: alone,
        ..Setup::default()
    });
    let target = to_b(&pair);
    let word = vec![pair.sge(Side::A, 0, 8)];
    let flush = Flush {
        remote: target,
        length: 8,
        placement: Placement::GLOBAL,
        selectivity: Selectivity::Range,
    };
    for op in [
        SendOp::SendImm([0; 4]),
        SendOp::WriteImm(target, [0; 4]),
        SendOp::FetchAdd {
            remote: target,
            add: 1,
        },
        SendOp::CompareSwap {
            remote: target,
            compare: 0,
            swap: 0,
        },
        SendOp::AtomicWrite(target),
        SendOp::Flush(flush),
    ] {
        let sges = if matches!(op, SendOp::Flush(_)) {
            vec![]
        } else {
            word.clone()
        };
        let refused = pair.try_send(Side::A, wr(1, op, sges));
        assert!(matches!(refused, Err(PostError::Invalid(_))), "{op:?}");
    }
}

/// The responder speaks first, with or without what RFC 6581 adds.
#[test]
fn a_responder_waits_for_the_initiator_as_agreed() {
    let strange = Wishes {
        mark: false,
        ..Setup::WISHES
    };
    let ready = |rtr| Wishes { rtr, ..strange };
    let hold = ferroce_proto::iwarp::qp::FIRST_FPDU_HOLD;
    for (wishes, expected, waits) in [
        (Setup::WISHES, None, false),
        (strange, None, true),
        (ready(Rtr::WRITE), Some(Ready::Write), false),
        (ready(Rtr::READ), Some(Ready::Read), false),
    ] {
        let setup = Setup {
            a: wishes,
            b: wishes,
            ..Setup::default()
        };
        assert_eq!(setup.agree()[1].ready, expected);
        let mut pair = Pair::new(setup);
        let begun = pair.now;
        pair.recv(Side::A, 1, vec![]);
        pair.send(Side::B, wr(1, SendOp::Send, vec![]));
        if expected.is_some() {
            let now = pair.now;
            let mut heard = 0;
            let written = |_: &[Piece<'_>]| {
                heard += 1;
                0
            };
            let mut written = written;
            pair.b.with(now, |qp, cx| qp.transmit(cx, &mut written));
            assert_eq!(heard, 0, "the first message has not come");
        }
        pair.until(|p| !p.a.results.recv.is_empty());
        assert_eq!(pair.now.since(begun) >= hold, waits, "{wishes:?}");
        assert_eq!(
            pair.events[1].first() == Some(&StreamEvent::Heard),
            expected.is_some()
        );
        pair.run();
        assert_eq!(pair.a.qp.state(), QpState::Rts);
        // The READ that began takes no place among the program's for ever.
        let read = wr(2, SendOp::Read(to_b(&pair)), vec![pair.sge(Side::A, 0, 64)]);
        pair.send(Side::A, read);
        pair.until(|p| p.a.results.send.len() == 1);
    }
}

#[test]
fn segments_are_told_of_at_both_ends_if_somebody_watches() {
    for (watched, setup) in [false, true]
        .into_iter()
        .flat_map(|watched| framings().map(move |setup| (watched, Setup { watched, ..setup })))
    {
        let mut pair = Pair::new(setup);
        pair.recv(Side::B, 7, vec![pair.sge(Side::B, THERE, 64)]);
        let write = SendOp::Write(to_b(&pair));
        for wr in [work(&pair, 1, write, 3000), work(&pair, 2, SendOp::Send, 5)] {
            pair.send(Side::A, wr);
        }
        pair.run();
        let seen = |pair: &mut Pair, side| std::mem::take(&mut pair.node(side).results.segments);
        let (out, came) = (seen(&mut pair, Side::A), seen(&mut pair, Side::B));
        if !watched {
            assert!(out.is_empty() && came.is_empty());
            continue;
        }
        let is = |way| move |segment: &(SegmentWay, Header, usize)| segment.0 == way;
        assert!(out.iter().all(is(SegmentWay::Out)) && came.iter().all(is(SegmentWay::In)));
        let plain = |all: &[(SegmentWay, Header, usize)]| {
            all.iter().map(|s| (s.1, s.2)).collect::<Vec<_>>()
        };
        assert_eq!(plain(&out), plain(&came));
        let (last, writes) = out.split_last().unwrap();
        assert_eq!(writes.iter().map(|s| s.2).sum::<usize>(), 3000);
        assert_eq!((last.1.opcode(), last.2), (Opcode::Send, 5));
    }
}

/// siw's responder leaves what comes while it is busy with its reply unread.
#[test]
fn an_initiator_gives_a_responder_of_another_make_time_after_its_reply() {
    let hold = ferroce_proto::iwarp::qp::FIRST_FPDU_HOLD;
    for mark in [true, false] {
        let b = Wishes {
            mark,
            ..Setup::WISHES
        };
        let mut pair = Pair::new(Setup {
            b,
            ..Setup::default()
        });
        let begun = pair.now;
        pair.recv(Side::B, 1, vec![]);
        pair.send(Side::A, wr(2, SendOp::Send, vec![]));
        pair.until(|p| !p.b.results.recv.is_empty());
        assert_eq!(pair.now.since(begun) >= hold, !mark);
    }
}
