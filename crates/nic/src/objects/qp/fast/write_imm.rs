//! Short WRITEs with immediate by a short ring: from what the program posts into a slot, and from
//! there to where they go.
//!
//! They complete by the peer's acknowledgement, never early: what a peer promises of its next
//! message is about its receive, and says nothing of the memory that a WRITE names.

use ferroce_os::memory::RawMemory;
use ferroce_os::ring::{LONGEST_IN_SLOT, ShortRingReceiver, WaitingMessage};
use ferroce_proto::rc::{FastOutcome, RcQp};
use ferroce_proto::verbs::SendWr;
use ferroce_proto::wire::{BriefSend, BriefWriteImm, Bth};

use super::early_completion::PostedReceives;
use super::prepare::look;
use crate::objects::qp::Qp;
use crate::objects::qp::fast::rights_cache::Remembering;
use crate::objects::qp::locked::Locked;
use crate::objects::qp::results::Results;
use crate::objects::qp::transport::Transport;

impl Qp {
    /// Puts a WRITE with immediate that is not posted yet into the short ring, as
    /// [`put_fast`](Self::put_fast) does with a SEND. Returns whether it is there: then
    /// [`commit_fast`](Self::commit_fast) is to be called. If not, nothing has happened.
    #[inline(never)]
    pub(in crate::objects::qp) fn put_write_imm(&self, locked: &mut Locked, wr: &SendWr) -> bool {
        if !locked.short_rings.is_open() {
            return false;
        }
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
            return false;
        };
        let Some(common) = eligibility.sends() else {
            return false;
        };
        let mut opens = Remembering {
            qp: self,
            memo: from,
        };
        let prepared = rc.prepare_write_imm(common, (&mut opens, &RawMemory), wr, room);
        let Some((head, rest)) = prepared else {
            return false;
        };
        let receives = PostedReceives {
            qp: self,
            rc,
            memo: into,
        };
        let takes = eligibility.takes();
        let early_limit = |next| takes.then(|| receives.early_limit(next)).flatten();
        if !short_rings.push((head, rest), early_limit) {
            return false;
        }
        short_rings.wake(self.services().looks_again());
        self.tally.count_tx(1, Bth::LEN + rest.len());
        short_rings.look_ahead(&receives);
        true
    }
}

/// Takes what is in a slot, if it is a WRITE with immediate and all is as usual with it. If it is
/// taken, `receiver` is still to pass it.
#[inline(never)]
pub(super) fn take_write_imm(
    rc: &mut RcQp,
    (receiver, waiting): (&ShortRingReceiver, WaitingMessage),
    opens: &mut Remembering<'_>,
    sink: &mut Results<'_, '_>,
) -> FastOutcome {
    let mut room = [0; LONGEST_IN_SLOT];
    let Some(rest) = room.get_mut(..waiting.rest) else {
        return FastOutcome::Unusual;
    };
    receiver.copy_out(waiting, rest);
    let Some(write) = BriefWriteImm::parse(receiver.head(waiting), rest, opens.qp.qpn) else {
        return FastOutcome::Unusual;
    };
    // That it is taken is said by the short ring itself.
    let message = BriefSend {
        ack_req: false,
        ..write.message
    };
    let write = BriefWriteImm { message, ..write };
    rc.take_write_imm((opens, &RawMemory), sink, &write)
}
