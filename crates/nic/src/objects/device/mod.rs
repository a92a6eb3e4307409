//! Devices (one per network interface) and open contexts.

mod attr;
mod context;
mod guid;
mod limits;
mod list;
mod protocol;
mod shape;
mod state;
mod watchers;

use std::net::IpAddr;
use std::sync::{Arc, RwLock};

use ferroce_os::netdev::Interface;
use ferroce_proto::ids::{Gid, Guid};
use ferroce_proto::verbs::{AsyncEvent, Mtu};

pub use self::attr::{DeviceAttr, PortAttr};
pub(crate) use self::attr::{MAX_QP, fitting_mtu};
pub use self::context::{AsyncSubject, Context};
pub(crate) use self::guid::network_namespace;
use self::limits::Usage;
pub(crate) use self::limits::{Limit, Permit};
pub(crate) use self::list::DeviceList;
#[cfg(test)]
pub(crate) use self::protocol::Protocols;
pub use self::protocol::{Protocol, choose_protocols};
pub(crate) use self::shape::Shapes;
pub use self::shape::{Hardware, LinkRate, PciAddress};
use self::state::DeviceState;
use self::watchers::Contexts;
use crate::Error;
use crate::base::counters::Counters;
use crate::base::sync::{read, write};

/// Shortest GID table: programs that walk the whole table should not walk far.
const GID_TABLE: u32 = 16;

/// An entry of the GID table. All entries of a device are of its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Index in the port's table.
    pub index: u32,
    /// The GID.
    pub gid: Gid,
    /// Index of the network interface.
    pub ifindex: u32,
}

/// A device: one network interface, or one of several on it that `FERROCE_DEVICES` asks for.
#[derive(Debug)]
pub struct Device {
    name: String,
    netdev: String,
    index: u32,
    ifindex: u32,
    loopback: bool,
    protocol: Protocol,
    hardware: Hardware,
    /// What follows the interface. Taken last; never held while anything else is done.
    state: RwLock<DeviceState>,
    contexts: Contexts,
    attr: DeviceAttr,
    usage: Arc<Usage>,
    counters: Counters,
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
        &self.netdev
    }

    /// Index of the network interface.
    #[must_use]
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Position in the list of devices, stable for the life of the process.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the protocol that it speaks to other hosts.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// What the device shows of hardware: rate of the port, place in the machine.
    #[must_use]
    pub fn hardware(&self) -> Hardware {
        self.hardware
    }

    /// Node GUID.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.attr.node_guid
    }

    /// Limits and capabilities.
    #[must_use]
    pub fn attr(&self) -> DeviceAttr {
        self.attr.clone()
    }

    /// State of port 1.
    #[must_use]
    pub fn port(&self) -> PortAttr {
        let state = read(&self.state);
        let fitting_mtu = fitting_mtu(state.mtu);
        PortAttr {
            active: state.active,
            max_mtu: Mtu::B4096,
            active_mtu: fitting_mtu.min(state.shown_mtu),
            fitting_mtu,
            netdev_mtu: state.mtu,
            gid_tbl_len: match self.protocol {
                Protocol::RoceV2 => u32::try_from(state.addresses.len())
                    .unwrap_or(u32::MAX)
                    .max(GID_TABLE),
                Protocol::Iwarp => 1,
            },
            max_msg_sz: attr::MAX_MSG_SZ,
        }
    }

    /// The index of one of its GIDs, for an address vector; of another GID, one that no GID has.
    pub(crate) fn index_of(&self, gid: Gid) -> u8 {
        let gids = self.gids();
        let found = gids.iter().find(|entry| entry.gid == gid);
        let index = found.and_then(|entry| u8::try_from(entry.index).ok());
        index.unwrap_or(u8::MAX)
    }

    /// The non-empty entries of the GID table, in order of index. On `RoCEv2` an entry keeps its
    /// index as long as its address is there; at the start IPv4-mapped ones come first. iWARP has
    /// one, the MAC.
    #[must_use]
    pub fn gids(&self) -> Vec<GidEntry> {
        let entry = |(index, gid): (u32, &Option<Gid>)| {
            gid.map(|gid| GidEntry {
                index,
                gid,
                ifindex: self.ifindex,
            })
        };
        match self.protocol {
            Protocol::RoceV2 => (0..)
                .zip(&read(&self.state).addresses)
                .filter_map(entry)
                .collect(),
            Protocol::Iwarp => entry((0, &Some(guid::gid_of(self.guid()))))
                .into_iter()
                .collect(),
        }
    }

    /// The GID at an index, `None` if the entry is empty or the index past the table.
    #[must_use]
    pub fn gid(&self, index: u32) -> Option<Gid> {
        match self.protocol {
            Protocol::RoceV2 => {
                let state = read(&self.state);
                state.addresses.get(index as usize).copied().flatten()
            }
            Protocol::Iwarp => (index == 0).then(|| guid::gid_of(self.guid())),
        }
    }

    /// Whether its interface is the loopback.
    pub fn is_loopback(&self) -> bool {
        self.loopback
    }

    /// Whether the address belongs to this device (127.0.0.0/8 and `::1` belong to the loopback
    /// device).
    #[must_use]
    pub fn has_address(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let gid = Some(Gid::from_ip(ip));
        (self.loopback && ip.is_loopback()) || read(&self.state).addresses.contains(&gid)
    }

    /// Packets, bytes, drops.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Objects that exist, by the names that the kernel's summary of resources has for their kinds.
    pub(crate) fn objects(&self) -> Vec<(&'static str, u64)> {
        let all = self
            .usage
            .summary()
            .map(|(name, count)| (name, count.into()));
        let contexts = u64::try_from(self.contexts.count()).unwrap_or(u64::MAX);
        all.into_iter().chain([("ctx", contexts)]).collect()
    }

    /// Leave to make one more object of a kind.
    pub(crate) fn permit(&self, limit: Limit) -> Result<Permit, Error> {
        Permit::take(&self.usage, limit, &self.attr)
    }

    /// Limits, without the copy that [`attr`](Self::attr) makes.
    pub(crate) fn limits(&self) -> &DeviceAttr {
        &self.attr
    }

    /// A context was opened: it hears of what happens to the device.
    fn add_context(&self, context: &Arc<Context>) {
        self.contexts.add(context);
    }

    /// Follows its interface.
    fn update(&self, interface: &Interface) {
        let events = write(&self.state).update(interface);
        for event in events {
            if self.protocol == Protocol::Iwarp && event == AsyncEvent::GidChange {
                // Its table does not follow the addresses.
                continue;
            }
            if event == AsyncEvent::PortErr {
                self.counters.count_port_error();
            }
            self.tell(event, AsyncSubject::Port(1));
        }
    }

    /// Limits the MTU that the port shows.
    fn show_mtu(&self, most: Mtu) {
        write(&self.state).shown_mtu = most;
    }

    /// Notes that the device's interface is gone.
    fn vanish(&self) {
        let event = write(&self.state).vanish();
        if let Some(event) = event {
            self.tell(event, AsyncSubject::Device);
        }
    }

    fn tell(&self, event: AsyncEvent, subject: AsyncSubject) {
        tracing::info!(target: "ferroce::device", device = self.name, ?event, "the interface has changed");
        self.contexts.tell(event, subject);
    }
}
