//! Paths that the program brings (`RDMA_OPTION_IB_PATH`), in place of the resolution of a route.

use std::ffi::c_void;

use ferroce_nic::Error;
use ferroce_nic::cm::Route;
use ferroce_proto::verbs::Mtu;

use super::id::Id;
use super::sync::await_event;
use super::types::{
    IBV_PATH_FLAG_BIDIRECTIONAL, IBV_PATH_FLAG_GMP, IBV_PATH_FLAG_PRIMARY, ibv_path_data,
    ibv_path_record,
};
use crate::convert::gid_from_c;
use crate::errno::invalid;

/// A path that serves for everything.
const FOR_ALL: u32 =
    (IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL) as u32;
/// The lower six bits of MTU, rate and packet life time; the upper two say how the value is meant.
const VALUE: u8 = 0x3f;

/// Sets the identifier's path, as resolving the route would: the event follows.
///
/// # Safety
/// `value` is NULL or points to `len` bytes.
pub(super) unsafe fn set(id: Id<'_>, value: *const c_void, len: usize) -> Result<(), Error> {
    let size = size_of::<ibv_path_data>();
    if value.is_null() || len == 0 || !len.is_multiple_of(size) {
        return Err(invalid(format!(
            "paths take {size} bytes each, {len} were given"
        )));
    }
    let first = value.cast::<ibv_path_data>();
    // SAFETY: the caller's bytes are that many structures, of integers, at any alignment.
    let mut paths = (0..len / size).map(|i| unsafe { first.add(i).read_unaligned() });
    let path = paths
        .find(|path| path.flags & FOR_ALL == FOR_ALL)
        .ok_or_else(|| {
            invalid("no path is for connection management, primary and both ways at once")
        })?;
    id.nic().set_route(route(&path.path)?)?;
    await_event(id)
}

fn route(path: &ibv_path_record) -> Result<Route, Error> {
    let code = path.mtu & VALUE;
    let mtu = Mtu::from_code(u32::from(code))
        .ok_or_else(|| invalid(format!("{code} is no code of an MTU")))?;
    let [_, _, _, hop_limit] = path.flowlabel_hoplimit.to_ne_bytes();
    Ok(Route {
        sgid: gid_from_c(path.sgid),
        dgid: gid_from_c(path.dgid),
        sgid_index: 0,
        mtu,
        flow_label: u32::from_be(path.flowlabel_hoplimit) >> 8 & 0xf_ffff,
        hop_limit,
        traffic_class: path.tclass,
        packet_life_time: path.packetlifetime & VALUE,
    })
}
