//! Starting the engine.

use std::io;
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
use crate::base::counters::Counters;
use crate::base::numbers::Numbers;
use crate::base::token::Token;
use crate::cm::CmService;
use crate::link::fault::{Faults, Wires};
use crate::link::local::LocalLinks;
use crate::link::path::Policy;
use crate::link::path::neighbour::KnownStations;
use crate::link::path::peer_processes::PeerProcesses;
use crate::link::path::ways_out::Wire;
use crate::link::stream::StreamFaults;
use crate::objects::ah::AhTable;
use crate::objects::cq::OwingChannels;
use crate::objects::device::{DeviceList, Protocol, Shapes};
use crate::objects::early_completions::EarlyCompletions;
use crate::objects::groups::Groups;
use crate::objects::qp::{IdleLook, LateWakeUps, NewShortRings, QpTable};
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

/// What the environment asks of the device.
struct Settings {
    auth: Option<Auth>,
    peers: Peers,
    shapes: &'static Shapes,
    faults: Faults,
    policy: Policy,
    has_thread: bool,
}

impl Settings {
    /// Reads all variables before anything is opened: without its key a process must not have a
    /// device.
    fn from_env() -> Result<Self, Error> {
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
        Ok(Self {
            auth,
            peers,
            shapes,
            faults,
            policy: Policy::from_env(),
            has_thread: has_thread(),
        })
    }
}

impl Nic {
    /// Claims a slot, opens the sockets, lists the devices and starts the thread.
    pub(super) fn start() -> Result<Arc<Self>, Error> {
        let settings = Settings::from_env()?;
        let has_thread = settings.has_thread;
        let poller = Arc::new(Poller::new().map_err(|e| cannot_start(&e))?);
        // Before the list is taken: what changes meanwhile is heard of.
        let network = network::watch(&poller);
        let interfaces = netdev::interfaces();
        let devices = DeviceList::discover(
            &interfaces.map_err(|e| Error::system("cannot list interfaces", &e))?,
            settings.shapes,
        );
        let counters = Arc::default();
        let (links, incoming) =
            LocalLinks::claim(&counters, settings.peers.are_own_user()).inspect_err(say)?;
        poller
            .add(
                incoming.listener_fd(),
                Token::Listener.raw(),
                Interest::READ,
            )
            .map_err(|e| cannot_start(&e))?;
        let services = assemble(settings, poller, devices, counters, links)?;
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

/// Opens the wire, and puts together what the objects of the process share.
fn assemble(
    settings: Settings,
    poller: Arc<Poller>,
    devices: DeviceList,
    counters: Arc<Counters>,
    mut links: LocalLinks,
) -> Result<Arc<Services>, Error> {
    let boards = Boards::new(links.slot());
    links.offer_board(boards.own());
    let sleeper = Sleeper::new().map_err(|e| cannot_start(&e))?;
    sleeper.watch(&poller).map_err(|e| cannot_start(&e))?;
    let wire = open_wire(&settings, links.slot(), &poller);
    tracing::debug!(target: "ferroce::device", slot = links.slot(), devices = devices.all().len(),
        wire = wire.is_ok(), "started");
    Ok(Arc::new(Services {
        numbers: Numbers::new(links.slot()),
        devices,
        policy: settings.policy,
        peers: settings.peers,
        auth: settings.auth,
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
        peer_processes: PeerProcesses::new(links, &poller),
        stations: KnownStations::default(),
        new_short_rings: NewShortRings::default(),
        idle_look: IdleLook::default(),
        late_wake_ups: LateWakeUps::default(),
        owing_channels: OwingChannels::default(),
        wire,
        stream_faults: settings.faults.streams.map(StreamFaults::new),
        partings: Mutex::default(),
        poller,
        counters,
        has_thread: settings.has_thread,
    }))
}

fn cannot_start(error: &io::Error) -> Error {
    Error::system("cannot start the software device", error)
}

/// `FERROCE_THREAD=off`: the device thread sleeps. Nothing is done but by programs that poll or
/// lead, which makes what they do measurable.
fn has_thread() -> bool {
    !ferroce_os::environment::is_off("FERROCE_THREAD")
}

/// Opens the wire link. Without it other hosts cannot be reached, which the program's user must
/// hear of.
fn open_wire(settings: &Settings, slot: u16, poller: &Arc<Poller>) -> Result<Wire, Error> {
    if !settings.shapes.has(Protocol::RoceV2) {
        return Err(Error::new(
            libc::ENETUNREACH,
            "FERROCE_WIRE=iwarp: other hosts are reached over TCP",
        ));
    }
    if settings.policy == Policy::Local {
        return Err(Error::new(
            libc::ENETUNREACH,
            "FERROCE_PATH=local: connections to other hosts are switched off",
        ));
    }
    let wire = Wire::open(slot, settings.faults.packets, poller).and_then(|wire| {
        if settings.peers.are_own_user() && wire.is_guest() {
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
