//! An rsocket's identifier of the connection manager.

use std::net::SocketAddr;
use std::ptr;

use libc::{c_int, c_void, sockaddr};

use super::errno::{Errno, Result};
use super::service::Service;
use crate::rdmacm::id::Id;
use crate::rdmacm::types::{RDMA_OPTION_ID, rdma_cm_id, rdma_conn_param};
use crate::rdmacm::{
    rdma_accept, rdma_bind_addr, rdma_connect, rdma_create_id, rdma_destroy_id, rdma_disconnect,
    rdma_listen, rdma_reject, rdma_resolve_addr, rdma_resolve_route, rdma_set_option,
    sockaddr as address,
};

/// Milliseconds that the resolution of a route may take.
const ROUTE_TIMEOUT: c_int = 8000;

/// An identifier, destroyed when its last owner is gone. Its queue pair, if it has one, is owned by
/// [`StreamEndpoint`](super::endpoint::StreamEndpoint), which owns a part of this.
#[derive(Debug)]
pub(super) struct CmId {
    raw: *mut rdma_cm_id,
}

// SAFETY: librdmacm's functions may be called on an identifier from any thread.
unsafe impl Send for CmId {}
// SAFETY: those functions lock what they use.
unsafe impl Sync for CmId {}

impl Drop for CmId {
    fn drop(&mut self) {
        Service::forget(self.key());
        // SAFETY: made by `rdma_create_id` or taken from a connect request, and the only owner.
        unsafe { rdma_destroy_id(self.raw) };
    }
}

impl CmId {
    /// Makes an identifier of a port space (`enum rdma_port_space`).
    pub(super) fn create(service: &Service, space: u32) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the service's channel is live for ever.
        Errno::check(unsafe {
            rdma_create_id(service.channel(), &raw mut raw, ptr::null_mut(), space)
        })?;
        Ok(Self { raw })
    }

    /// Takes over the identifier of a connect request.
    ///
    /// # Safety
    /// `raw` is live and nobody else's.
    pub(super) unsafe fn from_request(raw: *mut rdma_cm_id) -> Self {
        Self { raw }
    }

    /// What events name it by.
    pub(super) fn key(&self) -> usize {
        self.raw.addr()
    }

    /// The identifier, for calls of verbs.
    pub(super) fn as_ptr(&self) -> *mut rdma_cm_id {
        self.raw
    }

    fn with<T>(&self, f: impl FnOnce(Id<'_>) -> T) -> T {
        // SAFETY: live as long as `self`.
        f(unsafe { Id::new(self.raw) }.expect("invariant: an identifier is not NULL"))
    }

    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        self.with(|id| id.nic().local_addr())
    }

    pub(super) fn peer_addr(&self) -> Option<SocketAddr> {
        self.with(|id| id.nic().peer_addr())
    }

    pub(super) fn bind(&self, addr: SocketAddr) -> Result<()> {
        let storage = address::store(addr);
        let addr = (&raw const storage).cast::<sockaddr>().cast_mut();
        // SAFETY: a live identifier and an address.
        Errno::check(unsafe { rdma_bind_addr(self.raw, addr) })
    }

    pub(super) fn listen(&self, backlog: c_int) -> Result<()> {
        // SAFETY: a live identifier.
        Errno::check(unsafe { rdma_listen(self.raw, backlog) })
    }

    pub(super) fn resolve_addr(&self, addr: SocketAddr, timeout_ms: c_int) -> Result<()> {
        let storage = address::store(addr);
        let addr = (&raw const storage).cast::<sockaddr>().cast_mut();
        // SAFETY: a live identifier and an address.
        Errno::check(unsafe { rdma_resolve_addr(self.raw, ptr::null_mut(), addr, timeout_ms) })
    }

    pub(super) fn resolve_route(&self) -> Result<()> {
        // SAFETY: a live identifier.
        Errno::check(unsafe { rdma_resolve_route(self.raw, ROUTE_TIMEOUT) })
    }

    /// An option of level `RDMA_OPTION_ID`, an `int` or a byte.
    pub(super) fn set_option<T: Copy>(&self, name: c_int, value: T) -> Result<()> {
        let value = (&raw const value).cast::<c_void>().cast_mut();
        // SAFETY: a live identifier; the value is live and as long as is said.
        Errno::check(unsafe {
            rdma_set_option(self.raw, RDMA_OPTION_ID, name, value, size_of::<T>())
        })
    }

    pub(super) fn connect(&self, data: &[u8], is_iwarp: bool) -> Result<()> {
        let mut param = conn_param(data, is_iwarp);
        // SAFETY: a live identifier; parameters and data live through the call.
        Errno::check(unsafe { rdma_connect(self.raw, &raw mut param) })
    }

    pub(super) fn accept(&self, data: &[u8], is_iwarp: bool) -> Result<()> {
        let mut param = conn_param(data, is_iwarp);
        // SAFETY: a live identifier; parameters and data live through the call.
        Errno::check(unsafe { rdma_accept(self.raw, &raw mut param) })
    }

    /// Turns a connect request down.
    pub(super) fn reject(&self) {
        // SAFETY: a live identifier. That the peer is gone already is no failure.
        unsafe { rdma_reject(self.raw, ptr::null(), 0) };
    }

    /// Ends the connection, if there is one.
    pub(super) fn disconnect(&self) {
        // SAFETY: a live identifier. That the connection is over already is no failure.
        unsafe { rdma_disconnect(self.raw) };
    }
}

/// What librdmacm's rsockets ask for. iWARP needs one READ, for the first message of a connection.
fn conn_param(data: &[u8], is_iwarp: bool) -> rdma_conn_param {
    rdma_conn_param {
        private_data: data.as_ptr().cast(),
        private_data_len: u8::try_from(data.len()).unwrap_or(u8::MAX),
        responder_resources: 0,
        initiator_depth: is_iwarp.into(),
        flow_control: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: 0,
    }
}
