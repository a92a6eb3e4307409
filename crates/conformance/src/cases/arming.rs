//! Completion queues that hold a completion when they are armed.

use ferroce_proto::verbs::{QpState, SendFlags, SendOp, WcStatus};

use crate::bench::{Bench, Poll, Spec};
use crate::case::Case;
use crate::end::End;
use crate::wait::wait_for;

pub(super) const CASES: &[Case] = &[
    Case::new("cq.arm.not-empty", &["cq.arm"], not_empty),
    Case::new("cq.arm.not-polled", &["cq.arm"], not_polled),
    Case::new("cq.arm.in-part", &["cq.arm"], polled_in_part),
    Case::new("cq.arm.solicited", &["cq.arm"], solicited),
    Case::new("cq.arm.failed", &["cq.arm"], failed),
    Case::new(
        "cq.arm.repeated",
        &["cq.arm", "cq.arm-repeated"],
        an_event_for_each,
    ),
    Case::new(
        "cq.arm.moderated",
        &["cq.arm", "cq.arm-moderated"],
        moderated,
    ),
];

/// Longer than moderation ever delays, in completions and in microseconds.
const LONGEST: (u16, u16) = (u16::MAX, u16::MAX);

/// Plays with each way of polling.
fn each_way(bench: &Bench, play: fn(&End, &End)) {
    for poll in [Poll::Usual, Poll::Other] {
        let spec = Spec {
            poll,
            ..Spec::default()
        };
        let (a, b) = bench.pair_of(Spec::default(), spec);
        play(&a, &b);
    }
}

/// Sends a message that the other end has taken when this returns.
fn message(a: &End, b: &End, wr_id: u64, flags: SendFlags) {
    b.recv(wr_id, vec![]);
    a.send_flagged(wr_id, SendOp::Send, vec![], SendFlags::SIGNALED | flags);
    a.done(wr_id);
    a.waits_for_peer();
}

/// Has completions queued that no poll has returned.
fn queue(b: &End, count: u64) {
    for wr_id in 0..count {
        b.recv(wr_id, vec![]);
    }
    b.to(QpState::Err);
}

/// One event comes, and only one.
fn one_event(b: &End) {
    wait_for("completion event", || {
        b.side().take_cq_event().then_some(())
    });
    no_event(b);
}

fn no_event(b: &End) {
    assert!(!b.side().take_cq_event(), "an event");
}

/// UCX and NIXL, asleep.
fn not_empty(bench: &Bench) {
    each_way(bench, |a, b| {
        message(a, b, 0, SendFlags::empty());
        no_event(b);
        b.side().arm(false);
        one_event(b);
        b.done(0);
        b.side().arm(false);
        no_event(b);
        message(a, b, 1, SendFlags::empty());
        one_event(b);
        b.done(1);
        message(a, b, 2, SendFlags::empty());
        no_event(b);
        b.done(2);
    });
}

/// An event that a program takes without polling after it is no reason to sleep.
fn not_polled(bench: &Bench) {
    each_way(bench, |_, b| {
        b.side().arm(false);
        queue(b, 1);
        for _ in 0..3 {
            one_event(b);
            b.side().arm(false);
        }
        one_event(b);
        b.completes(0, WcStatus::WrFlushErr);
        b.side().arm(false);
        no_event(b);
    });
}

/// A program with room for fewer completions than are queued.
fn polled_in_part(bench: &Bench) {
    each_way(bench, |_, b| {
        b.side().arm(false);
        queue(b, 4);
        for wr_id in 0..4 {
            one_event(b);
            b.side().arm(false);
            b.completes(wr_id, WcStatus::WrFlushErr);
        }
        no_event(b);
    });
}

fn solicited(bench: &Bench) {
    each_way(bench, |a, b| {
        message(a, b, 0, SendFlags::empty());
        b.side().arm(true);
        no_event(b);
        message(a, b, 1, SendFlags::SOLICITED);
        one_event(b);
        b.done(0);
        b.side().arm(true);
        one_event(b);
        b.done(1);
        b.side().arm(true);
        no_event(b);
        // Asking for any completion wins.
        b.side().arm(false);
        b.side().arm(true);
        message(a, b, 2, SendFlags::empty());
        one_event(b);
        b.done(2);
    });
}

/// A failed completion counts as solicited.
fn failed(bench: &Bench) {
    each_way(bench, |_, b| {
        queue(b, 1);
        b.side().arm(true);
        one_event(b);
        b.completes(0, WcStatus::WrFlushErr);
        b.side().arm(true);
        no_event(b);
    });
}

/// perftest: an event, the next arming, and then one completion. The event at once is taken back by
/// the poll, since perftest takes each event for a completion.
fn an_event_for_each(bench: &Bench) {
    each_way(bench, |a, b| {
        b.side().arm(false);
        for wr_id in 0..5 {
            message(a, b, wr_id, SendFlags::empty());
            one_event(b);
            b.side().arm(false);
            b.done(wr_id);
            no_event(b);
        }
    });
}

fn moderated(bench: &Bench) {
    each_way(bench, |_, b| {
        b.side().moderate(LONGEST.0, LONGEST.1);
        queue(b, 2);
        b.side().arm(false);
        assert!(b.side().take_cq_event(), "an event at once");
        for wr_id in 0..2 {
            b.completes(wr_id, WcStatus::WrFlushErr);
        }
        b.side().arm(false);
        no_event(b);
    });
}
