//! Which devices there are.

use std::sync::Arc;

use ferroce_os::netdev::Interface;
use ferroce_proto::ids::Gid;

use super::{Device, DeviceAttr, guid};
use crate::core::Counters;

/// Longest device name, in bytes.
const NAME_MAX: usize = 63;

/// One device per interface that is up and has an address, in the order given, loopback last.
pub(crate) fn discover(interfaces: &[Interface]) -> Vec<Arc<Device>> {
    let usable = |i: &&Interface| i.up && !i.addresses.is_empty();
    let (loopback, others): (Vec<_>, Vec<_>) =
        interfaces.iter().filter(usable).partition(|i| i.loopback);
    let mut devices: Vec<Arc<Device>> = Vec::new();
    for (index, interface) in (0..).zip(others.into_iter().chain(loopback)) {
        let mut name = device_name(&interface.name);
        if devices.iter().any(|d| d.name == name) {
            name = device_name(&format!("{}_{}", interface.name, interface.index));
        }
        devices.push(Arc::new(device(interface, name, index)));
    }
    devices
}

fn device(interface: &Interface, name: String, index: u32) -> Device {
    Device {
        name,
        netdev: interface.name.clone(),
        index,
        ifindex: interface.index,
        netdev_mtu: interface.mtu,
        loopback: interface.loopback,
        gids: gid_table(interface),
        attr: DeviceAttr::of(guid::of_interface(interface.mac, interface.index)),
        usage: Arc::default(),
        counters: Counters::default(),
    }
}

/// The interface's addresses, IPv4 first, each once.
fn gid_table(interface: &Interface) -> Vec<Gid> {
    let ips = || interface.addresses.iter().map(|a| a.ip);
    let mut gids: Vec<Gid> = Vec::new();
    for gid in ips()
        .filter(|ip| ip.is_ipv4())
        .chain(ips().filter(|ip| ip.is_ipv6()))
        .map(Gid::from_ip)
    {
        if !gids.contains(&gid) {
            gids.push(gid);
        }
    }
    gids
}

/// `ferroce_` and the interface's name, with what could confuse a shell or a path replaced.
fn device_name(interface: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '_'
        }
    };
    "ferroce_"
        .chars()
        .chain(interface.chars().map(plain))
        .take(NAME_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ferroce_os::netdev::Address;

    use super::*;

    fn interface(name: &str, index: u32, addresses: &[&str]) -> Interface {
        Interface {
            name: name.to_owned(),
            index,
            mtu: 1500,
            mac: [0; 6],
            up: true,
            loopback: name == "lo",
            addresses: addresses
                .iter()
                .map(|a| Address {
                    ip: a.parse().expect("an address"),
                    prefix: 24,
                })
                .collect(),
        }
    }

    #[test]
    fn loopback_comes_last_and_interfaces_without_address_or_down_are_left_out() {
        let mut down = interface("eth1", 4, &["10.0.0.9"]);
        down.up = false;
        let all = [
            interface("lo", 1, &["127.0.0.1", "::1"]),
            interface("eth0.100", 2, &["fe80::1", "10.0.0.1", "10.0.0.1"]),
            interface("tun0", 3, &[]),
            down,
        ];
        let devices = discover(&all);
        let names: Vec<_> = devices.iter().map(|d| d.name()).collect();
        assert_eq!(names, ["ferroce_eth0.100", "ferroce_lo"]);
        assert_eq!(devices[0].index(), 0);
        let gids: Vec<IpAddr> = devices[0].gids().iter().map(|e| e.gid.ip()).collect();
        assert_eq!(
            gids,
            [
                "10.0.0.1".parse::<IpAddr>().unwrap(),
                "fe80::1".parse().unwrap()
            ]
        );
        assert_eq!(devices[0].port().gid_tbl_len, 16);
        assert_eq!(devices[0].gid(2), None);
        assert!(devices[1].has_address("127.3.4.5".parse().unwrap()));
        assert!(!devices[0].has_address("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn names_are_plain_short_and_unique() {
        let devices = discover(&[
            interface("a:b", 1, &["10.0.0.1"]),
            interface("a_b", 2, &["10.0.0.2"]),
        ]);
        assert_eq!(devices[0].name(), "ferroce_a_b");
        assert_eq!(devices[1].name(), "ferroce_a_b_2");
        assert!(device_name(&"x".repeat(100)).len() <= NAME_MAX);
    }
}
