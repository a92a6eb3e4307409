//! How an iWARP stream ends: what is still sent, what is flushed, what becomes of the connection.

use ferroce_proto::ids::Key;
use ferroce_proto::iwarp::ddp::{Header, Tagged, Untagged};
use ferroce_proto::iwarp::mpa::{Ticket, Wishes, WithinHost};
use ferroce_proto::iwarp::rdmap::{Opcode, ReadRequest};
use ferroce_proto::iwarp::testkit::{Lone, Pair, Setup};
use ferroce_proto::iwarp::{Ended, StreamEvent, Teardown, Violation};
use ferroce_proto::testkit::{Arena, Side, remote, sge, wr};
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{QpState, SendOp, SendWr, WcStatus};

/// Where WRITEs land.
const THERE: u64 = 0x4_0000;

/// A WRITE of A's first bytes.
fn work(pair: &Pair, wr_id: u64, len: u32) -> SendWr {
    let to = remote(pair.key(Side::B), THERE);
    wr(wr_id, SendOp::Write(to), vec![pair.sge(Side::A, 0, len)])
}

/// One end alone, whose payload is copied for its CRCs or stays where it is.
fn lone(copies: bool) -> Lone {
    let wishes = Wishes {
        crc: copies,
        ..Setup::WISHES
    };
    Lone::new(Setup {
        a: wishes,
        b: wishes,
        ..Setup::default()
    })
}

fn post(lone: &mut Lone, wr_id: u64, len: u32) {
    let (now, key) = (lone.now, lone.key);
    let write = SendOp::Write(remote(Key(5), 0));
    let wr = wr(wr_id, write, vec![sge(key, 0, len)]);
    let posted = lone.node.with(now, |qp, cx| qp.post_send(cx, wr));
    assert_eq!(posted, Ok(()));
}

/// A SEND for which there is no receive.
fn break_a_rule(lone: &mut Lone) {
    let header = Header::Untagged(Untagged {
        last: true,
        opcode: Opcode::Send,
        invalidate: Key(0),
        queue: 0,
        msn: 1,
        mo: 0,
    });
    lone.says(&header.emit());
    assert_eq!(lone.node.qp.state(), QpState::Err);
}

#[test]
fn a_graceful_close_sends_what_is_ready_and_flushes_the_rest() {
    let mut pair = Pair::new(Setup::default());
    pair.recv(Side::B, 1, vec![]);
    pair.recv(Side::B, 2, vec![]);
    pair.send(Side::A, wr(1, SendOp::Send, vec![]));
    pair.until(|p| p.a.results.send.len() == 1);
    let now = pair.now;
    pair.a.with(now, |qp, cx| qp.disconnect(cx));
    pair.run();
    let ended = [Ended::Disconnected, Ended::PeerClosed].map(StreamEvent::Ended);
    assert_eq!(pair.events[0].last(), Some(&ended[0]));
    assert_eq!(pair.events[1], [StreamEvent::Heard, ended[1]]);
    let statuses = [(1, WcStatus::Success), (2, WcStatus::WrFlushErr)];
    assert_eq!(pair.b.results.recv_statuses(), statuses);
    assert_eq!(pair.a.qp.teardown(), Teardown::Close);
    // What is posted later is flushed at once.
    pair.send(Side::A, wr(9, SendOp::Send, vec![]));
    assert_eq!(pair.a.results.send_statuses()[1], (9, WcStatus::WrFlushErr));
}

/// siw fails a SEND that has arrived if the FIN comes while it is still at it.
#[test]
fn another_make_gets_time_to_notice_what_it_has_sent_before_the_connection_is_closed() {
    let hold = ferroce_proto::iwarp::qp::CLOSE_HOLD;
    for (mark, peer_closes) in [(true, false), (false, false), (false, true)] {
        let wishes = Wishes {
            mark,
            ..Setup::WISHES
        };
        let mut pair = Pair::new(Setup {
            a: wishes,
            b: wishes,
            ..Setup::default()
        });
        pair.recv(Side::A, 1, vec![]);
        pair.send(Side::B, wr(1, SendOp::Send, vec![]));
        pair.until(|p| p.a.results.recv.len() == 1);
        let heard = pair.now;
        pair.a.with(heard, |qp, cx| qp.disconnect(cx));
        pair.step(heard);
        // The program is told at once.
        let ended = StreamEvent::Ended(Ended::Disconnected);
        assert_eq!(pair.events[0].last(), Some(&ended));
        if mark {
            assert_eq!(pair.a.qp.teardown(), Teardown::Close);
            continue;
        }
        assert_eq!(pair.a.qp.teardown(), Teardown::Drain);
        assert_eq!(pair.a.qp.deadline(), Some(heard + hold));
        if peer_closes {
            pair.b.with(heard, |qp, cx| qp.disconnect(cx));
        }
        pair.until(|p| p.a.qp.teardown() == Teardown::Close);
        assert_eq!(pair.now.since(heard) >= hold, !peer_closes);
        assert_eq!(pair.a.qp.deadline(), None);
    }
}

#[test]
fn another_make_gets_time_to_read_the_reply_before_the_connection_is_closed() {
    let wishes = Wishes {
        mark: false,
        ..Setup::WISHES
    };
    let mut pair = Pair::new(Setup {
        a: wishes,
        b: wishes,
        ..Setup::default()
    });
    let agreed = pair.now;
    let until = pair.b.qp.open_until().expect("a peer of another make");
    assert!(until > agreed);
    pair.b.with(agreed, |qp, cx| qp.disconnect(cx));
    pair.step(agreed);
    assert_eq!(pair.b.qp.teardown(), Teardown::Drain);
    pair.until(|p| p.b.qp.teardown() == Teardown::Close);
    assert!(pair.now >= until);
}

#[test]
fn with_a_ticket_nobody_sends_before_the_initiator_has_found_its_way() {
    let ticket = Ticket {
        qpn: Setup::qpn(Side::B),
        nonce: 7,
    };
    let wishes = |within_host| Wishes {
        within_host,
        ..Setup::WISHES
    };
    for is_within_host in [false, true] {
        let mut pair = Pair::new(Setup {
            a: wishes(WithinHost::Welcome),
            b: wishes(WithinHost::With(ticket)),
            ..Setup::default()
        });
        for side in [Side::A, Side::B] {
            pair.recv(side, 1, vec![]);
            pair.send(side, wr(1, SendOp::Send, vec![]));
        }
        pair.run();
        assert!(pair.a.results.send_statuses().is_empty());
        assert!(pair.b.results.send_statuses().is_empty());
        if is_within_host {
            pair.a.qp.go_within_host();
            pair.b.qp.go_within_host();
        } else {
            pair.a.qp.go_over_tcp();
        }
        pair.run();
        for end in [&pair.a, &pair.b] {
            assert_eq!(end.results.send_statuses(), [(1, WcStatus::Success)]);
            assert_eq!(end.results.recv_statuses(), [(1, WcStatus::Success)]);
        }
    }
}

#[test]
fn an_abort_ends_the_stream_behind_the_fpdu_that_has_begun() {
    // With CRCs the bytes of an FPDU are in the sender's buffer, without them in the program's.
    for (crc, teardown, peers) in [
        (true, Teardown::Close, Ended::PeerClosed),
        (false, Teardown::Reset, Ended::PeerReset),
    ] {
        let wishes = Wishes {
            crc,
            ..Setup::WISHES
        };
        let (a, b, buffer) = (wishes, wishes, 3000);
        let mut pair = Pair::new(Setup {
            a,
            b,
            buffer,
            ..Setup::default()
        });
        let long = work(&pair, 1, 200_000);
        pair.send(Side::A, long);
        pair.step(Time(u64::MAX));
        let now = pair.now;
        pair.a.with(now, |qp, cx| qp.abort(cx));
        pair.run();
        assert_eq!(pair.a.qp.teardown(), teardown);
        assert_eq!(
            pair.events[0].last(),
            Some(&StreamEvent::Ended(Ended::Aborted))
        );
        assert_eq!(pair.events[1].last(), Some(&StreamEvent::Ended(peers)));
        assert_eq!(pair.a.results.send_statuses(), [(1, WcStatus::WrFlushErr)]);
    }
}

#[test]
fn a_local_key_that_opens_nothing_fails_its_work_request_and_the_rest_is_flushed() {
    let mut pair = Pair::new(Setup::default());
    let to = remote(pair.key(Side::B), THERE);
    let good = work(&pair, 1, 4);
    let bad = wr(2, SendOp::Write(to), vec![sge(Key(0xbad), 0, 4)]);
    let later = work(&pair, 3, 4);
    pair.send(Side::A, good);
    pair.until(|p| p.a.results.send.len() == 1);
    pair.send(Side::A, bad);
    pair.send(Side::A, later);
    pair.run();
    let statuses = [
        WcStatus::Success,
        WcStatus::LocProtErr,
        WcStatus::WrFlushErr,
    ];
    let seen: Vec<_> = pair.a.results.send_statuses().iter().map(|s| s.1).collect();
    assert_eq!(seen, statuses);
    let fault = StreamEvent::Ended(Ended::LocalFault);
    assert_eq!(pair.events[0].last(), Some(&fault));
    let catastrophic = Violation::LocalCatastrophic.reason();
    let told = StreamEvent::Ended(Ended::Terminated(catastrophic));
    assert_eq!(pair.events[1].last(), Some(&told));
}

#[test]
fn a_graceful_close_does_not_begin_what_is_not_packed() {
    let setup = Setup {
        buffer: 3000,
        segment: 65_536,
        ..Setup::default()
    };
    let mut pair = Pair::new(setup);
    // More than waits in this end for TCP.
    let long = work(&pair, 1, 500_000);
    pair.send(Side::A, long);
    pair.step(Time(u64::MAX));
    let now = pair.now;
    pair.a.with(now, |qp, cx| qp.disconnect(cx));
    assert_eq!(pair.a.qp.teardown(), Teardown::Keep);
    pair.run();
    assert_eq!(pair.a.results.send_statuses(), [(1, WcStatus::WrFlushErr)]);
    let ended = StreamEvent::Ended(Ended::Disconnected);
    assert_eq!(pair.events[0].last(), Some(&ended));
    assert!(pair.written[0].len() < 400_000);
}

#[test]
fn a_terminate_follows_the_fpdu_that_has_begun_and_nothing_else() {
    let mut lone = lone(true);
    for wr_id in 1..=3 {
        post(&mut lone, wr_id, 1000);
    }
    // One FPDU has 1020 bytes.
    assert_eq!(lone.heard_of(1500).len(), 1);
    break_a_rule(&mut lone);
    assert_eq!(lone.node.qp.teardown(), Teardown::Drain);
    let opcodes: Vec<_> = lone.heard().iter().map(|ulpdu| ulpdu[1] & 0x0f).collect();
    assert_eq!(opcodes, [Opcode::Write as u8, Opcode::Terminate as u8]);
    assert_eq!(lone.node.qp.teardown(), Teardown::Close);
    let flushed = [1, 2, 3].map(|id| {
        let status = if id == 1 {
            WcStatus::Success
        } else {
            WcStatus::WrFlushErr
        };
        (id, status)
    });
    assert_eq!(lone.node.results.send_statuses(), flushed);
}

#[test]
fn payload_that_is_the_programs_again_cannot_be_sent_any_more() {
    let mut lone = lone(false);
    post(&mut lone, 1, 1000);
    assert_eq!(lone.heard_of(500).len(), 0);
    break_a_rule(&mut lone);
    assert_eq!(lone.node.qp.teardown(), Teardown::Reset);
    assert_eq!(lone.heard(), Vec::<Vec<u8>>::new());
}

#[test]
fn memory_that_is_deregistered_before_tcp_takes_it_is_not_read() {
    // TCP has nothing of the FPDU, or its header.
    for (taken, teardown) in [(0, Teardown::Drain), (16, Teardown::Reset)] {
        let mut lone = lone(false);
        post(&mut lone, 1, 1000);
        assert_eq!(lone.heard_of(taken).len(), 0);
        let key = lone.key;
        lone.node.rights.remove(key);
        let heard = lone.heard();
        if teardown == Teardown::Drain {
            assert_eq!(heard.len(), 1);
            assert_eq!(heard[0][1] & 0x0f, Opcode::Terminate as u8);
        } else {
            assert_eq!(heard.len(), 0);
            assert_eq!(lone.node.qp.teardown(), teardown);
        }
        let failed = [(1, WcStatus::LocProtErr)];
        assert_eq!(lone.node.results.send_statuses(), failed);
    }
}

#[test]
fn memory_that_is_deregistered_while_it_is_read_ends_the_stream() {
    for copies in [false, true] {
        let mut lone = lone(copies);
        let request = ReadRequest {
            sink_stag: Key(1),
            sink_to: 0,
            length: 500_000,
            source_stag: lone.key,
            source_to: Arena::BASE,
        };
        let header = Header::Untagged(Untagged {
            last: true,
            opcode: Opcode::ReadRequest,
            invalidate: Key(0),
            queue: 1,
            msn: 1,
            mo: 0,
        });
        lone.says(&[&header.emit()[..], &request.emit()].concat());
        assert_eq!(lone.heard_of(1448).len(), 1);
        let key = lone.key;
        lone.node.rights.remove(key);
        // What was copied is sent, and then nothing of that memory.
        let (reason, _) = lone.terminate().expect("a TERMINATE");
        assert_eq!(reason, Violation::SourceStag.reason());
    }
}

#[test]
fn a_queue_pair_that_allows_peers_nothing_refuses_what_keys_would_allow() {
    let write = |key| {
        let header = Header::Tagged(Tagged {
            last: true,
            opcode: Opcode::Write,
            stag: key,
            to: Arena::BASE,
        });
        [&header.emit()[..], b"data"].concat()
    };
    let read = |key| {
        let request = ReadRequest {
            sink_stag: Key(1),
            sink_to: 0,
            length: 4,
            source_stag: key,
            source_to: Arena::BASE,
        };
        let header = Header::Untagged(Untagged {
            last: true,
            opcode: Opcode::ReadRequest,
            invalidate: Key(0),
            queue: 1,
            msn: 1,
            mo: 0,
        });
        [&header.emit()[..], &request.emit()].concat()
    };
    let requests: [&dyn Fn(Key) -> Vec<u8>; 2] = [&write, &read];
    for request in requests {
        let mut lone = lone(true);
        lone.node
            .qp
            .set_access(ferroce_proto::mr::Access::LOCAL_WRITE);
        let ulpdu = request(lone.key);
        lone.says(&ulpdu);
        let reason = lone.terminate().map(|terminate| terminate.0);
        assert_eq!(reason, Some(Violation::AccessRights.reason()));
        assert_eq!(lone.node.memory.get(Arena::BASE, 4), [0; 4]);
    }
}
