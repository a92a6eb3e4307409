//! How much each end may send: pure counting.
//!
//! A stream's end has a number of buffers for data. Each end counts the data messages whose bytes
//! its program has read, and tells the count with everything it sends. The other end sends data
//! only while less than all those buffers are taken. When nothing else is to be sent and half of
//! the buffers have been read since the count was last told, it goes out in a message of its own.
//!
//! Such messages need no permission. Each tells of at least half of the buffers more than the one
//! before, and the peer's data messages are bounded by the last count that it has seen: so at most
//! two of them are on their way at a time, and as many receives are kept for them ([`SPARE`]),
//! besides one for the end of the stream. No message ever finds no receive.

/// Receives besides those for data: two for counts, one for the end.
pub(super) const SPARE: u32 = 3;

/// Counts of one end. They run through 32 bits and begin again.
#[derive(Debug)]
pub(super) struct Credits {
    /// Data buffers of this end.
    own: u32,
    /// Data messages whose bytes were read here.
    read: u32,
    /// Value of `read` that the peer was told.
    told: u32,
    /// Data buffers of the peer.
    peer: u32,
    /// Data messages sent.
    sent: u32,
    /// Those of them that the peer's program has read.
    heard: u32,
}

impl Credits {
    pub(super) fn new(own: u16, peer: u16) -> Self {
        Self {
            own: own.into(),
            read: 0,
            told: 0,
            peer: peer.into(),
            sent: 0,
            heard: 0,
        }
    }

    /// Whether the peer has a buffer for one more data message.
    pub(super) fn may_send(&self) -> bool {
        self.sent.wrapping_sub(self.heard) < self.peer
    }

    /// A data message is sent.
    pub(super) fn send(&mut self) {
        debug_assert!(self.may_send(), "the peer has no buffer");
        self.sent = self.sent.wrapping_add(1);
    }

    /// A data message was read.
    pub(super) fn read(&mut self) {
        self.read = self.read.wrapping_add(1);
    }

    /// Whether the peer should be told even if nothing else is to be sent.
    pub(super) fn should_tell(&self) -> bool {
        self.read.wrapping_sub(self.told) >= self.own.div_ceil(2)
    }

    /// The count to tell, which is told now.
    pub(super) fn tell(&mut self) -> u32 {
        self.told = self.read;
        self.read
    }

    /// The peer tells its count. False if it cannot be.
    #[must_use]
    pub(super) fn hear(&mut self, count: u32) -> bool {
        let possible = count.wrapping_sub(self.heard) <= self.sent.wrapping_sub(self.heard);
        if possible {
            self.heard = count;
        }
        possible
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::{Credits, SPARE};

    /// An end: its counts, the receives that are posted, data that its program has not read, and
    /// what the peer has sent to it.
    struct End {
        credits: Credits,
        receives: u32,
        unread: u32,
        coming: VecDeque<Message>,
    }

    enum Message {
        Data(u32),
        Count(u32),
    }

    impl End {
        fn new(own: u16, peer: u16) -> Self {
            Self {
                credits: Credits::new(own, peer),
                receives: u32::from(own) + SPARE,
                unread: 0,
                coming: VecDeque::new(),
            }
        }

        /// Takes one message off the wire, as the device does: it needs a receive.
        fn arrive(&mut self) {
            match self.coming.pop_front() {
                None => {}
                Some(Message::Data(count)) => {
                    self.unread += 1;
                    assert!(self.credits.hear(count));
                }
                Some(Message::Count(count)) => {
                    self.receives += 1;
                    assert!(self.credits.hear(count));
                }
            }
        }

        fn read(&mut self) {
            if self.unread > 0 {
                self.unread -= 1;
                self.receives += 1;
                self.credits.read();
            }
        }

        /// What it sends takes a receive of the peer.
        fn send(&mut self, to: &mut Self) {
            if self.credits.may_send() {
                self.credits.send();
                let count = self.credits.tell();
                to.take(Message::Data(count));
            }
        }

        fn tell(&mut self, to: &mut Self) {
            if self.credits.should_tell() {
                let count = self.credits.tell();
                to.take(Message::Count(count));
            }
        }

        fn take(&mut self, message: Message) {
            assert!(self.receives > 1, "only that for the end is left");
            self.receives -= 1;
            self.coming.push_back(message);
        }
    }

    /// Fewer cases under Miri, which takes some ten seconds for each.
    fn config() -> ProptestConfig {
        let usual = ProptestConfig::default();
        let cases = if cfg!(miri) { 4 } else { usual.cases };
        ProptestConfig { cases, ..usual }
    }

    proptest! {
        #![proptest_config(config())]
        #[test]
        fn every_order_of_steps_leaves_a_receive(
            sizes in (1..9_u16, 1..9_u16),
            steps in prop::collection::vec((0..2_usize, 0..4_u8), 0..400),
        ) {
            let mut ends = [End::new(sizes.0, sizes.1), End::new(sizes.1, sizes.0)];
            // From just before the counts begin again.
            for end in &mut ends {
                let Credits { read, told, sent, heard, .. } = &mut end.credits;
                [*read, *told, *sent, *heard] = [u32::MAX - 3; 4];
            }
            for (turn, step) in steps {
                let [a, b] = &mut ends;
                let (this, other) = if turn == 0 { (a, b) } else { (b, a) };
                match step {
                    0 => this.arrive(),
                    1 => this.read(),
                    2 => this.send(other),
                    _ => this.tell(other),
                }
            }
            // When all is read and told, both may send again.
            for round in 0..200 {
                let [a, b] = &mut ends;
                let (this, other) = if round % 2 == 0 { (a, b) } else { (b, a) };
                this.arrive();
                this.read();
                this.tell(other);
            }
            prop_assert!(ends.iter().all(|end| end.credits.may_send()));
        }
    }

    #[test]
    fn a_count_of_what_was_never_sent_is_refused() {
        let mut credits = Credits::new(4, 4);
        credits.send();
        assert!(!credits.hear(2));
        assert!(credits.hear(1));
        assert!(!credits.hear(0));
    }
}
