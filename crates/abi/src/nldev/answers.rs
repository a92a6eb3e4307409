//! What devices and ports are, and what they have counted.

use std::ffi::c_int;
use std::sync::Arc;

use ferroce_nic::survey::{self, Count, Said};
use ferroce_nic::{Counters, Device, Nic, Protocol, all_denials};

use super::message::{Attributes, NetlinkRequest, Reply};
use crate::sysfs::{UVERBS_MAJOR, UVERBS_MINOR, VERBS_ABI};
use crate::types::{IBV_NODE_CA, IBV_NODE_RNIC};
use crate::verbs::port::port_attr;

/// `enum rdma_nldev_attr`.
pub(super) mod attribute {
    pub(crate) const DEV_INDEX: u16 = 1;
    pub(crate) const DEV_NAME: u16 = 2;
    pub(crate) const PORT_INDEX: u16 = 3;
    pub(super) const CAP_FLAGS: u16 = 4;
    pub(super) const FW_VERSION: u16 = 5;
    pub(super) const NODE_GUID: u16 = 6;
    pub(super) const SYS_IMAGE_GUID: u16 = 7;
    pub(super) const PORT_STATE: u16 = 12;
    pub(super) const PORT_PHYS_STATE: u16 = 13;
    pub(super) const DEV_NODE_TYPE: u16 = 14;
    pub(super) const NDEV_INDEX: u16 = 50;
    pub(super) const NDEV_NAME: u16 = 51;
    pub(super) const SYS_NETNS_MODE: u16 = 66;
    pub(super) const DEV_PROTOCOL: u16 = 67;
    pub(super) const CHARDEV_TYPE: u16 = 69;
    pub(super) const CHARDEV_NAME: u16 = 70;
    pub(super) const CHARDEV_ABI: u16 = 71;
    pub(super) const CHARDEV: u16 = 72;
    pub(super) const STAT_RES: u16 = 75;
    pub(super) const STAT_HWCOUNTERS: u16 = 80;
    pub(super) const STAT_HWCOUNTER_ENTRY: u16 = 81;
    pub(super) const STAT_HWCOUNTER_ENTRY_NAME: u16 = 82;
    pub(super) const STAT_HWCOUNTER_ENTRY_VALUE: u16 = 83;
    pub(super) const SYS_COPY_ON_FORK: u16 = 93;
}
use attribute as a;

/// All devices that are in sight.
fn all() -> Result<Vec<Arc<Device>>, c_int> {
    Nic::devices_in_sight().map_err(|e| e.errno)
}

/// The devices that a request is about: all in a dump without an index.
///
/// # Errors
/// EINVAL: it names none. ENODEV: there is none of this index.
pub(super) fn asked_for(request: &NetlinkRequest<'_>) -> Result<Vec<Arc<Device>>, c_int> {
    let devices = all()?;
    match request.number(a::DEV_INDEX)? {
        None if request.is_dump() => Ok(devices),
        None => Err(libc::EINVAL),
        Some(index) => {
            let one = devices.into_iter().find(|d| d.index() == index);
            one.map(|device| vec![device]).ok_or(libc::ENODEV)
        }
    }
}

/// In front of all answers about a device.
pub(super) fn handle(to: &mut Attributes, device: &Device) {
    to.u32(a::DEV_INDEX, device.index());
    to.text(a::DEV_NAME, device.name());
}

/// `RDMA_NLDEV_CMD_GET`.
pub(super) fn devices(request: &NetlinkRequest<'_>, reply: &mut Reply<'_>) -> Result<(), c_int> {
    for device in asked_for(request)? {
        let attr = device.attr();
        reply.message(|to| {
            handle(to, &device);
            to.u32(a::PORT_INDEX, 1);
            to.u64(a::CAP_FLAGS, attr.device_cap_flags.into());
            to.text(a::FW_VERSION, &attr.fw_ver);
            to.u64(a::NODE_GUID, attr.node_guid.0);
            to.u64(a::SYS_IMAGE_GUID, attr.sys_image_guid.0);
            let (node, protocol) = match device.protocol() {
                Protocol::RoceV2 => (IBV_NODE_CA, "roce"),
                Protocol::Iwarp => (IBV_NODE_RNIC, "iw"),
            };
            let node = u8::try_from(node).expect("invariant: a small number");
            to.u8(a::DEV_NODE_TYPE, node);
            to.text(a::DEV_PROTOCOL, protocol);
        });
    }
    Ok(())
}

/// `RDMA_NLDEV_CMD_PORT_GET`.
pub(super) fn ports(request: &NetlinkRequest<'_>, reply: &mut Reply<'_>) -> Result<(), c_int> {
    check_port(request)?;
    for device in asked_for(request)? {
        let attr = port_attr(&device);
        reply.message(|to| {
            handle(to, &device);
            to.u32(a::PORT_INDEX, 1);
            to.u8(a::PORT_STATE, u8::try_from(attr.state).unwrap_or(0));
            to.u8(a::PORT_PHYS_STATE, attr.phys_state);
            to.u32(a::NDEV_INDEX, device.ifindex());
            to.text(a::NDEV_NAME, device.netdev());
        });
    }
    Ok(())
}

/// One that asks for a single port must name it.
fn check_port(request: &NetlinkRequest<'_>) -> Result<(), c_int> {
    match request.number(a::PORT_INDEX)? {
        Some(1) => Ok(()),
        None if request.is_dump() => Ok(()),
        _ => Err(libc::EINVAL),
    }
}

/// `RDMA_NLDEV_CMD_SYS_GET`.
pub(super) fn system(reply: &mut Reply<'_>) -> Result<(), c_int> {
    reply.message(|to| {
        // Each network namespace has devices of its own.
        to.u8(a::SYS_NETNS_MODE, 0);
        to.u8(a::SYS_COPY_ON_FORK, 1);
    });
    Ok(())
}

/// `RDMA_NLDEV_CMD_GET_CHARDEV`, as libibverbs asks: which node is a device's.
pub(super) fn node(request: &NetlinkRequest<'_>, reply: &mut Reply<'_>) -> Result<(), c_int> {
    if request.text(a::CHARDEV_TYPE)? != Some("uverbs") {
        return Err(libc::ENODEV);
    }
    let device = asked_for(request)?.into_iter().next().ok_or(libc::ENODEV)?;
    let minor = UVERBS_MINOR + device.index();
    reply.message(|to| {
        // Major and minor number as `struct stat` has them.
        to.u64(a::CHARDEV, libc::makedev(UVERBS_MAJOR, minor));
        to.u64(a::CHARDEV_ABI, VERBS_ABI.into());
        to.text(a::CHARDEV_NAME, &format!("uverbs{}", device.index()));
    });
    Ok(())
}

/// `RDMA_NLDEV_CMD_STAT_GET` of a port. Counters of queue pairs are not kept, so there are none.
pub(super) fn statistics(request: &NetlinkRequest<'_>, reply: &mut Reply<'_>) -> Result<(), c_int> {
    if request.number(a::STAT_RES)?.is_some() {
        return if request.is_dump() {
            Ok(())
        } else {
            Err(libc::ENOENT)
        };
    }
    check_port(request)?;
    let counts = counts();
    for device in asked_for(request)? {
        reply.message(|to| {
            handle(to, &device);
            to.u32(a::PORT_INDEX, 1);
            to.nested(a::STAT_HWCOUNTERS, |to| {
                for name in names() {
                    let of = counts
                        .iter()
                        .filter(|c| c.device == device.name() && c.what == name);
                    let value = of.map(|c| c.value).sum();
                    to.nested(a::STAT_HWCOUNTER_ENTRY, |to| {
                        to.text(a::STAT_HWCOUNTER_ENTRY_NAME, &name);
                        to.u64(a::STAT_HWCOUNTER_ENTRY_VALUE, value);
                    });
                }
            });
        });
    }
    Ok(())
}

/// The names of `hw_counters`.
fn names() -> impl Iterator<Item = String> {
    let soft_roce = Counters::SOFT_ROCE.map(|(name, _)| name.to_owned());
    let direct = Counters::DIRECT.map(|(name, _)| name.to_owned());
    let ends = Counters::STREAM_ENDS.map(|(name, _)| name.to_owned());
    let denied = all_denials().map(|(name, ..)| name);
    let own = direct.into_iter().chain(ends).chain(denied);
    soft_roce.into_iter().chain(own)
}

/// What all processes have counted that answer, this one with them.
fn counts() -> Vec<Count> {
    let processes = survey::processes().unwrap_or_default();
    let said = processes
        .into_iter()
        .filter_map(|process| match process.said {
            Said::All(survey) => Some(survey),
            Said::Nothing(_) => None,
        });
    said.flat_map(|survey| survey.counts.into_iter().chain(survey.statistics))
        .collect()
}
