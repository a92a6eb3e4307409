//! Answers that need no conversation.

use crate::mad::{Answered, CmMad, Drep, Message, Rej, RejReason, Req, SidrRep, SidrStatus};

/// The answer to a message for a conversation that does not exist. A DREQ gets a DREP: the
/// connection is gone, as asked. A REP gets a rejection, so that a peer whose partner died need not
/// run out of retries. Everything else gets nothing.
#[must_use]
pub fn answer_unknown(mad: &CmMad) -> Option<CmMad> {
    let message = match &mad.message {
        Message::Dreq(dreq) => Message::Drep(Drep {
            local_comm_id: dreq.remote_comm_id,
            remote_comm_id: dreq.local_comm_id,
            ..Drep::default()
        }),
        Message::Rep(rep) => Message::Rej(Rej {
            local_comm_id: rep.remote_comm_id,
            remote_comm_id: rep.local_comm_id,
            answered: Answered::Rep,
            ..Rej::new(RejReason::INVALID_COMM_ID)
        }),
        _ => return None,
    };
    Some(CmMad {
        tid: mad.tid,
        message,
    })
}

/// The answer to a request for a service that is not offered. Everything else gets nothing.
#[must_use]
pub fn answer_unoffered(mad: &CmMad) -> Option<CmMad> {
    match &mad.message {
        Message::Req(req) => Some(reject_request(mad.tid, req, RejReason::INVALID_SERVICE_ID)),
        Message::SidrReq(request) => {
            let rep = SidrRep::refusal(request, SidrStatus::UNSUPPORTED);
            Some(CmMad {
                tid: mad.tid,
                message: Message::SidrRep(rep),
            })
        }
        _ => None,
    }
}

/// Rejects a request that no conversation was made for.
pub(super) fn reject_request(tid: u64, req: &Req, reason: RejReason) -> CmMad {
    let rej = Rej {
        remote_comm_id: req.local_comm_id,
        answered: Answered::Req,
        ..Rej::new(reason)
    };
    CmMad {
        tid,
        message: Message::Rej(rej),
    }
}
