//! Messages of every class of length, out of and into every number of pieces.

use ferroce_proto::verbs::{
    QpType, SendFlags, SendOp, SendTo, SendWr, Sge, Wc, WcImm, WcOpcode, WcStatus,
};

use super::xrc;
use crate::bench::{Bench, MTU, Spec};
use crate::case::Case;
use crate::end::{End, LOSSES, pattern, send_wr};
use crate::wait::wait_within;

pub(super) const CASES: &[Case] = &[
    Case::new("send.lengths", &["op.send", "op.lengths", "op.sges"], |b| {
        transfers(b, QpType::Rc, Form::Send)
    }),
    Case::new(
        "send-imm.lengths",
        &["op.send", "op.imm", "op.lengths", "op.sges"],
        |b| transfers(b, QpType::Rc, Form::SendImm),
    ),
    Case::new(
        "write.lengths",
        &["op.write", "op.lengths", "op.sges"],
        |b| transfers(b, QpType::Rc, Form::Write),
    ),
    Case::new(
        "write-imm.lengths",
        &["op.write", "op.imm", "op.lengths", "op.sges"],
        |b| transfers(b, QpType::Rc, Form::WriteImm),
    ),
    Case::new("read.lengths", &["op.read", "op.lengths", "op.sges"], |b| {
        transfers(b, QpType::Rc, Form::Read)
    }),
    Case::new(
        "uc.send.lengths",
        &["op.send", "op.lengths", "op.sges"],
        |b| transfers(b, QpType::Uc, Form::Send),
    ),
    Case::new(
        "uc.send-imm.lengths",
        &["op.send", "op.imm", "op.lengths", "op.sges"],
        |b| transfers(b, QpType::Uc, Form::SendImm),
    ),
    Case::new(
        "uc.write-imm.lengths",
        &["op.write", "op.imm", "op.lengths", "op.sges"],
        |b| transfers(b, QpType::Uc, Form::WriteImm),
    ),
    Case::new(
        "xrc.send.lengths",
        &["op.send", "op.lengths", "op.sges", "xrc.delivers"],
        |b| transfers(b, QpType::XrcSend, Form::Send),
    ),
    Case::new(
        "xrc.send-imm.lengths",
        &["op.send", "op.imm", "op.lengths", "op.sges", "xrc.delivers"],
        |b| transfers(b, QpType::XrcSend, Form::SendImm),
    ),
    Case::new(
        "xrc.write.lengths",
        &["op.write", "op.lengths", "op.sges"],
        |b| transfers(b, QpType::XrcSend, Form::Write),
    ),
    Case::new(
        "xrc.write-imm.lengths",
        &[
            "op.write",
            "op.imm",
            "op.lengths",
            "op.sges",
            "xrc.delivers",
        ],
        |b| transfers(b, QpType::XrcSend, Form::WriteImm),
    ),
    Case::new(
        "xrc.read.lengths",
        &["op.read", "op.lengths", "op.sges"],
        |b| transfers(b, QpType::XrcSend, Form::Read),
    ),
    Case::slow("send.1-GiB", &["op.lengths"], gigabyte),
];

/// Classes of message lengths.
const LENGTHS: [usize; 7] = [0, 1, MTU - 1, MTU, MTU + 1, 3 * MTU, 1 << 20];
/// Numbers of scatter/gather elements; the last is the most that the queue pair takes.
const PIECES: [usize; 4] = [0, 1, 2, 4];
/// Bytes between pieces, which must stay as they are.
const GAP: usize = 5;

const IMM: [u8; 4] = [0xde, 0xad, 0xbe, 0xef];

/// A way to move a message from A to B, or for a READ from B to A. (Nothing tells a UC requester
/// that a WRITE without immediate has arrived.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
}

/// Where `len` bytes lie if they are cut in `pieces` with gaps: (offset in memory, length) of each.
pub(super) fn layout(len: usize, pieces: usize) -> Vec<(usize, usize)> {
    let mut at = 0;
    let mut left = len;
    (0..pieces)
        .map(|i| {
            let take = if i + 1 == pieces { left } else { left / 2 };
            let piece = (at, take);
            at += take + GAP;
            left -= take;
            piece
        })
        .collect()
}

pub(super) fn sges(end: &End, pieces: &[(usize, usize)]) -> Vec<Sge> {
    pieces.iter().map(|&(at, len)| end.sge(at, len)).collect()
}

/// Two ends, with room for the longest message in pieces.
fn ends(bench: &Bench, kind: QpType) -> (End, End) {
    let memory = (1 << 20) + 64;
    let spec = Spec {
        memory,
        ..Spec::of(kind)
    };
    match kind {
        QpType::XrcSend => xrc::pair_with(bench, memory),
        _ => bench.pair_of(spec, spec),
    }
}

fn transfers(bench: &Bench, kind: QpType, form: Form) {
    let mut pair = ends(bench, kind);
    let mut lost = 0;
    for (seed, len) in (1..).zip(LENGTHS) {
        for pieces in PIECES {
            if pieces == 0 && len > 0 {
                continue;
            }
            while !transfer(&pair, (kind, form), CutMessage { len, pieces, seed }) {
                lost += 1;
                assert!(kind == QpType::Uc && lost <= LOSSES, "{form:?} of {len}");
                pair = ends(bench, kind);
            }
        }
    }
}

/// A message that lies in pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct CutMessage {
    /// Bytes.
    pub(super) len: usize,
    pub(super) pieces: usize,
    /// What its bytes are drawn from.
    pub(super) seed: u64,
}

/// Moves one message out of and into pieces, and looks at every byte of the receiver's memory.
/// Returns false if it was lost.
fn transfer(
    (a, b): &(End, End),
    (kind, form): (QpType, Form),
    CutMessage { len, pieces, seed }: CutMessage,
) -> bool {
    let content = pattern(len, seed);
    let (cut, whole) = (layout(len, pieces), vec![(0, len)]);
    let receives = matches!(form, Form::Send | Form::SendImm);
    // One-sided operations have their pieces at the requester only.
    let (from, from_cut, to, to_cut) = match form {
        Form::Read => (b, &whole, a, &cut),
        _ => (a, &cut, b, if receives { &cut } else { &whole }),
    };
    let mut rest = &content[..];
    for &(at, len) in from_cut {
        from.memory().fill(at, &rest[..len]);
        rest = &rest[len..];
    }
    let size = len + pieces * GAP;
    to.memory().fill(0, &vec![0x55; size]);
    let op = match form {
        Form::Send => SendOp::Send,
        Form::SendImm => SendOp::SendImm(IMM),
        Form::Write => SendOp::Write(b.remote(0)),
        Form::WriteImm => SendOp::WriteImm(b.remote(0), IMM),
        Form::Read => SendOp::Read(b.remote(0)),
    };
    match form {
        Form::Send | Form::SendImm => b.recv(seed, sges(b, to_cut)),
        Form::WriteImm => b.recv(seed, vec![]),
        Form::Write | Form::Read => {}
    }
    let to_whom = match kind {
        QpType::XrcSend => SendTo::XrcSrq(b.side().srqn()),
        _ => SendTo::Peer,
    };
    let wr = SendWr {
        to: to_whom,
        ..send_wr(seed, op, sges(a, &cut), SendFlags::SIGNALED)
    };
    a.post(wr).expect("posted");
    let sent = a.done(seed);
    a.waits_for_peer();
    if !check_completions(b, (kind, form), len, (seed, &sent)) {
        return false;
    }
    let mut expected = vec![0x55; size];
    let mut rest = &content[..];
    for &(at, len) in to_cut {
        expected[at..at + len].copy_from_slice(&rest[..len]);
        rest = &rest[len..];
    }
    assert!(
        to.memory().bytes(0, size) == expected,
        "{form:?} of {len} bytes in {pieces} pieces"
    );
    true
}

/// Returns false if the message was lost.
fn check_completions(
    b: &End,
    (kind, form): (QpType, Form),
    len: usize,
    (wr_id, sent): (u64, &Wc),
) -> bool {
    let (send, recv) = match form {
        Form::Send | Form::SendImm => (WcOpcode::Send, Some(WcOpcode::Recv)),
        Form::Write => (WcOpcode::RdmaWrite, None),
        Form::WriteImm => (WcOpcode::RdmaWrite, Some(WcOpcode::RecvRdmaWithImm)),
        Form::Read => (WcOpcode::RdmaRead, None),
    };
    assert_eq!(sent.opcode, send);
    match recv {
        Some(opcode) => {
            let received = match kind {
                QpType::Uc => b.arrival(wr_id),
                _ => Some(b.done(wr_id)),
            };
            let Some(received) = received else {
                return false;
            };
            let imm = matches!(form, Form::SendImm | Form::WriteImm).then_some(WcImm::Imm(IMM));
            assert_eq!(
                (received.opcode, received.byte_len as usize, received.imm),
                (opcode, len, imm)
            );
        }
        None => b.is_silent(),
    }
    true
}

/// One message of 1 GiB, out of and into four elements that are all the same quarter.
fn gigabyte(bench: &Bench) {
    const QUARTER: usize = 256 << 20;
    let spec = Spec {
        memory: QUARTER,
        ..Spec::default()
    };
    let (a, b) = bench.pair_of(spec, spec);
    let content = pattern(1 << 20, 5);
    a.memory().fill(QUARTER - content.len(), &content);
    let quarters = |end: &End| vec![end.sge(0, QUARTER); 4];
    b.recv(1, quarters(&b));
    a.send(1, SendOp::Send, quarters(&a));
    let deadline = std::time::Duration::from_secs(180);
    let sent = wait_within(deadline, "completion", || {
        a.side().poll().expect("no overflow")
    });
    assert_eq!((sent.wr_id, sent.status), (1, WcStatus::Success));
    assert_eq!(b.done(1).byte_len, 1 << 30);
    let end = b.memory().bytes(QUARTER - content.len(), content.len());
    assert!(end == content);
}
