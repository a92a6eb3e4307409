//! Which process a MAD is for, and the ways to it.

use std::io;

use ferroce_os::unix::{Credentials, Dgram, Record, Relation};
use ferroce_proto::cm::{Ignored, MadPath, OutgoingMad, Recipient};
use ferroce_proto::ids::Gid;
use ferroce_proto::mad::{CmMad, CommId, Mad, Message, ServiceId};

use super::PortSpace;
use super::ports::PortKey;
use super::request::RequestRefusal;
use super::service::{Work, slot_of};
use super::speaker::{Between, Speaker};
use super::waiting::Whose;
use crate::base::addressing::Addressing;
use crate::base::denials::{Asker, Denial};

/// What goes to the socket that claims a port: source GID, destination GID, MAD.
const FRAME: usize = 16 + 16 + 256;
/// What has come to a port by way of another process of this host.
#[derive(Debug)]
pub(super) struct Forwarded {
    pub(super) from: Gid,
    pub(super) to: Gid,
    pub(super) mad: CmMad,
    /// The slot of the process that it is from, if it is from this host.
    pub(super) asker: Option<u16>,
}

/// A message that came to a port.
#[derive(Debug)]
pub(super) struct Arrived {
    /// Another user's process has sent it.
    pub(super) is_foreign: bool,
    /// `None`: it makes no sense, or its sender may not say it.
    pub(super) request: Option<Forwarded>,
}

/// How far a request to a port of this host came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Done,
    /// The port's owner must first read what it has.
    Full(PortKey),
    /// Nobody has the port; `None`: the service has none, or its owner leaves this user out.
    Unoffered(Option<PortKey>),
}

impl Delivery {
    /// The port that a further attempt would fail at too.
    pub(super) fn port(self) -> Option<PortKey> {
        match self {
            Self::Done => None,
            Self::Full(port) => Some(port),
            Self::Unoffered(port) => port,
        }
    }
}

impl Work<'_> {
    /// Sends a MAD of ours.
    pub(super) fn route(&mut self, outgoing: &OutgoingMad) {
        let (path, mad) = (outgoing.path, &outgoing.mad);
        tracing::trace!(target: "ferroce::cm", to = ?path.remote, name = mad.message.name(), "MAD out");
        if !self.host.is_local(path.remote.ip()) {
            self.send_wire(path, mad);
            return;
        }
        let (from, to) = (path.local, path.remote);
        match outgoing.to {
            Recipient::Service(service) => match self.deliver(service, from, to, mad) {
                Delivery::Done => self.note_delivery(service, mad),
                Delivery::Full(port) => {
                    self.wait(port, (from, to, mad), Whose::Own);
                }
                Delivery::Unoffered(port) => self.wait_or_refuse(port, (from, to, mad), Whose::Own),
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

    /// A request of ours is where it is to go: if that is another process, somebody must see
    /// whether it lives to answer.
    pub(super) fn note_delivery(&mut self, service: ServiceId, mad: &CmMad) {
        if let Some(port) = port_of(service) {
            self.look_after(port, mad);
        }
    }

    /// A MAD from another host, which any process of this namespace may have received. Returns
    /// whether a conversation of this process took it.
    pub(super) fn on_wire(&mut self, from: Gid, to: Gid, mad: &CmMad) -> bool {
        // Nobody outside has our addresses; our answer must not go to a process of this host.
        if self.host.is_local(from.ip()) || from.is_multicast() || from.ip().is_unspecified() {
            tracing::debug!(target: "ferroce::cm", ?from, "MAD from an impossible source dropped");
            self.host.count_denied(Asker::Host, Denial::Origin);
            return false;
        }
        if let Some((service, _)) = self.new_request(&mad.message, from) {
            self.on_wire_request(service, from, to, mad);
            return false;
        }
        match &mad.message {
            Message::Rej(rej)
                if rej.remote_comm_id.is_none() && !self.state.agent.knows(&mad.message) =>
            {
                // The sender never learnt which of us it talked to. A process that has no link to
                // this one hears nothing, and gives the connection up by its own timer.
                self.host.spread_mad(from, to, &mad.emit());
                false
            }
            message => {
                let owner = message.remote_comm_id().map_or(0, slot_of);
                let elsewhere = owner != 0 && owner != self.host.slot();
                if elsewhere && self.host.pass_on_mad(owner, from, to, &mad.emit()) {
                    return false;
                }
                let knows = self.state.agent.knows(message);
                self.host.admits(from.ip(), None)
                    && self.give(Between { from, to }, mad, Asker::Host)
                    && knows
            }
        }
    }

    fn on_wire_request(&mut self, service: ServiceId, from: Gid, to: Gid, mad: &CmMad) {
        let is_own = port_of(service).is_none_or(|port| self.state.ports.is_claimed(port));
        if is_own && !self.host.admits(from.ip(), None) {
            return;
        }
        match self.deliver(service, from, to, mad) {
            // Its sender will ask again.
            Delivery::Done | Delivery::Full(_) => {}
            Delivery::Unoffered(port) => self.wait_or_refuse(port, (from, to, mad), Whose::Wire),
        }
    }

    /// Hands a MAD to the process that has claimed the service's port.
    pub(super) fn deliver(
        &mut self,
        service: ServiceId,
        from: Gid,
        to: Gid,
        mad: &CmMad,
    ) -> Delivery {
        let Some(port) = port_of(service) else {
            return Delivery::Unoffered(None);
        };
        if self.state.ports.is_claimed(port) {
            self.state.inbox.push_back((from, to, mad.clone()));
            return Delivery::Done;
        }
        let name = port.name(self.host.names());
        if self.is_left_out(port, &name) {
            return Delivery::Unoffered(None);
        }
        let message = frame(from, to, &mad.emit());
        let low = &self.state.ports.low;
        let sent = if low.has(port.port) {
            low.send(&name, &message)
        } else {
            self.sender.send_to(&name, &message)
        };
        match sent {
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

    /// The next message to a port: a request of another process of this host, or forwarded by one.
    pub(super) fn next_request(&self, key: PortKey) -> Option<Arrived> {
        let received = receive(self.state.ports.socket(key)?).inspect_err(|error| {
            tracing::warn!(target: "ferroce::cm", %error, ?key, "claim of a port unreadable");
        });
        let PortMessage { sender, said } = received.ok()??;
        let speaker = sender.map(Speaker::Port);
        let relation = speaker.map_or(Relation::Foreign, |s| s.user(self.host).relation);
        let is_foreign = relation == Relation::Foreign;
        let Some((between, mad)) = said else {
            tracing::debug!(target: "ferroce::cm", ?key, "malformed request dropped");
            self.host.count_denied(relation.into(), Denial::Malformed);
            return Some(Arrived {
                is_foreign,
                request: None,
            });
        };
        let heard = speaker.is_some_and(|speaker| self.hears(speaker, between, &mad));
        let request = heard.then(|| Forwarded {
            from: between.from,
            to: between.to,
            asker: self.asker(between.from, &mad.message),
            mad,
        });
        Some(Arrived {
            is_foreign,
            request,
        })
    }

    /// Gives a MAD to the conversations, and counts one that they ignore. If it brought one of them
    /// on, others may go out. Returns whether they took it.
    pub(super) fn give(
        &mut self,
        Between { from, to }: Between,
        mad: &CmMad,
        asker: Asker,
    ) -> bool {
        let id = mad.message.remote_comm_id();
        let phase = |work: &Self| id.and_then(|id| work.state.agent.phase(id));
        let before = phase(self);
        let Err(ignored) = self.state.agent.on_mad(self.now, from, to, mad) else {
            if phase(self) != before && !self.host.is_local(from.ip()) {
                self.on_progress(&mad.message);
            }
            return true;
        };
        let name = mad.message.name();
        tracing::debug!(target: "ferroce::cm", ?from, name, ?ignored, "MAD ignored");
        let why = match ignored {
            Ignored::Address => Denial::Origin,
            Ignored::Transaction => Denial::Transaction,
            Ignored::Full => Denial::Quota,
        };
        self.host.count_denied(asker, why);
        false
    }

    /// As what the sender of a request is counted that begins with an id.
    pub(super) fn party(&self, from: Gid, id: Option<CommId>) -> Asker {
        if !self.host.is_local(from.ip()) {
            return Asker::Host;
        }
        let slot = id.map(slot_of).filter(|slot| *slot != self.host.slot());
        slot.map_or(Asker::OwnUser, |slot| self.host.asker(slot))
    }

    /// Counts a request that claims addresses that its sender cannot have.
    pub(super) fn count_forged(&self, refusal: RequestRefusal, from: Gid, id: CommId) {
        if let RequestRefusal::Forged(_) = refusal {
            let party = self.party(from, Some(id));
            self.host.count_denied(party, Denial::Origin);
        }
    }

    /// Whether a process of this host may say what it says.
    pub(super) fn hears(&self, speaker: Speaker, between: Between, mad: &CmMad) -> bool {
        let may = speaker.may_say(self.host, between, &mad.message);
        let from = between.from;
        if !may {
            let name = mad.message.name();
            tracing::debug!(target: "ferroce::cm", ?speaker, ?from, name, "MAD that its sender may not send is dropped");
            let asker = speaker.user(self.host).relation.into();
            self.host.count_denied(asker, Denial::Origin);
        }
        may && self
            .host
            .admits(from.ip(), Some(speaker.user(self.host).relation))
    }

    /// The slot that the sender of a request gives, if it is another process of this host.
    fn asker(&self, from: Gid, message: &Message) -> Option<u16> {
        let slot = slot_of(message.asking_comm_id()?);
        (slot != self.host.slot() && self.host.is_local(from.ip())).then_some(slot)
    }

    pub(super) fn send_wire(&mut self, path: MadPath, mad: &CmMad) {
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
            flow_label: 0,
            ifindex: owner.map_or(0, |d| d.ifindex()),
        };
        self.send_paced(addressing, &mad.emit());
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

/// A message that came to the socket of a port.
struct PortMessage {
    /// `None`: the kernel did not say.
    sender: Option<Credentials>,
    /// `None`: it makes no sense.
    said: Option<(Between, CmMad)>,
}

/// The next message; `None` if there is none.
fn receive(socket: &Dgram) -> io::Result<Option<PortMessage>> {
    let mut room = [0; FRAME];
    Ok(match socket.recv_from(&mut room)? {
        (Record::Nothing, _) => None,
        (Record::Whole(FRAME), sender) => Some(PortMessage {
            sender,
            said: unframe(&room),
        }),
        (_, sender) => Some(PortMessage { sender, said: None }),
    })
}

fn unframe(frame: &[u8; FRAME]) -> Option<(Between, CmMad)> {
    let (from, rest) = frame.split_first_chunk()?;
    let (to, mad) = rest.split_first_chunk()?;
    let between = Between {
        from: Gid(*from),
        to: Gid(*to),
    };
    Some((between, CmMad::parse(mad.first_chunk()?).ok()?))
}
