//! Making, moving and destroying identifiers.

use crate::object::{inherited_minus_one, refuse_inherited};
use std::ffi::{c_int, c_void};

use ferroce_nic as nic;
use ferroce_nic::Error;
use ferroce_nic::cm::PortSpace;

use super::channel::{self, ChannelRef};
use super::event::await_deliveries_under_way;
use super::id::{Id, NewId};
use super::sync::release_event;
use super::types::{
    RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP, rdma_cm_id, rdma_event_channel,
};
use crate::convert;
use crate::errno::{invalid, result_as_minus_one};
use crate::types::{IBV_QPT_RC, IBV_QPT_UD};

/// `enum rdma_port_space`.
fn port_space(ps: u32) -> Result<PortSpace, Error> {
    Ok(match ps {
        RDMA_PS_IPOIB => PortSpace::Ipoib,
        RDMA_PS_TCP => PortSpace::Tcp,
        RDMA_PS_UDP => PortSpace::Udp,
        RDMA_PS_IB => PortSpace::Ib,
        _ => return Err(invalid(format!("{ps:#x} is no RDMA port space"))),
    })
}

/// Kind of queue pair that goes with a port space.
pub(super) fn default_qp_type(ps: u32) -> u32 {
    match ps {
        RDMA_PS_UDP | RDMA_PS_IPOIB => IBV_QPT_UD,
        _ => IBV_QPT_RC,
    }
}

/// Makes an identifier; without a channel it is synchronous, with a channel of its own.
///
/// # Errors
/// EINVAL for an unknown port space or queue pair type; ENODEV without a device.
///
/// # Safety
/// `channel` is NULL or live.
pub(super) unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: u32,
    qp_type: u32,
) -> Result<*mut rdma_cm_id, Error> {
    let (space, kind) = (port_space(ps)?, convert::qp_type(qp_type)?);
    let sync = channel.is_null();
    let channel = if sync { channel::create()? } else { channel };
    let id = ChannelRef::new(channel)
        .and_then(ChannelRef::live)
        .and_then(|source| nic::Id::create(&source, space, kind))
        .map(|nic| {
            Id::create(NewId {
                nic,
                channel,
                context,
                ps,
                qp_type,
                sync,
                ib_addresses: false,
            })
        });
    if id.is_err() && sync {
        // SAFETY: the channel was made above and nobody else knows it.
        unsafe { channel::destroy(channel) };
    }
    id
}

/// Ends an identifier. Blocks until the program has acknowledged the identifier's events; those it
/// did not fetch vanish.
///
/// # Errors
/// EINVAL for NULL.
///
/// # Safety
/// `id` is NULL or a live identifier that the caller hands over.
pub(super) unsafe fn destroy(id: *mut rdma_cm_id) -> Result<(), Error> {
    // SAFETY: the caller's identifier.
    let id = unsafe { Id::new(id)? };
    id.nic().destroy();
    await_deliveries_under_way();
    release_event(id);
    id.acks().wait();
    if id.is_sync() {
        // SAFETY: the channel is the identifier's own.
        unsafe { channel::destroy(id.channel()) };
    }
    // SAFETY: the conversation has ended, no event names the identifier any more, and the caller
    // hands it over.
    unsafe { id.free() };
    Ok(())
}

/// Moves an identifier and its pending events to another channel, to one of its own for NULL.
/// Blocks until the program has acknowledged the events that it fetched from the old one.
///
/// # Errors
/// EINVAL if it has a channel of its own already and shall get one.
///
/// # Safety
/// `id` and `channel` are NULL or live.
pub(super) unsafe fn migrate(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> Result<(), Error> {
    // SAFETY: the caller's identifier.
    let id = unsafe { Id::new(id)? };
    let (was_sync, to_sync) = (id.is_sync(), channel.is_null());
    if was_sync && to_sync {
        return Err(invalid("the identifier is synchronous already"));
    }
    let channel = if to_sync { channel::create()? } else { channel };
    let target = ChannelRef::new(channel).and_then(ChannelRef::live)?;
    id.nic().migrate(&target);
    await_deliveries_under_way();
    if was_sync {
        release_event(id);
        // SAFETY: the old channel is the identifier's own, and its events have moved.
        unsafe { channel::destroy(id.channel()) };
    }
    id.set_channel(channel);
    id.set_sync(to_sync);
    id.acks().wait();
    Ok(())
}

/// `rdma_create_id(3)`
pub unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: u32,
) -> c_int {
    refuse_inherited!(channel, inherited_minus_one());
    let result = if id.is_null() {
        Err(invalid("no place for the identifier was given"))
    } else {
        // SAFETY: the caller's channel; the caller's place for the identifier.
        unsafe { create(channel, context, ps, default_qp_type(ps)).map(|new| id.write(new)) }
    };
    result_as_minus_one("rdma_create_id", result)
}

/// `rdma_destroy_id(3)`
pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller hands the identifier over.
    result_as_minus_one("rdma_destroy_id", unsafe { destroy(id) })
}

/// `rdma_migrate_id(3)`
pub unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_migrate_id", unsafe { migrate(id, channel) })
}
