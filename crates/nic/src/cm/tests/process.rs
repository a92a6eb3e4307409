//! A process: what the service is in, and what a program does with it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferroce_os::netdev::Interface;
use ferroce_os::poll::{Interest, Poller};
use ferroce_os::unix::{Credentials, LocalUser, Relation, SocketKind, has_owner, owner_of};
use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::mad::{CmMad, Mad};
use ferroce_proto::time::Time;
use ferroce_proto::verbs::QpType;

use super::net::{InFlight, Net, interfaces, v4, v6};
use super::program::{expect, param};
use crate::base::addressing::Addressing;
use crate::base::denials::{Asker, Denial};
use crate::base::sync::lock;
use crate::cm::{CmService, EventChannel, EventKind, Host, Id, PortSpace};
use crate::link::stream::{Connection, send_whole};
use crate::objects::device::{DeviceList, Shapes};
use crate::{Device, Error};

/// A process: its engine, as far as the service can see, and the service.
#[derive(Debug)]
pub(super) struct Proc {
    pub(super) slot: u16,
    pub(super) machine: usize,
    net: Arc<Net>,
    devices: DeviceList,
    watched: Mutex<BTreeMap<RawFd, u64>>,
    /// Does not read its ports.
    pub(super) asleep: Mutex<bool>,
    service: Mutex<Option<CmService>>,
    pub(super) reschedules: AtomicUsize,
    /// Senders to its ports are a process of another user that has this slot; none: its own user's.
    pub(super) stranger: Mutex<Option<u16>>,
    pub(super) refused: Mutex<Vec<(Asker, Denial)>>,
    /// Watches TCP sockets.
    poller: Poller,
    /// Connections that its queue pairs were given.
    pub(super) connections: Mutex<Vec<(Qpn, Connection)>>,
    /// Queue pairs whose connections were ended.
    pub(super) ended: Mutex<Vec<Qpn>>,
    /// Deals with its own user only, and takes each other process for another user's.
    pub(super) leaves_out_users: Mutex<bool>,
}

impl Proc {
    /// One on a machine, in a slot of it.
    pub(super) fn start(net: &Arc<Net>, machine: usize, slot: u16, shapes: &Shapes) -> Arc<Self> {
        let proc = Arc::new(Self {
            slot,
            machine,
            net: Arc::clone(net),
            devices: DeviceList::discover(&interfaces(machine), shapes),
            watched: Mutex::default(),
            asleep: Mutex::default(),
            service: Mutex::default(),
            reschedules: AtomicUsize::new(0),
            stranger: Mutex::default(),
            refused: Mutex::default(),
            poller: Poller::new().unwrap(),
            connections: Mutex::default(),
            ended: Mutex::default(),
            leaves_out_users: Mutex::default(),
        });
        let host: Arc<dyn Host> = Arc::clone(&proc) as _;
        let service = CmService::new(Arc::downgrade(&host), slot).unwrap();
        *lock(&proc.service) = Some(service);
        proc
    }

    pub(super) fn service(&self) -> CmService {
        lock(&self.service).clone().expect("the process lives")
    }

    /// The kernel says that these are the interfaces now.
    pub(super) fn has_now(&self, interfaces: &[Interface]) {
        self.devices.update(interfaces);
        self.service().on_network_change();
    }

    /// Without a word.
    pub(super) fn end(&self) {
        *lock(&self.service) = None;
    }

    pub(super) fn is_alive(&self) -> bool {
        lock(&self.service).is_some()
    }

    pub(super) fn is_at(&self, ip: IpAddr) -> bool {
        self.devices.all().iter().any(|d| d.has_address(ip))
    }

    pub(super) fn ports_watched(&self) -> usize {
        lock(&self.watched).len()
    }

    /// Waits for TCP sockets that are ready, and tells the service. Returns whether any was in
    /// `patience`.
    pub(super) fn serve_streams(&self, patience: Duration) -> bool {
        let mut events = Vec::new();
        self.poller.wait(&mut events, Some(patience)).unwrap();
        for event in &events {
            let number = u32::try_from(event.token()).unwrap();
            self.service().on_stream_event(number, *event);
        }
        !events.is_empty()
    }

    pub(super) fn read_ports(&self) {
        if !*lock(&self.asleep) {
            let tokens: Vec<u64> = lock(&self.watched).values().copied().collect();
            tokens.into_iter().for_each(|token| {
                let mut meet = |slot, _| self.net.end_predecessor(self, slot);
                self.service().on_readable(token, &mut meet);
            });
        }
    }

    pub(super) fn channel(&self) -> Arc<EventChannel> {
        EventChannel::without_device().unwrap()
    }

    pub(super) fn id(&self, channel: &Arc<EventChannel>) -> Arc<Id> {
        self.id_of(channel, PortSpace::Tcp, QpType::Rc)
    }

    pub(super) fn id_of(
        &self,
        channel: &Arc<EventChannel>,
        ps: PortSpace,
        qp_type: QpType,
    ) -> Arc<Id> {
        self.service().create_id(channel, ps, qp_type).unwrap()
    }

    /// A listener at an address; with port 0, at a free port.
    #[track_caller]
    pub(super) fn listen(&self, channel: &Arc<EventChannel>, addr: &str) -> (Arc<Id>, u16) {
        self.listen_as(self.id(channel), addr)
    }

    #[track_caller]
    pub(super) fn listen_as(&self, id: Arc<Id>, addr: &str) -> (Arc<Id>, u16) {
        id.bind(addr.parse().unwrap()).unwrap();
        id.listen(0).unwrap();
        let port = id.local_addr().unwrap().port();
        (id, port)
    }

    /// An identifier with its route to an address.
    #[track_caller]
    pub(super) fn routed(&self, channel: &Arc<EventChannel>, to: SocketAddr) -> Arc<Id> {
        self.route_as(self.id(channel), channel, to)
    }

    #[track_caller]
    pub(super) fn route_as(
        &self,
        id: Arc<Id>,
        channel: &Arc<EventChannel>,
        to: SocketAddr,
    ) -> Arc<Id> {
        id.resolve_addr(None, to, Duration::from_secs(2)).unwrap();
        expect(channel, EventKind::AddrResolved, 0);
        id.resolve_route(Duration::from_secs(2)).unwrap();
        expect(channel, EventKind::RouteResolved, 0);
        id
    }

    /// An identifier that has asked for a connection.
    #[track_caller]
    pub(super) fn connecting(&self, channel: &Arc<EventChannel>, to: SocketAddr) -> Arc<Id> {
        let id = self.routed(channel, to);
        id.connect(&param(b"hello")).unwrap();
        id
    }
}

impl Host for Proc {
    fn slot(&self) -> u16 {
        self.slot
    }

    fn names(&self) -> &str {
        &self.net.names
    }

    fn now(&self) -> Time {
        self.net.now()
    }

    fn devices(&self) -> Vec<Arc<Device>> {
        self.devices.all()
    }

    fn is_local(&self, ip: IpAddr) -> bool {
        self.is_at(ip)
    }

    fn source_for(&self, dst: IpAddr, _scope: u32) -> io::Result<IpAddr> {
        let own = |text: String| Ok(text.parse().unwrap());
        match dst {
            _ if self.is_at(dst) && !dst.is_loopback() => Ok(dst),
            IpAddr::V4(v4) if v4.is_loopback() => own("127.0.0.1".into()),
            IpAddr::V6(v6) if v6.is_loopback() => own("::1".into()),
            // As if this machine had a tunnel that no device is made for.
            IpAddr::V4(ip) if ip.octets()[0] == 172 => own("172.16.0.1".into()),
            IpAddr::V4(ip) if ip.octets()[0] == 10 => own(v4(self.machine)),
            IpAddr::V6(ip) if ip.segments()[0] == 0xfd00 => own(v6(self.machine)),
            _ => Err(io::Error::from_raw_os_error(libc::ENETUNREACH)),
        }
    }

    fn is_link_known(&self, dst: IpAddr, _scope: u32) -> bool {
        !lock(&self.net.absent).contains(&dst)
    }

    fn resolve_link(&self, _dst: IpAddr, _scope: u32) {
        self.net.link_requests.fetch_add(1, Ordering::SeqCst);
    }

    fn send_mad_wire(&self, addressing: Addressing, mad: &Mad) {
        lock(&self.net.wire_log).push((addressing, CmMad::parse(mad).unwrap()));
        lock(&self.net.flight).push_back(InFlight::Wire {
            addressing,
            mad: *mad,
        });
    }

    fn send_mad_local(&self, slot: u16, from: Gid, to: Gid, mad: &Mad) -> bool {
        if !self.net.has(self.machine, slot) {
            return false;
        }
        let (machine, from_slot) = (self.machine, self.slot);
        lock(&self.net.flight).push_back(InFlight::Local {
            machine,
            slot,
            from_slot,
            from,
            to,
            mad: *mad,
        });
        true
    }

    fn admits(&self, _from: IpAddr, _by: Option<Relation>) -> bool {
        true
    }

    fn pass_on_mad(&self, slot: u16, from: Gid, to: Gid, mad: &Mad) -> bool {
        self.send_mad_local(slot, from, to, mad)
    }

    /// Each process of the machine has a link to each.
    fn spread_mad(&self, from: Gid, to: Gid, mad: &Mad) {
        for slot in self.net.slots_of(self.machine) {
            if slot != self.slot {
                self.send_mad_local(slot, from, to, mad);
            }
        }
    }

    fn watch(&self, fd: RawFd, token: u64) {
        assert_eq!(lock(&self.watched).insert(fd, token), None, "watched twice");
    }

    fn unwatch(&self, fd: RawFd) {
        assert!(lock(&self.watched).remove(&fd).is_some(), "was not watched");
    }

    fn watch_setup(&self, fd: RawFd, number: u32, interest: Interest) -> io::Result<()> {
        self.poller.add(fd, number.into(), interest)
    }

    fn rewatch_setup(&self, fd: RawFd, number: u32, interest: Interest) -> io::Result<()> {
        self.poller.modify(fd, number.into(), interest)
    }

    fn connect_stream(&self, qpn: Qpn, connection: Connection) -> Result<(), Error> {
        // From here on it is the queue pair's to watch.
        self.poller.remove(connection.socket.as_raw_fd()).unwrap();
        if !connection.reply.is_empty() {
            send_whole(&connection.socket, &connection.reply).unwrap();
        }
        lock(&self.connections).push((qpn, connection));
        Ok(())
    }

    fn end_stream(&self, qpn: Qpn) {
        lock(&self.ended).push(qpn);
    }

    fn admits_stream(&self, _peer: IpAddr) -> Result<(), Error> {
        Ok(())
    }

    fn goes_within_host(&self, _peer: IpAddr) -> bool {
        false
    }

    fn user_of(&self, sender: Credentials) -> LocalUser {
        let relation = match *lock(&self.stranger) {
            Some(_) => Relation::Foreign,
            None => Relation::Own,
        };
        LocalUser {
            relation,
            number: Some(sender.uid),
        }
    }

    fn takes_wire_from(&self, by: LocalUser, _to: Gid) -> bool {
        by.relation.is_own_user()
    }

    fn owns_slot(&self, _sender: Credentials, slot: u16) -> bool {
        lock(&self.stranger).is_none_or(|stranger| stranger == slot)
    }

    fn count_denied(&self, asker: Asker, why: Denial) {
        lock(&self.refused).push((asker, why));
    }

    fn asker(&self, slot: u16) -> Asker {
        let stranger = lock(&self.stranger).is_some_and(|stranger| stranger == slot);
        if stranger {
            Asker::OtherUser
        } else {
            Asker::OwnUser
        }
    }

    /// Each sign is another user's.
    fn is_left_out(&self, sign: &str, _name: &str) -> bool {
        has_owner(sign).expect("a socket")
    }

    fn leaves_out_users(&self) -> bool {
        *lock(&self.leaves_out_users)
    }

    /// Each owner is another user's process.
    fn leaves_out_owner(&self, name: &str) -> bool {
        owner_of(name, SocketKind::Messages)
            .expect("netlink")
            .is_some()
    }

    fn leaves_out(&self, _owner: Credentials) -> bool {
        true
    }

    fn reschedule(&self) {
        self.reschedules.fetch_add(1, Ordering::SeqCst);
    }
}
