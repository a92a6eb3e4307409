//! Address handles.

use crate::object::{self, Handle, refuse_inherited};
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use ferroce_nic::{Ah, Error};
use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::ud::{GRH_LEN, GrhRoute};
use ferroce_proto::verbs::Datagram;

use super::port::{check_port, device};
use super::{engine, pd};
use crate::convert::ah_attr_from_c;
use crate::errno::{invalid, result_as_minus_one, result_as_null};
use crate::types::{
    IBV_WC_GRH, ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_global_route, ibv_grh, ibv_pd,
    ibv_wc,
};

/// What follows `struct ibv_ah`: where datagrams go.
pub(crate) struct AhPrivate(Arc<Ah>);

impl Handle for ibv_ah {
    type Public = Self;
    type Private = AhPrivate;
}

/// Where a datagram of a work request goes.
///
/// # Errors
/// EINVAL without an address handle.
///
/// # Safety
/// `ah` is NULL or live.
pub(super) unsafe fn datagram(ah: *mut ibv_ah, qpn: u32, qkey: u32) -> Result<Datagram, Error> {
    if ah.is_null() {
        return Err(invalid("a datagram needs an address handle, ah is NULL"));
    }
    // SAFETY: the caller's promise.
    let private: &AhPrivate = unsafe { object::private(ah) };
    Ok(Datagram {
        ah: private.0.number(),
        qpn: Qpn::new(qpn),
        qkey,
    })
}

/// `ibv_create_ah(3)`.
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    refuse_inherited!(pd);
    // SAFETY: a live protection domain, on a live context, and the address.
    let created = unsafe {
        let context = (*pd).context;
        Ah::create(pd::private(pd).nic(), ah_attr_from_c(&*attr)).map(|ah| {
            pd::private(pd).adopt_ah();
            object::create(
                ibv_ah {
                    context,
                    pd,
                    handle: engine::next_handle(),
                },
                AhPrivate(ah),
            )
        })
    };
    result_as_null("ibv_create_ah", created)
}

/// `ibv_destroy_ah(3)`.
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    refuse_inherited!(ah);
    // SAFETY: a live address handle; nobody uses it any more after this.
    unsafe {
        pd::private((*ah).pd).release_ah();
        object::take(ah).0.destroy();
    }
    0
}

/// `ibv_init_ah_from_wc(3)`: the address of the sender of a datagram; 0 or -1.
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    ah_attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: a live context, a completion, the header of its datagram, and room for the address.
    let result = unsafe {
        reply_address(context, port_num, &*wc, grh).map(|address| ptr::write(ah_attr, address))
    };
    result_as_minus_one("ibv_init_ah_from_wc", result)
}

/// `ibv_create_ah_from_wc(3)`.
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    refuse_inherited!(pd);
    // SAFETY: a live protection domain, a completion and the header of its datagram.
    match unsafe { reply_address((*pd).context, port_num, &*wc, grh) } {
        // SAFETY: a live protection domain, and an address that was made here.
        Ok(mut address) => unsafe { ibv_create_ah(pd, &raw mut address) },
        Err(e) => result_as_null("ibv_create_ah_from_wc", Err(e)),
    }
}

/// Where to send the answer to a datagram.
///
/// # Safety
/// `context` is live and `grh` points to the first 40 bytes of the datagram's buffer if the
/// completion says that it holds a GRH.
unsafe fn reply_address(
    context: *mut ibv_context,
    port_num: u8,
    wc: &ibv_wc,
    grh: *const ibv_grh,
) -> Result<ibv_ah_attr, Error> {
    check_port(port_num)?;
    let mut address = ibv_ah_attr::zeroed();
    address.dlid = wc.slid;
    address.sl = wc.sl;
    address.src_path_bits = wc.dlid_path_bits;
    address.port_num = port_num;
    if wc.wc_flags & IBV_WC_GRH != 0 {
        // SAFETY: the caller's promise; the buffer may have any alignment.
        let bytes = unsafe { ptr::read_unaligned(grh.cast::<[u8; GRH_LEN]>()) };
        let came = GrhRoute::parse(&bytes)
            .ok_or_else(|| invalid("the buffer starts with neither an IPv6 nor an IPv4 header"))?;
        address.is_global = 1;
        address.grh = ibv_global_route {
            dgid: ibv_gid { raw: came.src.0 },
            flow_label: came.flow_label,
            // SAFETY: the caller's promise.
            sgid_index: unsafe { index_of(context, came.dst) }?,
            hop_limit: came.hop_limit,
            traffic_class: came.traffic_class,
        };
    }
    Ok(address)
}

/// The index of one of the device's own GIDs.
///
/// # Safety
/// `context` is live.
unsafe fn index_of(context: *mut ibv_context, gid: Gid) -> Result<u8, Error> {
    // SAFETY: the caller's promise.
    let gids = unsafe { device(context) }.gids();
    gids.iter()
        .find(|e| e.gid == gid)
        .and_then(|e| u8::try_from(e.index).ok())
        .ok_or_else(|| invalid(format!("{gid:?} is not in the GID table")))
}
