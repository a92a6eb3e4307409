//! The shortest way of a short SEND: from what the program posts into a ring slot, past all
//! batches.

use ferroce_os::memory::RawMemory;
use ferroce_proto::verbs::{PlainSend, SendWr};
use ferroce_proto::wire::Bth;

use super::early_completion::PostedReceives;
use crate::base::carrier::Carrier;
use crate::objects::qp::Qp;
use crate::objects::qp::fast::rights_cache::Remembering;
use crate::objects::qp::locked::Locked;
use crate::objects::qp::transport::Transport;

/// What became of a SEND that is in the short ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::objects::qp) enum PutSend {
    /// It waits for its acknowledgement.
    Sent,
    /// It is as good as taken, and done.
    Completed,
    /// It says where its bytes are, and waits for its acknowledgement.
    Rendezvous,
}

impl Qp {
    /// Puts one SEND that is not posted yet into the short ring, if that runs and nothing else is
    /// to be done with the SEND or before it. If it is there, [`commit_fast`](Self::commit_fast)
    /// is to be called, with what is returned. If not, nothing has happened.
    #[expect(clippy::inline_always, reason = "each message goes this way")]
    #[inline(always)]
    pub(in crate::objects::qp) fn put_fast(
        &self,
        locked: &mut Locked,
        send: &PlainSend<'_>,
    ) -> Option<PutSend> {
        if locked.eligibility.sends().is_none() {
            look(locked);
        }
        let Locked {
            transport: Transport::Rc(rc),
            short_rings,
            memos: [from, into],
            eligibility,
            room,
            ..
        } = locked
        else {
            return None;
        };
        if !short_rings.is_open() {
            return None;
        }
        let common = eligibility.sends()?;
        let mut opens = Remembering {
            qp: self,
            memo: from,
        };
        let prepared = rc.prepare_fast(common, (&mut opens, &RawMemory), send, room);
        let Some((head, rest)) = prepared else {
            return self.put_long(locked, send);
        };
        let takes = eligibility.takes();
        let receives = PostedReceives {
            qp: self,
            rc,
            memo: into,
        };
        let early_limit = |next| {
            if takes {
                receives.early_limit(next)
            } else {
                None
            }
        };
        if !short_rings.push((head, rest), early_limit) {
            return None;
        }
        self.wake_receiver(short_rings);
        self.tally.count_tx(1, Bth::LEN + rest.len());
        short_rings.look_ahead(&receives);
        let is_early = short_rings.try_complete_early(&receives, rest.len());
        Some(if is_early {
            PutSend::Completed
        } else {
            PutSend::Sent
        })
    }

    /// As [`put_fast`](Self::put_fast), for one that does not fit into a ring slot, where SENDs may
    /// go into the short ring.
    #[inline(never)]
    fn put_long(&self, locked: &mut Locked, send: &PlainSend<'_>) -> Option<PutSend> {
        let Locked {
            transport: Transport::Rc(rc),
            short_rings,
            memos: [from, into],
            eligibility,
            room,
            ..
        } = locked
        else {
            return None;
        };
        let mut opens = Remembering {
            qp: self,
            memo: from,
        };
        let message = rc.prepare_long(&mut opens, send)?;
        let receives = PostedReceives {
            qp: self,
            rc,
            memo: into,
        };
        let takes = eligibility.takes();
        let early_limit = |next| takes.then(|| receives.early_limit(next)).flatten();
        let bytes = message.body.len();
        short_rings.push_whole(&message, room, early_limit).ok()?;
        self.wake_receiver(short_rings);
        let packets = message.packets as usize;
        self.tally.count_tx(packets, Bth::LEN * packets + bytes);
        short_rings.look_ahead(&receives);
        if message.body.is_place() {
            // The peer has yet to fetch the bytes.
            return Some(PutSend::Rendezvous);
        }
        let is_early = short_rings.try_complete_early(&receives, bytes);
        Some(if is_early {
            PutSend::Completed
        } else {
            PutSend::Sent
        })
    }

    /// A SEND is in the short ring: the transport is told so.
    #[expect(
        clippy::inline_always,
        reason = "a work request is not to go through memory"
    )]
    #[inline(always)]
    pub(in crate::objects::qp) fn commit_fast(
        &self,
        locked: &mut Locked,
        wr: impl Into<SendWr>,
        put: PutSend,
    ) {
        if let Transport::Rc(rc) = &mut locked.transport {
            match put {
                PutSend::Sent | PutSend::Completed => rc.commit_fast(wr),
                PutSend::Rendezvous => rc.commit_rendezvous(wr),
            }
        }
        if put == PutSend::Completed {
            self.complete_early(locked);
        }
    }
}

/// Looks whether everything is so that SENDs may go into the short ring.
#[cold]
fn look(locked: &mut Locked) {
    if let Transport::Rc(rc) = &locked.transport
        && is_usual(locked)
        && let Some(common) = rc.fast_head()
    {
        locked.eligibility.set_sends(common);
    }
}

/// Whether packets go by a short ring, and nothing else is under way on this side of the transport.
#[inline]
fn is_usual(locked: &Locked) -> bool {
    !locked.queued
        && !locked.retired
        && locked.delayed_ack.is_idle()
        && locked.report.packets == Some(Carrier::ShortRing)
        && locked.fails_at.is_none()
        && locked.granted.is_some()
}
