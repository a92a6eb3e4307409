//! How much may be on the way to one receiver: a window, and questions that open it again.

use std::collections::VecDeque;
use std::time::Duration;

use ferroce_proto::time::Time;

/// Room that is used before the receiver has said how much it has: three eighths of a socket buffer
/// of the usual size.
const FIRST_WINDOW: u64 = 80 << 10;
/// A receiver with less room than this is taken for one with so much.
const LEAST_WINDOW: u64 = 16 << 10;
/// A question goes out whenever this part of the window was sent since the last one.
const QUESTIONS_PER_WINDOW: u64 = 4;
/// While the window is closed, a question that may be lost is asked again after this time.
const AGAIN: Duration = Duration::from_millis(5);
/// Questions of a closed window that a receiver may leave without an answer, before it is taken for
/// silent. (Not a time: a time would run on while this process has no processor and the answers lie
/// unread.)
const PATIENCE: u32 = 20;
/// How often a peer that does not answer is asked.
const SELDOM: Duration = Duration::from_millis(500);
/// Unanswered questions that are kept.
const KEPT: usize = 16;

/// Quota of a flow: bytes that may be sent now, or a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quota {
    /// So much, as the receiver's kernel counts.
    Room(u64),
    /// Nothing before an answer comes, or this time.
    Wait(Time),
}

/// State of the receiver's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlowReceiver {
    /// The peer has not been asked, or has not answered yet.
    Unknown,
    /// The receiver answers questions about its room.
    Answers,
    /// The peer did not answer in time: nothing bounds what is sent to it.
    Silent,
}

/// The state of one flow.
#[derive(Debug)]
pub(super) struct FlowState {
    receiver: FlowReceiver,
    window: u64,
    /// All that was sent, and how much of that was taken out.
    sent: u64,
    taken: u64,
    /// What was sent before the last question, and when it was asked.
    asked: u64,
    asked_at: Option<Time>,
    /// Questions without an answer: the mark, and what was sent before.
    open: VecDeque<(u64, u64)>,
    /// Questions that were asked since the window closed; `None` while it is open.
    asked_closed: Option<u32>,
}

impl FlowState {
    pub(super) fn new() -> Self {
        Self {
            receiver: FlowReceiver::Unknown,
            window: FIRST_WINDOW,
            sent: 0,
            taken: 0,
            asked: 0,
            asked_at: None,
            open: VecDeque::new(),
            asked_closed: None,
        }
    }

    /// Returns how much may be sent now.
    pub(super) fn quota(&mut self, now: Time) -> Quota {
        if self.receiver == FlowReceiver::Silent {
            return Quota::Room(u64::MAX);
        }
        let used = self.sent - self.taken;
        if used < self.window {
            self.asked_closed = None;
            return Quota::Room(self.window - used);
        }
        let again = self.again(now);
        if *self.asked_closed.get_or_insert(0) >= PATIENCE && now >= again {
            self.give_up();
            return Quota::Room(u64::MAX);
        }
        Quota::Wait(again.max(now + AGAIN / 2))
    }

    /// Something was sent. Returns whether a question is due behind it.
    pub(super) fn on_sent(&mut self, cost: u64, now: Time) -> bool {
        self.sent += cost;
        if self.receiver == FlowReceiver::Silent {
            self.taken = self.sent;
            return self.asked_at.is_none_or(|at| now >= at + SELDOM);
        }
        self.sent - self.asked >= self.window / QUESTIONS_PER_WINDOW
    }

    /// Whether it is time to repeat a question.
    pub(super) fn wants_again(&self, now: Time) -> bool {
        self.asked_closed.is_some_and(|asked| asked < PATIENCE) && now >= self.again(now)
    }

    /// Time from which on a question may be repeated; `now` if none was asked.
    fn again(&self, now: Time) -> Time {
        self.asked_at.map_or(now, |at| at + AGAIN)
    }

    /// A question goes out.
    pub(super) fn on_asked(&mut self, mark: u64, now: Time) {
        if self.open.len() == KEPT {
            self.open.pop_front();
        }
        self.open.push_back((mark, self.sent));
        self.asked_closed = self.asked_closed.map(|asked| asked + 1);
        (self.asked, self.asked_at) = (self.sent, Some(now));
    }

    /// An answer came. Returns whether it was to a question of this flow.
    pub(super) fn on_answer(&mut self, mark: u64, room: u32) -> bool {
        let Some(at) = self.open.iter().position(|(m, _)| *m == mark) else {
            return false;
        };
        // Questions before it were lost, or their answers were.
        let answered = self.open.drain(..=at).next_back();
        let taken = answered.map_or(0, |(_, sent)| sent);
        self.taken = self.taken.max(taken);
        self.receiver = FlowReceiver::Answers;
        self.window = u64::from(room).max(LEAST_WINDOW);
        self.asked_closed = None;
        true
    }

    /// Nobody answers: what is on the way counts as taken, or lost.
    fn give_up(&mut self) {
        self.receiver = FlowReceiver::Silent;
        self.taken = self.sent;
        self.asked_closed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Time {
        Time(n * 1_000_000)
    }

    fn room(flow: &mut FlowState, now: Time) -> Option<u64> {
        match flow.quota(now) {
            Quota::Room(room) => Some(room),
            Quota::Wait(_) => None,
        }
    }

    /// Sends packets of 1 KiB until the window closes; the questions' marks.
    fn fill(flow: &mut FlowState, now: Time, mark: &mut u64) -> Vec<u64> {
        let mut marks = Vec::new();
        while room(flow, now).is_some() {
            if flow.on_sent(1024, now) {
                flow.on_asked(*mark, now);
                marks.push(*mark);
                *mark += 1;
            }
        }
        marks
    }

    #[test]
    fn a_window_is_filled_and_answers_open_it() {
        let (mut flow, mut mark) = (FlowState::new(), 0);
        let marks = fill(&mut flow, ms(0), &mut mark);
        assert_eq!((flow.sent, marks.len()), (FIRST_WINDOW, 4));
        assert!(flow.on_answer(marks[0], 160 << 10));
        assert_eq!(
            room(&mut flow, ms(1)),
            Some((160 << 10) - FIRST_WINDOW * 3 / 4)
        );
        assert!(flow.on_answer(marks[3], 160 << 10));
        assert_eq!(room(&mut flow, ms(1)), Some(160 << 10));
        assert!(!flow.on_answer(marks[3], 0), "answered before");
        assert!(!flow.on_answer(marks[2], 0), "a later one was answered");
        assert!(!flow.on_answer(77, 0));
        for _ in 0..1000 {
            let marks = fill(&mut flow, ms(2), &mut mark);
            assert!(flow.sent - flow.taken <= 160 << 10);
            assert!(flow.on_answer(*marks.last().unwrap(), 160 << 10));
        }
    }

    #[test]
    fn lost_questions_are_repeated_while_nothing_may_be_sent() {
        let (mut flow, mut mark) = (FlowState::new(), 0);
        assert!(!flow.wants_again(ms(0)));
        fill(&mut flow, ms(0), &mut mark);
        assert_eq!(flow.quota(ms(1)), Quota::Wait(ms(5)));
        assert!(!flow.wants_again(ms(4)) && flow.wants_again(ms(5)));
        flow.on_asked(500, ms(5));
        assert_eq!(flow.quota(ms(5)), Quota::Wait(ms(10)));
        assert!(flow.on_answer(500, 1), "the others were lost");
        assert_eq!(room(&mut flow, ms(6)), Some(LEAST_WINDOW));
    }

    #[test]
    fn a_receiver_that_never_answers_bounds_nothing_until_it_does() {
        let (mut flow, mut mark) = (FlowState::new(), 0);
        fill(&mut flow, ms(7), &mut mark);
        // As at the end of a pause: a question if it is time for one, then a look at the room.
        for again in 1..=20 {
            let now = ms(7 + 5 * again);
            assert!(flow.wants_again(now));
            flow.on_asked(500 + again, now);
            assert_eq!(room(&mut flow, now), None);
        }
        assert_eq!(room(&mut flow, ms(111)), None, "an answer may come");
        assert!(!flow.wants_again(ms(112)));
        assert_eq!(room(&mut flow, ms(112)), Some(u64::MAX));
        assert!(!flow.on_sent(1 << 30, ms(113)), "asked not long ago");
        assert!(flow.on_sent(1 << 30, ms(607)), "but now and then");
        assert!(flow.on_answer(520, 100 << 10), "late");
        assert_eq!(room(&mut flow, ms(608)), Some(100 << 10));
    }

    #[test]
    fn a_sender_without_a_processor_does_not_give_its_receiver_up() {
        let (mut flow, mut mark) = (FlowState::new(), 0);
        let marks = fill(&mut flow, ms(0), &mut mark);
        assert_eq!(room(&mut flow, ms(10_000)), None, "the answer lies unread");
        assert!(flow.on_answer(marks[3], 100 << 10));
        assert_eq!(room(&mut flow, ms(10_000)), Some(100 << 10));
    }
}
