//! Connections: connect, accept, reject, establish, notify, disconnect.

use crate::object::{inherited_minus_one, refuse_inherited};
use std::ffi::{c_int, c_void};

use ferroce_nic as nic;
use ferroce_nic::Error;
use ferroce_nic::cm::ConnParam;
use ferroce_proto::ids::Qpn;

use super::id::Id;
use super::lock;
use super::sync::await_event;
use super::transition::{self, ReadLimits, Settled};
use super::types::{
    RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES, RDMA_PS_TCP, rdma_cm_id, rdma_conn_param,
};
use crate::errno::{invalid, result_as_minus_one};
use crate::types::{IBV_EVENT_COMM_EST, IBV_QPT_UD};

/// Largest retry count: 3 bits. For RNR retries it means "without limit".
const MAX_RETRY: u8 = 7;

/// Device limits on READs and atomics per queue pair, as connection parameters carry them.
fn device_limits(id: Id<'_>) -> Result<ReadLimits, Error> {
    let device = id
        .nic()
        .device()
        .ok_or_else(|| invalid("the identifier is not bound to a device"))?;
    let attr = device.attr();
    let byte = |limit: u32| u8::try_from(limit).unwrap_or(u8::MAX);
    Ok(ReadLimits {
        responder_resources: byte(attr.max_qp_rd_atom),
        initiator_depth: byte(attr.max_qp_init_rd_atom),
    })
}

/// Copies and checks the program's parameters: on connections, limits must be within the device's,
/// and without parameters there must be a queue pair to take the number from.
///
/// # Safety
/// `param` is NULL or live.
unsafe fn checked(
    id: Id<'_>,
    param: *const rdma_conn_param,
    device: ReadLimits,
) -> Result<Option<rdma_conn_param>, Error> {
    if param.is_null() {
        if id.ps() == RDMA_PS_TCP && id.qp().is_null() {
            return Err(invalid(
                "without a queue pair on the identifier, connection parameters are needed",
            ));
        }
        return Ok(None);
    }
    // SAFETY: the caller's parameters are live.
    let param = unsafe { param.read() };
    let within = |name: &str, value: u8, all: u8, limit: u8| match value {
        value if value != all && value > limit => Err(invalid(format!(
            "{name} {value} is above the device's limit of {limit}"
        ))),
        _ => Ok(()),
    };
    if id.ps() == RDMA_PS_TCP {
        within(
            "responder_resources",
            param.responder_resources,
            RDMA_MAX_RESP_RES,
            device.responder_resources,
        )?;
        within(
            "initiator_depth",
            param.initiator_depth,
            RDMA_MAX_INIT_DEPTH,
            device.initiator_depth,
        )?;
    }
    Ok(Some(param))
}

/// Copies the program's private data.
///
/// # Safety
/// `data` is NULL or points to `len` bytes.
unsafe fn private_data(data: *const c_void, len: u8) -> Vec<u8> {
    if data.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's buffer has that many bytes.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len.into()) }.to_vec()
}

/// The parameters in the conversation's form; number and receive queue of a queue pair on the
/// identifier come first.
///
/// # Safety
/// The private data that `param` names is live.
unsafe fn wire_param(id: Id<'_>, param: Option<&rdma_conn_param>, limits: ReadLimits) -> ConnParam {
    let (srq, qp_num) = match id.qp() {
        qp if qp.is_null() => param.map_or((false, 0), |param| (param.srq != 0, param.qp_num)),
        // SAFETY: the queue pair belongs to the live identifier.
        qp => unsafe { (!(*qp).srq.is_null(), (*qp).qp_num) },
    };
    ConnParam {
        // SAFETY: the caller's private data is live.
        private_data: param.map_or_else(Vec::new, |param| unsafe {
            private_data(param.private_data, param.private_data_len)
        }),
        responder_resources: limits.responder_resources,
        initiator_depth: limits.initiator_depth,
        flow_control: param.is_none_or(|param| param.flow_control != 0),
        retry_count: param.map_or(MAX_RETRY, |param| param.retry_count.min(MAX_RETRY)),
        rnr_retry_count: param.map_or(MAX_RETRY, |param| param.rnr_retry_count.min(MAX_RETRY)),
        srq,
        qp_num: Qpn::new(qp_num),
        ece: lock(id.settings()).local_ece,
    }
}

/// The program's limits where it gave any, else `default`.
fn limits_or(param: Option<&rdma_conn_param>, default: ReadLimits) -> ReadLimits {
    let Some(param) = param else { return default };
    let or = |value: u8, all: u8, default: u8| if value == all { default } else { value };
    ReadLimits {
        responder_resources: or(
            param.responder_resources,
            RDMA_MAX_RESP_RES,
            default.responder_resources,
        ),
        initiator_depth: or(
            param.initiator_depth,
            RDMA_MAX_INIT_DEPTH,
            default.initiator_depth,
        ),
    }
}

/// Sends the connect request.
///
/// # Safety
/// `id` and `param` are NULL or live.
unsafe fn connect(id: *mut rdma_cm_id, param: *const rdma_conn_param) -> Result<(), Error> {
    // SAFETY: the caller's pointers.
    let id = unsafe { Id::new(id)? };
    let device = device_limits(id)?;
    // SAFETY: the caller's pointers.
    let param = unsafe { checked(id, param, device)? };
    let limits = limits_or(param.as_ref(), device);
    // SAFETY: the caller's parameters and what they point to are live.
    let mut wire = unsafe { wire_param(id, param.as_ref(), limits) };
    wire.private_data
        .splice(0..0, lock(id.settings()).connect_prefix.iter().copied());
    id.nic().connect(&wire)?;
    await_event(id)
}

/// What an acceptor settles: its own wishes, the defaults being the request's values; it never
/// starts more READs than the requester serves.
fn accept_limits(id: Id<'_>, param: Option<&rdma_conn_param>, device: ReadLimits) -> ReadLimits {
    let requested = lock(id.settings()).requested;
    let default = ReadLimits {
        responder_resources: requested
            .responder_resources
            .min(device.responder_resources),
        initiator_depth: requested.initiator_depth.min(device.initiator_depth),
    };
    let mut limits = limits_or(param, default);
    limits.initiator_depth = limits.initiator_depth.min(requested.initiator_depth);
    limits
}

/// Answers a connect request with the queue pair ready: data may come before the peer's last
/// message does.
///
/// # Safety
/// `id` and `param` are NULL or live.
unsafe fn accept(id: *mut rdma_cm_id, param: *const rdma_conn_param) -> Result<(), Error> {
    // SAFETY: the caller's pointers.
    let id = unsafe { Id::new(id)? };
    let device = device_limits(id)?;
    // SAFETY: the caller's pointers.
    let param = unsafe { checked(id, param, device)? };
    let limits = accept_limits(id, param.as_ref(), device);
    let datagram = id.qp_type() == IBV_QPT_UD;
    let moves = !datagram && !id.qp().is_null();
    // SAFETY: the caller's parameters and what they point to are live.
    let wire = unsafe { wire_param(id, param.as_ref(), limits) };
    if moves {
        let peers_rnr_retry = wire.rnr_retry_count;
        let settled = Settled {
            limits,
            peers_rnr_retry,
        };
        transition::to_rts(id, Some(settled))?;
    }
    if let Err(e) = id.nic().accept(&wire) {
        if moves {
            // Best effort: the program hears of the first failure.
            let _ = transition::to_error(id);
        }
        return Err(e);
    }
    // A datagram service gets no event of its own.
    if datagram { Ok(()) } else { await_event(id) }
}

/// Ends a connection: the queue pair's work is flushed before the peer hears of it.
///
/// # Safety
/// `id` is NULL or live.
unsafe fn disconnect(id: *mut rdma_cm_id) -> Result<(), Error> {
    // SAFETY: the caller's pointer.
    let id = unsafe { Id::new(id)? };
    transition::to_end(id)?;
    id.nic().disconnect()?;
    if id.qp_type() == IBV_QPT_UD {
        // Nobody was connected, so no event comes.
        return Ok(());
    }
    await_event(id)
}

/// `rdma_connect(3)`
pub unsafe extern "C" fn rdma_connect(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_connect", unsafe { connect(id, conn_param) })
}

/// `rdma_accept(3)`
pub unsafe extern "C" fn rdma_accept(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_accept", unsafe { accept(id, conn_param) })
}

/// Turns a connect request (or the reply to one) down, in the way that `how` says.
///
/// # Safety
/// `id` is NULL or live, `data` is NULL or points to `len` bytes.
unsafe fn reject(
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
    how: fn(&nic::Id, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    // SAFETY: the caller's pointers.
    let (id, data) = unsafe { (Id::new(id)?, private_data(data, len)) };
    how(id.nic(), &data)
}

/// `rdma_reject(3)`
pub unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    data: *const c_void,
    private_data_len: u8,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    let result = unsafe { reject(id, data, private_data_len, nic::Id::reject) };
    result_as_minus_one("rdma_reject", result)
}

/// `rdma_reject_ece(3)`: as [`rdma_reject`], because of the peer's vendor options.
pub unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    data: *const c_void,
    private_data_len: u8,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    let result = unsafe { reject(id, data, private_data_len, nic::Id::reject_ece) };
    result_as_minus_one("rdma_reject_ece", result)
}

/// `rdma_establish(3)`: after a connect response on an identifier without a queue pair.
pub unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointer.
    let result = unsafe { Id::new(id) }.and_then(|id| {
        if !id.qp().is_null() {
            return Err(invalid("with a queue pair on the identifier, the library establishes the connection itself"));
        }
        id.nic().establish()
    });
    result_as_minus_one("rdma_establish", result)
}

/// `rdma_notify(3)`: `IBV_EVENT_COMM_EST` only.
pub unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: u32) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointer.
    let result = unsafe { Id::new(id) }.and_then(|id| match event {
        IBV_EVENT_COMM_EST => id.nic().notify_established(),
        other => Err(invalid(format!(
            "asynchronous event {other} does not concern the connection manager"
        ))),
    });
    result_as_minus_one("rdma_notify", result)
}

/// `rdma_disconnect(3)`
pub unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointer.
    result_as_minus_one("rdma_disconnect", unsafe { disconnect(id) })
}
