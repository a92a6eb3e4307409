//! What is under way between two nodes, and what time does to it.

use alloc::vec::Vec;
use core::time::Duration;

use super::Pair;
use crate::ids::Psn;
use crate::testkit::link::Channel;
use crate::testkit::{Faults, Side};
use crate::time::Time;
use crate::wire::{Brief, Bth, ExtHeaders, Opcode, Packet};

impl Pair {
    /// Sets what goes wrong in both directions.
    pub fn set_faults(&mut self, faults: Faults) {
        (self.to_a.faults, self.to_b.faults) = (faults, faults);
    }

    /// Holds back everything that is under way to a node, or lets it go.
    pub fn pause_into(&mut self, side: Side, paused: bool) {
        self.channel_into(side).paused = paused;
    }

    /// Loses everything that is sent to a node from now on, or stops losing.
    pub fn cut_into(&mut self, side: Side, cut: bool) {
        self.channel_into(side).cut = cut;
    }

    /// Forgets what is under way to a node.
    pub fn lose_into(&mut self, side: Side) {
        self.channel_into(side).clear();
    }

    fn channel_into(&mut self, side: Side) -> &mut Channel {
        match side {
            Side::A => &mut self.to_a,
            Side::B => &mut self.to_b,
        }
    }

    /// Hands a made-up packet to a node as if its peer had sent it. Returns whether it was taken.
    pub fn inject(
        &mut self,
        into: Side,
        opcode: Opcode,
        psn: Psn,
        (ext, payload): (ExtHeaders, &[u8]),
    ) -> bool {
        let bth = Bth {
            ack_req: true,
            ..Bth::new(opcode, Self::qpn(into), psn)
        };
        let packet = Packet { bth, ext, payload };
        let now = self.now;
        self.node(into)
            .with(now, |qp, cx| qp.on_packet(cx, &packet))
    }

    /// Lets both ends send what they can, then goes to the next arrival or deadline before `until`.
    /// Returns false if there is none.
    pub fn step(&mut self, until: Time) -> bool {
        self.transmit(Side::A);
        self.transmit(Side::B);
        let deadlines = [self.a.qp.deadline(), self.b.qp.deadline()];
        let arrivals = [self.to_a.next(), self.to_b.next()];
        let next = deadlines.into_iter().chain(arrivals).flatten().min();
        let Some(next) = next.filter(|&at| at <= until) else {
            return false;
        };
        self.now = self.now.max(next);
        self.deliver(Side::A);
        self.deliver(Side::B);
        self.expire(Side::A);
        self.expire(Side::B);
        true
    }

    /// Steps until `done`.
    ///
    /// # Panics
    /// It does not come true within `limit` of virtual time.
    #[track_caller]
    pub fn until(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) {
        let end = self.now + limit;
        let seed = self.setup.seed;
        while !done(self) {
            assert!(
                self.step(end),
                "nothing happens any more, seed {seed}:\n{:?}\n{:?}\nA: {:?}\nB: {:?}",
                self.a.results,
                self.b.results,
                self.a.qp,
                self.b.qp
            );
        }
    }

    /// Steps until nothing is under way and nothing is due within `limit`.
    pub fn settle(&mut self, limit: Duration) {
        let end = self.now + limit;
        while self.step(end) {}
    }

    /// Pulls all packets out of a node and checks that it says truly whether it has any.
    ///
    /// # Panics
    /// It did not.
    pub fn transmit(&mut self, side: Side) {
        self.transmit_short(side);
        let mut buffer = core::mem::take(&mut self.buffer);
        loop {
            buffer.clear();
            let (now, briefly) = (self.now, self.briefs.is_some());
            let (wanted, sent, wants) = self.node(side).with(now, |qp, cx| {
                let wanted = qp.wants_transmit();
                let sent = if briefly && qp.owes_only_ack() {
                    buffer.extend(qp.ack());
                    qp.on_ack_sent();
                    true
                } else {
                    qp.poll_transmit(cx, &mut buffer)
                };
                (wanted, sent, qp.wants_transmit())
            });
            assert!(wanted || !sent, "sent without wanting to");
            assert!(sent || !wants, "wants to send, but does not");
            assert_eq!(sent, !buffer.is_empty());
            if !sent {
                break;
            }
            self.put_under_way(side, &buffer);
        }
        self.buffer = buffer;
    }

    fn transmit_short(&mut self, side: Side) {
        let Some(shorts) = self.shorts else {
            return;
        };
        let (timed, mut out) = (self.node(side).qp.needs_time_to_send(), Vec::new());
        let now = if timed { self.now } else { Time(1) };
        let first = self.node(side).with(now, |qp, cx| {
            let first = qp.poll_short(cx, &mut out);
            assert!(
                first.is_none() || !qp.wants_transmit(),
                "there is more to send"
            );
            first
        });
        let Some(first) = first else {
            assert!(out.is_empty(), "bytes of no packet");
            return;
        };
        self.shorts = Some(shorts + 1);
        let (acknowledgement, message) = out.split_at(first);
        if !acknowledgement.is_empty() {
            self.put_under_way(side, acknowledgement);
        }
        self.put_under_way(side, message);
    }

    fn put_under_way(&mut self, from: Side, packet: &[u8]) {
        if let Some(trace) = &mut self.trace {
            trace.push((from, packet.to_vec()));
        }
        let channel = match from {
            Side::A => &mut self.to_b,
            Side::B => &mut self.to_a,
        };
        channel.send(self.now, &mut self.rng, packet);
    }

    fn deliver(&mut self, side: Side) {
        let now = self.now;
        let mut arrived = Vec::new();
        while let Some(bytes) = self.channel_into(side).receive(now) {
            arrived.push(bytes);
        }
        let arrived: Vec<&[u8]> = arrived.iter().map(Vec::as_slice).collect();
        let mut next = 0;
        while let Some(&bytes) = arrived.get(next) {
            if self.briefs.is_some() {
                let rest = &arrived[next..];
                let together = self
                    .node(side)
                    .with(now, |qp, cx| qp.on_receive_batch(cx, rest));
                self.batch += together;
                next += together;
                if together > 0 {
                    continue;
                }
            }
            next += 1;
            let packet = Packet::parse(bytes).expect("invariant: we sent a well-formed packet");
            assert_eq!(packet.bth.dest_qp, Self::qpn(side));
            let brief = Brief::parse(bytes).filter(|_| self.briefs.is_some());
            let node = self.node(side);
            let briefly = node.with(now, |qp, cx| qp.on_brief(cx, brief.as_ref()?));
            let taken =
                briefly.unwrap_or_else(|| node.with(now, |qp, cx| qp.on_packet(cx, &packet)));
            if let Some(briefs) = self.briefs.as_mut().filter(|_| briefly.is_some()) {
                *briefs += 1;
            }
            if !taken && self.setup.link.lossless {
                let sender = self.node(side.peer());
                sender.with(now, |qp, cx| qp.on_dropped(cx));
            }
        }
    }

    fn expire(&mut self, side: Side) {
        let now = self.now;
        self.node(side).with(now, |qp, cx| {
            if qp.deadline().is_some_and(|at| at <= now) {
                qp.on_deadline(cx);
            }
            assert!(
                qp.deadline().is_none_or(|at| at > now),
                "a deadline stays in the past"
            );
        });
    }
}
