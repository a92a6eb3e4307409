//! Peers that ask this process how much room it has, and what each of them is told.

use std::sync::Mutex;
use std::time::Duration;

use ferroce_proto::ids::Gid;
use ferroce_proto::time::Time;
use ferroce_proto::wire::Drain;

use crate::base::numbers::slot_of;
use crate::base::sync::lock;

/// A peer that has not asked for this long does not count any more.
const RECENT: Duration = Duration::from_secs(1);
/// Number of senders that are told apart. If there are more, the room is shared as among this many.
const MOST: usize = 64;

/// Source address, and the processes at both ends.
type PacedPeer = (Gid, u16, u16);

/// The senders that have asked not long ago.
#[derive(Debug, Default)]
pub(crate) struct Askers {
    recent: Mutex<Vec<(PacedPeer, Time)>>,
}

impl Askers {
    /// The answer to a question of `src`: an equal part of what the socket's buffer holds. A
    /// quarter of it is left out, since the kernel gives room back late; and there may always be
    /// another sender, one of reliable connections.
    pub(crate) fn answer(&self, src: Gid, question: &Drain, buffer: u32, now: Time) -> Drain {
        let count = self.count((src, slot_of(question.from), slot_of(question.to)), now);
        let parts = u32::try_from(count + 1).unwrap_or(u32::MAX);
        Drain {
            room: Some(buffer / 4 * 3 / parts),
            to: question.from,
            from: question.to,
            mark: question.mark,
        }
    }

    /// Notes an asker; how many there are.
    fn count(&self, asker: PacedPeer, now: Time) -> usize {
        let mut recent = lock(&self.recent);
        recent.retain(|(other, at)| *other != asker && now.since(*at) < RECENT);
        if recent.len() < MOST {
            recent.push((asker, now));
        }
        recent.len()
    }
}

#[cfg(test)]
mod tests {
    use ferroce_proto::ids::Qpn;

    use super::*;

    fn ask(askers: &Askers, who: u8, at: u64) -> u32 {
        let question = Drain {
            room: None,
            to: Qpn::new(1 << 14),
            from: Qpn::new(2 << 14 | 5),
            mark: 9,
        };
        let answer = askers.answer(Gid([who; 16]), &question, 400_000, Time(at));
        assert_eq!((answer.to, answer.from), (question.from, question.to));
        assert_eq!(answer.mark, 9);
        answer.room.unwrap()
    }

    #[test]
    fn the_room_is_divided_among_senders_that_asked_lately() {
        let askers = Askers::default();
        assert_eq!(ask(&askers, 1, 0), 150_000);
        assert_eq!(ask(&askers, 1, 1), 150_000);
        assert_eq!(ask(&askers, 2, 2), 100_000);
        let later = 1_500_000_000;
        assert_eq!(ask(&askers, 3, later), 150_000);
        for who in 0..200 {
            assert!(ask(&askers, who, later) >= 300_000 / 65);
        }
    }
}
