//! What the reads of one turn of a connection bring, and when the turn ends.

use super::Came;

/// Reads of one turn: others are to have theirs.
const READS: usize = 8;

/// What a turn of a connection has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StreamTurn {
    Nothing,
    /// All that was there, and less than there is room for.
    Little,
    /// More may be there.
    Much,
}

/// The reads of a turn.
#[derive(Debug)]
pub(crate) struct TurnReads {
    room: usize,
    bytes: usize,
    left: usize,
    brought: StreamTurn,
}

impl TurnReads {
    /// A turn whose reads have `room` bytes of room.
    pub(crate) const fn new(room: usize) -> Self {
        Self {
            room,
            bytes: 0,
            left: READS,
            brought: StreamTurn::Nothing,
        }
    }

    /// A read has ended. Returns whether the turn has another one.
    pub(crate) fn goes_on(&mut self, came: Came) -> bool {
        self.left -= 1;
        if came == Came::Nothing {
            return false;
        }
        self.brought = self.brought.max(StreamTurn::Little);
        let Came::Bytes { count, filled } = came else {
            return false;
        };
        self.bytes += count;
        if self.bytes >= self.room || filled && self.left == 0 {
            self.brought = StreamTurn::Much;
        }
        // To ask whether there is more would be a second system call for each message.
        filled && self.left > 0
    }

    /// What the reads have brought.
    pub(crate) const fn brought(&self) -> StreamTurn {
        self.brought
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 1000;

    /// What a turn of these reads has brought, and how many of them it made.
    fn turn(reads: &[Came]) -> (StreamTurn, usize) {
        let mut turn = TurnReads::new(ROOM);
        let ended = reads.iter().position(|&came| !turn.goes_on(came));
        (turn.brought(), ended.map_or(reads.len(), |last| last + 1))
    }

    const fn bytes(count: usize, filled: bool) -> Came {
        Came::Bytes { count, filled }
    }

    #[test]
    fn a_read_that_does_not_fill_its_room_ends_the_turn() {
        let reads = [bytes(10, false), bytes(10, false)];
        assert_eq!(turn(&reads), (StreamTurn::Little, 1));
        assert_eq!(turn(&[Came::Nothing]), (StreamTurn::Nothing, 1));
        let reads = [bytes(10, true), Came::Nothing];
        assert_eq!(turn(&reads), (StreamTurn::Little, 2));
        for end in [Came::End, Came::Reset, Came::Unmapped] {
            assert_eq!(turn(&[end]), (StreamTurn::Little, 1));
        }
    }

    #[test]
    fn a_turn_that_brings_a_room_full_or_all_its_reads_is_busy() {
        // Then nothing was left, but others have waited for it.
        let reads = [bytes(ROOM, true), Came::Nothing];
        assert_eq!(turn(&reads), (StreamTurn::Much, 2));
        let reads = [bytes(ROOM / 2, true), bytes(ROOM / 2, false)];
        assert_eq!(turn(&reads), (StreamTurn::Much, 2));
        assert_eq!(
            turn(&[bytes(1, true); 2 * READS]),
            (StreamTurn::Much, READS)
        );
    }
}
