//! The short way of short messages within the host (see `proto::rc`, `fast::receive`): what comes
//! is taken with one look at the queue pair, and an acknowledgement by itself goes out without a
//! batch. Whatever is not as usual goes the general way (`input`, `output`).

use std::sync::atomic::Ordering;

use ferroce_proto::ids::Msn;
use ferroce_proto::time::Time;
use ferroce_proto::verbs::RecvWr;
use ferroce_proto::wire::{Brief, BriefKind};

use crate::base::counters::DropReason;
use crate::link::Ingress;
use crate::link::path::{Admitted, Path, Reach};
use crate::objects::qp::Qp;
use crate::objects::qp::locked::Locked;
use crate::objects::qp::transport::Transport;

/// What became of a packet that is brief.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BriefTaken {
    /// It is dealt with, and there is nothing to say.
    Quiet,
    /// It is dealt with, and the queue pair is to have its turn.
    WantsTurn,
    /// Nothing has happened: it is for [`Qp::on_packet`].
    Unusual,
}

impl Qp {
    /// As [`on_packet`](Self::on_packet), for a brief packet of `len` bytes from another process of
    /// this host.
    ///
    /// # Errors
    /// Why it was dropped.
    pub(crate) fn on_brief(
        &self,
        came: Ingress<'_>,
        brief: &Brief<'_>,
        len: usize,
        now: Time,
    ) -> Result<BriefTaken, DropReason> {
        let mut locked = self.lock();
        let Some(admitted) = admit_usual(&locked, came) else {
            return Ok(BriefTaken::Unusual);
        };
        self.run_short_rings(&mut locked, now);
        let before = locked.transport.state();
        let taken = self.run_with_cx(&mut locked, now, |locked, cx| {
            locked.transport.on_brief(cx, brief, admitted)
        });
        let Some(taken) = taken else {
            return Ok(BriefTaken::Unusual);
        };
        if locked.transport.state() == before {
            self.grant_next(&mut locked);
        } else {
            self.publish_grant(&mut locked);
            self.say_error(&mut locked, before);
        }
        if brief.kind == BriefKind::Ack && locked.transport.deadline().is_some() {
            self.keep_timer(&mut locked);
        }
        let speaks = locked.transport.wants_transmit() || locked.transport.next_local().is_some();
        if !taken {
            return Err(DropReason::State);
        }
        self.tally.count_rx(1, len);
        Ok(if speaks {
            BriefTaken::WantsTurn
        } else {
            BriefTaken::Quiet
        })
    }

    /// A message was taken, or an acknowledgement: nothing but the expected PSN of what it grants
    /// can have changed.
    pub(in crate::objects::qp) fn grant_next(&self, locked: &mut Locked) {
        match (&locked.transport, locked.granted) {
            (Transport::Rc(rc), Some(word)) if word != 0 => {
                let boards = &self.services().boards;
                locked.granted = Some(boards.grant_expecting(self.qpn, word, rc.expected()));
            }
            _ => self.publish_grant(locked),
        }
    }

    /// Its turn to transmit, where an acknowledgement by itself is all that there is to say: it
    /// waits for the program's answer, or goes out at once. Returns whether that is all.
    pub(in crate::objects::qp) fn take_ack_turn(&self, locked: &mut Locked, now: Time) -> bool {
        let Some(lossless) = locked.traits.map(|traits| traits.lossless) else {
            return false;
        };
        if locked.queued || locked.retired {
            return false;
        }
        if let Some(msn) = self.ack_that_may_wait(locked)
            && locked.delayed_ack.holds_ack(msn, now)
        {
            self.keep_timer(locked);
            return true;
        }
        lossless && locked.transport.owes_only_ack() && self.acknowledge_at_once(locked)
    }

    /// The message whose acknowledgement is all that there is to say and may wait for an answer, if
    /// none waits otherwise ([`on_polled_turn`](Self::on_polled_turn)).
    ///
    /// In the middle of a message it never waits: the sender's window may be full. On the wire it
    /// waits only for another Ferroce, and if nothing of its own is unanswered. Two that send to
    /// each other without waiting for messages would wait for each other's acknowledgements.
    pub(in crate::objects::qp) fn ack_that_may_wait(&self, locked: &Locked) -> Option<Msn> {
        let lossless = locked.traits?.lossless;
        let may_wait = lossless
            || self.is_ferroce_peer.load(Ordering::Relaxed) && !locked.transport.is_unanswered();
        (may_wait && !locked.holds_ack).then(|| locked.transport.owed_ack())?
    }

    /// Sends the acknowledgement, if that is all that there is to say and it can go at once.
    /// Returns whether it is sent.
    fn acknowledge_at_once(&self, locked: &mut Locked) -> bool {
        let Some(Path {
            reach: Reach::Link(egress),
            addressing,
            ..
        }) = &locked.path
        else {
            return false;
        };
        let Transport::Rc(rc) = &mut locked.transport else {
            return false;
        };
        if locked.granted.is_none() || rc.wants_local() {
            return false;
        }
        let packet = rc.ack();
        let Some(carrier) = egress.send_at_once(self.qpn, addressing, &packet) else {
            return false;
        };
        rc.on_ack_sent();
        self.note_packets(locked, carrier);
        self.tally.count_tx(1, packet.len());
        true
    }

    /// Queues receives that nobody waits for: there is nothing to say then, and no need of anything
    /// but the queue. Returns the first that is to go the general way, and how many went before it.
    pub(in crate::objects::qp) fn post_recvs_quietly(
        &self,
        wrs: &mut dyn Iterator<Item = RecvWr>,
    ) -> Option<(usize, RecvWr)> {
        let mut fast = self.lock_fast();
        for (posted, wr) in wrs.enumerate() {
            let Some(queue) = fast.recv_queue(wr.sges.len()) else {
                return Some((posted, wr));
            };
            queue.push(wr);
        }
        None
    }
}

/// Whether packets that came so need no more than a look at the state machine.
fn admit_usual(locked: &Locked, came: Ingress<'_>) -> Option<Admitted> {
    let admitted = locked.path.as_ref()?.admit(came).ok();
    admitted.filter(|_| !locked.retired && !locked.transport.is_armed())
}
