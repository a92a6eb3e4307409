//! Address handles and routes.

use super::{ibv_context, ibv_gid, ibv_pd};
use crate::layout::c_structs;

c_structs! { AH_LAYOUTS;
    /// The global part of an address.
    struct ibv_global_route {
        dgid: ibv_gid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }

    /// The global routing header in front of a datagram.
    struct ibv_grh {
        version_tclass_flow: u32,
        paylen: u16,
        next_hdr: u8,
        hop_limit: u8,
        sgid: ibv_gid,
        dgid: ibv_gid,
    }

    /// An address.
    struct ibv_ah_attr {
        grh: ibv_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    /// An address handle.
    struct ibv_ah {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        handle: u32,
    }
}
