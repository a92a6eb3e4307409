//! Queue pairs over iWARP (`FERROCE_WIRE`), connected by identifiers over loopback TCP, whose
//! streams stay there or go over the local link. The settings are read when the device starts, so
//! each test runs in a process of its own: this program again.

mod common;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use common::stream::{IWARP, asked_by, pair, pair_by};
use common::{Buffer, End, cap, pattern, run_alone};
use ferroce_nic::cm::EventKind;
use ferroce_nic::{Ah, Carrier, Qp, QpInit};
use ferroce_proto::verbs::{
    AddressHandleAttr, AttrMask, QpAttr, QpState, QpType, SendOp, WcImm, WcStatus,
};

#[track_caller]
fn run(test: &str, environment: &[(&str, &str)]) {
    for path in ["local", "wire"] {
        let path = ("FERROCE_PATH", path);
        let text = run_alone(test, &[&[IWARP, path], environment].concat());
        assert!(text.contains("1 passed"), "{path:?}: {text}");
    }
}

#[test]
fn every_operation_carries_its_bytes() {
    for crc in ["off", "on"] {
        run("child_operations", &[("FERROCE_IWARP_CRC", crc)]);
    }
}

#[test]
#[ignore = "run by the test above"]
fn child_operations() {
    let (a, b) = pair();
    let (a, b) = (&a.end, &b.end);
    for len in [0, 1, 1000, 65_536, 300_000] {
        let bytes = pattern(len, 7);
        let from = Buffer::new(&a.pd, bytes.clone());
        let to = Buffer::new(&b.pd, vec![0; len]);
        b.recv(1, vec![to.sge(0, len)]);
        a.send(2, SendOp::Send, vec![from.sge(0, len)]);
        a.done(2);
        assert_eq!(b.done(1).byte_len as usize, len);
        assert_eq!(to.snapshot(), bytes);
        // The WRITE is in place when the message behind it has come.
        let target = Buffer::new(&b.pd, vec![0; len]);
        b.recv(3, vec![]);
        a.send(4, SendOp::Write(target.remote(0)), vec![from.sge(0, len)]);
        a.send(5, SendOp::SendImm(*b"imm!"), vec![]);
        a.done(4);
        a.done(5);
        assert_eq!(b.done(3).imm, Some(WcImm::Imm(*b"imm!")));
        assert_eq!(target.snapshot(), bytes);
        let back = Buffer::new(&a.pd, vec![0; len]);
        a.send(6, SendOp::Read(target.remote(0)), vec![back.sge(0, len)]);
        a.done(6);
        assert_eq!(back.snapshot(), bytes);
    }
    let counter = Buffer::new(&b.pd, 40_u64.to_ne_bytes().to_vec());
    let old = Buffer::new(&a.pd, vec![0; 8]);
    let add = SendOp::FetchAdd {
        remote: counter.remote(0),
        add: 2,
    };
    a.send(7, add, vec![old.sge(0, 8)]);
    a.done(7);
    assert_eq!(old.snapshot(), 40_u64.to_ne_bytes());
    assert_eq!(counter.snapshot(), 42_u64.to_ne_bytes());
    let carrier = match std::env::var("FERROCE_PATH").as_deref() {
        Ok("wire") => Carrier::Tcp,
        _ => Carrier::Ring,
    };
    for end in [a, b] {
        assert_eq!(end.qp.path_report().packets, Some(carrier));
    }
}

/// A proxy for one connection: what it is sent goes on to `to`, and back.
fn proxy(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    thread::spawn(move || {
        let (near, _) = listener.accept().expect("a connection");
        let far = TcpStream::connect(to).expect("a listener");
        let pump = |from: &TcpStream, to: &TcpStream| {
            let mut ends = [from, to].map(|end| end.try_clone().expect("a descriptor"));
            thread::spawn(move || {
                let [from, to] = &mut ends;
                let _ = io::copy(from, to);
                let _ = to.shutdown(Shutdown::Write);
            });
        };
        pump(&near, &far);
        pump(&far, &near);
    });
    at
}

#[test]
fn a_connection_through_a_proxy_stays_with_tcp() {
    let text = run_alone("child_proxy", &[IWARP, ("FERROCE_PATH", "auto")]);
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "run by the test above"]
fn child_proxy() {
    let (a, b) = pair_by(proxy);
    for (from, to) in [(&a.end, &b.end), (&b.end, &a.end)] {
        let bytes = pattern(100_000, 3);
        let source = Buffer::new(&from.pd, bytes.clone());
        let sink = Buffer::new(&to.pd, vec![0; bytes.len()]);
        to.recv(1, vec![sink.sge(0, bytes.len())]);
        from.send(2, SendOp::Send, vec![source.sge(0, bytes.len())]);
        from.done(2);
        to.done(1);
        assert_eq!(sink.snapshot(), bytes);
        assert_eq!(from.qp.path_report().packets, Some(Carrier::Tcp));
    }
    a.disconnect();
    for side in [&a, &b] {
        side.hears(EventKind::Disconnected, 0);
    }
}

#[test]
fn a_connection_ends_at_both_ends_and_flushes_what_is_left() {
    run("child_end", &[]);
}

#[test]
#[ignore = "run by the test above"]
fn child_end() {
    let (a, b) = pair();
    for side in [&a, &b] {
        side.end.recv(9, vec![]);
    }
    a.disconnect();
    for side in [&a, &b] {
        side.hears(EventKind::Disconnected, 0);
        let wc = side.end.completion();
        assert_eq!((wc.wr_id, wc.status), (9, WcStatus::WrFlushErr));
        assert_eq!(side.end.qp.state(), QpState::Err);
    }
    b.disconnect();
    assert!(b.channel.pop().is_none() && a.channel.pop().is_none());
}

#[test]
fn what_was_completed_arrives_although_the_queue_pair_is_destroyed_at_once() {
    run("child_destroyed", &[]);
}

#[test]
#[ignore = "run by the test above"]
fn child_destroyed() {
    const LEN: usize = 100_000;
    for round in 0..20 {
        let (a, b) = pair();
        let bytes = pattern(LEN, round);
        let from = Buffer::new(&a.end.pd, bytes.clone());
        let to = Buffer::new(&b.end.pd, vec![0; LEN]);
        b.end.recv(1, vec![to.sge(0, LEN)]);
        a.end.send(2, SendOp::Send, vec![from.sge(0, LEN)]);
        a.end.done(2);
        a.end.qp.destroy();
        b.end.done(1);
        assert_eq!(to.snapshot(), bytes);
        a.hears(EventKind::Disconnected, 0);
        b.hears(EventKind::Disconnected, 0);
    }
}

#[test]
fn a_greeting_arrives_although_the_server_ends_at_once() {
    run("child_greeting", &[]);
}

#[test]
#[ignore = "run by the test above"]
fn child_greeting() {
    for disconnects in [false, true].repeat(20) {
        let (a, b) = asked_by(|to| to);
        a.end.recv(1, vec![]);
        b.id.accept(&b.param()).expect("accepted");
        b.end.send(2, SendOp::Send, vec![]);
        b.end.done(2);
        if disconnects {
            b.disconnect();
        } else {
            b.end.qp.destroy();
        }
        a.hears(EventKind::Established, 0);
        a.end.done(1);
        a.hears(EventKind::Disconnected, 0);
    }
}

#[test]
fn an_end_before_anything_was_said_is_heard() {
    run("child_silent_end", &[]);
}

#[test]
#[ignore = "run by the test above"]
fn child_silent_end() {
    for disconnects in [false, true].repeat(20) {
        let (a, b) = asked_by(|to| to);
        b.id.accept(&b.param()).expect("accepted");
        if disconnects {
            b.disconnect();
        } else {
            b.end.qp.destroy();
        }
        a.hears(EventKind::Established, 0);
        a.hears(EventKind::Disconnected, 0);
    }
}

#[test]
fn a_message_without_a_receive_ends_the_connection() {
    run("child_no_receive", &[]);
}

#[test]
#[ignore = "run by the test above"]
fn child_no_receive() {
    let (a, b) = pair();
    a.end.send(1, SendOp::Send, vec![]);
    // It completed when TCP had it.
    a.end.done(1);
    for side in [&a, &b] {
        side.hears(EventKind::Disconnected, 0);
        assert_eq!(side.end.qp.state(), QpState::Err);
    }
}

#[test]
fn what_iwarp_does_not_have_is_refused() {
    run("child_refusals", &[]);
}

#[test]
#[ignore = "run by the test above"]
fn child_refusals() {
    let end = End::new(cap());
    let send = ferroce_proto::verbs::SendWr {
        to: ferroce_proto::verbs::SendTo::Peer,
        wr_id: 1,
        op: SendOp::Send,
        flags: ferroce_proto::verbs::SendFlags::empty(),
        payload: ferroce_proto::verbs::Payload::Sges(Vec::new().into()),
    };
    let errno = end.qp.post_one_send(send).expect_err("no connection").errno;
    assert_eq!(errno, libc::ENOTCONN);
    for qp_type in [QpType::Ud, QpType::Uc, QpType::XrcSend] {
        let init = QpInit {
            qp_type,
            send_cq: Arc::clone(&end.cq),
            recv_cq: Arc::clone(&end.cq),
            cap: cap(),
            sq_sig_all: true,
            srq: None,
        };
        let errno = Qp::create(&end.pd, init).expect_err("RC only").errno;
        assert_eq!(errno, libc::EOPNOTSUPP);
    }
    let handle = Ah::create(&end.pd, AddressHandleAttr::default());
    assert_eq!(handle.expect_err("no handles").errno, libc::EOPNOTSUPP);
    // Programs that connect queue pairs by themselves are let through until they send.
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let attr = QpAttr {
            qp_state: state,
            ..QpAttr::default()
        };
        end.qp.modify(&attr, AttrMask::STATE).expect("ignored");
    }
    assert_eq!(end.qp.state(), QpState::Init);
}
