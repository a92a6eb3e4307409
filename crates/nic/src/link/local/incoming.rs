//! The receiving ends of links: new ones are accepted, all are read, in turns.
//!
//! The process at the other end may run as any user and send anything; what is checked is said in
//! [`accepted`](super::accepted). A link that breaks a rule is closed, which its peer sees as our
//! end. The number of links is bounded, and so is the work of a call.

mod admission;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use ferroce_os::eventfd::EventFd;
use ferroce_os::fd;
use ferroce_os::unix::{Record as Arrival, Relation, SeqListener, SeqSocket, Waiting};
use ferroce_proto::time::Time;

pub(crate) use admission::Accepted;

use super::accepted::{BrokenLink, Link, LinkPolicy};
use super::frame::{self, Frame, LinkRecord, MAX_RECORD, RingAnswer};
use super::local_frame::LocalFrame;
use super::packets::parse_single;
use super::quota::LinkQuota;
use super::rings::Rings;
use crate::base::counters::Counters;
use crate::base::numbers::LinkId;

/// What a call of [`Incoming::recv`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkRead {
    /// The link is the one of a slot's process from here on; there may be more.
    Greeted(u16),
    /// Nothing more is there.
    Drained,
    /// The ring is drained, to which a wake-up had called. The poller reports what is behind that.
    Answered,
    /// The budget is used up; there may be more.
    More,
    /// The link is closed and forgotten: the process of the slot is gone. No slot: it never said
    /// hello.
    Closed(Option<u16>),
    /// The link was cut and is forgotten: the process of the slot broke the rules; it may live on.
    Cut(Option<u16>),
}

/// Links that other processes have made to this one.
#[derive(Debug)]
pub(crate) struct Incoming {
    policy: LinkPolicy,
    listener: SeqListener,
    links: HashMap<LinkId, Link>,
    quota: LinkQuota,
    /// Closed links of strangers in whose sockets descriptors wait.
    poisoned: Vec<SeqSocket>,
    /// Links whose records come through a ring that is watched now.
    rings: Rings,
    next: u32,
    room: Vec<u8>,
    /// A descriptor to give up when there are no more, so that connections can still be refused.
    reserve: Option<EventFd>,
    counters: Arc<Counters>,
}

impl Incoming {
    /// Listens for links of the processes that a policy lets in.
    pub(super) fn new(
        listener: SeqListener,
        policy: LinkPolicy,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        Ok(Self {
            policy,
            listener,
            links: HashMap::new(),
            quota: LinkQuota::new(fd::limit()),
            poisoned: Vec::new(),
            rings: Rings::default(),
            next: 0,
            room: vec![0; MAX_RECORD],
            reserve: Some(EventFd::counter()?),
            counters,
        })
    }

    /// The descriptor to watch for new links.
    pub(crate) fn listener_fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// The descriptor of a link, to watch for readability.
    pub(crate) fn fd(&self, id: LinkId) -> Option<RawFd> {
        self.links.get(&id).map(|l| l.socket.as_raw_fd())
    }

    /// Whether a link is another user's.
    pub(crate) fn is_foreign(&self, id: LinkId) -> bool {
        let link = self.links.get(&id);
        link.is_some_and(|link| link.user.relation == Relation::Foreign)
    }

    /// The links of which it is not known yet whose they are.
    pub(crate) fn strangers(&self) -> Vec<LinkId> {
        self.quota.silent()
    }

    /// The links of a slot's process: of the one with this PID, if it is not 0, where the slot may
    /// have had several.
    pub(crate) fn links_of(&self, slot: u16, pid: i32) -> Vec<LinkId> {
        let same = |other| pid == 0 || other == 0 || other == pid;
        self.select(|link| link.slot == Some(slot) && same(link.peer.pid))
    }

    /// The links of a slot's processes that are gone, for all that the kernel knows. They are still
    /// to be read to their ends.
    pub(crate) fn ended_links_of(&self, slot: u16) -> Vec<LinkId> {
        self.select(|link| link.slot == Some(slot) && link.socket.has_hung_up())
    }

    fn select(&self, which: impl Fn(&Link) -> bool) -> Vec<LinkId> {
        let links = self.links.iter().filter(|(_, link)| which(link));
        links.map(|(id, _)| *id).collect()
    }

    /// Reads a link and gives each frame to `each`, until nothing is there or about `budget` frames
    /// were given (the rest of a record always is, up to 511 more).
    pub(crate) fn recv(
        &mut self,
        id: LinkId,
        budget: usize,
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> LinkRead {
        let mut given = 0;
        while given < budget {
            match self.recv_once(id, budget - given, each) {
                Ok(TakeStep::Took(frames)) => given += frames,
                Ok(TakeStep::Greeted(slot)) => {
                    self.quota.greeted(id);
                    return LinkRead::Greeted(slot);
                }
                Ok(TakeStep::Nothing) => return LinkRead::Drained,
                Ok(TakeStep::Woken(frames)) if given + frames < budget => {
                    return LinkRead::Answered;
                }
                Ok(TakeStep::Woken(frames)) => given += frames,
                Ok(TakeStep::Closed) => return LinkRead::Closed(self.forget(id)),
                Err(why) => return self.cut(id, &why),
            }
        }
        LinkRead::More
    }

    /// What is in the ring, or else the next record of the socket: it hangs up after the ring was
    /// filled for the last time.
    fn recv_once(
        &mut self,
        id: LinkId,
        budget: usize,
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> Result<TakeStep, BrokenLink> {
        self.watch_ring(id)?;
        let watched = self.rings.position(id);
        if let Some(index) = watched {
            let took = self.drain(index, budget, each)?;
            if took > 0 {
                return Ok(TakeStep::Took(took));
            }
        }
        let Some(link) = self.links.get_mut(&id) else {
            return Ok(TakeStep::Closed);
        };
        if !link.user.relation.is_trusted() && link.socket.waiting()? == Waiting::Descriptors {
            return Err(BrokenLink::Descriptors);
        }
        let mut with = Vec::new();
        let got = if link.slot.is_none() && link.user.relation.is_trusted() {
            link.socket.recv_with(&mut self.room, &mut with)
        } else {
            link.socket.recv(&mut self.room)
        };
        match got? {
            Arrival::Nothing => Ok(TakeStep::Nothing),
            Arrival::Closed if self.rings.has_more(id) => Ok(TakeStep::Took(0)),
            Arrival::Closed => Ok(TakeStep::Closed),
            Arrival::Truncated => Err(BrokenLink::TooLong),
            Arrival::Whole(n) if link.slot.is_none() => {
                link.greet(self.policy, id, &self.room[..n], with, each)?;
                Ok(link.slot.map_or(TakeStep::Took(1), TakeStep::Greeted))
            }
            Arrival::Whole(1) if watched.is_some() && self.room[0] == frame::LOOK => {
                let took = watched.map(|index| self.drain(index, budget, each));
                took.unwrap_or(Ok(0)).map(TakeStep::Woken)
            }
            Arrival::Whole(n) => {
                let took = link.take(&self.room[..n], each)?;
                // The sender sends no wake-up for what it puts into the ring from its word on, and
                // this may be the last step of the call.
                self.watch_ring(id)?;
                Ok(TakeStep::Took(took))
            }
        }
    }

    /// Watches the ring of a link whose records come through it, unless it is watched already.
    fn watch_ring(&mut self, id: LinkId) -> Result<(), BrokenLink> {
        if let Some(link) = self.links.get_mut(&id)
            && link.switched
            && let Some(ring) = link.ring.take()
        {
            let sender = link.sender().ok_or(BrokenLink::Hello)?;
            self.rings.watch(id, sender, ring);
        }
        Ok(())
    }

    /// Gives the frames in a watched ring to `each`; returns their number.
    fn drain(
        &mut self,
        index: usize,
        budget: usize,
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> Result<usize, BrokenLink> {
        let Some(watched) = self.rings.at(index) else {
            return Ok(0);
        };
        let mut given = 0;
        while given < budget
            && let Some(record) = watched.pop(&mut self.room)?
        {
            let sender = watched.sender;
            given += match (parse_single(record), &*watched.route()) {
                (Some((src_qpn, bytes)), Some(addressing)) => {
                    each(LocalFrame::Packet {
                        origin: sender.origin(src_qpn)?,
                        addressing,
                        bytes,
                    });
                    1
                }
                _ => match frame::parse(record)? {
                    LinkRecord::Frame(Frame::ShortRing(notice)) => {
                        each(LocalFrame::ShortRing {
                            origin: sender.origin(notice.from)?,
                            area: watched.area(),
                            notice,
                        });
                        1
                    }
                    record => sender.take(record, watched.route(), each)?,
                },
            };
        }
        if given > 0
            && watched.wakes_peer()
            && let Some(link) = self.links.get(&watched.id)
        {
            link.answer(RingAnswer::Room);
        }
        Ok(given)
    }

    /// How many rings are watched: [`recv_ring`](Self::recv_ring) takes their indices.
    pub(crate) fn watched(&self) -> usize {
        self.rings.len()
    }

    /// The link of the watched ring with an index.
    pub(crate) fn watched_id(&mut self, index: usize) -> Option<LinkId> {
        self.rings.at(index).map(|w| w.id)
    }

    /// Whether a watched ring has a record.
    pub(crate) fn look(&self) -> bool {
        self.rings.look()
    }

    /// As [`recv`](Self::recv) for the watched ring with an index, without a system call.
    pub(crate) fn recv_ring(
        &mut self,
        index: usize,
        budget: usize,
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> LinkRead {
        match self.drain(index, budget, each) {
            Ok(given) if given < budget => LinkRead::Drained,
            Ok(_) => LinkRead::More,
            Err(why) => match self.watched_id(index) {
                Some(id) => self.cut(id, &why),
                None => LinkRead::Drained,
            },
        }
    }

    /// Stops watching rings that have brought nothing for long `now`, or all of them if that is
    /// `None`. Their peers send wake-ups from here on. Returns whether none is watched any more: if
    /// one has a record it is. `any` says whether there is something else of a process to look at.
    pub(crate) fn sleep(&mut self, now: Option<Time>, any: &mut dyn FnMut(u16) -> bool) -> bool {
        let links = &mut self.links;
        self.rings.sleep(now, any, &mut |id, ring| {
            if let Some(link) = links.get_mut(&id) {
                link.ring = Some(ring);
            }
        })
    }

    /// Something came from a process beside its rings' records.
    pub(crate) fn keep_awake(&mut self, slot: u16) {
        self.rings.keep_awake(slot);
    }
}

/// What was there to be received.
enum TakeStep {
    /// The hello of a slot's process.
    Greeted(u16),
    /// This many frames.
    Took(usize),
    /// A wake-up, and the number of frames that the ring had by then.
    Woken(usize),
    Nothing,
    Closed,
}
