//! What the objects of a process share: tables, and the services below them.
//!
//! Objects hold this, and of the engine above only what [`Engine`] names.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, Weak};

use ferroce_os::clock;
use ferroce_os::poll::{Interest, Poller};
use ferroce_os::unix::{LocalUser, Relation};
use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::time::Time;

use crate::base::addressing::Addressing;
use crate::base::counters::Counters;
use crate::base::denials::{Asker, Denial};
use crate::base::events::EventQueue;
use crate::base::numbers::{Numbers, slot_of};
use crate::base::token::Token;
use crate::link::local::ConnectError;
use crate::link::path::neighbour::KnownStations;
use crate::link::path::peer_processes::PeerProcesses;
use crate::link::path::ways_out::Wire;
use crate::link::path::{Egress, Policy};
use crate::link::stream::{Partings, StreamFaults};
use crate::link::wire::private_ports::{PortFlow, private_port_number, private_port_to};
use crate::objects::ah::AhTable;
use crate::objects::cq::{CqEvent, DirectDelivery, OwingChannels};
use crate::objects::device::{DeviceAttr, DeviceList};
use crate::objects::early_completions::EarlyCompletions;
use crate::objects::groups::{GroupAt, Groups};
use crate::objects::qp::{IdleLook, LateWakeUps, NewShortRings, QpTable, Watch};
use crate::objects::xrc::Domains;
use crate::services::auth::Auth;
use crate::services::budgets::Budgets;
use crate::services::delays::Delays;
use crate::services::direct::Boards;
use crate::services::doors::Door;
use crate::services::pacing::{Askers, Pacer};
use crate::services::peers::Peers;
use crate::services::ready::ReadyList;
use crate::services::rights::RightsTable;
use crate::services::sleeper::Sleeper;
use crate::services::timers::Timers;
use crate::{Cq, Error, Qp};

/// The engine, as objects see it: what only it can do, since it makes rounds.
pub(crate) trait Engine: fmt::Debug + Send + Sync {
    /// A program found a completion queue empty: does a round for it, unless somebody else is at
    /// it. `sleeps_soon` if it polls a queue that it will sleep on. Some of what completes to it
    /// may be in `delivery` then.
    fn poll(&self, sleeps_soon: bool, delivery: &mut DirectDelivery<'_>);
    /// A program has the completions of what it has sent over iWARP: looks on for the peer's answer
    /// for a little, where experience says that it comes.
    fn await_answer(&self);
    /// Takes what has come. A thread that makes a round just now is waited for, but not for ever:
    /// it may be this one.
    fn hear(&self);
    /// Takes one count of a queue of events, and waits for one if its door is in blocking mode.
    /// Returns whether the calling thread did the device's work meanwhile, if it waited.
    ///
    /// This is a cancellation point: the caller owns nothing that is to be given back.
    ///
    /// # Errors
    /// EAGAIN if the door is non-blocking and there is no count; EINTR when a signal came.
    fn take_count(&self, events: &EventQueue<CqEvent>, door: &Door) -> io::Result<Option<bool>>;
    /// A program that has armed a queue may sleep from here on: what comes makes its door readable.
    fn expect_at_door(&self, door: &Door);
    /// A program that is woken for the device's work may sleep from here on. What it may still
    /// answer is not acknowledged for that.
    fn rest_at_door(&self);
    /// Whether nothing can come to an empty queue but what makes an open door readable.
    fn rests_at_door(&self) -> bool;
    /// The connection of an identifier of the connection manager has ended.
    fn on_stream_ended(&self, id: u64);
}

/// What the objects of a process share.
///
/// Locks, in the order in which they are taken: progress → a queue pair → the rights table → a
/// completion queue or a link. Never two queue pairs at once; none of them while blocking or
/// calling into the program.
pub(crate) struct Services {
    pub(crate) numbers: Numbers,
    pub(crate) devices: DeviceList,
    pub(crate) policy: Policy,
    pub(crate) peers: Peers,
    /// None: nothing is authenticated.
    pub(crate) auth: Option<Auth>,
    pub(crate) rights: RightsTable,
    pub(crate) early_completions: EarlyCompletions,
    pub(crate) qps: QpTable,
    pub(crate) groups: Groups,
    pub(crate) domains: Domains,
    pub(crate) ahs: AhTable,
    pub(crate) pacer: Pacer,
    pub(crate) budgets: Budgets,
    pub(crate) askers: Askers,
    pub(crate) timers: Timers,
    pub(crate) delays: Delays,
    pub(crate) ready: ReadyList,
    pub(crate) sleeper: Sleeper,
    pub(crate) peer_processes: PeerProcesses,
    pub(crate) stations: KnownStations,
    pub(crate) new_short_rings: NewShortRings,
    pub(crate) idle_look: IdleLook,
    pub(crate) late_wake_ups: LateWakeUps,
    pub(crate) owing_channels: OwingChannels,
    pub(crate) boards: Boards,
    /// Or why there is none.
    pub(crate) wire: Result<Wire, Error>,
    /// What the user asked for to happen to streams of iWARP.
    pub(crate) stream_faults: Option<StreamFaults>,
    /// TCP connections whose queue pair is destroyed.
    pub(crate) partings: Mutex<Partings>,
    pub(crate) poller: Arc<Poller>,
    pub(crate) counters: Arc<Counters>,
    /// Whether the device thread works.
    pub(crate) has_thread: bool,
}

/// Queue pairs lead here, and from here to all of them: to print one would never end.
impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services").finish_non_exhaustive()
    }
}

impl Services {
    /// What authenticates packets of the wire, if a key is set.
    #[inline]
    pub(crate) fn auth(&self) -> Option<&Auth> {
        self.auth.as_ref()
    }

    /// Counts a denial at the device that has an address.
    pub(crate) fn count_denied_on(&self, address: Gid, asker: Asker, why: Denial) {
        let device = self.devices.with_address(address.ip());
        device
            .as_ref()
            .map_or(&*self.counters, |d| d.counters())
            .count_denied(asker, why);
    }

    /// Whether an address is this host's own.
    pub(crate) fn is_local(&self, ip: IpAddr) -> bool {
        ip.to_canonical().is_loopback() || self.devices.with_address(ip).is_some()
    }

    /// The way to the process that owns a slot.
    pub(crate) fn egress_to(&self, slot: u16) -> Result<Arc<Egress>, ConnectError> {
        self.peer_processes.reach(slot)
    }

    /// The way to the process that owns a slot, if it is of our own user.
    pub(crate) fn egress_to_own_user(&self, slot: u16) -> Option<Arc<Egress>> {
        self.peer_processes.reach_own_user(slot)
    }

    /// Whether a process may pass on what came over the wire to an address of this host: it is of
    /// our own user, or of the user that has UDP port 4791 in our place.
    pub(crate) fn takes_wire_from(&self, by: LocalUser, dst: Gid) -> bool {
        let holds = |wire: &Wire| by.number.is_some() && wire.holder(dst) == by.number;
        by.relation.is_own_user() || self.wire.as_ref().is_ok_and(holds)
    }

    /// Whether links are offered a ring, and why not.
    pub(crate) fn offers_rings(&self) -> Result<(), String> {
        self.peer_processes.offers_rings()
    }

    /// The slots of the processes of this host that it talks to, and what these are to this one.
    pub(crate) fn peer_process_slots(&self) -> Vec<(u16, Relation)> {
        self.peer_processes.all()
    }

    /// The IP versions of the wire, and whether the kernel cuts and joins runs of packets; or why
    /// there is no wire.
    pub(crate) fn runs(&self) -> Result<(&'static str, bool, bool), String> {
        let wire = self.wire.as_ref().map_err(|e| e.reason.clone())?;
        let (cuts, joins) = wire.runs();
        Ok((wire.versions(), cuts, joins))
    }

    /// The way to another host from the shared port, and the bytes of a receive buffer there, as
    /// far as one can guess.
    pub(crate) fn wire_to(&self, dst: Gid) -> Result<(Arc<Egress>, u32), Error> {
        self.wire_by(dst, |wire| wire.to(dst))
    }

    /// The way out over the wire to a queue pair. Other makes' are of slot 0, or of any.
    pub(crate) fn wire_to_qp(&self, dst: Gid, dest: Qpn) -> Result<(Arc<Egress>, u32), Error> {
        self.wire_to_private_port(dst, private_port_to(slot_of(dest)))
    }

    /// The way out over the wire from a private port.
    pub(crate) fn wire_to_private_port(
        &self,
        dst: Gid,
        private_port: u8,
    ) -> Result<(Arc<Egress>, u32), Error> {
        self.wire_by(dst, |wire| wire.to_from_private_port(dst, private_port))
    }

    /// Whether a host, as the source of what came over the wire, is one of those that
    /// `FERROCE_PEERS` lets in. An address of this host may be any user's.
    #[inline]
    pub(crate) fn admits_host(&self, address: IpAddr) -> bool {
        self.peers.are_all() || self.has_listed(address)
    }

    #[cold]
    fn has_listed(&self, address: IpAddr) -> bool {
        if self.is_local(address) {
            return self.policy == Policy::Wire || !self.peers.are_own_user();
        }
        self.peers.has_host(address)
    }

    fn wire_by<'a>(
        &'a self,
        dst: Gid,
        find: impl FnOnce(&'a Wire) -> Option<&'a Arc<Egress>>,
    ) -> Result<(Arc<Egress>, u32), Error> {
        if !dst.is_multicast() && !self.admits_host(dst.ip()) {
            let why = format!("FERROCE_PEERS leaves {} out", dst.ip());
            return Err(Error::new(libc::EACCES, why));
        }
        let wire = self.wire.as_ref().map_err(|e| {
            Error::new(
                libc::ENETUNREACH,
                format!("{} is on another host, and: {}", dst.ip(), e.reason),
            )
        })?;
        let egress = find(wire).ok_or_else(|| {
            Error::new(
                libc::ENETUNREACH,
                format!("this system has no sockets to reach {}", dst.ip()),
            )
        })?;
        Ok((Arc::clone(egress), wire.receive_buffer()))
    }

    /// The port from which the process of a queue pair elsewhere sends to this one, if it is of our
    /// kind.
    pub(crate) fn private_port_from(&self, qpn: Qpn) -> Option<u16> {
        let slot = slot_of(qpn);
        // No process of our kind has slot 0.
        (slot != 0).then(|| private_port_number(slot, private_port_to(self.numbers.slot())))
    }

    /// Something is going to come from the process of a queue pair elsewhere: asks the kernel for
    /// it.
    pub(crate) fn expect_from_qp(&self, addressing: &Addressing, qpn: Qpn) {
        if let Some(port) = self.private_port_from(qpn) {
            self.expect_flow(&addressing.reversed(), port);
        }
    }

    /// Asks the kernel for what comes with these addresses from a port.
    pub(crate) fn expect_flow(&self, addressing: &Addressing, port: u16) {
        let flow = PortFlow {
            local: addressing.dst,
            peer: addressing.src,
            port,
        };
        if let Ok(wire) = &self.wire {
            wire.receive_flow(flow, addressing.ifindex);
        }
    }

    /// Attaches a queue pair to a multicast group.
    pub(crate) fn attach_to_group(
        &self,
        limits: &DeviceAttr,
        at: GroupAt,
        qpn: Qpn,
    ) -> Result<(), Error> {
        if self.auth().is_some() {
            return Err(Error::unsupported(
                "FERROCE_KEY_FILE is set, and it does not cover multicast",
            ));
        }
        let wire = self.wire.as_ref().map_err(Error::clone)?;
        self.groups.attach(wire, limits, at, qpn)
    }

    /// Detaches a queue pair from a group. Returns whether it was attached.
    pub(crate) fn detach_from_group(&self, at: GroupAt, qpn: Qpn) -> bool {
        let wire = self.wire.as_ref();
        wire.is_ok_and(|wire| self.groups.detach(wire, at, qpn))
    }

    /// Detaches a queue pair from all groups.
    pub(crate) fn leave_groups(&self, qpn: Qpn) {
        if let Ok(wire) = &self.wire {
            self.groups.detach_all(wire, qpn);
        }
    }

    /// Whether a queue pair is attached to a group.
    pub(crate) fn is_in_group(&self, qpn: Qpn) -> bool {
        self.groups.has(qpn)
    }

    /// A TCP connection that was being set up is a queue pair's from here on: what it brings goes
    /// there.
    pub(crate) fn watch_stream(&self, fd: RawFd, qpn: Qpn) -> io::Result<()> {
        self.rewatch_stream(fd, qpn, Interest::READ)
    }

    /// A queue pair's TCP connection that was not watched for a while is watched again.
    pub(crate) fn watch_stream_again(&self, fd: RawFd, qpn: Qpn) -> io::Result<()> {
        let token = Token::Stream(qpn.get()).raw();
        self.poller.add(fd, token, Interest::READ)
    }

    /// Changes what a queue pair's TCP connection is watched for.
    pub(crate) fn rewatch_stream(&self, fd: RawFd, qpn: Qpn, interest: Interest) -> io::Result<()> {
        let token = Token::Stream(qpn.get()).raw();
        self.poller.modify(fd, token, interest)
    }

    /// A queue pair's TCP connection is about to be closed by its owner.
    pub(crate) fn unwatch_stream(&self, fd: RawFd) {
        if let Err(error) = self.poller.remove(fd) {
            tracing::warn!(target: "ferroce::iwarp", %error, "cannot stop watching a connection");
        }
    }

    /// Replaces a queue pair's entry in the table of timers.
    pub(crate) fn set_timer(&self, qpn: Qpn, old: Option<Time>, new: Option<Time>) {
        if old == new {
            return;
        }
        self.timers.set(qpn, old, new);
        if let Some(at) = new {
            self.sleeper.wake_for(at);
        }
    }

    /// A completion queue wants to be called at `at`; `id` tells the queue from others.
    pub(crate) fn delay(&self, at: Time, id: usize, cq: &Weak<Cq>) {
        let cq = Weak::clone(cq);
        self.delays.add(at, id, cq);
        self.sleeper.wake_for(at);
    }

    /// A completion queue has no event due at `at` any more.
    pub(crate) fn end_delay(&self, at: Option<Time>, id: usize) {
        if let Some(at) = at {
            self.delays.remove(at, id);
        }
    }

    /// A short ring is to be looked at. What is done with it must come later.
    pub(crate) fn watch_short_ring(&self, watch: Watch) {
        self.new_short_rings.add(watch);
    }

    /// Whether the device thread naps, since a program polls: both look at everything in a while,
    /// and the thread looks at [`LateWakeUps`] between the end of its nap and its sleep. A program
    /// that is woken at an open door does not look before it sleeps.
    #[inline]
    pub(crate) fn looks_again(&self) -> bool {
        self.sleeper.naps() && !self.sleeper.doors().any_open()
    }

    /// Whether the device thread naps, and [pays](OwingChannels::pay) then for threads that lead,
    /// unless others wait for the same event.
    #[inline]
    pub(crate) fn pays_later(&self) -> bool {
        self.sleeper.naps() && !self.sleeper.lead().has_followers()
    }

    /// A program has polled, and found completions that wait in the queue: another thread has done
    /// the work, or the program's own posts.
    pub(crate) fn on_poll_of_queued(&self) {
        self.sleeper.polls().on_slow_poll(clock::monotonic());
    }

    /// Somebody must do a round at `at`.
    pub(crate) fn wake_for(&self, at: Time) {
        self.sleeper.wake_for(at);
    }

    /// Gives a queue pair a turn to transmit soon.
    pub(crate) fn push_ready(&self, qp: Arc<Qp>) {
        self.ready.push(qp);
        self.sleeper.wake_for(Time(0));
    }

    /// An event was there for a thread that did the device's work when it waited last.
    pub(crate) fn on_leaders_visit(&self) {
        self.sleeper.lead().on_visit();
    }

    /// A program has armed a queue: opens the door by which it will wait, if it can do the device's
    /// work. Returns whether the door is open.
    pub(crate) fn opens(&self, door: &Arc<Door>) -> bool {
        let may = self.has_thread && door.may_open();
        let doors = self.sleeper.doors();
        let is_open = doors.on_armed(door, may, &self.poller, clock::monotonic);
        if is_open {
            self.sleeper.lead().on_visit();
        }
        is_open
    }

    /// The channel of a door is gone.
    pub(crate) fn forget_door(&self, door: &Arc<Door>) {
        self.sleeper.doors().forget(door, &self.poller);
    }

    /// A program is about to sleep; `leads` if it is likely to do the device's work meanwhile.
    pub(crate) fn end_inline(&self, leads: bool) {
        if leads {
            self.sleeper.end_streak();
        } else {
            self.sleeper.end_polling();
        }
    }
}
