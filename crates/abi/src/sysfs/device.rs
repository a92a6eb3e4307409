//! A device's folder, and what leads to it.

use std::ffi::c_int;
use std::fs;
use std::sync::Arc;

use ferroce_nic::{Device, Protocol};
use ferroce_proto::ids::Guid;

use super::tree::{Node, Tree};
use super::{CLASS, NODES, UVERBS_MAJOR, UVERBS_MINOR, VERBS, place, port};
use crate::types::{IBV_NODE_CA, IBV_NODE_RNIC};

/// ABI version of the device's own part in the commands to the kernel: no such commands, no
/// version.
const DRIVER_ABI: u32 = 0;

/// Adds all about one device.
pub(super) fn add(tree: &mut Tree, device: &Arc<Device>) {
    let name = device.name();
    let home = place::home(device);
    link(tree, CLASS, name, &format!("{home}/infiniband/{name}"));
    attributes(tree, device, &format!("{home}/infiniband/{name}"));
    port::add(tree, device, &format!("{home}/infiniband/{name}/ports/1"));
    node(tree, device, &home);
    interface(tree, device, &format!("{home}/net/{}", device.netdev()));
    place::add(tree, device, &home);
}

/// A class's link to a device, which has one back to the hardware's folder.
fn link(tree: &mut Tree, class: &str, name: &str, to: &str) {
    let target = to.trim_start_matches("/sys/");
    tree.add(
        format!("{class}/{name}"),
        Node::Link(format!("../../{target}")),
    );
    let home = to.split('/').nth_back(2).unwrap_or_default();
    tree.add(
        format!("{to}/device"),
        Node::Link(format!("../../../{home}")),
    );
    let class = class.trim_start_matches("/sys/");
    let subsystem = format!("{to}/subsystem");
    let target = format!("{}{class}", place::up_to_sys(&subsystem));
    tree.add(subsystem, Node::Link(target));
}

/// What the verbs' queries say about the device.
fn attributes(tree: &mut Tree, device: &Arc<Device>, folder: &str) {
    let attr = device.attr();
    let text = |what: &str| format!("{folder}/{what}");
    let node_type = match device.protocol() {
        Protocol::RoceV2 => format!("{IBV_NODE_CA}: CA\n"),
        Protocol::Iwarp => format!("{IBV_NODE_RNIC}: RNIC\n"),
    };
    tree.text(text("node_type"), node_type);
    tree.text(text("node_guid"), guid(attr.node_guid));
    tree.text(text("sys_image_guid"), guid(attr.sys_image_guid));
    tree.text(text("fw_ver"), format!("{}\n", attr.fw_ver));
    tree.text(text("hw_rev"), format!("{:#x}\n", attr.hw_ver));
    tree.text(text("hca_type"), "ferroce\n");
    tree.text(text("board_id"), "ferroce\n");
    tree.file(text("node_desc"), || {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").map_err(|e| errno(&e))?;
        Ok(format!("ferroce on {}\n", host.trim_end()))
    });
    tree.text(text("uevent"), format!("NAME={}\n", device.name()));
}

/// The device's node and its class.
fn node(tree: &mut Tree, device: &Arc<Device>, home: &str) {
    let uverbs = format!("uverbs{}", device.index());
    let (major, minor) = (UVERBS_MAJOR, UVERBS_MINOR + device.index());
    let folder = format!("{home}/infiniband_verbs/{uverbs}");
    link(tree, VERBS, &uverbs, &folder);
    let text = |what: &str| format!("{folder}/{what}");
    tree.text(text("ibdev"), format!("{}\n", device.name()));
    tree.text(text("abi_version"), format!("{DRIVER_ABI}\n"));
    tree.text(text("dev"), format!("{major}:{minor}\n"));
    tree.text(
        text("uevent"),
        format!("MAJOR={major}\nMINOR={minor}\nDEVNAME=infiniband/{uverbs}\n"),
    );
    tree.add(format!("{NODES}/{uverbs}"), Node::Device { major, minor });
}

/// The network interface, as far as one looks for it behind an RDMA device.
fn interface(tree: &mut Tree, device: &Arc<Device>, folder: &str) {
    let text = |what: &str| format!("{folder}/{what}");
    tree.text(text("ifindex"), format!("{}\n", device.ifindex()));
    tree.text(text("mtu"), format!("{}\n", device.port().netdev_mtu));
    tree.text(text("dev_port"), "0\n");
    tree.text(text("dev_id"), "0x0\n");
    let up = Arc::clone(device);
    tree.file(text("operstate"), move || {
        Ok(if up.port().active { "up\n" } else { "down\n" }.to_owned())
    });
}

pub(super) fn errno(error: &std::io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// A GUID in four groups.
fn guid(guid: Guid) -> String {
    port::groups(&guid.0.to_be_bytes())
}
