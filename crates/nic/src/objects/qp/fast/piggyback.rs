//! Whether a program answers each message of its peer with one of its own: then an acknowledgement
//! goes with the answer.
//!
//! While the device thread works for a program that looks at its memory only, each thing that goes
//! to a peer in the same position costs that one a wake-up. So an acknowledgement by itself waits
//! for the program's answer, where one has always come soon. (TCP calls it ping-pong mode, RFC 1122
//! 4.2.3.2 the delay.)

use std::time::Duration;

use ferroce_proto::time::Time;

/// How long an acknowledgement waits at most, and how soon an answer must come to be one.
const SOON: Duration = Duration::from_micros(100);
/// Answers in a row that make a conversation.
const HABIT: u8 = 4;

/// What is known of the program's answers.
#[derive(Debug, Default)]
pub(in crate::objects::qp) struct PacketDelayedAck {
    /// When the last message came that was not answered yet.
    asked: Option<Time>,
    /// Messages in a row that were answered soon, at most [`HABIT`].
    answers: u8,
    /// Until when an acknowledgement waits.
    holds: Option<Time>,
}

impl PacketDelayedAck {
    /// A message came, and an acknowledgement is all that there is to say. Whether that is to wait,
    /// until [`due`](Self::due).
    pub(in crate::objects::qp) fn holds_ack(&mut self, now: Time) -> bool {
        if self.asked.replace(now).is_some() {
            // The last one has no answer: no conversation.
            self.answers = 0;
        }
        self.holds = (self.answers == HABIT).then_some(now + SOON);
        self.holds.is_some()
    }

    /// The program has posted something. An acknowledgement that still waits says by itself that
    /// this is soon; if there is none, the time does, which it costs something to look at. Returns
    /// whether one waits.
    pub(in crate::objects::qp) fn on_post(&mut self, now: impl FnOnce() -> Time) -> bool {
        let waits = self.holds.take().is_some();
        if let Some(at) = self.asked.take() {
            self.answers = if waits || now().since(at) < SOON {
                (self.answers + 1).min(HABIT)
            } else {
                0
            };
        }
        waits
    }

    /// Whether nothing is to be learnt from what the program posts now.
    pub(in crate::objects::qp) fn is_idle(&self) -> bool {
        self.asked.is_none() && self.holds.is_none()
    }

    /// When an acknowledgement has waited long enough.
    pub(in crate::objects::qp) fn due(&self) -> Option<Time> {
        self.holds
    }

    /// Whether an acknowledgement has waited long enough; it does so no longer then.
    pub(in crate::objects::qp) fn ends(&mut self, now: Time) -> bool {
        let ends = self.holds.is_some_and(|until| until <= now);
        if ends {
            (self.holds, self.answers) = (None, 0);
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(10);

    /// A conversation at `now`.
    fn conversation(now: Time) -> PacketDelayedAck {
        let mut delayed_ack = PacketDelayedAck::default();
        for _ in 0..HABIT {
            assert!(!delayed_ack.holds_ack(now));
            delayed_ack.on_post(|| now + STEP);
        }
        delayed_ack
    }

    #[test]
    fn the_acknowledgement_waits_where_answers_come_soon() {
        let now = Time(1_000_000);
        let mut delayed_ack = conversation(now);
        assert!(delayed_ack.holds_ack(now));
        assert_eq!(delayed_ack.due(), Some(now + SOON));
        delayed_ack.on_post(|| unreachable!("what waits has not waited for long"));
        assert_eq!(delayed_ack.due(), None);
        assert!(delayed_ack.holds_ack(now));
        assert!(!delayed_ack.ends(now + STEP) && delayed_ack.ends(now + SOON));
        assert!(!delayed_ack.holds_ack(now), "no answer came");
    }

    #[test]
    fn a_stream_and_late_answers_are_no_conversation() {
        let now = Time(1_000_000);
        let mut delayed_ack = conversation(now);
        assert!(delayed_ack.holds_ack(now));
        assert!(
            !delayed_ack.holds_ack(now),
            "a second message before an answer"
        );
        let mut delayed_ack = conversation(now);
        assert!(delayed_ack.holds_ack(now));
        assert!(delayed_ack.ends(now + SOON));
        delayed_ack.on_post(|| now + SOON);
        assert!(!delayed_ack.holds_ack(now));
        let mut delayed_ack = PacketDelayedAck::default();
        for _ in 0..=HABIT {
            assert!(!delayed_ack.holds_ack(now));
            delayed_ack.on_post(|| now + SOON);
        }
    }
}
