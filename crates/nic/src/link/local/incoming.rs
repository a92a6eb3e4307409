//! The receiving ends of links.
//!
//! The process at the other end may run as any user and send anything. What is checked here: the first record is a hello of
//! our version; the claimed slot is really the sender's, if it is another user's process (by the credentials that the kernel
//! keeps for both sockets); queue pair numbers that it sends from are of its slot; wire packets come only from processes of our
//! own user, who alone could have received them; every length. A link that breaks a rule is closed, which its peer sees as our
//! end. The number of links is bounded, and so is the work of a call.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use ferroce_os::eventfd::EventFd;
use ferroce_os::fd::Fd;
use ferroce_os::unix::{Credentials, Record as Arrival, SeqListener, SeqSocket};
use ferroce_proto::ids::{Gid, Qpn};

use super::frame::{self, Frame, MAX_RECORD, Nonsense, Record};
use super::offer;
use super::{SLOTS, slot_name};
use crate::core::slot_of;
use crate::link::{Addressing, Inbound};

/// Links that other processes may have to this one: more than there are slots, since a dead one is noticed after its
/// successor may have come.
const MAX_LINKS: usize = 4096;

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
        addressing: Addressing,
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
    /// It has dropped a packet of ours.
    Dropped {
        /// Its slot.
        from_slot: u16,
        /// Our queue pair that sent the packet, as the peer says.
        qpn: Qpn,
        /// The queue pair that it was for, of the peer's slot.
        by: Qpn,
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
    listener: SeqListener,
    links: HashMap<LinkId, Link>,
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
    #[error("a wire packet from another user's process")]
    Forwarder,
    #[error("receiving failed: {0}")]
    Io(#[from] io::Error),
}

impl Incoming {
    pub(super) fn new(listener: SeqListener) -> io::Result<Self> {
        Ok(Self {
            own: Credentials::own(),
            listener,
            links: HashMap::new(),
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
            let Some(link) = self.links.get_mut(&id) else {
                return Received::Closed(None);
            };
            let mut with = Vec::new();
            let got = if link.slot.is_none() && is_trusted(link.peer, self.own) {
                link.socket.recv_with(&mut self.room, &mut with)
            } else {
                link.socket.recv(&mut self.room)
            };
            let one = match got {
                Ok(Arrival::Nothing) => return Received::Drained,
                Ok(Arrival::Closed) => return Received::Closed(self.forget(id)),
                Ok(Arrival::Truncated) => Err(Broken::TooLong),
                Ok(Arrival::Whole(n)) if link.slot.is_none() => link
                    .greet((&self.own, id), &self.room[..n], with, each)
                    .map(|()| 1),
                Ok(Arrival::Whole(n)) => link.take(&self.own, &self.room[..n], each),
                Err(e) => Err(e.into()),
            };
            match one {
                Ok(frames) => given += frames,
                Err(why) => {
                    let (slot, pid) = (link.slot, link.peer.pid);
                    tracing::warn!(target: "ferroce::local", slot, pid, %why, "link is cut");
                    return Received::Cut(self.forget(id));
                }
            }
        }
        Received::More
    }

    /// Closes a link; returns whose it was.
    fn forget(&mut self, id: LinkId) -> Option<u16> {
        self.links.remove(&id).and_then(|l| l.slot)
    }
}

impl Link {
    /// Gives the frames of a record to `each`; returns what they count.
    fn take(
        &mut self,
        own: &Credentials,
        record: &[u8],
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> Result<usize, Broken> {
        let (from_slot, frame) = match (self.slot, frame::parse(record)?) {
            (None, _) | (_, Record::Hello { .. }) => return Err(Broken::Hello),
            (Some(from_slot), Record::Packets(packets)) => {
                let (src_qpn, addressing) =
                    (owned(packets.src_qpn, from_slot)?, packets.addressing);
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
            (Some(from_slot), Record::Frame(frame)) => (from_slot, frame),
        };
        each(match frame {
            Frame::Forwarded(_) if self.peer.uid != own.uid => return Err(Broken::Forwarder),
            Frame::Forwarded(inbound) => LocalFrame::Forwarded(inbound),
            Frame::Mad { src, dst, mad } => LocalFrame::Mad {
                from_slot,
                src,
                dst,
                mad,
            },
            Frame::Dropped { qpn, by } => LocalFrame::Dropped {
                from_slot,
                qpn,
                by: owned(by, from_slot)?,
            },
        });
        Ok(1)
    }

    /// Takes the first record, and the descriptors that came with it.
    fn greet(
        &mut self,
        (own, link): (&Credentials, LinkId),
        record: &[u8],
        with: Vec<Fd>,
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> Result<(), Broken> {
        let Record::Hello {
            version,
            slot,
            offers,
        } = frame::parse(record)?
        else {
            return Err(Broken::Hello);
        };
        if version != frame::VERSION {
            return Err(Broken::Version(version));
        }
        if !(1..=SLOTS).contains(&slot) || !is_vouched(slot, self.peer, *own) {
            return Err(Broken::Slot(slot));
        }
        for offered in offer::parse(offers, with).ok_or(Broken::Offers)? {
            if let (offer::BOARD, [board]) = (offered.tag, &offered.descriptors[..])
                && self.peer.uid == own.uid
            {
                each(LocalFrame::Board {
                    from_slot: slot,
                    pid: self.peer.pid,
                    link,
                    board,
                });
                continue;
            }
            tracing::debug!(target: "ferroce::local", slot, tag = offered.tag, bytes = offered.value.len(),
                descriptors = offered.descriptors.len(), "an offer that this version does not know");
        }
        self.slot = Some(slot);
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
