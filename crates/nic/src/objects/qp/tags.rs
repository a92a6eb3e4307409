//! Tags of a queue pair's packets on the wire, where a key is set: see
//! `docs/design/packet-authentication.md`.

use std::time::Duration;

use ferroce_proto::auth::handshake::{Asking, AuthMessage, Nonces};
use ferroce_proto::auth::{Datagrams, End, Nonce, Secret, SequencePosition, TaggedConnection};
use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{AttrMask, QpAttr, QpState, QpType};
use smallvec::SmallVec;

use super::Qp;
use super::locked::Locked;
use super::modify::{Found, Stations};
use super::transport::Transport;
use crate::Error;
use crate::base::addressing::Addressing;
use crate::base::counters::DropReason;
use crate::base::denials::{Asker, Denial};
use crate::link::InboundRun;
use crate::link::path::{Path, Reach};
use crate::objects::services::Services;
use crate::services::auth::{Agreed, draw};
use crate::services::auth::{Auth, addresses};

/// How long a datagram waits for the nonce of its receiver, and what is behind it in the queue.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a queue pair has drawn, and the keys of its connection. Without a key there is none.
#[derive(Debug, Default)]
pub(super) struct PacketTags {
    nonces: Nonces,
    connection: Option<Box<TaggedConnection>>,
    /// What a datagram queue pair knows of others, once it has used the wire.
    datagrams: Option<Box<Datagrams>>,
    /// The receiver whose nonce is asked for, and whether a datagram waits for it.
    asking: Option<(Box<Asking>, bool)>,
}

/// Whether a datagram may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatagramAdmission {
    Now,
    /// The receiver is asked.
    Later,
    /// The receiver does not answer.
    Never,
}

impl PacketTags {
    /// Whether each packet must have a tag.
    pub(super) fn is_on(&self) -> bool {
        self.connection.is_some()
    }

    /// Puts a tag behind the packet that begins at `start`, if each must have one.
    #[inline]
    pub(super) fn add(
        &mut self,
        transport: &Transport,
        addressing: &Addressing,
        bytes: &mut Vec<u8>,
        start: usize,
    ) {
        if let Some(connection) = &mut self.connection {
            connection.add_tag(&addresses(addressing), position(transport), bytes, start);
        } else if let Some(datagrams) = &mut self.datagrams {
            datagrams.add_tag(&addresses(addressing), bytes, start);
        }
    }

    /// The packets of a run whose tags are right.
    fn take<'a>(
        &mut self,
        transport: &Transport,
        secret: &Secret,
        own: Qpn,
        run: &InboundRun<'a>,
    ) -> SmallVec<[&'a [u8]; 16]> {
        let addresses = addresses(&run.addressing);
        if let Transport::Ud(_) = transport {
            let datagrams = self.datagrams();
            let open = |packet: &&'a [u8]| datagrams.take_tag(secret, own, &addresses, packet);
            return run.packets.iter().filter_map(open).collect();
        }
        let at = position(transport);
        let connection = &mut self.connection;
        let open = |packet: &&'a [u8]| connection.as_mut()?.take_tag(&addresses, at, packet);
        run.packets.iter().filter_map(open).collect()
    }

    /// What a datagram queue pair knows of others.
    fn datagrams(&mut self) -> &mut Datagrams {
        let nonces = &mut self.nonces;
        let new = || Box::new(Datagrams::new(nonces.next(draw)));
        self.datagrams.get_or_insert_with(new)
    }

    /// Whether datagrams to a receiver can be tagged.
    pub(super) fn knows(&self, to: (Gid, Qpn)) -> bool {
        let known = self.datagrams.as_ref();
        known.is_some_and(|datagrams| datagrams.has(to))
    }

    /// When a receiver that a datagram waits for is asked again, or given up.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Time> {
        let (asking, waits) = self.asking.as_ref()?;
        waits.then(|| asking.deadline())
    }

    /// The connection is over.
    fn end(&mut self) {
        self.nonces.disconnect();
        self.connection = None;
        self.asking = None;
        if self.datagrams.take().is_some() {
            // Its nonce is used up.
            self.nonces = Nonces::default();
        }
    }
}

/// Where a reliable transport stands.
fn position(transport: &Transport) -> Option<SequencePosition> {
    let next = transport.next_request()?;
    let expected = transport.expected()?;
    Some(SequencePosition { next, expected })
}

impl Locked {
    /// A change of state is made: the keys follow it. `agreed`: with these nonces a connection
    /// begins.
    pub(super) fn follow_state(
        &mut self,
        services: &Services,
        attr: &QpAttr,
        after: QpState,
        agreed: Option<Agreed>,
    ) {
        let Some(auth) = services.auth() else { return };
        match (after, agreed) {
            (QpState::Reset, _) => {
                if self.tags.deadline().is_some() {
                    self.queued = false;
                }
                self.tags.end();
            }
            (_, Some(Agreed { own, peer })) => {
                // The nonce of the asks.
                let nonce = self.tags.nonces.connect(peer, draw);
                let own = End { nonce, ..own };
                let expected = self.transport.expected().map(|_| attr.rq_psn);
                let connection = TaggedConnection::new(auth.secret(), &own, &peer, expected);
                self.tags.connection = Some(Box::new(connection));
            }
            (QpState::Rts, None) => {
                if let Some(connection) = &mut self.tags.connection {
                    connection.start_sending(attr.sq_psn);
                }
            }
            _ => {}
        }
    }
}

impl Qp {
    /// Does the handshake that a move to RTR over the wire needs where a key is set.
    ///
    /// The keys are the connection's: a path that it gets later has the same ones, and the tag
    /// covers that path's addresses. So a path over the wire is refused where there was no
    /// handshake, and one within the host where there was one.
    ///
    /// # Errors
    /// EOPNOTSUPP for a path that the key does not cover, and where the caller must not wait; else
    /// as [`Services::ask_nonce`](crate::objects::services::Services::ask_nonce).
    pub(super) fn authenticate(
        &self,
        attr: &QpAttr,
        mask: AttrMask,
        chosen: &Found,
        alternate: &Found,
        stations: Stations,
    ) -> Result<Option<Agreed>, Error> {
        if self.services().auth().is_none() {
            return Ok(None);
        }
        let (chosen, alternate) = (PathChange::of(chosen), PathChange::of(alternate));
        let begins = mask.contains(AttrMask::STATE) && attr.qp_state == QpState::Rtr;
        let has_keys = if begins {
            matches!(chosen, PathChange::Wire(_))
        } else {
            self.lock().tags.is_on()
        };
        let is_refused = |way: &PathChange<'_>| match way {
            PathChange::Unchanged => false,
            PathChange::Local => has_keys,
            PathChange::Wire(_) => !has_keys,
        };
        if is_refused(&chosen) || is_refused(&alternate) {
            return Err(Error::unsupported(
                "FERROCE_KEY_FILE is set, and it does not cover a connection with a path over the \
                 wire and one within the host",
            ));
        }
        let path = match chosen {
            PathChange::Wire(path) if begins => path,
            _ => return Ok(None),
        };
        if stations == Stations::Looked {
            return Err(Error::unsupported(
                "FERROCE_KEY_FILE is set: only the process that has made an XRC target moves it to \
                 RTR over the wire",
            ));
        }
        self.agree(attr.dest_qp_num, &path.addressing)
    }

    /// The nonce for its next connection.
    pub(crate) fn next_nonce(&self) -> Nonce {
        self.lock().tags.nonces.next(draw)
    }

    /// The nonce that an authentic ask is told, if it is.
    pub(crate) fn nonce_for(&self, asker: &End) -> Option<Nonce> {
        let mut locked = self.lock();
        if locked.retired {
            return None;
        }
        if self.qp_type == QpType::Ud {
            return Some(locked.tags.nonces.next(draw));
        }
        if locked.transport.state() == QpState::Err {
            // Its connection is over, though the program has not reset it yet.
            return Some(locked.tags.nonces.next(draw));
        }
        locked.tags.nonces.answer_to(asker, draw)
    }

    /// The packets of a run from the wire that may be looked at, where a key is set; and why others
    /// may not.
    pub(super) fn open_run<'a>(
        &self,
        locked: &mut Locked,
        run: &InboundRun<'a>,
    ) -> (SmallVec<[&'a [u8]; 16]>, Vec<DropReason>) {
        let secret = self.services().auth().map(Auth::secret);
        let opened = secret.map_or_else(SmallVec::new, |secret| {
            locked.tags.take(&locked.transport, secret, self.qpn, run)
        });
        let refused = run.packets.len() - opened.len();
        (opened, vec![DropReason::Unauthenticated; refused])
    }
}

impl Qp {
    /// Whether a datagram may go over the wire now: where a key is set, its receiver must have told
    /// its nonce.
    pub(super) fn admission(
        &self,
        locked: &mut Locked,
        to: Qpn,
        path: &Addressing,
        now: Time,
    ) -> DatagramAdmission {
        let Some(auth) = self.services().auth() else {
            return DatagramAdmission::Now;
        };
        let receiver = (path.dst, to);
        let (known, due) = locked.tags.datagrams().knows(receiver, now);
        if due {
            self.ask_receiver(locked, auth, to, path, !known, now);
        }
        if known {
            return DatagramAdmission::Now;
        }
        let outcome = locked.tags.asking.as_ref().map(|(a, _)| a.outcome(now));
        if let Some(None) = outcome {
            return DatagramAdmission::Later;
        }
        locked.tags.asking = None;
        self.services()
            .count_denied_on(path.src, Asker::Host, Denial::Handshake);
        DatagramAdmission::Never
    }

    /// Asks for the nonce of a receiver, if it is time; `waits`: nothing is sent before it is
    /// known.
    fn ask_receiver(
        &self,
        locked: &mut Locked,
        auth: &Auth,
        to: Qpn,
        path: &Addressing,
        waits: bool,
        now: Time,
    ) {
        let current = locked.tags.asking.as_ref();
        let is_asked = current.is_some_and(|(a, w)| *w == waits && a.asked() == (path.dst, to));
        if !(is_asked && waits) {
            let own = End {
                gid: path.src,
                qpn: self.qpn,
                nonce: locked.tags.nonces.next(draw),
            };
            let addresses = addresses(path);
            let asking = Asking::within(PATIENCE, &own, to, addresses, draw(), now);
            locked.tags.asking = Some((Box::new(asking), waits));
        }
        let asking = locked.tags.asking.as_mut();
        if let Some(message) = asking.and_then(|(asking, _)| asking.poll(now)) {
            self.services().send_message(auth, *path, &message);
        }
    }

    /// A receiver that a datagram waits for is asked again, or given up.
    pub(super) fn ask_if_due(&self, locked: &mut Locked, now: Time) {
        if locked.tags.deadline().is_some_and(|at| at <= now) {
            locked.queued = false;
            self.transmit(locked, now);
        }
        if locked.tags.deadline().is_some_and(|at| at <= now) {
            // Nothing waits for it any more.
            locked.tags.asking = None;
        }
    }

    /// An answer of the handshake came for this queue pair.
    pub(crate) fn on_answer(
        &self,
        auth: &Auth,
        came: &Addressing,
        message: &AuthMessage,
        authentic: bool,
        now: Time,
    ) {
        let mut locked = self.lock();
        let Some((asking, waits)) = &mut locked.tags.asking else {
            return;
        };
        asking.on_message(&addresses(came), message, authentic);
        let (Some(Ok(nonce)), waits) = (asking.outcome(now), *waits) else {
            return;
        };
        locked.tags.asking = None;
        let receiver = End {
            gid: came.src,
            qpn: message.from,
            nonce,
        };
        let own = (came.dst, self.qpn);
        let datagrams = locked.tags.datagrams();
        datagrams.learn(auth.secret(), own, &receiver, now);
        if waits {
            locked.queued = false;
            self.transmit(&mut locked, now);
            self.keep_timer(&mut locked);
        }
    }
}

/// Where a change of a path leads.
enum PathChange<'a> {
    /// There is none.
    Unchanged,
    /// A path to a process of this host.
    Local,
    /// Over the wire.
    Wire(&'a Path),
}

impl<'a> PathChange<'a> {
    fn of(found: &'a Found) -> Self {
        match found {
            None => Self::Unchanged,
            Some((path, _)) => match &path.reach {
                Reach::Link(egress) if egress.slot().is_none() => Self::Wire(path),
                _ => Self::Local,
            },
        }
    }
}
