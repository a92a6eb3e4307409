//! Ports and listeners.

use std::collections::BTreeSet;
use std::time::Duration;

use ferroce_proto::verbs::QpType;

use super::pair::Pair;
use super::program::*;
use crate::base::sync::lock;
use crate::cm::{EventKind, IdOption, PortSpace};

#[test]
fn a_port_belongs_to_one_process() {
    let p = Pair::new(0, "127.0.0.1");
    let other = p.client.id(&p.client_events);
    expect_errno(other.bind(p.to), libc::EADDRINUSE);
    expect_errno(other.bind(at("0.0.0.0", p.to.port())), libc::EADDRNOTAVAIL);
    // Another address does not help: requests for the port go to one process.
    expect_errno(other.bind(at("10.0.0.1", p.to.port())), libc::EADDRINUSE);
    p.listener.destroy();
    other.bind(p.to).unwrap();
    assert_eq!(other.local_addr(), Some(p.to));
    other.listen(0).unwrap();
    let a = p.server.connecting(&p.server_events, p.to);
    p.net.settle();
    expect(&p.client_events, EventKind::ConnectRequest, 0);
    drop(a);
}

#[test]
fn the_ports_of_a_process_that_dies_are_free() {
    let p = Pair::new(0, "127.0.0.1");
    let (_a, _b) = p.request();
    let Pair {
        net,
        server,
        client,
        client_events,
        server_events,
        listener,
        to,
    } = p;
    let _ = (server_events, listener.key());
    net.kill(&server);
    // What a process holds goes with it; here the test holds the last references.
    drop((listener, _a, _b));
    drop(server);
    let id = client.id(&client_events);
    id.bind(to).unwrap();
}

#[test]
fn port_spaces_do_not_meet() {
    let p = Pair::new(0, "127.0.0.1");
    let udp = p
        .client
        .service()
        .create_id(&p.client_events, PortSpace::Udp, QpType::Ud)
        .unwrap();
    udp.bind(p.to).unwrap();
    assert_eq!(udp.port_space(), PortSpace::Udp);
}

#[test]
fn one_process_may_use_a_port_at_several_addresses() {
    let p = Pair::new(0, "127.0.0.1");
    let port = p.to.port();
    let second = p.server.id(&p.server_events);
    expect_errno(second.bind(p.to), libc::EADDRINUSE);
    expect_errno(second.bind(at("0.0.0.0", port)), libc::EADDRNOTAVAIL);
    expect_errno(second.bind(at("::", port)), libc::EADDRNOTAVAIL);
    second.bind(at("10.0.0.1", port)).unwrap();
    second.listen(0).unwrap();
    let third = p.server.id(&p.server_events);
    third.bind(at("::1", port)).unwrap();
    third.listen(0).unwrap();
    assert_eq!(p.server.ports_watched(), 1);
    for (ip, listener) in [
        ("127.0.0.1", &p.listener),
        ("10.0.0.1", &second),
        ("::1", &third),
    ] {
        let _client = p.client.connecting(&p.client_events, at(ip, port));
        p.net.pass(GRACE);
        let event = expect(&p.server_events, EventKind::ConnectRequest, 0);
        assert_eq!(event.listen_id.unwrap().key(), listener.key(), "{ip}");
    }
    let _client = p.client.connecting(&p.client_events, at("127.0.0.2", port));
    p.net.pass(GRACE);
    let rejected: Vec<_> = std::iter::from_fn(|| next(&p.client_events))
        .map(|e| (e.kind, e.status))
        .collect();
    assert!(rejected.contains(&(EventKind::Rejected, 8)), "{rejected:?}");
    p.listener.destroy();
    second.destroy();
    assert_eq!(p.server.ports_watched(), 1);
    third.destroy();
    assert_eq!(p.server.ports_watched(), 0);
}

#[test]
fn a_dual_stack_listener_takes_ipv4_too() {
    let p = Pair::new(0, "::");
    assert!(
        p.listener.device().is_none(),
        "a wildcard belongs to no device"
    );
    for ip in ["127.0.0.1", "::1", "10.0.0.1"] {
        let a = p.client.connecting(&p.client_events, at(ip, p.to.port()));
        p.net.settle();
        let event = expect(&p.server_events, EventKind::ConnectRequest, 0);
        assert_eq!(event.id.local_addr(), Some(at(ip, p.to.port())));
        assert_eq!(event.id.peer_addr(), a.local_addr());
        assert!(event.id.device().unwrap().has_address(ip.parse().unwrap()));
        drop(event);
        p.net.settle();
        expect(&p.client_events, EventKind::Rejected, 28);
    }
}

#[test]
fn af_only_keeps_ipv4_out() {
    let p = Pair::new(0, "127.0.0.1");
    p.listener.destroy();
    let v6 = p.server.id(&p.server_events);
    v6.set_option(IdOption::AfOnly(true)).unwrap();
    v6.bind(at("::", p.to.port())).unwrap();
    v6.listen(0).unwrap();
    let _client = p.client.connecting(&p.client_events, p.to);
    p.net.pass(GRACE);
    expect(&p.client_events, EventKind::Rejected, 8);
    // The port is free for an IPv4 listener beside it.
    let v4 = p.server.id(&p.server_events);
    v4.bind(at("0.0.0.0", p.to.port())).unwrap();
    v4.listen(0).unwrap();
    let _client = p.client.connecting(&p.client_events, p.to);
    p.net.pass(GRACE);
    let event = expect(&p.server_events, EventKind::ConnectRequest, 0);
    assert_eq!(event.listen_id.unwrap().key(), v4.key());
    expect_errno(v6.set_option(IdOption::AfOnly(false)), libc::EINVAL);
}

#[test]
fn an_ipv4_listener_takes_no_ipv6() {
    let p = Pair::new(0, "0.0.0.0");
    let _client = p
        .client
        .connecting(&p.client_events, at("::1", p.to.port()));
    p.net.pass(GRACE);
    expect(&p.client_events, EventKind::Rejected, 8);
}

#[test]
fn a_request_waits_for_a_listener_that_is_on_its_way() {
    for (machine, ip) in [(0, "127.0.0.1"), (1, "10.0.0.2")] {
        for bound in [false, true] {
            let p = Pair::new(machine, ip);
            p.listener.destroy();
            let late = p.server.id(&p.server_events);
            if bound {
                late.bind(p.to).unwrap();
            }
            let _client = p.client.connecting(&p.client_events, p.to);
            p.net.pass(Duration::from_millis(100));
            p.expect_nothing();
            if !bound {
                late.bind(p.to).unwrap();
            }
            late.listen(0).unwrap();
            p.net.pass(Duration::from_millis(60));
            let event = expect(&p.server_events, EventKind::ConnectRequest, 0);
            assert_eq!(event.listen_id.unwrap().key(), late.key());
        }
    }
}

#[test]
fn reuse_addr_shares_a_port_until_somebody_listens() {
    let p = Pair::new(0, "127.0.0.1");
    p.listener.destroy();
    let ids: Vec<_> = (0..3).map(|_| p.server.id(&p.server_events)).collect();
    for id in &ids[..2] {
        id.set_option(IdOption::ReuseAddr(true)).unwrap();
        id.bind(p.to).unwrap();
    }
    expect_errno(ids[2].bind(p.to), libc::EADDRINUSE);
    expect_errno(ids[0].listen(0), libc::EADDRINUSE);
    ids[1].destroy();
    ids[0].listen(0).unwrap();
    ids[2].set_option(IdOption::ReuseAddr(true)).unwrap();
    expect_errno(ids[2].bind(p.to), libc::EADDRINUSE);
    expect_errno(ids[0].set_option(IdOption::ReuseAddr(true)), libc::EINVAL);
}

#[test]
fn port_zero_draws_an_ephemeral_port() {
    let p = Pair::new(0, "127.0.0.1");
    let ids: Vec<_> = (0..100).map(|_| p.server.id(&p.server_events)).collect();
    let mut ports = BTreeSet::from([p.to.port()]);
    for id in &ids {
        id.bind(at("127.0.0.1", 0)).unwrap();
        let port = id.local_addr().unwrap().port();
        assert!(port >= 1024 && ports.insert(port), "port {port}");
    }
    let first: Vec<u16> = ports.iter().copied().take(5).collect();
    assert_ne!(
        first,
        (first[0]..first[0] + 5).collect::<Vec<_>>(),
        "they are drawn at random"
    );
}

#[test]
fn sources_of_connections_are_unique_and_need_few_descriptors() {
    let p = Pair::new(0, "127.0.0.1");
    let clients: Vec<_> = (0..200)
        .map(|_| p.client.routed(&p.client_events, p.to))
        .collect();
    let more: Vec<_> = (0..200)
        .map(|_| p.server.routed(&p.server_events, p.to))
        .collect();
    let ports: BTreeSet<u16> = clients
        .iter()
        .chain(&more)
        .map(|id| id.local_addr().unwrap().port())
        .collect();
    assert_eq!(ports.len(), 400);
    assert_eq!(p.client.ports_watched(), 0);
    // A source port is taken for each identifier that asks for it.
    let id = p.client.id(&p.client_events);
    let taken = clients[0].local_addr().unwrap();
    expect_errno(id.bind(taken), libc::EADDRINUSE);
    expect_errno(clients[0].listen(0), libc::EINVAL);
    clients[0].destroy();
    id.bind(taken).unwrap();
}

#[test]
fn listening_without_an_address_takes_any() {
    let p = Pair::new(0, "127.0.0.1");
    let id = p.server.id(&p.server_events);
    id.listen(5).unwrap();
    let addr = id.local_addr().unwrap();
    assert!(addr.ip().is_unspecified() && addr.is_ipv4() && addr.port() != 0);
    let _client = p
        .client
        .connecting(&p.client_events, at("127.0.0.1", addr.port()));
    p.net.settle();
    expect(&p.server_events, EventKind::ConnectRequest, 0);
    expect_errno(id.listen(5), libc::EINVAL);
    expect_errno(id.bind(addr), libc::EINVAL);
    expect_errno(id.resolve_addr(None, p.to, Duration::ZERO), libc::EINVAL);
}

#[test]
fn only_own_addresses_can_be_bound() {
    let p = Pair::new(0, "127.0.0.1");
    let id = p.server.id(&p.server_events);
    expect_errno(id.bind(at("10.0.0.77", 0)), libc::EADDRNOTAVAIL);
    expect_errno(id.bind(at("8.8.8.8", 0)), libc::EADDRNOTAVAIL);
    id.bind(at("127.0.0.77", 0)).unwrap();
    assert_eq!(id.device().unwrap().netdev(), "lo");
    expect_errno(id.bind(at("127.0.0.1", 0)), libc::EINVAL);
}

#[test]
fn requests_beyond_the_backlog_wait_for_a_place() {
    let p = Pair::new(0, "127.0.0.1");
    p.listener.destroy();
    let listener = p.server.id(&p.server_events);
    listener.bind(p.to).unwrap();
    listener.listen(2).unwrap();
    let clients: Vec<_> = (0..4)
        .map(|_| p.client.connecting(&p.client_events, p.to))
        .collect();
    p.net.settle();
    let first = expect(&p.server_events, EventKind::ConnectRequest, 0);
    p.net.pass(Duration::from_millis(60));
    // The one that was taken made room for one more.
    let second = expect(&p.server_events, EventKind::ConnectRequest, 0);
    let third = expect(&p.server_events, EventKind::ConnectRequest, 0);
    expect_nothing(&p.server_events);
    p.net.pass(Duration::from_millis(60));
    let fourth = expect(&p.server_events, EventKind::ConnectRequest, 0);
    p.net.pass(Duration::from_millis(4700));
    p.expect_nothing();
    let peers: BTreeSet<_> = [first, second, third, fourth]
        .iter()
        .map(|e| e.id.peer_addr().unwrap())
        .collect();
    assert_eq!(
        peers,
        clients.iter().map(|c| c.local_addr().unwrap()).collect()
    );
}

#[test]
fn a_full_backlog_holds_up_nobody_else() {
    let p = Pair::new(0, "127.0.0.1");
    p.listener.destroy();
    let busy = p.server.id(&p.server_events);
    busy.bind(p.to).unwrap();
    busy.listen(1).unwrap();
    let beside = at("127.0.0.2", p.to.port());
    let _beside = p.server.listen(&p.server_events, &beside.to_string());
    let _crowd: Vec<_> = (0..3)
        .map(|_| p.client.connecting(&p.client_events, p.to))
        .collect();
    let other = p.client.connecting(&p.client_events, beside);
    p.net.settle();
    expect(&p.server_events, EventKind::ConnectRequest, 0);
    let event = expect(&p.server_events, EventKind::ConnectRequest, 0);
    assert_eq!(event.id.peer_addr(), other.local_addr());
}

#[test]
fn a_request_waits_a_moment_for_its_listener() {
    let p = Pair::new(0, "127.0.0.1");
    p.listener.destroy();
    let early = p.client.connecting(&p.client_events, p.to);
    p.net.pass(Duration::from_millis(20));
    // Nobody has the port; then somebody has it but does not listen; then somebody does.
    let listener = p.server.id(&p.server_events);
    listener.bind(p.to).unwrap();
    p.net.pass(Duration::from_millis(100));
    expect_nothing(&p.client_events);
    listener.listen(0).unwrap();
    p.net.pass(Duration::from_millis(100));
    let event = expect(&p.server_events, EventKind::ConnectRequest, 0);
    assert_eq!(event.id.peer_addr(), early.local_addr());
}

/// A listener that ends with a request that it has not even read: the client hears of it soon, not
/// when it would ask again.
#[test]
fn a_listener_that_ends_before_it_looks_is_missed_soon() {
    let Pair {
        net,
        server,
        client,
        client_events,
        server_events,
        listener,
        to,
    } = Pair::new(0, "127.0.0.1");
    *lock(&server.asleep) = true;
    let _asking = client.connecting(&client_events, to);
    net.pass(Duration::from_millis(200));
    expect_nothing(&client_events);
    // There is no link to it so far, so nobody hears of its end. Here the test holds the last
    // references.
    net.forget(&server);
    drop((listener, server_events, server));
    net.pass(Duration::from_millis(500) + GRACE);
    expect(&client_events, EventKind::Rejected, 8);
    net.pass(Duration::from_secs(10));
    assert_eq!(client.service().deadline(), None);
}
