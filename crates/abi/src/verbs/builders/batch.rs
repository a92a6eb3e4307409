//! Work requests under construction.

use ferroce_nic::{Error, Qp};
use ferroce_proto::verbs::{
    InlineData, Payload, PlainPayload, PlainSend, SendFlags, SendOp, SendTo, SendWr, Sge, Sges,
};

use crate::errno::invalid;
use crate::verbs::wr::SHORT;

const NOTHING_BEGUN: &str = "a setter needs a work request begun before";

/// Work requests under construction. One by itself, which most are, is not made into a list.
pub(super) struct Batch {
    /// The only work request, as long as that is a SEND to the peer from one place.
    plain: Option<Plain>,
    /// Inline data of the work request, if short.
    room: [u8; SHORT],
    wrs: Vec<SendWr>,
    /// The first mistake; it voids the batch.
    refused: Option<Error>,
}

/// A SEND to the peer.
#[derive(Clone, Copy)]
struct Plain {
    wr_id: u64,
    /// Without [`SendFlags::INLINE`].
    flags: SendFlags,
    from: From,
}

impl Plain {
    /// All of its flags. They are not changed in their place: the processor waits if a word is read
    /// of which a byte was just written.
    #[inline]
    fn flags(&self) -> SendFlags {
        match self.from {
            From::Room(_) => self.flags | SendFlags::INLINE,
            From::Nowhere | From::Sge(_) => self.flags,
        }
    }
}

/// Where its bytes are.
#[derive(Clone, Copy)]
enum From {
    /// The work request has no data so far.
    Nowhere,
    Sge(Sge),
    /// Number of bytes in the batch's room.
    Room(usize),
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            plain: None,
            room: [0; SHORT],
            wrs: Vec::new(),
            refused: None,
        }
    }
}

impl Batch {
    /// Empties the batch.
    pub(super) fn clear(&mut self) {
        self.plain = None;
        self.wrs.clear();
        self.refused = None;
    }

    /// Notes the first mistake.
    pub(super) fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
    }

    /// Begins a SEND.
    #[inline]
    pub(super) fn begin_send(&mut self, wr_id: u64, flags: SendFlags) {
        if self.plain.is_none() && self.wrs.is_empty() {
            let from = From::Nowhere;
            self.plain = Some(Plain { wr_id, flags, from });
        } else {
            self.begin(wr_id, SendOp::Send, flags);
        }
    }

    /// Begins a work request.
    pub(super) fn begin(&mut self, wr_id: u64, op: SendOp, flags: SendFlags) {
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
    pub(super) fn set_bytes(&mut self, bytes: &[u8]) {
        match self.last() {
            Some(wr) => wr.payload = Payload::Inline(InlineData::from_slice(bytes)),
            None => self.refuse(invalid(NOTHING_BEGUN)),
        }
    }

    /// Gives the work request that was begun last inline data.
    pub(super) fn set_inline(&mut self, data: InlineData) {
        match self.last() {
            Some(wr) => {
                wr.payload = Payload::Inline(data);
                wr.flags |= SendFlags::INLINE;
            }
            None => self.refuse(invalid(NOTHING_BEGUN)),
        }
    }

    /// Room for short inline data, if the only work request may have them there.
    #[inline]
    pub(super) fn room(&mut self) -> Option<&mut [u8; SHORT]> {
        self.plain.as_ref().map(|_| &mut self.room)
    }

    /// The inline data of the only work request are in the room, so many bytes.
    #[inline]
    pub(super) fn set_room(&mut self, len: usize) {
        if let Some(plain) = &mut self.plain {
            plain.from = From::Room(len);
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
            From::Room(len) => PlainPayload::Inline(&self.room[..len]),
        };
        Some(PlainSend {
            wr_id: plain.wr_id,
            flags: plain.flags(),
            payload,
        })
    }

    /// The one that was begun last.
    fn last(&mut self) -> Option<&mut SendWr> {
        self.make_list();
        self.wrs.last_mut()
    }

    /// Goes over to a list: there is more than one work request, or one that is no plain SEND.
    fn make_list(&mut self) {
        let Some(plain) = self.plain.take() else {
            return;
        };
        self.wrs.push(SendWr {
            to: SendTo::Peer,
            wr_id: plain.wr_id,
            op: SendOp::Send,
            flags: plain.flags(),
            payload: match plain.from {
                From::Nowhere => Payload::Sges(Sges::new()),
                From::Sge(sge) => Payload::Sges(Sges::from_buf([sge])),
                From::Room(len) => Payload::Inline(self.room[..len].into()),
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
            batch.begin_send(*wr_id, SendFlags::SIGNALED);
        }
        batch
    }

    /// Sets inline data as the setters do.
    fn set_inline(batch: &mut Batch, data: &[u8]) {
        match batch.room() {
            Some(room) if data.len() <= SHORT => {
                room[..data.len()].copy_from_slice(data);
                batch.set_room(data.len());
            }
            _ => batch.set_inline(data.into()),
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
        set_inline(&mut batch, b"a long one");
        set_inline(&mut batch, b"short");
        assert_eq!(payload(&batch), Some(PlainPayload::Inline(b"short")));
        assert!(batch.wrs.is_empty());
        batch.clear();
        assert_eq!(payload(&batch), None);
    }

    #[test]
    fn inline_data_that_are_longer_than_the_room_are_in_a_list() {
        for (len, is_plain) in [(SHORT, true), (SHORT + 1, false)] {
            let data = vec![7; len];
            let mut batch = begun(&[1]);
            set_inline(&mut batch, &data);
            assert_eq!(payload(&batch).is_some(), is_plain);
            batch.make_list();
            let [wr] = &batch.wrs[..] else {
                panic!("{} work requests", batch.wrs.len());
            };
            assert_eq!(wr.payload, Payload::Inline(data.into()));
            assert_eq!(wr.flags, SendFlags::SIGNALED | SendFlags::INLINE);
        }
    }

    #[test]
    fn what_was_begun_first_comes_first_in_a_list() {
        let mut batch = begun(&[1]);
        set_inline(&mut batch, b"one");
        batch.begin_send(2, SendFlags::empty());
        batch.set_sge(SGE);
        batch.begin_send(3, SendFlags::empty());
        set_inline(&mut batch, b"three");
        assert_eq!(payload(&batch), None);
        let list: Vec<_> = batch.wrs.iter().map(|wr| (wr.wr_id, &wr.payload)).collect();
        let inline = |bytes: &[u8]| Payload::Inline(bytes.into());
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
            |batch| set_inline(batch, b"early"),
            |batch| batch.set_receiver(SendTo::Peer),
            |batch| batch.set_bytes(&[1; 8]),
        ];
        for set in setters {
            let mut batch = begun(&[]);
            set(&mut batch);
            assert!(batch.refused.is_some());
        }
    }
}
