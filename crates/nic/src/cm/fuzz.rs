//! Datagrams to a port, and MADs of a link, from processes of another user: what a service believes
//! of them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ferroce_os::netdev::{Address, Interface};
use ferroce_os::poll::Interest;
use ferroce_os::random;
use ferroce_os::unix::{Credentials, Dgram, LocalUser, Relation};
use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::mad::{Mad, ServiceId};
use ferroce_proto::time::Time;
use ferroce_proto::verbs::QpType;

use super::ports::PortKey;
use super::{CmService, EventChannel, EventKind, Host, PortSpace, Speaker, Via};
use crate::base::addressing::Addressing;
use crate::base::denials::{Asker, Denial};
use crate::link::stream::Connection;
use crate::objects::device::{DeviceList, Shapes};
use crate::{Device, Error};

/// The slots of the service and of the other user's process.
const OWN: u16 = 11;
const STRANGER: u16 = 900;
/// This host's address; another one, and one of another host.
const ADDRESSES: [Ipv4Addr; 3] = [
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv4Addr::LOCALHOST,
    Ipv4Addr::new(10, 0, 0, 9),
];
/// Bytes of one thing that is said: how, from where, to where, the type of the message; its
/// content.
const HEAD: usize = 4;
const MAD: usize = 256;

#[derive(Debug)]
struct Stub {
    names: String,
    devices: DeviceList,
    now: AtomicU64,
    service: OnceLock<CmService>,
}

impl Host for Stub {
    fn slot(&self) -> u16 {
        OWN
    }

    fn names(&self) -> &str {
        &self.names
    }

    fn now(&self) -> Time {
        Time(self.now.load(Ordering::Relaxed))
    }

    fn devices(&self) -> Vec<Arc<Device>> {
        self.devices.all()
    }

    fn is_local(&self, ip: IpAddr) -> bool {
        is_own(ip)
    }

    fn is_link_known(&self, _dst: IpAddr, _scope: u32) -> bool {
        true
    }

    fn user_of(&self, sender: Credentials) -> LocalUser {
        foreign(sender.uid)
    }

    fn takes_wire_from(&self, by: LocalUser, _to: Gid) -> bool {
        by.relation.is_own_user()
    }

    fn count_denied(&self, _asker: Asker, _why: Denial) {}
    fn asker(&self, _slot: u16) -> Asker {
        Asker::OtherUser
    }

    fn leaves_out_owner(&self, _name: &str) -> bool {
        false
    }

    fn is_left_out(&self, _sign: &str, _name: &str) -> bool {
        false
    }

    fn leaves_out_users(&self) -> bool {
        false
    }

    fn leaves_out(&self, _owner: Credentials) -> bool {
        false
    }

    fn owns_slot(&self, _sender: Credentials, slot: u16) -> bool {
        slot == STRANGER
    }

    fn send_mad_wire(&self, addressing: Addressing, _mad: &Mad) {
        panic!("a stranger made us send to {addressing:?}");
    }

    fn send_mad_local(&self, slot: u16, from: Gid, to: Gid, _mad: &Mad) -> bool {
        assert_eq!(slot, STRANGER, "a third process is told something");
        assert!(self.is_local(from.ip()) && self.is_local(to.ip()));
        true
    }

    fn admits(&self, _from: IpAddr, _by: Option<Relation>) -> bool {
        true
    }

    fn pass_on_mad(&self, _slot: u16, from: Gid, _to: Gid, _mad: &Mad) -> bool {
        panic!("nothing came over the wire, also not from {from:?}");
    }

    fn spread_mad(&self, from: Gid, _to: Gid, _mad: &Mad) {
        panic!("nothing came over the wire, also not from {from:?}");
    }

    fn watch(&self, _fd: RawFd, _token: u64) {}
    fn unwatch(&self, _fd: RawFd) {}
    fn watch_setup(&self, _fd: RawFd, _number: u32, _interest: Interest) -> io::Result<()> {
        panic!("the devices are for RoCEv2");
    }

    fn rewatch_setup(&self, _fd: RawFd, _number: u32, _interest: Interest) -> io::Result<()> {
        panic!("the devices are for RoCEv2");
    }

    fn connect_stream(&self, qpn: Qpn, _connection: Connection) -> Result<(), Error> {
        panic!("queue pair {qpn:?} is connected over TCP");
    }

    fn end_stream(&self, _qpn: Qpn) {}
    fn admits_stream(&self, _peer: IpAddr) -> Result<(), Error> {
        Ok(())
    }

    fn goes_within_host(&self, _peer: IpAddr) -> bool {
        false
    }

    fn reschedule(&self) {}
}

/// Another user of this host.
fn foreign(number: u32) -> LocalUser {
    LocalUser {
        relation: Relation::Foreign,
        number: Some(number),
    }
}

fn is_own(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ADDRESSES[..2].iter().any(|own| ip == IpAddr::V4(*own))
}

fn interfaces() -> [Interface; 2] {
    [("eth0", 2, 0), ("lo", 1, 1)].map(|(name, index, address)| Interface {
        name: name.into(),
        index,
        mtu: 1500,
        mac: [2, 0, 0, 0, 0, 1],
        up: true,
        running: true,
        loopback: name == "lo",
        addresses: vec![Address {
            ip: ADDRESSES[address].into(),
            prefix: 24,
        }],
    })
}

/// Says what `data` has to a service with a listener.
///
/// # Panics
/// The service believes that something comes from another process or host than the other user's, or
/// sends anything there.
pub fn run(data: &[u8]) {
    let host = Arc::new(Stub {
        names: format!("ferroce-fuzz/{}/", random::u64()),
        devices: DeviceList::discover(&interfaces(), &Shapes::default()),
        now: AtomicU64::new(1_000_000_000),
        service: OnceLock::new(),
    });
    let as_host: Arc<dyn Host> = Arc::clone(&host) as _;
    let service = CmService::new(Arc::downgrade(&as_host), OWN).expect("descriptors");
    let service = host.service.get_or_init(|| service);
    let events = EventChannel::without_device().expect("descriptors");
    let id = service
        .create_id(&events, PortSpace::Tcp, QpType::Rc)
        .expect("an identifier");
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    id.bind(any).expect("a free port");
    id.listen(0).expect("a listener");
    let key = PortKey {
        ps: PortSpace::Tcp,
        port: id.local_addr().expect("bound").port(),
    };
    let sender = Dgram::unbound().expect("descriptors");
    for said in data.chunks(HEAD + MAD) {
        say(&host, service, &sender, key, said);
        check(&events);
    }
    host.now.fetch_add(100_000_000_000, Ordering::Relaxed);
    service.on_deadline(host.now());
    check(&events);
}

/// Says one thing: to the port, by a link, or lets time pass.
fn say(host: &Stub, service: &CmService, sender: &Dgram, key: PortKey, said: &[u8]) {
    let mut bytes = [0; HEAD + MAD];
    bytes[..said.len()].copy_from_slice(said);
    let ([how, from, to, kind], mad) = bytes.split_first_chunk().expect("longer");
    let mut mad: Mad = mad.try_into().expect("a MAD");
    // A MAD of the CM; the rest is as it comes.
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[16..18].copy_from_slice(&[0, 0x10 + kind % 9]);
    if how & 8 != 0 {
        // A REQ and a `SIDR_REQ` have the service behind the sender's id.
        let service = ServiceId::new(key.ps as u16, key.port);
        mad[32..40].copy_from_slice(&service.0.to_be_bytes());
    }
    if how & 4 != 0 {
        // The own id: 22 bits of it.
        let id = u32::from(STRANGER) << 22 | u32::from(mad[27]);
        mad[24..28].copy_from_slice(&id.to_be_bytes());
    }
    let address = |n: &u8| Gid::from_ip(ADDRESSES[usize::from(n % 3)].into());
    let (from, to) = (address(from), address(to));
    match how % 4 {
        0 => {
            host.now
                .fetch_add(u64::from(kind.to_owned()) * 20_000_000, Ordering::Relaxed);
            service.on_deadline(host.now());
        }
        1 => {
            let speaker = Speaker::Link {
                slot: STRANGER,
                by: foreign(1),
            };
            service.on_mad(from, to, &mad, Via::Local(speaker));
        }
        _ => {
            let frame = [&from.0[..], &to.0, &mad].concat();
            // Some are cut off.
            let len = frame.len() - usize::from(how >> 7);
            sender
                .send_to(&key.name(host.names()), &frame[..len])
                .expect("room");
            service.on_readable(key.token(), &mut |slot, _| assert_eq!(slot, STRANGER));
        }
    }
}

/// Every request is from an address of this host.
fn check(events: &EventChannel) {
    while let Some(event) = events.pop() {
        assert_eq!(event.kind, EventKind::ConnectRequest, "{event:?}");
        let peer = event.id.peer_addr().expect("of a request").ip();
        let route = event.id.route().expect("of a request");
        for ip in [peer, route.dgid.ip()] {
            assert!(is_own(ip), "a request from {ip}");
        }
        let _too_late = event.id.reject(&[]);
    }
}
