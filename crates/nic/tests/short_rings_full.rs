//! More messages than a short ring has slots, from a program that posts and does not poll.

mod common;

use common::peer::{self, ASKS, Peer, RECEIVED, connect_back};
use common::short_rings::run_without_thread;
use common::{Buffer, End, cap, wait_for};
use ferroce_proto::verbs::{QpCap, SendOp, Wc, WcStatus};

/// Messages that are posted before the receiver is waited for: fewer than the ring has slots.
const BATCH: u64 = 200;
/// Batches that are posted without a poll: together more messages than the ring has slots, and no
/// more bytes than the window has at first.
const BATCHES: u64 = 3;
/// Bytes of a message that is not answered.
const SILENT: usize = 16;

/// The peer: answers messages that ask, and tells of each batch of the others.
#[test]
#[ignore = "run by the test below"]
fn child_counts() {
    let end = End::new(cap());
    let buffer = Buffer::new(&end.pd, vec![0; 4096]);
    connect_back(&end, &buffer);
    let receive = || end.recv(RECEIVED, vec![buffer.sge(0, 64)]);
    for _ in peer::RECEIVES..BATCH {
        receive();
    }
    let mut silent = 0;
    loop {
        let mut came = None;
        end.cq.poll(1, &mut |_, wc| came = Some(*wc)).unwrap();
        let Some(wc) = came.filter(|wc| wc.wr_id == RECEIVED) else {
            continue;
        };
        assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
        receive();
        if wc.byte_len as usize == ASKS {
            end.send(0, SendOp::Send, vec![buffer.sge(0, ASKS)]);
            continue;
        }
        silent += 1;
        if silent % BATCH == 0 {
            println!("taken {silent}");
        }
    }
}

#[test]
#[ignore = "run by the test below"]
fn alone_posts_and_does_not_poll() {
    let room = QpCap {
        max_send_wr: 1024,
        ..cap()
    };
    let mut peer = Peer::start_with("child_counts", "-", room);
    peer.converse();
    for batch in 0..BATCHES {
        for number in batch * BATCH..(batch + 1) * BATCH {
            peer.send(number, SILENT);
        }
        peer.hear("taken");
    }
    let mut done = 0;
    wait_for("the completions of what was received", || {
        let each = &mut |_, wc: &Wc| {
            assert_eq!((wc.wr_id, wc.status), (done, WcStatus::Success), "{wc:?}");
            done += 1;
        };
        peer.end.cq.poll(16, each).unwrap();
        done == BATCHES * BATCH
    });
}

#[test]
fn what_was_received_completes_however_late_its_sender_polls() {
    run_without_thread("alone_posts_and_does_not_poll");
}
