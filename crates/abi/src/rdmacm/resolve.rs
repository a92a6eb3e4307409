//! Addresses and routes: bind, listen, resolve, ports, queue pair attributes, options.

use crate::object::{inherited_minus_one, refuse_inherited};
use std::ffi::{c_int, c_void};
use std::time::Duration;

use ferroce_nic::Error;
use ferroce_nic::cm::{IdOption, PortSpace};
use libc::sockaddr;

use super::id::Id;
use super::sync::await_event;
use super::types::{
    RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
    RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS, rdma_cm_id,
};
use super::{path, sockaddr as address};
use crate::convert;
use crate::errno::{invalid, result_as_minus_one};
use crate::types::ibv_qp_attr;

/// Backlog of a listener whose program asks for none in particular.
const DEFAULT_BACKLOG: u32 = 1024;

/// The time-outs of the C interface: milliseconds, negative ones as 0.
fn milliseconds(timeout_ms: c_int) -> Duration {
    Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0))
}

/// Binds an identifier. The real address, port included, shows at once, and so does the device.
/// Only if the identifier is for connections, and the address is the loopback one of a name without
/// a port, the device shows later: when it listens, resolves or gets a queue pair.
///
/// # Safety
/// `id` and `given` are NULL or live.
pub(super) unsafe fn bind(id: *mut rdma_cm_id, given: *const sockaddr) -> Result<(), Error> {
    // SAFETY: the caller's pointers.
    let (id, addr, ib) = unsafe { (Id::new(id)?, address::read(given)?, address::is_ib(given)) };
    id.nic().bind(addr)?;
    id.set_ib_addresses(ib);
    let connects = id.nic().port_space() == PortSpace::Tcp;
    // SAFETY: the caller's address, which has been read.
    let by_name = unsafe { address::is_of_a_name(given) };
    if connects && by_name && addr.ip().is_loopback() && addr.port() == 0 {
        // Hardware has no loopback address, so `localhost` stands for any device's: libfabric binds
        // to it when it looks for all devices, and would know no others if it saw one here. A
        // program that names the address itself means it: librpma takes the device from what it
        // has bound to 127.0.0.1.
        id.show_addresses();
        return Ok(());
    }
    id.show_device()
}

/// Starts the resolution of an address.
///
/// # Safety
/// `id`, `src` and `dst` are NULL or live.
pub(super) unsafe fn resolve_addr(
    id: *mut rdma_cm_id,
    src: *const sockaddr,
    dst: *const sockaddr,
    timeout_ms: c_int,
) -> Result<(), Error> {
    // SAFETY: the caller's pointers.
    let (id, dst, ib) = unsafe { (Id::new(id)?, address::read(dst)?, address::is_ib(dst)) };
    let src = if src.is_null() {
        None
    } else {
        // SAFETY: the caller's pointers.
        let src = unsafe { address::read(src)? };
        // "Any" has no family there.
        Some(src).filter(|src| !(ib && src.ip().is_unspecified()))
    };
    id.set_ib_addresses(ib);
    // Before the call: its event may be fetched by another thread before it returns.
    id.show_destination(dst);
    id.nic().resolve_addr(src, dst, milliseconds(timeout_ms))?;
    await_event(id)
}

/// Starts the resolution of a route.
///
/// # Safety
/// `id` is NULL or live.
pub(super) unsafe fn resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> Result<(), Error> {
    // SAFETY: the caller's pointer.
    let id = unsafe { Id::new(id)? };
    id.nic().resolve_route(milliseconds(timeout_ms))?;
    await_event(id)
}

/// Listens; an identifier that is not bound gets an ephemeral port, which shows at once.
///
/// # Safety
/// `id` is NULL or live.
unsafe fn listen(id: *mut rdma_cm_id, backlog: c_int) -> Result<(), Error> {
    // SAFETY: the caller's pointer.
    let id = unsafe { Id::new(id)? };
    let backlog = u32::try_from(backlog)
        .ok()
        .filter(|backlog| *backlog > 0)
        .unwrap_or(DEFAULT_BACKLOG);
    id.nic().listen(backlog)?;
    id.show_device()
}

/// Reads an option's value of type `T`.
///
/// # Safety
/// `value` is NULL or points to `len` bytes.
unsafe fn option_value<T: Copy>(value: *const c_void, len: usize) -> Result<T, Error> {
    if value.is_null() || len != size_of::<T>() {
        return Err(invalid(format!(
            "the option takes {} bytes, {len} were given",
            size_of::<T>()
        )));
    }
    // SAFETY: the caller's buffer has the bytes of a `T`, which is an integer.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

/// Sets an option.
///
/// # Safety
/// `id` is NULL or live, `value` is NULL or points to `len` bytes.
unsafe fn set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> Result<(), Error> {
    // SAFETY: the caller's pointer.
    let id = unsafe { Id::new(id)? };
    // SAFETY: the caller's buffer.
    let byte = || unsafe { option_value::<u8>(value, len) };
    // SAFETY: the caller's buffer.
    let flag = || unsafe { option_value::<c_int>(value, len) }.map(|value| value != 0);
    let option = match (level, name) {
        (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => IdOption::Tos(byte()?),
        (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => IdOption::ReuseAddr(flag()?),
        (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => IdOption::AfOnly(flag()?),
        (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => IdOption::AckTimeout(byte()?),
        (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => {
            // SAFETY: the caller's pointers.
            return unsafe { path::set(id, value, len) };
        }
        (level, name) => {
            return Err(Error::new(
                libc::ENOSYS,
                format!("there is no option {name} at level {level}"),
            ));
        }
    };
    id.nic().set_option(option)
}

/// Fills queue pair attributes for the state that `attr` names.
///
/// # Safety
/// All pointers are NULL or live.
unsafe fn init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> Result<(), Error> {
    if attr.is_null() || mask.is_null() {
        return Err(invalid(
            "no place for the attributes or their mask was given",
        ));
    }
    // SAFETY: the caller's pointers.
    let (id, state) = unsafe { (Id::new(id)?, (*attr).qp_state) };
    let (found, found_mask) = id.nic().qp_attr(convert::qp_state(state)?)?;
    let found_mask = c_int::try_from(found_mask.bits()).expect("invariant: the mask has 26 bits");
    // SAFETY: the caller's pointers.
    unsafe {
        attr.write(convert::qp_attr_to_c(&found));
        mask.write(found_mask);
    }
    Ok(())
}

/// `rdma_bind_addr(3)`
pub unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_bind_addr", unsafe { bind(id, addr) })
}

/// `rdma_resolve_addr(3)`
pub unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    timeout_ms: c_int,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_resolve_addr", unsafe {
        resolve_addr(id, src_addr, dst_addr, timeout_ms)
    })
}

/// `rdma_resolve_route(3)`
pub unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointer.
    result_as_minus_one("rdma_resolve_route", unsafe {
        resolve_route(id, timeout_ms)
    })
}

/// `rdma_listen(3)`
pub unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointer.
    result_as_minus_one("rdma_listen", unsafe { listen(id, backlog) })
}

/// `rdma_get_src_port(3)`: big-endian, 0 if not bound.
pub unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller's pointer.
    unsafe { Id::new(id) }.map_or(0, |id| address::port_be(&id.source()))
}

/// `rdma_get_dst_port(3)`: big-endian, 0 if not known.
pub unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller's pointer.
    unsafe { Id::new(id) }.map_or(0, |id| address::port_be(&id.destination()))
}

/// `rdma_set_option(3)`
pub unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_set_option", unsafe {
        set_option(id, level, optname, optval, optlen)
    })
}

/// `rdma_init_qp_attr(3)`
pub unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    qp_attr: *mut ibv_qp_attr,
    qp_attr_mask: *mut c_int,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_init_qp_attr", unsafe {
        init_qp_attr(id, qp_attr, qp_attr_mask)
    })
}
