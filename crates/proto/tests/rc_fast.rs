//! What is sent, received and acknowledged the fast way (module `fast::send`) leaves the same
//! packets, completions, memory and state as what goes the general way.

mod common;

use std::collections::VecDeque;
use std::time::Duration;

use common::{bytes, expect_more, seeds};
use ferroce_proto::ids::{Key, Srqn};
use ferroce_proto::mr::{Memory, Piece, Span};
use ferroce_proto::rc::{FastHead, FastOutcome, LinkTraits, LongBody, LongMessage, cut};
use ferroce_proto::testkit::{Arena, Node, Pair, Rng, Setup, Side, remote, wr};
use ferroce_proto::verbs::{
    AttrMask, Mtu, PathMigState, Payload, PostError, QpAttr, QpState, RecvWr, SendFlags, SendOp,
    SendTo, SendWr,
};
use ferroce_proto::wire::{
    Brief, BriefKind, BriefSend, Bth, ExtHeaders, Opcode, Operation, Packet, Position,
};

const LOSSLESS: LinkTraits = LinkTraits {
    lossless: true,
    max_in_flight: 1 << 20,
};

/// Bytes of memory of each node.
const MEMORY: usize = 20_000;
/// Receives go from here on.
const RECEIVED: u64 = 10_000;

/// How often the fast way was open.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent: usize,
    /// Messages of several packets that were sent at once, and taken at once.
    sent_long: usize,
    taken_long: usize,
    /// Sent at once out of the send queue.
    sent_queued: usize,
    taken: usize,
    acknowledged: usize,
    overflows: usize,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.sent_long += other.sent_long;
        self.taken_long += other.taken_long;
        self.sent_queued += other.sent_queued;
        self.taken += other.taken;
        self.acknowledged += other.acknowledged;
        self.overflows += other.overflows;
    }
}

/// Which fast ways are known to be open.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    sends: Option<FastHead>,
    takes: bool,
}

/// Two queue pairs, and what is under way between them.
struct Ends {
    pair: Pair,
    lossless: bool,
    /// They take the fast way wherever it is open.
    fast: Option<Counts>,
    /// What was found open for A, and for B, and is not asked again until something goes the
    /// general way.
    open: [Open; 2],
    /// To A, and to B.
    under_way: [VecDeque<Vec<u8>>; 2],
    /// What was sent, since the last look.
    sent: Vec<(Side, Vec<u8>)>,
}

impl Ends {
    fn new(mut pair: Pair, setup: &Setup, is_fast: bool) -> Self {
        let mut rng = Rng::new(setup.seed);
        for side in [Side::A, Side::B] {
            let memory = &pair.node(side).memory;
            memory.put(Arena::BASE, &bytes(&mut rng, MEMORY));
        }
        Self {
            pair,
            lossless: setup.link.lossless,
            fast: is_fast.then(Counts::default),
            open: Default::default(),
            under_way: Default::default(),
            sent: Vec::new(),
        }
    }

    /// A node, for something other than what the fast ways do.
    fn general(&mut self, side: Side) -> &mut Node {
        self.open[side as usize] = Open::default();
        self.pair.node(side)
    }

    /// A packet that was sent the general way.
    fn put_general(&mut self, from: Side, packet: &[u8]) {
        self.open[from as usize] = Open::default();
        self.put_under_way(from, packet);
    }

    fn put_under_way(&mut self, from: Side, packet: &[u8]) {
        self.sent.push((from, packet.to_vec()));
        self.under_way[from.peer() as usize].push_back(packet.to_vec());
    }

    /// Posts, and sends all that can go.
    fn post(&mut self, side: Side, request: &SendWr, room: usize) -> Result<(), PostError> {
        if let Some(counts) = &mut self.fast {
            let Node {
                qp, rights, memory, ..
            } = self.pair.node(side);
            let mut room = vec![0xee; room];
            let opens = (&mut &*rights, &*memory);
            let open = &mut self.open[side as usize];
            open.sends = open.sends.or_else(|| qp.fast_head());
            let written = request
                .as_plain()
                .zip(open.sends.as_ref())
                .and_then(|(send, common)| qp.prepare_fast(common, opens, &send, &mut room));
            if let Some((head, rest)) = written {
                let mut packet = head.map(u32::to_ne_bytes).concat();
                packet.extend_from_slice(rest);
                counts.sent += 1;
                qp.commit_fast(request.clone());
                let len = packet.len() - Bth::LEN;
                let behind = room.get(len..).unwrap_or_default();
                assert!(behind.iter().all(|b| *b == 0xee), "behind the packet");
                self.put_under_way(side, &packet);
                return Ok(());
            }
            if self.post_long(side, request) {
                return Ok(());
            }
        }
        self.open[side as usize] = Open::default();
        let posted = self.pair.try_send(side, request.clone());
        self.transmit(side);
        posted
    }

    /// Posts a message of any length, and sends it at once, if that way is open.
    fn post_long(&mut self, side: Side, request: &SendWr) -> bool {
        let Node {
            qp, rights, memory, ..
        } = self.pair.node(side);
        let mut opens = &*rights;
        let message = request
            .as_plain()
            .filter(|_| self.open[side as usize].sends.is_some())
            .and_then(|send| whole(qp.prepare_long(&mut opens, &send)?, memory));
        let Some((whole, packet)) = message else {
            return false;
        };
        qp.commit_fast(request.clone());
        self.put_cut(side, &whole, packet, |counts| &mut counts.sent_long);
        true
    }

    /// Sends what is queued at once, as long as that way is open.
    fn transmit_queued(&mut self, side: Side) {
        while self.fast.is_some() {
            let Node {
                qp, rights, memory, ..
            } = self.pair.node(side);
            if qp.owes_answers() {
                return;
            }
            let mut opens = &*rights;
            let message = qp.prepare_queued(&mut opens);
            let Some((whole, packet)) = message.and_then(|message| whole(message, memory)) else {
                return;
            };
            qp.commit_queued();
            self.open[side as usize] = Open::default();
            self.put_cut(side, &whole, packet, |counts| &mut counts.sent_queued);
        }
    }

    /// A message that was sent at once is under way as packets.
    fn put_cut(
        &mut self,
        side: Side,
        whole: &[u8],
        packet: u32,
        count: impl FnOnce(&mut Counts) -> &mut usize,
    ) {
        let packets = cut(whole, packet).expect("a message");
        for packet in &packets {
            self.put_under_way(side, packet);
        }
        if let Some(counts) = &mut self.fast {
            *count(counts) += 1;
        }
    }

    /// Hands the packets of a message to a node at once, if they are next and that way is open.
    /// Returns how many these were.
    fn deliver_long(&mut self, into: Side, most: usize) -> Option<usize> {
        self.fast?;
        let (whole, count) = joined(&self.under_way[into as usize])?;
        let brief = Brief::parse(&whole).expect("a SEND");
        let taken = (count <= most).then(|| self.take_fast(into, &brief))??;
        self.under_way[into as usize].drain(..count);
        self.after_delivery(into, taken);
        if let Some(counts) = &mut self.fast {
            counts.taken_long += 1;
        }
        Some(count)
    }

    /// A packet was taken, or not: on a link that loses nothing its sender hears of that.
    fn after_delivery(&mut self, into: Side, taken: bool) {
        if !taken && self.lossless {
            let now = self.pair.now;
            let sender = self.general(into.peer());
            sender.with(now, |qp, cx| qp.on_dropped(cx));
        }
    }

    fn transmit(&mut self, side: Side) {
        self.transmit_queued(side);
        let (now, mut out) = (self.pair.now, Vec::new());
        let node = self.pair.node(side);
        if let Some(first) = node.with(now, |qp, cx| qp.poll_short(cx, &mut out)) {
            let (acknowledgement, message) = out.split_at(first);
            if first > 0 {
                self.put_general(side, acknowledgement);
            }
            self.put_general(side, message);
        }
        loop {
            out.clear();
            let node = self.pair.node(side);
            if !node.with(now, |qp, cx| qp.poll_transmit(cx, &mut out)) {
                return;
            }
            self.put_general(side, &out);
        }
    }

    /// Hands packets to a node. Returns how many there were.
    fn deliver(&mut self, into: Side, most: usize) -> usize {
        let (now, mut delivered) = (self.pair.now, 0);
        while delivered < most {
            if let Some(count) = self.deliver_long(into, most - delivered) {
                delivered += count;
                continue;
            }
            let Some(bytes) = self.under_way[into as usize].pop_front() else {
                break;
            };
            delivered += 1;
            let packet = Packet::parse(&bytes).expect("well-formed");
            let fast = Brief::parse(&bytes).and_then(|brief| self.take_fast(into, &brief));
            if fast.is_none() {
                self.open[into as usize] = Open::default();
            }
            let node = self.pair.node(into);
            let taken = fast.unwrap_or_else(|| node.with(now, |qp, cx| qp.on_packet(cx, &packet)));
            self.after_delivery(into, taken);
        }
        delivered
    }

    /// Takes a packet the fast way, if that way is open; whether it was taken.
    fn take_fast(&mut self, into: Side, brief: &Brief<'_>) -> Option<bool> {
        let (counts, now) = (self.fast.as_mut()?, self.pair.now);
        let open = &mut self.open[into as usize];
        let node = self.pair.node(into);
        let before = format!("{:?} {:?}", node.qp, node.results);
        let Node {
            qp,
            rights,
            memory,
            results,
            ..
        } = &mut *node;
        let (is_send, taken) = match brief.kind {
            BriefKind::Send(payload) if open.takes || qp.is_ready_to_take() => {
                let write = |span: Span<'_>| memory.write(span, payload);
                let opens = (&mut &*rights, write);
                // In a short ring the short ring itself is the acknowledgement.
                open.takes = !brief.bth.ack_req;
                open.sends = open.sends.filter(|_| !brief.bth.ack_req);
                let message = BriefSend::of(&brief.bth, payload.len());
                (true, qp.take_fast(opens, results, &message))
            }
            BriefKind::Ack if open.sends.is_some() || qp.is_ready_for_acks() => {
                (false, qp.acknowledge_fast(results, brief.bth.psn))
            }
            BriefKind::Send(_) | BriefKind::Ack => return None,
        };
        match taken {
            FastOutcome::Done if is_send => counts.taken += 1,
            FastOutcome::Done => counts.acknowledged += 1,
            FastOutcome::Unusual if is_send => {
                let after = format!("{:?} {:?}", node.qp, node.results);
                assert_eq!(before, after, "nothing has changed");
                return None;
            }
            // What was acknowledged so far is; the rest is for the general way.
            FastOutcome::Unusual => return None,
            FastOutcome::Overflow => {
                *open = Open::default();
                counts.overflows += 1;
                node.with(now, |qp, cx| match is_send {
                    true => qp.on_recv_overflow(cx),
                    false => qp.on_cq_overflow(cx),
                });
                return Some(!is_send);
            }
        }
        Some(true)
    }

    /// Time passes.
    fn pass(&mut self, time: Duration) {
        self.pair.now = self.pair.now + time;
        let now = self.pair.now;
        for side in [Side::A, Side::B] {
            let node = self.pair.node(side);
            if node.qp.deadline().is_some_and(|at| at <= now) {
                self.open[side as usize] = Open::default();
                node.with(now, |qp, cx| qp.on_deadline(cx));
            }
            self.transmit(side);
        }
    }

    /// Everything comes and is answered, until there is nothing more.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 10_000, "never at rest");
            let came = [Side::A, Side::B].map(|side| {
                let came = self.deliver(side, usize::MAX);
                self.transmit(side);
                came
            });
            if came == [0, 0] {
                return;
            }
            self.pair.now = self.pair.now + Duration::from_micros(10);
        }
    }

    fn modify(&mut self, side: Side, attr: &QpAttr, mask: AttrMask) -> bool {
        let now = self.pair.now;
        let node = self.general(side);
        node.with(now, |qp, cx| qp.modify(cx, attr, mask)).is_ok()
    }

    /// Loads its path once more as the alternate one, to be armed with the peer's next packet.
    fn rearm(&mut self, side: Side) -> bool {
        let (path, _) = self.pair.step_attr(side, QpState::Rtr);
        let attr = QpAttr {
            alt_ah_attr: path.ah_attr,
            alt_port_num: 1,
            path_mig_state: PathMigState::Rearm,
            ..path
        };
        let mask = AttrMask::ALT_PATH | AttrMask::PATH_MIG_STATE;
        self.modify(side, &attr, mask)
    }

    /// Both start anew; nothing is under way.
    fn connect_again(&mut self, link: LinkTraits) {
        self.under_way = Default::default();
        for side in [Side::A, Side::B] {
            let (attr, _) = self.pair.step_attr(side, QpState::Reset);
            assert!(self.modify(side, &attr, AttrMask::STATE));
            self.general(side).qp.set_link(link);
            for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
                self.pair.to_state(side, state);
            }
        }
    }
}

/// The one packet of a message, and the bytes of those that it is to be cut into.
fn whole(message: LongMessage<'_>, memory: &Arena) -> Option<(Vec<u8>, u32)> {
    let mut whole = message.head.map(u32::to_ne_bytes).concat();
    match message.body {
        LongBody::Bytes(Piece::Inline(data)) => whole.extend_from_slice(data),
        LongBody::Bytes(Piece::Registered(span)) => memory.append(span, &mut whole).ok()?,
        LongBody::Place(_) => panic!("no rendezvous"),
    }
    whole.resize(whole.len().next_multiple_of(4), 0);
    Some((whole, message.packet))
}

/// The packets of a SEND at the front, as the one packet that they were cut from, and how many
/// there are.
fn joined(under_way: &VecDeque<Vec<u8>>) -> Option<(Vec<u8>, usize)> {
    let send = |bytes| {
        let packet = Packet::parse(bytes).expect("well-formed");
        let info = packet.bth.opcode.info()?;
        let is_send = info.operation == Operation::Send && packet.ext.set().is_empty();
        is_send.then_some((packet.bth, info.position, packet.payload))
    };
    let (first, position, _) = send(under_way.front()?)?;
    if !position.starts() || position.ends() {
        return None;
    }
    let mut payload = Vec::new();
    for (index, bytes) in (0..).zip(under_way) {
        let (bth, position, bytes) = send(bytes)?;
        let is_next = bth.psn == first.psn.plus(index) && position.starts() == (index == 0);
        payload.extend_from_slice(bytes);
        if !is_next || !position.ends() && bth.ack_req {
            return None;
        }
        if position.ends() {
            let bth = Bth {
                psn: first.psn,
                opcode: Opcode::rc(Operation::Send, Position::Only),
                ..bth
            };
            let (mut whole, ext) = (Vec::new(), ExtHeaders::default());
            let payload = &payload;
            Packet { bth, ext, payload }.emit(&mut whole);
            return Some((whole, index as usize + 1));
        }
    }
    None
}

/// Two pairs to which the same happens; only the first takes the fast way.
struct Twins {
    ends: [Ends; 2],
    setup: Setup,
}

impl Twins {
    fn new(setup: Setup, pair: impl Fn(Setup) -> Pair) -> Self {
        let ends = [true, false].map(|is_fast| Ends::new(pair(setup), &setup, is_fast));
        Self { ends, setup }
    }

    /// Does the same to both, and compares what comes of it.
    #[track_caller]
    fn both<R: PartialEq + std::fmt::Debug>(&mut self, what: impl Fn(&mut Ends) -> R) -> R {
        let [fast, general] = &mut self.ends;
        let result = what(fast);
        assert_eq!(result, what(general));
        let [one, other] = [fast, general].map(|ends| {
            let pair = &ends.pair;
            let queries = [pair.a.qp.query(), pair.b.qp.query()];
            let results = format!("{:?}\n{:?}", pair.a.results, pair.b.results);
            let states = format!("{:?}\n{:?}", pair.a.qp, pair.b.qp);
            let sent = std::mem::take(&mut ends.sent);
            (results, sent, format!("{queries:?}"), states)
        });
        assert_eq!(one.0, other.0, "completions and events");
        assert_eq!(one.1, other.1, "packets");
        assert_eq!(one.2, other.2, "attributes");
        assert_eq!(one.3, other.3, "states");
        result
    }

    #[track_caller]
    fn settle(&mut self) {
        self.both(Ends::settle);
        let memories = self.ends.each_ref().map(|ends| {
            let all = |node: &Node| node.memory.get(Arena::BASE, MEMORY);
            [all(&ends.pair.a), all(&ends.pair.b)]
        });
        assert!(memories[0] == memories[1], "memory");
    }

    fn counts(&self) -> Counts {
        self.ends[0].fast.expect("the first is the fast one")
    }
}

/// Mostly a short SEND; rarely one that fails.
fn request(pair: &Pair, rng: &mut Rng, wr_id: u64, side: Side) -> SendWr {
    let to = remote(pair.key(side.peer()), rng.below(1000) * 8);
    let length = match rng.below(10) {
        0 => 0,
        1..=8 => rng.below32(300),
        _ => rng.below32(3000),
    };
    let op = match rng.below(40) {
        0 => SendOp::SendImm([1, 2, 3, 4]),
        1 => SendOp::Write(to),
        2 => SendOp::WriteImm(to, [5, 6, 7, 8]),
        3 => SendOp::Read(to),
        4 if length >= 8 => SendOp::FetchAdd { remote: to, add: 1 },
        _ => SendOp::Send,
    };
    let mut request = wr(wr_id, op, vec![pair.sge(side, rng.below(5000), length)]);
    request.flags = SendFlags::from_bits_truncate(rng.below32(8));
    if op == SendOp::Send && length < 300 && rng.per_mille(400) {
        request.payload = Payload::Inline(bytes(rng, length as usize).into());
        request.flags |= SendFlags::INLINE;
    }
    if let Payload::Sges(sges) = &mut request.payload {
        match rng.below(400) {
            0 => sges[0].lkey = Key(7),
            1 => sges.clear(),
            2..=20 => sges.push(pair.sge(side, 6000, 20)),
            _ => {}
        }
    }
    if rng.per_mille(5) {
        request.to = SendTo::XrcSrq(Srqn::new(3));
    }
    request
}

/// A receive: mostly of one piece that is long enough; rarely one that fails.
fn receive(pair: &Pair, rng: &mut Rng, wr_id: u64, side: Side) -> RecvWr {
    let piece = |rng: &mut Rng, length| pair.sge(side, RECEIVED + rng.below(5000), length);
    let mut sges = match rng.below(400) {
        0..=20 => vec![piece(rng, 50), piece(rng, 4000)],
        21 => vec![],
        22 => vec![piece(rng, 200)],
        _ => vec![piece(rng, 4000)],
    };
    if let Some(sge) = sges.first_mut()
        && rng.per_mille(2)
    {
        sge.lkey = Key(7);
    }
    RecvWr {
        wr_id,
        sges: sges.into(),
    }
}

/// One of the things that happen to queue pairs.
fn anything(twins: &mut Twins, rng: &mut Rng, wr_id: u64) {
    let side = rng.pick(&[Side::A, Side::B]);
    match rng.below(100) {
        0..=39 => {
            let request = request(&twins.ends[0].pair, rng, wr_id, side);
            let room = rng.pick(&[20, 116, 116, 116, 500]);
            let _ = twins.both(|ends| ends.post(side, &request, room));
        }
        40..=54 => {
            for _ in 0..rng.below(8) {
                let receive = receive(&twins.ends[0].pair, rng, wr_id, side);
                let _ = twins.both(|ends| ends.pair.try_recv(side, receive.clone()));
            }
            // It may have been waited for.
            twins.both(|ends| ends.transmit(side));
        }
        55..=84 => {
            let most = rng.pick(&[1, 1, 2, 4, 100]);
            let answers = rng.per_mille(800);
            twins.both(|ends| {
                let came = ends.deliver(side, most);
                if answers {
                    ends.transmit(side);
                }
                came
            });
        }
        85..=89 => {
            let time = Duration::from_micros(rng.pick(&[10, 100, 1000, 20_000]));
            twins.both(|ends| ends.pass(time));
        }
        90..=95 => twins.settle(),
        96 => lose(twins, rng, side),
        97 => {
            let most = rng.pick(&[0, 200, 2000, u64::MAX]);
            twins.both(|ends| {
                ends.pair.node(side).qp.set_allowance(most);
                ends.transmit(side);
            });
        }
        _ => rarely(twins, rng, side),
    }
    let Pair { a, b, .. } = &twins.ends[0].pair;
    let ended = [a, b].iter().any(|node| node.qp.state() != QpState::Rts);
    if ended && rng.per_mille(100) {
        let link = twins.setup.link;
        twins.both(|ends| ends.connect_again(link));
    }
}

/// What is under way is lost, doubled or overtaken.
fn lose(twins: &mut Twins, rng: &mut Rng, side: Side) {
    let what = rng.below(3);
    if !twins.setup.link.lossless {
        twins.both(|ends| {
            let under_way = &mut ends.under_way[side as usize];
            match (what, under_way.len()) {
                (_, 0) => {}
                (0, _) => drop(under_way.pop_front()),
                (1, _) => under_way.push_back(under_way[0].clone()),
                _ => under_way.rotate_left(1),
            }
        });
    }
}

/// Changes of a state, and ends.
fn rarely(twins: &mut Twins, rng: &mut Rng, side: Side) {
    match rng.below(20) {
        0..=9 => {
            for state in [QpState::Sqd, QpState::Rts] {
                let request = request(&twins.ends[0].pair, rng, 5, side);
                let _ = twins.both(|ends| {
                    let (attr, _) = ends.pair.step_attr(side, state);
                    ends.modify(side, &attr, AttrMask::STATE);
                    ends.post(side, &request, 116)
                });
            }
        }
        10..=13 => {
            twins.both(|ends| ends.rearm(side));
        }
        14..=15 => {
            twins.both(|ends| {
                let now = ends.pair.now;
                ends.general(side).with(now, |qp, cx| qp.on_dropped(cx));
            });
        }
        16 => {
            twins.both(|ends| {
                let (attr, _) = ends.pair.step_attr(side, QpState::Err);
                ends.modify(side, &attr, AttrMask::STATE)
            });
        }
        17 => {
            twins.both(|ends| {
                let now = ends.pair.now;
                let node = ends.general(side);
                node.with(now, |qp, cx| qp.on_peer_dead(cx));
            });
        }
        18 => {
            twins.both(|ends| {
                let now = ends.pair.now;
                let node = ends.general(side);
                node.with(now, |qp, cx| qp.on_cq_overflow(cx));
            });
        }
        _ => {
            let link = twins.setup.link;
            twins.both(|ends| ends.general(side).qp.set_link(link));
        }
    }
}

/// Random work on twins that are connected.
fn run(twins: &mut Twins, length: u64) -> Counts {
    let mut rng = Rng::new(twins.setup.seed ^ 0x5eed);
    if rng.per_mille(150) {
        let room = rng.below32(100) as usize;
        twins.both(|ends| {
            ends.pair.a.results.cq_room = Some(room);
            ends.pair.b.results.cq_room = Some(room);
        });
    }
    for wr_id in 0..length {
        anything(twins, &mut rng, wr_id);
    }
    twins.settle();
    twins.counts()
}

fn setup(seed: u64, link: LinkTraits) -> Setup {
    let mut setup = Setup {
        seed,
        memory: MEMORY,
        psn: 0xff_ffe0,
        mtu: [Mtu::B256, Mtu::B1024, Mtu::B4096][(seed % 3) as usize],
        sq_sig_all: seed.is_multiple_of(5),
        is_ferroce_peer: seed.is_multiple_of(2),
        link,
        ..Setup::default()
    };
    setup.cap.max_send_wr = 16;
    setup
}

#[test]
fn both_ways_leave_the_same_on_a_lossless_link() {
    let mut counts = Counts::default();
    for seed in seeds(40) {
        println!("seed {seed}");
        counts.add(run(&mut Twins::new(setup(seed, LOSSLESS), Pair::new), 300));
    }
    println!("{counts:?}");
    expect_more(counts.sent, 20, 40);
    expect_more(counts.taken, 20, 40);
    expect_more(counts.acknowledged, 20, 40);
    expect_more(counts.sent_long, 3, 40);
    expect_more(counts.taken_long, 3, 40);
    expect_more(counts.sent_queued, 1, 40);
}

#[test]
fn on_a_link_that_loses_nothing_is_sent_fast() {
    let mut counts = Counts::default();
    for seed in seeds(15) {
        println!("seed {seed}");
        let link = Setup::default().link;
        counts.add(run(&mut Twins::new(setup(seed, link), Pair::new), 300));
    }
    println!("{counts:?}");
    assert_eq!((counts.sent, counts.acknowledged), (0, 0), "they are timed");
    expect_more(counts.taken, 20, 15);
}

/// A program that only receives may stay in RTR: there the first packet goes the general way, which
/// tells of it.
#[test]
fn both_ways_leave_the_same_in_rtr() {
    let unconnected = |setup| {
        let mut pair = Pair::unconnected(setup);
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            pair.to_state(Side::A, state);
            if state != QpState::Rts {
                pair.to_state(Side::B, state);
            }
        }
        pair
    };
    let mut twins = Twins::new(setup(1, LOSSLESS), unconnected);
    for wr_id in 0..20 {
        let pair = &twins.ends[0].pair;
        let sges = vec![pair.sge(Side::B, RECEIVED, 100)].into();
        let receive = RecvWr { wr_id, sges };
        let request = wr(wr_id, SendOp::Send, vec![pair.sge(Side::A, wr_id, 30)]);
        twins
            .both(|ends| ends.pair.try_recv(Side::B, receive.clone()))
            .expect("there is room");
        twins
            .both(|ends| ends.post(Side::A, &request, 116))
            .expect("there is room");
        twins
            .both(|ends| ends.post(Side::B, &request, 116))
            .expect_err("it does not send");
        twins.settle();
    }
    assert_eq!(twins.counts().taken, 19);
    assert_eq!(twins.ends[0].pair.b.qp.state(), QpState::Rtr);
}

/// Twins that have measured a round trip.
fn warm(setup: Setup) -> Twins {
    let mut twins = Twins::new(setup, Pair::new);
    exchange(&mut twins, 8);
    twins
}

/// A message of so many bytes from A to B, and its acknowledgement.
fn exchange(twins: &mut Twins, length: u32) {
    let pair = &twins.ends[0].pair;
    let sges = vec![pair.sge(Side::B, RECEIVED, 8192)].into();
    let receive = RecvWr { wr_id: 1, sges };
    let request = wr(1, SendOp::Send, vec![pair.sge(Side::A, 0, length)]);
    let posted = twins.both(|ends| ends.pair.try_recv(Side::B, receive.clone()));
    assert_eq!(posted, Ok(()));
    let posted = twins.both(|ends| ends.post(Side::A, &request, 8192));
    assert_eq!(posted, Ok(()));
    twins.settle();
}

#[test]
fn every_length_goes_fast() {
    let mut twins = warm(setup(0, LOSSLESS));
    for length in 0..=256 {
        exchange(&mut twins, length);
        assert_eq!(twins.counts().sent, length as usize + 1);
    }
    for (count, length) in (1..).zip((257..=1100).step_by(29)) {
        exchange(&mut twins, length);
        let Counts {
            sent,
            sent_long,
            taken_long,
            ..
        } = twins.counts();
        assert_eq!((sent, sent_long, taken_long), (257, count, count));
    }
}

/// The last receive completion that has room, and the first that has not, by messages that are
/// taken the fast way and acknowledged together.
#[test]
fn an_overflow_is_the_same_wherever_it_happens() {
    for room in 0..12 {
        for together in [1, 3, 6] {
            let mut twins = warm(setup(7, LOSSLESS));
            twins.both(|ends| {
                let done = ends.pair.a.results.send.len();
                ends.pair.a.results.cq_room = Some(done + room);
                ends.pair.b.results.cq_room = Some(12 - room);
            });
            for wr_id in 0..6 {
                let pair = &twins.ends[0].pair;
                let sges = vec![pair.sge(Side::B, RECEIVED, 100)].into();
                let receive = RecvWr { wr_id, sges };
                let request = wr(wr_id, SendOp::Send, vec![pair.sge(Side::A, wr_id, 30)]);
                let _ = twins.both(|ends| ends.pair.try_recv(Side::B, receive.clone()));
                let _ = twins.both(|ends| ends.post(Side::A, &request, 116));
                if wr_id % together == together - 1 {
                    twins.settle();
                }
            }
            twins.settle();
            assert!(twins.counts().overflows > 0, "room {room}");
            let failed = twins.ends[0].pair.a.qp.state() == QpState::Err;
            assert_eq!(failed, room < 6, "room {room}, {together} together");
        }
    }
}

#[test]
fn nothing_is_sent_fast_to_a_peer_that_is_gone() {
    let mut twins = warm(setup(0, LOSSLESS));
    twins.both(|ends| {
        let now = ends.pair.now;
        ends.general(Side::A)
            .with(now, |qp, cx| qp.on_peer_dead(cx));
    });
    let request = wr(2, SendOp::Send, vec![twins.ends[0].pair.sge(Side::A, 0, 8)]);
    let posted = twins.both(|ends| ends.post(Side::A, &request, 116));
    assert_eq!(posted, Ok(()));
    assert_eq!(twins.ends[0].pair.a.qp.state(), QpState::Err);
}

/// Which fast ways are open to A and to B of a pair.
fn open_ways(pair: &Pair) -> [[bool; 3]; 2] {
    [&pair.a.qp, &pair.b.qp].map(|qp| {
        [
            qp.fast_head().is_some(),
            qp.is_ready_for_acks(),
            qp.is_ready_to_take(),
        ]
    })
}

/// Fast ways know neither shared receives nor XRC, nor paths that may change with a packet.
#[test]
fn only_the_usual_kinds_take_fast_ways() {
    let usual = setup(0, LOSSLESS);
    assert_eq!(open_ways(&warm(usual).ends[0].pair)[0], [true; 3]);
    let xrc = Setup { xrc: true, ..usual };
    assert_eq!(open_ways(&Pair::new(xrc)), [[false; 3]; 2]);
    let shared = Setup {
        shared_recv: true,
        ..usual
    };
    assert!(!Pair::new(shared).b.qp.is_ready_to_take());

    let mut ends = warm(usual).ends.into_iter().next().expect("twins");
    for side in [Side::A, Side::B] {
        assert!(ends.rearm(side));
    }
    assert_eq!(
        open_ways(&ends.pair),
        [[false; 3]; 2],
        "each packet says so"
    );
    // A packet of the peer's that says so, too, arms it.
    let receive = RecvWr {
        wr_id: 1,
        sges: vec![ends.pair.sge(Side::A, RECEIVED, 100)].into(),
    };
    ends.pair.try_recv(Side::A, receive).expect("there is room");
    let request = wr(1, SendOp::Send, vec![ends.pair.sge(Side::B, 0, 8)]);
    ends.post(Side::B, &request, 0).expect("there is room");
    ends.settle();
    assert!(ends.pair.a.qp.is_armed());
    assert!(
        !ends.pair.a.qp.is_ready_to_take(),
        "a packet may change the path"
    );
    assert!(ends.pair.a.qp.fast_head().is_some(), "but none of its own");
}

/// What comes in the middle of a message belongs to it.
#[test]
fn nothing_is_taken_fast_in_the_middle_of_a_message() {
    let mut twins = warm(setup(0, LOSSLESS));
    let pair = &twins.ends[0].pair;
    let ops = [SendOp::Send, SendOp::Write(remote(pair.key(Side::B), 0))];
    let requests = ops.map(|op| wr(1, op, vec![pair.sge(Side::A, 0, 600)]));
    let sges = vec![pair.sge(Side::B, RECEIVED, 8192)].into();
    let receive = RecvWr { wr_id: 1, sges };
    for request in requests {
        twins
            .both(|ends| ends.pair.try_recv(Side::B, receive.clone()))
            .expect("there is room");
        twins
            .both(|ends| ends.post(Side::A, &request, 0))
            .expect("there is room");
        for came in 1..=3 {
            assert!(twins.ends[0].pair.b.qp.is_ready_to_take() == (came == 1));
            assert_eq!(twins.both(|ends| ends.deliver(Side::B, 1)), 1);
        }
        assert!(twins.ends[0].pair.b.qp.is_ready_to_take());
        twins.settle();
    }
}
