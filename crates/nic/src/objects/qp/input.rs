//! What comes from peers and links.

use std::time::Duration;

use ferroce_proto::ids::Gid;
use ferroce_proto::rc::Cx;
use ferroce_proto::time::Time;
use ferroce_proto::ud::GrhRoute;
use ferroce_proto::verbs::QpType;
use ferroce_proto::wire::{OpInfo, Opcode, Packet};

use super::Qp;
use super::guard::General;
use super::locked::Locked;
use super::transport::Transport;
use crate::Cq;
use crate::base::counters::DropReason;
use crate::base::waiter::Waiter;
use crate::link::InboundRun;
use crate::link::path::{Admitted, Path, PathAddresses, Policy};
use crate::link::{Ingress, Origin};
use crate::objects::cq::DirectDelivery;
use crate::services::direct::KnownPeer;

/// Low 15 bits of the only partition key: the membership bit does not matter on receive.
const PKEY: u16 = 0x7fff;
/// How long after the end of a peer's process work for it fails. With an adapter retries take that
/// long and more: a program that has more work in flight than it waits for must have the time to
/// see that it is done.
const LAST_LOOK: Duration = Duration::from_millis(30);

/// What became of packets that came over the wire together.
#[derive(Debug, Default)]
struct TakenRun {
    /// Packets that the transport took, and their bytes.
    packets: usize,
    bytes: usize,
    dropped: Vec<DropReason>,
}

impl Waiter for Qp {
    /// Takes the queue pair's turn to transmit: its link, or its place in the ready list, came up.
    fn on_turn(&self, now: Time) {
        let mut locked = self.lock();
        locked.queued = false;
        locked.holds_ack = false;
        locked.waits_until = None;
        locked.paused = None;
        self.transmit(&mut locked, now);
        self.keep_timer(&mut locked);
    }
}

impl Qp {
    /// A packet of `len` bytes for this queue pair, ICRC checked. Answers wait for
    /// [`on_arrivals`](Self::on_arrivals), so that one answers a whole batch.
    ///
    /// # Errors
    /// Why it was dropped.
    pub(crate) fn on_packet(
        &self,
        came: Ingress<'_>,
        packet: &Packet<'_>,
        len: usize,
        now: Time,
    ) -> Result<(), DropReason> {
        let mut locked = self.lock();
        if locked.tags.is_on() {
            // What must have a tag comes by way of `on_run`.
            return Err(DropReason::Unauthenticated);
        }
        self.on_opened(&mut locked, came, packet, len, now)
    }

    /// As [`on_packet`](Self::on_packet), for a packet that needs no tag, or that had a right one.
    #[inline]
    fn on_opened(
        &self,
        locked: &mut Locked,
        came: Ingress<'_>,
        packet: &Packet<'_>,
        len: usize,
        now: Time,
    ) -> Result<(), DropReason> {
        if locked.retired {
            // Its number may have a new owner.
            return Err(DropReason::NoQp);
        }
        self.run_short_rings(locked, now);
        if packet.bth.migreq && locked.transport.is_armed() {
            self.follow_peer(locked, came, packet, now);
        }
        let taken = self.with_cx(locked, now, |locked, cx| {
            self.take(locked, cx, came, packet)
        });
        self.keep_timer(locked);
        taken?;
        self.tally.count_rx(1, len);
        Ok(())
    }

    /// As [`on_packet`](Self::on_packet), for packets that came over the wire together: what is to
    /// be done around packets is done once. Returns why some were dropped.
    pub(crate) fn on_run(&self, run: &InboundRun<'_>, now: Time) -> Vec<DropReason> {
        let came = run.came();
        let mut taken = TakenRun::default();
        let mut locked = self.lock();
        if locked.retired {
            return vec![DropReason::NoQp; run.packets.len()];
        }
        let opened;
        let run = if self.services().auth().is_some() {
            (opened, taken.dropped) = self.open_run(&mut locked, run);
            &InboundRun {
                packets: &opened,
                ..*run
            }
        } else {
            run
        };
        if locked.transport.is_armed() {
            // Any of them may change the path.
            drop(locked);
            let singly = |bytes: &&[u8]| {
                let taken = came.addressing.read(bytes, |packet| {
                    self.on_opened(&mut self.lock(), came, packet?, bytes.len(), now)
                });
                taken.err()
            };
            taken.dropped.extend(run.packets.iter().filter_map(singly));
            return taken.dropped;
        }
        let (word, requests) = split_word(run.packets);
        self.with_cx(&mut locked, now, |locked, cx| {
            for packets in [word, requests] {
                self.take_run(locked, cx, came, packets, &mut taken);
            }
        });
        self.keep_timer(&mut locked);
        self.tally.count_rx(taken.packets, taken.bytes);
        taken.dropped
    }

    /// Gives packets to the transport: as many together as it takes, the others one by one.
    #[inline]
    fn take_run(
        &self,
        locked: &mut Locked,
        cx: &mut Cx<'_>,
        came: Ingress<'_>,
        mut packets: &[&[u8]],
        taken: &mut TakenRun,
    ) {
        while let Some((packet, others)) = packets.split_first() {
            let (batch, rest) = take_batch(locked, cx, came, packets);
            if !batch.is_empty() {
                taken.packets += batch.len();
                taken.bytes += batch.iter().map(|packet| packet.len()).sum::<usize>();
                packets = rest;
                continue;
            }
            let outcome = came
                .addressing
                .read(packet, |packet| self.take(locked, cx, came, packet?));
            match outcome {
                Ok(()) => {
                    taken.packets += 1;
                    taken.bytes += packet.len();
                }
                Err(why) => taken.dropped.push(why),
            }
            packets = others;
        }
    }

    /// Gives a packet to the transport, if it may have it.
    pub(super) fn take(
        &self,
        locked: &mut Locked,
        cx: &mut Cx<'_>,
        came: Ingress<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), DropReason> {
        let admitted = self.admit(locked, came, packet)?;
        let addressing = came.addressing;
        if packet.bth.pkey & PKEY != PKEY {
            return Err(DropReason::Pkey);
        }
        if locked.transport.refuses_key(packet) {
            return Err(DropReason::Qkey);
        }
        let route = GrhRoute {
            src: addressing.src,
            dst: addressing.dst,
            hop_limit: addressing.hop_limit,
            traffic_class: addressing.traffic_class,
            flow_label: addressing.flow_label,
        };
        if locked.transport.on_packet(cx, packet, admitted, &route) {
            Ok(())
        } else {
            Err(DropReason::State)
        }
    }

    /// Follows a peer that has migrated, as a packet says. If it came over the alternate path, this
    /// end follows. From the wire it must be one that the peer may send now: one datagram must not
    /// take a connection off a path that works.
    fn follow_peer(&self, locked: &mut Locked, came: Ingress<'_>, packet: &Packet<'_>, now: Time) {
        let alternate = locked.alternate.as_ref();
        let came_over_it = alternate.is_some_and(|(path, _)| path.admit(came).is_ok());
        let counts = came.origin != Origin::WIRE
            || packet.bth.pkey & PKEY == PKEY && locked.transport.may_be_sent_now(packet);
        if came_over_it && counts {
            self.with_cx(locked, now, |locked, cx| locked.transport.migrate(cx));
            locked.use_alternate(self);
            self.change_account(locked);
        }
    }

    /// Takes the queue pair's turn to transmit: packets came in. An acknowledgement by itself may
    /// wait for the program's answer.
    pub(crate) fn on_arrivals(&self, now: Time) {
        let mut locked = self.lock();
        if !self.take_ack_turn(&mut locked, now) {
            self.transmit(&mut locked, now);
            self.keep_timer(&mut locked);
        }
    }

    /// Says at once what might wait, and hears what was said: its end, or that of the process, is
    /// near. What the peer has taken by now is done, and not flushed.
    pub(crate) fn speak_up(&self, now: Time) {
        let mut locked = self.hear(now);
        if locked.short_rings.publish_delayed_ack() {
            self.tell_sleeping_peer(&mut locked);
        }
        self.transmit(&mut locked, now);
        self.leave_last_word(&mut locked, now);
        self.keep_timer(&mut locked);
    }

    /// Takes what a peer of this host has said by now. Returns with the lock.
    #[cold]
    pub(super) fn hear(&self, now: Time) -> General<'_> {
        if self.waits_within_host() {
            self.pd.context().engine().hear();
        }
        let mut locked = self.lock();
        self.run_short_rings(&mut locked, now);
        locked
    }

    /// Whether a peer of this host has something to acknowledge, and may have done so: its packets
    /// lie in a ring.
    fn waits_within_host(&self) -> bool {
        let locked = self.lock();
        locked.path.as_ref().is_some_and(Path::is_local)
            && matches!(&locked.transport, Transport::Rc(rc) if rc.in_flight() > 0)
    }

    /// Takes the queue pair's turn to transmit: few packets came in while a program polls. An
    /// acknowledgement by itself waits for the program's answer if that is known to come. Or else
    /// it waits until the program has seen its completion, and goes out together with what the
    /// program posts then, or when it polls again. That of an XRC target has nothing to go with,
    /// and goes before the program has the completion, as an adapter's does: the answer comes by
    /// another queue pair, and perftest takes the event of the answer for that of its own SEND if
    /// that comes first (`ib_send_lat -c XRC -e`).
    pub(crate) fn on_polled_turn(&self, now: Time) {
        let mut locked = self.lock();
        if self.take_ack_turn(&mut locked, now) {
            return;
        }
        let lossy = locked.traits.is_some_and(|traits| !traits.lossless);
        let may_answer = self.qp_type != QpType::XrcRecv;
        let may_wait = lossy && may_answer && !locked.queued && !locked.retired;
        if may_wait && locked.transport.owed_ack().is_some() {
            if !std::mem::replace(&mut locked.holds_ack, true) {
                self.services().push_ready(self.me());
            }
            return;
        }
        self.transmit(&mut locked, now);
        self.keep_timer(&mut locked);
    }

    /// Goes on after the shared receive queue, which was found empty, got work requests. Returns
    /// whether its peer still waits for that.
    pub(crate) fn on_recv_available(&self) -> bool {
        self.step(|locked, _| !locked.retired && locked.transport.on_recv_available())
    }

    /// The process that was asked for a receive has answered.
    pub(crate) fn on_recv_answer(&self, there: bool) {
        self.step(|locked, _| {
            if !locked.retired {
                locked.transport.on_recv_answer(there);
            }
        });
    }

    /// A packet for a queue pair of another process was dropped there, says that. Does nothing if
    /// that is not this one's peer.
    pub(crate) fn on_dropped(&self, by: Origin, now: Time) {
        let mut locked = self.lock();
        if !locked.comes_from(by) {
            return;
        }
        // The peer's last message may still be in a short ring, and say there what the peer has
        // taken.
        self.run_short_rings(&mut locked, now);
        locked.short_rings.close_out();
        self.with_cx(&mut locked, now, |locked, cx| {
            locked.transport.on_dropped(cx)
        });
        self.on_chunk_dropped(&mut locked, now);
        self.transmit(&mut locked, now);
        self.keep_timer(&mut locked);
    }

    /// A completion queue overflowed. Does nothing unless completions of this queue pair go there.
    pub(crate) fn on_overflow_of(&self, cq: &Cq) {
        if self.queues.complete_to(cq) {
            self.step(|locked, cx| {
                if !locked.retired {
                    locked.transport.on_cq_overflow(cx);
                }
            });
        }
    }

    /// A process is gone. Does nothing unless the path ended there.
    pub(crate) fn on_process_gone(&self, now: Time) {
        let mut locked = self.lock();
        if !locked.path.as_ref().is_some_and(Path::is_dead) {
            return;
        }
        fail_soon(&mut locked, now);
        self.keep_timer(&mut locked);
    }

    /// Fails work for a process that is gone, once its time has come.
    pub(super) fn fail_if_due(&self, locked: &mut Locked, now: Time) {
        if locked.fails_at.is_none_or(|at| at > now) {
            return;
        }
        locked.fails_at = None;
        if locked.path.as_ref().is_some_and(Path::is_dead) {
            self.take_short_ring_acks(locked, now, &mut DirectDelivery::default());
            self.with_cx(locked, now, |locked, cx| locked.transport.on_peer_dead(cx));
            // Or its descriptors would stay as long as the queue pair.
            locked.known_peer = KnownPeer::default();
            self.on_chunk_dropped(locked, now);
        } else {
            self.look_at_tcp(locked, now);
        }
    }

    /// Whether the transport may look at a packet.
    fn admit(
        &self,
        locked: &Locked,
        came: Ingress<'_>,
        packet: &Packet<'_>,
    ) -> Result<Admitted, DropReason> {
        if self.qp_type == QpType::Ud {
            let sender = packet.ext.deth.map(|deth| deth.src_qp);
            return came.admit_datagram(sender, self);
        }
        let path = locked.path.as_ref().ok_or(DropReason::State)?;
        path.admit(came)
    }
}

impl PathAddresses for Qp {
    fn is_own(&self, gid: Gid) -> bool {
        self.pd.context().device().has_address(gid.ip())
    }

    fn is_local(&self, gid: Gid) -> bool {
        self.services().is_local(gid.ip())
    }

    fn loops_on_wire(&self) -> bool {
        self.services().policy == Policy::Wire
    }
}

/// Gives the transport Middle packets that it takes together, unless somebody wants to read of
/// every packet. Returns them, and the others.
fn take_batch<'r, 'a>(
    locked: &mut Locked,
    cx: &mut Cx<'_>,
    came: Ingress<'_>,
    packets: &'r [&'a [u8]],
) -> (&'r [&'a [u8]], &'r [&'a [u8]]) {
    let may =
        packets.len() > 1 && !tracing::enabled!(target: "ferroce::packet", tracing::Level::TRACE);
    let path = locked.path.as_ref().filter(|_| may);
    let count = match path.map(|path| path.admit(came)) {
        Some(Ok(admitted)) => locked.transport.on_receive_batch(cx, packets, admitted),
        _ => 0,
    };
    packets.split_at(count)
}

/// An acknowledgement behind a request, and the other packets. It is looked at first, as if it had
/// come first: the request may be the end of the queue pair.
fn split_word<'r, 'a>(packets: &'r [&'a [u8]]) -> (&'r [&'a [u8]], &'r [&'a [u8]]) {
    let info = |packet: &[u8]| packet.first().and_then(|&opcode| Opcode(opcode).info());
    let is_request = |info: OpInfo| !info.operation.is_response();
    match packets {
        [request, word]
            if info(request).is_some_and(is_request)
                && word.first() == Some(&Opcode::RC_ACKNOWLEDGE.0) =>
        {
            (&packets[1..], &packets[..1])
        }
        _ => (&[], packets),
    }
}

/// The process at the end of the path is gone. Its work fails after [`LAST_LOOK`].
pub(super) fn fail_soon(locked: &mut Locked, now: Time) {
    locked.fails_at.get_or_insert(now + LAST_LOOK);
}

#[cfg(test)]
mod tests {
    use ferroce_proto::wire::{Operation, Position};

    use super::*;

    #[test]
    fn an_acknowledgement_behind_a_request_is_looked_at_first() {
        let packet = |opcode: Opcode, number| vec![opcode.0, number];
        let rc = |operation| Opcode::rc(operation, Position::Only);
        let (write, word) = (rc(Operation::Write), Opcode::RC_ACKNOWLEDGE);
        let order = |opcodes: &[Opcode]| {
            let packets: Vec<_> = opcodes
                .iter()
                .zip(0..)
                .map(|(&o, n)| packet(o, n))
                .collect();
            let slices: Vec<_> = packets.iter().map(Vec::as_slice).collect();
            let (first, others) = split_word(&slices);
            let numbers = first.iter().chain(others).map(|packet| packet[1]);
            numbers.collect::<Vec<_>>()
        };
        assert_eq!(order(&[write, word]), [1, 0]);
        // The acknowledgement says that the response had been sent.
        assert_eq!(order(&[rc(Operation::ReadResponse), word]), [0, 1]);
        assert_eq!(order(&[write, write]), [0, 1]);
        assert_eq!(order(&[word]), [0]);
        assert_eq!(order(&[write, write, word]), [0, 1, 2]);
    }
}
