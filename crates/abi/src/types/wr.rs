//! Work requests.

use std::fmt;

use libc::{c_int, c_void};

use super::{ibv_ah, ibv_mw, ibv_mw_bind_info};
use crate::layout::c_structs;

/// Remote memory of a send-queue work request (`wr.rdma`).
#[allow(
    non_camel_case_types,
    reason = "named after its place in the C structure"
)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_send_wr_rdma {
    /// First address.
    pub remote_addr: u64,
    /// Remote key.
    pub rkey: u32,
}

/// Operands of an atomic (`wr.atomic`).
#[allow(
    non_camel_case_types,
    reason = "named after its place in the C structure"
)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_send_wr_atomic {
    /// Target.
    pub remote_addr: u64,
    /// Value compared with, or added.
    pub compare_add: u64,
    /// Value written.
    pub swap: u64,
    /// Remote key.
    pub rkey: u32,
}

/// Destination of a datagram (`wr.ud`).
#[allow(
    non_camel_case_types,
    reason = "named after its place in the C structure"
)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_send_wr_ud {
    /// Address handle.
    pub ah: *mut ibv_ah,
    /// Queue pair.
    pub remote_qpn: u32,
    /// Q_Key of the receiving queue pair.
    pub remote_qkey: u32,
}

/// What the opcode needs (`wr`).
#[allow(
    non_camel_case_types,
    reason = "named after its place in the C structure"
)]
#[derive(Clone, Copy)]
#[repr(C)]
pub union ibv_send_wr_wr {
    /// READ and WRITE.
    pub rdma: ibv_send_wr_rdma,
    /// Atomics.
    pub atomic: ibv_send_wr_atomic,
    /// Datagrams.
    pub ud: ibv_send_wr_ud,
}

/// Shows no member: the opcode says which one is set.
impl fmt::Debug for ibv_send_wr_wr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ibv_send_wr_wr").finish_non_exhaustive()
    }
}

/// A bind request (`bind_mw`).
#[allow(
    non_camel_case_types,
    reason = "named after its place in the C structure"
)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_send_wr_bind_mw {
    /// Window.
    pub mw: *mut ibv_mw,
    /// New key of the window.
    pub rkey: u32,
    /// Memory and rights that the window opens.
    pub bind_info: ibv_mw_bind_info,
}

/// Shows no field: they are set for a bind request only.
impl fmt::Debug for ibv_send_wr_bind_mw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ibv_send_wr_bind_mw")
            .finish_non_exhaustive()
    }
}

c_structs! { WR_LAYOUTS;
    /// A scatter/gather element.
    struct ibv_sge {
        addr: u64,
        length: u32,
        lkey: u32,
    }

    /// A piece of inline data.
    struct ibv_data_buf {
        addr: *mut c_void,
        length: usize,
    }

    /// A send-queue work request. Union members that the opcode does not need may be uninitialised.
    struct ibv_send_wr {
        wr_id: u64,
        next: *mut ibv_send_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        opcode: u32,
        send_flags: u32,
        /// As on the wire; the key to invalidate (in host order) shares its place.
        imm_data: u32,
        wr: ibv_send_wr_wr,
        qp_type: u32,
        /// Shares its place with what segmentation offload needs.
        bind_mw: ibv_send_wr_bind_mw,
    }

    /// A receive-queue work request.
    struct ibv_recv_wr {
        wr_id: u64,
        next: *mut ibv_recv_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
    }
}
