//! Every status of a completion that an RC queue pair has, and what its peer sees.

use ferroce_proto::ids::Key;
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{AsyncEvent, QpState, RemoteAddr, SendOp, Sge, WcStatus};

use crate::bench::{ALL, Bench, Spec};
use crate::case::Case;
use crate::end::End;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "status.local-length",
        &["violation.send-too-long"],
        local_length,
    ),
    Case::new(
        "status.local-protection.send",
        &["violation.send-lkey"],
        local_protection_of_send,
    ),
    Case::new(
        "status.local-protection.read",
        &["violation.send-lkey"],
        local_protection_of_read,
    ),
    Case::new(
        "status.local-protection.recv",
        &["violation.recv-lkey"],
        local_protection_of_recv,
    ),
    Case::new(
        "status.remote-invalid-request",
        &["violation.access-flags"],
        remote_invalid_request,
    ),
    Case::new(
        "status.remote-access",
        &[
            "violation.rkey",
            "violation.bounds",
            "violation.pd",
            "violation.mr-access",
        ],
        remote_access,
    ),
    Case::new(
        "status.remote-access.dereg",
        &["mr.dereg"],
        remote_access_after_dereg,
    ),
    Case::new(
        "status.remote-invalid.atomic",
        &["violation.atomic-alignment"],
        misaligned_atomic,
    ),
    Case::new(
        "status.retry-exceeded",
        &["rc.retry-exceeded", "rc.local-ack-timeout"],
        retry_exceeded,
    ),
    Case::new(
        "status.rnr-retry-exceeded",
        &["rc.rnr-exceeded", "violation.no-receive"],
        rnr_retry_exceeded,
    ),
    Case::new("status.rnr.waits", &["rc.rnr-wait"], rnr_waits),
    Case::new(
        "status.first-keeps-its-own",
        &["qp.err-flush"],
        first_failure_keeps_its_status,
    ),
    Case::new(
        "status.remote-invalidate",
        &["violation.invalidate"],
        bad_remote_invalidate,
    ),
];

fn local_length(bench: &Bench) {
    let (a, b) = bench.pair();
    b.recv(1, vec![b.sge(0, 10)]);
    b.recv(2, vec![b.sge(0, 10)]);
    a.send(1, SendOp::Send, vec![a.sge(0, 11)]);
    a.completes(1, WcStatus::RemInvReqErr);
    b.completes(1, WcStatus::LocLenErr);
    b.completes(2, WcStatus::WrFlushErr);
    a.reaches(QpState::Err);
    b.reaches(QpState::Err);
}

/// Elements that no key opens: unknown key, past the end, foreign protection domain.
fn bad_elements(end: &mut End) -> Vec<Sge> {
    let len = end.memory().len();
    let foreign = end
        .side_mut()
        .register_elsewhere(0, 64, ALL)
        .expect("a region");
    vec![
        end.sge_with(Key(end.key().0 ^ 0x0f0f), 0, 8),
        end.sge(len - 4, 8),
        end.sge_with(foreign, 0, 8),
    ]
}

fn local_protection_of_send(bench: &Bench) {
    for i in 0..3 {
        let (mut a, b) = bench.pair();
        let bad = bad_elements(&mut a)[i];
        for wr_id in 1..3 {
            b.recv(wr_id, vec![b.sge(0, 64)]);
        }
        a.send(1, SendOp::Send, vec![a.sge(0, 8)]);
        a.send(2, SendOp::Send, vec![bad]);
        a.send(3, SendOp::Send, vec![]);
        a.done(1);
        a.completes(2, WcStatus::LocProtErr);
        a.completes(3, WcStatus::WrFlushErr);
        a.reaches(QpState::Err);
        b.done(1);
        b.is_silent();
        assert_eq!(b.state(), QpState::Rts, "the peer has done nothing wrong");
    }
}

fn local_protection_of_read(bench: &Bench) {
    let (mut a, b) = bench.pair();
    let read_only = a.register(0, 64, Access::REMOTE_READ);
    let into = a.sge_with(read_only, 0, 8);
    b.memory().fill(0, &[1; 8]);
    a.send(1, SendOp::Read(b.remote(0)), vec![into]);
    a.completes(1, WcStatus::LocProtErr);
    assert_eq!(a.memory().word(0), 0, "nothing was written");
}

fn local_protection_of_recv(bench: &Bench) {
    for i in 0..3 {
        let (a, mut b) = bench.pair();
        let bad = bad_elements(&mut b)[i];
        b.recv(1, vec![bad]);
        b.recv(2, vec![]);
        a.send(1, SendOp::Send, vec![a.sge(0, 8)]);
        a.completes(1, WcStatus::RemOpErr);
        b.completes(1, WcStatus::LocProtErr);
        b.completes(2, WcStatus::WrFlushErr);
        b.reaches(QpState::Err);
    }
}

/// The three one-sided operations at a place.
fn one_sided(at: RemoteAddr) -> [(SendOp, Access); 3] {
    let add = SendOp::FetchAdd { remote: at, add: 1 };
    [
        (SendOp::Write(at), Access::REMOTE_WRITE),
        (SendOp::Read(at), Access::REMOTE_READ),
        (add, Access::REMOTE_ATOMIC),
    ]
}

fn remote_invalid_request(bench: &Bench) {
    for i in 0..3 {
        let mut spec = Spec::default();
        let (_, need) = one_sided(RemoteAddr {
            addr: 0,
            rkey: Key(0),
        })[i];
        spec.attr.qp_access_flags = ALL.difference(need);
        let (a, b) = bench.pair_of(Spec::default(), spec);
        let (op, _) = one_sided(b.remote(0))[i];
        a.send(1, op, vec![a.sge(0, 8)]);
        a.completes(1, WcStatus::RemInvReqErr);
        b.raises(AsyncEvent::QpReqErr);
        b.reaches(QpState::Err);
        assert_eq!(b.memory().word(0), 0);
    }
}

fn remote_access(bench: &Bench) {
    for wrong in 0..4 {
        for i in 0..3 {
            let (a, mut b) = bench.pair();
            let (_, need) = one_sided(b.remote(0))[i];
            let len = b.memory().len();
            let at = match wrong {
                0 => b.remote_with(Key(b.key().0 ^ 0x0f0f), 0),
                // Aligned, for the atomic.
                1 => b.remote(len),
                2 => {
                    let foreign = b.side_mut().register_elsewhere(0, 64, ALL);
                    b.remote_with(foreign.expect("a region"), 0)
                }
                _ => {
                    let key = b.register(0, 64, ALL.difference(need));
                    b.remote_with(key, 0)
                }
            };
            let (op, _) = one_sided(at)[i];
            a.memory().fill(0, &[7; 8]);
            a.send(1, op, vec![a.sge(0, 8)]);
            a.completes(1, WcStatus::RemAccessErr);
            b.raises(AsyncEvent::QpAccessErr);
            b.reaches(QpState::Err);
            assert_eq!(b.memory().word(0), 0);
        }
    }
}

fn remote_access_after_dereg(bench: &Bench) {
    let (a, mut b) = bench.pair();
    let key = b.register(0, 64, ALL);
    let at = b.remote_with(key, 0);
    a.send(1, SendOp::Write(at), vec![a.sge(0, 8)]);
    a.done(1);
    b.side_mut().deregister(key);
    a.memory().fill(0, &[7; 8]);
    a.send(2, SendOp::Write(at), vec![a.sge(0, 8)]);
    a.completes(2, WcStatus::RemAccessErr);
    assert_eq!(b.memory().word(0), 0);
}

fn misaligned_atomic(bench: &Bench) {
    let (a, b) = bench.pair();
    let remote = b.remote(4);
    a.send(1, SendOp::FetchAdd { remote, add: 1 }, vec![a.sge(0, 8)]);
    a.completes(1, WcStatus::RemInvReqErr);
    b.raises(AsyncEvent::QpReqErr);
    assert_eq!(b.memory().word(0), 0);
}

fn retry_exceeded(bench: &Bench) {
    let mut spec = Spec::default();
    spec.attr.timeout = 12;
    spec.attr.retry_cnt = 1;
    // A queue pair that is in RESET takes no packets.
    let (a, silent) = (bench.end(spec), bench.peer(Spec::default()));
    a.connect(silent.qpn());
    a.send(1, SendOp::Send, vec![]);
    a.send(2, SendOp::Send, vec![]);
    a.completes(1, WcStatus::RetryExcErr);
    a.completes(2, WcStatus::WrFlushErr);
    assert_eq!(a.state(), QpState::Err);
}

fn rnr_retry_exceeded(bench: &Bench) {
    let mut spec = Spec::default();
    spec.attr.rnr_retry = 1;
    let (a, b) = bench.pair_of(spec, Spec::default());
    a.send(1, SendOp::Send, vec![]);
    a.send(2, SendOp::Send, vec![]);
    a.completes(1, WcStatus::RnrRetryExcErr);
    a.completes(2, WcStatus::WrFlushErr);
    assert_eq!(b.state(), QpState::Rts, "the responder is not concerned");
    b.raises_nothing();
}

fn rnr_waits(bench: &Bench) {
    let (a, b) = bench.pair();
    a.memory().fill(0, &[9; 100]);
    a.send(1, SendOp::Send, vec![a.sge(0, 100)]);
    a.send(2, SendOp::WriteImm(b.remote(0), [1; 4]), vec![a.sge(0, 8)]);
    // Something passes the other way meanwhile.
    a.recv(7, vec![]);
    b.send(7, SendOp::Send, vec![]);
    b.done(7);
    a.done(7);
    a.is_silent();
    b.recv(1, vec![b.sge(100, 100)]);
    b.recv(2, vec![]);
    a.done(1);
    a.done(2);
    assert_eq!(b.done(1).byte_len, 100);
    assert_eq!(b.done(2).byte_len, 8);
    assert_eq!(b.memory().bytes(100, 100), [9; 100]);
}

fn first_failure_keeps_its_status(bench: &Bench) {
    let (a, b) = bench.pair();
    for wr_id in 50..53 {
        a.recv(wr_id, vec![]);
    }
    let nowhere = b.remote_with(Key(1), 0);
    a.send(1, SendOp::Write(nowhere), vec![a.sge(0, 8)]);
    for wr_id in 2..8 {
        a.send(wr_id, SendOp::Write(b.remote(0)), vec![a.sge(0, 8)]);
    }
    let mut sends = 1..8;
    let mut recvs = 50..53;
    for _ in 0..10 {
        let wc = a.completion();
        let (expected, status) = match wc.wr_id {
            1 => (sends.next(), WcStatus::RemAccessErr),
            2..50 => (sends.next(), WcStatus::WrFlushErr),
            _ => (recvs.next(), WcStatus::WrFlushErr),
        };
        assert_eq!((Some(wc.wr_id), wc.status), (expected, status));
    }
    a.is_silent();
}

fn bad_remote_invalidate(bench: &Bench) {
    let (a, b) = bench.pair();
    b.recv(1, vec![]);
    a.send(1, SendOp::SendInvalidate(Key(0x1234)), vec![]);
    assert_ne!(a.completion().status, WcStatus::Success);
    assert_ne!(b.completion().status, WcStatus::Success);
    b.reaches(QpState::Err);
}
