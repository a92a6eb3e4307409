//! The socket that traffic comes by while a program polls.

/// Rounds without a packet after which a socket is as any other.
const HOT_ROUNDS: u32 = 256;
/// Number of rounds of a polling program of which one asks for all descriptors.
const LOOK_AROUND: u32 = 8;

/// The socket that traffic comes by while a program polls: looking there directly is cheaper than
/// to ask which socket has something.
#[derive(Debug, Default)]
pub(super) struct Hot {
    /// Number of the socket's token.
    number: u32,
    /// Rounds that look there first, from now on.
    pub(super) rounds: u32,
    /// Rounds so far: every few of them look around, however busy the socket is.
    turn: u32,
}

impl Hot {
    /// Something came by a socket.
    pub(super) fn heat(&mut self, number: u32) {
        (self.number, self.rounds) = (number, HOT_ROUNDS);
    }

    /// The socket to look at in this round; `None`: ask for all.
    pub(super) fn next(&mut self) -> Option<u32> {
        self.turn = self.turn.wrapping_add(1);
        self.rounds = self.rounds.checked_sub(1)?;
        (!self.turn.is_multiple_of(LOOK_AROUND)).then_some(self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_socket_does_not_hide_the_others() {
        let mut hot = Hot::default();
        assert_eq!(hot.next(), None);
        let mut around = 0;
        for _ in 0..10 * LOOK_AROUND {
            hot.heat(1);
            match hot.next() {
                Some(number) => assert_eq!(number, 1),
                None => around += 1,
            }
        }
        assert_eq!(around, 10);
    }

    #[test]
    fn a_silent_socket_is_as_any_other() {
        let mut hot = Hot::default();
        hot.heat(1);
        let first = (0..HOT_ROUNDS).filter(|_| hot.next().is_some()).count();
        assert!(first > 0);
        assert!((0..100).all(|_| hot.next().is_none()));
    }
}
