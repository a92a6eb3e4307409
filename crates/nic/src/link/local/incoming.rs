//! The receiving ends of links.
//!
//! The process at the other end may run as any user and send anything. What is checked here: the first record is a hello of
//! our version, or the question of `crate::survey`; the claimed slot is really the sender's, if it is another user's process (by the credentials that the kernel
//! keeps for both sockets); queue pair numbers that it sends from are of its slot; wire packets come only from processes of our
//! own user, who alone could have received them; every length. A link that breaks a rule is closed, which its peer sees as our
//! end. The number of links is bounded, and so is the work of a call.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use ferroce_os::eventfd::EventFd;
use ferroce_os::fd::Fd;
use ferroce_os::ring::{self, Refused, SharedArea};
use ferroce_os::unix::{Credentials, Record as Arrival, SeqListener, SeqSocket};
use ferroce_proto::ids::{Gid, Qpn};

use super::frame::{self, Answer, Frame, LaneNotice, MAX_RECORD, Nonsense, Record};
use super::offer::{self, Offered};
use super::rings::{Inlet, Rings};
use super::{Lending, SLOTS, Sharing, slot_name};
use crate::core::slot_of;
use crate::link::{Addressing, Inbound};

/// Links that other processes may have to this one: more than there are slots, since a dead one is noticed after its
/// successor may have come.
const MAX_LINKS: usize = 4096;

/// Bytes of a peer's ring at most.
const MAX_RING: u32 = 4 << 20;

/// Names an accepted link. Never given out twice by one [`Incoming`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LinkId(pub(crate) u32);

/// What another process sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LocalFrame<'a> {
    /// A packet from one of its queue pairs.
    Packet {
        /// Its slot.
        from_slot: u16,
        /// The queue pair, of that slot.
        src_qpn: Qpn,
        /// What would be in the IP header.
        addressing: &'a Addressing,
        /// BTH through pad; not checked.
        bytes: &'a [u8],
    },
    /// A packet that it received over the wire (and whose ICRC was right there) and that is for this process.
    Forwarded(Inbound<'a>),
    /// A management datagram for QP1.
    Mad {
        /// Its slot.
        from_slot: u16,
        /// Source GID.
        src: Gid,
        /// Destination GID.
        dst: Gid,
        /// The MAD; not checked.
        mad: &'a [u8; 256],
    },
    /// It offers its board (`crate::direct`).
    Board {
        /// Its slot.
        from_slot: u16,
        /// The process, of our own user.
        pid: i32,
        /// The link, which tells when it is gone.
        link: LinkId,
        /// The board; not checked.
        board: &'a Fd,
    },
    /// About a lane of its ring.
    Lane {
        /// Its slot.
        from_slot: u16,
        /// The ring's memory.
        area: &'a Arc<SharedArea>,
        /// What it says.
        notice: LaneNotice,
    },
    /// It has dropped a packet of ours.
    Dropped {
        /// Its slot.
        from_slot: u16,
        /// Our queue pair that sent the packet, as the peer says.
        qpn: Qpn,
        /// The queue pair that it was for, of the peer's slot.
        by: Qpn,
    },
    /// Somebody of our own user, or root, wants to know which paths this process has: [`Incoming::tell`] answers.
    Question(LinkId),
    /// About receives that one process lends to another.
    Lending {
        /// Its slot.
        from_slot: u16,
        /// What it says.
        lending: Lending<'a>,
    },
    /// Memory of that process is shared no more.
    Unshared {
        /// Its slot.
        from_slot: u16,
        /// The memory's number.
        number: u64,
    },
    /// About a target that one process has opened of another.
    Sharing {
        /// Its slot.
        from_slot: u16,
        /// What it says.
        sharing: Sharing<'a>,
    },
}

/// What a call of [`Incoming::recv`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
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
    own: Credentials,
    /// Lanes of rings are looked at, too.
    lanes: bool,
    listener: SeqListener,
    links: HashMap<LinkId, Link>,
    /// Those whose records come through a ring that is watched now.
    rings: Rings,
    next: u32,
    room: Vec<u8>,
    /// A descriptor to give up when there are no more, so that connections can still be refused.
    reserve: Option<EventFd>,
}

#[derive(Debug)]
struct Link {
    socket: SeqSocket,
    peer: Credentials,
    /// After the hello.
    slot: Option<u16>,
    /// The process runs as our own user.
    is_own_user: bool,
    /// Its ring, unless it is watched.
    ring: Option<Inlet>,
    /// All records come through the ring.
    switched: bool,
}

/// Who sends on a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    slot: u16,
    /// It is of our own user and may pass on packets from the wire.
    forwards: bool,
}

/// Why a link is cut.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Nonsense(#[from] Nonsense),
    #[error("a record longer than {MAX_RECORD} bytes")]
    TooLong,
    #[error("no hello at the start, or one later on")]
    Hello,
    #[error("a hello whose offers make no sense")]
    Offers,
    #[error("version {0} of the local link; this process has version {VERSION}", VERSION = frame::VERSION)]
    Version(u16),
    #[error("slot {0} is not the sender's")]
    Slot(u16),
    #[error("{0:?} is not the sender's")]
    Qpn(Qpn),
    #[error("packets on a route that was not told")]
    Route,
    #[error("a record on the socket beside the ring, or about a ring that there is not")]
    Socket,
    #[error(transparent)]
    Ring(#[from] ring::Broken),
    #[error("a wire packet from another user's process")]
    Forwarder,
    #[error("a question from another user's process")]
    Curious,
    #[error("receiving failed: {0}")]
    Io(#[from] io::Error),
}

impl Incoming {
    /// `lanes`: those of rings are looked at, too.
    pub(super) fn new(listener: SeqListener, lanes: bool) -> io::Result<Self> {
        Ok(Self {
            own: Credentials::own(),
            lanes,
            listener,
            links: HashMap::new(),
            rings: Rings::default(),
            next: 0,
            room: vec![0; MAX_RECORD],
            reserve: Some(EventFd::counter()?),
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

    /// Takes the next new link. `None`: there is none now.
    pub(crate) fn accept(&mut self) -> Option<LinkId> {
        let socket = match self.listener.accept() {
            Ok(socket) => socket?,
            Err(error) => {
                self.refuse(&error);
                return None;
            }
        };
        let peer = socket
            .peer()
            .ok()
            .filter(|_| self.links.len() < MAX_LINKS)?;
        let id = LinkId(self.next);
        self.next = self.next.checked_add(1)?;
        self.links.insert(
            id,
            Link {
                socket,
                peer,
                slot: None,
                is_own_user: false,
                ring: None,
                switched: false,
            },
        );
        Some(id)
    }

    /// Out of descriptors: were the connection left waiting, then the listener would stay readable for ever.
    fn refuse(&mut self, error: &io::Error) {
        tracing::warn!(target: "ferroce::local", %error, "cannot accept a link: a process is refused");
        self.reserve = None;
        drop(self.listener.accept());
        self.reserve = EventFd::counter().ok();
    }

    /// The links of a slot's process, and those of which it is not known yet whose they are.
    pub(crate) fn links_of(&self, slot: u16) -> Vec<LinkId> {
        let theirs = self.links.iter();
        theirs
            .filter(|(_, link)| link.slot.is_none_or(|of| of == slot))
            .map(|(id, _)| *id)
            .collect()
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
                .watch(id, link.origin().ok_or(Broken::Hello)?, ring);
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
        let mut with = Vec::new();
        let got = if link.slot.is_none() && is_trusted(link.peer, self.own) {
            link.socket.recv_with(&mut self.room, &mut with)
        } else {
            link.socket.recv(&mut self.room)
        };
        match got? {
            Arrival::Nothing => Ok(Step::Nothing),
            Arrival::Closed if self.rings.has_more(id) => Ok(Step::Took(0)),
            Arrival::Closed => Ok(Step::Closed),
            Arrival::Truncated => Err(Broken::TooLong),
            Arrival::Whole(n) if link.slot.is_none() => link
                .greet((&self.own, id, self.lanes), &self.room[..n], with, each)
                .map(|()| Step::Took(1)),
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
            let origin = watched.origin;
            given += match (frame::parse_single(record), &*watched.route()) {
                (Some((src_qpn, bytes)), Some(addressing)) => {
                    each(LocalFrame::Packet {
                        from_slot: origin.slot,
                        src_qpn: owned(src_qpn, origin.slot)?,
                        addressing,
                        bytes,
                    });
                    1
                }
                _ => match frame::parse(record)? {
                    Record::Frame(Frame::Lane(notice)) => {
                        owned(notice.from, origin.slot)?;
                        each(LocalFrame::Lane {
                            from_slot: origin.slot,
                            area: watched.area(),
                            notice,
                        });
                        1
                    }
                    record => origin.take(record, watched.route(), each)?,
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
        self.links.remove(&id).and_then(|l| l.slot)
    }
}

/// What was there to be received.
enum Step {
    /// This many frames.
    Took(usize),
    Nothing,
    Closed,
}

impl Origin {
    pub(super) fn slot(self) -> u16 {
        self.slot
    }

    /// Gives the frames of a record to `each`; returns what they count.
    fn take(
        self,
        record: Record<'_>,
        route: &mut Option<Addressing>,
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> Result<usize, Broken> {
        let from_slot = self.slot;
        let frame = match record {
            Record::Packets(packets) => {
                let src_qpn = owned(packets.src_qpn, from_slot)?;
                *route = packets.addressing.or(*route);
                let addressing = route.as_ref().ok_or(Broken::Route)?;
                for bytes in packets.iter() {
                    each(LocalFrame::Packet {
                        from_slot,
                        src_qpn,
                        addressing,
                        bytes,
                    });
                }
                return Ok(packets.len());
            }
            Record::Frame(frame) => frame,
            Record::Hello { .. } | Record::Ask => return Err(Broken::Hello),
            Record::Switch | Record::Look => return Err(Broken::Socket),
        };
        each(match frame {
            // On the socket there is no ring.
            Frame::Lane(_) => return Err(Broken::Socket),
            Frame::Forwarded(_) if !self.forwards => return Err(Broken::Forwarder),
            Frame::Forwarded(inbound) => LocalFrame::Forwarded(inbound),
            Frame::Mad { src, dst, mad } => LocalFrame::Mad {
                from_slot,
                src,
                dst,
                mad,
            },
            Frame::Lending(_) | Frame::Sharing(_) | Frame::Unshared(_) if !self.forwards => {
                return Err(Broken::Forwarder);
            }
            Frame::Lending(lending) => LocalFrame::Lending { from_slot, lending },
            Frame::Sharing(sharing) => LocalFrame::Sharing { from_slot, sharing },
            Frame::Unshared(number) => LocalFrame::Unshared { from_slot, number },
            Frame::Dropped { qpn, by } => LocalFrame::Dropped {
                from_slot,
                qpn,
                by: owned(by, from_slot)?,
            },
        });
        Ok(1)
    }
}

impl Link {
    /// Takes a record from the socket of a link that has said hello.
    fn take(
        &mut self,
        record: &[u8],
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> Result<usize, Broken> {
        match frame::parse(record)? {
            Record::Look if self.switched => {}
            Record::Switch if self.ring.is_some() && !self.switched => self.switched = true,
            _ if self.switched => return Err(Broken::Socket),
            record => {
                // On the socket every record tells its route.
                let origin = self.origin().ok_or(Broken::Hello)?;
                return origin.take(record, &mut None, each);
            }
        }
        Ok(1)
    }

    fn origin(&self) -> Option<Origin> {
        Some(Origin {
            slot: self.slot?,
            forwards: self.is_own_user,
        })
    }

    /// Says something to the sender. That it cannot take it means that it is gone, or has not read what it has for long.
    fn answer(&self, answer: Answer) {
        if let Err(error) = self.socket.send(&[IoSlice::new(&[answer as u8])]) {
            tracing::debug!(target: "ferroce::local", slot = self.slot, ?answer, %error, "no answer");
        }
    }

    /// Takes the ring that is offered, or says why not.
    fn take_ring(&mut self, offered: &Offered<'_>, lanes: bool) {
        let taken = match (offered.value, &offered.descriptors[..]) {
            (&[a, b, c, d], [file]) => {
                let bytes = u32::from_le_bytes([a, b, c, d]);
                let fits = (bytes <= MAX_RING).then_some(bytes);
                let opened = fits.ok_or_else(|| Refused::Size(bytes.into()));
                opened
                    .and_then(|bytes| ring::open(file, bytes, lanes))
                    .map_err(|e| e.to_string())
            }
            _ => Err("it came without the memory file".to_owned()),
        };
        match taken {
            Ok(ring) => {
                self.ring = Some(Inlet::new(ring));
                self.answer(Answer::Accepted);
            }
            Err(why) => {
                tracing::debug!(target: "ferroce::local", slot = self.slot, %why, "a shared ring is not taken");
                self.answer(Answer::Refused);
            }
        }
    }

    /// Takes the first record, and the descriptors that came with it.
    fn greet(
        &mut self,
        (own, link, lanes): (&Credentials, LinkId, bool),
        record: &[u8],
        with: Vec<Fd>,
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> Result<(), Broken> {
        let (version, slot, offers) = match frame::parse(record)? {
            Record::Hello {
                version,
                slot,
                offers,
            } => (version, slot, offers),
            Record::Ask if is_trusted(self.peer, *own) => {
                each(LocalFrame::Question(link));
                return Ok(());
            }
            Record::Ask => return Err(Broken::Curious),
            _ => return Err(Broken::Hello),
        };
        if version != frame::VERSION {
            return Err(Broken::Version(version));
        }
        if !(1..=SLOTS).contains(&slot) || !is_vouched(slot, self.peer, *own) {
            return Err(Broken::Slot(slot));
        }
        self.is_own_user = self.peer.uid == own.uid;
        self.slot = Some(slot);
        let offers = offer::parse(offers, with).ok_or(Broken::Offers)?;
        let lanes = lanes && offers.iter().any(|offered| offered.tag == offer::LANES);
        for offered in offers {
            match (offered.tag, &offered.descriptors[..]) {
                (offer::RING, _) => self.take_ring(&offered, lanes),
                (offer::LANES, _) => {}
                (offer::BOARD, [board]) if self.is_own_user => each(LocalFrame::Board {
                    from_slot: slot,
                    pid: self.peer.pid,
                    link,
                    board,
                }),
                (tag, _) => {
                    tracing::debug!(target: "ferroce::local", slot, tag, "an unknown offer")
                }
            }
        }
        Ok(())
    }
}

/// Whether descriptors of a process are taken. A stranger's file could be one whose last close takes for ever.
fn is_trusted(peer: Credentials, own: Credentials) -> bool {
    peer.uid == own.uid || peer.uid == 0
}

/// The queue pair number, if it belongs to a slot.
fn owned(qpn: Qpn, slot: u16) -> Result<Qpn, Broken> {
    if slot_of(qpn) == slot {
        Ok(qpn)
    } else {
        Err(Broken::Qpn(qpn))
    }
}

/// Whether a process owns the slot that it claims. A process of our own user is believed: it could as well debug us.
pub(super) fn is_vouched(slot: u16, claimant: Credentials, own: Credentials) -> bool {
    claimant.uid == own.uid || owner(slot).is_ok_and(|owner| owner == claimant)
}

/// Who listens on a slot's name. The connection that this takes ends at once, before a hello.
fn owner(slot: u16) -> io::Result<Credentials> {
    SeqSocket::connect(&slot_name(slot))?.peer()
}
