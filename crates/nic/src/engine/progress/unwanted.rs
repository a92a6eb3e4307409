//! The time that packets, links and messages take which nobody wants.
//!
//! A stranger sends them at no cost, to the sockets that all hosts share and to the listener of
//! this process's slot. A device thread that is busy with them is no longer woken before programs
//! that compute, and its connections get slower for that alone. So there is a part of the time for
//! each of these. When it is used up, the socket is not read for a while: the kernel drops what
//! does not fit, at the sender's cost. Sockets of flows are read on.
//!
//! A process of another user that has a link to this one is such a stranger too. What it sends to
//! queue pairs that take it is wanted, whatever else it sends. A link that brought too much that is
//! not, and the socket of a port with too many requests of other users, are not read for a while:
//! their senders wait.

use std::time::Duration;

use ferroce_os::clock;
use ferroce_proto::time::Time;

use crate::base::time_share::TimeShare;

/// Unwanted packets may take one part in this number of the time.
const PART: u32 = 32;
/// Such time that is saved up, at most.
const SAVED: Duration = Duration::from_millis(5);
/// Divisor of the time for what other users of this host send by links that have said hello, and to
/// ports. Connections between users begin there, and a crowd of them comes at once.
const PART_OF_USERS: u32 = 16;
const SAVED_FOR_USERS: Duration = Duration::from_millis(20);
/// What one counts at most: this thread may lose its processor meanwhile.
const MOST_EACH: Duration = Duration::from_micros(50);
/// A socket is not read for so long, at least.
const HOLD_UP: Duration = Duration::from_millis(1);
/// The listener, a link or the socket of a port is not looked at for so long, at most: processes of
/// the own user may wait there (`PATIENCE` in `link/path/peer_processes.rs`).
const LONGEST_OF_HOST: Duration = Duration::from_millis(20);

/// The listener's number here.
pub(super) const LISTENER: u32 = 2;
/// That of other users' links that have said hello, and of their messages to ports.
pub(super) const USERS: u32 = 3;

/// The time for what is unwanted, by the number of a shared socket's token, and for links.
#[derive(Debug)]
pub(super) struct Unwanted([TimeShare; 4]);

impl Default for Unwanted {
    fn default() -> Self {
        let share = || TimeShare::new(PART, SAVED);
        let of_users = TimeShare::new(PART_OF_USERS, SAVED_FOR_USERS);
        Self([share(), share(), share(), of_users])
    }
}

/// What a socket, or the listener, has brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Brought {
    pub(super) unwanted: usize,
    pub(super) all: usize,
}

impl Brought {
    /// A single packet that nobody wants.
    pub(super) const STRAY: Self = Self {
        unwanted: 1,
        all: 1,
    };
}

impl Unwanted {
    /// Whether unwanted packets of a socket count: all hosts share it.
    pub(super) fn counts(number: u32) -> bool {
        number < LISTENER
    }

    /// Charges a socket for what it `brought` since then. Returns until when it is not to be read,
    /// if what was unwanted took too much of the time.
    pub(super) fn charge(&mut self, number: u32, brought: Brought, begun: Time) -> Option<Time> {
        let share = self.0.get_mut(number as usize)?;
        let now = clock::monotonic();
        let [unwanted, all] =
            [brought.unwanted, brought.all].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let took = now.since(begun) / all * unwanted;
        share.spend(took.min(MOST_EACH * unwanted), now);
        let most = if Self::counts(number) {
            Duration::MAX
        } else {
            LONGEST_OF_HOST
        };
        (!share.is_left(now)).then(|| now + share.wait().clamp(HOLD_UP, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(ago: Duration) -> Time {
        Time(clock::monotonic().0 - u64::try_from(ago.as_nanos()).expect("short"))
    }

    #[test]
    fn a_flooded_socket_is_held_up_for_as_long_as_it_took_too_much() {
        let (mut unwanted, begun) = (Unwanted::default(), since(SAVED * 3));
        let until = unwanted
            .charge(
                0,
                Brought {
                    unwanted: 1000,
                    all: 1000,
                },
                begun,
            )
            .expect("too much");
        let wait = until.since(clock::monotonic());
        assert!(wait > SAVED * (PART - 1), "{wait:?}");
        assert_eq!(
            unwanted.charge(
                1,
                Brought {
                    unwanted: 1,
                    all: 1
                },
                since(SAVED / 8)
            ),
            None
        );
    }

    #[test]
    fn few_unwanted_packets_among_many_are_harmless() {
        let mut unwanted = Unwanted::default();
        let charged = unwanted.charge(
            0,
            Brought {
                unwanted: 1,
                all: 1000,
            },
            since(SAVED * 100),
        );
        assert_eq!(charged, None);
    }

    #[test]
    fn what_other_users_send_is_held_up_for_a_moment_only() {
        let (mut unwanted, begun) = (Unwanted::default(), since(SAVED_FOR_USERS * 3));
        assert_eq!(
            unwanted.charge(
                USERS,
                Brought {
                    unwanted: 0,
                    all: 5000
                },
                begun
            ),
            None,
            "all of it"
        );
        let until = unwanted
            .charge(
                USERS,
                Brought {
                    unwanted: 5000,
                    all: 5000,
                },
                begun,
            )
            .expect("too much");
        let wait = until.since(clock::monotonic());
        assert!(wait > HOLD_UP && wait <= LONGEST_OF_HOST, "{wait:?}");
        assert_eq!(
            unwanted.charge(
                LISTENER,
                Brought {
                    unwanted: 1,
                    all: 1
                },
                since(SAVED / 8)
            ),
            None
        );
    }

    #[test]
    fn a_thread_that_lost_its_processor_is_not_held_up() {
        let mut unwanted = Unwanted::default();
        assert_eq!(
            unwanted.charge(
                0,
                Brought {
                    unwanted: 4,
                    all: 4
                },
                since(SAVED * 100)
            ),
            None
        );
    }
}
