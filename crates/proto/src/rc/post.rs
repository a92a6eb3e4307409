//! What a work request must fulfil to be queued.

use super::config::{MAX_MESSAGE, Shared};
use super::send_queue::payload_len;
use crate::verbs::{Payload, PostError, QpState, RecvWr, SendOp, SendWr};

/// Checks a send work request, with `queued` ones before it.
pub(super) fn check_send(shared: &Shared, wr: &SendWr, queued: usize) -> Result<(), PostError> {
    let (attr, cap) = (&shared.attr, &shared.config.cap);
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
        Payload::Inline(bytes) if bytes.len() > cap.max_inline_data as usize => {
            return Err(PostError::InlineTooLong {
                got: bytes.len(),
                max: cap.max_inline_data,
            });
        }
        _ => {}
    }
    let length = payload_len(&wr.payload);
    if length > u64::from(MAX_MESSAGE) {
        return Err(PostError::TooLong(length));
    }
    check_operation(shared, wr, length)
}

/// Checks that belong to single operations.
fn check_operation(shared: &Shared, wr: &SendWr, length: u64) -> Result<(), PostError> {
    let is_atomic = matches!(wr.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
    if !is_atomic && !matches!(wr.op, SendOp::Read(_)) {
        return Ok(());
    }
    if matches!(wr.payload, Payload::Inline(_)) {
        return Err(PostError::Invalid(
            "READ and atomics have no data to send inline",
        ));
    }
    if is_atomic && length < 8 {
        return Err(PostError::Invalid(
            "the result of an atomic takes 8 bytes of local buffer",
        ));
    }
    if shared.attr.max_rd_atomic == 0 && shared.attr.qp_state != QpState::Err {
        return Err(PostError::Invalid(
            "READ and atomics need max_rd_atomic above 0",
        ));
    }
    Ok(())
}

/// Checks a receive work request, with `queued` ones before it.
pub(super) fn check_recv(shared: &Shared, wr: &RecvWr, queued: usize) -> Result<(), PostError> {
    let cap = &shared.config.cap;
    if shared.config.shared_recv {
        return Err(PostError::Invalid(
            "the queue pair takes receives from its shared receive queue",
        ));
    }
    if shared.attr.qp_state == QpState::Reset {
        return Err(PostError::State(QpState::Reset));
    }
    if queued >= cap.max_recv_wr as usize {
        return Err(PostError::QueueFull(cap.max_recv_wr));
    }
    if wr.sges.len() > cap.max_recv_sge as usize {
        return Err(PostError::TooManySges {
            got: wr.sges.len(),
            max: cap.max_recv_sge,
        });
    }
    Ok(())
}
