//! The C types of `rdma/rdma_cma.h` and `infiniband/sa.h`: same names, same layouts (a test
//! compares them with the installed headers). Numbers on which C programs and the network agree are
//! big-endian where the header says so.

use std::fmt;

use libc::{c_char, c_int, c_void, sockaddr, sockaddr_storage, socklen_t};

use crate::layout::{Constant, StructLayout, c_constants, c_structs};
use crate::types::{
    ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_srq,
};

c_structs! { STRUCTS;
    /// A path between two ports.
    struct ibv_sa_path_rec {
        dgid: ibv_gid,
        sgid: ibv_gid,
        /// Big-endian.
        dlid: u16,
        /// Big-endian.
        slid: u16,
        raw_traffic: c_int,
        /// Big-endian.
        flow_label: u32,
        hop_limit: u8,
        traffic_class: u8,
        reversible: c_int,
        numb_path: u8,
        /// Big-endian.
        pkey: u16,
        sl: u8,
        mtu_selector: u8,
        mtu: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }

    /// A path as a subnet administrator sends it.
    struct ibv_path_record {
        /// Big-endian.
        service_id: u64,
        dgid: ibv_gid,
        sgid: ibv_gid,
        /// Big-endian.
        dlid: u16,
        /// Big-endian.
        slid: u16,
        /// Big-endian: 4 reserved bits, flow label, 8 bits of hop limit.
        flowlabel_hoplimit: u32,
        tclass: u8,
        reversible_numpath: u8,
        /// Big-endian.
        pkey: u16,
        /// Big-endian: QoS class, 4 bits of service level.
        qosclass_sl: u16,
        /// Selector in the upper two bits, as in the next two.
        mtu: u8,
        rate: u8,
        packetlifetime: u8,
        preference: u8,
        reserved: [u8; 6],
    }

    /// A path and what it is for.
    struct ibv_path_data {
        flags: u32,
        reserved: u32,
        path: ibv_path_record,
    }

    /// An InfiniBand address.
    struct sockaddr_ib {
        sib_family: u16,
        /// Big-endian.
        sib_pkey: u16,
        /// Big-endian.
        sib_flowinfo: u32,
        sib_addr: ibv_gid,
        /// Big-endian.
        sib_sid: u64,
        /// Big-endian.
        sib_sid_mask: u64,
        sib_scope_id: u64,
    }

    /// The IB form of the addresses.
    struct rdma_ib_addr {
        sgid: ibv_gid,
        dgid: ibv_gid,
        /// Big-endian.
        pkey: u16,
    }

    /// Source and destination. Only the part of `sockaddr_storage` that the family names is
    /// meaningful.
    struct rdma_addr {
        src_storage: sockaddr_storage,
        dst_storage: sockaddr_storage,
        addr: rdma_ib_addr,
    }

    /// Addresses and paths.
    struct rdma_route {
        addr: rdma_addr,
        path_rec: *mut ibv_sa_path_rec,
        num_paths: c_int,
    }

    /// An event channel. Programs poll `fd` and may set `O_NONBLOCK` on it.
    struct rdma_event_channel {
        fd: c_int,
    }

    /// An identifier, as far as programs see it.
    struct rdma_cm_id {
        verbs: *mut ibv_context,
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        qp: *mut ibv_qp,
        route: rdma_route,
        ps: u32,
        port_num: u8,
        event: *mut rdma_cm_event,
        send_cq_channel: *mut ibv_comp_channel,
        send_cq: *mut ibv_cq,
        recv_cq_channel: *mut ibv_comp_channel,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        pd: *mut ibv_pd,
        qp_type: u32,
    }

    /// Parameters of a connection.
    struct rdma_conn_param {
        private_data: *const c_void,
        private_data_len: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: u8,
        qp_num: u32,
    }

    /// Parameters of a datagram service.
    struct rdma_ud_param {
        private_data: *const c_void,
        private_data_len: u8,
        ah_attr: ibv_ah_attr,
        qp_num: u32,
        qkey: u32,
    }

    /// An event.
    struct rdma_cm_event {
        id: *mut rdma_cm_id,
        listen_id: *mut rdma_cm_id,
        event: u32,
        status: c_int,
        param: rdma_cm_event_param,
    }

    /// Hints for, and results of, `rdma_getaddrinfo`.
    struct rdma_addrinfo {
        ai_flags: c_int,
        ai_family: c_int,
        ai_qp_type: c_int,
        ai_port_space: c_int,
        ai_src_len: socklen_t,
        ai_dst_len: socklen_t,
        ai_src_addr: *mut sockaddr,
        ai_dst_addr: *mut sockaddr,
        ai_src_canonname: *mut c_char,
        ai_dst_canonname: *mut c_char,
        ai_route_len: usize,
        ai_route: *mut c_void,
        ai_connect_len: usize,
        ai_connect: *mut c_void,
        ai_next: *mut rdma_addrinfo,
    }

    /// What `rdma_join_multicast_ex` asks for.
    struct rdma_cm_join_mc_attr_ex {
        comp_mask: u32,
        join_flags: u32,
        addr: *mut sockaddr,
    }
}

/// The union `param` of an event: `ud` for datagram port spaces, `conn` otherwise.
#[allow(
    non_camel_case_types,
    reason = "named after its place in the C structure"
)]
#[derive(Clone, Copy)]
#[repr(C)]
pub union rdma_cm_event_param {
    /// Connections.
    pub conn: rdma_conn_param,
    /// Datagrams.
    pub ud: rdma_ud_param,
    /// Events of the program itself; of newer headers.
    pub arg: u64,
}

/// Shows no member: the identifier's port space says which one is set.
impl fmt::Debug for rdma_cm_event_param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("rdma_cm_event_param")
            .finish_non_exhaustive()
    }
}

c_constants! { EVENTS: u32;
    RDMA_CM_EVENT_ADDR_RESOLVED = 0;
    RDMA_CM_EVENT_ADDR_ERROR = 1;
    RDMA_CM_EVENT_ROUTE_RESOLVED = 2;
    RDMA_CM_EVENT_ROUTE_ERROR = 3;
    RDMA_CM_EVENT_CONNECT_REQUEST = 4;
    RDMA_CM_EVENT_CONNECT_RESPONSE = 5;
    RDMA_CM_EVENT_CONNECT_ERROR = 6;
    RDMA_CM_EVENT_UNREACHABLE = 7;
    RDMA_CM_EVENT_REJECTED = 8;
    RDMA_CM_EVENT_ESTABLISHED = 9;
    RDMA_CM_EVENT_DISCONNECTED = 10;
    RDMA_CM_EVENT_DEVICE_REMOVAL = 11;
    RDMA_CM_EVENT_MULTICAST_JOIN = 12;
    RDMA_CM_EVENT_MULTICAST_ERROR = 13;
    RDMA_CM_EVENT_ADDR_CHANGE = 14;
    RDMA_CM_EVENT_TIMEWAIT_EXIT = 15;
}

/// Of newer headers than those that the constants above are held against.
pub const RDMA_CM_EVENT_USER: u32 = 18;
/// As [`RDMA_CM_EVENT_USER`].
pub const RDMA_CM_EVENT_ADDRINFO_RESOLVED: u32 = 16;
/// As [`RDMA_CM_EVENT_USER`].
pub const RDMA_CM_EVENT_ADDRINFO_ERROR: u32 = 17;
/// As [`RDMA_CM_EVENT_USER`].
pub const RAI_SA: c_int = 0x10;
/// As [`RDMA_CM_EVENT_USER`].
pub const RAI_DNS: c_int = 0x20;

c_constants! { PORT_SPACES: u32;
    RDMA_PS_IPOIB = 0x0002;
    RDMA_PS_TCP = 0x0106;
    RDMA_PS_UDP = 0x0111;
    RDMA_PS_IB = 0x013f;
}

c_constants! { NUMBERS: c_int;
    RAI_PASSIVE = 1;
    RAI_NUMERICHOST = 2;
    RAI_NOROUTE = 4;
    RAI_FAMILY = 8;
    RDMA_OPTION_ID = 0;
    RDMA_OPTION_IB = 1;
    RDMA_OPTION_ID_TOS = 0;
    RDMA_OPTION_ID_REUSEADDR = 1;
    RDMA_OPTION_ID_AFONLY = 2;
    RDMA_OPTION_ID_ACK_TIMEOUT = 3;
    RDMA_OPTION_IB_PATH = 1;
    IBV_PATH_FLAG_GMP = 1;
    IBV_PATH_FLAG_PRIMARY = 2;
    IBV_PATH_FLAG_BIDIRECTIONAL = 0x28;
    AF_IB = 27;
    RDMA_UDP_QKEY = 0x0123_4567;
    RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1;
    RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 2;
    RDMA_CM_JOIN_MC_ATTR_RESERVED = 4;
    RDMA_MC_JOIN_FLAG_FULLMEMBER = 0;
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1;
    RDMA_MC_JOIN_FLAG_RESERVED = 2;
}

c_constants! { RESOURCES: u8;
    RDMA_MAX_RESP_RES = 0xff;
    RDMA_MAX_INIT_DEPTH = 0xff;
}

/// Layouts of all structures of this module.
#[must_use]
pub fn layouts() -> Vec<StructLayout> {
    STRUCTS.to_vec()
}

/// Values of all constants of this module.
#[must_use]
pub fn constants() -> Vec<Constant> {
    [EVENTS, PORT_SPACES, NUMBERS, RESOURCES].concat()
}
