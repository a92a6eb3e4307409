//! What each operation does, inline data, unsignalled work, fences and depth.

use ferroce_proto::ids::Key;
use ferroce_proto::verbs::{
    Payload, QpState, SendFlags, SendOp, SendTo, SendWr, WcOpcode, WcStatus,
};

use crate::bench::{Bench, MTU, Spec};
use crate::case::Case;
use crate::end::pattern;

pub(super) const CASES: &[Case] = &[
    Case::new("atomic.compare-swap", &["op.atomic"], compare_swap),
    Case::new("atomic.fetch-add", &["op.atomic"], fetch_add),
    Case::new("send.inline", &["op.inline"], inline),
    Case::new(
        "invalidate.region",
        &["op.local-invalidate", "violation.invalidate"],
        invalidate_of_a_region,
    ),
    Case::new("send.unsignalled", &["cq.unsignalled"], unsignalled),
    Case::new(
        "zero-bytes.no-key",
        &["op.zero-no-key"],
        zero_bytes_need_no_key,
    ),
    Case::new("read.fence", &["rc.fence"], fence),
    Case::new("reads.depth", &["rc.depth"], depth),
    Case::new("operations.mixed", &["cq.order", "cq.once"], mixed),
];

fn compare_swap(bench: &Bench) {
    let (a, b) = bench.pair();
    b.memory().fill(8, &7_u64.to_ne_bytes());
    for (wr_id, compare, swap, before, after) in [
        (1, 7, 9, 7_u64, 9_u64),
        (2, 7, 11, 9, 9),
        (3, 9, u64::MAX, 9, u64::MAX),
    ] {
        let remote = b.remote(8);
        let op = SendOp::CompareSwap {
            remote,
            compare,
            swap,
        };
        a.send(wr_id, op, vec![a.sge(16, 8)]);
        assert_eq!(a.done(wr_id).opcode, WcOpcode::CompSwap);
        assert_eq!((a.memory().word(16), b.memory().word(8)), (before, after));
    }
}

fn fetch_add(bench: &Bench) {
    let (a, b) = bench.pair();
    b.memory().fill(8, &u64::MAX.to_ne_bytes());
    for (wr_id, add, before, after) in [(1, 1, u64::MAX, 0), (2, 1 << 40, 0, 1 << 40)] {
        let remote = b.remote(8);
        a.send(wr_id, SendOp::FetchAdd { remote, add }, vec![a.sge(16, 8)]);
        assert_eq!(a.done(wr_id).opcode, WcOpcode::FetchAdd);
        assert_eq!((a.memory().word(16), b.memory().word(8)), (before, after));
    }
}

fn inline(bench: &Bench) {
    let (a, b) = bench.pair();
    for (wr_id, len) in [(1, 0), (2, 1), (3, 64)] {
        let content = pattern(len, wr_id);
        b.recv(wr_id, vec![b.sge(0, 100)]);
        let wr = SendWr {
            wr_id,
            to: SendTo::Peer,
            op: SendOp::Send,
            flags: SendFlags::SIGNALED | SendFlags::INLINE,
            payload: Payload::Inline(content[..].into()),
        };
        a.post(wr).expect("posted");
        a.done(wr_id);
        assert_eq!(b.done(wr_id).byte_len as usize, len);
        assert_eq!(b.memory().bytes(0, len), content);
    }
}

/// Regions from `ibv_reg_mr` are closed by their owner's deregistration only.
fn invalidate_of_a_region(bench: &Bench) {
    let (mut a, b) = bench.pair();
    let key = a.register(0, 64, crate::bench::ALL);
    a.send(1, SendOp::LocalInvalidate(key), vec![]);
    assert_ne!(a.completion().status, WcStatus::Success);
    assert_eq!(b.state(), QpState::Rts);
    let (a, mut b) = bench.pair();
    let key = b.register(0, 64, crate::bench::ALL);
    b.recv(1, vec![]);
    a.send(1, SendOp::SendInvalidate(key), vec![]);
    assert_ne!(a.completion().status, WcStatus::Success);
    assert_ne!(b.completion().status, WcStatus::Success);
}

fn unsignalled(bench: &Bench) {
    let spec = Spec {
        sq_sig_all: false,
        ..Spec::default()
    };
    let (a, b) = bench.pair_of(spec, Spec::default());
    for wr_id in 0..100 {
        let flags = if wr_id % 10 == 9 {
            SendFlags::SIGNALED
        } else {
            SendFlags::empty()
        };
        a.send_flagged(wr_id, SendOp::Write(b.remote(0)), vec![a.sge(0, 8)], flags);
        if wr_id % 10 == 9 {
            a.done(wr_id);
        }
    }
    a.is_silent();
}

fn zero_bytes_need_no_key(bench: &Bench) {
    let (a, b) = bench.pair();
    let nowhere = b.remote_with(Key(0xdead), 1 << 40);
    a.send(1, SendOp::Write(nowhere), vec![]);
    a.done(1);
    a.send(2, SendOp::Read(nowhere), vec![]);
    a.done(2);
    let empty = a.sge_with(Key(0xdead), 0, 0);
    b.recv(3, vec![b.sge_with(Key(0xdead), 0, 0)]);
    a.send(3, SendOp::Send, vec![empty]);
    a.done(3);
    b.done(3);
}

fn fence(bench: &Bench) {
    let (a, b) = bench.pair();
    let content = pattern(3 * MTU, 8);
    b.memory().fill(0, &content);
    // Without the fence the WRITE could carry what was there before the READ.
    let len = content.len();
    a.send(1, SendOp::Read(b.remote(0)), vec![a.sge(0, len)]);
    let flags = SendFlags::SIGNALED | SendFlags::FENCE;
    a.send_flagged(2, SendOp::Write(b.remote(8192)), vec![a.sge(0, len)], flags);
    a.done(1);
    a.done(2);
    a.waits_for_peer();
    assert!(b.memory().bytes(8192, len) == content);
}

fn depth(bench: &Bench) {
    let mut spec = Spec::default();
    spec.attr.max_rd_atomic = 1;
    let (a, b) = bench.pair_of(spec, Spec::default());
    for wr_id in 0..20 {
        let op = SendOp::FetchAdd {
            remote: b.remote(0),
            add: 1,
        };
        a.send(wr_id, op, vec![a.sge(0, 8)]);
    }
    for wr_id in 0..20 {
        a.done(wr_id);
    }
    assert_eq!(b.memory().word(0), 20);
}

fn mixed(bench: &Bench) {
    let (a, b) = bench.pair();
    for wr_id in 0..30 {
        let op = match wr_id % 5 {
            0 => SendOp::Write(b.remote(100)),
            1 => SendOp::Read(b.remote(100)),
            2 => SendOp::Send,
            3 => SendOp::FetchAdd {
                remote: b.remote(8),
                add: 1,
            },
            _ => SendOp::WriteImm(b.remote(100), [1, 2, 3, 4]),
        };
        if matches!(wr_id % 5, 2 | 4) {
            b.recv(wr_id, vec![b.sge(4096, 4096)]);
        }
        let len = if wr_id % 5 == 3 { 8 } else { 3000 };
        a.send(wr_id, op, vec![a.sge(0, len)]);
    }
    for wr_id in 0..30 {
        a.done(wr_id);
        if matches!(wr_id % 5, 2 | 4) {
            b.done(wr_id);
        }
    }
    a.is_silent();
    b.is_silent();
}
