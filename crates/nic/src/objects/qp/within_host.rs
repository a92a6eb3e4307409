//! A queue pair on iWARP whose peer is a Ferroce of the same host and user: its stream goes over
//! the link between the two processes, in [`Chunk`]s.
//!
//! The set-up is over TCP, and TCP proves that both ends are on one host: the responder's reply has
//! a ticket, which the initiator shows over the link, with the addresses of its end of the
//! connection. From another network namespace there is no such link, or at its end a process that
//! knows no such ticket; through a proxy the addresses are others. Then the stream goes over TCP.
//! From an accepted ticket on, TCP carries nothing, and stays open until the queue pair ends.
//!
//! | initiator | responder |
//! |---|---|
//! | reads the reply, sends [`Chunk::Offer`] and waits | has sent the reply and waits |
//! | | accepts by a [`Chunk::Bytes`] without bytes, or drops the offer |
//! | goes on over the link, or over TCP | goes on when it has accepted, or when TCP brings something |

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_os::clock;
use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::iwarp::IwQp;
use ferroce_proto::iwarp::chunk::{Chunk, MOST, Offer};
use ferroce_proto::iwarp::mpa::Ticket;
use ferroce_proto::mr::{Memory, Piece};
use ferroce_proto::time::Time;

use super::Qp;
use super::input::fail_soon;
use super::locked::Locked;
use super::stream::iwarp_of;
use crate::base::addressing::Addressing;
use crate::base::carrier::Carrier;
use crate::base::counters::DropReason;
use crate::base::numbers::slot_of;
use crate::link::Origin;
use crate::link::path::{Egress, Path, Reach};
use crate::link::stream::pieces::{Rest, Unreadable};
use crate::link::stream::{Came, Obstacle, Way};
use crate::objects::choose::to_process;

/// Bytes of one batch, before its last chunk.
const BATCH_BYTES: usize = 56 << 10;
/// Bytes that a queue pair may send before others have their turn.
const TURN_BYTES: usize = 1 << 18;
/// How often an initiator that waits for the answer looks whether TCP has ended meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl Qp {
    /// The initiator shows the ticket of the reply. Without a link to that process the stream goes
    /// over TCP.
    pub(super) fn offer_way_within_host(
        &self,
        locked: &mut Locked,
        ticket: Ticket,
        ends: [SocketAddr; 2],
    ) {
        let egress = self.services().egress_to_own_user(slot_of(ticket.qpn));
        let Some(egress) = egress else {
            return self.go_over_tcp(locked);
        };
        let path = to_process(egress, ticket.qpn, addressing(ends));
        locked.set_path(self, Some(path));
        if let Some(stream) = &mut locked.stream {
            stream.set_way(Way::Asked);
            // Only the end can come over TCP now, and what the peer said before is on the link.
            self.services().unwatch_stream(stream.fd());
        }
        locked.fails_at = Some(clock::monotonic() + LOOK_AGAIN);
        let nonce = ticket.nonce;
        if !self.say(locked, Chunk::Offer(Offer { nonce, ends })) {
            self.go_over_tcp(locked);
        }
    }

    /// The process that was asked knows no such ticket, or is gone.
    fn go_over_tcp(&self, locked: &mut Locked) {
        locked.set_path(self, None);
        let Some(stream) = &mut locked.stream else {
            return;
        };
        let was = stream.way();
        stream.set_way(Way::Tcp);
        if was == Way::Asked
            && let Err(error) = self.services().watch_stream_again(stream.fd(), self.qpn)
        {
            tracing::warn!(target: "ferroce::iwarp", qpn = self.qpn.get(), %error, "cannot watch a connection");
            return self.on_stream_closed(locked, true, clock::monotonic());
        }
        if let Some(iwarp) = iwarp_of(locked) {
            iwarp.go_over_tcp();
        }
        tracing::debug!(target: "ferroce::iwarp", qpn = self.qpn.get(), "no way within the host: TCP it is");
    }

    /// Another queue pair of this host says something.
    ///
    /// # Errors
    /// It is not the peer; or it makes no sense.
    pub(crate) fn on_chunk(
        &self,
        origin: Origin,
        chunk: Chunk<'_>,
        now: Time,
    ) -> Result<(), DropReason> {
        let mut locked = self.lock();
        if locked.retired {
            return Err(DropReason::NoQp);
        }
        let way = locked.stream.as_ref().map(|stream| stream.way());
        match (chunk, way) {
            (_, None) => return Err(DropReason::State),
            (Chunk::Offer(offer), Some(Way::Tcp)) => {
                self.accept_way_within_host(&mut locked, origin, offer, now)?;
            }
            (Chunk::Offer(_), Some(_)) => return Err(DropReason::State),
            (_, Some(Way::Tcp)) => return Err(DropReason::State),
            (_, Some(Way::Asked | Way::WithinHost)) if !locked.comes_from(origin) => {
                return Err(DropReason::Origin);
            }
            (Chunk::Bytes(bytes), Some(_)) => self.take_chunk(&mut locked, bytes, now),
            (Chunk::End | Chunk::Reset, Some(_)) => {
                // As TCP would: the peer waits for this end's.
                self.say(&mut locked, Chunk::End);
                self.on_stream_closed(&mut locked, chunk == Chunk::Reset, now);
            }
        }
        self.keep_timer(&mut locked);
        Ok(())
    }

    /// The answer to an offer is late: if TCP has ended, there will be none.
    pub(super) fn look_at_tcp(&self, locked: &mut Locked, now: Time) {
        let Some(stream) = locked.stream.as_ref().filter(|s| s.way() == Way::Asked) else {
            return;
        };
        match stream.read(&mut [0]) {
            Came::Nothing => locked.fails_at = Some(now + LOOK_AGAIN),
            came => self.on_stream_closed(locked, came != Came::End, now),
        }
    }

    fn take_chunk(&self, locked: &mut Locked, bytes: &[u8], now: Time) {
        self.go_within_host(locked);
        let is_over = locked.stream.as_ref().is_none_or(|s| s.has_ended());
        if !is_over && !bytes.is_empty() {
            self.tally.count_rx(1, bytes.len());
            self.with_iwarp(locked, now, |iwarp, cx| iwarp.on_bytes(cx, bytes));
        }
    }

    /// The responder is shown the ticket of its reply.
    fn accept_way_within_host(
        &self,
        locked: &mut Locked,
        origin: Origin,
        offer: Offer,
        now: Time,
    ) -> Result<(), DropReason> {
        let agreement = iwarp_of(locked).and_then(|iwarp| iwarp.agreement().copied());
        let knows = agreement.is_some_and(|agreement| {
            let ticket = agreement.ticket.filter(|_| !agreement.is_initiator);
            ticket.is_some_and(|ticket| ticket.nonce == offer.nonce)
        });
        // One that has said its end over TCP is not heard over the link.
        let open = locked.stream.as_ref().filter(|stream| !stream.has_ended());
        let ends = open.and_then(|stream| stream.ends().ok());
        let (Some(ends), true) = (ends, knows) else {
            return Err(DropReason::State);
        };
        if !offer.is_of(ends) {
            return Err(DropReason::Origin);
        }
        let egress = self.services().egress_to_own_user(origin.slot());
        let (Some(egress), Some(peer)) = (egress, origin.qpn()) else {
            // Without a link the initiator cannot be told to go over TCP: it hears of the end.
            self.with_iwarp(locked, now, IwQp::abort);
            self.tell_stream_events(locked);
            self.reset_stream(locked);
            return Err(DropReason::Origin);
        };
        let path = to_process(egress, peer, addressing(ends));
        if path.0.origin != origin {
            return Err(DropReason::Origin);
        }
        locked.set_path(self, Some(path));
        self.go_within_host(locked);
        if !self.say(locked, Chunk::Bytes(&[])) {
            fail_soon(locked, now);
        }
        Ok(())
    }

    /// From here on the link has the stream.
    fn go_within_host(&self, locked: &mut Locked) {
        let Some(stream) = &mut locked.stream else {
            return;
        };
        match stream.way() {
            Way::WithinHost => return,
            Way::Tcp => self.services().unwatch_stream(stream.fd()),
            Way::Asked => {}
        }
        stream.set_way(Way::WithinHost);
        if let Some(iwarp) = iwarp_of(locked) {
            iwarp.go_within_host();
        }
        self.publish_grant(locked);
        tracing::debug!(target: "ferroce::iwarp", qpn = self.qpn.get(), "the peer is of this host: no bytes go over TCP");
    }

    /// The peer's process has dropped what was sent to it, or is gone.
    pub(super) fn on_chunk_dropped(&self, locked: &mut Locked, now: Time) {
        match locked.stream.as_ref().map(|stream| stream.way()) {
            Some(Way::Asked) => {
                self.go_over_tcp(locked);
                self.drive_stream(locked, now);
            }
            Some(Way::WithinHost) => self.on_stream_closed(locked, true, now),
            Some(Way::Tcp) | None => {}
        }
    }

    /// Says something beside the bytes of the stream, if it has a link. What that does not take
    /// now it keeps. Returns false if there is nobody.
    pub(super) fn say(&self, locked: &mut Locked, chunk: Chunk<'_>) -> bool {
        let Some((path, egress)) = link_of(locked) else {
            return false;
        };
        let mut batch = egress.batch();
        batch.addressing = path.addressing;
        chunk.emit(peer_of(path), &mut batch.bytes);
        batch.end_packet();
        egress.send(self.qpn, batch)
    }

    /// What writes the stream to the link, if that has it.
    pub(super) fn chunk_writer(&self, locked: &Locked) -> Option<ChunkWriter<'_>> {
        let stream = locked.stream.as_ref()?;
        if stream.way() != Way::WithinHost {
            return None;
        }
        let (path, egress) = link_of(locked)?;
        Some(ChunkWriter {
            qp: self,
            egress: Arc::clone(egress),
            addressing: path.addressing,
            to: peer_of(path),
            left: TURN_BYTES,
            met: Met::Nothing,
        })
    }

    /// Waits for what the link needs, after writing.
    pub(super) fn settle_writer(&self, locked: &mut Locked, writer: &ChunkWriter<'_>, now: Time) {
        match writer.met {
            Met::Full => locked.queued = true,
            Met::Gone => fail_soon(locked, now),
            Met::Nothing => {
                if iwarp_of(locked).is_some_and(|iwarp| iwarp.wants_transmit()) {
                    locked.queued = true;
                    self.services().push_ready(self.me());
                }
            }
        }
    }
}

/// What ended a turn before everything was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    Nothing,
    /// The link is full; the queue pair waits for it.
    Full,
    /// The peer's process is gone.
    Gone,
}

/// Writes pieces of a stream to a link, within a turn.
#[derive(Debug)]
pub(super) struct ChunkWriter<'a> {
    qp: &'a Qp,
    egress: Arc<Egress>,
    addressing: Addressing,
    to: Qpn,
    /// Bytes that this turn may still write.
    left: usize,
    met: Met,
}

impl ChunkWriter<'_> {
    /// What carries the pieces.
    pub(super) fn carrier(&self) -> Carrier {
        self.egress.carrier()
    }

    /// Returns how many bytes it has taken.
    pub(super) fn write(
        &mut self,
        memory: &dyn Memory,
        pieces: &[Piece<'_>],
    ) -> Result<usize, Obstacle> {
        let mut rest = Rest::of(pieces);
        let mut taken = 0;
        while !rest.is_empty() && self.left > 0 {
            let Some(mut batch) = self.egress.batch_unless_blocked(|| self.qp.me()) else {
                self.met = Met::Full;
                break;
            };
            batch.addressing = self.addressing;
            let mut filled = Ok(());
            let before = taken;
            while filled.is_ok() && !rest.is_empty() && batch.bytes.len() < BATCH_BYTES {
                Chunk::Bytes(&[]).emit(self.to, &mut batch.bytes);
                let begin = batch.bytes.len();
                filled = rest.append(memory, &mut batch.bytes, MOST);
                taken += batch.bytes.len() - begin;
                batch.end_packet();
            }
            let bytes = taken - before;
            self.left = self.left.saturating_sub(bytes);
            if bytes > 0 && !self.egress.send(self.qp.qpn, batch) {
                self.met = Met::Gone;
                break;
            }
            match filled {
                Err(Unreadable) if taken == 0 => return Err(Obstacle::Unmapped),
                Err(Unreadable) => break,
                Ok(()) => {}
            }
        }
        Ok(taken)
    }
}

/// The addresses of a TCP connection: own, peer's.
fn addressing([own, peer]: [SocketAddr; 2]) -> Addressing {
    Addressing {
        src: Gid::from_ip(own.ip()),
        dst: Gid::from_ip(peer.ip()),
        ..Addressing::default()
    }
}

fn link_of(locked: &Locked) -> Option<(&Path, &Arc<Egress>)> {
    let path = locked.path.as_ref()?;
    match &path.reach {
        Reach::Link(egress) => Some((path, egress)),
        Reach::Nowhere => None,
    }
}

/// The queue pair to which a path within the host leads.
pub(super) fn peer_of(path: &Path) -> Qpn {
    path.origin.qpn().unwrap_or_default()
}
