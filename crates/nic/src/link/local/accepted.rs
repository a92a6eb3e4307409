//! A link that another process has made to this one: its hello, whose it is, and what it may say.
//!
//! The process at the other end may run as any user and send anything. Four things are checked
//! here. The first record is a hello of our version, or the question of `crate::survey`. The
//! claimed slot is really the sender's, if it is another user's process; the kernel keeps both
//! sockets' credentials. Queue pair numbers that it sends from are of its slot. Each length fits.
//! Whether it may pass on packets from the wire is checked where they are taken
//! (`Services::takes_wire_from`).

use std::io::{self, IoSlice};

use ferroce_os::fd::Fd;
use ferroce_os::ring::{self, Refused};
use ferroce_os::unix::{Credentials, Identity, LocalUser, Relation, SeqSocket};
use ferroce_proto::ids::Qpn;

use super::extras;
use super::extras::Offered;
use super::frame::{self, Frame, LinkRecord, MAX_RECORD, Nonsense, RingAnswer};
use super::local_frame::LocalFrame;
use super::quota::Party;
use super::rings::Inlet;
use super::{SLOTS, slots};
use crate::base::addressing::Addressing;
use crate::base::denials::Denial;
use crate::base::numbers::LinkId;
use crate::base::numbers::slot_of;
use crate::link::Origin;

/// Bytes of a peer's ring at most.
const MAX_RING: u32 = 4 << 20;

/// What this process takes from the processes at the other ends of its links.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkPolicy {
    pub(super) identity: Identity,
    /// Short rings of rings are looked at, too.
    pub(super) short_rings: bool,
    /// Other users' processes get no link.
    pub(super) own_user: bool,
}

/// A link, at its receiving end.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: SeqSocket,
    pub(super) peer: Credentials,
    /// After the hello.
    pub(super) slot: Option<u16>,
    pub(super) user: LocalUser,
    /// The link's ring, unless that is watched.
    pub(super) ring: Option<Inlet>,
    /// All records come through the ring.
    pub(super) switched: bool,
}

/// The process that sends on a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkSender {
    slot: u16,
    pid: i32,
    user: LocalUser,
}

/// Why a link is cut.
#[derive(Debug, thiserror::Error)]
pub(super) enum BrokenLink {
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
    #[error("a record of processes of one user from another user's process")]
    Stranger,
    #[error("a question from another user's process")]
    Curious,
    #[error("FERROCE_PEERS leaves other users out")]
    Peers,
    #[error("descriptors from another user's process")]
    Descriptors,
    #[error("receiving failed: {0}")]
    Io(#[from] io::Error),
}

impl LinkSender {
    pub(super) fn slot(self) -> u16 {
        self.slot
    }

    /// The origin of what comes from one of its queue pairs.
    #[inline]
    pub(super) fn origin(self, qpn: Qpn) -> Result<Origin, BrokenLink> {
        if slot_of(qpn) == self.slot {
            Ok(Origin::local(qpn, self.pid))
        } else {
            Err(BrokenLink::Qpn(qpn))
        }
    }

    /// Gives the frames of a record to `each`; returns what they count.
    pub(super) fn take(
        self,
        record: LinkRecord<'_>,
        route: &mut Option<Addressing>,
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> Result<usize, BrokenLink> {
        match record {
            LinkRecord::Packets(packets) => {
                let origin = self.origin(packets.src_qpn)?;
                *route = packets.addressing.or(*route);
                let addressing = route.as_ref().ok_or(BrokenLink::Route)?;
                for bytes in packets.iter() {
                    each(LocalFrame::Packet {
                        origin,
                        addressing,
                        bytes,
                    });
                }
                Ok(packets.len())
            }
            LinkRecord::Frame(frame) => {
                each(self.local_frame(frame)?);
                Ok(1)
            }
            LinkRecord::Hello { .. } | LinkRecord::Ask => Err(BrokenLink::Hello),
            LinkRecord::Switch | LinkRecord::Look => Err(BrokenLink::Socket),
        }
    }

    /// The frame with what is known of its sender, if the sender may send it.
    fn local_frame(self, frame: Frame<'_>) -> Result<LocalFrame<'_>, BrokenLink> {
        let from_slot = self.slot;
        Ok(match frame {
            // On the socket there is no ring.
            Frame::ShortRing(_) => return Err(BrokenLink::Socket),
            Frame::Forwarded(inbound) => LocalFrame::Forwarded {
                from_slot,
                by: self.user,
                inbound,
            },
            Frame::Mad { src, dst, mad } => LocalFrame::Mad {
                from_slot,
                by: self.user,
                src,
                dst,
                mad,
            },
            Frame::Lending(_) | Frame::Sharing(_) | Frame::Unshared(_)
                if !self.user.relation.is_own_user() =>
            {
                return Err(BrokenLink::Stranger);
            }
            Frame::Lending(lending) => LocalFrame::Lending { from_slot, lending },
            Frame::Sharing(sharing) => LocalFrame::Sharing { from_slot, sharing },
            Frame::Unshared(number) => LocalFrame::Unshared { from_slot, number },
            // Another user's word must not keep the wire from others.
            Frame::Dropped { qpn: Qpn::SMI, .. } if self.user.relation.is_own_user() => {
                LocalFrame::Returned
            }
            Frame::Dropped { qpn, by } => LocalFrame::Dropped {
                qpn,
                by: self.origin(by)?,
            },
        })
    }
}

impl BrokenLink {
    /// Denial that a broken link counts as.
    pub(super) fn denial(&self) -> Denial {
        match self {
            Self::Peers => Denial::Peers,
            Self::Descriptors => Denial::Descriptors,
            _ => Denial::Broken,
        }
    }
}

impl Link {
    /// A link of which nothing has come yet.
    pub(super) fn new(socket: SeqSocket, peer: Credentials, identity: Identity) -> Self {
        Self {
            socket,
            peer,
            slot: None,
            user: identity.local_user(peer),
            ring: None,
            switched: false,
        }
    }

    /// A link of another user's process, which has said hello.
    #[cfg(feature = "fuzzing")]
    pub(super) fn of_stranger(socket: SeqSocket, slot: u16, user: u32) -> Self {
        Self {
            socket,
            peer: Credentials {
                pid: 1,
                uid: user,
                process: None,
            },
            slot: Some(slot),
            user: LocalUser {
                relation: Relation::Foreign,
                number: Some(user),
            },
            ring: None,
            switched: false,
        }
    }

    /// The party that the link counts for.
    pub(super) fn party(&self) -> Party {
        Party::of(self.user)
    }

    /// Takes a record from the socket of a link that has said hello.
    pub(super) fn take(
        &mut self,
        record: &[u8],
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> Result<usize, BrokenLink> {
        match frame::parse(record)? {
            LinkRecord::Look if self.switched => {}
            LinkRecord::Switch if self.ring.is_some() && !self.switched => self.switched = true,
            _ if self.switched => return Err(BrokenLink::Socket),
            record => {
                // On the socket every record tells its route.
                let sender = self.sender().ok_or(BrokenLink::Hello)?;
                return sender.take(record, &mut None, each);
            }
        }
        Ok(1)
    }

    pub(super) fn sender(&self) -> Option<LinkSender> {
        Some(LinkSender {
            slot: self.slot?,
            pid: self.peer.pid,
            user: self.user,
        })
    }

    /// Says something to the sender. That it cannot take it means that it is gone, or has not read
    /// what it has for long.
    pub(super) fn answer(&self, answer: RingAnswer) {
        if let Err(error) = self.socket.send(&[IoSlice::new(&[answer as u8])]) {
            tracing::debug!(target: "ferroce::local", slot = self.slot, ?answer, %error, "no answer");
        }
    }

    /// Takes the ring that is offered, or says why not.
    fn take_ring(&mut self, offered: &Offered<'_>, short_rings: bool) {
        let taken = match (offered.value, &offered.descriptors[..]) {
            (&[a, b, c, d], [file]) => {
                let bytes = u32::from_le_bytes([a, b, c, d]);
                let fits = (bytes <= MAX_RING).then_some(bytes);
                let opened = fits.ok_or_else(|| Refused::Size(bytes.into()));
                opened
                    .and_then(|bytes| ring::open(file, bytes, short_rings))
                    .map_err(|e| e.to_string())
            }
            _ => Err("it came without the memory file".to_owned()),
        };
        match taken {
            Ok(ring) => {
                self.ring = Some(Inlet::new(ring));
                self.answer(RingAnswer::Accepted);
            }
            Err(why) => {
                tracing::debug!(target: "ferroce::local", slot = self.slot, %why, "a shared ring is not taken");
                self.answer(RingAnswer::Refused);
            }
        }
    }

    /// Takes the first record, and the descriptors that came with it.
    pub(super) fn greet(
        &mut self,
        policy: LinkPolicy,
        link: LinkId,
        record: &[u8],
        with: Vec<Fd>,
        each: &mut dyn FnMut(LocalFrame<'_>),
    ) -> Result<(), BrokenLink> {
        let (version, slot, offers) = match frame::parse(record)? {
            LinkRecord::Hello {
                version,
                slot,
                offers,
            } => (version, slot, offers),
            LinkRecord::Ask if self.user.relation.is_trusted() => {
                each(LocalFrame::Question(link));
                return Ok(());
            }
            LinkRecord::Ask => return Err(BrokenLink::Curious),
            _ => return Err(BrokenLink::Hello),
        };
        self.check_hello(policy, version, slot)?;
        self.slot = Some(slot);
        let offers = extras::parse(offers, with).ok_or(BrokenLink::Offers)?;
        let short_rings = policy.short_rings
            && offers
                .iter()
                .any(|offered| offered.tag == extras::SHORT_RINGS);
        for offered in offers {
            match (offered.tag, &offered.descriptors[..]) {
                (extras::RING, _) => self.take_ring(&offered, short_rings),
                (extras::SHORT_RINGS, _) => {}
                (extras::BOARD, [board]) if self.user.relation == Relation::Own => {
                    each(LocalFrame::Board {
                        from_slot: slot,
                        pid: self.peer.pid,
                        link,
                        board,
                    })
                }
                (tag, _) => {
                    tracing::debug!(target: "ferroce::local", slot, tag, "an unknown offer")
                }
            }
        }
        Ok(())
    }

    fn check_hello(&self, policy: LinkPolicy, version: u16, slot: u16) -> Result<(), BrokenLink> {
        if policy.own_user && !self.user.relation.is_own_user() {
            return Err(BrokenLink::Peers);
        }
        if version != frame::VERSION {
            return Err(BrokenLink::Version(version));
        }
        if !(1..=SLOTS).contains(&slot)
            || !is_vouched(slot, self.peer, self.user.relation, policy.identity)
        {
            return Err(BrokenLink::Slot(slot));
        }
        Ok(())
    }
}

/// Whether a process owns the slot that it claims. A process of our own user is believed: it could
/// as well debug us.
pub(crate) fn is_vouched(
    slot: u16,
    claimant: Credentials,
    relation: Relation,
    identity: Identity,
) -> bool {
    let is_owner = || slots::is_owner(slot, claimant, identity);
    relation.is_own_user() || (identity.names(claimant) && is_owner())
}
