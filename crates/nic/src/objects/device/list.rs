//! Which devices there are, at the start and as interfaces come and go.

use std::net::IpAddr;
use std::sync::{Arc, RwLock};

use ferroce_os::netdev::Interface;

use super::watchers::Contexts;
use super::{Device, DeviceAttr, State, guid};
use crate::base::counters::Counters;
use crate::base::sync::{read, write};

/// Longest device name, in bytes.
const NAME_MAX: usize = 63;

/// The devices of this process.
#[derive(Debug)]
pub(crate) struct DeviceList {
    devices: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    present: Vec<Arc<Device>>,
    /// Devices made so far.
    made: u32,
}

impl DeviceList {
    /// One device per interface that is up and has an address, in the order given, loopback last.
    pub(crate) fn discover(interfaces: &[Interface]) -> Self {
        let mut known = Known::default();
        known.add_new(interfaces);
        Self {
            devices: RwLock::new(known),
        }
    }

    /// All whose interface is there.
    pub(crate) fn all(&self) -> Vec<Arc<Device>> {
        read(&self.devices).present.clone()
    }

    /// The one that an address belongs to.
    pub(crate) fn with_address(&self, ip: IpAddr) -> Option<Arc<Device>> {
        let known = read(&self.devices);
        known.present.iter().find(|d| d.has_address(ip)).cloned()
    }

    /// Follows what interfaces have become: raises events on open devices, adds new devices behind
    /// the others, takes those whose interface is gone out.
    pub(crate) fn update(&self, interfaces: &[Interface]) {
        let mut known = write(&self.devices);
        known.present.retain(|device| {
            // An index is not used again soon: the same index is the same interface.
            let now = interfaces.iter().find(|i| i.index == device.ifindex);
            match now {
                Some(interface) => device.update(interface),
                None => device.vanish(),
            }
            now.is_some()
        });
        known.add_new(interfaces);
    }
}

impl Known {
    /// Makes devices of the usable interfaces that have none.
    fn add_new(&mut self, interfaces: &[Interface]) {
        let usable = |i: &&Interface| i.up && !i.addresses.is_empty();
        let (loopback, others): (Vec<_>, Vec<_>) =
            interfaces.iter().filter(usable).partition(|i| i.loopback);
        for interface in others.into_iter().chain(loopback) {
            if self.present.iter().any(|d| d.ifindex == interface.index) {
                continue;
            }
            let mut name = device_name(&interface.name);
            if self.present.iter().any(|d| d.name == name) {
                name = device_name(&format!("{}_{}", interface.name, interface.index));
            }
            let device = device(interface, name, self.made);
            self.made += 1;
            self.present.push(Arc::new(device));
        }
    }
}

fn device(interface: &Interface, name: String, index: u32) -> Device {
    Device {
        name,
        netdev: interface.name.clone(),
        index,
        ifindex: interface.index,
        loopback: interface.loopback,
        state: RwLock::new(State::of(interface)),
        contexts: Contexts::default(),
        attr: DeviceAttr::of(guid::of_interface(interface.mac, interface.index)),
        usage: Arc::default(),
        counters: Counters::default(),
    }
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
pub(super) mod tests {
    use std::net::IpAddr;

    use ferroce_os::netdev::Address;

    use super::*;

    pub(in crate::objects::device) fn interface(
        name: &str,
        index: u32,
        addresses: &[&str],
    ) -> Interface {
        Interface {
            name: name.to_owned(),
            index,
            mtu: 1500,
            mac: [0; 6],
            up: true,
            running: true,
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
        let devices = DeviceList::discover(&all).all();
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
        let devices = DeviceList::discover(&[
            interface("a:b", 1, &["10.0.0.1"]),
            interface("a_b", 2, &["10.0.0.2"]),
        ])
        .all();
        assert_eq!(devices[0].name(), "ferroce_a_b");
        assert_eq!(devices[1].name(), "ferroce_a_b_2");
        assert!(device_name(&"x".repeat(100)).len() <= NAME_MAX);
    }

    #[test]
    fn devices_come_and_go_with_their_interfaces() {
        let lo = interface("lo", 1, &["127.0.0.1"]);
        let mut eth0 = interface("eth0", 2, &["10.0.0.1"]);
        let list = DeviceList::discover(&[lo.clone(), eth0.clone()]);
        let names = || -> Vec<(String, u32)> {
            list.all()
                .iter()
                .map(|d| (d.name().to_owned(), d.index()))
                .collect()
        };
        let named = |names: &[(&str, u32)]| -> Vec<(String, u32)> {
            names.iter().map(|(n, i)| ((*n).to_owned(), *i)).collect()
        };
        assert_eq!(names(), named(&[("ferroce_eth0", 0), ("ferroce_lo", 1)]));
        let old = list.all().remove(0);
        // One without an address is no device yet; one that lost its address stays.
        eth0.addresses.clear();
        list.update(&[lo.clone(), eth0.clone(), interface("eth1", 3, &[])]);
        assert_eq!(names(), named(&[("ferroce_eth0", 0), ("ferroce_lo", 1)]));
        assert_eq!(old.gids(), []);
        list.update(&[lo.clone(), interface("eth1", 3, &["10.0.1.1"])]);
        assert_eq!(names(), named(&[("ferroce_lo", 1), ("ferroce_eth1", 2)]));
        assert!(!old.port().active);
        // Made anew under the old name: another device.
        list.update(&[lo, interface("eth0", 4, &["10.0.0.1"])]);
        assert_eq!(names(), named(&[("ferroce_lo", 1), ("ferroce_eth0", 3)]));
        let new = list.with_address("10.0.0.1".parse().unwrap());
        assert!(new.is_some_and(|new| !Arc::ptr_eq(&new, &old)));
    }
}
