//! Addresses, routes and options.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ferroce_proto::ids::Gid;
use ferroce_proto::verbs::{Mtu, QpState};

use super::net::*;
use super::pair::Pair;
use super::program::*;
use crate::base::sync::lock;
use crate::cm::{EventKind, IdOption, Route};

fn routed(p: &Pair, to: &str) -> Route {
    p.client
        .routed(&p.client_events, to.parse().unwrap())
        .route()
        .unwrap()
}

#[test]
fn addresses_resolve_to_the_device_that_owns_the_source() {
    let p = Pair::new(0, "127.0.0.1");
    for (to, local, peer, netdev) in [
        ("127.0.0.1:7", "127.0.0.1", "127.0.0.1:7", "lo"),
        ("127.9.9.9:7", "127.0.0.1", "127.9.9.9:7", "lo"),
        ("0.0.0.0:7", "127.0.0.1", "127.0.0.1:7", "lo"),
        ("[::]:7", "::1", "[::1]:7", "lo"),
        ("[::1]:7", "::1", "[::1]:7", "lo"),
        ("10.0.0.1:7", "10.0.0.1", "10.0.0.1:7", "eth0"),
        ("10.0.0.2:7", "10.0.0.1", "10.0.0.2:7", "eth0"),
        ("[fd00::9]:7", "fd00::1", "[fd00::9]:7", "eth0"),
    ] {
        let id = p.client.routed(&p.client_events, to.parse().unwrap());
        let addr = id.local_addr().unwrap();
        assert_eq!(
            addr.ip(),
            local.parse::<std::net::IpAddr>().unwrap(),
            "{to}"
        );
        assert_ne!(addr.port(), 0);
        assert_eq!(id.peer_addr(), Some(peer.parse().unwrap()));
        assert_eq!(id.device().unwrap().netdev(), netdev);
        let route = id.route().unwrap();
        assert_eq!(route.sgid, Gid::from_ip(addr.ip()));
        assert_eq!(
            id.device().unwrap().gid(route.sgid_index.into()),
            Some(route.sgid)
        );
    }
}

#[test]
fn a_source_that_the_program_chose_stays() {
    let p = Pair::new(0, "127.0.0.1");
    let id = p.client.id(&p.client_events);
    id.resolve_addr(Some(at("127.0.0.5", 0)), p.to, Duration::ZERO)
        .unwrap();
    expect(&p.client_events, EventKind::AddrResolved, 0);
    assert_eq!(id.local_addr().unwrap().ip(), at("127.0.0.5", 0).ip());
    id.resolve_route(Duration::ZERO).unwrap();
    expect(&p.client_events, EventKind::RouteResolved, 0);
    // Its GID is the table's first entry, since 127.0.0.5 has none.
    assert_eq!(
        id.route().unwrap().sgid,
        Gid::from_ip(at("127.0.0.1", 0).ip())
    );
    id.connect(&param(b"")).unwrap();
    p.net.settle();
    let event = expect(&p.server_events, EventKind::ConnectRequest, 0);
    assert_eq!(event.id.peer_addr(), id.local_addr());

    let bound = p.client.id(&p.client_events);
    bound.bind(at("10.0.0.1", 0)).unwrap();
    let own = bound.local_addr();
    bound
        .resolve_addr(Some(at("127.0.0.1", 9)), at("10.0.0.2", 7), Duration::ZERO)
        .unwrap();
    expect(&p.client_events, EventKind::AddrResolved, 0);
    assert_eq!(bound.local_addr(), own, "the bind came first");
    let id = p.client.id(&p.client_events);
    expect_errno(
        id.resolve_addr(Some(p.to), p.to, Duration::ZERO),
        libc::EADDRINUSE,
    );
    expect_errno(
        id.resolve_addr(Some(at("10.0.0.9", 0)), p.to, Duration::ZERO),
        libc::EADDRNOTAVAIL,
    );
    expect_errno(
        id.resolve_addr(Some(at("::1", 0)), p.to, Duration::ZERO),
        libc::EINVAL,
    );
    id.resolve_addr(Some(at("127.0.0.1", 0)), p.to, Duration::ZERO)
        .unwrap();
}

#[test]
fn what_cannot_be_reached_is_an_event_and_can_be_tried_again() {
    let p = Pair::new(0, "127.0.0.1");
    let id = p.client.id(&p.client_events);
    id.resolve_addr(None, at("192.0.2.1", 7), Duration::ZERO)
        .unwrap();
    expect(&p.client_events, EventKind::AddrError, -libc::ENETUNREACH);
    expect_errno(id.resolve_route(Duration::ZERO), libc::EINVAL);
    id.resolve_addr(None, at("172.16.0.9", 7), Duration::ZERO)
        .unwrap();
    expect(&p.client_events, EventKind::AddrError, -libc::ENODEV);
    id.resolve_addr(None, p.to, Duration::ZERO).unwrap();
    expect(&p.client_events, EventKind::AddrResolved, 0);
    expect_errno(id.resolve_addr(None, p.to, Duration::ZERO), libc::EINVAL);
    p.expect_nothing();
}

#[test]
fn the_route_follows_from_the_interface_and_the_ports() {
    let p = Pair::new(0, "127.0.0.1");
    let id = p.client.routed(&p.client_events, at("10.0.0.2", 7471));
    let route = id.route().unwrap();
    assert_eq!(route.mtu, Mtu::B1024);
    assert_eq!(
        (route.hop_limit, route.traffic_class, route.packet_life_time),
        (64, 0, 16)
    );
    let sport = u32::from(id.local_addr().unwrap().port());
    assert_eq!(route.flow_label, (sport * 31 + 7471) & 0xf_ffff);
    assert_eq!(route.dgid, Gid::from_ip(at("10.0.0.2", 0).ip()));
    assert_eq!(routed(&p, "127.0.0.1:7").mtu, Mtu::B4096);
    let labelled = std::net::SocketAddrV6::new("fd00::2".parse().unwrap(), 7, 0x1234_5678, 0);
    let id = p.client.routed(&p.client_events, labelled.into());
    assert_eq!(id.route().unwrap().flow_label, 0x4_5678);
}

#[test]
fn options_show_in_the_route_and_the_queue_pair() {
    let p = Pair::new(1, "10.0.0.2");
    let id = p.client.id(&p.client_events);
    id.set_option(IdOption::Tos(0x68)).unwrap();
    id.set_option(IdOption::AckTimeout(12)).unwrap();
    expect_errno(id.set_option(IdOption::AckTimeout(32)), libc::EINVAL);
    id.resolve_addr(None, p.to, Duration::ZERO).unwrap();
    id.resolve_route(Duration::ZERO).unwrap();
    let route = id.route().unwrap();
    assert_eq!((route.traffic_class, route.packet_life_time), (0x68, 11));
    expect(&p.client_events, EventKind::AddrResolved, 0);
    expect(&p.client_events, EventKind::RouteResolved, 0);
    id.connect(&param(b"")).unwrap();
    p.net.settle();
    let b = expect(&p.server_events, EventKind::ConnectRequest, 0).id;
    assert_eq!(b.route().unwrap().traffic_class, 0x68);
    b.accept(&param_of_server(b"")).unwrap();
    p.net.settle();
    assert_eq!(id.qp_attr(QpState::Rts).unwrap().0.timeout, 12);
}

#[test]
fn a_host_that_is_not_there_is_an_address_error_after_the_callers_time() {
    let net = Net::new();
    let proc = net.start(0, 11);
    let channel = proc.channel();
    let absent = at("10.0.0.99", 7);
    lock(&net.absent).push(absent.ip());
    let id = proc.id(&channel);
    id.resolve_addr(None, absent, Duration::from_secs(2))
        .unwrap();
    net.pass(Duration::from_millis(1999));
    expect_nothing(&channel);
    expect_errno(id.resolve_route(Duration::ZERO), libc::EINVAL);
    net.pass(Duration::from_millis(1));
    expect(&channel, EventKind::AddrError, -libc::ETIMEDOUT);
    assert!(net.link_requests.load(Ordering::SeqCst) > 10);
    // It may be asked for again, and be there then.
    id.resolve_addr(None, absent, Duration::from_secs(2))
        .unwrap();
    net.pass(Duration::from_millis(500));
    lock(&net.absent).clear();
    net.pass(Duration::from_millis(100));
    expect(&channel, EventKind::AddrResolved, 0);
    net.pass(Duration::from_secs(5));
    expect_nothing(&channel);
    id.resolve_route(Duration::ZERO).unwrap();
    expect(&channel, EventKind::RouteResolved, 0);
}

#[test]
fn an_identifier_that_is_destroyed_is_not_resolved_on() {
    let net = Net::new();
    let proc = net.start(0, 11);
    let channel = proc.channel();
    let absent = at("10.0.0.99", 7);
    lock(&net.absent).push(absent.ip());
    let id = proc.id(&channel);
    id.resolve_addr(None, absent, Duration::from_secs(2))
        .unwrap();
    drop(id);
    assert_eq!(proc.service().deadline(), None);
    net.pass(Duration::from_secs(3));
    expect_nothing(&channel);
}
