//! The socket that traffic comes by while a program polls.

/// Rounds without a packet after which a socket is as any other.
const HOT_ROUNDS: u32 = 256;
/// Number of rounds of a polling program of which one asks for all descriptors.
const LOOK_AROUND: u32 = 8;

/// A socket that traffic may come by, with the number of its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HotSocket {
    /// A descriptor of the wire link.
    Wire(u32),
    /// The TCP connection of a queue pair.
    Stream(u32),
}

/// The socket that traffic comes by while a program polls: looking there directly is cheaper than
/// to ask which socket has something.
#[derive(Debug, Default)]
pub(super) struct Hot {
    /// The socket that something came by last.
    socket: Option<HotSocket>,
    /// The poller is asked for all descriptors: several connections are busy, or one brings so much
    /// that the others would wait.
    asks_for_all: bool,
    /// Rounds that look there first, from now on.
    pub(super) rounds: u32,
    /// Rounds so far: every few of them look around, however busy the socket is.
    turn: u32,
}

impl Hot {
    /// Something came by a socket; `in_bulk` if more may be there.
    ///
    /// All queue pairs of a peer share a socket of the wire, and each has a TCP connection of its
    /// own: only a connection that brings a little twice in a row is looked at first.
    pub(super) fn heat(&mut self, socket: HotSocket, in_bulk: bool) {
        let is_other = self.socket.replace(socket) != Some(socket);
        self.asks_for_all = (is_other || in_bulk) && matches!(socket, HotSocket::Stream(_));
        self.rounds = HOT_ROUNDS;
    }

    /// Whether traffic comes by a TCP connection.
    pub(super) fn is_connection(&self) -> bool {
        self.rounds > 0 && matches!(self.socket, Some(HotSocket::Stream(_)))
    }

    /// True while most rounds skip all connections but the hot one.
    pub(super) fn hides_connections(&self) -> bool {
        self.is_connection() && !self.asks_for_all
    }

    /// The socket to look at in this round; `None`: ask for all.
    pub(super) fn next(&mut self) -> Option<HotSocket> {
        self.turn = self.turn.wrapping_add(1);
        self.rounds = self.rounds.checked_sub(1)?;
        let looks_around = self.asks_for_all || self.turn.is_multiple_of(LOOK_AROUND);
        self.socket.filter(|_| !looks_around)
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
            hot.heat(HotSocket::Wire(1), false);
            match hot.next() {
                Some(socket) => assert_eq!(socket, HotSocket::Wire(1)),
                None => around += 1,
            }
        }
        assert_eq!(around, 10);
    }

    #[test]
    fn a_silent_socket_is_as_any_other() {
        let mut hot = Hot::default();
        hot.heat(HotSocket::Wire(1), false);
        let first = (0..HOT_ROUNDS).filter(|_| hot.next().is_some()).count();
        assert!(first > 0);
        assert!((0..100).all(|_| hot.next().is_none()));
    }

    #[test]
    fn connections_that_bring_something_in_turn_are_all_asked_for() {
        let mut hot = Hot::default();
        for number in 0..20 {
            hot.heat(HotSocket::Stream(number % 2), false);
            assert_eq!(hot.next(), None);
        }
        assert!(hot.rounds > 0, "a leader lingers for them");
        assert!(!hot.hides_connections());
        hot.heat(HotSocket::Stream(1), false);
        assert!(hot.hides_connections());
        let mut looks = (0..2).filter_map(|_| hot.next());
        assert_eq!(looks.next(), Some(HotSocket::Stream(1)));
        hot.heat(HotSocket::Stream(1), true);
        assert!(!hot.hides_connections(), "others wait for much");
    }
}
