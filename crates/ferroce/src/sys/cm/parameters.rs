//! What the two sides tell each other, between C and Rust.

use std::slice;

use ferroce_abi::cm_types::{
    RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_MULTICAST_JOIN,
    RDMA_CM_EVENT_USER, rdma_cm_event, rdma_conn_param,
};

use super::identifier::is_for_datagrams;
use crate::cm::ConnectionParameters;
use crate::qp::Path;
use crate::sys::path_from_c;
use crate::{Error, Result};

/// Where datagrams are to be sent: a queue pair, or a group of them.
pub(crate) struct Service {
    pub(crate) path: Path,
    pub(crate) queue_pair: u32,
    pub(crate) qkey: u32,
}

/// The argument of an event of the program's own, which has no parameters.
pub(super) fn argument(event: &rdma_cm_event) -> Option<u64> {
    if event.event == RDMA_CM_EVENT_USER {
        // SAFETY: events of this kind have the `arg` part, and any bytes are a number.
        Some(unsafe { event.param.arg })
    } else {
        None
    }
}

/// Returns the parameters of an event.
///
/// # Safety
/// An event that was fetched and not acknowledged.
pub(super) unsafe fn of_event(event: &rdma_cm_event) -> (ConnectionParameters, Option<Service>) {
    if event.event == RDMA_CM_EVENT_USER {
        // The program's own number lies where others have the pointer to private data.
        return (ConnectionParameters::default(), None);
    }
    // SAFETY: the event names a live identifier, whose port space was set when it was made.
    let datagrams = unsafe { is_for_datagrams((*event.id).ps) };
    if datagrams {
        // SAFETY: the caller's promise, and an identifier for datagrams.
        unsafe { of_datagrams(event) }
    } else {
        // SAFETY: the caller's promise, and an identifier for connections.
        (unsafe { of_connection(event) }, None)
    }
}

/// # Safety
/// As for [`of_event`], with an identifier for connections.
unsafe fn of_connection(event: &rdma_cm_event) -> ConnectionParameters {
    // SAFETY: identifiers for connections have the `conn` part.
    let conn = unsafe { event.param.conn };
    ConnectionParameters {
        // SAFETY: the event holds that many bytes until it is acknowledged.
        private_data: unsafe { copied(conn.private_data.cast(), conn.private_data_len) },
        responder_resources: conn.responder_resources,
        initiator_depth: conn.initiator_depth,
        retry_count: conn.retry_count,
        rnr_retry_count: conn.rnr_retry_count,
    }
}

/// # Safety
/// As for [`of_event`], with an identifier for datagrams.
unsafe fn of_datagrams(event: &rdma_cm_event) -> (ConnectionParameters, Option<Service>) {
    // SAFETY: identifiers for datagrams have the `ud` part.
    let ud = unsafe { event.param.ud };
    let joins = matches!(
        event.event,
        RDMA_CM_EVENT_MULTICAST_JOIN | RDMA_CM_EVENT_MULTICAST_ERROR
    );
    let mut parameters = ConnectionParameters::default();
    // With a group's events the pointer is the program's own.
    if !joins {
        // SAFETY: the event holds that many bytes until it is acknowledged.
        parameters.private_data = unsafe { copied(ud.private_data.cast(), ud.private_data_len) };
    }
    let told = event.status == 0
        && matches!(
            event.event,
            RDMA_CM_EVENT_ESTABLISHED | RDMA_CM_EVENT_MULTICAST_JOIN
        );
    let service = told.then(|| Service {
        path: path_from_c(&ud.ah_attr),
        queue_pair: ud.qp_num,
        qkey: ud.qkey,
    });
    (parameters, service)
}

/// # Safety
/// NULL, or that many bytes.
unsafe fn copied(bytes: *const u8, length: u8) -> Vec<u8> {
    if bytes.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(bytes, length.into()) }.to_vec()
}

/// C's form, which borrows the private data.
pub(super) fn in_c(parameters: &ConnectionParameters) -> Result<rdma_conn_param> {
    let mut out = rdma_conn_param::zeroed();
    out.private_data = parameters.private_data.as_ptr().cast();
    out.private_data_len = length_of(&parameters.private_data)?;
    out.responder_resources = parameters.responder_resources;
    out.initiator_depth = parameters.initiator_depth;
    out.retry_count = parameters.retry_count;
    out.rnr_retry_count = parameters.rnr_retry_count;
    Ok(out)
}

/// Their number.
pub(super) fn length_of(private_data: &[u8]) -> Result<u8> {
    let length = private_data.len();
    u8::try_from(length).map_err(|_| Error::Limit {
        object: "message of the connection manager",
        what: "bytes of private data",
        asked: length as u64,
        limit: u8::MAX.into(),
    })
}
