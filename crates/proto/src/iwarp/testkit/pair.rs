//! Two nodes and the connection between them.

use alloc::vec::Vec;
use core::time::Duration;

use super::stream::{Arrival, Channel, Cut};
use super::{read, write};
use crate::ids::{Key, Qpn};
use crate::iwarp::mpa::{Agreement, Asked, Initiator, Outcome, Responder, Rtr, Wishes, WithinHost};
use crate::iwarp::{IwQp, StreamEvent, Teardown};
use crate::mr::Access;
use crate::rc::RcConfig;
use crate::testkit::{Node, PD, Rng, Side, sge};
use crate::time::Time;
use crate::verbs::{PostError, QpCap, QpType, RecvWr, SendWr, Sge};

/// How both ends are set up.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names are those of the attributes")]
pub struct Setup {
    pub seed: u64,
    /// Bytes of memory of each node.
    pub memory: usize,
    /// What A, the initiator, wants.
    pub a: Wishes,
    /// What B wants.
    pub b: Wishes,
    /// Bytes of a TCP segment.
    pub segment: usize,
    /// Bytes that TCP holds in each direction.
    pub buffer: usize,
    pub cap: QpCap,
    pub sq_sig_all: bool,
    pub shared_recv: bool,
    pub access: Access,
    /// The results of both ends have their segments.
    pub watched: bool,
    /// The connection breaks in the direction of A, of B.
    pub cuts: [Option<Cut>; 2],
}

impl Setup {
    /// Wishes of one end.
    pub const WISHES: Wishes = Wishes {
        revision: 2,
        crc: true,
        markers: false,
        ird: 4,
        max_ird: 128,
        ord: 4,
        rtr: Rtr::empty(),
        mark: true,
        within_host: WithinHost::No,
    };
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            seed: 1,
            memory: 1 << 20,
            a: Self::WISHES,
            b: Self::WISHES,
            segment: 1448,
            buffer: 64 << 10,
            cap: QpCap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 8,
                max_recv_sge: 8,
                max_inline_data: 256,
            },
            sq_sig_all: false,
            shared_recv: false,
            access: Access::LOCAL_WRITE
                | Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC,
            watched: false,
            cuts: [None, None],
        }
    }
}

impl Setup {
    /// What both ends agree on: A, then B.
    ///
    /// # Panics
    /// If they do not agree.
    #[must_use]
    pub fn agree(&self) -> [Agreement; 2] {
        let (mut initiator, request) =
            Initiator::new(Time(0), self.a, &[]).expect("wishes that a request can have");
        let mut responder = Responder::new(Time(0));
        let asked = responder.on_bytes(&request);
        assert!(matches!(asked, Some(Asked::Request { .. })), "{asked:?}");
        let accepted = responder.accept(&self.b, &[]).expect("no private data");
        let (reply, b) = accepted.expect("a request waits");
        match initiator.on_bytes(&reply).1 {
            Some(Outcome::Accepted { agreement, .. }) => [agreement, b],
            other => panic!("{other:?}"),
        }
    }

    /// The number of an end's queue pair.
    #[must_use]
    pub const fn qpn(side: Side) -> Qpn {
        match side {
            Side::A => Qpn::new(0x4011),
            Side::B => Qpn::new(0x8022),
        }
    }

    /// An end that is not connected, and the key of all of its memory.
    #[must_use]
    pub fn node(&self, side: Side) -> (Node<IwQp>, Key) {
        let qpn = Self::qpn(side);
        let mut qp = IwQp::new(RcConfig {
            qpn,
            qp_type: QpType::Rc,
            pd: PD,
            cap: self.cap,
            sq_sig_all: self.sq_sig_all,
            shared_recv: self.shared_recv,
        });
        qp.set_access(self.access);
        if self.watched {
            qp.watch_segments();
        }
        let mut node = Node::of(qp, qpn, self.memory);
        let key = node.register(0, self.memory as u64, self.access);
        (node, key)
    }
}

/// Two queue pairs, connected.
#[derive(Debug)]
pub struct Pair {
    /// The initiator.
    pub a: Node<IwQp>,
    /// The responder.
    pub b: Node<IwQp>,
    /// The time.
    pub now: Time,
    /// Chance.
    pub rng: Rng,
    /// Keys of all of the memory of A and B.
    pub keys: [Key; 2],
    /// Events of A and B.
    pub events: [Vec<StreamEvent>; 2],
    /// Bytes that A and B have written.
    pub written: [Vec<u8>; 2],
    setup: Setup,
    /// To A, to B.
    channels: [Channel; 2],
}

impl Pair {
    /// Two nodes in RTS.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let now = Time(1_000_000);
        let ((mut a, key_a), (mut b, key_b)) = (setup.node(Side::A), setup.node(Side::B));
        let [of_a, of_b] = setup.agree();
        a.qp.connect(now, &of_a, setup.segment);
        b.qp.connect(now, &of_b, setup.segment);
        Self {
            a,
            b,
            now,
            rng: Rng::new(setup.seed),
            keys: [key_a, key_b],
            events: [Vec::new(), Vec::new()],
            written: [Vec::new(), Vec::new()],
            setup,
            channels: setup.cuts.map(Channel::new),
        }
    }

    /// The node at one end.
    pub fn node(&mut self, side: Side) -> &mut Node<IwQp> {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }

    /// The key of all of a node's memory.
    #[must_use]
    pub const fn key(&self, side: Side) -> Key {
        self.keys[side as usize]
    }

    /// A scatter/gather element in a node's memory.
    #[must_use]
    pub const fn sge(&self, side: Side, offset: u64, length: u32) -> Sge {
        sge(self.key(side), offset, length)
    }

    /// Posts a send work request.
    ///
    /// # Errors
    /// That of the queue pair.
    pub fn try_send(&mut self, side: Side, wr: SendWr) -> Result<(), PostError> {
        let now = self.now;
        self.node(side).with(now, |qp, cx| qp.post_send(cx, wr))
    }

    /// Posts a send work request that must be accepted.
    pub fn send(&mut self, side: Side, wr: SendWr) {
        let posted = self.try_send(side, wr);
        assert_eq!(posted, Ok(()));
    }

    /// Posts a receive work request.
    pub fn recv(&mut self, side: Side, wr_id: u64, sges: Vec<Sge>) {
        let (now, wr) = (
            self.now,
            RecvWr {
                wr_id,
                sges: sges.into(),
            },
        );
        let posted = self.node(side).with(now, |qp, cx| qp.post_recv(cx, wr));
        assert_eq!(posted, Ok(()));
    }

    /// Lets both ends write, then lets the next thing happen, if it does until then. Returns
    /// whether something did.
    pub fn step(&mut self, until: Time) -> bool {
        for side in [Side::A, Side::B] {
            self.transmit(side);
        }
        let [to_a, to_b] = [0, 1].map(|at: usize| self.channels[at].next());
        let deadline = Time::sooner(self.a.qp.deadline(), self.b.qp.deadline());
        let next = Time::sooner(Time::sooner(to_a, to_b), deadline);
        let Some(next) = next.filter(|&next| next <= until) else {
            return false;
        };
        self.now = self.now.max(next);
        for side in [Side::A, Side::B] {
            let now = self.now;
            self.node(side).qp.on_deadline(now);
            if let Some(arrival) = self.channels[side as usize].receive(now) {
                self.on_arrival(side, arrival);
            }
        }
        true
    }

    fn transmit(&mut self, side: Side) {
        let (now, most) = (self.now, self.setup.buffer);
        let to = side.peer() as usize;
        let room = self.channels[to].room(most);
        let bytes = self.node(side).with(now, |qp, cx| write(qp, cx, room));
        self.channels[to].send(now, &mut self.rng, &bytes);
        self.written[side as usize].extend(bytes);
        while let Some(event) = self.node(side).qp.poll_event() {
            self.events[side as usize].push(event);
        }
        match self.node(side).qp.teardown() {
            Teardown::Keep | Teardown::Drain => {}
            Teardown::Close => self.channels[to].close(now),
            Teardown::Reset if self.channels[to].is_closed() => {}
            Teardown::Reset => {
                self.channels[to].close(now);
                self.on_arrival(side.peer(), Arrival::Reset);
            }
        }
    }

    fn on_arrival(&mut self, side: Side, arrival: Arrival) {
        let now = self.now;
        let closed = |pair: &mut Self, side: Side, reset| {
            pair.node(side).with(now, |qp, cx| qp.on_closed(cx, reset));
        };
        match arrival {
            Arrival::Bytes(bytes) => {
                let in_place = self.rng.per_mille(700);
                self.node(side).with(now, |qp, cx| {
                    if in_place {
                        read(qp, cx, &bytes);
                    } else {
                        qp.on_bytes(cx, &bytes);
                    }
                });
            }
            Arrival::End => closed(self, side, false),
            Arrival::Reset => {
                for channel in &mut self.channels {
                    channel.drop_all();
                }
                closed(self, side, true);
                closed(self, side.peer(), true);
            }
        }
    }

    /// Hands bytes to an end as if its peer had written them, between whatever it did write.
    pub fn inject(&mut self, side: Side, bytes: &[u8]) {
        self.on_arrival(side, Arrival::Bytes(bytes.to_vec()));
    }

    /// Breaks the connection now.
    pub fn reset(&mut self) {
        self.on_arrival(Side::A, Arrival::Reset);
    }

    /// Steps until nothing happens any more.
    pub fn run(&mut self) {
        let until = self.now + Duration::from_secs(3600);
        while self.step(until) {}
    }

    /// Steps until something holds.
    ///
    /// # Panics
    /// If nothing happens any more before that.
    #[track_caller]
    pub fn until(&mut self, holds: impl Fn(&Self) -> bool) {
        let until = self.now + Duration::from_secs(3600);
        while !holds(self) {
            assert!(self.step(until), "nothing happens any more: {self:#?}");
        }
    }
}
