//! Checks of a work request before it is queued.

use super::config::{MAX_MESSAGE, QpShared};
use super::send_queue::payload_len;
use crate::verbs::{Flush, Payload, PostError, QpState, QpType, SendOp, SendTo, SendWr};

/// Checks a send work request, with `queued` ones before it.
#[inline]
pub(crate) fn check_send(shared: &QpShared, wr: &SendWr, queued: usize) -> Result<(), PostError> {
    let (attr, cap) = (&shared.attr, &shared.config.cap);
    // `PostError` has the errno that ibv_post_send(3) returns for each.
    check_receiver(shared.config.qp_type, wr)?;
    // IBTA volume 1, 10.3: before RTS nothing may be posted; in ERR it completes as flushed.
    if !matches!(
        attr.qp_state,
        QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err
    ) {
        return Err(PostError::State(attr.qp_state));
    }
    if queued >= cap.max_send_wr as usize {
        return Err(PostError::QueueFull(cap.max_send_wr));
    }
    match &wr.payload {
        Payload::Sges(sges) if sges.len() > cap.max_send_sge as usize => {
            return Err(PostError::TooManySges {
                got: sges.len(),
                max: cap.max_send_sge,
            });
        }
        // The 8 bytes of an atomic write always fit.
        Payload::Inline(bytes)
            if bytes.len() > cap.max_inline_data as usize
                && !matches!(wr.op, SendOp::AtomicWrite(_)) =>
        {
            return Err(PostError::InlineTooLong {
                got: bytes.len(),
                max: cap.max_inline_data,
            });
        }
        _ => {}
    }
    let length = payload_len(&wr.payload);
    // IBTA volume 1, chapter 9: a message has at most 2^31 bytes.
    if length > u64::from(MAX_MESSAGE) {
        return Err(PostError::TooLong(length));
    }
    check_operation(shared, wr, length)
}

/// Whether the queue pair sends at all, and whether the work request names the kind of receiver
/// that its type has.
#[inline]
fn check_receiver(qp_type: QpType, wr: &SendWr) -> Result<(), PostError> {
    let is_local = matches!(wr.op, SendOp::LocalInvalidate(_) | SendOp::BindWindow(_));
    match (qp_type, wr.to) {
        (QpType::XrcRecv, _) => Err(PostError::Invalid("an XRC target has no send queue")),
        _ if is_local => Ok(()),
        (QpType::XrcSend, SendTo::XrcSrq(_))
        | (QpType::Ud, SendTo::Datagram(_))
        | (QpType::Rc | QpType::Uc, SendTo::Peer) => Ok(()),
        (QpType::XrcSend, _) => Err(PostError::Invalid(
            "an XRC work request names the peer's shared receive queue",
        )),
        _ => Err(PostError::Invalid(
            "the work request names a receiver, but the queue pair is connected to its peer",
        )),
    }
}

/// Checks that belong to single operations.
#[inline]
fn check_operation(shared: &QpShared, wr: &SendWr, length: u64) -> Result<(), PostError> {
    let is_atomic = matches!(wr.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
    if matches!(wr.op, SendOp::AtomicWrite(_)) {
        // IBTA annex A19: an ATOMIC WRITE has 8 bytes.
        if length != 8 || shared.config.qp_type != QpType::Rc {
            return Err(PostError::Invalid(
                "an atomic write is of 8 bytes, on a reliable connection",
            ));
        }
        return check_depth(shared);
    }
    if let SendOp::Flush(flush) = &wr.op {
        check_flush(shared.config.qp_type, flush, length)?;
        return check_depth(shared);
    }
    if !is_atomic && !matches!(wr.op, SendOp::Read(_)) {
        return Ok(());
    }
    // IBV_SEND_INLINE is for SEND and WRITE only (ibv_post_send(3)).
    if matches!(wr.payload, Payload::Inline(_)) {
        return Err(PostError::Invalid(
            "READ and atomics have no data to send inline",
        ));
    }
    // The answer is written as one number of 8 bytes.
    if is_atomic && length < 8 {
        return Err(PostError::Invalid(
            "the result of an atomic takes 8 bytes of local buffer",
        ));
    }
    check_depth(shared)
}

fn check_flush(qp_type: QpType, flush: &Flush, payload: u64) -> Result<(), PostError> {
    if qp_type != QpType::Rc {
        return Err(PostError::Invalid("a flush needs a reliable connection"));
    }
    // IBTA annex A19: a FLUSH has one placement type, or both.
    if flush.placement.is_empty() {
        return Err(PostError::Invalid(
            "a flush is to global visibility, to persistence or to both",
        ));
    }
    if payload > 0 {
        return Err(PostError::Invalid("a flush has no data of its own"));
    }
    if flush.length > MAX_MESSAGE {
        return Err(PostError::TooLong(flush.length.into()));
    }
    Ok(())
}

/// Whether the queue pair may have READs and atomics outstanding.
fn check_depth(shared: &QpShared) -> Result<(), PostError> {
    // With a depth of 0 the request would wait for ever. In ERR it is flushed, not sent.
    if shared.attr.max_rd_atomic == 0 && shared.attr.qp_state != QpState::Err {
        return Err(PostError::Invalid(
            "READ and atomics need max_rd_atomic above 0",
        ));
    }
    Ok(())
}

/// Checks a receive work request, with `queued` ones before it.
pub(crate) fn check_recv(shared: &QpShared, sges: usize, queued: usize) -> Result<(), PostError> {
    let cap = &shared.config.cap;
    if shared.config.qp_type == QpType::XrcSend {
        return Err(PostError::Invalid("an XRC initiator has no receive queue"));
    }
    // ibv_post_recv(3): the shared receive queue has the receives (ibv_post_srq_recv(3)).
    if shared.config.takes_shared() {
        return Err(PostError::Invalid(
            "the queue pair takes receives from its shared receive queue",
        ));
    }
    // IBTA volume 1, 10.3: receives may be posted from INIT on.
    if shared.attr.qp_state == QpState::Reset {
        return Err(PostError::State(QpState::Reset));
    }
    if queued >= cap.max_recv_wr as usize {
        return Err(PostError::QueueFull(cap.max_recv_wr));
    }
    if sges > cap.max_recv_sge as usize {
        return Err(PostError::TooManySges {
            got: sges,
            max: cap.max_recv_sge,
        });
    }
    Ok(())
}
