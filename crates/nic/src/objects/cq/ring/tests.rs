//! What the ring of a completion queue does, call by call.

use ferroce_proto::verbs::{WcFlags, WcOpcode, WcStatus};

use super::*;

/// A completion.
pub(in super::super) fn wc(wr_id: u64, status: WcStatus) -> Wc {
    Wc {
        wr_id,
        status,
        opcode: WcOpcode::Send,
        vendor_err: 0,
        byte_len: 0,
        imm: None,
        qp_num: Qpn::new(5),
        src_qp: Qpn::new(0),
        sl: 0,
        flags: WcFlags::empty(),
    }
}

fn push(ring: &mut Ring, wc: Wc, solicited: bool) -> PushOutcome {
    ring.push(wc, solicited, CompletionTimes::default(), || {
        unreachable!("nothing is moderated")
    })
}

/// Arms a queue without completions that it waits for.
fn arm(ring: &mut Ring, solicited_only: bool) {
    assert!(!ring.arm(solicited_only, true));
}

fn drain(ring: &mut Ring) {
    while pop(ring).is_some() {}
}

fn push_at(ring: &mut Ring, now: u64) -> PushOutcome {
    ring.push(
        wc(1, WcStatus::Success),
        false,
        CompletionTimes::default(),
        || Time(now),
    )
}

fn pop(ring: &mut Ring) -> Option<u64> {
    let wr_id = ring.front().map(|queued| queued.wc.wr_id);
    ring.drop_front();
    wr_id
}

#[test]
fn a_queue_that_ignores_overruns_loses_the_oldest() {
    let mut ring = Ring::new(2, true);
    for wr_id in 1..=3 {
        let pushed = push(&mut ring, wc(wr_id, WcStatus::Success), false);
        assert_eq!(pushed, PushOutcome::Quiet);
    }
    assert_eq!([pop(&mut ring), pop(&mut ring)], [Some(2), Some(3)]);
    assert!(!ring.overflowed());
}

#[test]
fn moderated_events_wait_for_the_count_or_the_period() {
    let mut ring = Ring::new(16, false);
    assert!(!ring.moderate(Moderation::new(3, 10)));
    assert_eq!(push_at(&mut ring, 0), PushOutcome::Quiet, "not armed");
    drain(&mut ring);
    arm(&mut ring, false);
    assert_eq!(push_at(&mut ring, 100), PushOutcome::NotifyAt(Time(10_100)));
    assert_eq!(push_at(&mut ring, 200), PushOutcome::Quiet);
    assert_eq!(ring.on_period(Time(10_099)), Err(Some(Time(10_100))));
    assert_eq!(push_at(&mut ring, 300), PushOutcome::Notify, "the third");
    assert_eq!(ring.on_period(Time(10_100)), Err(None), "it has gone");
    drain(&mut ring);
    arm(&mut ring, false);
    assert_eq!(
        push_at(&mut ring, 20_000),
        PushOutcome::NotifyAt(Time(30_000))
    );
    assert_eq!(ring.on_period(Time(30_000)), Ok(()));
    assert_eq!(push_at(&mut ring, 40_000), PushOutcome::Quiet, "one-shot");
}

#[test]
fn a_change_of_moderation_lets_go_what_waits() {
    let mut ring = Ring::new(16, false);
    ring.moderate(Moderation::new(100, 1000));
    arm(&mut ring, false);
    assert_eq!(
        push_at(&mut ring, 0),
        PushOutcome::NotifyAt(Time(1_000_000))
    );
    assert!(ring.moderate(Moderation::default()));
    drain(&mut ring);
    arm(&mut ring, false);
    assert_eq!(push_at(&mut ring, 0), PushOutcome::Notify);
}

#[test]
fn holds_exactly_its_capacity_then_dies() {
    let mut ring = Ring::new(2, false);
    assert_eq!(
        push(&mut ring, wc(1, WcStatus::Success), false),
        PushOutcome::Quiet
    );
    assert_eq!(
        push(&mut ring, wc(2, WcStatus::Success), false),
        PushOutcome::Quiet
    );
    assert_eq!(
        push(&mut ring, wc(3, WcStatus::Success), false),
        PushOutcome::Overflowed
    );
    assert_eq!(pop(&mut ring), Some(1));
    assert_eq!(
        push(&mut ring, wc(4, WcStatus::Success), false),
        PushOutcome::Dead
    );
    assert_eq!(pop(&mut ring), Some(2));
    assert_eq!(pop(&mut ring), None);
    assert!(ring.overflowed());
}

#[test]
fn arming_is_one_shot() {
    let mut ring = Ring::new(8, false);
    arm(&mut ring, false);
    let pushed = push(&mut ring, wc(2, WcStatus::Success), false);
    assert_eq!(pushed, PushOutcome::Notify);
    let pushed = push(&mut ring, wc(3, WcStatus::Success), false);
    assert_eq!(pushed, PushOutcome::Quiet);
}

#[test]
fn arming_a_queue_that_holds_a_completion_is_one_event_at_once() {
    let mut ring = Ring::new(8, false);
    push(&mut ring, wc(1, WcStatus::Success), false);
    assert!(ring.arm(false, true));
    let pushed = push(&mut ring, wc(2, WcStatus::Success), false);
    assert_eq!(pushed, PushOutcome::Quiet, "the event has gone");
    drain(&mut ring);
    arm(&mut ring, false);
    let pushed = push(&mut ring, wc(3, WcStatus::Success), false);
    assert_eq!(pushed, PushOutcome::Notify, "polled entries raise nothing");
}

#[test]
fn an_event_that_repeats_another_is_taken_back_by_the_poll_that_ends_it() {
    let mut ring = Ring::new(8, false);
    arm(&mut ring, false);
    let pushed = push(&mut ring, wc(1, WcStatus::Success), false);
    assert_eq!(pushed, PushOutcome::Notify);
    assert!(ring.arm(false, true), "not polled");
    assert_eq!(ring.end_of_repeat(), None);
    drain(&mut ring);
    assert_eq!(ring.end_of_repeat(), Some(Kind::Any));
    ring.repeat_ended(Kind::Any, true);
    let pushed = push(&mut ring, wc(2, WcStatus::Success), false);
    assert_eq!(pushed, PushOutcome::Notify, "still armed");
    assert!(ring.arm(false, true));
    drain(&mut ring);
    ring.repeat_ended(Kind::Any, false);
    let pushed = push(&mut ring, wc(3, WcStatus::Success), false);
    assert_eq!(pushed, PushOutcome::Quiet, "the program has had the event");
}

#[test]
fn an_event_is_not_repeated_where_queues_share_a_channel() {
    let mut ring = Ring::new(8, false);
    push(&mut ring, wc(1, WcStatus::Success), false);
    assert!(ring.arm(false, false));
    assert!(!ring.arm(false, false), "told");
    let pushed = push(&mut ring, wc(2, WcStatus::Success), false);
    assert_eq!(pushed, PushOutcome::Notify);
    push(&mut ring, wc(3, WcStatus::Success), false);
    assert!(ring.arm(false, false), "no event has told of completion 3");
}

#[test]
fn a_repeated_event_stands_for_what_comes_later_too() {
    let mut ring = Ring::new(8, false);
    push(&mut ring, wc(1, WcStatus::Success), false);
    assert!(ring.arm(false, true) && ring.arm(false, true));
    let pushed = push(&mut ring, wc(2, WcStatus::Success), false);
    assert_eq!(pushed, PushOutcome::Quiet);
    drain(&mut ring);
    assert_eq!(ring.end_of_repeat(), None, "it tells of completion 2");
}

#[test]
fn an_event_for_what_no_event_has_told_of_is_not_taken_back() {
    let mut ring = Ring::new(8, false);
    push(&mut ring, wc(1, WcStatus::Success), false);
    assert!(ring.arm(false, true));
    drain(&mut ring);
    assert_eq!(ring.end_of_repeat(), None);
}

#[test]
fn arming_for_solicited_looks_for_solicited_or_failed_completions() {
    let mut ring = Ring::new(8, false);
    push(&mut ring, wc(1, WcStatus::Success), false);
    arm(&mut ring, true);
    let pushed = push(&mut ring, wc(2, WcStatus::Success), true);
    assert_eq!(pushed, PushOutcome::Notify);
    assert!(ring.arm(true, true), "not polled");
    drain(&mut ring);
    ring.disarm();
    push(&mut ring, wc(3, WcStatus::WrFlushErr), false);
    assert!(ring.arm(true, true));
}

#[test]
fn arming_again_does_not_wait_for_moderation() {
    let mut ring = Ring::new(8, false);
    ring.moderate(Moderation::new(100, 1000));
    arm(&mut ring, false);
    assert_eq!(
        push_at(&mut ring, 0),
        PushOutcome::NotifyAt(Time(1_000_000))
    );
    assert!(ring.arm(false, true));
    assert_eq!(ring.due(), None);
}

#[test]
fn solicited_arming_waits_for_solicited_or_error() {
    let mut ring = Ring::new(8, false);
    arm(&mut ring, true);
    let pushed = push(&mut ring, wc(1, WcStatus::Success), false);
    assert_eq!(pushed, PushOutcome::Quiet);
    let pushed = push(&mut ring, wc(2, WcStatus::Success), true);
    assert_eq!(pushed, PushOutcome::Notify);
    drain(&mut ring);
    arm(&mut ring, true);
    let pushed = push(&mut ring, wc(3, WcStatus::WrFlushErr), false);
    assert_eq!(pushed, PushOutcome::Notify);
    drain(&mut ring);
    arm(&mut ring, false);
    arm(&mut ring, true);
    let pushed = push(&mut ring, wc(4, WcStatus::Success), false);
    assert_eq!(pushed, PushOutcome::Notify);
}

#[test]
fn forgets_one_queue_pair_and_keeps_the_others_in_order() {
    let mut ring = Ring::new(8, false);
    let other = |wr_id| Wc {
        qp_num: Qpn::new(6),
        ..wc(wr_id, WcStatus::Success)
    };
    push(&mut ring, other(1), false);
    push(&mut ring, wc(2, WcStatus::WrFlushErr), false);
    push(&mut ring, other(3), false);
    ring.forget(Qpn::new(5));
    assert_eq!(pop(&mut ring), Some(1));
    assert_eq!(pop(&mut ring), Some(3));
    assert_eq!(pop(&mut ring), None);
}

#[test]
fn shrinks_only_to_what_is_queued() {
    let mut ring = Ring::new(8, false);
    push(&mut ring, wc(1, WcStatus::Success), false);
    push(&mut ring, wc(2, WcStatus::Success), false);
    assert_eq!(ring.resize(1), Err(2));
    assert_eq!(ring.resize(2), Ok(()));
    assert_eq!(ring.capacity(), 2);
}
