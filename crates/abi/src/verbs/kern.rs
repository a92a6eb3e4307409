//! Conversions from and to the structures of the kernel's `uverbs` and `ucma` devices. Only a
//! librdmacm that talks to a kernel calls them.

use crate::layout::{StructLayout, c_structs};
use crate::rdmacm::types::ibv_sa_path_rec;
use crate::types::{ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_qp_cap};

c_structs! { STRUCTS;
    /// A route in the kernel's form.
    struct ib_uverbs_global_route {
        dgid: [u8; 16],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        reserved: u8,
    }

    /// An address in the kernel's form.
    struct ib_uverbs_ah_attr {
        grh: ib_uverbs_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
        reserved: u8,
    }

    /// Attributes of a queue pair in the kernel's form.
    struct ib_uverbs_qp_attr {
        qp_attr_mask: u32,
        qp_state: u32,
        cur_qp_state: u32,
        path_mtu: u32,
        path_mig_state: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        ah_attr: ib_uverbs_ah_attr,
        alt_ah_attr: ib_uverbs_ah_attr,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        reserved: [u8; 5],
    }

    /// A path in the kernel's form.
    struct ib_user_path_rec {
        dgid: [u8; 16],
        sgid: [u8; 16],
        dlid: u16,
        slid: u16,
        raw_traffic: u32,
        flow_label: u32,
        reversible: u32,
        mtu: u32,
        pkey: u16,
        hop_limit: u8,
        traffic_class: u8,
        numb_path: u8,
        sl: u8,
        mtu_selector: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }
}

/// Layouts of the structures of this module.
#[must_use]
pub fn layouts() -> &'static [StructLayout] {
    STRUCTS
}

/// An address from the kernel's form.
fn ah_attr(from: &ib_uverbs_ah_attr) -> ibv_ah_attr {
    let ib_uverbs_global_route {
        dgid,
        flow_label,
        sgid_index,
        hop_limit,
        traffic_class,
        ..
    } = from.grh;
    let ib_uverbs_ah_attr {
        dlid,
        sl,
        src_path_bits,
        static_rate,
        is_global,
        port_num,
        ..
    } = *from;
    let grh = ibv_global_route {
        dgid: ibv_gid { raw: dgid },
        flow_label,
        sgid_index,
        hop_limit,
        traffic_class,
    };
    ibv_ah_attr {
        grh,
        dlid,
        sl,
        src_path_bits,
        static_rate,
        is_global,
        port_num,
    }
}

/// An address from the kernel's form.
pub unsafe extern "C" fn ibv_copy_ah_attr_from_kern(
    dst: *mut ibv_ah_attr,
    src: *const ib_uverbs_ah_attr,
) {
    // SAFETY: both structures of the caller.
    unsafe { dst.write(ah_attr(&*src)) };
}

/// Attributes of a queue pair from the kernel's form.
pub unsafe extern "C" fn ibv_copy_qp_attr_from_kern(
    dst: *mut ibv_qp_attr,
    src: *const ib_uverbs_qp_attr,
) {
    // SAFETY: both structures of the caller; all fields are plain numbers.
    let (to, from) = unsafe { (&mut *dst, &*src) };
    macro_rules! same {
        ($($field:ident)*) => { $(to.$field = from.$field;)* };
    }
    same!(qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags);
    same!(pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer);
    same!(port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout);
    to.ah_attr = ah_attr(&from.ah_attr);
    to.alt_ah_attr = ah_attr(&from.alt_ah_attr);
    let &ib_uverbs_qp_attr {
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline_data,
        ..
    } = from;
    to.cap = ibv_qp_cap {
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline_data,
    };
}

/// A path from the kernel's form.
pub unsafe extern "C" fn ibv_copy_path_rec_from_kern(
    dst: *mut ibv_sa_path_rec,
    src: *const ib_user_path_rec,
) {
    // SAFETY: both structures of the caller; all fields are plain numbers.
    let (to, from) = unsafe { (&mut *dst, &*src) };
    macro_rules! same {
        ($($field:ident)*) => { $(to.$field = from.$field;)* };
    }
    same!(dlid slid flow_label hop_limit traffic_class numb_path pkey sl mtu_selector rate_selector rate);
    same!(packet_life_time_selector packet_life_time preference);
    to.dgid.raw = from.dgid;
    to.sgid.raw = from.sgid;
    to.raw_traffic = from.raw_traffic.cast_signed();
    to.reversible = from.reversible.cast_signed();
    // The enumerators of the MTU fit the byte of the other form.
    to.mtu = u8::try_from(from.mtu).unwrap_or(0);
}

/// A path to the kernel's form.
pub unsafe extern "C" fn ibv_copy_path_rec_to_kern(
    dst: *mut ib_user_path_rec,
    src: *const ibv_sa_path_rec,
) {
    // SAFETY: both structures of the caller; all fields are plain numbers.
    let (to, from) = unsafe { (&mut *dst, &*src) };
    macro_rules! same {
        ($($field:ident)*) => { $(to.$field = from.$field;)* };
    }
    same!(dlid slid flow_label hop_limit traffic_class numb_path pkey sl mtu_selector rate_selector rate);
    same!(packet_life_time_selector packet_life_time preference);
    to.dgid = from.dgid.raw;
    to.sgid = from.sgid.raw;
    to.raw_traffic = from.raw_traffic.cast_unsigned();
    to.reversible = from.reversible.cast_unsigned();
    to.mtu = from.mtu.into();
}
