//! SENDs and immediates into receives.

use super::IwQp;
use super::end::{StreamRefusal, StreamStop};
use super::receive::ReceiveInHand;
use crate::ids::Key;
use crate::iwarp::ddp::Untagged;
use crate::iwarp::rdmap::{Immediate, Opcode};
use crate::iwarp::terminate::Violation;
use crate::rc::fault::{Cause, Fault};
use crate::rc::responder::recv_completion;
use crate::rc::{Cx, MAX_MESSAGE, Noted, scatter, total};
use crate::verbs::{Wc, WcImm, WcOpcode, WcStatus};

/// The SEND in work.
#[derive(Clone, Copy, Debug)]
pub(super) struct UntaggedMessage {
    opcode: Opcode,
    invalidate: Key,
    immediate: Option<Immediate>,
    /// Offset of the segment that comes next.
    pub(super) next: u32,
    /// Bytes in the receive.
    pub(super) placed: u32,
}

impl UntaggedMessage {
    /// Whether a segment is of this message, and goes on with its payload: all segments of a
    /// message have one opcode and one `STag` (RFC 5040, 5.1).
    pub(super) fn goes_on_with(&self, header: &Untagged) -> bool {
        (self.opcode, self.invalidate) == (header.opcode, header.invalidate)
    }
}

impl IwQp {
    /// A segment of queue 0, whose number and offset were right.
    pub(super) fn on_send(
        &mut self,
        cx: &mut Cx<'_>,
        header: &Untagged,
        payload: &[u8],
    ) -> Result<(), StreamStop> {
        let (mut message, data) = match self.receives.message {
            Some(message) => (message, payload),
            None => begin(header, payload)?,
        };
        if !message.goes_on_with(header) {
            return Err(Violation::UnexpectedOpcode.into());
        }
        if message.immediate.is_some_and(|imm| imm.of_write) && !(data.is_empty() && header.last) {
            return Err(Violation::TooLong.into());
        }
        self.hold_receive(cx)?;
        self.place(cx, &message, data)?;
        let too_long = |_| StreamStop::from(Violation::TooLong);
        message.placed += u32::try_from(data.len()).map_err(too_long)?;
        message.next = u32::try_from(payload.len())
            .ok()
            .and_then(|len| message.next.checked_add(len))
            .ok_or(Violation::TooLong)?;
        self.receives.message = Some(message);
        if header.last {
            self.receives.message = None;
            self.complete(cx, &message)?;
        }
        Ok(())
    }

    /// Makes sure that a receive is held. iWARP knows no waiting: without one the stream ends.
    pub(super) fn hold_receive(&mut self, cx: &mut Cx<'_>) -> Result<(), StreamStop> {
        if self.receives.held.is_some() {
            return Ok(());
        }
        let config = &self.shared.config;
        let held = if config.shared_recv {
            let shared = cx.sink.take_shared_recv();
            shared.map(|recv| ReceiveInHand {
                wr: recv.wr,
                pd: recv.pd,
            })
        } else {
            let pd = config.pd;
            self.receives.pop().map(|wr| ReceiveInHand { wr, pd })
        };
        self.receives.held = Some(held.ok_or(Violation::NoBuffer)?);
        Ok(())
    }

    /// Puts data into the receive in hand.
    fn place(&self, cx: &Cx<'_>, message: &UntaggedMessage, data: &[u8]) -> Result<(), StreamStop> {
        let Some(held) = &self.receives.held else {
            return Err(Violation::NoBuffer.into());
        };
        let room = total(&held.wr.sges).min(MAX_MESSAGE.into());
        let placed = u64::from(message.placed);
        if placed + data.len() as u64 > room {
            return Err(
                StreamRefusal::of_receive(Violation::TooLong, Fault::MESSAGE_TOO_LONG).into(),
            );
        }
        scatter::scatter(cx, held.pd, &held.wr.sges, placed, data).map_err(|_| {
            StreamRefusal::of_receive(Violation::LocalCatastrophic, Fault::LOCAL_KEY).into()
        })
    }

    /// The message is complete.
    fn complete(&mut self, cx: &mut Cx<'_>, message: &UntaggedMessage) -> Result<(), StreamStop> {
        if message.opcode.invalidates() {
            let (key, by) = (message.invalidate, self.accessor());
            if cx.rights.invalidate(key, by).is_err() {
                let fault = Fault::new(WcStatus::RemInvReqErr, Cause::RemoteInvalidateFailed);
                return Err(StreamRefusal::of_receive(Violation::CannotInvalidate, fault).into());
            }
            cx.sink.invalidated(key);
        }
        let Some(held) = self.receives.held.take() else {
            return Ok(());
        };
        let imm = message.immediate;
        let (opcode, byte_len) = match imm {
            Some(Immediate { of_write: true, .. }) => {
                (WcOpcode::RecvRdmaWithImm, self.receives.wrote)
            }
            _ => (WcOpcode::Recv, message.placed),
        };
        let imm = match imm {
            Some(imm) => Some(WcImm::Imm(imm.data)),
            None if message.opcode.invalidates() => Some(WcImm::Invalidated(message.invalidate)),
            None => None,
        };
        let wc = Wc {
            opcode,
            byte_len,
            imm,
            ..recv_completion(&self.shared, &held.wr)
        };
        if opcode == WcOpcode::Recv {
            cx.sink.note(Noted::Received);
        }
        if cx.sink.recv_completion(wc, message.opcode.is_solicited()) {
            Ok(())
        } else {
            Err(StreamStop::CQ_OVERFLOW)
        }
    }
}

/// The first segment of a message, and its data.
fn begin<'a>(
    header: &Untagged,
    payload: &'a [u8],
) -> Result<(UntaggedMessage, &'a [u8]), Violation> {
    let is_immediate = header.opcode.is_extension();
    let (immediate, data) = if is_immediate {
        let (immediate, data) = Immediate::parse(payload).ok_or(Violation::MalformedRequest)?;
        (Some(immediate), data)
    } else {
        (None, payload)
    };
    let message = UntaggedMessage {
        opcode: header.opcode,
        invalidate: header.invalidate,
        immediate,
        next: 0,
        placed: 0,
    };
    Ok((message, data))
}

impl StreamRefusal {
    /// A message that the receive in hand cannot take.
    fn of_receive(violation: Violation, fault: Fault) -> Self {
        Self {
            recv: Some(fault),
            ..Self::new(violation)
        }
    }
}
