//! The pace of MADs to other hosts.
//!
//! A program may make or end thousands of connections at once. The receive buffer of a host with
//! the usual limits holds a few hundred datagrams, and a MAD that is lost costs seconds. So bursts
//! go out at a pace that a peer can follow. What brings a conversation on shows that a peer
//! follows: connections that are made and ended one after another do not wait.

use std::collections::VecDeque;
use std::time::Duration;

use ferroce_proto::mad::{Mad, Message};
use ferroce_proto::time::Time;

use super::service::Work;
use crate::base::addressing::Addressing;

/// MADs that go out without a pause: they fit a receive buffer of 208 KiB three times over.
const BURST: u32 = 64;
/// After that, one per this time.
const INTERVAL: Duration = Duration::from_micros(50);
/// MADs that wait go out in lots, so that the device thread sleeps in between.
const LOT: u32 = 16;
/// MADs that wait, at most; what is beyond is lost, and sent again by its conversation.
const LIMIT: usize = 1 << 16;

/// MADs to other hosts that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When all of [`BURST`] would be there again: the fewer there are, the later.
    full_at: Time,
    waiting: VecDeque<(Addressing, Box<Mad>)>,
}

impl Pace {
    /// When the next lot may go out.
    pub(super) fn deadline(&self) -> Option<Time> {
        let lot_is_there = Time(
            self.full_at
                .0
                .saturating_sub(nanos(INTERVAL * (BURST - LOT))),
        );
        (!self.waiting.is_empty()).then_some(lot_is_there)
    }

    /// Takes leave to send one MAD now.
    fn take(&mut self, now: Time) -> bool {
        let next = self.full_at.max(now) + INTERVAL;
        let allowed = next.since(now) <= INTERVAL * BURST;
        if allowed {
            self.full_at = next;
        }
        allowed
    }

    /// As many MADs as `leave` says may go out besides.
    fn give_back(&mut self, leave: u32) {
        let earlier = self.full_at.0.saturating_sub(nanos(INTERVAL * leave));
        self.full_at = Time(earlier);
    }
}

/// MADs for which one that has brought a conversation on gives leave: the one that it says has
/// come, and those that it asks for, so that no more are under way than before.
const fn leave(message: &Message) -> u32 {
    match message {
        // The REQ has come, and an RTU is due.
        Message::Rep(_) => 2,
        Message::Rtu(_) | Message::Rej(_) | Message::Drep(_) | Message::SidrRep(_) => 1,
        // A DREP is due.
        Message::Dreq(_) => 1,
        Message::Req(_) | Message::Mra(_) | Message::SidrReq(_) => 0,
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Work<'_> {
    /// Sends a MAD to another host, now or when it is its turn.
    pub(super) fn send_paced(&mut self, addressing: Addressing, mad: &Mad) {
        let pace = &mut self.state.pace;
        if pace.waiting.is_empty() && pace.take(self.now) {
            self.host.send_mad_wire(addressing, mad);
        } else if pace.waiting.len() < LIMIT {
            pace.waiting.push_back((addressing, Box::new(*mad)));
        }
    }

    /// A MAD of another host has brought a conversation on.
    pub(super) fn on_progress(&mut self, message: &Message) {
        self.state.pace.give_back(leave(message));
        self.send_waiting();
    }

    /// Sends what waited long enough.
    pub(super) fn send_waiting(&mut self) {
        let pace = &mut self.state.pace;
        while !pace.waiting.is_empty()
            && pace.take(self.now)
            && let Some((addressing, mad)) = pace.waiting.pop_front()
        {
            self.host.send_mad_wire(addressing, &mad);
        }
    }

    /// Sends all that waits: there is no time left.
    pub(super) fn send_all_waiting(&mut self) {
        for (addressing, mad) in self.state.pace.waiting.drain(..) {
            self.host.send_mad_wire(addressing, &mad);
        }
    }
}
