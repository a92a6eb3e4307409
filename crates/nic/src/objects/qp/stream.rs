//! A queue pair over TCP: what its connection brings and takes, and how it ends.
//!
//! All of it happens in steps, as with packets. The socket is read and written with the lock of
//! the queue pair and, for payload, the rights table: no key can be withdrawn while the kernel
//! copies through it.

use std::net::IpAddr;

use ferroce_os::clock;
use ferroce_os::poll::Interest;
use ferroce_proto::iwarp::{self, Chunk, Ended, IwQp, Teardown, Violation};
use ferroce_proto::mr::{Access, Memory, Piece};
use ferroce_proto::rc::Cx;
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{AttrMask, QpAttr, QpState};

use super::Qp;
use super::locked::Locked;
use super::transport::Transport;
use super::within_host::ChunkWriter;
use crate::Error;
use crate::base::carrier::Carrier;
use crate::base::stream_ends::StreamEnd;
use crate::link::stream::pieces::Rest;
use crate::link::stream::{
    Came, Connection, Obstacle, Parting, Stream, StreamTurn, TurnReads, Way,
};

/// Room for what is read before a connection that cannot be written to is given up.
const LAST_ROOM: usize = 64 << 10;
/// Most reads before a connection that `FERROCE_FAULT` has cut is given up: its peer goes on
/// sending.
const LAST_READS: usize = 256;

impl Qp {
    /// `ibv_modify_qp` on iWARP.
    pub(super) fn modify_on_iwarp(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        self.step(|locked, cx| locked.transport.modify(cx, attr, mask))
            .map_err(|e| Error::invalid(e.reason))?;
        if self.state() == QpState::Err {
            self.renew_grant();
        }
        Ok(())
    }

    /// The connection manager has a connection for it: it moves to RTS.
    ///
    /// # Errors
    /// EINVAL if it is no queue pair on iWARP that waits for one; ENOMEM and the like if the
    /// connection cannot be watched; ECONNRESET and the like if the reply cannot be sent.
    pub(crate) fn connect_stream(&self, connection: Connection) -> Result<(), Error> {
        let now = clock::monotonic();
        let mut locked = self.lock();
        let wrong = || {
            Error::invalid(format!(
                "queue pair {:#x} does not wait for a connection on iWARP",
                self.qpn.get()
            ))
        };
        let Some(iwarp) = iwarp_of(&mut locked).filter(|iwarp| iwarp.agreement().is_none()) else {
            return Err(wrong());
        };
        // Asked once for the connection, so that a segment costs nothing where nobody reads of it.
        if tracing::enabled!(target: "ferroce::packet", tracing::Level::TRACE) {
            iwarp.watch_segments();
        }
        if !iwarp.connect(now, &connection.agreement, connection.segment()) {
            return Err(wrong());
        }
        // What each key grants is the peer's from here on (siw looks at nothing else either).
        iwarp.set_access(Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC);
        let (early, ticket) = (connection.early.clone(), connection.ticket_to_show());
        // A peer that has the ticket of the reply finds the queue pair connected.
        let has_crc = connection.agreement.crc;
        let faults = self.services().stream_faults.as_ref();
        let faults = faults.map(|network| network.way_out(has_crc));
        let (stream, replied) = Stream::begin(connection, faults);
        let watched = replied.and_then(|()| self.services().watch_stream(stream.fd(), self.qpn));
        let ends = stream.ends();
        locked.stream = Some(Box::new(stream));
        tracing::debug!(target: "ferroce::qp", qpn = self.qpn.get(), "connected over TCP");
        if let Err(e) = watched {
            self.on_stream_closed(&mut locked, true, now);
            return Err(Error::system("a TCP connection that both ends want", &e));
        }
        self.with_iwarp(&mut locked, now, |iwarp, cx| iwarp.on_bytes(cx, &early));
        if let (Some(ticket), Ok(ends)) = (ticket, ends) {
            self.offer_way_within_host(&mut locked, ticket, ends);
        }
        self.transmit(&mut locked, now);
        self.keep_timer(&mut locked);
        Ok(())
    }

    /// The program ends its connection, by way of its identifier.
    pub(crate) fn end_stream(&self) {
        let now = clock::monotonic();
        let mut locked = self.lock();
        self.with_iwarp(&mut locked, now, |iwarp, cx| iwarp.disconnect(cx));
        self.transmit(&mut locked, now);
        self.keep_timer(&mut locked);
    }

    /// Serves the connection, which may be ready for what `ready` says. `room` is for what is read.
    pub(crate) fn serve_stream(&self, ready: Interest, room: &mut [u8], now: Time) -> StreamTurn {
        let mut locked = self.lock();
        if locked.retired {
            return StreamTurn::Nothing;
        }
        if let Some(stream) = &mut locked.stream {
            if stream.way() != Way::Tcp {
                // An event of before.
                return StreamTurn::Nothing;
            }
            stream.begin_turn();
        }
        let mut came = StreamTurn::Nothing;
        if ready.readable {
            came = self.copy_between_polls(now, || self.read_stream(&mut locked, room, now));
        }
        if ready.writable {
            self.write_stream(&mut locked, now);
        }
        if came != StreamTurn::Nothing || ready.writable {
            self.transmit(&mut locked, now);
            self.drive_stream(&mut locked, now);
            self.keep_timer(&mut locked);
        }
        came
    }

    /// Takes what has come, within a turn.
    fn read_stream(&self, locked: &mut Locked, room: &mut [u8], now: Time) -> StreamTurn {
        let mut reads = TurnReads::new(room.len());
        while reads.goes_on(self.read_once(locked, room, now)) {}
        reads.brought()
    }

    /// Takes what one read brings.
    fn read_once(&self, locked: &mut Locked, room: &mut [u8], now: Time) -> Came {
        let Some(stream) = &locked.stream else {
            return Came::Nothing;
        };
        let discards = stream.has_ended();
        let lands = !discards && iwarp_of(locked).is_some_and(|iwarp| iwarp.wants_receive());
        if lands {
            let came = self.read_landing(locked, room, now);
            if came != Came::Unmapped {
                return self.note_came(locked, came, now);
            }
            // The transport refuses the segment when it has all of it.
        }
        let Some(stream) = &locked.stream else {
            return Came::Nothing;
        };
        let came = stream.read(room);
        if let Came::Bytes { count, .. } = came {
            if discards {
                return came;
            }
            self.with_iwarp(locked, now, |iwarp, cx| iwarp.on_bytes(cx, &room[..count]));
        }
        self.note_came(locked, came, now)
    }

    /// Reads long FPDUs to their places.
    fn read_landing(&self, locked: &mut Locked, room: &mut [u8], now: Time) -> Came {
        let Some(stream) = locked.stream.take() else {
            return Came::Nothing;
        };
        let mut came = Came::Nothing;
        self.with_iwarp(locked, now, |iwarp, cx| {
            iwarp.receive(cx, room, &mut |spans, buffers| {
                came = stream.read_into(spans, buffers);
                match came {
                    Came::Bytes { count, .. } => count,
                    _ => 0,
                }
            });
        });
        locked.stream = Some(stream);
        if came == Came::Nothing && iwarp_of(locked).is_some_and(|iwarp| iwarp.has_stopped()) {
            // What had come before was refused: there is a TERMINATE to send.
            return Came::Bytes {
                count: 0,
                filled: false,
            };
        }
        came
    }

    /// Counts what a read has brought, or ends the stream.
    fn note_came(&self, locked: &mut Locked, came: Came, now: Time) -> Came {
        match came {
            Came::Bytes { count, .. } => self.tally.count_rx(1, count),
            Came::Nothing | Came::Unmapped => {}
            Came::End | Came::Reset => self.on_stream_closed(locked, came == Came::Reset, now),
        }
        came
    }

    /// The peer has closed the connection, or it is gone.
    pub(super) fn on_stream_closed(&self, locked: &mut Locked, was_reset: bool, now: Time) {
        self.with_iwarp(locked, now, |iwarp, cx| iwarp.on_closed(cx, was_reset));
        self.tell_stream_events(locked);
        locked.stream = None;
        locked.set_path(self, None);
    }

    /// Sends what there is, tells what has happened, and closes what has ended.
    pub(super) fn drive_stream(&self, locked: &mut Locked, now: Time) {
        loop {
            if Self::has_turn(locked) {
                self.write_stream(locked, now);
            }
            // A bind or local invalidate whose turn has come, since TCP has what was before it.
            if locked.transport.next_local().is_none() || locked.closes_at.is_some() {
                break;
            }
            self.run_local(locked, now);
        }
        self.tell_stream_events(locked);
        let teardown = iwarp_of(locked).map(|iwarp| iwarp.teardown());
        match teardown {
            Some(Teardown::Close) => self.close_stream(locked),
            Some(Teardown::Reset) => self.reset_stream(locked),
            Some(Teardown::Keep | Teardown::Drain) | None => {}
        }
    }

    /// Whether there is something to write and room for it, or a wait of what was held up to end.
    fn has_turn(locked: &Locked) -> bool {
        locked.stream.as_ref().is_some_and(|stream| {
            let wants = || locked.transport.wants_transmit() || stream.held_until().is_some();
            !stream.is_blocked() && wants()
        })
    }

    /// Writes until there is nothing more to say, the connection has no room, or the turn is over.
    fn write_stream(&self, locked: &mut Locked, now: Time) {
        if let Some(writer) = self.chunk_writer(locked) {
            return self.write_chunks(locked, writer, now);
        }
        let Some(mut stream) = locked.stream.take() else {
            return;
        };
        let (bytes, obstacle) = self.copy_between_polls(now, || {
            self.transmit_by(locked, now, |memory, pieces| stream.write(memory, pieces))
        });
        if bytes > 0 {
            self.note_packets(locked, Carrier::Tcp);
        }
        match obstacle {
            None => self.watch_for_room(locked, &mut stream),
            Some(Obstacle::Unmapped) => {
                self.with_iwarp(locked, now, IwQp::on_unmapped);
                self.watch_for_room(locked, &mut stream);
            }
            Some(Obstacle::Gone) => {
                locked.stream = Some(stream);
                return self.give_up_stream(locked, now);
            }
        }
        locked.stream = Some(stream);
    }

    /// As [`write_stream`](Self::write_stream), over the link to the peer's process.
    fn write_chunks(&self, locked: &mut Locked, mut writer: ChunkWriter<'_>, now: Time) {
        if locked.queued {
            return;
        }
        let (bytes, obstacle) =
            self.transmit_by(locked, now, |memory, pieces| writer.write(memory, pieces));
        if bytes > 0 {
            self.note_packets(locked, writer.carrier());
        }
        if obstacle.is_some() {
            self.with_iwarp(locked, now, IwQp::on_unmapped);
        }
        self.settle_writer(locked, &writer, now);
    }

    /// Lets the transport write by `write`. Returns how many bytes went, and what was met.
    fn transmit_by(
        &self,
        locked: &mut Locked,
        now: Time,
        mut write: impl FnMut(&dyn Memory, &[Piece<'_>]) -> Result<usize, Obstacle>,
    ) -> (usize, Option<Obstacle>) {
        let (mut bytes, mut obstacle) = (0, None);
        self.with_iwarp(locked, now, |iwarp, cx| {
            let memory = cx.memory;
            iwarp.transmit(cx, &mut |pieces| match write(memory, pieces) {
                Ok(sent) => {
                    bytes += sent;
                    sent
                }
                Err(met) => {
                    obstacle = Some(met);
                    0
                }
            });
        });
        if bytes > 0 {
            self.tally.count_tx(1, bytes);
        }
        (bytes, obstacle)
    }

    /// What does not find room waits for it.
    fn watch_for_room(&self, locked: &mut Locked, stream: &mut Stream) {
        let waits = iwarp_of(locked).is_some_and(|iwarp| iwarp.wants_transmit());
        if let Some(interest) = stream.watch_for(waits)
            && let Err(e) = self
                .services()
                .rewatch_stream(stream.fd(), self.qpn, interest)
        {
            tracing::warn!(target: "ferroce::iwarp", qpn = self.qpn.get(), "cannot watch a connection: {e}");
        }
    }

    /// Nothing can be written any more. What the peer said before is still to be read: TCP has no
    /// more than that. One read may bring as little as one FPDU.
    fn give_up_stream(&self, locked: &mut Locked, now: Time) {
        let mut room = vec![0; LAST_ROOM];
        let is_cut = locked.stream.as_ref().is_some_and(|s| s.has_faults());
        let most = if is_cut { LAST_READS } else { usize::MAX };
        let mut reads = (0..most).map(|_| self.read_once(locked, &mut room, now));
        let _ = reads.all(|came| matches!(came, Came::Bytes { .. }));
        if locked.stream.is_some() {
            self.on_stream_closed(locked, true, now);
        }
    }

    /// Tells the connection manager of the end.
    pub(super) fn tell_stream_events(&self, locked: &mut Locked) {
        let id = locked.stream.as_ref().map(|stream| stream.id());
        let Some(iwarp) = iwarp_of(locked) else {
            return;
        };
        while let Some(event) = iwarp.poll_event() {
            if let iwarp::StreamEvent::Ended(ended) = event {
                self.note_end(ended, iwarp.has_terminated());
                if let Some(id) = id {
                    self.pd.context().engine().on_stream_ended(id);
                }
            }
        }
    }

    fn note_end(&self, ended: Ended, has_terminated: bool) {
        let counters = self.pd.context().device().counters();
        if has_terminated {
            counters.count_stream_end(StreamEnd::TerminateSent);
        }
        match ended {
            Ended::Violation(Violation::Crc) => counters.count_stream_end(StreamEnd::Crc),
            Ended::Terminated(_) => counters.count_stream_end(StreamEnd::TerminateReceived),
            Ended::PeerReset => counters.count_stream_end(StreamEnd::Reset),
            _ => {}
        }
        let qpn = self.qpn.get();
        match ended {
            Ended::Violation(_) | Ended::Terminated(_) | Ended::LocalFault => {
                tracing::warn!(target: "ferroce::iwarp", qpn, ?ended, "the connection has failed");
            }
            _ => tracing::debug!(target: "ferroce::iwarp", qpn, ?ended, "the connection has ended"),
        }
    }

    /// The stream has ended at this end, and TCP has all of it.
    fn close_stream(&self, locked: &mut Locked) {
        if locked.stream.as_ref().is_none_or(|s| s.has_ended()) {
            return;
        }
        self.say(locked, Chunk::End);
        if let Some(stream) = &mut locked.stream {
            stream.end();
            let _ = stream.watch_for(false).map(|interest| {
                // It is closed soon; until then it is looked at in vain.
                self.services()
                    .rewatch_stream(stream.fd(), self.qpn, interest)
            });
        }
    }

    /// The stream was broken off.
    pub(super) fn reset_stream(&self, locked: &mut Locked) {
        self.say(locked, Chunk::Reset);
        if let Some(stream) = locked.stream.take()
            && stream.way() == Way::Tcp
        {
            stream.reset();
        }
        locked.set_path(self, None);
    }

    /// The queue pair is destroyed: what TCP has is sent, and the rest of the FPDU that has begun.
    /// Returns a connection that is to be closed in order.
    pub(super) fn drop_stream(&self, locked: &mut Locked) -> Option<Parting> {
        locked.stream.as_ref()?;
        let now = clock::monotonic();
        self.with_iwarp(locked, now, IwQp::abort);
        self.tell_stream_events(locked);
        let iwarp = iwarp_of(locked)?;
        let (teardown, open_until) = (iwarp.teardown(), iwarp.open_until());
        if teardown == Teardown::Reset {
            self.reset_stream(locked);
            return None;
        }
        if locked.stream.as_ref().is_some_and(|s| !s.has_ended()) {
            self.say(locked, Chunk::End);
        }
        let stream = locked.stream.take()?;
        match stream.way() {
            Way::Tcp => self.services().unwatch_stream(stream.fd()),
            // It is not watched.
            Way::Asked => {}
            Way::WithinHost => return None,
        }
        let rest = self.take_rest(locked, now);
        Some(Parting::new(*stream, rest, open_until, now))
    }

    /// Takes what TCP has not taken of a stream that has ended.
    fn take_rest(&self, locked: &mut Locked, now: Time) -> Vec<u8> {
        let mut rest = Vec::new();
        self.transmit_by(locked, now, |memory, pieces| {
            let before = rest.len();
            let taken = Rest::of(pieces).append(memory, &mut rest, usize::MAX);
            taken.map_err(|_| Obstacle::Unmapped)?;
            Ok(rest.len() - before)
        });
        rest
    }

    /// The address at the other end of its connection, if that is over TCP.
    pub(crate) fn tcp_peer(&self) -> Option<IpAddr> {
        let locked = self.lock();
        let [_, peer] = locked.stream.as_ref()?.ends().ok()?;
        Some(peer.ip())
    }

    /// Whether the peer's TCP has not got all that this end has said.
    pub(crate) fn is_stream_under_way(&self) -> bool {
        let mut locked = self.lock();
        let is_over_tcp = |stream: &Stream| stream.way() != Way::WithinHost;
        if !locked.stream.as_deref().is_some_and(is_over_tcp) {
            return false;
        }
        let waits = iwarp_of(&mut locked).is_some_and(|iwarp| iwarp.wants_transmit());
        waits || locked.stream.as_ref().is_some_and(|s| s.is_under_way())
    }

    /// Until when its connection should stay open, if this process ends.
    pub(crate) fn stream_stays_until(&self) -> Option<Time> {
        iwarp_of(&mut self.lock())?.open_until()
    }

    /// Runs `f` with its transport, if that is iWARP's.
    pub(super) fn with_iwarp(
        &self,
        locked: &mut Locked,
        now: Time,
        f: impl FnOnce(&mut IwQp, &mut Cx<'_>),
    ) {
        self.run_with_cx(locked, now, |locked, cx| {
            if let Some(iwarp) = iwarp_of(locked) {
                f(iwarp, cx);
            }
        });
        self.publish_grant(locked);
    }
}

pub(super) fn iwarp_of(locked: &mut Locked) -> Option<&mut IwQp> {
    match &mut locked.transport {
        Transport::Iwarp(iwarp) => Some(iwarp),
        Transport::Rc(_) | Transport::Uc(_) | Transport::Ud(_) => None,
    }
}
