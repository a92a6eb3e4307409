//! A peer that ends its queue pair right behind its last message by a short ring: the message
//! counts, and so does what it says of the other direction.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::peer::{self, ASKS, Peer, RECEIVED, connect_back};
use common::short_rings::run_without_thread;
use common::{Buffer, End, cap, next_completion};
use ferroce_nic::{Carrier, Qp};
use ferroce_proto::verbs::{AttrMask, QpAttr, QpState, SendOp, Sge, Wc, WcStatus};

/// The peer: answers each message, polling, and ends its queue pair with the answer to a shorter
/// one.
#[test]
#[ignore = "run by the test below"]
fn child_answers_and_ends() {
    let end = End::new(cap());
    let buffer = Buffer::new(&end.pd, vec![0; 4096]);
    connect_back(&end, &buffer);
    loop {
        let wc = next_completion(&end.cq);
        assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
        if wc.wr_id != RECEIVED {
            continue;
        }
        end.recv(RECEIVED, in_pieces(&buffer));
        end.send(1000, SendOp::Send, vec![buffer.sge(64, ASKS)]);
        if (wc.byte_len as usize) < ASKS {
            break;
        }
    }
    end.qp.destroy();
    println!("over");
    loop {
        std::thread::park();
    }
}

/// The two pieces of a receive: no message to it completes early.
fn in_pieces(buffer: &Buffer) -> Vec<Sge> {
    vec![buffer.sge(0, 4), buffer.sge(4, 60)]
}

/// Sends a message and takes its answer, with a receive of two pieces for a later one.
fn exchange_in_pieces(peer: &Peer, wr_id: u64) {
    peer.end.recv(RECEIVED, in_pieces(&peer.buffer));
    peer.send(wr_id, ASKS);
    for _ in 0..2 {
        assert_eq!(next_completion(&peer.end.cq).status, WcStatus::Success);
    }
}

/// The answer says that the message was taken, and lies in the short ring; that the peer's queue
/// pair has ended lies in the ring, which is read first.
#[test]
#[ignore = "run by the test below"]
fn with_an_end_behind_an_answer() {
    let mut peer = Peer::start("child_answers_and_ends", "-");
    peer.converse();
    let last = 1 << 32;
    for wr_id in 0..2 * peer::RECEIVES {
        exchange_in_pieces(&peer, wr_id);
    }
    // What the queue pair promised while its receives were of one piece is over.
    Buffer::new(&peer.end.pd, vec![0; 8]).deregister();
    assert_eq!(peer.end.qp.path_report().packets, Some(Carrier::ShortRing));
    peer.send(last, ASKS - 1);
    peer.hear("over");
    to_error(&peer.end.qp);
    let mut done = Vec::new();
    let each = &mut |_, wc: &Wc| {
        if wc.status == WcStatus::Success {
            done.push(wc.wr_id);
        }
    };
    while peer.end.cq.poll(16, each).unwrap() > 0 {}
    done.sort_unstable();
    assert_eq!(done, [last, RECEIVED], "the message, and its answer");
}

#[test]
fn an_answer_counts_before_the_end_of_the_queue_pair_that_gave_it() {
    run_without_thread("with_an_end_behind_an_answer");
}

fn to_error(qp: &Qp) {
    let attr = QpAttr {
        qp_state: QpState::Err,
        ..QpAttr::default()
    };
    qp.modify(&attr, AttrMask::STATE).unwrap();
}
