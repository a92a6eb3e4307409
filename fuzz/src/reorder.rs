//! A transfer between two Ferroces, and forged packets with any PSN but those that no receiver can
//! tell from its peer's.

use std::sync::LazyLock;
use std::time::Duration;

use ferroce_proto::ids::{Key, Msn, Psn};
use ferroce_proto::rc::LinkTraits;
use ferroce_proto::testkit::{Arena, Faults, Pair, Rng, Setup, Side, remote, wr};
use ferroce_proto::verbs::{QpState, SendOp, WcStatus};
use ferroce_proto::wire::{
    Aeth, Bth, ExtHeaders, Opcode, Operation, Packet, Position, Reth, Syndrome,
};

use super::input::Input;

/// Bytes of a message, and of the room for it.
const LEN: u32 = 5000;
const SLOT: u64 = 1 << 13;
/// Where WRITEs go at B, and READs at A; READs get what is there.
const WRITTEN: u64 = 512 << 10;
/// Packets of a message, and of one of each kind: SEND, WRITE, READ.
const PACKETS: u32 = LEN.div_ceil(1024);
const ROUND: u32 = 3 * PACKETS;
/// PSN of A's first packet.
const FIRST: u32 = 0xff_ffe0;
/// Messages of each kind, at most, and how many of them may be under way.
const MOST: u64 = 48;
const UNDER_WAY: u64 = 16;
/// Virtual time within which something happens.
const SOON: Duration = Duration::from_secs(120);
/// A transfer never takes so many steps.
const STEPS: usize = 100_000;

/// What A sends.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut rng = Rng::new(7);
    (0..MOST * SLOT / 8)
        .flat_map(|_| rng.bits().to_ne_bytes())
        .collect()
});

/// What is forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forged {
    Send,
    Write,
    Read,
    LongRead,
    Response,
    OnlyResponse,
}

pub const KINDS: [Forged; 6] = [
    Forged::Send,
    Forged::Write,
    Forged::Read,
    Forged::LongRead,
    Forged::Response,
    Forged::OnlyResponse,
];

/// SENDs, WRITEs and READs from A to B.
pub struct Transfer {
    pub pair: Pair,
    posted: u64,
    /// PSN of B's next response, as far as the trace was read.
    response: Psn,
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut transfer = Transfer::new(Faults {
        duplicate: u32::from(input.u8()),
        ..Faults::default()
    });
    while !input.is_empty() {
        match input.below(4) {
            0 => transfer.post(),
            1 => transfer.step(input.below(8)),
            2 => {
                let until = transfer.pair.now + Duration::from_micros(1 << (input.u8() % 22));
                while transfer.pair.step(until) {}
                transfer.pair.now = transfer.pair.now.max(until);
            }
            _ => {
                let (kind, bits) = (KINDS[input.below(KINDS.len())], input.u8());
                let ahead = match bits & 3 {
                    0 => u32::from(input.u8()),
                    1 => u32::from(input.u16()),
                    _ => input.u32() & 0x00ff_ffff,
                };
                transfer.forge(kind, ahead, bits);
            }
        }
    }
    transfer.finish("");
}

impl Transfer {
    pub fn new(faults: Faults) -> Self {
        let mut pair = Pair::new(Setup {
            is_ferroce_peer: true,
            psn: FIRST,
            link: LinkTraits {
                lossless: false,
                max_in_flight: 80 << 10,
            },
            faults,
            ..Setup::default()
        });
        pair.a.memory.put(Arena::BASE, &BYTES);
        pair.trace = Some(Vec::new());
        Self {
            pair,
            posted: 0,
            response: Psn::new(FIRST).plus(ROUND - PACKETS),
        }
    }

    /// Posts the next message of each kind, unless there are enough.
    pub fn post(&mut self) {
        let done = self.pair.a.results.send.len() as u64 / 3;
        if self.posted >= MOST || self.posted - done >= UNDER_WAY {
            return;
        }
        let (pair, at) = (&mut self.pair, self.posted * SLOT);
        let into = pair.sge(Side::B, at, LEN);
        pair.recv(Side::B, self.posted, vec![into]);
        let from = vec![pair.sge(Side::A, at, LEN)];
        let there = remote(pair.key(Side::B), WRITTEN + at);
        let back = vec![pair.sge(Side::A, WRITTEN + at, LEN)];
        let id = 3 * self.posted;
        pair.send(Side::A, wr(id, SendOp::Send, from.clone()));
        pair.send(Side::A, wr(id + 1, SendOp::Write(there), from));
        pair.send(Side::A, wr(id + 2, SendOp::Read(there), back));
        self.posted += 1;
    }

    pub fn step(&mut self, times: usize) {
        for _ in 0..times {
            self.pair.step(self.pair.now + SOON);
        }
    }

    /// Waits for all that was posted; it must be right.
    #[track_caller]
    pub fn finish(&mut self, what: &str) {
        let all = 3 * self.posted;
        for _ in 0..STEPS {
            let more = self.pair.step(self.pair.now + SOON);
            if !more || self.pair.a.results.send.len() as u64 == all {
                break;
            }
        }
        assert_eq!(self.pair.a.qp.state(), QpState::Rts, "{what}: A ended");
        assert_eq!(self.pair.b.qp.state(), QpState::Rts, "{what}: B ended");
        let expected: Vec<_> = (0..all).map(|id| (id, WcStatus::Success)).collect();
        assert_eq!(self.pair.a.results.send_statuses(), expected, "{what}");
        let expected: Vec<_> = (0..self.posted).map(|id| (id, WcStatus::Success)).collect();
        assert_eq!(self.pair.b.results.recv_statuses(), expected, "{what}");
        for at in (0..self.posted).map(|n| Arena::BASE + n * SLOT) {
            let sent = self.pair.a.memory.get(at, LEN as usize);
            let got = [
                self.pair.b.memory.get(at, LEN as usize),
                self.pair.b.memory.get(at + WRITTEN, LEN as usize),
                self.pair.a.memory.get(at + WRITTEN, LEN as usize),
            ];
            let right = got.map(|bytes| bytes == sent);
            assert_eq!(right, [true; 3], "{what}: SEND, WRITE, READ at {at:#x}");
        }
    }

    /// A forged packet so far ahead of what its victim expects arrives, unless nobody can tell it
    /// from the peer's. Returns whether it did. `bits` are flags of its header.
    pub fn forge(&mut self, kind: Forged, ahead: u32, bits: u8) -> bool {
        let (into, expected) = match kind {
            Forged::Response | Forged::OnlyResponse => (Side::A, self.pair.a.qp.oldest_psn()),
            _ => (Side::B, self.pair.b.qp.expected()),
        };
        let psn = expected.plus(ahead);
        if self.is_the_peers(into, (expected, psn)) {
            return false;
        }
        let (opcode, ext, payload) = packet(kind);
        let bth = Bth {
            ack_req: bits & 4 != 0,
            congestion: bits >> 3 & Bth::VOUCHED,
            ..Bth::new(opcode, self.pair.node(into).qp.config().qpn, psn)
        };
        let (packet, now) = (Packet { bth, ext, payload }, self.pair.now);
        self.pair
            .node(into)
            .with(now, |qp, cx| qp.on_packet(cx, &packet));
        true
    }

    /// Whether a packet could be the peer's next one, for all that its victim knows: it is the
    /// expected one, or the one that the peer sends next, which no other contradicts. An answer to
    /// a READ acknowledges what was sent before that.
    fn is_the_peers(&mut self, into: Side, (expected, psn): (Psn, Psn)) -> bool {
        if into == Side::B {
            return psn == expected || psn == self.pair.a.qp.next_psn();
        }
        let is_next = |from: Psn| next_answer(from) == psn;
        is_next(expected) || is_next(self.next_response())
    }

    fn next_response(&mut self) -> Psn {
        let trace = self.pair.trace.replace(Vec::new()).unwrap_or_default();
        for (_, bytes) in trace.iter().filter(|(from, _)| *from == Side::B) {
            let Ok(packet) = Packet::parse(bytes) else {
                continue;
            };
            let is_response = packet
                .bth
                .opcode
                .info()
                .is_some_and(|info| info.operation == Operation::ReadResponse);
            if is_response && packet.bth.psn.distance(self.response) >= 0 {
                self.response = packet.bth.psn.plus(1);
            }
        }
        self.response
    }
}

/// The first PSN from this one on that a READ's answer has.
fn next_answer(from: Psn) -> Psn {
    let number = from
        .distance(Psn::new(FIRST))
        .rem_euclid(ROUND.cast_signed());
    from.plus((ROUND - PACKETS).saturating_sub(number.cast_unsigned()))
}

fn packet(kind: Forged) -> (Opcode, ExtHeaders, &'static [u8]) {
    const JUNK: [u8; 1024] = [0xee; 1024];
    let none = ExtHeaders::default();
    let reth = |length| ExtHeaders {
        reth: Some(Reth {
            va: Arena::BASE,
            rkey: Key(0xbad),
            length,
        }),
        ..none
    };
    let aeth = ExtHeaders {
        aeth: Some(Aeth {
            syndrome: Syndrome::ACK,
            msn: Msn::new(1),
        }),
        ..none
    };
    let only = |operation| Opcode::rc(operation, Position::Only);
    let middle = Opcode::rc(Operation::ReadResponse, Position::Middle);
    match kind {
        Forged::Send => (only(Operation::Send), none, &JUNK[..64]),
        Forged::Write => (only(Operation::Write), reth(64), &JUNK[..64]),
        Forged::Read => (only(Operation::ReadRequest), reth(1), &[]),
        Forged::LongRead => (only(Operation::ReadRequest), reth(1 << 21), &[]),
        Forged::Response => (middle, none, &JUNK),
        Forged::OnlyResponse => (only(Operation::ReadResponse), aeth, &JUNK),
    }
}
