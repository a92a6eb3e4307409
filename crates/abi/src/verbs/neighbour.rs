//! Ethernet addresses of peers.

use std::ffi::c_int;

use crate::errno::{as_errno, unbuilt};
use crate::types::{ibv_ah_attr, ibv_context};

/// What providers of Ethernet hardware ask to fill in a packet's Ethernet header: 0 or a negative
/// errno. Here the kernel's network stack does that, so nobody needs it.
pub unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    _context: *mut ibv_context,
    _attr: *mut ibv_ah_attr,
    _eth_mac: *mut u8,
    _vid: *mut u16,
) -> c_int {
    -as_errno(
        "ibv_resolve_eth_l2_from_gid",
        &unbuilt("resolution of Ethernet addresses"),
    )
}
