//! The service: its lock, its clockwork, and what comes in.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ferroce_os::{random, unix::Dgram};
use ferroce_proto::cm::{Agent, Config, Output, Random};
use ferroce_proto::ids::Gid;
use ferroce_proto::mad::{CmMad, CommId, Mad};
use ferroce_proto::time::Time;

use super::channel::QueuedEvent;
use super::host::{Host, Via};
use super::iwarp::Iwarp;
use super::lookout::Lookout;
use super::neighbour::Resolving;
use super::pace::Pace;
use super::ports::{PortKey, Ports};
use super::speaker::Between;
use super::state::IdState;
use super::waiting::Blocked;
use crate::Error;
use crate::base::denials::{Asker, Denial};
use crate::base::sync::lock;
use crate::base::time_share::TimeShare;

/// DREQs per connection to another host when the process exits, since nobody is left to repeat one
/// that is lost.
const FAREWELLS: u32 = 3;

/// Requests that may wait for an answer of the program at once, over all listeners.
const MAX_HALF_OPEN: usize = 16384;
/// Requests read from a port at once; the host calls again if more wait.
const READ_BATCH: usize = 64;
/// Divisor of the part of the time that MADs of other hosts get that name no conversation. A
/// request takes some 20 us, so that is some 3,000 a second.
const STRAYS_PART: u32 = 16;
/// Such time that is saved up, at most: some 1,000 requests at once.
const STRAYS_SAVED: Duration = Duration::from_millis(20);
/// Divisor of the part of the time for MADs of other hosts that name a conversation of this
/// process. Connections that are made and ended one after the other need it. It bounds a peer that
/// repeats what it has said.
const TAKEN_PART: u32 = 8;
/// Such time that is saved up, at most.
const TAKEN_SAVED: Duration = Duration::from_millis(20);
/// What one counts at most: this thread may lose its processor meanwhile.
const STRAY_MOST: Duration = Duration::from_micros(100);
/// No deadline.
const NEVER: u64 = u64::MAX;

/// How many messages were read from the socket of a port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) all: usize,
    /// Of these, processes of other users.
    pub(crate) of_others: usize,
}

/// The connection manager of this process. Cheap to clone; all clones are the same service.
#[derive(Clone, Debug)]
pub(crate) struct CmService(pub(super) Arc<ServiceInner>);

#[derive(Debug)]
pub(super) struct ServiceInner {
    pub(super) host: Weak<dyn Host>,
    /// Sends to the sockets that claim ports.
    sender: Dgram,
    state: Mutex<ServiceState>,
    /// The state's deadline, for a look without the lock.
    deadline: AtomicU64,
    /// The time for MADs from other hosts that name no conversation.
    strays: Mutex<TimeShare>,
    /// The time for those that name a conversation.
    taken: Mutex<TimeShare>,
    /// Identifiers whose connections over TCP have ended since the last step.
    pub(super) ended: Mutex<Vec<u64>>,
}

#[derive(Debug)]
pub(super) struct ServiceState {
    pub(super) agent: Agent,
    pub(super) ids: BTreeMap<u64, IdState>,
    /// Connect requests that the program has been told of.
    pub(super) requests: u64,
    pub(super) by_conversation: BTreeMap<CommId, u64>,
    pub(super) ports: Ports,
    /// MADs to ourselves.
    pub(super) inbox: VecDeque<(Gid, Gid, CmMad)>,
    /// Processes that turned out to be gone while we sent.
    pub(super) gone: Vec<u16>,
    pub(super) blocked: Blocked,
    pub(super) lookout: Lookout,
    pub(super) pace: Pace,
    pub(super) resolving: Resolving,
    pub(super) iwarp: Iwarp,
    next_key: u64,
}

/// The service's state, locked, with what a step needs besides.
pub(super) struct Work<'a> {
    pub(super) state: &'a mut ServiceState,
    pub(super) host: &'a dyn Host,
    pub(super) service: &'a CmService,
    pub(super) sender: &'a Dgram,
    pub(super) now: Time,
    /// Events to drop after unlocking: the last reference to an identifier may go with them, which
    /// calls the service.
    pub(super) trash: Vec<QueuedEvent>,
}

impl CmService {
    /// A service in the process that `host` is the engine of.
    ///
    /// # Errors
    /// Out of descriptors.
    pub(crate) fn new(host: Weak<dyn Host>, slot: u16) -> Result<Self, Error> {
        let sender =
            Dgram::unbound().map_err(|e| Error::system("socket of the connection manager", &e))?;
        let config = Config {
            id_prefix: u32::from(slot) << 22,
            random: Random::new(random::u64),
            max_half_open: MAX_HALF_OPEN,
        };
        let state = ServiceState {
            agent: Agent::new(config),
            ids: BTreeMap::new(),
            by_conversation: BTreeMap::new(),
            ports: Ports::new(),
            inbox: VecDeque::new(),
            gone: Vec::new(),
            blocked: Blocked::default(),
            lookout: Lookout::default(),
            pace: Pace::default(),
            resolving: Resolving::default(),
            iwarp: Iwarp::default(),
            requests: 0,
            next_key: 1,
        };
        Ok(Self(Arc::new(ServiceInner {
            host,
            sender,
            state: Mutex::new(state),
            deadline: AtomicU64::new(NEVER),
            strays: Mutex::new(TimeShare::new(STRAYS_PART, STRAYS_SAVED)),
            taken: Mutex::new(TimeShare::new(TAKEN_PART, TAKEN_SAVED)),
            ended: Mutex::default(),
        })))
    }

    /// A MAD from `from` to our address `to`. Returns whether it was taken, within the part of the
    /// time that MADs of other hosts get.
    pub(crate) fn on_mad(&self, from: Gid, to: Gid, mad: &Mad, via: Via) -> bool {
        let mad = match CmMad::parse(mad) {
            Ok(mad) => mad,
            Err(error) => {
                tracing::debug!(target: "ferroce::cm", ?from, %error, "MAD dropped");
                self.count_malformed(via);
                return false;
            }
        };
        tracing::trace!(target: "ferroce::cm", ?from, ?to, ?via, name = mad.message.name(), "MAD in");
        match via {
            Via::Wire => self.on_wire(from, to, &mad),
            Via::Local(speaker) => {
                self.step(|work| {
                    let between = Between { from, to };
                    work.hears(speaker, between, &mad) && {
                        let asker = speaker.user(work.host).relation.into();
                        work.give(between, &mad, asker)
                    }
                }) == Some(true)
            }
        }
    }

    fn count_malformed(&self, via: Via) {
        let Some(host) = self.0.host.upgrade() else {
            return;
        };
        let asker = match via {
            Via::Wire => Asker::Host,
            Via::Local(speaker) => speaker.user(&*host).relation.into(),
        };
        host.count_denied(asker, Denial::Malformed);
    }

    /// A MAD from another host. It costs its sender nothing, so there is a bounded part of the time
    /// for those that name no conversation, and a longer one for those that do. One that is dropped
    /// is sent again. Returns whether it was wanted, within its part: a conversation took it, or it
    /// has become a connect request for the program.
    fn on_wire(&self, from: Gid, to: Gid, mad: &CmMad) -> bool {
        let Some(host) = self.0.host.upgrade() else {
            return false;
        };
        let begun = host.now();
        let is_stray = mad.message.remote_comm_id().is_none();
        if is_stray && !lock(&self.0.strays).is_left(begun) {
            host.count_denied(Asker::Host, Denial::Quota);
            return false;
        }
        let taken = self.step(|work| {
            let before = work.state.requests;
            let knows = work.on_wire(from, to, mad);
            work.pump();
            knows || work.state.requests > before
        }) == Some(true);
        let now = host.now();
        let took = now.since(begun).min(STRAY_MOST);
        if is_stray {
            lock(&self.0.strays).spend(took, now);
            return taken;
        }
        let mut share = lock(&self.0.taken);
        let wanted = taken && share.is_left(now);
        if wanted {
            share.spend(took, now);
        }
        wanted
    }

    /// A descriptor that the host watches for us is readable. Before a request of another process
    /// of this host is taken, `meet` gets the slot, and whether the process is another user's: if
    /// the one that had it before is gone, [`on_process_gone`](Self::on_process_gone) has to be
    /// called first.
    pub(crate) fn on_readable(&self, token: u64, meet: &mut dyn FnMut(u16, bool)) -> Heard {
        let mut heard = Heard::default();
        let Some(key) = PortKey::from_token(token) else {
            return heard;
        };
        self.step(|work| work.state.ports.answer_bell(key));
        for _ in 0..READ_BATCH {
            let Some(next) = self.step(|work| work.next_request(key)).flatten() else {
                break;
            };
            heard.all += 1;
            heard.of_others += usize::from(next.is_foreign);
            let Some(request) = next.request else {
                continue;
            };
            if let Some(slot) = request.asker {
                meet(slot, next.is_foreign);
            }
            self.step(|work| work.take_in(request.from, request.to, &request.mad));
        }
        heard
    }

    /// The socket that claims a port, by the token that the host watches it with.
    pub(crate) fn port_fd(&self, token: u64) -> Option<RawFd> {
        let key = PortKey::from_token(token)?;
        self.look(|state| state.ports.socket(key).map(AsRawFd::as_raw_fd))
    }

    /// When [`on_deadline`](Self::on_deadline) wants to be called.
    pub(crate) fn deadline(&self) -> Option<Time> {
        Some(self.0.deadline.load(Ordering::Relaxed))
            .filter(|&at| at != NEVER)
            .map(Time)
    }

    /// Time has come.
    pub(crate) fn on_deadline(&self, now: Time) {
        self.step(|work| {
            work.now = now;
            work.state.agent.on_deadline(now);
            work.retry_blocked();
            work.look_out();
            work.send_waiting();
            work.look_at_links();
            work.end_late_setups();
        });
    }

    /// The process with this slot has ended.
    pub(crate) fn on_process_gone(&self, slot: u16) {
        self.step(|work| work.on_slot_gone(slot));
    }

    /// Tells every peer that the process exits, as the kernel does for programs that end with
    /// connections open.
    pub(crate) fn end(&self) {
        let ids = self.look(|state| -> Vec<_> {
            state
                .ids
                .values()
                .filter_map(|id| id.handle.upgrade())
                .collect()
        });
        for id in ids {
            id.destroy();
        }
        self.step(|work| {
            let host = work.host;
            for _ in 1..FAREWELLS {
                work.state
                    .agent
                    .repeat_dreqs(|peer| !host.is_local(peer.ip()));
            }
            work.pump();
            work.send_all_waiting();
        });
    }

    /// Runs `f` with the state locked, then passes on what the state machines put out. `None` if
    /// the engine is gone.
    pub(super) fn step<R>(&self, f: impl FnOnce(&mut Work<'_>) -> R) -> Option<R> {
        let host = self.0.host.upgrade()?;
        let mut state = lock(&self.0.state);
        let mut work = Work {
            state: &mut state,
            now: host.now(),
            host: &*host,
            service: self,
            sender: &self.0.sender,
            trash: Vec::new(),
        };
        work.on_streams_ended(std::mem::take(&mut lock(&self.0.ended)));
        let result = f(&mut work);
        work.pump();
        let trash = std::mem::take(&mut work.trash);
        let deadline = state.deadline().map_or(NEVER, |at| at.0);
        let before = self.0.deadline.swap(deadline, Ordering::Relaxed);
        let wants_another = !lock(&self.0.ended).is_empty();
        if wants_another {
            // A connection has ended since this step began, and the thread that says so may have
            // read the deadline of this step in place of its own.
            self.0.wants_step();
        }
        drop(state);
        if wants_another || deadline < before {
            host.reschedule();
        }
        drop(trash);
        Some(result)
    }

    /// [`step`](Self::step) for a program's call.
    pub(super) fn call<R>(
        &self,
        f: impl FnOnce(&mut Work<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let gone = || {
            Err(Error::new(
                libc::ENODEV,
                "the software device of this process is gone (fork?)",
            ))
        };
        self.step(f).unwrap_or_else(gone)
    }

    /// Reads the state.
    pub(super) fn look<R>(&self, f: impl FnOnce(&ServiceState) -> R) -> R {
        f(&lock(&self.0.state))
    }
}

impl ServiceInner {
    /// There is something for [`CmService::on_deadline`] at once.
    pub(super) fn wants_step(&self) {
        self.deadline.store(0, Ordering::Relaxed);
    }
}

impl ServiceState {
    pub(super) fn new_key(&mut self) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        key
    }

    pub(super) fn id(&self, key: u64) -> Result<&IdState, Error> {
        self.ids.get(&key).ok_or_else(destroyed)
    }

    pub(super) fn id_mut(&mut self, key: u64) -> Result<&mut IdState, Error> {
        self.ids.get_mut(&key).ok_or_else(destroyed)
    }

    fn deadline(&self) -> Option<Time> {
        [
            self.agent.deadline(),
            self.blocked.deadline(),
            self.lookout.deadline(),
            self.pace.deadline(),
            self.resolving.deadline(),
            self.iwarp.deadline(),
        ]
        .into_iter()
        .fold(None, Time::sooner)
    }
}

fn destroyed() -> Error {
    Error::invalid("the identifier is destroyed")
}

impl Work<'_> {
    /// Passes on what the agent put out, until it and our own inbox are empty.
    pub(super) fn pump(&mut self) {
        loop {
            while let Some(output) = self.state.agent.poll() {
                match output {
                    Output::Send(outgoing) => self.route(&outgoing),
                    Output::Event(event) => self.on_event(event),
                }
            }
            if let Some((from, to, mad)) = self.state.inbox.pop_front() {
                self.take_in(from, to, &mad);
            } else if let Some(slot) = self.state.gone.pop() {
                self.on_slot_gone(slot);
            } else {
                return;
            }
        }
    }

    fn on_slot_gone(&mut self, slot: u16) {
        tracing::debug!(target: "ferroce::cm", slot, "process gone");
        let host = self.host;
        let gone =
            |gid: Gid, id: CommId| (id.is_none() || slot_of(id) == slot) && host.is_local(gid.ip());
        self.state.agent.on_process_gone(self.now, gone);
    }
}

/// The process that a communication id belongs to.
pub(super) fn slot_of(id: CommId) -> u16 {
    u16::try_from(id.0 >> 22).expect("invariant: 10 bits remain")
}
