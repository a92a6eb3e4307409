//! Which devices there are, at the start and as interfaces come and go.

use std::net::IpAddr;
use std::sync::{Arc, RwLock};

use ferroce_os::netdev::Interface;
use ferroce_proto::verbs::Mtu;

use super::shape::{Hardware, NAME_MAX, Shape, Shapes};
use super::watchers::Contexts;
use super::{Device, DeviceAttr, DeviceState, Protocol, guid};
use crate::base::counters::Counters;
use crate::base::sync::{read, write};

/// Behind the name of a device whose interface has another one, of another protocol.
const SECOND: &str = "_iw";

/// The devices of this process.
#[derive(Debug)]
pub(crate) struct DeviceList {
    shapes: Shapes,
    devices: RwLock<KnownDevice>,
}

#[derive(Debug, Default)]
struct KnownDevice {
    present: Vec<Arc<Device>>,
    /// Devices made so far.
    made: u32,
}

impl DeviceList {
    /// The devices of each interface that is up and has an address: in the order of the file that
    /// gives them their shapes, then in the order given, loopback last.
    pub(crate) fn discover(interfaces: &[Interface], shapes: &Shapes) -> Self {
        let mut known = KnownDevice::default();
        known.add_new(interfaces, shapes);
        known.rank_loopback();
        Self {
            shapes: shapes.clone(),
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
        known.add_new(interfaces, &self.shapes);
        known.rank_loopback();
    }
}

impl KnownDevice {
    /// Makes devices of the usable interfaces that have none.
    fn add_new(&mut self, interfaces: &[Interface], shapes: &Shapes) {
        let usable = |i: &&Interface| i.up && !i.addresses.is_empty();
        let mut ordered: Vec<_> = interfaces.iter().filter(usable).collect();
        ordered.sort_by_key(|i| (shapes.rank(&i.name), i.loopback));
        for interface in ordered {
            if self.present.iter().any(|d| d.ifindex == interface.index) {
                continue;
            }
            match shapes.of(&interface.name) {
                Some(shaped) => {
                    shaped.for_each(|shape| self.add_each(interface, Some(shape), shapes));
                }
                None if shapes.has_others() => self.add_each(interface, None, shapes),
                None => {}
            }
        }
    }

    /// Keeps the loopback's ports from showing a larger MTU than any other port. UCX 1.23 sends its
    /// first messages by the pair of devices with the largest one, of equal ones the first pair,
    /// and takes 127.0.0.1 of another host for an address that this host reaches.
    fn rank_loopback(&self) {
        let others = self.present.iter().filter(|d| !d.loopback);
        let least = others.map(|d| d.port().fitting_mtu).min();
        for device in self.present.iter().filter(|d| d.loopback) {
            device.show_mtu(least.unwrap_or(Mtu::B4096));
        }
    }

    /// Makes a device of an interface for each protocol.
    fn add_each(&mut self, interface: &Interface, shape: Option<&Shape>, shapes: &Shapes) {
        for (protocol, is_second) in shapes.protocols.each() {
            self.add(interface, shape, protocol, is_second);
        }
    }

    fn add(
        &mut self,
        interface: &Interface,
        shape: Option<&Shape>,
        protocol: Protocol,
        is_second: bool,
    ) {
        let ordinal = shape.map_or(0, |shape| shape.ordinal);
        let second = if is_second { SECOND } else { "" };
        let suffix = match ordinal {
            0 => second.to_owned(),
            nth => format!("_{nth}{second}"),
        };
        let given = shape.and_then(|shape| Some(format!("{}{second}", shape.name.as_ref()?)));
        let mut name = given.unwrap_or_else(|| device_name(&format!("{}{suffix}", interface.name)));
        if self.present.iter().any(|d| d.name == name) {
            name = device_name(&format!("{}_{}{suffix}", interface.name, interface.index));
        }
        let device = Device {
            name,
            netdev: interface.name.clone(),
            index: self.made,
            ifindex: interface.index,
            loopback: interface.loopback,
            hardware: Hardware::of(interface.loopback, shape),
            state: RwLock::new(DeviceState::of(interface)),
            contexts: Contexts::default(),
            attr: DeviceAttr::of(
                guid::of_device(interface.mac, interface.index, ordinal, is_second),
                protocol,
            ),
            protocol,
            usage: Arc::default(),
            counters: Counters::default(),
        };
        self.made += 1;
        self.present.push(Arc::new(device));
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

    fn discover(interfaces: &[Interface]) -> DeviceList {
        DeviceList::discover(interfaces, &Shapes::default())
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
        let devices = discover(&all).all();
        let names: Vec<_> = devices.iter().map(|d| d.name()).collect();
        assert_eq!(names, ["ferroce_eth0.100", "ferroce_lo"]);
        let rates: Vec<_> = devices.iter().map(|d| d.hardware().link.rate).collect();
        assert_eq!(rates, [250, 25]);
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
    fn the_loopback_shows_no_larger_mtu_than_another_device() {
        let mut lo = interface("lo", 1, &["127.0.0.1"]);
        let mut eth0 = interface("eth0", 2, &["10.0.0.1"]);
        (lo.mtu, eth0.mtu) = (65536, 9000);
        let list = discover(&[lo.clone()]);
        let shown = || {
            let all = list.all();
            let port = all.iter().find(|d| d.is_loopback()).unwrap().port();
            assert_eq!(port.fitting_mtu, Mtu::B4096);
            port.active_mtu
        };
        assert_eq!(shown(), Mtu::B4096);
        let eth1 = interface("eth1", 3, &["10.0.1.1"]);
        list.update(&[lo.clone(), eth0.clone(), eth1]);
        assert_eq!(shown(), Mtu::B1024);
        list.update(&[lo.clone(), eth0.clone()]);
        assert_eq!(shown(), Mtu::B4096);
        eth0.mtu = 576;
        list.update(&[lo.clone(), eth0.clone()]);
        assert_eq!(shown(), Mtu::B256);
        list.update(&[lo]);
        assert_eq!(shown(), Mtu::B4096);
        let both = discover(&[interface("lo", 1, &["127.0.0.1"]), eth0]);
        assert_eq!(both.all()[1].port().active_mtu, Mtu::B256);
    }

    #[test]
    fn names_are_plain_short_and_unique() {
        let devices = discover(&[
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
        let list = discover(&[lo.clone(), eth0.clone()]);
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

    #[test]
    fn a_file_orders_names_and_multiplies_devices() {
        let interfaces = [
            interface("lo", 1, &["127.0.0.1"]),
            interface("eth0", 2, &["10.0.0.1"]),
            interface("eth1", 3, &["10.0.1.1"]),
        ];
        let file = "[[device]]\ninterface = \"lo\"\ncount = 2\n[[device]]\ninterface = \"eth1\"\nname = \"mlx5_0\"\n\
                    [[device]]\ninterface = \"eth1\"\nname = \"mlx5_1\"\nrate = 100\n[[device]]\ninterface = \"none\"\n";
        let names = |others: bool| {
            let shapes = Shapes::parse(&format!("others = {others}\n{file}"));
            let list = DeviceList::discover(&interfaces, &shapes);
            let guids: std::collections::HashSet<_> = list.all().iter().map(|d| d.guid()).collect();
            assert_eq!(guids.len(), list.all().len());
            assert_eq!(list.all()[3].hardware().link.rate, 1000);
            assert_eq!(list.all()[2].hardware().link.rate, 250);
            assert_eq!(list.all()[0].hardware().link.rate, 25);
            list.update(&interfaces);
            let names = list.all().iter().map(|d| d.name().to_owned()).collect();
            list.update(&interfaces[..1]);
            assert_eq!(
                list.all().len(),
                2,
                "the devices of an interface go together"
            );
            list.update(&interfaces);
            assert!(list.all().iter().any(|d| d.name() == "mlx5_1"));
            names
        };
        let named: Vec<String> = names(false);
        assert_eq!(named, ["ferroce_lo", "ferroce_lo_1", "mlx5_0", "mlx5_1"]);
        let all: Vec<String> = names(true);
        assert_eq!(all[..4], named[..]);
        assert_eq!(all[4..], ["ferroce_eth0"]);
    }
}
