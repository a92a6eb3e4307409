//! Work requests under construction.

use ferroce_nic::{Error, Qp};
use ferroce_proto::verbs::{
    Payload, PlainPayload, PlainSend, SendFlags, SendOp, SendTo, SendWr, Sge, Sges,
};

use crate::errno::invalid;

const NOTHING_BEGUN: &str = "a setter needs a work request begun before";

/// Work requests under construction. One by itself, which most are, is not made into a list.
#[derive(Default)]
pub(super) struct Batch {
    /// The only one, as long as it is a SEND to the peer from one place.
    plain: Option<Plain>,
    /// Its inline data.
    data: Vec<u8>,
    wrs: Vec<SendWr>,
    /// The first mistake; it voids the batch.
    refused: Option<Error>,
}

/// A SEND to the peer.
#[derive(Clone, Copy)]
struct Plain {
    wr_id: u64,
    flags: SendFlags,
    from: From,
}

/// Where its bytes are.
#[derive(Clone, Copy)]
enum From {
    /// It has none so far.
    Nowhere,
    Sge(Sge),
    /// Copied.
    Inline,
}

impl Batch {
    /// There is nothing in it.
    pub(super) fn clear(&mut self) {
        self.plain = None;
        self.wrs.clear();
        self.refused = None;
    }

    /// Notes the first mistake.
    pub(super) fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
    }

    /// Begins a work request.
    #[inline]
    pub(super) fn begin(&mut self, wr_id: u64, op: SendOp, flags: SendFlags) {
        if op == SendOp::Send && self.plain.is_none() && self.wrs.is_empty() {
            let from = From::Nowhere;
            self.plain = Some(Plain { wr_id, flags, from });
        } else {
            self.begin_another(wr_id, op, flags);
        }
    }

    fn begin_another(&mut self, wr_id: u64, op: SendOp, flags: SendFlags) {
        self.make_list();
        self.wrs.push(SendWr {
            to: SendTo::Peer,
            wr_id,
            op,
            flags,
            payload: Payload::Sges(Sges::new()),
        });
    }

    /// Gives the work request that was begun last its receiver.
    pub(super) fn set_receiver(&mut self, to: SendTo) {
        match self.last() {
            Some(wr) => wr.to = to,
            None => self.refuse(invalid(NOTHING_BEGUN)),
        }
    }

    /// Gives the work request that was begun last one piece of registered memory.
    #[inline]
    pub(super) fn set_sge(&mut self, sge: Sge) {
        match &mut self.plain {
            Some(plain) => plain.from = From::Sge(sge),
            None => self.set_sges(Sges::from_buf([sge])),
        }
    }

    /// Gives the work request that was begun last pieces of registered memory.
    pub(super) fn set_sges(&mut self, sges: Sges) {
        match self.last() {
            Some(wr) => wr.payload = Payload::Sges(sges),
            None => self.refuse(invalid(NOTHING_BEGUN)),
        }
    }

    /// Gives the work request that was begun last bytes that are no inline data to the program.
    pub(super) fn set_bytes(&mut self, bytes: Vec<u8>) {
        match self.last() {
            Some(wr) => wr.payload = Payload::Inline(bytes),
            None => self.refuse(invalid(NOTHING_BEGUN)),
        }
    }

    /// Gives the work request that was begun last data: `copy` appends it.
    #[inline]
    pub(super) fn set_inline(&mut self, copy: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>) {
        if let Some(plain) = &mut self.plain {
            self.data.clear();
            plain.from = From::Inline;
            plain.flags |= SendFlags::INLINE;
            if let Err(e) = copy(&mut self.data) {
                self.refuse(e);
            }
            return;
        }
        let mut data = Vec::new();
        match (copy(&mut data), self.last()) {
            (Ok(()), Some(wr)) => {
                wr.payload = Payload::Inline(data);
                wr.flags |= SendFlags::INLINE;
            }
            (Ok(()), None) => self.refuse(invalid(NOTHING_BEGUN)),
            (Err(e), _) => self.refuse(e),
        }
    }

    /// Posts it, or nothing of it.
    #[inline]
    pub(super) fn post(&mut self, qp: &Qp) -> Result<(), Error> {
        if self.refused.is_none()
            && let Some(send) = self.as_plain()
            && qp.post_plain_send(&send)
        {
            return Ok(());
        }
        self.post_list(qp)
    }

    #[cold]
    fn post_list(&mut self, qp: &Qp) -> Result<(), Error> {
        self.make_list();
        match self.refused.take() {
            Some(e) => Err(e),
            None => qp.post_send_all(&mut self.wrs),
        }
    }

    /// The only one, if it is a plain SEND.
    #[inline]
    fn as_plain(&self) -> Option<PlainSend<'_>> {
        let plain = self.plain.as_ref()?;
        let payload = match plain.from {
            From::Nowhere => return None,
            From::Sge(sge) => PlainPayload::Sge(sge),
            From::Inline => PlainPayload::Inline(&self.data),
        };
        Some(PlainSend {
            wr_id: plain.wr_id,
            flags: plain.flags,
            payload,
        })
    }

    /// The one that was begun last.
    fn last(&mut self) -> Option<&mut SendWr> {
        self.make_list();
        self.wrs.last_mut()
    }

    /// There are more than one, or it is not a plain SEND.
    fn make_list(&mut self) {
        let Some(plain) = self.plain.take() else {
            return;
        };
        self.wrs.push(SendWr {
            to: SendTo::Peer,
            wr_id: plain.wr_id,
            op: SendOp::Send,
            flags: plain.flags,
            payload: match plain.from {
                From::Nowhere => Payload::Sges(Sges::new()),
                From::Sge(sge) => Payload::Sges(Sges::from_buf([sge])),
                From::Inline => Payload::Inline(self.data.clone()),
            },
        });
    }
}

#[cfg(test)]
mod tests {
    use ferroce_proto::ids::{Key, Srqn};

    use super::*;

    const SGE: Sge = Sge {
        addr: 0x1000,
        length: 8,
        lkey: Key(7),
    };

    fn begun(wr_ids: &[u64]) -> Batch {
        let mut batch = Batch::default();
        for wr_id in wr_ids {
            batch.begin(*wr_id, SendOp::Send, SendFlags::SIGNALED);
        }
        batch
    }

    fn append(bytes: &'static [u8]) -> impl FnOnce(&mut Vec<u8>) -> Result<(), Error> {
        move |data| {
            data.extend_from_slice(bytes);
            Ok(())
        }
    }

    fn payload(batch: &Batch) -> Option<PlainPayload<'_>> {
        batch.as_plain().map(|send| send.payload)
    }

    #[test]
    fn one_send_is_plain_and_has_what_it_was_given_last() {
        let mut batch = begun(&[1]);
        assert_eq!(payload(&batch), None, "no data so far");
        batch.set_sge(SGE);
        assert_eq!(payload(&batch), Some(PlainPayload::Sge(SGE)));
        batch.set_inline(append(b"a long one"));
        batch.set_inline(append(b"short"));
        assert_eq!(payload(&batch), Some(PlainPayload::Inline(b"short")));
        assert!(batch.wrs.is_empty());
        batch.clear();
        assert_eq!(payload(&batch), None);
    }

    #[test]
    fn what_was_begun_first_comes_first_in_a_list() {
        let mut batch = begun(&[1]);
        batch.set_inline(append(b"one"));
        batch.begin(2, SendOp::Send, SendFlags::empty());
        batch.set_sge(SGE);
        batch.begin(3, SendOp::Send, SendFlags::empty());
        batch.set_inline(append(b"three"));
        assert_eq!(payload(&batch), None);
        let list: Vec<_> = batch.wrs.iter().map(|wr| (wr.wr_id, &wr.payload)).collect();
        let inline = |bytes: &[u8]| Payload::Inline(bytes.to_vec());
        let expected = [
            (1, &inline(b"one")),
            (2, &Payload::Sges(Sges::from_buf([SGE]))),
            (3, &inline(b"three")),
        ];
        assert_eq!(list, expected);
        let flags: Vec<_> = batch.wrs.iter().map(|wr| wr.flags).collect();
        let first = SendFlags::SIGNALED | SendFlags::INLINE;
        assert_eq!(flags, [first, SendFlags::empty(), SendFlags::INLINE]);
    }

    #[test]
    fn a_send_to_somebody_is_not_plain() {
        let mut batch = begun(&[1]);
        batch.set_sge(SGE);
        batch.set_receiver(SendTo::XrcSrq(Srqn::new(4)));
        assert_eq!(payload(&batch), None);
        assert_eq!(batch.wrs[0].to, SendTo::XrcSrq(Srqn::new(4)));
        assert_eq!(batch.wrs[0].payload, Payload::Sges(Sges::from_buf([SGE])));
    }

    #[test]
    fn nothing_can_be_set_before_something_is_begun() {
        let setters: [fn(&mut Batch); 4] = [
            |batch| batch.set_sge(SGE),
            |batch| batch.set_inline(append(b"early")),
            |batch| batch.set_receiver(SendTo::Peer),
            |batch| batch.set_bytes(vec![1; 8]),
        ];
        for set in setters {
            let mut batch = begun(&[]);
            set(&mut batch);
            assert!(batch.refused.is_some());
        }
    }
}
