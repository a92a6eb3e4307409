//! What the hot functions cost, for `cargo xtask instructions`, which runs this under callgrind and
//! counts.
//!
//! Each case does the same thing many times between two calls of [`boundary`], at which callgrind
//! writes its counters down. The names and the number of repetitions go to standard output, in that
//! order.
#![expect(
    clippy::unwrap_used,
    reason = "a failure is for the person that runs it"
)]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "instructions/receiving.rs"]
mod receiving;

use std::hint::black_box;

use common::{Buffer, End, pattern, wait_for};
use ferroce_nic::Cq;
use ferroce_proto::ids::Qpn;
use ferroce_proto::mad::{CmMad, Mad};
use ferroce_proto::verbs::{Payload, RecvWr, SendFlags, SendOp, SendTo, SendWr, Sges};
use ferroce_proto::wire::icrc::{self, Addresses, Encapsulation, Ident};
use ferroce_proto::wire::{Drain, Opcode, Packet, padded_len};
use receiving::{Connection, receiving};

/// Repetitions of what is pure.
const MANY: usize = 1000;
/// Work requests that are posted one after the other: fewer than a queue holds.
const POSTED: usize = 200;
/// Bytes of a small message.
const SMALL: usize = 64;

/// Callgrind writes down what was counted whenever this is entered.
#[inline(never)]
fn boundary() {
    black_box(());
}

/// Counts one case.
fn case(name: &str, repetitions: usize, mut once: impl FnMut(usize)) {
    println!("{name}\t{repetitions}");
    boundary();
    for index in 0..repetitions {
        once(index);
    }
    boundary();
}

fn main() {
    packets();
    questions();
    datagrams();
    crc();
    queues();
    receiving();
}

/// Parsing and building each kind of packet.
fn packets() {
    for number in 0..=u8::MAX {
        let opcode = Opcode(number);
        let Some(info) = opcode.info() else {
            continue;
        };
        let mut bytes = vec![0; 256];
        (bytes[0], bytes[7]) = (number, 5);
        let name = format!(
            "{:?} {:?} {:?}",
            info.service, info.operation, info.position
        );
        case(&format!("parse {name}"), MANY, |_| {
            black_box(Packet::parse(black_box(&bytes)).unwrap());
        });
        let packet = Packet::parse(&bytes).unwrap();
        let mut out = Vec::with_capacity(512);
        case(&format!("build {name}"), MANY, |_| {
            out.clear();
            let packet = black_box(&packet);
            Packet::emit_headers(&packet.bth, &packet.ext, packet.payload.len(), &mut out);
            black_box(&mut out);
        });
    }
}

/// The same for the questions between two of our kind.
fn questions() {
    for (name, room) in [("question", None), ("answer", Some(1 << 20))] {
        let drain = Drain {
            room,
            to: Qpn::new(0x11_2233),
            from: Qpn::new(0x44_5566),
            mark: 7,
        };
        let mut bytes = Vec::new();
        drain.emit(&mut bytes);
        case(&format!("parse drain {name}"), MANY, |_| {
            black_box(Drain::parse(black_box(&bytes)).unwrap());
        });
        let mut out = Vec::with_capacity(512);
        case(&format!("build drain {name}"), MANY, |_| {
            out.clear();
            black_box(&drain).emit(&mut out);
            black_box(&mut out);
        });
    }
}

/// The same for the connection manager's messages: attributes 0x10 (REQ) to 0x18 (SIDR REP).
fn datagrams() {
    for attribute in 0x10..=0x18 {
        let mut bytes: Mad = [0; 256];
        // Base version, class, class version, method; attribute.
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        bytes[17] = attribute;
        let mad = CmMad::parse(&bytes).unwrap();
        let name = mad.message.name();
        case(&format!("parse CM {name}"), MANY, |_| {
            black_box(CmMad::parse(black_box(&bytes)).unwrap());
        });
        case(&format!("build CM {name}"), MANY, |_| {
            black_box(black_box(&mad).emit());
        });
    }
}

/// The ICRC of packets that fill a path MTU, and of a short one.
fn crc() {
    for (name, src, dst) in [
        ("IPv4", "10.0.0.1", "10.0.0.2"),
        ("IPv6", "fd00::1", "fd00::2"),
    ] {
        let addresses = match (src.parse(), dst.parse()) {
            (Ok(src), Ok(dst)) => Addresses::V4 { src, dst },
            _ => Addresses::V6 {
                src: src.parse().unwrap(),
                dst: dst.parse().unwrap(),
            },
        };
        let encap = Encapsulation {
            addresses,
            src_port: 49152,
        };
        for len in [SMALL, 1024, 4096] {
            let mut packet = pattern(12 + padded_len(len), 1);
            case(&format!("ICRC compute {name} {len}"), MANY, |_| {
                black_box(icrc::compute(&encap, Ident::ZERO, black_box(&packet)));
            });
            let crc = icrc::compute(&encap, Ident::ZERO, &packet);
            packet.extend(crc);
            case(&format!("ICRC verify {name} {len}"), MANY, |_| {
                black_box(icrc::verify(&encap, black_box(&packet)).unwrap());
            });
        }
    }
}

/// Posting to a connected queue pair, and taking completions that are there.
fn queues() {
    let Connection { a, b, from, to } = Connection::new();
    case("post_recv", POSTED, |index| {
        let wr = RecvWr {
            wr_id: index as u64,
            sges: Sges::from_buf([to.sge(index * SMALL, SMALL)]),
        };
        b.qp.post_one_recv(wr).unwrap();
    });
    posted("SEND", &a, &from, &to, |_| SendOp::Send);
    case("poll_cq empty", POSTED, |_| {
        assert_eq!(a.cq.poll(1, &mut |_, _| {}).unwrap(), 0);
    });
    drain("receive", &b);
    posted("WRITE", &a, &from, &to, |index| {
        SendOp::Write(to.remote(index * SMALL))
    });
    posted("READ", &a, &from, &to, |index| {
        SendOp::Read(to.remote(index * SMALL))
    });
    posted("FETCH_ADD", &a, &from, &to, |index| SendOp::FetchAdd {
        remote: to.remote(index * SMALL),
        add: 0,
    });
}

/// Posts small messages, waits until all have been done, and takes their completions.
fn posted(name: &str, a: &End, from: &Buffer, to: &Buffer, operation: impl Fn(usize) -> SendOp) {
    let last = operation(POSTED - 1);
    let len = match last {
        SendOp::FetchAdd { .. } => size_of::<u64>(),
        _ => SMALL,
    };
    case(&format!("post_send {name} {len}"), POSTED, |index| {
        let wr = SendWr {
            to: SendTo::Peer,
            wr_id: index as u64,
            op: operation(index),
            flags: SendFlags::empty(),
            payload: Payload::Sges(Sges::from_buf([from.sge(index * SMALL, len)])),
        };
        a.qp.post_one_send(wr).unwrap();
    });
    let idle = Cq::create(&a.context, 1, None).unwrap();
    wait_for(name, || {
        progress(&idle);
        matches!(last, SendOp::Read(_)) || to.snapshot() == pattern(SMALL * POSTED, 2)
    });
    drain(name, a);
}

/// Does what there is to do, by polling a queue that nothing completes to.
fn progress(idle: &Cq) {
    idle.poll(1, &mut |_, _| {}).unwrap();
}

/// Takes the completions of all that was posted.
fn drain(name: &str, end: &End) {
    end.completion();
    settle(end);
    case(&format!("poll_cq {name}"), POSTED - 1, |_| {
        let mut take = |_, wc: &_| {
            black_box(wc);
        };
        while end.cq.poll(1, &mut take).unwrap() == 0 {}
    });
}

/// Waits until the device has nothing more to do, as far as one can see: no packet comes in many
/// rounds. What is counted next must not wait for it.
fn settle(end: &End) {
    let received = || end.context.device().counters().rx_packets();
    let idle = Cq::create(&end.context, 1, None).unwrap();
    let (mut last, mut quiet) = (received(), 0);
    while quiet < 500 {
        std::thread::yield_now();
        progress(&idle);
        let now = received();
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
    }
}
