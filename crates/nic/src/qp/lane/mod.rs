//! Lanes: memory that this queue pair and its peer in another process have for their small packets alone (`ferroce_os::ring`).
//!
//! A lane carries the very packets that would go through the ring, so the transport knows nothing of it. Who has sent small
//! messages through the ring for a while, and nothing else, offers a lane; once the other side has accepted it, a *run* begins, by a word
//! behind all packets that went through the ring before. Whatever goes as a packet by the ring ends the run, and the
//! receiver takes all that is in its lane before it looks at a packet from the ring: so both together keep the order in which packets
//! were sent.
//!
//! How far the receiver has read is an acknowledgement, for who looks there. Who does not, since he sleeps, gets an acknowledgement by
//! the ring. A packet that is not taken (no receive is posted, say) ends the run on the receiver's side: what comes after it is not
//! looked at, as it would be dropped, and is sent again by the ring as the transport demands.

mod receive;
mod send;
mod swift;

use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;

use self::receive::Receiving;
use self::send::Sending;
use super::Qp;
use super::step::Locked;
use crate::core::lock;
use crate::cq::Catch;
use crate::link::local::Frame;

/// The lanes of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    out: Option<Box<Sending>>,
    into: Option<Box<Receiving>>,
    /// Small messages sent by the ring, in a row.
    streak: u32,
}

impl Lanes {
    /// Something goes out by packets: what follows is to come behind it.
    pub(super) fn end_run(&mut self) {
        self.streak = 0;
        if let Some(out) = &mut self.out {
            out.end_run();
        }
    }

    /// Gives back the lane that it sends by. What is not acknowledged by now is sent again by packets, if that is called for.
    pub(super) fn close_out(&mut self) {
        self.streak = 0;
        self.out = None;
    }

    /// Gives back both. Returns whether the peer must be told, since it may have put something in that nobody will look at.
    pub(super) fn close(&mut self) -> bool {
        self.close_out();
        self.into.take().is_some()
    }
}

impl Qp {
    /// There is something in one of its lanes. Completions may go to a program that polls.
    pub(crate) fn on_lane(&self, now: Time, catch: &mut Catch) {
        let mut locked = lock(&self.locked);
        if locked.retired {
            return;
        }
        self.take_lane_acks(&mut locked, (now, catch));
        self.drain_lane(&mut locked, (now, catch));
        let speaks = locked.transport.wants_transmit() || locked.transport.next_local().is_some();
        drop(locked);
        if speaks {
            self.on_turn(true, now);
        }
    }

    /// Takes what is in its lanes before something else that came later.
    pub(super) fn run_lanes(&self, locked: &mut Locked, now: Time) {
        let mut catch = Catch::default();
        self.take_lane_acks(locked, (now, &mut catch));
        self.drain_lane(locked, (now, &mut catch));
    }

    /// The lanes of a path that is left: the peer hears of it, if it may have put something in.
    pub(super) fn frame_of_end(locked: &Locked, qpn: Qpn) -> Frame<'static> {
        Frame::Dropped {
            qpn: locked.transport.dest(),
            by: qpn,
        }
    }
}
