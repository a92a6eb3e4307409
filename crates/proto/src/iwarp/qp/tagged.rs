//! WRITEs of the peer, and its answers to READs and atomics of this end.

use super::IwQp;
use super::end::{StreamRefusal, StreamStop};
use super::sends::{ResponseKind, WorkFault};
use crate::iwarp::ddp::{Tagged, Untagged};
use crate::iwarp::rdmap::AtomicResponse;
use crate::iwarp::terminate::Violation;
use crate::mr::{Access, RightsError};
use crate::rc::fault::Fault;
use crate::rc::{Cx, scatter};
use crate::verbs::{Payload, QpEvent};

impl IwQp {
    /// A segment of a WRITE. Without bytes its `STag` means nothing (RFC 5040, 5.2).
    pub(super) fn on_write(
        &mut self,
        cx: &mut Cx<'_>,
        header: &Tagged,
        payload: &[u8],
    ) -> Result<(), StreamStop> {
        if !payload.is_empty() {
            self.place_write(cx, header, payload)?;
        }
        let receives = &mut self.receives;
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        receives.writing = receives.writing.saturating_add(len);
        if header.last {
            receives.wrote = core::mem::take(&mut receives.writing);
        }
        Ok(())
    }

    fn place_write(&self, cx: &Cx<'_>, header: &Tagged, payload: &[u8]) -> Result<(), StreamStop> {
        let refuse = |violation| {
            StreamStop::from(StreamRefusal {
                event: Some(QpEvent::AccessError),
                ..StreamRefusal::new(violation)
            })
        };
        let len = payload.len() as u64;
        if header.to.checked_add(len).is_none() {
            return Err(refuse(Violation::TaggedWrap));
        }
        let need = Access::REMOTE_WRITE;
        if !self.shared.attr.qp_access_flags.contains(need) {
            return Err(refuse(Violation::AccessRights));
        }
        let by = self.accessor();
        let span = cx
            .rights
            .open_remote(header.stag, by, header.to, len, need)
            .map_err(|error| refuse(violation(error)))?;
        cx.memory
            .write(span, payload)
            .map_err(|_| StreamStop::UNMAPPED)
    }

    /// A segment of a READ response. Only the answer to the oldest request may come, and it goes to
    /// the memory of that work request whatever else its `STag` might open: local write access
    /// suffices.
    pub(super) fn on_read_response(
        &mut self,
        cx: &mut Cx<'_>,
        header: &Tagged,
        payload: &[u8],
    ) -> Result<(), StreamStop> {
        let Some(asked) = self.sends.asked.front_mut() else {
            return Err(Violation::UnexpectedOpcode.into());
        };
        let serial = asked.serial;
        let ResponseKind::Read {
            stag,
            to,
            length,
            received,
        } = &mut asked.answer
        else {
            return Err(Violation::UnexpectedOpcode.into());
        };
        if header.stag != *stag {
            return Err(Violation::TaggedStag.into());
        }
        let offset = *received;
        let len = u32::try_from(payload.len()).ok();
        let after = len.and_then(|len| offset.checked_add(len));
        let after = after.filter(|after| {
            // It ends with its last byte, not before and not behind.
            header.to == to.wrapping_add(offset.into())
                && *after <= *length
                && header.last == (*after == *length)
        });
        *received = after.ok_or(Violation::TaggedBounds)?;
        if let Some(serial) = serial {
            self.place_answer(cx, serial, offset, payload)?;
        }
        if header.last {
            self.on_answered(cx, serial)?;
        }
        Ok(())
    }

    /// An atomic response, whose number was right.
    pub(super) fn on_atomic_response(
        &mut self,
        cx: &mut Cx<'_>,
        header: &Untagged,
        payload: &[u8],
    ) -> Result<(), StreamStop> {
        if payload.len() > AtomicResponse::LEN || !header.last {
            return Err(Violation::TooLong.into());
        }
        let response = AtomicResponse::parse(payload).ok_or(Violation::MalformedRequest)?;
        let asked = self.sends.asked.front();
        let asked = asked.filter(|asked| asked.answer == ResponseKind::Atomic { id: response.id });
        let serial = asked.ok_or(Violation::UnexpectedOpcode)?.serial;
        if let Some(serial) = serial {
            self.place_answer(cx, serial, 0, &response.original.to_ne_bytes())?;
        }
        self.on_answered(cx, serial)
    }

    /// Puts bytes of an answer into the list of their work request.
    fn place_answer(
        &self,
        cx: &Cx<'_>,
        serial: u64,
        offset: u32,
        data: &[u8],
    ) -> Result<(), StreamStop> {
        let Some(Payload::Sges(sges)) = self.sends.get(serial).map(|wqe| &wqe.wr.payload) else {
            return Ok(());
        };
        let pd = self.shared.config.pd;
        scatter::scatter(cx, pd, sges, offset.into(), data)
            .map_err(|_| StreamStop::Send(WorkFault::Of(serial, Fault::LOCAL_KEY)))
    }

    /// The oldest request was answered.
    fn on_answered(&mut self, cx: &mut Cx<'_>, serial: Option<u64>) -> Result<(), StreamStop> {
        self.sends.asked.pop_front();
        let Some(serial) = serial else { return Ok(()) };
        self.sends
            .done(&self.shared, cx.sink, serial)
            .map_err(StreamStop::Send)
    }
}

/// What a WRITE breaks by a key (RFC 5041, 7.1; for the rights, which DDP does not know, RFC 5040,
/// 7.2).
const fn violation(error: RightsError) -> Violation {
    match error {
        RightsError::WrongPd(_) | RightsError::WrongQp(_) => Violation::TaggedNotAssociated,
        RightsError::OutOfBounds { .. } => Violation::TaggedBounds,
        RightsError::Access { .. } => Violation::AccessRights,
        RightsError::Unmapped(_) | RightsError::Bind(_) => Violation::LocalCatastrophic,
        RightsError::UnknownKey(_) | RightsError::NotInvalidatable(_) => Violation::TaggedStag,
    }
}
