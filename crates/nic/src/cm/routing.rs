//! Which process a MAD is for, and the ways to it.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use ferroce_os::unix::{self, Dgram, Record};
use ferroce_proto::cm::{MadPath, Outgoing, Recipient, answer_unoffered};
use ferroce_proto::ids::Gid;
use ferroce_proto::mad::{CmMad, Mad, Message, ServiceId};
use ferroce_proto::time::Time;

use super::PortSpace;
use super::ports::PortKey;
use super::service::{Work, slot_of};
use crate::link::Addressing;

/// What goes to the socket that claims a port: source GID, destination GID, MAD.
const FRAME: usize = 16 + 16 + 256;
/// Frames read from a port at once; the host calls again if more wait.
const READ_BATCH: usize = 64;
/// A list of processes is good for this long.
const SLOTS_FRESH: Duration = Duration::from_secs(1);
/// Prefix of the names that processes claim their slots by.
const SLOT_NAMES: &str = "ferroce/slot/";

/// Requests that wait at this host: those to a port whose owner has not yet read the ones before, because the queue of a datagram
/// socket is short, and those to a port that nobody has yet.
///
/// The latter wait because programs agree over a first connection to make a second one, and then one end connects while the other
/// is still on its way to `rdma_listen`. Between machines with adapters, address resolution gives it the time; here a request would
/// overtake it, and what the program sees would depend on the scheduler.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    waiting: VecDeque<Waiting>,
    retry: Option<(Time, Duration)>,
}

#[derive(Debug)]
struct Waiting {
    port: PortKey,
    from: Gid,
    to: Gid,
    mad: CmMad,
    since: Time,
    /// It came from another host, and so does the answer go there.
    from_wire: bool,
}

impl Blocked {
    const FIRST_RETRY: Duration = Duration::from_micros(300);
    const LAST_RETRY: Duration = Duration::from_millis(50);
    /// The conversation sends its request again about now.
    const PATIENCE: Duration = Duration::from_secs(4);
    const LIMIT: usize = 65536;
    /// How long a request waits for somebody to offer its service.
    const GRACE: Duration = Duration::from_millis(250);
    /// Requests from other hosts that may do so at once.
    const WIRE_LIMIT: usize = 256;

    pub(super) fn deadline(&self) -> Option<Time> {
        self.retry.map(|(at, _)| at)
    }

    /// Returns whether there is room for it.
    fn push(&mut self, now: Time, waiting: Waiting) -> bool {
        let limit = if waiting.from_wire {
            Self::WIRE_LIMIT
        } else {
            Self::LIMIT
        };
        if self.waiting.len() >= limit {
            return false;
        }
        self.waiting.push_back(waiting);
        self.retry
            .get_or_insert((now + Self::FIRST_RETRY, Self::FIRST_RETRY));
        true
    }
}

/// The processes of this network namespace, as the kernel last listed them.
#[derive(Debug, Default)]
pub(super) struct Slots {
    list: Vec<u16>,
    read_at: Option<Time>,
}

impl Slots {
    fn list(&mut self, now: Time) -> &[u16] {
        if self.read_at.is_none_or(|at| now.since(at) > SLOTS_FRESH) {
            let names = unix::abstract_names(SLOT_NAMES).unwrap_or_default();
            self.list = names
                .iter()
                .filter_map(|n| n.strip_prefix(SLOT_NAMES)?.parse().ok())
                .collect();
            self.read_at = Some(now);
        }
        &self.list
    }
}

/// A request on its way: source, destination, MAD.
type Request<'a> = (Gid, Gid, &'a CmMad);

/// How far a request to a port of this host came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    Done,
    /// The port's owner must first read what it has.
    Full(PortKey),
    /// Nobody has the port, or the service is none that has one.
    Unoffered(Option<PortKey>),
}

impl Delivery {
    /// The port that a further attempt would fail at too.
    fn port(self) -> Option<PortKey> {
        match self {
            Self::Done => None,
            Self::Full(port) => Some(port),
            Self::Unoffered(port) => port,
        }
    }
}

impl Work<'_> {
    /// Sends a MAD of ours.
    pub(super) fn route(&mut self, outgoing: &Outgoing) {
        let (path, mad) = (outgoing.path, &outgoing.mad);
        tracing::trace!(target: "ferroce::cm", to = ?path.remote, name = mad.message.name(), "MAD out");
        if !self.host.is_local(path.remote.ip()) {
            self.send_wire(path, mad);
            return;
        }
        let (from, to) = (path.local, path.remote);
        match outgoing.to {
            Recipient::Service(service) => match self.deliver(service, from, to, mad) {
                Delivery::Done => {}
                Delivery::Full(port) => {
                    self.wait(port, (from, to, mad), false);
                }
                Delivery::Unoffered(port) => self.wait_or_refuse(port, (from, to, mad), false),
            },
            Recipient::Conversation(id) => {
                let slot = slot_of(id);
                if slot == self.host.slot() {
                    self.state.inbox.push_back((from, to, mad.clone()));
                } else if slot != 0 && !self.host.send_mad_local(slot, from, to, &mad.emit()) {
                    self.state.gone.push(slot);
                }
            }
        }
    }

    /// A MAD from another host, which any process of this namespace may have received.
    pub(super) fn on_wire(&mut self, from: Gid, to: Gid, mad: &CmMad) {
        // Nobody outside has our addresses; our answer must not go to a process of this host.
        if self.host.is_local(from.ip()) || from.is_multicast() || from.ip().is_unspecified() {
            tracing::debug!(target: "ferroce::cm", ?from, "MAD from an impossible source dropped");
            return;
        }
        match &mad.message {
            Message::Req(req) if !self.state.agent.knows_request(req) => {
                self.on_wire_request(req.service_id, from, to, mad);
            }
            Message::SidrReq(request) => self.on_wire_request(request.service_id, from, to, mad),
            Message::Rej(rej)
                if rej.remote_comm_id.is_none() && !self.state.agent.knows_rejected(rej) =>
            {
                self.ask_all(from, to, mad);
            }
            message => {
                let owner = message.remote_comm_id().map_or(0, slot_of);
                let elsewhere = owner != 0 && owner != self.host.slot();
                if !elsewhere || !self.host.send_mad_local(owner, from, to, &mad.emit()) {
                    self.state.agent.on_mad(self.now, from, to, mad);
                }
            }
        }
    }

    fn on_wire_request(&mut self, service: ServiceId, from: Gid, to: Gid, mad: &CmMad) {
        match self.deliver(service, from, to, mad) {
            // Its sender will ask again.
            Delivery::Done | Delivery::Full(_) => {}
            Delivery::Unoffered(port) => self.wait_or_refuse(port, (from, to, mad), true),
        }
    }

    /// Keeps a request for later. Returns whether there is room for it.
    fn wait(&mut self, port: PortKey, (from, to, mad): Request<'_>, from_wire: bool) -> bool {
        let waiting = Waiting {
            port,
            from,
            to,
            mad: mad.clone(),
            since: self.now,
            from_wire,
        };
        self.state.blocked.push(self.now, waiting)
    }

    /// Nobody offers a service: somebody may be about to.
    fn wait_or_refuse(&mut self, port: Option<PortKey>, request: Request<'_>, from_wire: bool) {
        let waits = port.is_some_and(|port| self.wait(port, request, from_wire));
        if !waits {
            self.refuse(request, from_wire);
        }
    }

    /// Answers a request in the place of whoever should offer the service.
    fn refuse(&mut self, (from, to, mad): Request<'_>, from_wire: bool) {
        let Some(answer) = answer_unoffered(mad) else {
            return;
        };
        if from_wire {
            self.send_wire(MadPath::reply(from, to), &answer);
        } else {
            self.state.inbox.push_back((to, from, answer));
        }
    }

    /// The sender of a rejection never learnt which of us it talked to, so all get it.
    fn ask_all(&mut self, from: Gid, to: Gid, mad: &CmMad) {
        let bytes = mad.emit();
        for &slot in self.state.slots.list(self.now) {
            if slot != self.host.slot() {
                let _gone_meanwhile = self.host.send_mad_local(slot, from, to, &bytes);
            }
        }
    }

    /// Hands a MAD to the process that has claimed the service's port.
    fn deliver(&mut self, service: ServiceId, from: Gid, to: Gid, mad: &CmMad) -> Delivery {
        let Some(port) = port_of(service) else {
            return Delivery::Unoffered(None);
        };
        if self.state.ports.is_claimed(port) {
            self.state.inbox.push_back((from, to, mad.clone()));
            return Delivery::Done;
        }
        match self
            .sender
            .send_to(&port.name(), &frame(from, to, &mad.emit()))
        {
            Ok(()) => Delivery::Done,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Delivery::Full(port),
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::ECONNREFUSED | libc::EPROTOTYPE)
                ) =>
            {
                Delivery::Unoffered(Some(port))
            }
            Err(error) => {
                tracing::warn!(target: "ferroce::cm", %error, ?port, "request not delivered");
                Delivery::Done
            }
        }
    }

    /// Tries the requests again that wait. One failed attempt per port and round.
    pub(super) fn retry_blocked(&mut self) {
        let Some((at, interval)) = self.state.blocked.retry else {
            return;
        };
        if self.now < at {
            return;
        }
        let waiting = std::mem::take(&mut self.state.blocked.waiting);
        let before = waiting.len();
        let mut known: Vec<Delivery> = Vec::new();
        for w in waiting {
            let waited = self.now.since(w.since);
            if waited > Blocked::PATIENCE {
                continue;
            }
            let fails = known.iter().find(|d| d.port() == Some(w.port)).copied();
            let delivery = fails.unwrap_or_else(|| {
                let service = ServiceId::new(w.port.ps as u16, w.port.port);
                self.deliver(service, w.from, w.to, &w.mad)
            });
            if fails.is_none() {
                known.push(delivery);
            }
            match delivery {
                Delivery::Done => {}
                Delivery::Unoffered(_) if waited > Blocked::GRACE => {
                    self.refuse((w.from, w.to, &w.mad), w.from_wire);
                }
                Delivery::Unoffered(_) | Delivery::Full(_) => {
                    self.state.blocked.waiting.push_back(w);
                }
            }
        }
        let left = self.state.blocked.waiting.len();
        let next = if left < before {
            Blocked::FIRST_RETRY
        } else {
            (2 * interval).min(Blocked::LAST_RETRY)
        };
        self.state.blocked.retry = (left > 0).then(|| (self.now + next, next));
    }

    /// Requests from other processes of this host, or forwarded by them.
    pub(super) fn on_port_readable(&mut self, key: PortKey) {
        for _ in 0..READ_BATCH {
            let Some(socket) = self.state.ports.socket(key) else {
                return;
            };
            match receive(socket) {
                Ok(Some(Some((from, to, mad)))) => {
                    self.state.agent.on_mad(self.now, from, to, &mad);
                    self.pump();
                }
                Ok(Some(None)) => {
                    tracing::debug!(target: "ferroce::cm", ?key, "malformed request dropped")
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(target: "ferroce::cm", %error, ?key, "claim of a port unreadable");
                    return;
                }
            }
        }
    }

    fn send_wire(&self, path: MadPath, mad: &CmMad) {
        let owner = self
            .host
            .devices()
            .into_iter()
            .find(|d| d.has_address(path.local.ip()));
        let addressing = Addressing {
            src: path.local,
            dst: path.remote,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
            ifindex: owner.map_or(0, |d| d.ifindex()),
        };
        self.host.send_mad_wire(addressing, &mad.emit());
    }
}

/// The port behind a service id, `None` if it is none that Ferroce knows.
pub(super) fn port_of(service: ServiceId) -> Option<PortKey> {
    let (ps, port) = service.port()?;
    Some(PortKey {
        ps: PortSpace::from_code(ps)?,
        port,
    })
}

fn frame(from: Gid, to: Gid, mad: &Mad) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..16].copy_from_slice(&from.0);
    frame[16..32].copy_from_slice(&to.0);
    frame[32..].copy_from_slice(mad);
    frame
}

/// The next frame: `None` if there is none, `Some(None)` for one that makes no sense.
fn receive(socket: &Dgram) -> io::Result<Option<Option<(Gid, Gid, CmMad)>>> {
    let mut room = [0; FRAME];
    Ok(match socket.recv(&mut room)? {
        Record::Nothing => None,
        Record::Whole(FRAME) => Some(unframe(&room)),
        _ => Some(None),
    })
}

fn unframe(frame: &[u8; FRAME]) -> Option<(Gid, Gid, CmMad)> {
    let (from, rest) = frame.split_first_chunk()?;
    let (to, mad) = rest.split_first_chunk()?;
    Some((Gid(*from), Gid(*to), CmMad::parse(mad.first_chunk()?).ok()?))
}
