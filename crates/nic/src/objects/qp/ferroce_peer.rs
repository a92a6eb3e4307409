//! Whether the peer of a reliable queue pair on the wire is a Ferroce, too.
//!
//! Two Ferroces mend losses by selective repeat, with reports and a header bit that other makes do
//! not know. Anybody can send from any port and any address, so only an echo counts. At the first
//! packet that comes after the move to RTR the queue pair asks its peer with a random number
//! ([`Drain`]): connections that carry nothing ask nothing. An answer with that number, from the
//! path's other end, can come only from a host that has seen the question. Until then the peer is
//! treated as any other make. Other makes drop the question as a packet of an unknown opcode.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferroce_os::random;
use ferroce_proto::time::Time;
use ferroce_proto::wire::Drain;

use super::Qp;
use super::locked::Locked;
use super::transport::Transport;
use crate::base::numbers::slot_of;
use crate::link::Ingress;
use crate::link::path::{Path, Reach};

/// While packets come and the peer is unknown, it is asked again after this time, then after twice
/// that, and so on: a peer of another make gets two dozen questions a day.
const AGAIN: Duration = Duration::from_millis(5);
/// There is nothing to ask.
const NEVER: u64 = u64::MAX;

/// What a queue pair has asked. What its lock guards.
#[derive(Debug, Default)]
pub(super) struct PeerQuestion {
    /// Random number of this connection, which tells its answers from older ones.
    nonce: Option<u64>,
    times: u32,
}

/// When the next question is due; read without the lock at each packet.
#[derive(Debug)]
pub(super) struct QuestionDue(AtomicU64);

impl Default for QuestionDue {
    fn default() -> Self {
        Self(AtomicU64::new(NEVER))
    }
}

impl QuestionDue {
    fn is_due(&self, now: Time) -> bool {
        self.0.load(Ordering::Relaxed) <= now.0
    }

    fn set(&self, at: Option<Time>) {
        self.0.store(at.map_or(NEVER, |at| at.0), Ordering::Relaxed);
    }
}

impl Qp {
    /// Moved to RTR: asks the peer at its first packet, if it may be a Ferroce.
    pub(super) fn ask_for_ferroce_peer(&self, now: Time) {
        let mut locked = self.lock();
        if self.is_ferroce_peer.load(Ordering::Relaxed) {
            return;
        }
        locked.asked = PeerQuestion {
            nonce: Some(random::u64()),
            times: 0,
        };
        self.question.set(Some(now));
    }

    /// Forgets what the peer is, in RESET: the next peer is another one.
    pub(super) fn forget_ferroce_peer(&self) {
        let mut locked = self.lock();
        locked.asked = PeerQuestion::default();
        self.is_ferroce_peer.store(false, Ordering::Relaxed);
        self.question.set(None);
    }

    /// A packet for it came over the wire: while the peer is unknown, it is asked again now and
    /// then.
    #[inline]
    pub(crate) fn on_wire_packet(&self, now: Time) {
        if self.question.is_due(now) {
            self.ask_peer(&mut self.lock(), now);
        }
    }

    fn ask_peer(&self, locked: &mut Locked, now: Time) {
        self.question.set(None);
        let (Transport::Rc(_), Some(mark)) = (&locked.transport, locked.asked.nonce) else {
            return;
        };
        let dest = locked.transport.dest();
        let Some(Path {
            reach: Reach::Link(egress),
            addressing,
            ..
        }) = &locked.path
        else {
            return;
        };
        // No Ferroce has slot 0.
        if egress.slot().is_some() || slot_of(dest) == 0 {
            return;
        }
        let question = Drain {
            room: None,
            to: dest,
            from: self.qpn,
            mark,
        };
        if !egress.is_blocked() {
            self.services().send_drain(egress, *addressing, &question);
        }
        let wait = AGAIN * (1 << locked.asked.times.min(24));
        locked.asked.times += 1;
        self.question.set(Some(now + wait));
    }

    /// An answer to a question of this queue pair, or somebody's attempt at one.
    pub(crate) fn on_echo(&self, came: Ingress<'_>, answer: &Drain) {
        let mut locked = self.lock();
        let is_peers = |path: &Path| path.admit(came).is_ok();
        if locked.asked.nonce == Some(answer.mark)
            && locked.transport.dest() == answer.from
            && locked.path.as_ref().is_some_and(is_peers)
        {
            self.meet_ferroce_peer(&mut locked);
        }
    }

    /// Takes note that the peer has shown itself a Ferroce.
    pub(super) fn meet_ferroce_peer(&self, locked: &mut Locked) {
        locked.transport.meet_ferroce_peer();
        self.is_ferroce_peer.store(true, Ordering::Relaxed);
        self.question.set(None);
    }
}
