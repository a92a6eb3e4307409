//! A queue pair with everything it works on.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::Arena;
use crate::ids::{Key, PdId, Qpn, Srqn};
use crate::iwarp::SegmentWay;
use crate::iwarp::ddp::Header;
use crate::mr::{Access, Accessor, Piece, Region, Rights, WINDOW_KEY_BITS, WindowBind, WindowType};
use crate::rc::{Cx, LocalCx, Noted, RcConfig, RcQp, Rendezvous, SharedRecv, Sink, Taken};
use crate::time::Time;
use crate::uc::UcQp;
use crate::ud::UdQp;
use crate::verbs::{
    Payload, QpEvent, RecvWr, RemoteAddr, SendFlags, SendOp, SendTo, SendWr, Sge, Wc, WcStatus,
};

/// Protection domain of every node.
pub const PD: PdId = PdId(1);

/// An XRC shared receive queue.
#[derive(Debug)]
pub struct XrcQueue {
    /// Protection domain.
    pub pd: PdId,
    /// Work requests.
    pub wrs: VecDeque<RecvWr>,
    /// Its owner has to be asked the next time.
    pub asks: bool,
    /// Completions of its CQ, with their solicited flag.
    pub completions: Vec<(Wc, bool)>,
}

/// What came out of a queue pair.
#[derive(Debug, Default)]
pub struct Results {
    /// Completions of the send queue, with their solicited flag.
    pub send: Vec<(Wc, bool)>,
    /// Completions of the receive queue, with their solicited flag.
    pub recv: Vec<(Wc, bool)>,
    /// Asynchronous events.
    pub events: Vec<QpEvent>,
    /// Shared receive queue.
    pub shared_recv: VecDeque<SharedRecv>,
    /// XRC shared receive queues of the domain.
    pub xrc: BTreeMap<Srqn, XrcQueue>,
    /// Room of each CQ, if limited.
    pub cq_room: Option<usize>,
    /// Rendezvous of peers, in the order in which their bytes were asked for.
    pub rendezvous: Vec<Rendezvous>,
    /// Rendezvous that are fetched from now on, without their bytes; the others are refused.
    pub fetches: usize,
    /// Number of send completions that there were when rendezvous ended.
    pub grant_ended: Option<usize>,
    /// How often each of [`Noted::ALL`] was noted.
    pub noted: [u32; Noted::ALL.len()],
    /// Segments over iWARP that were told of, with the bytes of their payloads.
    pub segments: Vec<(SegmentWay, Header, usize)>,
    /// How often it was told that the peer has had no receive for long.
    pub long_waits: u32,
}

impl Results {
    /// `wr_id` and status of the send completions.
    #[must_use]
    pub fn send_statuses(&self) -> Vec<(u64, WcStatus)> {
        self.send
            .iter()
            .map(|(wc, _)| (wc.wr_id, wc.status))
            .collect()
    }

    /// `wr_id` and status of the receive completions.
    #[must_use]
    pub fn recv_statuses(&self) -> Vec<(u64, WcStatus)> {
        self.recv
            .iter()
            .map(|(wc, _)| (wc.wr_id, wc.status))
            .collect()
    }

    fn has_room(&self, queued: usize) -> bool {
        self.cq_room.is_none_or(|room| queued < room)
    }
}

impl Sink for Results {
    fn send_completion(&mut self, wc: Wc, solicited: bool) -> bool {
        let room = self.has_room(self.send.len());
        if room {
            self.send.push((wc, solicited));
        }
        room
    }

    fn recv_completion(&mut self, wc: Wc, solicited: bool) -> bool {
        let room = self.has_room(self.recv.len());
        if room {
            self.recv.push((wc, solicited));
        }
        room
    }

    fn note(&mut self, what: Noted) {
        self.noted[what as usize] += 1;
    }

    fn waits_for_receiver(&mut self) {
        self.long_waits += 1;
    }

    fn segment(&mut self, way: SegmentWay, header: &Header, payload: usize) {
        self.segments.push((way, *header, payload));
    }

    fn event(&mut self, event: QpEvent) {
        self.events.push(event);
    }

    fn fetch(&mut self, rendezvous: &Rendezvous, to: &[Piece<'_>]) -> bool {
        assert_eq!(
            to.iter().map(Piece::len).sum::<usize>(),
            rendezvous.len as usize
        );
        self.rendezvous.push(*rendezvous);
        let fetched = self.fetches > 0;
        self.fetches = self.fetches.saturating_sub(1);
        fetched
    }

    fn end_grant(&mut self) {
        self.grant_ended = Some(self.send.len());
    }

    fn take_shared_recv(&mut self) -> Option<SharedRecv> {
        self.shared_recv.pop_front()
    }

    fn xrc_srq(&mut self, srq: Srqn) -> Option<PdId> {
        self.xrc.get(&srq).map(|queue| queue.pd)
    }

    fn take_xrc_recv(&mut self, srq: Srqn) -> Taken {
        let mut queue = self.xrc.get_mut(&srq);
        if let Some(queue) = &mut queue
            && core::mem::take(&mut queue.asks)
        {
            return Taken::Asked;
        }
        let taken = queue.and_then(|queue| {
            let wr = queue.wrs.pop_front()?;
            Some(SharedRecv { wr, pd: queue.pd })
        });
        taken.into()
    }

    fn xrc_completion(&mut self, srq: Srqn, wc: Wc, solicited: bool) -> bool {
        let room = self.cq_room;
        let Some(queue) = self.xrc.get_mut(&srq) else {
            return true;
        };
        let fits = room.is_none_or(|room| queue.completions.len() < room);
        if fits {
            queue.completions.push((wc, solicited));
        }
        fits
    }
}

/// A queue pair of any type, so far as a node has to know it.
pub trait Machine {
    /// Its local operations are due.
    fn wants_local(&self) -> bool {
        false
    }

    /// Runs them.
    fn run_local(&mut self, _cx: &mut LocalCx<'_>) {}
}

impl Machine for RcQp {
    fn wants_local(&self) -> bool {
        Self::wants_local(self)
    }

    fn run_local(&mut self, cx: &mut LocalCx<'_>) {
        Self::run_local(self, cx);
    }
}

impl Machine for UcQp {
    fn wants_local(&self) -> bool {
        Self::wants_local(self)
    }

    fn run_local(&mut self, cx: &mut LocalCx<'_>) {
        Self::run_local(self, cx);
    }
}

impl Machine for UdQp {}

/// A queue pair, its memory, its rights and its results.
#[derive(Debug)]
pub struct Node<Q = RcQp> {
    /// The queue pair.
    pub qp: Q,
    /// Rights table.
    pub rights: Rights,
    /// Memory.
    pub memory: Arena,
    /// Results so far.
    pub results: Results,
    qpn: Qpn,
    next_key: u32,
}

impl Node {
    /// A node with `memory` bytes and a reliable queue pair.
    #[must_use]
    pub fn new(config: RcConfig, memory: usize) -> Self {
        Self::of(RcQp::new(config), config.qpn, memory)
    }
}

impl<Q: Machine> Node<Q> {
    /// A node with `memory` bytes and a queue pair with this number.
    #[must_use]
    pub fn of(qp: Q, qpn: Qpn, memory: usize) -> Self {
        Self {
            qp,
            qpn,
            rights: Rights::default(),
            memory: Arena::new(memory),
            results: Results::default(),
            next_key: 0x100,
        }
    }

    /// Calls `f` with the queue pair and what its steps need.
    pub fn with<R>(&mut self, now: Time, f: impl FnOnce(&mut Q, &mut Cx<'_>) -> R) -> R {
        let mut cx = LocalCx {
            now,
            rights: &mut self.rights,
            memory: &self.memory,
            sink: &mut self.results,
        };
        let result = f(&mut self.qp, &mut cx.shared());
        while self.qp.wants_local() {
            self.qp.run_local(&mut cx);
        }
        result
    }

    /// Registers `len` bytes at `offset` of the memory.
    pub fn register(&mut self, offset: u64, len: u64, access: Access) -> Key {
        self.register_in(PD, offset, len, access)
    }

    /// Registers memory in a protection domain.
    pub fn register_in(&mut self, pd: PdId, offset: u64, len: u64, access: Access) -> Key {
        self.next_key += 0x11;
        let key = Key(self.next_key);
        let addr = Arena::BASE + offset;
        assert!(self.rights.insert(key, Region::new(pd, addr, len, access)));
        key
    }

    /// Allocates a window. Its keys are above those of regions.
    pub fn window(&mut self, kind: WindowType) -> Key {
        self.next_key += 0x11;
        let key = Key((1 << 31) | (self.next_key << WINDOW_KEY_BITS));
        assert!(self.rights.insert_window(key, kind, PD));
        key
    }

    /// This queue pair, as the rights table knows it.
    #[must_use]
    pub fn accessor(&self) -> Accessor {
        Accessor {
            pd: PD,
            qpn: self.qpn,
        }
    }

    /// Makes a window of type 2 that this queue pair has bound to `len` bytes at `offset` of the
    /// memory.
    pub fn bound_window(&mut self, offset: u64, len: u64, access: Access) -> Key {
        self.bound_window_by(self.accessor(), offset, len, access)
    }

    /// Makes a window of type 2 that some queue pair has bound.
    pub fn bound_window_by(&mut self, by: Accessor, offset: u64, len: u64, access: Access) -> Key {
        // What a flush reaches the region must promise itself.
        let flush = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
        let needs = Access::LOCAL_WRITE | Access::MW_BIND | access.intersection(flush);
        let region = self.register(offset, len, needs);
        let window = self.window(WindowType::Two);
        let key = Key(window.0 | 7);
        let bind = WindowBind {
            window,
            key,
            kind: WindowType::Two,
            region: Some(region),
            addr: Arena::BASE + offset,
            length: len,
            access,
        };
        assert_eq!(self.rights.bind(by, &bind), Ok(()));
        key
    }
}

/// A scatter/gather element at `offset` of a node's memory.
#[must_use]
pub const fn sge(lkey: Key, offset: u64, length: u32) -> Sge {
    Sge {
        addr: Arena::BASE + offset,
        length,
        lkey,
    }
}

/// A place at `offset` of a node's memory, for its peer.
#[must_use]
pub const fn remote(rkey: Key, offset: u64) -> RemoteAddr {
    RemoteAddr {
        addr: Arena::BASE + offset,
        rkey,
    }
}

/// A signalled send work request.
#[must_use]
pub fn wr(wr_id: u64, op: SendOp, sges: Vec<Sge>) -> SendWr {
    SendWr {
        to: SendTo::Peer,
        wr_id,
        op,
        flags: SendFlags::SIGNALED,
        payload: Payload::Sges(sges.into()),
    }
}
