//! Where a case is played: which way into the device, over which path.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferroce_proto::ids::Psn;
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{Mtu, QpAttr, QpCap, QpType};

use ferroce_proto::wire::{Operation, Position, Syndrome};

use crate::door::{self, Memory, Side};
use crate::end::End;
use crate::raw::{RawPeer, Received};
use crate::stream;

/// The way into the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The Rust objects of `ferroce-nic`.
    Rust,
    /// The functions and structures of the C interface.
    C,
}

/// The way between two queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The local link.
    Local,
    /// UDP over IPv4.
    Wire4,
    /// UDP over IPv6.
    Wire6,
    /// TCP over IPv4: iWARP.
    Iwarp,
    /// iWARP whose stream goes over the local link.
    IwarpLocal,
}

impl Path {
    /// The address of this host at which its ends are.
    #[must_use]
    pub const fn address(self) -> IpAddr {
        match self {
            Self::Local | Self::Wire4 | Self::Iwarp | Self::IwarpLocal => {
                IpAddr::V4(Ipv4Addr::LOCALHOST)
            }
            Self::Wire6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        }
    }

    /// Whether queue pairs are on iWARP.
    #[must_use]
    pub const fn is_iwarp(self) -> bool {
        matches!(self, Self::Iwarp | Self::IwarpLocal)
    }

    /// The variables that force it, with their values.
    #[must_use]
    pub const fn settings(self) -> [(&'static str, &'static str); 2] {
        let (path, wire) = match self {
            Self::Local => ("local", "rocev2"),
            Self::Wire4 | Self::Wire6 => ("wire", "rocev2"),
            Self::Iwarp => ("wire", "iwarp"),
            Self::IwarpLocal => ("local", "iwarp"),
        };
        [("FERROCE_PATH", path), ("FERROCE_WIRE", wire)]
    }
}

/// The entry and the path of one run of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types say it")]
pub struct Bench {
    pub entry: Entry,
    pub path: Path,
    pub ends: Ends,
}

/// Where the two ends of a connection live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// In one process.
    Together,
    /// In two.
    Apart,
}

impl Entry {
    /// A side through it.
    #[must_use]
    pub fn open(self, spec: &Spec, memory: Memory) -> Box<dyn Side> {
        match self {
            Self::Rust => Box::new(door::rust::RustSide::open(spec, memory)),
            Self::C => Box::new(door::c::CSide::open(spec, memory)),
        }
    }
}

impl fmt::Display for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} {:?}", self.entry, self.path, self.ends)
    }
}

/// How completions are taken from a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// In C `ibv_poll_cq(3)`; in Rust a function that is given each.
    Usual,
    /// In C `ibv_start_poll(3)`; in Rust an array.
    Other,
}

/// What an end is made of.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Type of the queue pair.
    pub qp_type: QpType,
    /// Its capacities.
    pub cap: QpCap,
    /// Whether every send work request is signalled.
    pub sq_sig_all: bool,
    /// Entries of the completion queue.
    pub cqe: u32,
    /// How its completions are taken.
    pub poll: Poll,
    /// Receives come from a shared receive queue of this many work requests.
    pub srq: Option<u32>,
    /// Bytes of memory, zero at first.
    pub memory: usize,
    /// Access of the region that covers all of it.
    pub access: Access,
    /// The attributes with which it is connected. Destination and address are filled in.
    pub attr: QpAttr,
}

/// All rights.
pub const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);

/// The path MTU unless a case says otherwise, in bytes.
pub const MTU: usize = 1024;

/// The local ACK timeout unless a case says otherwise, 4.3 s: eight of these are longer than any
/// thread of a busy machine stands still.
pub const PATIENT: u8 = 20;

/// First PSN of requests, both ways: they wrap soon.
pub const FIRST_PSN: Psn = Psn::new(0xff_fffc);

impl Default for Spec {
    fn default() -> Self {
        Self {
            qp_type: QpType::Rc,
            cap: QpCap {
                max_send_wr: 32,
                max_recv_wr: 32,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 64,
            },
            sq_sig_all: true,
            cqe: 128,
            poll: Poll::Usual,
            srq: None,
            memory: 64 << 10,
            access: ALL,
            attr: QpAttr {
                path_mtu: Mtu::B1024,
                rq_psn: FIRST_PSN,
                sq_psn: FIRST_PSN,
                qp_access_flags: ALL,
                port_num: 1,
                max_rd_atomic: 4,
                max_dest_rd_atomic: 4,
                min_rnr_timer: 12,
                timeout: PATIENT,
                retry_cnt: 7,
                rnr_retry: 7,
                ..QpAttr::default()
            },
        }
    }
}

impl Spec {
    /// The usual for a type of queue pair.
    #[must_use]
    pub fn of(qp_type: QpType) -> Self {
        let spec = Self {
            qp_type,
            ..Self::default()
        };
        match qp_type {
            QpType::Uc => Self {
                attr: QpAttr {
                    qp_access_flags: Access::REMOTE_WRITE,
                    ..spec.attr
                },
                ..spec
            },
            QpType::Ud => Self {
                attr: QpAttr {
                    qkey: QKEY,
                    ..spec.attr
                },
                ..spec
            },
            _ => spec,
        }
    }
}

/// The `Q_Key` of datagram queue pairs unless a case says otherwise.
pub const QKEY: u32 = 0x1234_5678;

impl Bench {
    /// One side, through this bench's entry; its queue pair is in RESET.
    #[must_use]
    pub fn side(&self, spec: &Spec) -> Box<dyn Side> {
        self.entry.open(spec, Memory::new(spec.memory))
    }

    /// An end that is not connected.
    #[must_use]
    pub fn end(&self, spec: Spec) -> End {
        End::new(self.side(&spec), spec, self.path)
    }

    /// An end that is not connected, for the other side of a connection: in another process if this
    /// bench has two.
    #[must_use]
    pub fn peer(&self, spec: Spec) -> End {
        match self.ends {
            Ends::Together => self.end(spec),
            Ends::Apart => End::new(
                Box::new(door::Apart::open(self.entry, &spec)),
                spec,
                self.path,
            ),
        }
    }

    /// Two ends, connected to each other.
    #[must_use]
    pub fn pair(&self) -> (End, End) {
        self.pair_of(Spec::default(), Spec::default())
    }

    /// Two ends made to measure, connected to each other.
    #[must_use]
    pub fn pair_of(&self, a: Spec, b: Spec) -> (End, End) {
        let (mut a, mut b) = (self.end(a), self.peer(b));
        // The upper bits of a number are its process's.
        let together = a.qpn().get() >> 14 == b.qpn().get() >> 14;
        assert_eq!(together, self.ends == Ends::Together);
        if self.path.is_iwarp() {
            stream::connect(&mut a, &mut b);
        } else {
            a.connect(b.qpn());
            b.connect(a.qpn());
        }
        (a, b)
    }

    /// An end whose peer is played by hand.
    #[must_use]
    pub fn raw(&self) -> (End, RawPeer) {
        self.raw_of(Spec::default())
    }

    /// Returns when the device has looked at everything that the peer has sent so far: another
    /// queue pair has answered a packet that went the same way later. (Packets of different senders
    /// may land in different processes and overtake each other.)
    #[track_caller]
    pub fn catch_up(&self, peer: &RawPeer) {
        let other = self.end(Spec::default());
        other.connect_to(peer.qpn(), peer.gid());
        other.recv(1, vec![]);
        let packet = peer.packet(Operation::Send, Position::Only);
        packet.at(FIRST_PSN).to(other.qpn()).go();
        // Answers of others may come before.
        let is_it = |answer: &Received| {
            (answer.bth.psn, answer.syndrome()) == (FIRST_PSN, Some(Syndrome::ACK))
        };
        while !is_it(&peer.next()) {}
        other.done(1);
    }

    /// An end made to measure whose peer is played by hand.
    #[must_use]
    pub fn raw_of(&self, spec: Spec) -> (End, RawPeer) {
        let end = self.end(spec);
        let peer = RawPeer::new(end.gid().ip(), end.qpn());
        end.connect_to(peer.qpn(), peer.gid());
        (end, peer)
    }
}
