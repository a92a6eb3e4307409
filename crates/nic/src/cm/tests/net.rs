//! Machines, processes and the network between them.
//!
//! Ports are real: all machines of a test share this network namespace's claims. Everything else is played.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ferroce_os::netdev::{Address, Interface};
use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::mad::{CmMad, Ece, Mad};
use ferroce_proto::time::Time;
use ferroce_proto::verbs::QpType;

use crate::cm::{
    CmService, ConnParam, Event, EventChannel, EventKind, EventParam, Host, Id, PortSpace, Via,
};
use crate::core::lock;
use crate::device::DeviceList;
use crate::link::Addressing;
use crate::{Device, Error};

/// A MAD that is under way.
#[derive(Debug)]
pub(super) enum InFlight {
    Local {
        machine: usize,
        slot: u16,
        from_slot: u16,
        from: Gid,
        to: Gid,
        mad: Mad,
    },
    Wire {
        addressing: Addressing,
        mad: Mad,
    },
}

#[derive(Debug)]
pub(super) struct Net {
    now: AtomicU64,
    pub(super) flight: Mutex<VecDeque<InFlight>>,
    procs: Mutex<Vec<Weak<Proc>>>,
    /// Which process of a machine a MAD from the wire lands in, counted modulo their number.
    pub(super) landing: AtomicUsize,
    /// Addresses that nobody answers for on the local network.
    pub(super) absent: Mutex<Vec<IpAddr>>,
    /// Times that somebody had a link address resolved.
    pub(super) link_requests: AtomicUsize,
    /// Names of messages that are lost.
    pub(super) lost: Mutex<Vec<&'static str>>,
    /// Names of messages that went over the wire, for a look at what was sent.
    pub(super) wire_log: Mutex<Vec<(Addressing, CmMad)>>,
}

/// A process: its engine, as far as the service can see, and the service.
#[derive(Debug)]
pub(super) struct Proc {
    slot: u16,
    machine: usize,
    net: Arc<Net>,
    devices: DeviceList,
    watched: Mutex<BTreeMap<RawFd, u64>>,
    /// Does not read its ports.
    pub(super) asleep: Mutex<bool>,
    service: Mutex<Option<CmService>>,
    pub(super) reschedules: AtomicUsize,
}

fn interface(name: &str, index: u32, mtu: u32, ips: &[String]) -> Interface {
    Interface {
        name: name.into(),
        index,
        mtu,
        mac: [2, 0, 0, 0, 0, u8::try_from(index).unwrap()],
        up: true,
        running: true,
        loopback: name == "lo",
        addresses: ips
            .iter()
            .map(|ip| Address {
                ip: ip.parse().unwrap(),
                prefix: 24,
            })
            .collect(),
    }
}

/// What a machine has.
pub(super) fn interfaces(machine: usize) -> Vec<Interface> {
    let tag = u32::try_from(machine).unwrap();
    vec![
        interface("lo", 1, 65536, &["127.0.0.1".into(), "::1".into()]),
        interface("eth0", 2 + tag, 1500, &[v4(machine), v6(machine)]),
    ]
}

/// Addresses of a machine.
pub(super) fn v4(machine: usize) -> String {
    format!("10.0.0.{}", machine + 1)
}
pub(super) fn v6(machine: usize) -> String {
    format!("fd00::{}", machine + 1)
}

impl Net {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            now: AtomicU64::new(1_000_000_000),
            flight: Mutex::default(),
            procs: Mutex::default(),
            landing: AtomicUsize::new(0),
            absent: Mutex::default(),
            link_requests: AtomicUsize::new(0),
            lost: Mutex::default(),
            wire_log: Mutex::default(),
        })
    }

    pub(super) fn now(&self) -> Time {
        Time(self.now.load(Ordering::SeqCst))
    }

    /// Starts a process.
    pub(super) fn start(self: &Arc<Self>, machine: usize, slot: u16) -> Arc<Proc> {
        let proc = Arc::new(Proc {
            slot,
            machine,
            net: Arc::clone(self),
            devices: DeviceList::discover(&interfaces(machine)),
            watched: Mutex::default(),
            asleep: Mutex::default(),
            service: Mutex::default(),
            reschedules: AtomicUsize::new(0),
        });
        let host: Arc<dyn Host> = Arc::clone(&proc) as _;
        let service = CmService::new(Arc::downgrade(&host), slot).unwrap();
        *lock(&proc.service) = Some(service);
        lock(&self.procs).push(Arc::downgrade(&proc));
        proc
    }

    fn procs(&self) -> Vec<Arc<Proc>> {
        lock(&self.procs)
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|p| p.is_alive())
            .collect()
    }

    /// Ends a process without a word; those that had a link to it notice.
    pub(super) fn kill(&self, proc: &Proc) {
        *lock(&proc.service) = None;
        lock(&self.procs).retain(|p| p.upgrade().is_some_and(|p| p.slot != proc.slot));
        for other in self.procs() {
            if other.machine == proc.machine {
                other.service().on_process_gone(proc.slot);
            }
        }
        self.settle();
    }

    /// Delivers everything that is under way.
    pub(super) fn settle(&self) {
        loop {
            for proc in self.procs() {
                proc.read_ports();
            }
            let Some(next) = lock(&self.flight).pop_front() else {
                return;
            };
            self.deliver(next);
        }
    }

    fn deliver(&self, next: InFlight) {
        let (InFlight::Local { mad, .. } | InFlight::Wire { mad, .. }) = &next;
        let name = CmMad::parse(mad).map_or("junk", |mad| mad.message.name());
        if lock(&self.lost).contains(&name) {
            return;
        }
        let procs = self.procs();
        match next {
            InFlight::Local {
                machine,
                slot,
                from_slot,
                from,
                to,
                mad,
            } => {
                if let Some(proc) = procs
                    .iter()
                    .find(|p| p.machine == machine && p.slot == slot)
                {
                    proc.service().on_mad(from, to, &mad, Via::Local(from_slot));
                }
            }
            InFlight::Wire { addressing, mad } => {
                let there: Vec<_> = procs
                    .iter()
                    .filter(|p| p.is_at(addressing.dst.ip()))
                    .collect();
                if !there.is_empty() {
                    let proc = there[self.landing.load(Ordering::SeqCst) % there.len()];
                    proc.service()
                        .on_mad(addressing.src, addressing.dst, &mad, Via::Wire);
                }
            }
        }
    }

    /// Lets time pass, with everything that becomes due.
    pub(super) fn pass(&self, time: Duration) {
        self.settle();
        let end = self.now() + time;
        loop {
            let due = self
                .procs()
                .iter()
                .filter_map(|p| p.service().deadline())
                .min();
            let Some(due) = due.filter(|&at| at <= end) else {
                break;
            };
            self.now.fetch_max(due.0, Ordering::SeqCst);
            let now = self.now();
            for proc in self.procs() {
                if proc.service().deadline().is_some_and(|at| at <= now) {
                    proc.service().on_deadline(now);
                }
            }
            self.settle();
        }
        self.now.store(end.0, Ordering::SeqCst);
    }
}

impl Proc {
    pub(super) fn service(&self) -> CmService {
        lock(&self.service).clone().expect("the process lives")
    }
    /// The kernel says that these are the interfaces now.
    pub(super) fn has_now(&self, interfaces: &[Interface]) {
        self.devices.update(interfaces);
        self.service().on_network_change();
    }
    fn is_alive(&self) -> bool {
        lock(&self.service).is_some()
    }
    fn is_at(&self, ip: IpAddr) -> bool {
        self.devices.all().iter().any(|d| d.has_address(ip))
    }
    pub(super) fn ports_watched(&self) -> usize {
        lock(&self.watched).len()
    }
    pub(super) fn read_ports(&self) {
        if !*lock(&self.asleep) {
            let tokens: Vec<u64> = lock(&self.watched).values().copied().collect();
            tokens
                .into_iter()
                .for_each(|token| self.service().on_readable(token));
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
        // The caller holds its service's lock, so look at the list only.
        let lives = |p: &Weak<Self>| {
            p.upgrade()
                .is_some_and(|p| p.machine == self.machine && p.slot == slot)
        };
        if !lock(&self.net.procs).iter().any(lives) {
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
    fn watch(&self, fd: RawFd, token: u64) {
        assert_eq!(lock(&self.watched).insert(fd, token), None, "watched twice");
    }
    fn unwatch(&self, fd: RawFd) {
        assert!(lock(&self.watched).remove(&fd).is_some(), "was not watched");
    }
    fn reschedule(&self) {
        self.reschedules.fetch_add(1, Ordering::SeqCst);
    }
}

/// Takes the next event as a program does.
pub(super) fn next(channel: &EventChannel) -> Option<Event> {
    // An identifier that another thread destroys takes its event away from between the two.
    if channel.take_count() {
        channel.pop()
    } else {
        None
    }
}

#[track_caller]
pub(super) fn expect(channel: &EventChannel, kind: EventKind, status: i32) -> Event {
    let event = next(channel).unwrap_or_else(|| panic!("no event, but {kind:?} expected"));
    assert_eq!((event.kind, event.status), (kind, status));
    event
}

/// The connection parameters that an event carries.
#[track_caller]
pub(super) fn conn_of(event: &Event) -> ConnParam {
    match &event.param {
        EventParam::Conn(conn) => conn.clone(),
        other => panic!("{other:?} where connection parameters are expected"),
    }
}

#[track_caller]
pub(super) fn expect_nothing(channel: &EventChannel) {
    if let Some(event) = next(channel) {
        panic!("unexpected {event:?}");
    }
    assert!(channel.pop().is_none(), "an event without a count");
}

#[track_caller]
pub(super) fn expect_errno<T>(result: Result<T, Error>, errno: i32) {
    match result {
        Ok(_) => panic!("allowed, but errno {errno} expected"),
        Err(e) => assert_eq!(e.errno, errno, "{e}"),
    }
}

/// Queue pairs are never used twice: that would make the first connection stale.
fn next_qpn() -> Qpn {
    static NEXT: AtomicU32 = AtomicU32::new(0x1_0000);
    Qpn::new(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Longer than a request waits for a listener.
pub(super) const GRACE: Duration = Duration::from_millis(400);

pub(super) fn param(private_data: &[u8]) -> ConnParam {
    ConnParam {
        private_data: private_data.to_vec(),
        responder_resources: 3,
        initiator_depth: 5,
        flow_control: true,
        retry_count: 6,
        rnr_retry_count: 4,
        srq: false,
        qp_num: next_qpn(),
        ece: Ece::default(),
    }
}

pub(super) fn param_of_server(private_data: &[u8]) -> ConnParam {
    ConnParam {
        responder_resources: 7,
        initiator_depth: 2,
        rnr_retry_count: 1,
        ..param(private_data)
    }
}

pub(super) fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

impl Net {
    /// A process ends and nobody is told.
    pub(super) fn forget(&self, proc: &Proc) {
        lock(&self.procs).retain(|p| p.upgrade().is_some_and(|p| p.slot != proc.slot));
    }
}
