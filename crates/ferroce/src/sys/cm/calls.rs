//! What identifiers do: addresses, connections, options.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr;

use ferroce_abi::cm_types::{
    RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR,
    RDMA_OPTION_ID_TOS,
};
use ferroce_abi::sockaddr;
use ferroce_abi::types::IBV_EVENT_COMM_EST;

use super::Identifier;
use super::identifier::lock;
use super::parameters::{in_c, length_of};
use crate::Result;
use crate::cm::ConnectionParameters;

/// What `rdma_set_option` sets.
#[derive(Clone, Copy)]
pub(crate) enum IdOption {
    TypeOfService(u8),
    ReuseAddress(bool),
    Ipv6Only(bool),
    AckTimeout(u8),
}

impl Identifier {
    /// `rdma_bind_addr`
    pub(crate) fn bind(&self, address: SocketAddr) -> Result<()> {
        let mut stored = sockaddr::store(address);
        self.call("rdma_bind_addr", |id| {
            let mut place = lock(&self.place);
            // SAFETY: a live identifier and an address.
            let result = unsafe { (self.verbs.rdma_bind_addr)(id, (&raw mut stored).cast()) };
            if result == 0 {
                // SAFETY: one that has just been bound has no event yet; the lock of the place
                // keeps other binds away.
                unsafe { self.read_place(&mut place) };
            }
            result
        })
        .map_err(|e| e.about(|| address.to_string()))
    }

    /// `rdma_get_src_port`
    pub(crate) fn port(&self) -> u16 {
        let _place = lock(&self.place);
        // SAFETY: a live identifier.
        u16::from_be(unsafe { (self.verbs.rdma_get_src_port)(self.raw.as_ptr()) })
    }

    /// `rdma_listen`
    pub(crate) fn listen(&self, backlog: u16) -> Result<()> {
        self.call("rdma_listen", |id| {
            let _place = lock(&self.place);
            // SAFETY: a live identifier.
            unsafe { (self.verbs.rdma_listen)(id, backlog.into()) }
        })
    }

    /// `rdma_resolve_addr`, from a local address or from whichever leads there.
    pub(crate) fn resolve_address(
        &self,
        from: Option<SocketAddr>,
        to: SocketAddr,
        milliseconds: c_int,
    ) -> Result<()> {
        let (mut from, mut to) = (from.map(sockaddr::store), sockaddr::store(to));
        let from = from
            .as_mut()
            .map_or(ptr::null_mut(), |from| ptr::from_mut(from).cast());
        self.call("rdma_resolve_addr", |id| {
            let _place = lock(&self.place);
            // SAFETY: a live identifier, and addresses that live for the call.
            unsafe { (self.verbs.rdma_resolve_addr)(id, from, (&raw mut to).cast(), milliseconds) }
        })
    }

    /// `rdma_resolve_route`
    pub(crate) fn resolve_route(&self, milliseconds: c_int) -> Result<()> {
        self.call_on_device("rdma_resolve_route", None, |id| {
            // SAFETY: a live identifier.
            unsafe { (self.verbs.rdma_resolve_route)(id, milliseconds) }
        })
    }

    /// `rdma_connect`
    pub(crate) fn connect(&self, parameters: &ConnectionParameters) -> Result<()> {
        let most = if self.for_datagrams { 180 } else { 56 };
        let mut in_c = in_c(parameters)?;
        let long = too_long(&parameters.private_data, most);
        self.call_on_device("rdma_connect", long, |id| {
            // SAFETY: a live identifier and parameters whose private data is valid for the call.
            unsafe { (self.verbs.rdma_connect)(id, &raw mut in_c) }
        })
    }

    /// `rdma_accept`; of datagrams for the queue pair with this number, unless the identifier has
    /// one.
    pub(crate) fn accept(&self, parameters: &ConnectionParameters, number: u32) -> Result<()> {
        let most = if self.for_datagrams { 136 } else { 196 };
        let mut in_c = in_c(parameters)?;
        in_c.qp_num = number;
        let long = too_long(&parameters.private_data, most);
        self.call_on_device("rdma_accept", long, |id| {
            // SAFETY: a live identifier; `in_c` and the private data that it points to outlive the
            // call.
            unsafe { (self.verbs.rdma_accept)(id, &raw mut in_c) }
        })
    }

    /// `rdma_reject`
    pub(crate) fn reject(&self, private_data: &[u8]) -> Result<()> {
        let most = if self.for_datagrams { 136 } else { 148 };
        let length = length_of(private_data)?;
        let long = too_long(private_data, most);
        self.call_about("rdma_reject", long, |id| {
            // SAFETY: a live identifier and that many bytes.
            unsafe { (self.verbs.rdma_reject)(id, private_data.as_ptr().cast(), length) }
        })
    }

    /// `rdma_disconnect`
    pub(crate) fn disconnect(&self) -> Result<()> {
        self.call("rdma_disconnect", |id| {
            // SAFETY: a live identifier.
            unsafe { (self.verbs.rdma_disconnect)(id) }
        })
    }

    /// `rdma_notify` of `IBV_EVENT_COMM_EST`
    pub(crate) fn notify_established(&self) -> Result<()> {
        self.call("rdma_notify", |id| {
            // SAFETY: a live identifier.
            unsafe { (self.verbs.rdma_notify)(id, IBV_EVENT_COMM_EST) }
        })
    }

    /// `rdma_set_option`
    pub(crate) fn set_option(&self, option: IdOption) -> Result<()> {
        let (name, byte, number) = match option {
            IdOption::TypeOfService(class) => (RDMA_OPTION_ID_TOS, Some(class), 0),
            IdOption::AckTimeout(timeout) => (RDMA_OPTION_ID_ACK_TIMEOUT, Some(timeout), 0),
            IdOption::ReuseAddress(on) => (RDMA_OPTION_ID_REUSEADDR, None, c_int::from(on)),
            IdOption::Ipv6Only(on) => (RDMA_OPTION_ID_AFONLY, None, c_int::from(on)),
        };
        // Options are of one byte, or an `int`.
        let (mut bytes, length) = match byte {
            Some(byte) => ([byte, 0, 0, 0], 1),
            None => (number.to_ne_bytes(), size_of::<c_int>()),
        };
        self.call("rdma_set_option", |id| {
            // SAFETY: a live identifier, and a value of that length.
            unsafe {
                let value = bytes.as_mut_ptr().cast();
                (self.verbs.rdma_set_option)(id, RDMA_OPTION_ID, name, value, length)
            }
        })
    }
}

/// That private data is longer than InfiniBand's connection manager takes; other ones, of iWARP,
/// take more.
fn too_long(private_data: &[u8], most: usize) -> Option<String> {
    let length = private_data.len();
    (length > most).then(|| format!("{length} bytes of private data, and {most} is the most"))
}
