//! Whether what was taken from a short ring is said at once or with the program's answer.
//!
//! Other than an acknowledgement that waits on a ring or on the wire (`delayed_ack`) it waits for
//! no clock, which would cost more than it saves: only until the program polls again.

/// Answers in a row that make a conversation.
const HABIT: u8 = 4;

/// What is known of the program's answers, and what waits for the next one.
#[derive(Debug, Default)]
pub(super) struct RingDelayedAck {
    /// A message came, and no answer since.
    asked: bool,
    /// Messages in a row that were answered before the next one came, and before the program polled
    /// again; at most [`HABIT`].
    answers: u8,
    /// Up to where it has read, which is still to be said.
    read: Option<u32>,
}

impl RingDelayedAck {
    /// Messages were taken up to a position, for a program that polls or by the device thread.
    /// Returns whether that is to be said now.
    #[inline]
    pub(super) fn on_taken(&mut self, read: u32, is_polled: bool) -> bool {
        if std::mem::replace(&mut self.asked, true) {
            self.answers = 0;
        }
        let holds = is_polled && self.is_conversation();
        self.read = holds.then_some(read);
        !holds
    }

    /// Whether answers are the rule.
    #[inline]
    pub(super) fn is_conversation(&self) -> bool {
        self.answers == HABIT
    }

    /// The program sends something by its short ring, which says what it returns.
    #[inline]
    pub(super) fn on_answer(&mut self) -> Option<u32> {
        if std::mem::take(&mut self.asked) {
            self.answers = (self.answers + 1).min(HABIT);
        }
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
            self.answers = 0;
        }
        read
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
    fn a_stream_is_no_conversation() {
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
}
