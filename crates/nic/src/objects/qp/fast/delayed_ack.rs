//! Delayed acknowledgements: where a program answers each message of its peer with one of its own,
//! what is to be acknowledged goes with the answer.
//!
//! While the device thread works for a program that looks at its memory only, each thing that goes
//! to a peer in the same position costs that one a wake-up. On a short ring an acknowledgement by
//! itself takes as long as a message. (TCP calls it ping-pong mode, RFC 1122 4.2.3.2 the delay.)

use std::time::Duration;

use ferroce_proto::ids::Msn;
use ferroce_proto::time::Time;

/// Answers in a row that make a conversation.
const HABIT: u8 = 4;
/// How long an acknowledgement waits at most on a ring or on the wire, and how soon an answer must
/// come there to be one.
const SOON: Duration = Duration::from_micros(100);

/// Messages in a row that the program has answered. `T` is what is known of the last message.
#[derive(Debug)]
struct Answers<T> {
    /// The last message that came, if there was no answer since.
    asked: Option<T>,
    /// At most [`HABIT`].
    in_a_row: u8,
}

impl<T> Default for Answers<T> {
    fn default() -> Self {
        Self {
            asked: None,
            in_a_row: 0,
        }
    }
}

impl<T> Answers<T> {
    /// A message came. If the one before it has no answer, this is no conversation.
    #[inline]
    fn on_message(&mut self, message: T) {
        if self.asked.replace(message).is_some() {
            self.in_a_row = 0;
        }
    }

    /// The program sends something, which is an answer if it `is_soon` after the message.
    #[inline]
    fn on_sent(&mut self, is_soon: impl FnOnce(T) -> bool) {
        if let Some(message) = self.asked.take() {
            self.in_a_row = if is_soon(message) {
                (self.in_a_row + 1).min(HABIT)
            } else {
                0
            };
        }
    }

    /// An acknowledgement has waited for an answer that did not come.
    fn end(&mut self) {
        self.in_a_row = 0;
    }

    /// Whether answers are the rule.
    #[inline]
    fn are_the_rule(&self) -> bool {
        self.in_a_row == HABIT
    }
}

/// What is known of the program's answers on a short ring, and what waits for the next one.
///
/// It waits for no clock, which would cost more than it saves: only until the program polls again.
#[derive(Debug, Default)]
pub(super) struct RingDelayedAck {
    answers: Answers<()>,
    /// Up to where it has read, which is still to be said.
    read: Option<u32>,
}

impl RingDelayedAck {
    /// Messages were taken up to a position, for a program that polls or by the device thread.
    /// Returns whether that is to be said now.
    #[inline]
    pub(super) fn on_taken(&mut self, read: u32, is_polled: bool) -> bool {
        self.answers.on_message(());
        let holds = is_polled && self.is_conversation();
        self.read = holds.then_some(read);
        !holds
    }

    /// Whether answers are the rule.
    #[inline]
    pub(super) fn is_conversation(&self) -> bool {
        self.answers.are_the_rule()
    }

    /// The program sends something by its short ring, which says what it returns.
    #[inline]
    pub(super) fn on_answer(&mut self) -> Option<u32> {
        self.answers.on_sent(|()| true);
        self.read.take()
    }

    /// What was to be said with an answer still is.
    pub(super) fn put_back(&mut self, read: u32) {
        self.read = Some(read);
    }

    /// There is no answer so far: what is to be said instead.
    pub(super) fn end(&mut self) -> Option<u32> {
        let read = self.read.take();
        if read.is_some() {
            self.answers.end();
        }
        read
    }
}

/// What is known of the program's answers on rings and on the wire, and until when an
/// acknowledgement waits for the next one.
#[derive(Debug, Default)]
pub(in crate::objects::qp) struct PacketDelayedAck {
    answers: Answers<Time>,
    /// The last message that is known of.
    msn: Msn,
    /// Until when an acknowledgement waits.
    holds: Option<Time>,
}

impl PacketDelayedAck {
    /// A message came, and an acknowledgement is all that there is to say. Whether that is to wait,
    /// until [`due`](Self::due).
    pub(in crate::objects::qp) fn holds_ack(&mut self, msn: Msn, now: Time) -> bool {
        if self.on_message(msn, now) {
            self.holds = self.answers.are_the_rule().then_some(now + SOON);
        }
        self.holds.is_some()
    }

    /// A message came. Returns whether it was not known of: those that come together are one.
    fn on_message(&mut self, msn: Msn, now: Time) -> bool {
        let is_new = std::mem::replace(&mut self.msn, msn) != msn;
        if is_new {
            self.answers.on_message(now);
        }
        is_new
    }

    /// The program has posted something while the acknowledgement of the message `owed` had no turn
    /// yet, if there is such a message: it saw the bytes at once, which is soon. So is an answer
    /// for which an acknowledgement waits. Otherwise the time says it, which it costs something to
    /// look at. Returns whether an acknowledgement goes with what was posted.
    pub(in crate::objects::qp) fn on_post(
        &mut self,
        owed: Option<Msn>,
        now: impl FnOnce() -> Time,
    ) -> bool {
        let is_new = owed.is_some_and(|msn| self.on_message(msn, Time(0)));
        let goes = self.holds.take().is_some() || is_new && self.answers.are_the_rule();
        self.answers
            .on_sent(|at| goes || is_new || now().since(at) < SOON);
        goes
    }

    /// Whether nothing is to be learnt from what the program posts now.
    pub(in crate::objects::qp) fn is_idle(&self) -> bool {
        self.answers.asked.is_none() && self.holds.is_none()
    }

    /// When an acknowledgement has waited long enough.
    pub(in crate::objects::qp) fn due(&self) -> Option<Time> {
        self.holds
    }

    /// Whether an acknowledgement has waited long enough; it does so no longer then.
    pub(in crate::objects::qp) fn ends(&mut self, now: Time) -> bool {
        let ends = self.holds.is_some_and(|until| until <= now);
        if ends {
            self.holds = None;
            self.answers.end();
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_answers_are_the_rule_do_they_say_it() {
        let mut delayed_ack = RingDelayedAck::default();
        for at in 0..u32::from(HABIT) {
            assert!(delayed_ack.on_taken(at, true), "not known yet");
            assert_eq!(delayed_ack.on_answer(), None);
        }
        assert!(!delayed_ack.on_taken(10, true));
        assert_eq!(delayed_ack.on_answer(), Some(10));
        assert_eq!(delayed_ack.on_answer(), None, "it is said");
        assert!(
            delayed_ack.on_taken(10, false),
            "nobody polls who would answer"
        );
        delayed_ack.on_answer();
        assert!(!delayed_ack.on_taken(11, true));
        assert_eq!(delayed_ack.end(), Some(11), "no answer");
        assert_eq!(delayed_ack.end(), None);
        assert!(delayed_ack.on_taken(12, true), "not the rule any more");
    }

    #[test]
    fn a_stream_by_a_short_ring_is_no_conversation() {
        let mut delayed_ack = RingDelayedAck::default();
        for at in 0..=u32::from(HABIT) {
            delayed_ack.on_taken(at, true);
            delayed_ack.on_answer();
        }
        assert!(!delayed_ack.on_taken(20, true));
        assert!(
            delayed_ack.on_taken(21, true),
            "the last one was not answered"
        );
        assert_eq!(delayed_ack.end(), None, "a later word says it all");
    }

    const STEP: Duration = Duration::from_micros(10);

    impl PacketDelayedAck {
        /// A conversation at `now`.
        fn conversation(now: Time) -> Self {
            let mut delayed_ack = Self::default();
            for _ in 0..HABIT {
                assert!(!delayed_ack.holds_next(now));
                delayed_ack.on_post(None, || now + STEP);
            }
            delayed_ack
        }

        /// [`holds_ack`](Self::holds_ack) for the next message.
        fn holds_next(&mut self, now: Time) -> bool {
            self.holds_ack(self.msn.next(), now)
        }
    }

    #[test]
    fn the_acknowledgement_waits_where_answers_come_soon() {
        let now = Time(1_000_000);
        let mut delayed_ack = PacketDelayedAck::conversation(now);
        assert!(delayed_ack.holds_next(now));
        assert_eq!(delayed_ack.due(), Some(now + SOON));
        assert!(
            delayed_ack.holds_ack(delayed_ack.msn, now + STEP),
            "no other message"
        );
        assert_eq!(delayed_ack.due(), Some(now + SOON));
        delayed_ack.on_post(None, || unreachable!("what waits has not waited for long"));
        assert_eq!(delayed_ack.due(), None);
        assert!(delayed_ack.holds_next(now));
        assert!(!delayed_ack.ends(now + STEP) && delayed_ack.ends(now + SOON));
        assert!(!delayed_ack.holds_next(now), "no answer came");
    }

    #[test]
    fn an_answer_may_come_before_the_acknowledgement_has_its_turn() {
        let mut delayed_ack = PacketDelayedAck::default();
        for round in 0..2 * HABIT {
            let msn = Some(delayed_ack.msn.next());
            let goes = delayed_ack.on_post(msn, || unreachable!("it is soon"));
            assert_eq!(goes, round >= HABIT);
        }
        assert!(delayed_ack.holds_next(Time(1_000_000)));
    }

    #[test]
    fn a_stream_and_late_answers_are_no_conversation() {
        let now = Time(1_000_000);
        let mut delayed_ack = PacketDelayedAck::conversation(now);
        assert!(delayed_ack.holds_next(now));
        assert!(
            !delayed_ack.holds_next(now),
            "a second message before an answer"
        );
        let mut delayed_ack = PacketDelayedAck::conversation(now);
        assert!(delayed_ack.holds_next(now));
        assert!(delayed_ack.ends(now + SOON));
        delayed_ack.on_post(None, || now + SOON);
        assert!(!delayed_ack.holds_next(now));
        let mut delayed_ack = PacketDelayedAck::default();
        for _ in 0..=HABIT {
            assert!(!delayed_ack.holds_next(now));
            delayed_ack.on_post(None, || now + SOON);
        }
    }
}
