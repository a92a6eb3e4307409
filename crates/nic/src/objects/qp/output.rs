//! What goes to peers: packets are pulled from the transport into batches, in turns.

use std::sync::Arc;

use ferroce_proto::time::Time;
use ferroce_proto::verbs::QpType;

use super::Qp;
use super::fast::QueuedSend;
use super::input::fail_soon;
use super::locked::Locked;
use super::transport::Transport;
use crate::link::Batch;
use crate::link::path::{Egress, Path, Reach, charge};

/// Bytes that a queue pair may send before others have their turn.
const TURN_BYTES: usize = 1 << 18;
/// Packets that a queue pair may send before others have their turn.
const TURN_PACKETS: usize = 512;
/// Bytes that a queue pair may move without packets before others have their turn.
const TURN_DIRECT: usize = 4 << 20;
/// Bytes of one batch, before its last packet: enough to make system calls cheap, little enough to
/// stay in the cache.
pub(super) const BATCH_BYTES: usize = 56 << 10;
/// Most bytes of a batch on the wire: what the kernel takes as one piece, and a packet with longer
/// headers before and after it.
const WIRE_BATCH_BYTES: usize = 64 << 10;
/// Packets of one batch.
const BATCH_PACKETS: usize = 128;

/// How much one batch takes: its last packet may go beyond.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchLimits {
    /// Bytes of packets.
    pub(super) bytes: usize,
    /// Room at the receiver, as its kernel counts.
    pub(super) room: u64,
}

impl Qp {
    /// Transmits until there is nothing more to say, the window or the link is full, or the turn is
    /// over.
    pub(super) fn transmit(&self, locked: &mut Locked, now: Time) {
        self.run_local(locked, now);
        if locked.queued || locked.retired {
            return;
        }
        if locked.share.is_none() {
            self.transmit_allowed(locked, now);
            return;
        }
        Self::take_share(locked, now);
        self.transmit_allowed(locked, now);
        self.settle_share(locked, now);
    }

    fn transmit_allowed(&self, locked: &mut Locked, now: Time) {
        let (mut bytes, mut packets, mut moved) = (0, 0, 0);
        while locked.transport.wants_transmit() {
            if bytes >= TURN_BYTES || packets >= TURN_PACKETS || moved >= TURN_DIRECT {
                locked.queued = true;
                if !locked.holds_ack {
                    self.services().push_ready(self.me());
                }
                return;
            }
            if let Some(bytes) = self.move_directly(locked, now) {
                moved += bytes;
                continue;
            }
            let sent = match locked.transport {
                Transport::Iwarp(_) => return self.drive_stream(locked, now),
                Transport::Ud(_) => self.send_datagrams(locked, now),
                Transport::Rc(_) | Transport::Uc(_) => match self.send_by_itself(locked, now) {
                    QueuedSend::Sent(packets, bytes) => Some((packets, bytes)),
                    QueuedSend::Waits => None,
                    QueuedSend::Otherwise => self.send_to_peer(locked, now),
                },
            };
            let Some((sent_packets, sent_bytes)) = sent else {
                return;
            };
            self.tally.count_tx(sent_packets, sent_bytes);
            packets += sent_packets;
            bytes += sent_bytes;
        }
        if moved > 0 && locked.stream.is_some() {
            // The next work request may be a bind or a local invalidate, or the stream has ended.
            self.drive_stream(locked, now);
        }
    }

    /// Sends one message by the short ring, if that is its way. What the peer's requests are owed
    /// goes before it: its program may end the connection when it has the message, and what is not
    /// acknowledged by then is flushed.
    fn send_by_itself(&self, locked: &mut Locked, now: Time) -> QueuedSend {
        let owes =
            |locked: &Locked| matches!(&locked.transport, Transport::Rc(rc) if rc.owes_answers());
        if !self.goes_by_short_ring(locked) {
            return QueuedSend::Otherwise;
        }
        if owes(locked) {
            self.send_word(locked, now);
        }
        if owes(locked) {
            return QueuedSend::Otherwise;
        }
        self.send_queued(locked)
    }

    /// Sends one batch to the only peer. Returns its packets and bytes; `None` if nothing more can
    /// be sent now.
    fn send_to_peer(&self, locked: &mut Locked, now: Time) -> Option<(usize, usize)> {
        let path = locked.path.clone()?;
        match &path.reach {
            Reach::Nowhere => self.send_nowhere(locked, now),
            Reach::Link(egress) => self.send_batch(locked, &path, egress, now),
        }
    }

    /// Sends one batch. Returns its packets and bytes; `None` if nothing more can be sent now.
    fn send_batch(
        &self,
        locked: &mut Locked,
        path: &Path,
        egress: &Arc<Egress>,
        now: Time,
    ) -> Option<(usize, usize)> {
        let Some(mut batch) = egress.batch_unless_blocked(|| self.me()) else {
            locked.queued = true;
            return None;
        };
        let paced = self.pacing(egress, &path.addressing, || locked.transport.dest());
        let Some(room) = self.room(locked, paced.as_ref(), now) else {
            egress.put_back(batch);
            return None;
        };
        batch.addressing = path.addressing;
        let bytes = match egress.slot() {
            Some(_) => BATCH_BYTES,
            None => WIRE_BATCH_BYTES,
        };
        let before = locked.transport.next_request();
        let is_send = matches!(&locked.transport, Transport::Rc(rc) if rc.next_queued().is_some());
        let cost = self.fill(
            locked,
            &mut batch,
            BatchLimits { bytes, room },
            |_| true,
            now,
        );
        let size = (batch.ends.len(), batch.bytes.len());
        if size.0 == 0 {
            egress.put_back(batch);
            return None;
        }
        if locked.transport.next_request() != before {
            if is_send {
                locked.short_rings.pause();
            } else {
                locked.short_rings.end_run();
            }
        }
        if egress.send(self.qpn, batch) {
            self.note_packets(locked, egress.carrier());
            self.on_paced(paced.as_ref(), cost, now);
            return Some(size);
        }
        self.on_sent_to_nobody(locked, egress, now);
        // Without acknowledgements the rest goes to nobody too; a reliable queue pair is in ERR
        // now.
        (self.qp_type == QpType::Uc).then_some(size)
    }

    /// The process at the other end is gone, as the link has found on sending.
    fn on_sent_to_nobody(&self, locked: &mut Locked, egress: &Egress, now: Time) {
        tracing::debug!(target: "ferroce::qp", qpn = self.qpn.get(), slot = egress.slot(), "the peer's process is gone");
        // Before that its acknowledgement of our work may still be there to be read: the hang-up of
        // the link comes then.
        if egress.has_ended() {
            fail_soon(locked, now);
        }
    }

    /// If the link is full, so that there will be no turn before the end: leaves what it owes to
    /// the peer's requests with the link. The peer would take what this program has received for
    /// lost.
    pub(super) fn leave_last_word(&self, locked: &mut Locked, now: Time) {
        if locked.queued && !locked.retired {
            self.send_word(locked, now);
        }
    }

    /// As [`RcQp::owe_parting_ack`](ferroce_proto::rc::RcQp::owe_parting_ack). Adapters send no
    /// such acknowledgement.
    pub(crate) fn send_parting_ack(&self, now: Time) {
        let mut locked = self.lock();
        if !locked.retired {
            locked.transport.owe_parting_ack();
            self.send_word(&mut locked, now);
        }
    }

    /// Sends the acknowledgement or NAK that it owes, unless responses go before it.
    fn send_word(&self, locked: &mut Locked, now: Time) {
        let Some(Path {
            reach: Reach::Link(egress),
            addressing,
            ..
        }) = locked.path.clone()
        else {
            return;
        };
        let mut batch = egress.batch();
        batch.addressing = addressing;
        let any = self.with_cx(locked, now, |locked, cx| {
            locked.transport.poll_last_word(cx, &mut batch.bytes)
        });
        if any {
            end_packet(locked, &mut batch);
            self.tally.count_tx(1, batch.bytes.len());
            // The way that a packet has gone makes no difference any more, nor does a peer that is
            // gone.
            let _ = egress.send(self.qpn, batch);
        } else {
            egress.put_back(batch);
        }
    }

    /// Pulls packets that nobody will get.
    fn send_nowhere(&self, locked: &mut Locked, now: Time) -> Option<(usize, usize)> {
        let mut batch = Batch::default();
        let all = BatchLimits {
            bytes: TURN_BYTES,
            room: u64::MAX,
        };
        self.fill(locked, &mut batch, all, |_| true, now);
        (!batch.ends.is_empty()).then_some((batch.ends.len(), batch.bytes.len()))
    }

    /// Pulls packets up to the limits, while they belong to the batch. Returns what of the room
    /// they take.
    pub(super) fn fill(
        &self,
        locked: &mut Locked,
        batch: &mut Batch,
        limits: BatchLimits,
        belongs: impl Fn(&Locked) -> bool,
        now: Time,
    ) -> u64 {
        let mut cost = 0;
        self.with_sending_cx(locked, now, |locked, cx| {
            while batch.ends.len() < BATCH_PACKETS
                && batch.bytes.len() < limits.bytes
                && cost < limits.room
                && belongs(locked)
                && locked.transport.poll_transmit(cx, &mut batch.bytes)
            {
                end_packet(locked, batch);
                cost += last_cost(batch);
            }
        });
        cost
    }
}

/// A packet was appended to the batch: it gets its tag, if it must have one.
#[inline]
fn end_packet(locked: &mut Locked, batch: &mut Batch) {
    let start = batch.start(batch.ends.len());
    let Locked {
        tags, transport, ..
    } = locked;
    if batch.is_of_wire() {
        tags.add(transport, &batch.addressing, &mut batch.bytes, start);
    }
    batch.end_packet();
}

/// What the last packet of a batch takes at its receiver.
fn last_cost(batch: &Batch) -> u64 {
    let count = batch.ends.len();
    charge(batch.start(count) - batch.start(count.saturating_sub(1)))
}
