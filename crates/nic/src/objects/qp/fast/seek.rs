//! Which SENDs go by a short ring: offers and runs, and what waits in the send queue while the
//! short ring is full.

use std::collections::VecDeque;
use std::sync::Arc;

use ferroce_os::ring::{LONGEST_REST, ShortRingRefusal};
use ferroce_proto::ids::{Psn, Qpn};
use ferroce_proto::wire::Bth;

use super::send::{RunStage, Sending};
use super::{Eye, RingEnd, Watch};
use crate::base::carrier::Carrier;
use crate::base::numbers::slot_of;
use crate::link::local::{LateWake, Outgoing, ShortRingEvent, ShortRingNotice};
use crate::link::path::{Path, Reach};
use crate::objects::qp::Qp;
use crate::objects::qp::fast::rights_cache::Remembering;
use crate::objects::qp::locked::Locked;
use crate::objects::qp::transport::Transport;

/// Messages in a row of which each asks for a short ring, while there is none. Of the others one of
/// as many does.
pub(super) const HABIT: u32 = 32;
/// Messages in a row, by the ring, after which it goes back to its short ring.
const RETURN: u32 = 8;
/// Messages after which an offer that was not accepted is repeated.
const OFFER_AGAIN: u32 = 4096;

/// What became of a queued SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::objects::qp) enum QueuedSend {
    /// It is in the short ring: packets and bytes.
    Sent(usize, usize),
    /// The short ring or the window is full: it goes when the receiver has read.
    Waits,
    /// It does not go by the short ring.
    Otherwise,
}

impl Qp {
    /// Offers a short ring, or begins a run, if it is time for that: a SEND is to go that could go
    /// by a short ring, and none runs. The run comes behind all that went by the ring.
    fn seek_short_ring(&self, locked: &mut Locked) {
        let Locked {
            short_rings,
            transport,
            path,
            ..
        } = locked;
        short_rings.streak = short_rings.streak.checked_add(1).unwrap_or(HABIT);
        let Transport::Rc(rc) = &*transport else {
            return;
        };
        let Some(Path {
            reach: Reach::Link(egress),
            ..
        }) = path
        else {
            return;
        };
        let Some(link) = egress.short_rings() else {
            return;
        };
        if egress.is_blocked() || rc.is_armed() {
            return;
        }
        let (dest, streak) = (transport.dest(), short_rings.streak);
        let Some(out) = &mut short_rings.out else {
            if streak <= HABIT || streak.is_multiple_of(HABIT) {
                short_rings.out = self.offer_short_ring(link, dest);
            }
            return;
        };
        match out.stage {
            RunStage::Offered(number) if out.sender.is_accepted(number) => {
                self.begin_run(out, dest);
            }
            RunStage::Offered(_) if streak.is_multiple_of(OFFER_AGAIN) => short_rings.out = None,
            RunStage::Idle => {
                // The receiver is done with the last run, in one way or the other: it has read what
                // was acknowledged, or the rest went by packets.
                let is_done = |next: Psn| next.minus(1).distance(rc.oldest_psn()) < 0;
                if streak >= RETURN && out.next.is_none_or(is_done) && out.has_read_promised() {
                    self.begin_run(out, dest);
                }
            }
            RunStage::Offered(_) | RunStage::Runs => {}
        }
    }

    /// Whether what is to be sent next goes by a short ring: it is a SEND, and one runs, or now
    /// begins to.
    pub(in crate::objects::qp) fn goes_by_short_ring(&self, locked: &mut Locked) -> bool {
        let Transport::Rc(rc) = &locked.transport else {
            return false;
        };
        let fits = |bytes| bytes <= LONGEST_REST;
        if !rc.next_queued().is_some_and(fits) {
            return false;
        }
        if !locked.short_rings.is_open() {
            self.seek_short_ring(locked);
        }
        locked.short_rings.is_open()
    }

    /// Sends the SEND that is queued next by the short ring, if that is its way.
    pub(in crate::objects::qp) fn send_queued(&self, locked: &mut Locked) -> QueuedSend {
        let Locked {
            transport: Transport::Rc(rc),
            short_rings,
            memos: [from, _],
            room,
            ..
        } = locked
        else {
            return QueuedSend::Otherwise;
        };
        let mut opens = Remembering {
            qp: self,
            memo: from,
        };
        let Some(message) = rc.prepare_queued(&mut opens) else {
            // The window opens as what is under way is acknowledged: until it has room for all of
            // the message, or nothing is under way.
            let waits = rc.is_unanswered() && !rc.owes_answers();
            return if waits {
                QueuedSend::Waits
            } else {
                QueuedSend::Otherwise
            };
        };
        let (packets, bytes) = (message.packets, message.body.len());
        match short_rings.push_whole(&message, room, |_| None) {
            Ok(()) => {}
            // What it owes to the peer's requests goes by the ring, and what is queued with it.
            Err(ShortRingRefusal::Full) if !rc.owes_answers() => return QueuedSend::Waits,
            Err(ShortRingRefusal::Full) => return QueuedSend::Otherwise,
            Err(ShortRingRefusal::Unmapped | ShortRingRefusal::Broken) => {
                return QueuedSend::Otherwise;
            }
        }
        rc.commit_queued();
        self.wake_receiver(short_rings);
        self.note_packets(locked, Carrier::ShortRing);
        QueuedSend::Sent(packets as usize, Bth::LEN * packets as usize + bytes)
    }

    fn offer_short_ring(&self, link: &Arc<Outgoing>, to: Qpn) -> Option<Box<Sending>> {
        let (sender, number) = link.take_short_ring()?;
        let eye = Eye::new(sender.area(), RingEnd::Sending);
        let out = Box::new(Sending {
            seen: sender.position(),
            looked_at: sender.position(),
            sender,
            link: Arc::clone(link),
            eye: Arc::clone(&eye),
            stage: RunStage::Offered(number),
            known: None,
            longer: VecDeque::new(),
            next: None,
            late: LateWake::default(),
        });
        let notice = self.notice(&out, to, ShortRingEvent::Offer(number));
        if !link.say_of_short_ring(notice) {
            return None;
        }
        let process_slot = slot_of(to);
        self.services()
            .watch_short_ring(Watch::new(self.me(), process_slot, eye));
        Some(out)
    }

    fn begin_run(&self, out: &mut Sending, to: Qpn) {
        let at = out.sender.begin_run();
        (out.known, out.next, out.seen) = (None, None, at);
        out.longer.clear();
        out.stage = RunStage::Idle;
        out.eye.look_at(Some(at));
        if out
            .link
            .say_of_short_ring(self.notice(out, to, ShortRingEvent::Run(at)))
        {
            out.stage = RunStage::Runs;
            self.services().expect_idle_short_rings();
        }
    }

    fn notice(&self, out: &Sending, to: Qpn, word: ShortRingEvent) -> ShortRingNotice {
        ShortRingNotice {
            short_ring: out.sender.short_ring(),
            from: self.qpn,
            to,
            word,
        }
    }
}
