//! Connections that fail, end, or meet a bad network.

use std::sync::Arc;
use std::time::Duration;

use ferroce_proto::ids::Qpn;

use super::pair::Pair;
use super::program::*;
use crate::cm::{ConnParam, EventKind};

const TIMED_OUT: i32 = -libc::ETIMEDOUT;

#[test]
fn a_rejection_carries_its_data() {
    for (machine, ip) in [(0, "127.0.0.1"), (1, "10.0.0.2")] {
        let p = Pair::new(machine, ip);
        let (a, b) = p.request();
        expect_errno(b.reject(&[0; 149]), libc::EINVAL);
        b.reject(b"busy").unwrap();
        p.net.settle();
        let event = expect(&p.client_events, EventKind::Rejected, 28);
        let data = conn_of(&event).private_data;
        assert_eq!((data.len(), &data[..5]), (148, &b"busy\0"[..]));
        expect_errno(b.reject(b""), libc::EINVAL);
        expect_errno(b.accept(&param(b"")), libc::EINVAL);
        expect_errno(a.establish(), libc::EINVAL);
        expect_errno(a.connect(&param(b"")), libc::EINVAL);
        p.net.pass(Duration::from_secs(100));
        p.expect_nothing();
    }
}

#[test]
fn nobody_listens() {
    for (machine, ip) in [(0, "127.0.0.1"), (0, "10.0.0.1"), (1, "10.0.0.2")] {
        let p = Pair::new(machine, ip);
        p.listener.destroy();
        let _client = p.client.connecting(&p.client_events, p.to);
        p.net.pass(GRACE);
        expect(&p.client_events, EventKind::Rejected, 8);
        p.expect_nothing();
    }
}

#[test]
fn a_port_that_is_bound_but_does_not_listen_offers_nothing() {
    let p = Pair::new(0, "127.0.0.1");
    let id = p.server.id(&p.server_events);
    id.bind(at("127.0.0.1", 0)).unwrap();
    let _client = p
        .client
        .connecting(&p.client_events, id.local_addr().unwrap());
    p.net.pass(GRACE);
    expect(&p.client_events, EventKind::Rejected, 8);
}

#[test]
fn a_silent_host_is_unreachable() {
    let p = Pair::new(1, "10.0.0.2");
    p.net.kill(&p.server);
    let a = p.client.connecting(&p.client_events, p.to);
    p.net.pass(Duration::from_millis(16 * 4608 - 1));
    p.expect_nothing();
    p.net.pass(Duration::from_millis(1));
    expect(&p.client_events, EventKind::Unreachable, TIMED_OUT);
    a.disconnect().unwrap();
    p.net.pass(Duration::from_secs(100));
    p.expect_nothing();
}

#[test]
fn lost_messages_are_sent_again() {
    let p = Pair::new(1, "10.0.0.2");
    let lose = |names: &[&'static str]| *crate::base::sync::lock(&p.net.lost) = names.to_vec();
    lose(&["REQ"]);
    let a = p.client.connecting(&p.client_events, p.to);
    p.net.settle();
    lose(&["REP"]);
    p.net.pass(Duration::from_secs(5));
    let b = expect(&p.server_events, EventKind::ConnectRequest, 0).id;
    b.accept(&param_of_server(b"")).unwrap();
    p.net.settle();
    lose(&["RTU"]);
    p.net.pass(Duration::from_secs(5));
    expect(&p.client_events, EventKind::ConnectResponse, 0);
    a.establish().unwrap();
    p.net.settle();
    lose(&["DREQ"]);
    p.expect_nothing();
    p.net.pass(Duration::from_secs(5));
    expect(&p.server_events, EventKind::Established, 0);
    b.disconnect().unwrap();
    p.net.settle();
    p.expect_nothing();
    lose(&["DREP"]);
    p.net.pass(Duration::from_secs(5));
    expect(&p.client_events, EventKind::Disconnected, 0);
    a.disconnect().unwrap();
    p.net.pass(Duration::from_secs(80));
    expect(&p.client_events, EventKind::TimewaitExit, 0);
    expect(&p.server_events, EventKind::Disconnected, TIMED_OUT);
    expect(&p.server_events, EventKind::TimewaitExit, 0);
    p.expect_nothing();
}

#[test]
fn data_can_stand_for_the_rtu() {
    let p = Pair::new(0, "127.0.0.1");
    let (a, b) = p.request();
    expect_errno(b.notify_established(), libc::EINVAL);
    b.accept(&param_of_server(b"")).unwrap();
    b.notify_established().unwrap();
    expect_errno(b.notify_established(), libc::EISCONN);
    p.net.settle();
    expect(&p.server_events, EventKind::Established, 0);
    expect(&p.client_events, EventKind::ConnectResponse, 0);
    a.establish().unwrap();
    p.net.settle();
    p.expect_nothing();
}

#[test]
fn both_disconnect_at_once() {
    let p = Pair::new(0, "127.0.0.1");
    let (a, b) = p.establish();
    a.disconnect().unwrap();
    b.disconnect().unwrap();
    p.net.settle();
    expect(&p.client_events, EventKind::Disconnected, 0);
    expect(&p.server_events, EventKind::Disconnected, 0);
    p.net.pass(Duration::from_secs(10));
    p.expect_nothing();
    a.destroy();
    p.net.pass(Duration::from_secs(1));
    expect(&p.server_events, EventKind::TimewaitExit, 0);
    p.expect_nothing();
}

#[test]
fn a_killed_peer_has_disconnected() {
    for server_dies in [false, true] {
        let p = Pair::new(0, "127.0.0.1");
        let (a, b) = p.establish();
        p.net.kill(if server_dies { &p.server } else { &p.client });
        let events = if server_dies {
            &p.client_events
        } else {
            &p.server_events
        };
        expect(events, EventKind::Disconnected, 0);
        let left = if server_dies { a } else { b };
        left.disconnect().unwrap();
        p.net.pass(Duration::from_secs(1));
        expect(events, EventKind::TimewaitExit, 0);
        expect_nothing(events);
    }
}

#[test]
fn a_peer_killed_during_set_up_is_unreachable() {
    let p = Pair::new(0, "127.0.0.1");
    let (_a, b) = p.request();
    b.accept(&param_of_server(b"")).unwrap();
    p.net.settle();
    p.net.kill(&p.server);
    expect(&p.client_events, EventKind::ConnectResponse, 0);
    expect(&p.client_events, EventKind::Unreachable, TIMED_OUT);
    expect_nothing(&p.client_events);
    let p = Pair::new(0, "127.0.0.1");
    let (_a, b) = p.request();
    p.net.kill(&p.client);
    expect_errno(b.accept(&param_of_server(b"")), libc::EINVAL);
    expect_nothing(&p.server_events);
}

#[test]
fn a_peer_that_turns_out_to_be_gone_has_disconnected() {
    let p = Pair::new(0, "127.0.0.1");
    let (a, _b) = p.establish();
    // It died, and nobody noticed yet.
    crate::base::sync::lock(&p.server.asleep).clone_from(&true);
    p.net.forget(&p.server);
    a.disconnect().unwrap();
    expect(&p.client_events, EventKind::Disconnected, 0);
}

#[test]
fn a_new_owner_of_a_slot_is_not_taken_for_the_process_that_is_gone() {
    let p = Pair::new(0, "127.0.0.1");
    let (_a, b) = p.establish();
    p.net.kill_unnoticed(&p.client);
    let successor = p.net.start(0, p.client.slot);
    let events = successor.channel();
    let c = successor.routed(&events, p.to);
    c.connect(&ConnParam {
        qp_num: Qpn::new(99),
        ..param(b"hello")
    })
    .unwrap();
    p.net.settle();
    let event = expect(&p.server_events, EventKind::Disconnected, 0);
    assert!(Arc::ptr_eq(&event.id, &b));
    let d = expect(&p.server_events, EventKind::ConnectRequest, 0).id;
    d.accept(&param_of_server(b"")).unwrap();
    p.net.settle();
    expect(&events, EventKind::ConnectResponse, 0);
    c.establish().unwrap();
    p.net.settle();
    expect(&p.server_events, EventKind::Established, 0);
    expect_nothing(&p.server_events);
}

#[test]
fn a_request_that_was_taken_back_cannot_be_accepted() {
    let p = Pair::new(0, "127.0.0.1");
    let (a, b) = p.request();
    a.destroy();
    p.net.settle();
    // The program has not yet accepted, so it is not told; it will see when it does.
    p.expect_nothing();
    expect_errno(b.accept(&param_of_server(b"")), libc::EINVAL);
}
