//! An event whose thread is about to ask for it may be queued before its descriptor says so: it
//! does so in a while, if the thread does something else. The peer is another process, which this
//! program starts itself again as.

mod common;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::peer::{ASKS, ENDS, Peer, RECEIVED, connect_back};
use common::short_rings::{end_with_channel, run};
use common::{Buffer, DEADLINE, End, cap, next_completion, readable_within};
use ferroce_nic::CompChannel;
use ferroce_os::fd::set_nonblocking;
use ferroce_proto::verbs::{SendOp, Wc, WcStatus};

/// Answers what asks.
#[test]
#[ignore = "run by the test below"]
fn child_that_answers() {
    let end = End::new(cap());
    let buffer = Buffer::new(&end.pd, vec![0; 4096]);
    connect_back(&end, &buffer);
    loop {
        let wc = next_completion(&end.cq);
        if wc.wr_id == RECEIVED {
            end.recv(RECEIVED, vec![buffer.sge(0, 64)]);
            if wc.byte_len as usize == ASKS {
                end.send(0, SendOp::Send, vec![buffer.sge(64, ASKS)]);
            }
        }
    }
}

/// A peer that answers, and the channel of this end, whose queue is armed.
fn conversation() -> (Peer, Arc<CompChannel>) {
    let (end, channel) = end_with_channel();
    let peer = Peer::start_for(end, "child_that_answers", "it");
    peer.end.cq.req_notify(false);
    (peer, channel)
}

/// Sends a message that the peer answers, `times` times, and then one that it does not answer.
/// Returns whether the last one is done at once, and whether the descriptor says so then.
fn talk(peer: &Peer, channel: &CompChannel, times: usize) -> [bool; 2] {
    for _ in 0..times {
        peer.send(1, ASKS);
        wait_for_completions(peer, channel, 2);
    }
    channel.forget(0);
    peer.end.cq.req_notify(false);
    peer.send(1, ENDS);
    let is_told = readable_within(channel.fd(), Duration::ZERO);
    let is_done = peer.end.cq.poll(1, &mut |_, _| ()).expect("no overflow") > 0;
    [is_done, is_told]
}

/// Takes `count` completions, and waits for the event whenever there is none: in blocking mode in
/// the call, else before it.
fn wait_for_completions(peer: &Peer, channel: &CompChannel, count: usize) {
    let mut taken = 0;
    loop {
        let mut received = 0;
        let each = &mut |_, wc: &Wc| {
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            taken += 1;
            received += usize::from(wc.wr_id == RECEIVED);
        };
        while peer.end.cq.poll(1, each).expect("no overflow") > 0 {}
        for _ in 0..received {
            peer.receive();
        }
        if taken >= count {
            return;
        }
        while let Err(e) = channel.take_count() {
            assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}");
            assert!(readable_within(channel.fd(), DEADLINE), "a lost wake-up");
        }
        channel.pop();
        peer.end.cq.req_notify(false);
    }
}

#[test]
#[ignore = "run by the test below"]
fn with_a_program_that_turns_to_poll() {
    let (peer, channel) = conversation();
    let start = Instant::now();
    loop {
        let [is_done, is_told] = talk(&peer, &channel, 50);
        assert!(readable_within(channel.fd(), DEADLINE), "a lost wake-up");
        if is_done && !is_told {
            return;
        }
        wait_for_completions(&peer, &channel, usize::from(!is_done));
        assert!(start.elapsed() < 5 * DEADLINE, "no event was owed");
    }
}

#[test]
fn what_is_owed_is_on_the_descriptor_in_a_while() {
    run("with_a_program_that_turns_to_poll", &[]);
}

#[test]
#[ignore = "run by the test below"]
fn with_a_program_that_polls_first() {
    let (peer, channel) = conversation();
    set_nonblocking(channel.fd()).unwrap();
    let (mut done, start) = (0, Instant::now());
    while done < 20 {
        let [is_done, is_told] = talk(&peer, &channel, 10);
        assert!(is_told || !is_done, "it would wait for the end of a nap");
        done += usize::from(is_done);
        wait_for_completions(&peer, &channel, usize::from(!is_done));
        assert!(start.elapsed() < 5 * DEADLINE, "none is done at once");
    }
}

#[test]
fn nothing_is_owed_to_a_program_that_waits_in_a_poll_of_its_own() {
    run("with_a_program_that_polls_first", &[]);
}
