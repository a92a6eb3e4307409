//! An acknowledgement that waits for the program's answer is said when there is no answer; and a
//! side that sleeps is woken by a message whose sender polls or turns away. The peer is another
//! process, which this program starts itself again as.

mod common;

use common::peer::{ASKS, ENDS, Peer, RECEIVED, connect_back};
use common::short_rings::{
    Seeded, end_with_channel, run, run_without_thread, sleep_for, wait_for_event,
};
use common::{Buffer, next_completion, rounds};
use ferroce_nic::Carrier;
use ferroce_os::fd::set_nonblocking;
use ferroce_proto::ids::Key;
use ferroce_proto::verbs::{RemoteAddr, SendOp, WcStatus};

/// Answers each message that asks for it; then does as it was told.
#[test]
#[ignore = "run by the tests below"]
fn child_that_answers() {
    let (end, channel) = end_with_channel();
    let buffer = Buffer::new(&end.pd, vec![0; 4096]);
    let word = connect_back(&end, &buffer);
    if word.starts_with("poll after") {
        if word == "poll after an event that does not block" {
            set_nonblocking(channel.fd()).unwrap();
        }
        end.cq.req_notify(false);
        while channel.take_count().is_err() {
            std::thread::yield_now();
        }
        channel.pop().expect("an event");
    }
    loop {
        let mut came = None;
        end.cq.poll(1, &mut |_, wc| came = Some(*wc)).unwrap();
        match came {
            Some(wc)
                if wc.wr_id == RECEIVED && (wc.imm.is_some() || wc.byte_len as usize == ENDS) =>
            {
                break;
            }
            Some(wc) if wc.wr_id == RECEIVED => {
                end.recv(RECEIVED, vec![buffer.sge(0, 64)]);
                end.send(0, SendOp::Send, vec![buffer.sge(64, ASKS)]);
            }
            _ => {}
        }
    }
    match word.as_str() {
        "poll" | "poll after an event" | "poll after an event that does not block" => loop {
            end.cq.poll(1, &mut |_, _| {}).unwrap();
        },
        // Nothing comes, so it ends there.
        "sleep" => sleep_for(&end, &channel, 1),
        // The channel does not block, so the program is woken for the device's work as well.
        "sleep in poll" => {
            set_nonblocking(channel.fd()).unwrap();
            sleep_for(&end, &channel, 1);
        }
        "close" => end.qp.destroy(),
        "exit" => std::process::exit(0),
        "abort" => std::process::abort(),
        "rest" => {}
        other => panic!("told to {other}"),
    }
    loop {
        std::thread::park();
    }
}

/// A message that is not answered, to a peer that has answered all before it and then does this
/// instead: the status of its completion.
fn unanswered(instead: &str) -> (Peer, WcStatus) {
    unanswered_by(instead, |peer| peer.send(1000, ENDS))
}

fn unanswered_by(instead: &str, send: impl Fn(&Peer)) -> (Peer, WcStatus) {
    let peer = Peer::start("child_that_answers", instead);
    peer.converse();
    send(&peer);
    let wc = next_completion(&peer.end.cq);
    assert_eq!(wc.wr_id, 1000, "{instead}: {wc:?}");
    (peer, wc.status)
}

#[test]
#[ignore = "run by the tests below"]
fn with_no_answer() {
    let alone = std::env::var_os("FERROCE_THREAD").is_some();
    // What is not done by the program itself needs its device thread.
    let all: &[&str] = if alone {
        &["poll", "close"]
    } else {
        &["poll", "sleep", "rest", "close", "exit"]
    };
    for instead in all {
        for round in 0..rounds(5) {
            let (_, status) = unanswered(instead);
            assert_eq!(status, WcStatus::Success, "{instead}, round {round}");
        }
    }
}

#[test]
fn a_message_without_an_answer_is_acknowledged_whatever_comes_instead() {
    run("with_no_answer", &[]);
    run_without_thread("with_no_answer");
}

/// Other than a SEND it never completes early.
#[test]
#[ignore = "run by the test below"]
fn with_no_answer_to_a_write() {
    let nowhere = RemoteAddr {
        addr: 0,
        rkey: Key(0),
    };
    let op = SendOp::WriteImm(nowhere, [0; 4]);
    for instead in [
        "poll",
        "poll after an event",
        "poll after an event that does not block",
        "sleep",
        "sleep in poll",
        "rest",
        "close",
        "exit",
    ] {
        for round in 0..rounds(5) {
            let (_, status) = unanswered_by(instead, |peer| peer.end.send(1000, op, vec![]));
            assert_eq!(status, WcStatus::Success, "{instead}, round {round}");
        }
    }
}

#[test]
fn a_write_without_an_answer_is_acknowledged_whatever_comes_instead() {
    run("with_no_answer_to_a_write", &[]);
}

#[test]
#[ignore = "run by the test below"]
fn with_a_crash() {
    for round in 0..rounds(5) {
        let (mut peer, status) = unanswered("abort");
        // It was taken; whether that was said is chance.
        let failed = status == WcStatus::RetryExcErr;
        assert!(failed || status == WcStatus::Success, "{round}: {status:?}");
        // Until it has ended its device thread may take more.
        peer.child.wait().unwrap();
        peer.send(1001, ASKS);
        let next = loop {
            let wc = next_completion(&peer.end.cq);
            if wc.wr_id != RECEIVED {
                break wc;
            }
        };
        let expected = match failed {
            true => WcStatus::WrFlushErr,
            false => WcStatus::RetryExcErr,
        };
        assert_eq!((next.wr_id, next.status), (1001, expected), "{round}");
    }
}

#[test]
fn a_peer_that_crashes_before_it_says_what_it_took_hangs_nobody() {
    run("with_a_crash", &[]);
    run_without_thread("with_a_crash");
}

/// Goes to sleep for each message at another moment. Answers those that ask for it; of the others
/// it says so.
#[test]
#[ignore = "run by the test below"]
fn child_that_sleeps() {
    let (end, channel) = end_with_channel();
    let buffer = Buffer::new(&end.pd, vec![0; 4096]);
    let mut seeded = Seeded(connect_back(&end, &buffer).parse().unwrap());
    loop {
        let (mut came, mut patience) = (None, seeded.below(3000));
        while came.is_none() {
            end.cq.poll(1, &mut |_, wc| came = Some(*wc)).unwrap();
            if came.is_none() && patience == 0 {
                end.cq.req_notify(false);
                end.cq.poll(1, &mut |_, wc| came = Some(*wc)).unwrap();
                if came.is_none() {
                    wait_for_event(&channel);
                }
            }
            patience = patience.saturating_sub(1);
        }
        match came {
            Some(wc) if wc.wr_id != RECEIVED => {}
            Some(wc) if wc.status != WcStatus::Success => return,
            Some(wc) => {
                end.recv(RECEIVED, vec![buffer.sge(0, 64)]);
                match wc.byte_len as usize {
                    ENDS => println!("got"),
                    _ => end.send(0, SendOp::Send, vec![buffer.sge(64, ASKS)]),
                }
            }
            None => unreachable!("it was waited for"),
        }
    }
}

#[test]
#[ignore = "run by the test below"]
fn with_a_sleeper() {
    let mut peer = Peer::start("child_that_sleeps", "5");
    let (mut seeded, mut by_short_ring) = (Seeded(11), 0);
    for wr_id in 0..rounds(2000) as u64 {
        // For the device thread to nap, and for the peer to be anywhere between its polls and its
        // sleep.
        for _ in 0..seeded.below(3000) {
            assert_eq!(peer.end.cq.poll(1, &mut |_, _| {}).unwrap(), 0);
        }
        if seeded.below(4) > 0 {
            peer.send(wr_id, ASKS);
            peer.take_answer(wr_id);
        } else {
            // Turns away, until the peer has it.
            peer.send(wr_id, ENDS);
            peer.hear("got");
            assert_eq!(peer.end.done(wr_id).wr_id, wr_id);
        }
        by_short_ring += usize::from(peer.end.qp.path_report().packets == Some(Carrier::ShortRing));
    }
    println!("{by_short_ring} by short ring");
}

#[test]
fn a_sleeping_peer_is_woken_by_each_message() {
    run("with_a_sleeper", &[]);
}
