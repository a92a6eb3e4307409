//! The folder of a device's hardware: on a PCI bus if `FERROCE_DEVICES` says so, else on none.

use std::ffi::c_int;
use std::fs;
use std::sync::Arc;

use ferroce_nic::{Device, Hardware, PciAddress};
use ferroce_os::kernel_file::exists;

use super::DEVICES;
use super::device::errno;
use super::tree::{Node, Tree};
use crate::verbs::port::device_attr;

/// Behind the name of the folder of a device that is on no bus. NCCL overwrites the last character
/// of the path, and those of the PCI device with it, and takes devices for ports of one adapter
/// whose paths are the same then.
const FUNCTION: &str = "00.0";
/// The first one of the PCI domains after which such folders are called, out of the way of real
/// ones.
const DOMAIN: u32 = 0xf000;
/// Class of a network controller for Ethernet (PCI Code and ID Assignment Specification, 02h 00h).
const CLASS: &str = "0x020000\n";
/// Rates from which on a port wants more than 16 lanes of PCI Express 5, in units of 100 Mbit/s.
const WANTS_GEN6: u32 = 5000;
/// The machine's NUMA nodes: a number if there is one only.
const NODES: &str = "/sys/devices/system/node/online";

/// The folder.
pub(super) fn home(device: &Device) -> String {
    match device.hardware().pci {
        Some(pci) => format!("{}/{pci}", bus(pci)),
        None => {
            // UCX tells devices apart by the address in this name alone: all that have none share
            // the network interface of the first one, and its routes (1.19 to 1.23).
            let domain = DOMAIN | (device.ifindex() & 0xfff);
            format!(
                "{DEVICES}/{domain:04x}:{:02x}:{FUNCTION}",
                device.index() & 0xff
            )
        }
    }
}

/// The folder of a root bus.
fn bus(pci: PciAddress) -> String {
    format!("/sys/devices/pci{:04x}:{:02x}", pci.domain, pci.bus)
}

/// The way from the folder of a link up to `/sys/`.
pub(super) fn up_to_sys(link: &str) -> String {
    let depth = link.matches('/').count();
    "../".repeat(depth.saturating_sub(2))
}

/// Adds the folder's own files. The device is nobody's product.
pub(super) fn add(tree: &mut Tree, device: &Arc<Device>, home: &str) {
    let attr = device_attr(device);
    let hardware = device.hardware();
    let vendor = format!("{:#06x}\n", attr.vendor_id);
    let part = format!("{:#06x}\n", attr.vendor_part_id);
    tree.text(format!("{home}/vendor"), vendor);
    tree.text(format!("{home}/device"), part);
    match hardware.pci {
        Some(pci) => on_bus(tree, pci, hardware, home),
        None => tree.text(format!("{home}/uevent"), "DRIVER=ferroce\n"),
    }
    numa(tree, device, home);
}

/// What functions on a PCI bus have besides, and what leads to them.
fn on_bus(tree: &mut Tree, pci: PciAddress, hardware: Hardware, home: &str) {
    tree.guest(home.to_owned(), Node::Directory, exists);
    let text = |what: &str| format!("{home}/{what}");
    tree.text(text("class"), CLASS);
    tree.text(text("revision"), "0x00\n");
    tree.text(text("subsystem_vendor"), "0x0000\n");
    tree.text(text("subsystem_device"), "0x0000\n");
    let speed = match hardware.link.rate {
        WANTS_GEN6.. => "64.0 GT/s PCIe\n",
        _ => "32.0 GT/s PCIe\n",
    };
    for (what, value) in [("link_speed", speed), ("link_width", "16\n")] {
        tree.text(text(&format!("max_{what}")), value);
        tree.text(text(&format!("current_{what}")), value);
    }
    let uevent = format!("DRIVER=ferroce\nPCI_CLASS=20000\nPCI_SLOT_NAME={pci}\n");
    tree.text(text("uevent"), uevent);
    let subsystem = format!("{}bus/pci", up_to_sys(&text("subsystem")));
    tree.add(text("subsystem"), Node::Link(subsystem));
    let target = home.trim_start_matches("/sys/");
    tree.guest(
        format!("/sys/bus/pci/devices/{pci}"),
        Node::Link(format!("../../../{target}")),
        exists,
    );
    // NCCL goes this way to a function, by its bus and two folders up.
    let bus = bus(pci);
    let name = bus.trim_start_matches("/sys/devices/pci");
    tree.guest(
        format!("/sys/class/pci_bus/{name}"),
        Node::Link(format!("../../devices/pci{name}/pci_bus/{name}")),
        exists,
    );
    tree.guest(format!("{bus}/pci_bus/{name}"), Node::Directory, exists);
}

/// The NUMA node and the processors near it: what the file says, or those of the network
/// interface's hardware.
fn numa(tree: &mut Tree, device: &Arc<Device>, home: &str) {
    let list = match device.hardware().numa_node {
        Some(node) => {
            tree.text(format!("{home}/numa_node"), format!("{node}\n"));
            format!("/sys/devices/system/node/node{node}/cpulist")
        }
        None => {
            let numa = hardware(device, "numa_node");
            let loopback = device.is_loopback();
            tree.file(format!("{home}/numa_node"), move || {
                let own = fs::read_to_string(&numa).unwrap_or_default();
                let nodes = fs::read_to_string(NODES).unwrap_or_default();
                Ok(format!("{}\n", numa_node(&own, &nodes, loopback)))
            });
            hardware(device, "local_cpulist")
        }
    };
    let copy = list.clone();
    tree.file(format!("{home}/local_cpulist"), move || cpu_list(&copy));
    tree.file(format!("{home}/local_cpus"), move || {
        Ok(cpu_mask(&cpu_list(&list)?))
    });
}

/// The node of an interface, by what its hardware's file and that of the machine say. Without
/// hardware it is the machine's only node, because Mooncake prefers devices on the node of the
/// memory, and must not find loopback on a par with those that other hosts reach.
fn numa_node(own: &str, nodes: &str, loopback: bool) -> i32 {
    match (own.trim().parse(), nodes.trim().parse()) {
        (Ok(own @ 0..), _) => own,
        (_, Ok(only)) if !loopback => only,
        _ => -1,
    }
}

/// A file about the hardware behind the network interface, which may have none.
fn hardware(device: &Device, what: &str) -> String {
    format!("/sys/class/net/{}/device/{what}", device.netdev())
}

/// The processors near the hardware: all if there is none.
fn cpu_list(file: &str) -> Result<String, c_int> {
    fs::read_to_string(file)
        .or_else(|_| fs::read_to_string("/sys/devices/system/cpu/online"))
        .map_err(|e| errno(&e))
}

/// A list of processors (`0-3,8`) as a mask: groups of 32 bits, the highest first.
fn cpu_mask(list: &str) -> String {
    let mut groups = vec![0_u32];
    for range in list.trim_end().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) else {
            continue;
        };
        for cpu in first..=last {
            let group = usize::from(cpu / 32);
            groups.resize(groups.len().max(group + 1), 0);
            groups[group] |= 1 << (cpu % 32);
        }
    }
    let words: Vec<String> = groups.iter().rev().map(|g| format!("{g:08x}")).collect();
    format!("{}\n", words.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_processors_have_the_highest_group_first() {
        assert_eq!(cpu_mask("0-1\n"), "00000003\n");
        assert_eq!(cpu_mask("0,2-3,33\n"), "00000002,0000000d\n");
        assert_eq!(cpu_mask("\n"), "00000000\n");
    }

    #[test]
    fn interfaces_without_hardware_are_on_the_only_node() {
        assert_eq!(numa_node("1\n", "0-1\n", false), 1);
        assert_eq!(numa_node("-1\n", "0\n", false), 0);
        assert_eq!(numa_node("", "0\n", false), 0);
        assert_eq!(numa_node("", "0\n", true), -1);
        assert_eq!(numa_node("", "0-1\n", false), -1);
        assert_eq!(numa_node("", "", false), -1);
    }

    #[test]
    fn the_way_up_ends_at_sys() {
        assert_eq!(up_to_sys("/sys/class/x/y"), "../../");
        assert_eq!(up_to_sys("/sys/a"), "");
    }
}
