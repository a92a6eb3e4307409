//! READs and atomics of the peer.

use alloc::collections::VecDeque;

use super::IwQp;
use super::end::{StreamRefusal, StreamStop};
use crate::iwarp::ddp::Untagged;
use crate::iwarp::rdmap::{AtomicOp, AtomicRequest, AtomicResponse, ReadRequest};
use crate::iwarp::terminate::Violation;
use crate::mr::{Access, RightsError};
use crate::rc::{Cx, MAX_MESSAGE};
use crate::verbs::QpEvent;

/// A request that is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serve {
    Read(ReadRequest),
    /// An atomic, carried out when it came.
    Atomic(AtomicResponse),
}

/// Requests that were not answered completely, oldest first; never more than the IRD.
#[derive(Debug, Default)]
pub(super) struct ServeQueue(VecDeque<Serve>);

impl ServeQueue {
    pub(super) fn front(&self) -> Option<&Serve> {
        self.0.front()
    }

    pub(super) fn pop(&mut self) {
        self.0.pop_front();
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl IwQp {
    /// A READ or atomic request, whose number was right.
    pub(super) fn on_request(
        &mut self,
        cx: &Cx<'_>,
        header: &Untagged,
        payload: &[u8],
    ) -> Result<(), StreamStop> {
        let is_atomic = header.opcode.is_extension();
        let len = if is_atomic {
            AtomicRequest::LEN
        } else {
            ReadRequest::LEN
        };
        // The buffers of this queue have the length of a request (RFC 5040, 5.2).
        if payload.len() > len || payload.len() == len && !header.last {
            return Err(Violation::TooLong.into());
        }
        if payload.len() < len {
            return Err(Violation::MalformedRequest.into());
        }
        if self.serves.0.len() >= usize::from(self.shared.attr.max_dest_rd_atomic) {
            return Err(StreamRefusal::of_request(Violation::TooManyReads).into());
        }
        let serve = if is_atomic {
            self.run_atomic(cx, payload)?
        } else {
            self.check_read(cx, payload)?
        };
        self.serves.0.push_back(serve);
        Ok(())
    }

    fn check_read(&self, cx: &Cx<'_>, payload: &[u8]) -> Result<Serve, StreamStop> {
        let request = ReadRequest::parse(payload).ok_or(Violation::MalformedRequest)?;
        let refuse = |violation| StreamRefusal::of_read(violation, payload);
        let (to, len) = (request.source_to, request.length);
        if len > 0 {
            if len > MAX_MESSAGE {
                return Err(refuse(Violation::SourceBounds).into());
            }
            to.checked_add(len.into())
                .ok_or_else(|| refuse(Violation::SourceWrap))?;
            let need = Access::REMOTE_READ;
            if !self.shared.attr.qp_access_flags.contains(need) {
                return Err(refuse(Violation::AccessRights).into());
            }
            let by = self.accessor();
            cx.rights
                .open_remote(request.source_stag, by, to, len.into(), need)
                .map_err(|error| refuse(violation(error)))?;
        }
        Ok(Serve::Read(request))
    }

    fn run_atomic(&self, cx: &Cx<'_>, payload: &[u8]) -> Result<Serve, StreamStop> {
        let refuse = |violation| StreamStop::from(StreamRefusal::of_request(violation));
        let request =
            AtomicRequest::parse(payload).ok_or_else(|| refuse(Violation::MalformedRequest))?;
        let need = Access::REMOTE_ATOMIC;
        if !self.shared.attr.qp_access_flags.contains(need) {
            return Err(refuse(Violation::AccessRights));
        }
        let by = self.accessor();
        let span = cx
            .rights
            .open_remote(request.stag, by, request.to, 8, need)
            .map_err(|error| refuse(violation(error)))?;
        // With an iova of its own a region may be aligned for the peer and not in memory.
        if request.to % 8 != 0 || span.addr() % 8 != 0 {
            return Err(refuse(Violation::MalformedRequest));
        }
        let original = match request.op {
            AtomicOp::FetchAdd { add } => cx.memory.fetch_add(span, add),
            AtomicOp::CompareSwap { compare, swap } => cx.memory.compare_swap(span, compare, swap),
        };
        let id = request.id;
        let original = original.map_err(|_| StreamStop::UNMAPPED)?;
        Ok(Serve::Atomic(AtomicResponse { id, original }))
    }
}

/// Why memory that the peer reads cannot be opened any more.
pub(super) fn refusal(error: RightsError) -> StreamRefusal {
    StreamRefusal::of_request(violation(error))
}

/// What a READ or an atomic breaks by a key (RFC 5040, 7.2).
const fn violation(error: RightsError) -> Violation {
    match error {
        RightsError::WrongPd(_) | RightsError::WrongQp(_) => Violation::SourceNotAssociated,
        RightsError::OutOfBounds { .. } => Violation::SourceBounds,
        RightsError::Access { .. } => Violation::AccessRights,
        RightsError::Unmapped(_) | RightsError::Bind(_) => Violation::LocalCatastrophic,
        RightsError::UnknownKey(_) | RightsError::NotInvalidatable(_) => Violation::SourceStag,
    }
}

impl StreamRefusal {
    /// A request that cannot be served.
    fn of_request(violation: Violation) -> Self {
        Self {
            event: Some(QpEvent::RequestError),
            ..Self::new(violation)
        }
    }

    /// A READ that cannot be served: the peer sees its request again.
    fn of_read(violation: Violation, request: &[u8]) -> Self {
        Self {
            rdmap: request.to_vec(),
            ..Self::of_request(violation)
        }
    }
}
