//! Links of other users and sockets of ports that are not read for a while: they brought too much
//! that nobody wants (see [`unwanted`](super::unwanted)).

use std::os::fd::RawFd;

use ferroce_os::poll::Interest;
use ferroce_proto::time::Time;

use super::RoundState;
use crate::Nic;
use crate::base::numbers::LinkId;
use crate::base::token::Token;
use crate::link::path::ways_out::Wire;

/// A source of packets that is not read for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Link(LinkId),
    /// The number of a port's token.
    Port(u32),
}

/// What is not read, and until when. A link that is closed meanwhile stays here until then.
#[derive(Debug, Default)]
pub(super) struct HeldUp(Vec<(Time, Held)>);

impl HeldUp {
    /// When the first is read again.
    pub(super) fn ends(&self) -> Option<Time> {
        self.0.iter().map(|(until, _)| *until).min()
    }
}

impl RoundState {
    /// Reads something no more until a moment. An end of a link is still noticed.
    pub(super) fn hold_up(&mut self, nic: &Nic, held: Held, until: Time) {
        self.held_up.0.retain(|(_, other)| *other != held);
        self.held_up.0.push((until, held));
        self.watch_held(nic, held, Interest::HANGUP);
    }

    /// Reads again what was held up for long enough.
    pub(super) fn go_on(&mut self, nic: &Nic, now: Time) {
        let (over, rest) = self
            .held_up
            .0
            .drain(..)
            .partition(|(until, _)| *until <= now);
        self.held_up.0 = rest;
        let over: Vec<_> = over;
        for (_, held) in over {
            self.watch_held(nic, held, Interest::READ);
        }
    }

    fn watch_held(&self, nic: &Nic, held: Held, interest: Interest) {
        let (fd, token): (Option<RawFd>, _) = match held {
            Held::Link(id) => (self.incoming.fd(id), Token::In(id)),
            Held::Port(number) => (nic.cm().port_fd(number.into()), Token::Cm(number)),
        };
        // It may be closed by now.
        if let Some(fd) = fd
            && let Err(e) = nic.services.poller.modify(fd, token.raw(), interest)
        {
            tracing::debug!(target: "ferroce::local", ?held, "not watched: {e}");
        }
    }
}

impl Nic {
    /// Leaves a shared socket of the wire unread before `until`. The device thread may sleep
    /// without end, and the program that makes this round may never make another one.
    pub(super) fn hold_up_wire(&self, wire: &Wire, number: u32, until: Time) {
        wire.hold_up(number, until);
        self.services.wake_for(until);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ferroce_os::clock;

    use super::*;

    #[test]
    fn a_socket_that_a_program_holds_up_is_read_again_by_the_device_thread() {
        let nic = Nic::get().unwrap();
        let wire = nic.services.wire.as_ref().unwrap();
        let end = clock::monotonic() + Duration::from_secs(5);
        // The thread is to sleep when the round is made.
        while nic.progress.lock().has_work(&nic) {
            assert!(clock::monotonic() < end, "there is always something");
        }
        nic.hold_up_wire(wire, 0, clock::monotonic() + Duration::from_millis(1));
        while wire.is_held_up(0) {
            assert!(clock::monotonic() < end, "nobody reads it again");
            std::thread::yield_now();
        }
    }
}
