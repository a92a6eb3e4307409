//! The GID table.

use crate::object::{Refusal, inherited_minus_one, refuse_inherited};
use std::ffi::c_int;
use std::ptr;

use ferroce_nic::{Error, Protocol};
use libc::ssize_t;

use super::port::{check_port, device};
use crate::convert::gid_to_c;
use crate::errno::{as_errno, invalid, result_as_minus_one, unbuilt};
use crate::types::{IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V2, ibv_context, ibv_gid, ibv_gid_entry};

/// `enum ibv_gid_type_sysfs`, the older numbering: IB and RoCEv1 are one.
const SYSFS_ROCE_V1: u32 = 0;
const SYSFS_ROCE_V2: u32 = 1;

/// The GID at an index of the port's table, all zero where the table has none.
///
/// # Errors
/// EINVAL outside the table.
///
/// # Safety
/// `context` is live.
unsafe fn lookup(context: *mut ibv_context, port_num: u8, index: c_int) -> Result<ibv_gid, Error> {
    check_port(port_num)?;
    // SAFETY: the caller's promise.
    let device = unsafe { device(context) };
    let len = device.port().gid_tbl_len;
    match u32::try_from(index) {
        Ok(index) if index < len => Ok(device.gid(index).map(gid_to_c).unwrap_or_default()),
        _ => Err(invalid(format!(
            "GID index {index}: the table has {len} entries"
        ))),
    }
}

/// `ibv_query_gid(3)`.
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    refuse_inherited!(context, inherited_minus_one());
    // SAFETY: a live context, and room for a GID.
    let result =
        unsafe { lookup(context, port_num, index) }.map(|found| unsafe { ptr::write(gid, found) });
    result_as_minus_one("ibv_query_gid", result)
}

/// What `ibv_devinfo` and pyverbs ask for: the type of an entry in sysfs terms. An empty entry has
/// type 0.
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port_num: u8,
    index: u32,
    gid_type: *mut u32,
) -> c_int {
    refuse_inherited!(context);
    let index = c_int::try_from(index).unwrap_or(-1);
    // SAFETY: a live context.
    let result = unsafe { lookup(context, port_num, index) }.map(|gid| {
        // SAFETY: a live context.
        let protocol = unsafe { device(context) }.protocol();
        let code = if gid == ibv_gid::default() || protocol == Protocol::Iwarp {
            SYSFS_ROCE_V1
        } else {
            SYSFS_ROCE_V2
        };
        // SAFETY: room for the type.
        unsafe { *gid_type = code };
    });
    result_as_minus_one("ibv_query_gid_type", result)
}

/// The table's non-empty entries.
///
/// # Safety
/// `context` is live.
unsafe fn entries(context: *mut ibv_context) -> Vec<ibv_gid_entry> {
    // SAFETY: the caller's promise.
    let device = unsafe { device(context) };
    let gid_type = match device.protocol() {
        Protocol::RoceV2 => IBV_GID_TYPE_ROCE_V2,
        Protocol::Iwarp => IBV_GID_TYPE_IB,
    };
    let gids = device.gids();
    let entry = |e: ferroce_nic::GidEntry| ibv_gid_entry {
        gid: gid_to_c(e.gid),
        gid_index: e.index,
        port_num: 1,
        gid_type,
        ndev_ifindex: e.ifindex,
    };
    gids.into_iter().map(entry).collect()
}

/// Writes an entry into a program's structure of `size` bytes, which may be shorter or longer than
/// ours.
///
/// # Safety
/// `to` points to `size` writable bytes.
unsafe fn write_entry(entry: &ibv_gid_entry, to: *mut ibv_gid_entry, size: usize) {
    let known = size.min(size_of::<ibv_gid_entry>());
    // SAFETY: within both structures.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(entry).cast::<u8>(), to.cast(), known);
        ptr::write_bytes(to.cast::<u8>().add(known), 0, size - known);
    }
}

/// `ibv_query_gid_ex(3)`: 0, ENODATA for an empty entry, EINVAL outside the table.
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    refuse_inherited!(context);
    const CALL: &str = "ibv_query_gid_ex";
    if flags != 0 {
        return as_errno(CALL, &unbuilt("a flag of ibv_query_gid_ex"));
    }
    let port_num = u8::try_from(port_num).unwrap_or(0);
    let index = c_int::try_from(gid_index).unwrap_or(-1);
    // SAFETY: a live context.
    if let Err(e) = unsafe { lookup(context, port_num, index) } {
        return as_errno(CALL, &e);
    }
    // SAFETY: a live context.
    match unsafe { entries(context) }
        .iter()
        .find(|e| e.gid_index == gid_index)
    {
        Some(found) => {
            // SAFETY: the program has `entry_size` bytes there.
            unsafe { write_entry(found, entry, entry_size) };
            0
        }
        // No refusal: programs walk the whole table.
        None => libc::ENODATA,
    }
}

/// `ibv_query_gid_table(3)`: how many entries were written, or a negative errno.
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> ssize_t {
    refuse_inherited!(context, -<c_int as Refusal>::inherited() as ssize_t);
    const CALL: &str = "ibv_query_gid_table";
    let refuse = |e: &Error| -(as_errno(CALL, e) as ssize_t);
    if flags != 0 {
        return refuse(&unbuilt("a flag of ibv_query_gid_table"));
    }
    // SAFETY: a live context.
    let table = unsafe { self::entries(context) };
    if table.len() > max_entries {
        return refuse(&invalid(format!(
            "the table has {} entries, the program has room for {max_entries}",
            table.len()
        )));
    }
    for (i, entry) in table.iter().enumerate() {
        // SAFETY: the program has `max_entries` structures of `entry_size` bytes.
        unsafe { write_entry(entry, entries.wrapping_byte_add(i * entry_size), entry_size) };
    }
    ssize_t::try_from(table.len()).unwrap_or(ssize_t::MAX)
}
