//! MADs find their process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ferroce_os::unix::Dgram;
use ferroce_proto::ids::Gid;
use ferroce_proto::mad::{CmMad, CommId, Dreq, Message, Rep};

use super::net::*;
use super::pair::Pair;
use super::process::*;
use super::program::*;
use crate::base::addressing::Addressing;
use crate::base::denials::{Asker, Denial};
use crate::base::sync::lock;
use crate::cm::{EventKind, Via};

fn gid(ip: &str) -> Gid {
    Gid::from_ip(ip.parse().unwrap())
}

/// A pair over the wire, with more processes at both ends; MADs land in the wrong ones.
fn crowded(landing: usize) -> (Pair, Vec<std::sync::Arc<Proc>>) {
    let p = Pair::new(1, "10.0.0.2");
    let others = vec![p.net.start(0, 13), p.net.start(1, 14), p.net.start(1, 15)];
    p.net.landing.store(landing, Ordering::SeqCst);
    (p, others)
}

#[test]
fn mads_from_the_wire_are_forwarded() {
    for landing in 0..6 {
        let (p, _others) = crowded(landing);
        let (a, b) = p.establish();
        p.disconnect(&a, &b);
        p.net.pass(Duration::from_secs(1));
        expect(&p.client_events, EventKind::TimewaitExit, 0);
        expect(&p.server_events, EventKind::TimewaitExit, 0);
        let (_a, b) = p.request();
        b.reject(b"").unwrap();
        p.net.settle();
        expect(&p.client_events, EventKind::Rejected, 28);
        p.expect_nothing();
    }
}

#[test]
fn the_process_that_got_the_request_says_that_no_process_listens() {
    for landing in 0..3 {
        let (p, _others) = crowded(landing);
        p.listener.destroy();
        let _client = p.client.connecting(&p.client_events, p.to);
        p.net.pass(GRACE);
        expect(&p.client_events, EventKind::Rejected, 8);
    }
}

#[test]
fn a_request_that_was_taken_back_is_searched_for_everywhere() {
    for landing in 0..3 {
        let (p, _others) = crowded(landing);
        let (a, b) = p.request();
        a.destroy();
        p.net.settle();
        expect_errno(b.accept(&param_of_server(b"")), libc::EINVAL);
    }
}

#[test]
fn for_a_process_that_is_gone_another_one_answers() {
    let (p, _others) = crowded(0);
    let (a, _b) = p.establish();
    p.net.kill(&p.server);
    a.disconnect().unwrap();
    p.net.settle();
    expect(&p.client_events, EventKind::Disconnected, 0);
    let before = lock(&p.net.wire_log).len();
    let rep = Rep {
        local_comm_id: CommId(5),
        remote_comm_id: CommId(12 << 22 | 1),
        ..Rep::default()
    };
    let addressing = Addressing {
        src: gid("10.0.0.2"),
        dst: gid("10.0.0.1"),
        ..Addressing::default()
    };
    let mad = CmMad {
        tid: 1,
        message: Message::Rep(rep),
    }
    .emit();
    lock(&p.net.flight).push_back(InFlight::Wire { addressing, mad });
    p.net.settle();
    let log = lock(&p.net.wire_log);
    let answers: Vec<_> = log[before..]
        .iter()
        .map(|(_, mad)| mad.message.name())
        .collect();
    assert_eq!(answers, ["REJ"]);
}

#[test]
fn senders_that_cannot_be_are_ignored() {
    let p = Pair::new(1, "10.0.0.2");
    let dreq = Dreq {
        local_comm_id: CommId(12 << 22 | 1),
        remote_comm_id: CommId(5),
        ..Dreq::default()
    };
    let mad = CmMad {
        tid: 1,
        message: Message::Dreq(dreq),
    }
    .emit();
    let service = p.client.service();
    for from in [
        "10.0.0.1",
        "127.0.0.1",
        "::1",
        "224.0.0.1",
        "ff02::1",
        "0.0.0.0",
        "::",
    ] {
        service.on_mad(gid(from), gid("10.0.0.1"), &mad, Via::Wire);
    }
    assert!(lock(&p.net.wire_log).is_empty() && lock(&p.net.flight).is_empty());
    let refused = || std::mem::take(&mut *lock(&p.client.refused));
    assert_eq!(refused(), [(Asker::Host, Denial::Origin); 7]);
    service.on_mad(gid("10.0.0.9"), gid("10.0.0.1"), &[0xff; 256], Via::Wire);
    assert!(lock(&p.net.wire_log).is_empty());
    assert_eq!(refused(), [(Asker::Host, Denial::Malformed)]);
    service.on_mad(gid("10.0.0.9"), gid("10.0.0.1"), &mad, Via::Wire);
    assert_eq!(
        lock(&p.net.wire_log).len(),
        1,
        "an honest stranger gets its DREP"
    );
    assert_eq!(refused(), []);
}

/// A MAD that names a conversation of a peer, and comes from another host.
#[test]
fn what_is_said_in_a_peers_conversation_is_counted() {
    let p = Pair::new(1, "10.0.0.2");
    let (a, _b) = p.establish();
    a.disconnect().unwrap();
    let log = lock(&p.net.wire_log).clone();
    let (_, dreq) = log
        .iter()
        .find(|(_, mad)| mad.message.name() == "DREQ")
        .expect("a DREQ");
    let service = p.server.service();
    lock(&p.server.refused).clear();
    service.on_mad(gid("10.0.0.9"), gid("10.0.0.2"), &dreq.emit(), Via::Wire);
    assert_eq!(
        *lock(&p.server.refused),
        [(Asker::Host, Denial::Origin)],
        "it is not the peer"
    );
}

#[test]
fn the_port_of_a_user_that_is_left_out_is_not_asked() {
    let p = Pair::new(0, "127.0.0.1");
    *lock(&p.client.leaves_out_users) = true;
    let a = p.client.id(&p.client_events);
    a.resolve_addr(None, p.to, Duration::ZERO).unwrap();
    expect(&p.client_events, EventKind::AddrError, -libc::EACCES);
    // Nobody listens there so far: another user may, until the program connects.
    let mut to = p.to;
    to.set_port(p.to.port().wrapping_add(1).max(1024));
    let a = p.client.id(&p.client_events);
    a.resolve_addr(None, to, Duration::ZERO).unwrap();
    a.resolve_route(Duration::ZERO).unwrap();
    expect(&p.client_events, EventKind::AddrResolved, 0);
    expect(&p.client_events, EventKind::RouteResolved, 0);
    let name = format!("{}port/tcp/{}", p.net.names, to.port());
    let _listener = Dgram::bind(&name).unwrap();
    let refused = a.connect(&param(b"")).expect_err("another user listens");
    assert_eq!(refused.errno, libc::EACCES, "{refused}");
}

#[test]
fn a_listener_that_leaves_this_user_out_refuses_at_once() {
    let p = Pair::new(0, "127.0.0.1");
    *lock(&p.server.leaves_out_users) = true;
    let (_listener, port) = p.server.listen(&p.server_events, "127.0.0.1:0");
    let mut to = p.to;
    to.set_port(port);
    let _a = p.client.connecting(&p.client_events, to);
    // Nothing settles, so nothing came from the listener.
    expect(&p.client_events, EventKind::Rejected, 8);
    // The other port of the process was claimed before; it has no sign.
    p.request();
}

#[test]
fn requests_with_impossible_addresses_are_refused() {
    let p = Pair::new(1, "10.0.0.2");
    // A client that binds to loopback and connects elsewhere says that it is 127.0.0.1.
    let a = p.client.id(&p.client_events);
    a.resolve_addr(Some(at("127.0.0.1", 0)), p.to, Duration::ZERO)
        .unwrap();
    a.resolve_route(Duration::ZERO).unwrap();
    expect(&p.client_events, EventKind::AddrResolved, 0);
    expect(&p.client_events, EventKind::RouteResolved, 0);
    a.connect(&param(b"")).unwrap();
    p.net.settle();
    expect_nothing(&p.server_events);
}

#[test]
fn junk_on_a_port_is_dropped() {
    let p = Pair::new(0, "127.0.0.1");
    let stranger = Dgram::unbound().unwrap();
    let name = format!("{}port/tcp/{}", p.net.names, p.to.port());
    for junk in [&[][..], &[1; 10], &[0; 288], &[0xff; 288], &[7; 5000]] {
        stranger.send_to(&name, junk).unwrap();
        p.server.read_ports();
    }
    p.server.read_ports();
    assert_eq!(
        *lock(&p.server.refused),
        [(Asker::OwnUser, Denial::Malformed); 5]
    );
    let _ends = p.establish();
}

#[test]
fn a_crowd_of_requests_waits_for_a_busy_server() {
    const CROWD: usize = 700;
    let p = Pair::new(0, "127.0.0.1");
    *lock(&p.server.asleep) = true;
    let _clients: Vec<_> = (0..CROWD)
        .map(|_| p.client.connecting(&p.client_events, p.to))
        .collect();
    p.net.pass(Duration::from_secs(1));
    p.expect_nothing();
    *lock(&p.server.asleep) = false;
    // Far less than the time after which they would be sent again.
    p.net.pass(Duration::from_secs(2));
    let mut served = Vec::new();
    while let Some(event) = next(&p.server_events) {
        assert_eq!(event.kind, EventKind::ConnectRequest);
        event.id.accept(&param_of_server(b"")).unwrap();
        served.push(event.id);
    }
    assert_eq!(served.len(), CROWD);
    p.net.settle();
    assert_eq!(std::iter::from_fn(|| next(&p.client_events)).count(), CROWD);
}

#[test]
fn a_server_that_never_reads_costs_nothing_for_ever() {
    let p = Pair::new(0, "127.0.0.1");
    *lock(&p.server.asleep) = true;
    let _clients: Vec<_> = (0..700)
        .map(|_| p.client.connecting(&p.client_events, p.to))
        .collect();
    p.net.pass(Duration::from_secs(100));
    let unreachable =
        std::iter::from_fn(|| next(&p.client_events)).filter(|e| e.kind == EventKind::Unreachable);
    assert_eq!(unreachable.count(), 700);
    assert_eq!(p.client.service().deadline(), None);
}

#[test]
fn a_server_that_ends_while_requests_wait_is_not_listening() {
    let p = Pair::new(0, "127.0.0.1");
    *lock(&p.server.asleep) = true;
    let _clients: Vec<_> = (0..700)
        .map(|_| p.client.connecting(&p.client_events, p.to))
        .collect();
    p.listener.destroy();
    p.net.pass(Duration::from_secs(6));
    let events: Vec<_> = std::iter::from_fn(|| next(&p.client_events))
        .map(|e| (e.kind, e.status))
        .collect();
    assert_eq!(events, vec![(EventKind::Rejected, 8); 700]);
}

#[test]
fn a_crowd_of_requests_goes_over_the_wire_at_a_pace() {
    let p = Pair::new(1, "10.0.0.2");
    let connecting = || p.client.connecting(&p.client_events, p.to);
    let sent = || lock(&p.net.wire_log).len();
    let _clients: Vec<_> = (0..1000).map(|_| connecting()).collect();
    assert_eq!(sent(), 64);
    let mut before = sent();
    for _ in 0..40 {
        p.net.pass(Duration::from_millis(1));
        assert!(sent() - before <= 20 + 16, "{} at once", sent() - before);
        before = sent();
    }
    p.net.pass(Duration::from_millis(10));
    assert_eq!(sent(), 1000);
    let requests: Vec<_> = std::iter::from_fn(|| next(&p.server_events)).collect();
    assert_eq!(requests.len(), 1000);
    // After a pause a burst is allowed again, and an end waits for nothing.
    p.net.pass(Duration::from_secs(1));
    let before = sent();
    let _clients: Vec<_> = (0..100).map(|_| connecting()).collect();
    assert_eq!(sent() - before, 64);
    p.client.service().end();
    // All requests, and a rejection for each that was taken back.
    assert_eq!(sent() - before, 100 + 1100);
}

#[test]
fn connections_one_after_another_do_not_wait_for_the_pace() {
    let p = Pair::new(1, "10.0.0.2");
    let start = p.net.now();
    for _ in 0..200 {
        let (a, b) = p.establish();
        p.disconnect(&a, &b);
    }
    assert_eq!(p.net.now(), start, "no time has passed");
}

#[test]
fn answers_let_what_waits_for_the_pace_go() {
    let p = Pair::new(1, "10.0.0.2");
    let _clients: Vec<_> = (0..100)
        .map(|_| p.client.connecting(&p.client_events, p.to))
        .collect();
    p.net.settle();
    let requests: Vec<_> = std::iter::from_fn(|| next(&p.server_events)).collect();
    assert_eq!(requests.len(), 64);
    for request in requests {
        request.id.accept(&param_of_server(b"")).unwrap();
    }
    p.net.settle();
    let requests = std::iter::from_fn(|| next(&p.server_events));
    assert_eq!(requests.count(), 100 - 64, "no time has passed");
}

#[test]
fn requests_alone_give_no_leave_to_answer_them_faster() {
    let p = Pair::new(1, "10.0.0.2");
    let _clients: Vec<_> = (0..100)
        .map(|_| p.client.connecting(&p.client_events, p.to))
        .collect();
    let reject_all = || {
        p.net.settle();
        for request in std::iter::from_fn(|| next(&p.server_events)) {
            request.id.reject(b"").unwrap();
        }
        p.net.settle();
    };
    // The rejections of the first 64 let the other requests go.
    reject_all();
    reject_all();
    let rejected = || std::iter::from_fn(|| next(&p.client_events)).count();
    assert_eq!(rejected(), 64, "the server has sent as many as it may");
    p.net.pass(Duration::from_millis(10));
    assert_eq!(rejected(), 100 - 64);
}

#[test]
fn no_more_of_a_crowd_is_under_way_while_answers_come() {
    let p = Pair::new(1, "10.0.0.2");
    let clients: Vec<_> = (0..200).map(|_| p.establish()).collect();
    p.net.pass(Duration::from_secs(1));
    let sent = || lock(&p.net.wire_log).len();
    let before = sent();
    for (client, _) in &clients {
        client.disconnect().unwrap();
    }
    p.net.settle();
    assert_eq!(sent() - before, 64);
    for (_, server) in &clients[..30] {
        server.disconnect().unwrap();
    }
    p.net.settle();
    assert_eq!(sent() - before, 64 + 2 * 30, "each DREP lets one DREQ go");
    p.net.pass(Duration::from_millis(10));
    assert_eq!(sent() - before, 200 + 30);
}
