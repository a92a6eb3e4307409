//! What of a device follows its network interface.

use ferroce_os::netdev::Interface;
use ferroce_proto::ids::Gid;
use ferroce_proto::verbs::{AsyncEvent, Mtu};

/// The interface as the device last saw it.
#[derive(Debug)]
pub(super) struct DeviceState {
    pub(super) mtu: u32,
    /// The most that the port shows, whatever fits the interface.
    pub(super) shown_mtu: Mtu,
    /// Up and running.
    pub(super) active: bool,
    /// The interface is there.
    pub(super) present: bool,
    /// The interface's addresses, which are the GID table of `RoCEv2`: an entry keeps its index as
    /// long as its address is there; an empty one is used again.
    pub(super) addresses: Vec<Option<Gid>>,
}

impl DeviceState {
    pub(super) fn of(interface: &Interface) -> Self {
        Self {
            mtu: interface.mtu,
            shown_mtu: Mtu::B4096,
            active: is_active(interface),
            present: true,
            addresses: gids(interface).into_iter().map(Some).collect(),
        }
    }

    /// Takes over what the interface has become. Returns the events that this raises, as the kernel
    /// orders them.
    pub(super) fn update(&mut self, interface: &Interface) -> Vec<AsyncEvent> {
        self.mtu = interface.mtu;
        let mut events = Vec::new();
        let active = is_active(interface);
        if std::mem::replace(&mut self.active, active) != active {
            events.push(if active {
                AsyncEvent::PortActive
            } else {
                AsyncEvent::PortErr
            });
        }
        let now = gids(interface);
        // One event for each entry that changes.
        for entry in &mut self.addresses {
            if entry.take_if(|gid| !now.contains(gid)).is_some() {
                events.push(AsyncEvent::GidChange);
            }
        }
        for gid in now {
            if !self.addresses.contains(&Some(gid)) {
                self.add(gid);
                events.push(AsyncEvent::GidChange);
            }
        }
        events
    }

    /// The interface is gone. Returns what this raises, nothing the second time.
    pub(super) fn vanish(&mut self) -> Option<AsyncEvent> {
        self.active = false;
        self.addresses.fill(None);
        std::mem::replace(&mut self.present, false).then_some(AsyncEvent::DeviceFatal)
    }

    fn add(&mut self, gid: Gid) {
        match self.addresses.iter_mut().find(|entry| entry.is_none()) {
            Some(free) => *free = Some(gid),
            None => self.addresses.push(Some(gid)),
        }
    }
}

fn is_active(interface: &Interface) -> bool {
    interface.up && interface.running
}

/// The interface's addresses, IPv4 first, each once.
fn gids(interface: &Interface) -> Vec<Gid> {
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

#[cfg(test)]
mod tests {
    use AsyncEvent::{DeviceFatal, GidChange, PortActive, PortErr};

    use super::super::list::tests::interface;
    use super::*;

    fn gid(ip: &str) -> Option<Gid> {
        Some(Gid::from_ip(ip.parse().expect("an address")))
    }

    #[test]
    fn gids_keep_their_index_and_empty_ones_are_used_again() {
        let mut state =
            DeviceState::of(&interface("eth0", 2, &["10.0.0.1", "10.0.0.2", "fe80::1"]));
        let fewer = interface("eth0", 2, &["10.0.0.2"]);
        assert_eq!(state.update(&fewer), [GidChange, GidChange]);
        assert_eq!(state.addresses, [None, gid("10.0.0.2"), None]);
        assert_eq!(state.update(&fewer), []);
        let more = interface(
            "eth0",
            2,
            &["fd00::1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.4"],
        );
        assert_eq!(state.update(&more), [GidChange; 3]);
        assert_eq!(
            state.addresses,
            [
                gid("10.0.0.3"),
                gid("10.0.0.2"),
                gid("10.0.0.4"),
                gid("fd00::1")
            ]
        );
    }

    #[test]
    fn the_port_follows_up_and_carrier() {
        let mut eth = interface("eth0", 2, &["10.0.0.1"]);
        let mut state = DeviceState::of(&eth);
        assert!(state.active);
        eth.running = false;
        assert_eq!(state.update(&eth), [PortErr]);
        eth.up = false;
        assert_eq!(state.update(&eth), []);
        eth.running = true;
        assert_eq!(state.update(&eth), []);
        eth.up = true;
        eth.mtu = 9000;
        assert_eq!(state.update(&eth), [PortActive]);
        assert_eq!((state.active, state.mtu), (true, 9000));
    }

    #[test]
    fn an_interface_vanishes_once() {
        let mut state = DeviceState::of(&interface("eth0", 2, &["10.0.0.1"]));
        assert_eq!(state.vanish(), Some(DeviceFatal));
        assert_eq!((state.active, state.addresses[0]), (false, None));
        assert_eq!(state.vanish(), None);
    }
}
