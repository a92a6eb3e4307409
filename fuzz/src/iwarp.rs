//! iWARP queue pairs under arbitrary work: two over a stream that breaks anywhere, or one against a
//! peer that says what it likes.

use std::time::Duration;

use ferroce_proto::ids::{Key, PdId};
use ferroce_proto::iwarp::ddp::{Header, Tagged, Untagged};
use ferroce_proto::iwarp::mpa::{Rtr, Wishes, WithinHost};
use ferroce_proto::iwarp::rdmap::Opcode;
use ferroce_proto::iwarp::testkit::{Cut, Lone, Pair, Setup};
use ferroce_proto::iwarp::{IwQp, Teardown};
use ferroce_proto::mr::Access;
use ferroce_proto::testkit::{Arena, Node, Side, remote, sge};
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{Payload, QpState, RecvWr, SendFlags, SendOp, SendTo, SendWr, Sge};

use super::input::Input;
use super::posted::Posted;

/// Operations of one run.
const MAX_OPERATIONS: usize = 300;
/// Bytes of each node's memory.
const MEMORY: usize = 1 << 15;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let setup = setup(&mut input);
    let kind = input.u8();
    if kind & 1 != 0 {
        against_anything(setup, kind & 2 != 0, &mut input);
    } else {
        between_two(setup, &mut input);
    }
}

fn setup(input: &mut Input<'_>) -> Setup {
    let mut wishes = || {
        let flags = input.u8();
        Wishes {
            revision: 2,
            crc: flags & 1 != 0,
            markers: flags & 2 != 0,
            mark: flags & 4 != 0,
            within_host: WithinHost::No,
            rtr: Rtr::from_bits_truncate(flags >> 4) & (Rtr::WRITE | Rtr::READ),
            ird: u16::from(flags >> 5),
            max_ird: 8,
            ord: u16::from(flags >> 6),
        }
    };
    let (a, b) = (wishes(), wishes());
    let flags = input.u8();
    let mut cut = |on: bool| {
        let (after, reset) = (input.u16().into(), input.flag());
        on.then_some(Cut { after, reset })
    };
    let cuts = [cut(flags & 1 != 0), cut(flags & 2 != 0)];
    Setup {
        seed: input.u8().into(),
        memory: MEMORY,
        a,
        b,
        segment: 1 << (7 + input.below(10)),
        buffer: 1 << (5 + input.below(12)),
        sq_sig_all: flags & 4 != 0,
        cuts,
        ..Setup::default()
    }
}

/// What was posted at one end.
#[derive(Default)]
struct Work {
    sends: Posted,
    recvs: Posted,
    wr_id: u64,
    /// Keys that a work request or a peer may name, good and bad.
    keys: Vec<Key>,
}

impl Work {
    fn new(node: &mut Node<IwQp>, all: Key) -> Self {
        let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let keys = vec![
            all,
            all,
            all,
            Key(0xbad),
            node.register(0, 64, Access::LOCAL_WRITE),
            node.register(4096, 4096, Access::REMOTE_READ),
            node.register_in(PdId(9), 0, 4096, remote | Access::LOCAL_WRITE),
            node.bound_window(1024, 4096, remote),
        ];
        Self {
            keys,
            ..Self::default()
        }
    }

    fn key(&self, input: &mut Input<'_>) -> Key {
        input.pick(&self.keys).unwrap_or_default()
    }

    fn sges(&self, input: &mut Input<'_>) -> Vec<Sge> {
        let mut one = |_| {
            let length = if input.flag() {
                input.u16()
            } else {
                input.u8().into()
            };
            sge(self.key(input), input.u16().into(), length.into())
        };
        let count = 1 + usize::from(one(0).length % 3 == 0);
        (0..count).map(one).collect()
    }

    fn post_send(
        &mut self,
        input: &mut Input<'_>,
        node: &mut Node<IwQp>,
        now: Time,
        theirs: &[Key],
    ) {
        let rkey = input.pick(theirs).unwrap_or_default();
        let there = remote(rkey, u64::from(input.u16() & 0x7ff8));
        let op = match input.below(10) {
            0 => SendOp::Send,
            1 => SendOp::SendImm(input.array()),
            2 => SendOp::SendInvalidate(rkey),
            3 => SendOp::Write(there),
            4 => SendOp::WriteImm(there, input.array()),
            5 | 6 => SendOp::Read(there),
            7 => SendOp::CompareSwap {
                remote: there,
                compare: input.u8().into(),
                swap: 7,
            },
            8 => SendOp::FetchAdd {
                remote: there,
                add: 1,
            },
            _ => SendOp::LocalInvalidate(self.key(input)),
        };
        let mut flags = SendFlags::from_bits_truncate(u32::from(input.u8() & 7));
        let payload = if input.below(8) == 0 {
            flags |= SendFlags::INLINE;
            let len = input.u8().into();
            Payload::Inline(input.take(len).into())
        } else {
            Payload::Sges(self.sges(input).into())
        };
        self.wr_id += 1;
        let wr = SendWr {
            to: SendTo::Peer,
            wr_id: self.wr_id,
            op,
            flags,
            payload,
        };
        let signalled = node.qp.config().sq_sig_all || flags.contains(SendFlags::SIGNALED);
        self.sends.open.push_back((self.wr_id, signalled));
        if node.with(now, |qp, cx| qp.post_send(cx, wr)).is_err() {
            self.sends.open.pop_back();
        }
    }

    fn post_recv(&mut self, input: &mut Input<'_>, node: &mut Node<IwQp>, now: Time) {
        self.wr_id += 1;
        let wr = RecvWr {
            wr_id: self.wr_id,
            sges: self.sges(input).into(),
        };
        self.recvs.open.push_back((self.wr_id, true));
        if node.with(now, |qp, cx| qp.post_recv(cx, wr)).is_err() {
            self.recvs.open.pop_back();
        }
    }

    fn check(&mut self, node: &Node<IwQp>) {
        self.sends.check(&node.results.send);
        self.recvs.check(&node.results.recv);
        if node.qp.state() == QpState::Err {
            self.sends.check_empty();
            self.recvs.check_empty();
            assert_ne!(node.qp.teardown(), Teardown::Keep);
        }
    }
}

fn between_two(setup: Setup, input: &mut Input<'_>) {
    let mut pair = Pair::new(setup);
    let keys = pair.keys;
    let mut works = [
        Work::new(&mut pair.a, keys[0]),
        Work::new(&mut pair.b, keys[1]),
    ];
    for _ in 0..MAX_OPERATIONS {
        if input.is_empty() {
            break;
        }
        let side = if input.flag() { Side::A } else { Side::B };
        let theirs = works[side.peer() as usize].keys.clone();
        let (now, work) = (pair.now, &mut works[side as usize]);
        match input.below(16) {
            0..=4 => work.post_send(input, pair.node(side), now, &theirs),
            5..=8 => work.post_recv(input, pair.node(side), now),
            9..=12 => {
                let until = now + Duration::from_micros(1 << (input.u8() % 24));
                for _ in 0..=input.below(64) {
                    if !pair.step(until) {
                        break;
                    }
                }
            }
            13 => {
                let len = input.u8().into();
                let bytes = input.take(len).to_vec();
                pair.inject(side, &bytes);
            }
            14 => {
                let key = work.key(input);
                pair.node(side).rights.remove(key);
            }
            _ => match input.below(3) {
                0 => pair.node(side).with(now, |qp, cx| qp.disconnect(cx)),
                1 => pair.node(side).with(now, |qp, cx| qp.abort(cx)),
                _ => pair.reset(),
            },
        }
        works[0].check(&pair.a);
        works[1].check(&pair.b);
    }
    pair.run();
    pair.reset();
    works[0].check(&pair.a);
    works[1].check(&pair.b);
}

fn against_anything(setup: Setup, lands: bool, input: &mut Input<'_>) {
    let mut lone = Lone::new(setup);
    let key = lone.key;
    let mut work = Work::new(&mut lone.node, key);
    let keys = work.keys.clone();
    for _ in 0..MAX_OPERATIONS {
        if input.is_empty() {
            break;
        }
        let now = lone.now;
        match input.below(8) {
            0..=3 if lands && input.flag() => {
                let ulpdu = long_ulpdu(input, &keys);
                say_in_place(&mut lone, input, &ulpdu);
            }
            0..=3 => {
                let ulpdu = ulpdu(input, &keys);
                lone.says(&ulpdu);
            }
            4 => work.post_send(input, &mut lone.node, now, &keys),
            5 => work.post_recv(input, &mut lone.node, now),
            6 => {
                // What the queue pair sends keeps the rules, whatever the peer does.
                let _ = lone.heard();
            }
            _ => {
                lone.now = lone.now + Duration::from_millis(input.u8().into());
                let now = lone.now;
                lone.node.qp.on_deadline(now);
                let len = input.below(32);
                let bytes = input.take(len);
                lone.write(bytes);
            }
        }
        work.check(&lone.node);
    }
    let now = lone.now;
    lone.node.with(now, |qp, cx| qp.on_closed(cx, false));
    work.check(&lone.node);
}

/// Most parts in which an FPDU comes that may land.
const MAX_PARTS: usize = 8;

/// The peer sends an FPDU in parts, which are read to their places if they have some.
fn say_in_place(lone: &mut Lone, input: &mut Input<'_>, ulpdu: &[u8]) {
    let fpdu = lone.fpdu(ulpdu);
    let mut rest = &fpdu[..];
    for _ in 0..input.below(MAX_PARTS) {
        let (part, later) = rest.split_at(usize::from(input.u16()).min(rest.len()));
        lone.write_in_place(part);
        rest = later;
        if input.below(16) == 0 {
            // The memory is gone while the FPDU lands.
            lone.node
                .memory
                .unmap(Arena::BASE + u64::from(input.u16()), 64);
        }
    }
    lone.write_in_place(rest);
}

/// A segment that is likely to mean something, and long enough to land.
fn long_ulpdu(input: &mut Input<'_>, keys: &[Key]) -> Vec<u8> {
    let mut bytes = ulpdu(input, keys);
    bytes.resize(
        bytes.len() + (16 << 10) + usize::from(input.u8()) * 32,
        0x5a,
    );
    bytes
}

/// A segment that is likely to mean something.
fn ulpdu(input: &mut Input<'_>, keys: &[Key]) -> Vec<u8> {
    let opcode = input.pick(&Opcode::ALL).unwrap_or(Opcode::Send);
    let (last, key) = (input.below(8) != 0, input.pick(keys).unwrap_or_default());
    let number = |input: &mut Input<'_>| {
        if input.below(4) == 0 {
            input.u32()
        } else {
            u32::from(input.u8() % 8)
        }
    };
    let header = match opcode.queue() {
        None => Header::Tagged(Tagged {
            last,
            opcode,
            stag: key,
            to: Arena::BASE + u64::from(input.u16()),
        }),
        Some(queue) => Header::Untagged(Untagged {
            last,
            opcode,
            invalidate: key,
            queue: if input.below(16) == 0 {
                number(input)
            } else {
                queue
            },
            msn: number(input),
            mo: if input.below(2) == 0 {
                0
            } else {
                number(input)
            },
        }),
    };
    let mut bytes = header.emit().to_vec();
    if opcode == Opcode::ReadRequest && input.below(8) != 0 {
        bytes.extend([0; 12]);
        bytes.extend(u32::from(input.u16()).to_be_bytes());
        bytes.extend(key.0.to_be_bytes());
        bytes.extend((Arena::BASE + u64::from(input.u16())).to_be_bytes());
        return bytes;
    }
    if opcode == Opcode::AtomicRequest && input.below(8) != 0 {
        bytes.extend([0, 0, 0, 0, 0, 0, 0, input.u8()]);
        bytes.extend(key.0.to_be_bytes());
        bytes.extend((Arena::BASE + u64::from(input.u8() & 0xf8)).to_be_bytes());
        bytes.extend([0; 32]);
        return bytes;
    }
    let len = input.u8().into();
    bytes.extend_from_slice(input.take(len));
    bytes
}
