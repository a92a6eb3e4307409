//! Starting the engine.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use ferroce_os::lock::Lock;
use ferroce_os::netdev;
use ferroce_os::poll::{Interest, Poller};
use ferroce_os::random;

use super::leave::Leaving;
use super::progress::RoundState;
use super::{network, thread};
use crate::Error;
use crate::Nic;
use crate::base::numbers::Numbers;
use crate::cm::CmService;
use crate::link::fault::{Faults, LinkFault, Wires};
use crate::link::local::LocalLinks;
use crate::link::local::neighbours::Neighbours;
use crate::link::path::Policy;
use crate::link::stream::StreamFaults;
use crate::link::token::Token;
use crate::link::wire::ways_out::Wire;
use crate::objects::ah::AhTable;
use crate::objects::device::{DeviceList, Protocol, Shapes};
use crate::objects::early_completions::EarlyCompletions;
use crate::objects::groups::Groups;
use crate::objects::qp::{NewShortRings, QpTable};
use crate::objects::services::Services;
use crate::objects::xrc::Domains;
use crate::services::auth::Auth;
use crate::services::budgets::Budgets;
use crate::services::delays::Delays;
use crate::services::direct::Boards;
use crate::services::pacing::{Askers, Pacer};
use crate::services::peers::Peers;
use crate::services::ready::ReadyList;
use crate::services::rights::RightsTable;
use crate::services::sleeper::Sleeper;
use crate::services::timers::Timers;

impl Nic {
    /// Claims a slot, opens the sockets, lists the devices and starts the thread.
    pub(super) fn start() -> Result<Arc<Self>, Error> {
        // Before anything else: without its key a process must not have a device.
        let auth = Auth::from_env().inspect_err(say)?;
        let peers = Peers::from_env().inspect_err(say)?;
        let shapes = Shapes::from_env()?;
        let faults = Faults::from_env(Wires {
            packets: shapes.has(Protocol::RoceV2),
            streams: shapes.has(Protocol::Iwarp),
        })
        .inspect_err(say)?;
        if auth.is_some() && shapes.has(Protocol::Iwarp) {
            let error = Error::unsupported(
                "FERROCE_KEY_FILE is set, and it does not cover iWARP (FERROCE_WIRE); no device opens",
            );
            say(&error);
            return Err(error);
        }
        let system = |e| Error::system("cannot start the software device", &e);
        let poller = Arc::new(Poller::new().map_err(system)?);
        // Before the list is taken: what changes meanwhile is heard of.
        let network = network::watch(&poller);
        let devices = DeviceList::discover(
            &netdev::interfaces().map_err(|e| Error::system("cannot list interfaces", &e))?,
            shapes,
        );
        let counters = Arc::default();
        let (mut links, incoming) =
            LocalLinks::claim(&counters, peers.are_own_user()).inspect_err(say)?;
        let boards = Boards::new(links.slot());
        links.offer_board(boards.own());
        let sleeper = Sleeper::new().map_err(system)?;
        poller
            .add(sleeper.wake_fd(), Token::Wake.raw(), Interest::READ)
            .map_err(system)?;
        poller
            .add(
                incoming.listener_fd(),
                Token::Listener.raw(),
                Interest::READ,
            )
            .map_err(system)?;
        let (policy, has_thread) = (Policy::from_env(), has_thread());
        let wire = if shapes.has(Protocol::RoceV2) {
            open_wire(policy, &peers, faults.packets, links.slot(), &poller)
        } else {
            Err(Error::new(
                libc::ENETUNREACH,
                "FERROCE_WIRE=iwarp: other hosts are reached over TCP",
            ))
        };
        tracing::debug!(target: "ferroce::device", slot = links.slot(), devices = devices.all().len(),
            wire = wire.is_ok(), "started");
        let services = Arc::new(Services {
            numbers: Numbers::new(links.slot()),
            devices,
            policy,
            peers,
            auth,
            rights: RightsTable::default(),
            early_completions: EarlyCompletions::default(),
            qps: QpTable::new(),
            groups: Groups::default(),
            domains: Domains::new(),
            ahs: AhTable::default(),
            pacer: Pacer::default(),
            budgets: Budgets::default(),
            askers: Askers::default(),
            timers: Timers::new(),
            delays: Delays::new(),
            ready: ReadyList::default(),
            sleeper,
            boards,
            neighbours: Neighbours::new(links, &poller),
            new_short_rings: NewShortRings::default(),
            wire,
            stream_faults: faults.streams.map(StreamFaults::new),
            poller,
            counters,
            has_thread,
        });
        let nic = Arc::new(Self {
            services,
            network,
            cm: OnceLock::new(),
            gsi_psn: AtomicU32::new(random::u32()),
            repeats: Mutex::default(),
            progress: Lock::new(RoundState::new(incoming)),
            leaving: Leaving::new(has_thread),
        });
        let host: Weak<Self> = Arc::downgrade(&nic);
        let cm = CmService::new(host, nic.services.numbers.slot())?;
        nic.cm.get_or_init(|| cm);
        thread::spawn(Arc::clone(&nic), has_thread)
            .map_err(|e| Error::system("cannot start the device thread", &e))?;
        Ok(nic)
    }
}

/// `FERROCE_THREAD=off`: the device thread sleeps. Nothing is done but by programs that poll, which
/// makes what they do measurable.
fn has_thread() -> bool {
    !ferroce_os::environment::is_off("FERROCE_THREAD")
}

/// Opens the wire link. Without it other hosts cannot be reached, which the program's user must
/// hear of.
fn open_wire(
    policy: Policy,
    peers: &Peers,
    fault: Option<LinkFault>,
    slot: u16,
    poller: &Arc<Poller>,
) -> Result<Wire, Error> {
    if policy == Policy::Local {
        return Err(Error::new(
            libc::ENETUNREACH,
            "FERROCE_PATH=local: connections to other hosts are switched off",
        ));
    }
    let wire = Wire::open(slot, fault, poller).and_then(|wire| {
        if peers.are_own_user() && wire.is_guest() {
            return Err(Error::new(
                libc::EACCES,
                "FERROCE_PEERS=own-user, and another user has UDP port 4791: what other hosts send would come by way of that user's \
                 processes; without it there are no connections to other hosts",
            ));
        }
        Ok(wire)
    });
    wire.inspect_err(say)
}

/// Tells the program's user why something is not to be had, on stderr, whatever the log filter is:
/// most programs only say that something failed.
fn say(error: &Error) {
    eprintln!("ferroce: {}", error.reason);
}
