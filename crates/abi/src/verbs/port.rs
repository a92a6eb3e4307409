//! Queries about devices and ports.

use crate::object::refuse_inherited;
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use ferroce_nic::{Device, DropReason, Error, Protocol};
use ferroce_proto::ids::DEFAULT_PKEY;

use super::context;
use super::device::copy_text;
use crate::errno::{as_minus_one, invalid, result_as_errno, result_as_minus_one};
use crate::types::{
    IBV_ATOMIC_HCA, IBV_LINK_LAYER_ETHERNET, IBV_ODP_SUPPORT, IBV_ODP_SUPPORT_ATOMIC,
    IBV_ODP_SUPPORT_ATOMIC_WRITE, IBV_ODP_SUPPORT_FLUSH, IBV_ODP_SUPPORT_IMPLICIT,
    IBV_ODP_SUPPORT_READ, IBV_ODP_SUPPORT_RECV, IBV_ODP_SUPPORT_SEND, IBV_ODP_SUPPORT_SRQ_RECV,
    IBV_ODP_SUPPORT_WRITE, IBV_PORT_ACTIVE, IBV_PORT_CM_SUP, IBV_PORT_DOWN, IBV_PORT_IP_BASED_GIDS,
    IBV_QPF_GRH_REQUIRED, ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_port_attr,
    ibv_query_device_ex_input,
};

/// Bytes of `struct ibv_port_attr` that programs of the first ABI know (all but `port_cap_flags2`).
const COMPAT_PORT_ATTR: usize = std::mem::offset_of!(ibv_port_attr, port_cap_flags2);
/// `phys_state` codes.
const PHYS_LINK_UP: u8 = 5;
const PHYS_DISABLED: u8 = 3;

/// The device of a context.
///
/// # Safety
/// `context` is live.
pub(super) unsafe fn device<'a>(context: *mut ibv_context) -> &'a Arc<Device> {
    // SAFETY: the caller's promise.
    unsafe { context::private(context) }.nic().device()
}

/// Every device has one port.
///
/// # Errors
/// EINVAL for any other.
pub(super) fn check_port(port_num: u8) -> Result<(), Error> {
    if port_num == 1 {
        Ok(())
    } else {
        Err(invalid(format!(
            "port {port_num}: the device has port 1 only"
        )))
    }
}

/// The C structure's `int`, cut at its maximum.
fn int(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// `struct ibv_device_attr` of a device.
pub(crate) fn device_attr(device: &Device) -> ibv_device_attr {
    let attr = device.attr();
    let mut c = ibv_device_attr::zeroed();
    copy_text(&mut c.fw_ver, &attr.fw_ver);
    c.node_guid = attr.node_guid.0.to_be();
    c.sys_image_guid = attr.sys_image_guid.0.to_be();
    c.max_mr_size = attr.max_mr_size;
    c.page_size_cap = attr.page_size_cap;
    c.vendor_id = attr.vendor_id;
    c.vendor_part_id = attr.vendor_part_id;
    c.hw_ver = attr.hw_ver;
    c.max_qp = int(attr.max_qp);
    c.max_qp_wr = int(attr.max_qp_wr);
    c.device_cap_flags = attr.device_cap_flags;
    c.max_sge = int(attr.max_sge);
    c.max_sge_rd = int(attr.max_sge_rd);
    c.max_cq = int(attr.max_cq);
    c.max_cqe = int(attr.max_cqe);
    c.max_mr = int(attr.max_mr);
    c.max_mw = int(attr.max_mw);
    c.max_pd = int(attr.max_pd);
    c.max_qp_rd_atom = int(attr.max_qp_rd_atom);
    c.max_res_rd_atom = int(attr.max_res_rd_atom);
    c.max_qp_init_rd_atom = int(attr.max_qp_init_rd_atom);
    c.atomic_cap = IBV_ATOMIC_HCA;
    c.max_mcast_grp = int(attr.max_mcast_grp);
    c.max_mcast_qp_attach = int(attr.max_mcast_qp_attach);
    c.max_total_mcast_qp_attach = int(attr.max_mcast_grp.saturating_mul(attr.max_mcast_qp_attach));
    c.max_ah = int(attr.max_ah);
    c.max_srq = int(attr.max_srq);
    c.max_srq_wr = int(attr.max_srq_wr);
    c.max_srq_sge = int(attr.max_srq_sge);
    c.max_pkeys = partitions(device);
    c.local_ca_ack_delay = attr.local_ca_ack_delay;
    c.phys_port_cnt = 1;
    c
}

/// Entries of the `P_Key` table: the default partition. iWARP has no partitions.
pub(crate) fn partitions(device: &Device) -> u16 {
    u16::from(device.protocol() == Protocol::RoceV2)
}

/// `struct ibv_port_attr` of a device's port.
pub(crate) fn port_attr(device: &Device) -> ibv_port_attr {
    let port = device.port();
    let mut c = ibv_port_attr::zeroed();
    c.state = if port.active {
        IBV_PORT_ACTIVE
    } else {
        IBV_PORT_DOWN
    };
    c.max_mtu = port.max_mtu as u32;
    c.active_mtu = port.active_mtu as u32;
    c.gid_tbl_len = int(port.gid_tbl_len);
    c.port_cap_flags = match device.protocol() {
        Protocol::RoceV2 => IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        Protocol::Iwarp => IBV_PORT_CM_SUP,
    };
    c.max_msg_sz = port.max_msg_sz;
    let dropped = |why| u32::try_from(device.counters().dropped(why)).unwrap_or(u32::MAX);
    c.bad_pkey_cntr = dropped(DropReason::Pkey);
    c.qkey_viol_cntr = dropped(DropReason::Qkey);
    c.pkey_tbl_len = partitions(device);
    c.max_vl_num = 1;
    let link = device.hardware().link;
    c.active_width = link.width_code;
    c.active_speed = link.speed_code;
    c.phys_state = if port.active {
        PHYS_LINK_UP
    } else {
        PHYS_DISABLED
    };
    c.link_layer = IBV_LINK_LAYER_ETHERNET;
    if device.protocol() == Protocol::RoceV2 {
        c.flags = IBV_QPF_GRH_REQUIRED;
    }
    c
}

/// Copies as much of a structure as the program has room for; bytes that only the program's newer
/// header knows become 0.
///
/// # Safety
/// `to` points to `room` writable bytes.
unsafe fn copy_prefix<T: Copy>(from: &T, to: *mut T, room: usize) {
    let known = room.min(size_of::<T>());
    // SAFETY: `known` is within both; the rest is within the caller's room.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(from).cast::<u8>(), to.cast(), known);
        ptr::write_bytes(to.cast::<u8>().add(known), 0, room - known);
    }
}

/// `ibv_query_device(3)`. A child may ask about an inherited context: the attributes never change.
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    device_attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: a live context, and room for the attributes.
    unsafe { ptr::write(device_attr, self::device_attr(device(context))) };
    0
}

/// On-demand paging works with everything: all memory is accessed by its address at the moment of
/// the access.
fn odp_caps(c: &mut ibv_device_attr_ex, protocol: Protocol) {
    const DATAGRAM: u32 = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    const UNRELIABLE: u32 = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE;
    const RELIABLE: u32 = DATAGRAM
        | IBV_ODP_SUPPORT_WRITE
        | IBV_ODP_SUPPORT_READ
        | IBV_ODP_SUPPORT_ATOMIC
        | IBV_ODP_SUPPORT_FLUSH
        | IBV_ODP_SUPPORT_ATOMIC_WRITE;
    c.odp_caps.general_caps = u64::from(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
    match protocol {
        Protocol::RoceV2 => {
            c.odp_caps.per_transport_caps = [RELIABLE, UNRELIABLE, DATAGRAM];
            c.xrc_odp_caps = RELIABLE;
        }
        Protocol::Iwarp => c.odp_caps.per_transport_caps = [RELIABLE, 0, 0],
    }
}

/// `ibv_query_device_ex(3)`. A child may ask, as for [`ibv_query_device`].
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    let comp_mask = if input.is_null() {
        0
    } else {
        // SAFETY: not NULL, so it points to the structure.
        unsafe { (*input).comp_mask }
    };
    if comp_mask != 0 || attr_size < size_of::<ibv_device_attr>() {
        let reason = format!(
            "comp_mask {comp_mask:#x} must be 0 and {attr_size} bytes must hold struct ibv_device_attr"
        );
        return result_as_errno("ibv_query_device_ex", Err(invalid(reason)));
    }
    let mut c = ibv_device_attr_ex::zeroed();
    // SAFETY: a live context.
    let device = unsafe { device(context) };
    c.orig_attr = device_attr(device);
    let limits = device.attr();
    c.device_cap_flags_ex = limits.device_cap_flags_ex | u64::from(limits.device_cap_flags);
    c.phys_port_cnt_ex = 1;
    odp_caps(&mut c, device.protocol());
    c.max_dm_size = limits.max_dm_size;
    c.completion_timestamp_mask = limits.completion_timestamp_mask;
    c.hca_core_clock = limits.hca_core_clock;
    (c.cq_mod_caps.max_cq_count, c.cq_mod_caps.max_cq_period) = limits.max_cq_moderation;
    // SAFETY: the program has `attr_size` bytes there.
    unsafe { copy_prefix(&c, attr, attr_size) };
    0
}

/// `ibv_query_port(3)`: only the part that the first ABI knew, because that is all the caller has
/// room for.
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut ibv_port_attr,
) -> c_int {
    refuse_inherited!(context);
    // SAFETY: a live context; the structure of the first ABI, for which the program has room, has
    // this many bytes.
    unsafe { query_port(context, port_num, port_attr, COMPAT_PORT_ATTR) }
}

/// `ibv_query_port_speed(3)`: what `ibv_query_port` says by its codes.
pub unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port_num: u32,
    port_speed: *mut u64,
) -> c_int {
    refuse_inherited!(context);
    let checked = check_port(u8::try_from(port_num).unwrap_or(u8::MAX)).map(|()| {
        // SAFETY: a live context, and the program has room for a number there.
        unsafe { *port_speed = device(context).hardware().link.rate.into() };
    });
    result_as_errno("ibv_query_port_speed", checked)
}

/// `ibv_query_port(3)` as the header calls it, with the length of the program's structure.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut ibv_port_attr,
    port_attr_len: usize,
) -> c_int {
    refuse_inherited!(context);
    if let Err(e) = check_port(port_num) {
        return result_as_errno("ibv_query_port", Err(e));
    }
    // SAFETY: a live context, and the program has `port_attr_len` bytes there.
    unsafe { copy_prefix(&self::port_attr(device(context)), port_attr, port_attr_len) };
    0
}

/// `ibv_query_pkey(3)`: the table has one entry, the default partition. Big-endian.
pub unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    // SAFETY: a live context.
    let entries = partitions(unsafe { device(context) });
    let checked = check_port(port_num).and_then(|()| match index {
        0 if entries > 0 => Ok(()),
        _ => Err(invalid(format!(
            "P_Key index {index}: the table has {entries} entries"
        ))),
    });
    if checked.is_ok() {
        // SAFETY: room for a P_Key.
        unsafe { *pkey = DEFAULT_PKEY.to_be() };
    }
    result_as_minus_one("ibv_query_pkey", checked)
}

/// `ibv_get_pkey_index(3)`: the index of a big-endian `P_Key`, or -1.
pub unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut ibv_context,
    port_num: u8,
    pkey: u16,
) -> c_int {
    // SAFETY: a live context.
    let entries = partitions(unsafe { device(context) });
    let checked = check_port(port_num).and_then(|()| {
        if entries > 0 && pkey == DEFAULT_PKEY.to_be() {
            Ok(())
        } else {
            Err(invalid(format!(
                "P_Key {:#06x} is not in the table",
                u16::from_be(pkey)
            )))
        }
    });
    match checked {
        Ok(()) => 0,
        Err(e) => as_minus_one("ibv_get_pkey_index", &e),
    }
}
