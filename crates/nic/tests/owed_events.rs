//! An event whose thread is about to ask for it may be queued before its descriptor says so: it
//! does so in a while, if the thread does something else. The peer is another process, which this
//! program starts itself again as.

mod common;

use std::time::{Duration, Instant};

use common::peer::{ASKS, ENDS, Peer, RECEIVED, connect_back};
use common::short_rings::{end_with_channel, run};
use common::{Buffer, DEADLINE, End, cap, next_completion, readable_within};
use ferroce_nic::CompChannel;
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

/// Takes so many completions, and waits for the event whenever there is none.
fn wait_for_completions(peer: &Peer, channel: &CompChannel, count: usize) {
    let mut taken = 0;
    loop {
        let each = &mut |_, wc: &Wc| {
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            taken += 1;
            if wc.wr_id == RECEIVED {
                peer.receive();
            }
        };
        while peer.end.cq.poll(1, each).unwrap() > 0 {}
        if taken >= count {
            return;
        }
        channel.take_count().unwrap();
        channel.pop();
        peer.end.cq.req_notify(false);
    }
}

#[test]
#[ignore = "run by the test below"]
fn with_a_program_that_turns_to_poll() {
    let (end, channel) = end_with_channel();
    let peer = Peer::start_for(end, "child_that_answers", "it");
    peer.end.cq.req_notify(false);
    let start = Instant::now();
    loop {
        for _ in 0..50 {
            peer.send(1, ASKS);
            wait_for_completions(&peer, &channel, 2);
        }
        channel.forget(0);
        peer.end.cq.req_notify(false);
        peer.send(1, ENDS);
        let is_told = readable_within(channel.fd(), Duration::ZERO);
        let is_done = peer.end.cq.poll(1, &mut |_, _| ()).unwrap() > 0;
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
