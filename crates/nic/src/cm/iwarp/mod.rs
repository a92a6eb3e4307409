//! Connections over TCP: what `iw_cm` and siw's connection manager are in the kernel.
//!
//! A connection is set up here (TCP, then the request and the reply of MPA), and given to its
//! queue pair when both ends have agreed. From there on this service hears of its end only.
//!
//! | module | holds |
//! |---|---|
//! | `listen` | TCP ports of identifiers, and connections that come there |
//! | `connect` | the end that connects |
//! | `answer` | accept and reject |
//! | `outcome` | what becomes of set-ups, as events; the end of connections |
//!
//! A stranger can make a connection and say nothing, or nonsense. [`MAX_UNOWNED`] connections are
//! kept that have not asked for anything, for five seconds each at most, and each has room for one
//! request. If one more comes, the oldest is closed: a peer asks at once. Those that were refused
//! count among them. The oldest is closed, too, if the process has no descriptor left for the next.

mod answer;
mod connect;
mod listen;
mod outcome;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::OnceLock;

use ferroce_os::poll::Readiness;
use ferroce_os::tcp::TcpSocket;
use ferroce_proto::ids::Qpn;
use ferroce_proto::iwarp::mpa::{Initiator, Responder, Rtr, Wishes, WithinHost};
use ferroce_proto::time::Time;

use self::connect::Attempt;
use super::ConnParam;
use super::service::{CmService, Work};
use super::state::IdState;
use crate::objects::device::Protocol;

/// READs and atomics that a queue pair serves at once, at most, if its peer wants more than the
/// program said. As siw has it.
const MAX_IRD: u16 = 128;
/// Connections that no program knows of, over all listeners.
pub(in crate::cm) const MAX_UNOWNED: usize = 128;
/// Room for one read of a connection that is being set up: more than a startup frame has.
const ROOM: usize = 1024;

/// What an identifier has of TCP.
#[derive(Debug, Default)]
pub(in crate::cm) enum StreamHold {
    /// Nothing, or nothing any more.
    #[default]
    None,
    /// A port, by a socket that may listen or connect.
    Bound(TcpSocket),
    /// A port at which it listens; its number among the watched sockets.
    Listening(u32),
    /// A connection that is being set up.
    SettingUp(u32),
    /// A connection that its queue pair has.
    Running(Qpn),
}

impl StreamHold {
    const fn is_bound(&self) -> bool {
        matches!(self, Self::Bound(_))
    }
}

/// A TCP socket that this service watches.
#[derive(Debug)]
enum Watched {
    Listener { socket: TcpSocket, id: u64 },
    Setup(Box<Setup>),
}

/// A connection that is being set up.
#[derive(Debug)]
struct Setup {
    socket: TcpSocket,
    stage: SetupStage,
}

#[derive(Debug)]
enum SetupStage {
    /// TCP connects.
    Connecting(Attempt),
    /// Nobody listened; TCP is asked again. The socket is not watched.
    Paused { until: Time, attempt: Attempt },
    /// The reply is awaited, for a queue pair.
    Requested {
        id: u64,
        initiator: Box<Initiator>,
        qpn: Qpn,
    },
    /// The request is awaited, for a listener.
    Unasked {
        listener: u64,
        peer: SocketAddr,
        responder: Box<Responder>,
    },
    /// The program has to answer.
    Asked { responder: Box<Responder> },
    /// The program has refused. The peer closes the connection, or else this end does so then: siw
    /// (Linux 6.1) drops the private data of a refusal whose FIN comes in the same packet.
    Refused { until: Time },
}

/// The TCP sockets of this process's identifiers.
#[derive(Debug, Default)]
pub(in crate::cm) struct Iwarp {
    watched: BTreeMap<u32, Watched>,
    last: u32,
    /// Deadlines of set-ups, and of pauses of listeners.
    due: BTreeSet<(Time, u32)>,
    /// Set-ups that are the peer's alone: no program knows of them, or no longer.
    unowned: usize,
    /// Set-ups that wait for the program's answer.
    asked: usize,
}

impl Iwarp {
    pub(in crate::cm) fn deadline(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Until when the last refused connection stays open, if this process ends.
    pub(in crate::cm) fn open_until(&self) -> Option<Time> {
        let watched = self.watched.values();
        let refused = watched.filter_map(|watched| match watched {
            Watched::Setup(setup) if matches!(setup.stage, SetupStage::Refused { .. }) => {
                setup.deadline()
            }
            _ => None,
        });
        refused.max()
    }

    /// A number that no watched socket has.
    fn new_number(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.watched.contains_key(&self.last) {
                return self.last;
            }
        }
    }

    /// Takes a set-up out, with its deadline.
    fn take(&mut self, number: u32) -> Option<Setup> {
        match self.watched.remove(&number)? {
            Watched::Setup(setup) => {
                if let Some(at) = setup.deadline() {
                    self.due.remove(&(at, number));
                }
                self.unowned -= usize::from(setup.is_unowned());
                self.asked -= usize::from(setup.is_asked());
                Some(*setup)
            }
            listener @ Watched::Listener { .. } => {
                self.watched.insert(number, listener);
                None
            }
        }
    }

    /// Takes out the set-up among those of peers alone that would end next.
    fn take_oldest_unowned(&mut self) -> Option<Setup> {
        let is_unowned = |number: &u32| {
            let found = self.watched.get(number);
            matches!(found, Some(Watched::Setup(setup)) if setup.is_unowned())
        };
        let oldest = self
            .due
            .iter()
            .map(|(_, number)| *number)
            .find(is_unowned)?;
        self.take(oldest)
    }

    fn put(&mut self, number: u32, setup: Setup) {
        if let Some(at) = setup.deadline() {
            self.due.insert((at, number));
        }
        self.unowned += usize::from(setup.is_unowned());
        self.asked += usize::from(setup.is_asked());
        self.watched.insert(number, Watched::Setup(Box::new(setup)));
    }
}

impl Setup {
    fn deadline(&self) -> Option<Time> {
        match &self.stage {
            SetupStage::Requested { initiator, .. } => initiator.deadline(),
            SetupStage::Unasked { responder, .. } => responder.deadline(),
            SetupStage::Paused { until, .. } | SetupStage::Refused { until } => Some(*until),
            SetupStage::Connecting(_) | SetupStage::Asked { .. } => None,
        }
    }

    const fn is_asked(&self) -> bool {
        matches!(self.stage, SetupStage::Asked { .. })
    }

    fn is_unowned(&self) -> bool {
        matches!(
            self.stage,
            SetupStage::Unasked { .. } | SetupStage::Refused { .. }
        )
    }
}

impl IdState {
    /// Whether its connections go over TCP.
    pub(in crate::cm) fn is_on_iwarp(&self) -> bool {
        let device = self.device.as_ref();
        device.is_some_and(|device| device.protocol() == Protocol::Iwarp)
    }
}

impl CmService {
    /// A TCP socket is ready for something.
    pub(crate) fn on_stream_event(&self, number: u32, event: Readiness) {
        self.step(|work| match work.state.iwarp.watched.get(&number) {
            Some(Watched::Listener { .. }) => work.accept_streams(number),
            Some(Watched::Setup(setup)) => match &setup.stage {
                SetupStage::Connecting(_) => {
                    if event.writable() || event.hangup() {
                        work.on_tcp_outcome(number);
                    }
                }
                SetupStage::Paused { .. } => {}
                _ => work.read_setup(number),
            },
            None => {}
        });
    }
}

impl Work<'_> {
    /// Whether this process has devices for iWARP: all of them are, or some.
    fn has_iwarp(&self) -> bool {
        let devices = self.host.devices();
        devices.iter().any(|d| d.protocol() == Protocol::Iwarp)
    }

    /// Reads a connection that is being set up.
    fn read_setup(&mut self, number: u32) {
        let Some(mut setup) = self.state.iwarp.take(number) else {
            return;
        };
        let mut room = [0; ROOM];
        let came = setup.socket.recv(&mut room);
        match &mut setup.stage {
            SetupStage::Connecting(_) | SetupStage::Paused { .. } => {
                self.state.iwarp.put(number, setup)
            }
            SetupStage::Requested { id, initiator, qpn } => {
                let (id, qpn) = (*id, *qpn);
                let (used, outcome) = match came {
                    Ok(None) => (0, None),
                    Ok(Some(0)) | Err(_) => (0, initiator.on_closed()),
                    Ok(Some(bytes)) => initiator.on_bytes(&room[..bytes]),
                };
                match outcome {
                    None => self.state.iwarp.put(number, setup),
                    Some(outcome) => {
                        let bytes = came.ok().flatten().unwrap_or(0);
                        let early = room[used.min(bytes)..bytes].to_vec();
                        self.on_reply_over_tcp(id, qpn, setup.socket, outcome, early);
                    }
                }
            }
            SetupStage::Refused { .. } => {
                if let Ok(None) = came {
                    self.state.iwarp.put(number, setup);
                }
            }
            SetupStage::Unasked { responder, .. } | SetupStage::Asked { responder } => {
                let asked = match came {
                    Ok(None) => None,
                    Ok(Some(0)) | Err(_) => responder.on_closed(),
                    Ok(Some(bytes)) => responder.on_bytes(&room[..bytes]),
                };
                match asked {
                    None => self.state.iwarp.put(number, setup),
                    Some(asked) => self.on_asked_over_tcp(number, setup, asked),
                }
            }
        }
    }

    /// Ends the set-ups whose time is over.
    pub(in crate::cm) fn end_late_setups(&mut self) {
        while let Some(&(at, number)) = self.state.iwarp.due.first()
            && at <= self.now
        {
            let Some(mut setup) = self.state.iwarp.take(number) else {
                // A listener's pause, or that of one that is gone.
                self.state.iwarp.due.remove(&(at, number));
                self.open_listener(number);
                continue;
            };
            let now = self.now;
            match setup.stage {
                SetupStage::Requested {
                    id,
                    mut initiator,
                    qpn,
                } => {
                    if let Some(outcome) = initiator.on_deadline(now) {
                        self.on_reply_over_tcp(id, qpn, setup.socket, outcome, Vec::new());
                    }
                }
                SetupStage::Unasked {
                    ref mut responder, ..
                } => {
                    if let Some(asked) = responder.on_deadline(now) {
                        self.on_asked_over_tcp(number, setup, asked);
                    }
                }
                SetupStage::Paused { attempt, .. } => {
                    self.dial_again(number, setup.socket, attempt)
                }
                SetupStage::Connecting(_)
                | SetupStage::Asked { .. }
                | SetupStage::Refused { .. } => {}
            }
        }
    }
}

/// First messages that an initiator offers: none. siw (Linux 6.1) panics if a connection ends
/// before the message that it waits for then.
const OFFERED_FIRST: Rtr = Rtr::empty();
/// First messages that a responder grants (RFC 6581, 9). A SEND would take a receive of the
/// program.
const GRANTED_FIRST: Rtr = Rtr::WRITE.union(Rtr::READ);

/// What this end wants of a connection.
fn wishes(param: &ConnParam, within_host: WithinHost, rtr: Rtr) -> Wishes {
    Wishes {
        revision: 2,
        crc: wants_crc(),
        // The kernel's siw refuses them.
        markers: false,
        ird: param.responder_resources.into(),
        max_ird: MAX_IRD,
        ord: param.initiator_depth.into(),
        rtr,
        mark: true,
        within_host,
    }
}

/// `FERROCE_IWARP_CRC=on`: this end asks for CRCs. If its peer asks, there are some in any case.
fn wants_crc() -> bool {
    static WANTS: OnceLock<bool> = OnceLock::new();
    *WANTS.get_or_init(|| {
        ferroce_os::environment::variable("FERROCE_IWARP_CRC").is_some_and(|value| value == "on")
    })
}
