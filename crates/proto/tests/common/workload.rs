//! Random work in both directions, with a model of what must come out.

use ferroce_proto::ids::Srqn;
use ferroce_proto::testkit::{Arena, Pair, Rng, Side, remote, wr};
use ferroce_proto::verbs::{
    Payload, QpType, SendFlags, SendOp, SendTo, SendWr, Sge, Wc, WcImm, WcStatus,
};

use super::{bytes, split};

/// Memory: the peer reads from SOURCE and writes to its slots in TARGET; READ results, received
/// messages and atomic results each have slots of their own. So what each must hold in the end does
/// not depend on timing.
const SOURCE: u64 = 0;
const SOURCE_LEN: u64 = 64 << 10;
const COUNTER: u64 = SOURCE_LEN;
const RESULTS: u64 = SOURCE_LEN + 64;
const TARGET: u64 = 128 << 10;
const READS: u64 = 2 << 20;
const RECVS: u64 = 4 << 20;
/// Bytes of memory that a node needs.
pub(crate) const MEMORY: usize = 6 << 20;
const SLOT: u64 = 16 << 10;
const MAX_LEN: u32 = 12 << 10;
/// Work requests per side, at most: there is a slot for each.
pub(crate) const MAX_OPS: usize = 100;

/// The queue that XRC workloads use; the test makes it.
pub(crate) const XRC_SRQ: Srqn = Srqn::new(0x51);

/// What must be in memory when all is done.
struct Expected {
    side: Side,
    at: u64,
    data: Vec<u8>,
    what: String,
}

/// One side's part.
struct Part {
    side: Side,
    left: usize,
    posted: u64,
    /// Signalled work requests that wait for their completion, oldest first.
    due: std::collections::VecDeque<u64>,
    reaped: usize,
    /// Messages that the peer must receive, in order: bytes and immediate.
    messages: Vec<(Vec<u8>, Option<[u8; 4]>, bool)>,
    sum: u64,
    recvs_posted: u64,
    recvs_reaped: usize,
}

/// The work of both sides.
pub(crate) struct Workload {
    parts: [Part; 2],
    expected: Vec<Expected>,
    sources: [Vec<u8>; 2],
    rng: Rng,
    /// Average number of turns in a row that post no receive (0: always enough receives).
    pub(crate) scarce: u32,
}

impl Workload {
    /// `ops` work requests on each side named.
    pub(crate) fn new(pair: &mut Pair, seed: u64, ops: [usize; 2]) -> Self {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let sources = [Side::A, Side::B].map(|side| {
            let data = bytes(&mut rng, SOURCE_LEN as usize);
            pair.node(side).memory.put(Arena::BASE + SOURCE, &data);
            data
        });
        let part = |side: Side| Part {
            side,
            left: ops[side as usize],
            posted: 0,
            due: std::collections::VecDeque::new(),
            reaped: 0,
            messages: Vec::new(),
            sum: 0,
            recvs_posted: 0,
            recvs_reaped: 0,
        };
        Self {
            parts: [part(Side::A), part(Side::B)],
            expected: Vec::new(),
            sources,
            rng,
            scarce: 0,
        }
    }

    /// Runs until everything is done and checks all of it.
    #[track_caller]
    pub(crate) fn run(&mut self, pair: &mut Pair) {
        let limit = pair.now + super::SOON;
        let mut idle = 0;
        while !self.done() {
            self.turn(pair);
            // Nothing may be under way only because this turn did not like to post.
            idle = if pair.step(limit) { 0 } else { idle + 1 };
            pair.now = pair.now + std::time::Duration::from_micros(1);
            assert!(
                idle < 200,
                "stuck at {:?}:\n{:#?}\n{:#?}",
                pair.now,
                pair.a.qp,
                pair.b.qp
            );
        }
        pair.settle(super::SOON);
        self.turn(pair);
        self.check(pair);
    }

    fn done(&self) -> bool {
        let all = |p: &Part, peer: &Part| {
            p.left == 0 && p.due.is_empty() && peer.recvs_reaped == p.messages.len()
        };
        all(&self.parts[0], &self.parts[1]) && all(&self.parts[1], &self.parts[0])
    }

    /// Reaps completions and posts new work.
    fn turn(&mut self, pair: &mut Pair) {
        for side in [Side::A, Side::B] {
            self.reap(pair, side);
            if self.scarce == 0 || self.rng.per_mille(1000 / (self.scarce + 1)) {
                self.post_recvs(pair, side);
            }
            for _ in 0..self.rng.below(4) {
                self.post(pair, side);
            }
        }
    }

    fn reap(&mut self, pair: &mut Pair, side: Side) {
        let part = &mut self.parts[side as usize];
        let results = &pair.node(side).results;
        for (wc, _) in &results.send[part.reaped..] {
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            assert_eq!(Some(wc.wr_id), part.due.pop_front(), "order of completions");
            part.reaped += 1;
        }
        let received = match results.xrc.get(&XRC_SRQ) {
            Some(queue) => &queue.completions,
            None => &results.recv,
        };
        let got: Vec<Wc> = received[part.recvs_reaped..].iter().map(|r| r.0).collect();
        let memory = &pair.node(side).memory;
        for wc in got {
            let nth = self.parts[side as usize].recvs_reaped;
            let sender = &self.parts[side.peer() as usize];
            let (data, imm, placed) = &sender.messages[nth];
            assert_eq!((wc.status, wc.wr_id), (WcStatus::Success, nth as u64));
            assert_eq!(wc.byte_len as usize, data.len());
            assert_eq!(wc.imm, imm.map(WcImm::Imm));
            if *placed {
                let at = Arena::BASE + RECVS + wc.wr_id * SLOT;
                assert_eq!(memory.get(at, data.len()), *data, "message {nth}");
            }
            self.parts[side as usize].recvs_reaped += 1;
        }
    }

    fn post_recvs(&mut self, pair: &mut Pair, side: Side) {
        let part = &mut self.parts[side as usize];
        let queued = part.recvs_posted - part.recvs_reaped as u64;
        let target = if self.scarce > 0 { 1 } else { 16 };
        for _ in queued..target {
            if part.recvs_posted as usize >= MAX_OPS {
                return;
            }
            let place = (RECVS + part.recvs_posted * SLOT, MAX_LEN);
            let pieces = 1 + self.rng.below32(4);
            let sges = split(pair, side, place, pieces);
            post_recv(pair, side, part.recvs_posted, sges);
            part.recvs_posted += 1;
        }
    }

    /// Posts a random work request, if one is left and fits.
    fn post(&mut self, pair: &mut Pair, side: Side) {
        if self.parts[side as usize].left == 0 {
            return;
        }
        let slot = self.parts[side as usize].posted;
        let short = self.rng.per_mille(500);
        let length = self.rng.below32(if short { 300 } else { MAX_LEN });
        let at = self.rng.below(SOURCE_LEN - u64::from(length));
        let kind = self.rng.below32(7);
        let imm = u32::try_from(slot).unwrap_or(0).to_be_bytes();
        let target = remote(pair.key(side.peer()), TARGET + slot * SLOT);
        let op = match kind {
            0 => SendOp::Send,
            1 => SendOp::SendImm(imm),
            2 => SendOp::Write(target),
            3 => SendOp::WriteImm(target, imm),
            4 | 5 => SendOp::Read(remote(pair.key(side.peer()), SOURCE + at)),
            _ => SendOp::FetchAdd {
                remote: remote(pair.key(side.peer()), COUNTER),
                add: slot + 1,
            },
        };
        let local = match op {
            SendOp::Read(_) => (READS + slot * SLOT, length),
            SendOp::FetchAdd { .. } => (RESULTS + slot * 8, 8),
            _ => (SOURCE + at, length),
        };
        let sges = split(pair, side, local, 1 + self.rng.below32(4));
        let mut request = wr(slot, op, sges);
        request.flags = self.flags();
        if pair.node(side).qp.config().qp_type == QpType::XrcSend {
            request.to = SendTo::XrcSrq(XRC_SRQ);
        }
        self.maybe_inline(&mut request, side, (at, length));
        let signalled = request.flags.contains(SendFlags::SIGNALED);
        if pair.try_send(side, request).is_err() {
            return; // full: comes again with the next turn
        }
        self.expect(side, op, (at, length));
        let part = &mut self.parts[side as usize];
        part.left -= 1;
        part.posted += 1;
        if signalled {
            part.due.push_back(slot);
        }
    }

    fn flags(&mut self) -> SendFlags {
        let mut flags = SendFlags::empty();
        if self.rng.per_mille(700) {
            flags |= SendFlags::SIGNALED;
        }
        if self.rng.per_mille(200) {
            flags |= SendFlags::FENCE;
        }
        flags
    }

    fn maybe_inline(&mut self, request: &mut SendWr, side: Side, (at, length): (u64, u32)) {
        let carries = !matches!(request.op, SendOp::Read(_) | SendOp::FetchAdd { .. });
        if carries && length <= 200 && self.rng.per_mille(500) {
            let at = at as usize;
            let data = self.sources[side as usize][at..at + length as usize].to_vec();
            request.payload = Payload::Inline(data.into());
        }
    }

    /// Notes what the work request must bring about.
    fn expect(&mut self, side: Side, op: SendOp, (at, length): (u64, u32)) {
        let peer = side.peer();
        let part = &mut self.parts[side as usize];
        let slot = part.posted;
        let range = at as usize..at as usize + length as usize;
        let mine = &self.sources[side as usize][range.clone()];
        let what = format!("{op:?} {slot} of {side:?}");
        let mut expect = |side, at, data: &[u8]| {
            let data = data.to_vec();
            let what = what.clone();
            self.expected.push(Expected {
                side,
                at,
                data,
                what,
            });
        };
        match op {
            SendOp::Send => part.messages.push((mine.to_vec(), None, true)),
            SendOp::SendImm(imm) => part.messages.push((mine.to_vec(), Some(imm), true)),
            SendOp::Write(_) => expect(peer, TARGET + slot * SLOT, mine),
            SendOp::WriteImm(_, imm) => {
                part.messages.push((mine.to_vec(), Some(imm), false));
                expect(peer, TARGET + slot * SLOT, mine);
            }
            SendOp::Read(_) => {
                let theirs = &self.sources[peer as usize][range];
                expect(side, READS + slot * SLOT, theirs);
            }
            SendOp::FetchAdd { add, .. } => {
                expect(side, RESULTS + slot * 8, &part.sum.to_ne_bytes());
                part.sum += add;
            }
            _ => {}
        }
    }

    /// Checks memory.
    #[track_caller]
    fn check(&self, pair: &mut Pair) {
        for e in &self.expected {
            let got = pair
                .node(e.side)
                .memory
                .get(Arena::BASE + e.at, e.data.len());
            assert!(got == e.data, "{}: wrong bytes", e.what);
        }
        for part in &self.parts {
            let peer = pair.node(part.side.peer());
            let counter = peer.memory.word(Arena::BASE + COUNTER);
            assert_eq!(counter, part.sum, "each atomic is executed once");
        }
        for node in [&pair.a, &pair.b] {
            assert!(node.results.events.is_empty(), "{:?}", node.results.events);
            assert!(!node.qp.wants_transmit());
            assert_eq!(node.qp.deadline(), None, "no timer is left running");
        }
    }
}

/// Posts a receive to whatever queue the queue pair takes from.
fn post_recv(pair: &mut Pair, side: Side, wr_id: u64, sges: Vec<Sge>) {
    let config = *pair.node(side).qp.config();
    match config.qp_type {
        QpType::XrcRecv => pair.xrc_recv(XRC_SRQ, wr_id, sges),
        QpType::XrcSend => {}
        _ if config.shared_recv => pair.shared_recv(side, wr_id, sges),
        _ => pair.recv(side, wr_id, sges),
    }
}
