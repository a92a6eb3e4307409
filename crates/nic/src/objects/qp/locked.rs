//! What the lock of a queue pair guards.

use std::sync::Arc;

use ferroce_os::ring::LONGEST_IN_SLOT;
use ferroce_proto::rc::LinkTraits;
use ferroce_proto::time::Time;

use super::Qp;
use super::datagram::LastDestination;
use super::fast::ShortRings;
use super::fast::delayed_ack::PacketDelayedAck;
use super::fast::eligibility::Eligibility;
use super::ferroce_peer::PeerQuestion;
use super::paced::Paced;
use super::share::QpShare;
use super::step::Now;
use super::tags::PacketTags;
use super::transport::Transport;
use crate::link::Batch;
use crate::link::Origin;
use crate::link::path::{Egress, Path, PathReport, Reach};
use crate::link::stream::Stream;
use crate::objects::qp::fast::rights_cache::QpMemo;
use crate::services::direct::KnownPeer;

/// What the lock of a queue pair guards.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) transport: Transport,
    /// Where packets go; known from RTR on.
    pub(super) path: Option<Path>,
    /// The TCP connection, on iWARP.
    pub(super) stream: Option<Box<Stream>>,
    /// What the transport was told about it.
    pub(super) traits: Option<LinkTraits>,
    /// The queue pair's part of what may be in flight to its peer's process, of a reliable queue
    /// pair on the wire.
    pub(super) share: Option<Box<QpShare>>,
    /// The alternate path and its traits, once one is loaded.
    pub(super) alternate: Option<(Path, LinkTraits)>,
    /// When its state was last worked on.
    pub(super) seen: Time,
    /// The entry in the table of timers.
    pub(super) timer: Option<Time>,
    /// In the ready list, or waiting for its link: it will have a turn to transmit.
    pub(super) queued: bool,
    /// In the ready list for an acknowledgement that waits for something to go with.
    pub(super) holds_ack: bool,
    /// What short messages need not look at again.
    pub(super) eligibility: Eligibility,
    /// Which way its work went.
    pub(super) report: PathReport,
    /// Whether acknowledgements wait for the program's answers.
    pub(super) delayed_ack: PacketDelayedAck,
    /// Whether its peer was asked if it is a Ferroce.
    pub(super) asked: PeerQuestion,
    /// Memory that it shares with its peer alone.
    pub(super) short_rings: ShortRings,
    /// Regions that short messages used last: to send from, and to receive into.
    pub(super) memos: [QpMemo; 2],
    /// Tags of its packets on the wire.
    pub(super) tags: PacketTags,
    /// Room for what goes into a ring slot behind a header.
    pub(super) room: [u8; LONGEST_IN_SLOT],
    /// Room for a short message, and an acknowledgement before it.
    pub(super) short: Batch,
    /// The process on whose memory it worked last without packets.
    pub(super) known_peer: KnownPeer,
    /// Where the last datagram went.
    pub(super) known: Option<LastDestination>,
    /// Until when a datagram waits for its link, which is full.
    pub(super) waits_until: Option<(Time, Arc<Egress>)>,
    /// Until when it waits for an answer that opens the window of its receiver.
    pub(super) paused: Option<(Time, Paced)>,
    /// When work for a process that is gone fails.
    pub(super) fails_at: Option<Time>,
    /// When a bind or local invalidate is tried again.
    pub(super) closes_at: Option<Time>,
    /// Destroyed: nothing happens any more.
    pub(super) retired: bool,
    /// What peers of this host were told that it grants; none: they have to be told.
    pub(super) granted: Option<u64>,
}

impl Locked {
    pub(super) fn new(transport: Transport) -> Self {
        Self {
            transport,
            path: None,
            stream: None,
            traits: None,
            share: None,
            alternate: None,
            seen: Time::default(),
            timer: None,
            queued: false,
            holds_ack: false,
            eligibility: Eligibility::default(),
            report: PathReport::default(),
            delayed_ack: PacketDelayedAck::default(),
            asked: PeerQuestion::default(),
            short_rings: ShortRings::default(),
            memos: Default::default(),
            tags: PacketTags::default(),
            room: [0; LONGEST_IN_SLOT],
            short: Batch::default(),
            known_peer: KnownPeer::default(),
            known: None,
            waits_until: None,
            paused: None,
            fails_at: None,
            closes_at: None,
            retired: false,
            granted: Some(0),
        }
    }

    /// Puts another path, or none, in the place of the one that it has.
    pub(super) fn set_path(&mut self, qp: &Qp, path: Option<(Path, LinkTraits)>) {
        if let Some(Path {
            reach: Reach::Link(egress),
            ..
        }) = &self.path
        {
            // A link that is full may stay so for long: the new path must not wait for it.
            egress.leave(qp);
            self.queued = false;
            if self.short_rings.close() {
                egress.send_frame(&Qp::frame_of_end(self, qp.qpn));
            }
        }
        if let Some((_, egress)) = self.waits_until.take() {
            egress.leave(qp);
            self.queued = false;
        }
        if let Some((_, paced)) = self.paused.take() {
            paced.flow.leave(qp);
            self.queued = false;
        }
        (self.path, self.traits) = path.unzip();
        self.known_peer = KnownPeer::default();
        // A grant names the path.
        self.granted = None;
    }

    /// The alternate path is the path from here.
    pub(super) fn use_alternate(&mut self, qp: &Qp) {
        if let Some((path, traits)) = self.alternate.take() {
            tracing::debug!(target: "ferroce::qp", qpn = qp.qpn.get(), to = %path.addressing.dst.ip(), "migrated to the alternate path");
            self.transport.set_link(traits);
            self.set_path(qp, Some((path, traits)));
        }
    }

    /// Whether its path leads to a queue pair of this host from which something came.
    pub(super) fn comes_from(&self, origin: Origin) -> bool {
        let path = self.path.as_ref();
        path.is_some_and(|path| path.origin == origin)
    }

    /// The time for what the program posts to be sent. Where nothing depends on it, it is the time
    /// of the last step: to look at the clock costs more than anything else that a short message
    /// needs.
    pub(super) fn time_of_post(&self, now: &mut Now) -> Time {
        if self.transport.needs_time_to_send() {
            now.look();
        }
        now.known().unwrap_or(self.seen)
    }

    #[inline]
    pub(super) fn deadline(&self) -> Option<Time> {
        let wait = self.waits_until.as_ref().map(|(until, _)| *until);
        let pause = self.paused.as_ref().map(|(until, _)| *until);
        let ask = self.tags.deadline();
        let held = self.stream.as_ref().and_then(|s| s.held_until());
        let others = [
            held,
            wait,
            pause,
            ask,
            self.delayed_ack.due(),
            self.fails_at,
            self.closes_at,
        ];
        others
            .into_iter()
            .fold(self.transport.deadline(), Time::sooner)
    }
}
