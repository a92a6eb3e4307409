//! The receiving ends of links: new ones are accepted, all are read, in turns.
//!
//! The process at the other end may run as any user and send anything; what is checked is said in [`accepted`](super::accepted). A link that breaks
//! a rule is closed, which its peer sees as our end. The number of links is bounded, and so is the work of a call.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use ferroce_os::eventfd::EventFd;
use ferroce_os::fd;
use ferroce_os::unix::{Identity, Record as Arrival, SeqListener, SeqSocket, Waiting};
use ferroce_proto::time::Time;

use super::accepted::{Broken, Link};
use super::frame::{self, Answer, Frame, MAX_RECORD, Record};
use super::local_frame::LocalFrame;
use super::packets::parse_single;
use super::quota::{Admission, Quota};
use super::rings::Rings;
use crate::core::{Asker, Counters, Denial};

/// Records of a stranger that are looked at when its link is closed; more are closed as if they had descriptors.
const LAST_LOOKS: usize = 16;

/// Names an accepted link. Not that of another one that [`Incoming`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LinkId(pub(crate) u32);

/// What a call of [`Incoming::accept`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// A new link.
    New(LinkId),
    /// A link was refused; there may be more.
    Refused,
    /// No link waits, or none can be taken now.
    Nothing,
}

/// What a call of [`Incoming::recv`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The link is the one of a slot's process from here on; there may be more.
    Greeted(u16),
    /// Nothing more is there.
    Drained,
    /// The budget is used up; there may be more.
    More,
    /// The link is closed and forgotten: the process of the slot is gone. No slot: it never said hello.
    Closed(Option<u16>),
    /// The link was cut and is forgotten: the process of the slot broke the rules; it may live on.
    Cut(Option<u16>),
}

/// Links that other processes have made to this one.
#[derive(Debug)]
pub(crate) struct Incoming {
    identity: Identity,
    /// Other users' processes get no link.
    own_user: bool,
    /// Lanes of rings are looked at, too.
    lanes: bool,
    listener: SeqListener,
    links: HashMap<LinkId, Link>,
    quota: Quota,
    /// Closed links of strangers in whose sockets descriptors wait.
    poisoned: Vec<SeqSocket>,
    /// Those whose records come through a ring that is watched now.
    rings: Rings,
    next: u32,
    room: Vec<u8>,
    /// A descriptor to give up when there are no more, so that connections can still be refused.
    reserve: Option<EventFd>,
    counters: Arc<Counters>,
}

impl Incoming {
    /// `lanes`: those of rings are looked at, too.
    pub(super) fn new(
        listener: SeqListener,
        (lanes, identity, own_user): (bool, Identity, bool),
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        Ok(Self {
            identity,
            own_user,
            lanes,
            listener,
            links: HashMap::new(),
            quota: Quota::new(fd::limit()),
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

    /// Takes the next new link.
    pub(crate) fn accept(&mut self, now: Time) -> Accepted {
        let socket = match self.listener.accept() {
            Ok(Some(socket)) => socket,
            Ok(None) => return Accepted::Nothing,
            Err(error) => {
                self.refuse(&error);
                return Accepted::Nothing;
            }
        };
        let Ok(peer) = socket.peer() else {
            return Accepted::Refused;
        };
        let (id, link) = (self.free_id(), Link::new(socket, peer, self.identity));
        // Root may still ask which paths there are.
        if self.own_user && !link.relation.is_trusted() {
            self.counters
                .count_denied(link.relation.into(), Denial::Peers);
            self.close(link);
            return Accepted::Refused;
        }
        let party = link.party();
        match self.quota.admit(id, party, now) {
            Admission::Admitted => {}
            Admission::InPlaceOf(oldest) => self.deny(oldest, Denial::Quota),
            Admission::Refused => {
                let asker = link.relation.into();
                self.counters.count_denied(asker, Denial::Quota);
                self.close(link);
                return Accepted::Refused;
            }
        }
        self.links.insert(id, link);
        Accepted::New(id)
    }

    /// A number that no link has. One is given out again after four thousand million links.
    fn free_id(&mut self) -> LinkId {
        loop {
            let id = LinkId(self.next);
            self.next = self.next.wrapping_add(1);
            if !self.links.contains_key(&id) {
                return id;
            }
        }
    }

    /// Closes a link that has said no hello.
    fn deny(&mut self, id: LinkId, why: Denial) {
        if let Some(link) = self.links.get(&id) {
            tracing::debug!(target: "ferroce::local", pid = link.peer.pid, uid = link.peer.uid, ?why, "link is denied");
            self.counters.count_denied(link.relation.into(), why);
        }
        self.forget(id);
    }

    /// Closes links that have said no hello in time.
    pub(crate) fn end_silence(&mut self, now: Time) {
        for id in self.quota.overdue(now) {
            self.deny(id, Denial::NoHello);
        }
    }

    /// When [`end_silence`](Self::end_silence) is to be called.
    pub(crate) fn silence_ends(&self) -> Option<Time> {
        self.quota.deadline()
    }

    /// Out of descriptors: were the connection left waiting, then the listener would stay readable for ever.
    fn refuse(&mut self, error: &io::Error) {
        tracing::warn!(target: "ferroce::local", %error, "cannot accept a link: a process is refused");
        self.reserve = None;
        if let Ok(Some(socket)) = self.listener.accept()
            && let Ok(peer) = socket.peer()
        {
            self.close(Link::new(socket, peer, self.identity));
        }
        self.reserve = EventFd::counter().ok();
    }

    /// The links of which it is not known yet whose they are.
    pub(crate) fn strangers(&self) -> Vec<LinkId> {
        self.quota.silent()
    }

    /// The links of a slot's process: of the one with this PID, if it is not 0, where the slot may have had several.
    pub(crate) fn links_of(&self, slot: u16, pid: i32) -> Vec<LinkId> {
        let same = |other| pid == 0 || other == 0 || other == pid;
        self.select(|link| link.slot == Some(slot) && same(link.peer.pid))
    }

    /// The links of a slot's processes that are gone, for all that the kernel knows. They are still to be read to their ends.
    pub(crate) fn ended_links_of(&self, slot: u16) -> Vec<LinkId> {
        self.select(|link| link.slot == Some(slot) && link.socket.has_hung_up())
    }

    fn select(&self, which: impl Fn(&Link) -> bool) -> Vec<LinkId> {
        let links = self.links.iter().filter(|(_, link)| which(link));
        links.map(|(id, _)| *id).collect()
    }

    /// Reads a link and gives each frame to `each`, until nothing is there or about `budget` frames were given (the rest of a
    /// record always is, up to 511 more).
    pub(crate) fn recv(
        &mut self,
        id: LinkId,
        budget: usize,
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> Received {
        let mut given = 0;
        while given < budget {
            match self.recv_once(id, budget - given, each) {
                Ok(Step::Took(frames)) => given += frames,
                Ok(Step::Greeted(slot)) => {
                    self.quota.greeted(id);
                    return Received::Greeted(slot);
                }
                Ok(Step::Nothing) => return Received::Drained,
                Ok(Step::Closed) => return Received::Closed(self.forget(id)),
                Err(why) => return self.cut(id, &why),
            }
        }
        Received::More
    }

    /// What is in the ring, or else the next record of the socket: it hangs up after the ring was filled for the last time.
    fn recv_once(
        &mut self,
        id: LinkId,
        budget: usize,
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> Result<Step, Broken> {
        let Some(link) = self.links.get_mut(&id) else {
            return Ok(Step::Closed);
        };
        if link.switched
            && let Some(ring) = link.ring.take()
        {
            self.rings
                .watch(id, link.sender().ok_or(Broken::Hello)?, ring);
        }
        if let Some(index) = self.rings.position(id) {
            let took = self.drain(index, budget, each)?;
            if took > 0 {
                return Ok(Step::Took(took));
            }
        }
        let Some(link) = self.links.get_mut(&id) else {
            return Ok(Step::Closed);
        };
        if !link.relation.is_trusted() && link.socket.waiting()? == Waiting::Descriptors {
            return Err(Broken::Descriptors);
        }
        let mut with = Vec::new();
        let got = if link.slot.is_none() && link.relation.is_trusted() {
            link.socket.recv_with(&mut self.room, &mut with)
        } else {
            link.socket.recv(&mut self.room)
        };
        match got? {
            Arrival::Nothing => Ok(Step::Nothing),
            Arrival::Closed if self.rings.has_more(id) => Ok(Step::Took(0)),
            Arrival::Closed => Ok(Step::Closed),
            Arrival::Truncated => Err(Broken::TooLong),
            Arrival::Whole(n) if link.slot.is_none() => {
                link.greet(
                    (self.identity, id, self.lanes, self.own_user),
                    &self.room[..n],
                    with,
                    each,
                )?;
                Ok(link.slot.map_or(Step::Took(1), Step::Greeted))
            }
            Arrival::Whole(n) => link.take(&self.room[..n], each).map(Step::Took),
        }
    }

    /// Gives the frames in a watched ring to `each`; returns their number.
    fn drain(
        &mut self,
        index: usize,
        budget: usize,
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> Result<usize, Broken> {
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
                    Record::Frame(Frame::Lane(notice)) => {
                        each(LocalFrame::Lane {
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
            link.answer(Answer::Room);
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
    pub(crate) fn look(&mut self) -> bool {
        self.rings.look()
    }

    /// As [`recv`](Self::recv) for the watched ring with an index, without a system call.
    pub(crate) fn recv_ring(
        &mut self,
        index: usize,
        budget: usize,
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> Received {
        match self.drain(index, budget, each) {
            Ok(given) if given < budget => Received::Drained,
            Ok(_) => Received::More,
            Err(why) => match self.watched_id(index) {
                Some(id) => self.cut(id, &why),
                None => Received::Drained,
            },
        }
    }

    /// Stops watching rings that bring nothing: `all` of them, or those that have not for long. Their peers send wake-ups from here
    /// on. Returns whether none is watched any more: if one has a record it is.
    /// `any` says whether there is something else of a process to look at.
    pub(crate) fn sleep(&mut self, all: bool, any: &mut dyn FnMut(u16) -> bool) -> bool {
        let links = &mut self.links;
        self.rings.sleep(all, any, &mut |id, ring| {
            if let Some(link) = links.get_mut(&id) {
                link.ring = Some(ring);
            }
        })
    }

    /// Something came from a process beside its rings' records.
    pub(crate) fn keep_awake(&mut self, slot: u16) {
        self.rings.keep_awake(slot);
    }

    /// Answers a question with one record, and ends the connection.
    pub(crate) fn tell(&mut self, id: LinkId, answer: &str) {
        if let Some(link) = self.links.get(&id)
            && let Err(error) = link.socket.send(&[IoSlice::new(answer.as_bytes())])
        {
            tracing::debug!(target: "ferroce::local", %error, "a question is not answered");
        }
        self.forget(id);
    }

    fn cut(&mut self, id: LinkId, why: &Broken) -> Received {
        let link = self.links.get(&id);
        let (slot, pid) = (link.and_then(|l| l.slot), link.map(|l| l.peer.pid));
        tracing::warn!(target: "ferroce::local", slot, pid, %why, "link is cut");
        let asker = link.map_or(Asker::OtherUser, |link| link.relation.into());
        self.counters.count_denied(asker, why.denial());
        Received::Cut(self.forget(id))
    }

    /// The socket of a link, for a peer played by hand.
    #[cfg(test)]
    pub(super) fn into_socket(mut self, id: LinkId) -> SeqSocket {
        self.links.remove(&id).expect("a link").socket
    }

    /// Closes a link; returns whose it was.
    fn forget(&mut self, id: LinkId) -> Option<u16> {
        self.rings.remove(id);
        let link = self.links.remove(&id)?;
        self.quota.remove(id, link.party());
        let slot = link.slot;
        self.close(link);
        slot
    }

    /// Closes a link. What a stranger has sent and nobody has read may have descriptors.
    fn close(&mut self, link: Link) {
        if link.relation.is_trusted() {
            return;
        }
        link.socket.shutdown();
        for _ in 0..LAST_LOOKS {
            match link.socket.waiting() {
                Ok(Waiting::Record) if link.socket.recv(&mut self.room).is_ok() => {}
                Ok(Waiting::Nothing | Waiting::Closed) => return,
                _ => break,
            }
        }
        self.poisoned.push(link.socket);
    }

    /// Sockets of strangers that are to be closed by [`unix::discard`](ferroce_os::unix::discard), and watched no more.
    pub(crate) fn take_poisoned(&mut self) -> Vec<SeqSocket> {
        std::mem::take(&mut self.poisoned)
    }
}

/// What was there to be received.
enum Step {
    /// The hello of a slot's process.
    Greeted(u16),
    /// This many frames.
    Took(usize),
    Nothing,
    Closed,
}
