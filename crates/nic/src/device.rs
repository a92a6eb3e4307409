//! Devices (one per network interface) and open contexts.

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use ferroce_proto::ids::{Gid, Guid};
use ferroce_proto::verbs::{AsyncEvent, Mtu};

use crate::Error;

/// Limits and capabilities of a device: what they say is what works.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names are those of ibv_query_device(3)")]
pub struct DeviceAttr {
    pub fw_ver: String,
    pub node_guid: Guid,
    pub sys_image_guid: Guid,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub device_cap_flags: u32,
    pub max_sge: u32,
    pub max_sge_rd: u32,
    pub max_inline_data: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_pd: u32,
    pub max_qp_rd_atom: u32,
    pub max_qp_init_rd_atom: u32,
    pub max_res_rd_atom: u32,
    pub max_ah: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_mcast_grp: u32,
    pub max_mcast_qp_attach: u32,
    pub local_ca_ack_delay: u8,
}

/// State of a device's only port.
#[derive(Clone, Debug)]
pub struct PortAttr {
    /// Interface up: ACTIVE.
    pub active: bool,
    /// Always 4096.
    pub max_mtu: Mtu,
    /// From the interface: largest at most its MTU - 80.
    pub active_mtu: Mtu,
    /// MTU of the interface in bytes.
    pub netdev_mtu: u32,
    /// Length of the GID table, empty entries included.
    pub gid_tbl_len: u32,
    /// Longest message: 2^31.
    pub max_msg_sz: u32,
}

/// An entry of the GID table. All entries are of type `RoCEv2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Index in the port's table.
    pub index: u32,
    /// The GID.
    pub gid: Gid,
    /// Index of the network interface.
    pub ifindex: u32,
}

/// A device: one network interface.
#[derive(Debug)]
pub struct Device {
    // nic helper: fill
    name: String,
}

impl Device {
    /// Name, for example `ferroce_eth0`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Name of the network interface.
    #[must_use]
    pub fn netdev(&self) -> &str {
        todo!()
    }
    /// Position in the list of devices, stable for the life of the process.
    #[must_use]
    pub fn index(&self) -> u32 {
        todo!()
    }
    /// Limits and capabilities.
    #[must_use]
    pub fn attr(&self) -> DeviceAttr {
        todo!()
    }
    /// State of port 1.
    #[must_use]
    pub fn port(&self) -> PortAttr {
        todo!()
    }
    /// The non-empty entries of the GID table, in order of index. IPv4-mapped ones come first.
    #[must_use]
    pub fn gids(&self) -> Vec<GidEntry> {
        todo!()
    }
    /// The GID at an index, `None` if the entry is empty or the index past the table.
    #[must_use]
    pub fn gid(&self, _index: u32) -> Option<Gid> {
        todo!()
    }
    /// Whether the address belongs to this device (127.0.0.0/8 and `::1` belong to the loopback device).
    #[must_use]
    pub fn has_address(&self, _ip: IpAddr) -> bool {
        todo!()
    }
}

/// What an asynchronous event is about. The numbers are the cookies that the owner gave the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncSubject {
    /// A completion queue's cookie.
    Cq(usize),
    /// A queue pair's cookie.
    Qp(usize),
    /// A port's number.
    Port(u8),
}

/// An open device (`ibv_open_device`): objects belong to it and it has its own queue of asynchronous events.
#[derive(Debug)]
pub struct Context {
    // nic helper: fill
    device: Arc<Device>,
}

impl Context {
    /// Opens a device.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn open(_device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        todo!()
    }
    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
    /// Semaphore eventfd: its count is the number of queued events. Read one count (8 bytes), then
    /// [`pop_async_event`](Self::pop_async_event).
    #[must_use]
    pub fn async_fd(&self) -> RawFd {
        todo!()
    }
    /// Takes the oldest event.
    pub fn pop_async_event(&self) -> Option<(AsyncEvent, AsyncSubject)> {
        todo!()
    }
    /// Removes the undelivered events about an object that is being destroyed, with their counts.
    pub fn forget_async(&self, _subject: AsyncSubject) {
        todo!()
    }
}
