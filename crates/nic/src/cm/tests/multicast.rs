//! Multicast groups.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::verbs::QpType;

use super::net::*;
use super::process::*;
use super::program::*;
use crate::cm::{Event, EventChannel, EventKind, EventParam, Id, PortSpace, UdParam};

#[track_caller]
fn group_of(event: &Event) -> (u64, UdParam) {
    match &event.param {
        EventParam::Group { join, ud } => (*join, ud.clone()),
        other => panic!("{other:?} where a group is expected"),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// An identifier of datagrams that is bound to the machine's address.
fn bound(addr: &str) -> (Arc<Proc>, Arc<EventChannel>, Arc<Id>) {
    let proc = Net::new().start(0, 11);
    let channel = proc.channel();
    let id = proc.id_of(&channel, PortSpace::Udp, QpType::Ud);
    id.bind(at(addr, 0)).unwrap();
    (proc, channel, id)
}

#[test]
fn a_join_tells_how_the_group_is_reached() {
    for (own, group) in [(v4(0), "239.1.2.3"), (v6(0), "ff0e::17")] {
        let (_proc, channel, id) = bound(&own);
        id.join_multicast(ip(group), 7).unwrap();
        let (join, ud) = group_of(&expect(&channel, EventKind::MulticastJoin, 0));
        assert_eq!(join, 7);
        assert_eq!((ud.qp_num, ud.qkey), (Qpn::new(0xff_ffff), 0x0123_4567));
        assert!(ud.ah_attr.is_global);
        let grh = ud.ah_attr.grh;
        assert_eq!((grh.dgid, grh.hop_limit), (Gid::from_ip(ip(group)), 64));
        expect_nothing(&channel);
    }
}

#[test]
fn a_join_works_once_the_address_is_resolved_too() {
    let (_proc, channel, id) = bound(&v4(0));
    id.resolve_addr(None, at("10.0.0.1", 9), Duration::ZERO)
        .unwrap();
    expect(&channel, EventKind::AddrResolved, 0);
    id.join_multicast(ip("239.1.2.3"), 1).unwrap();
    expect(&channel, EventKind::MulticastJoin, 0);
}

/// The network of a group is that of the source, so no route is needed.
#[test]
fn a_group_resolves_from_a_source_without_a_route() {
    let (proc, channel, id) = bound(&v4(0));
    id.resolve_addr(None, at("239.1.2.3", 0), Duration::ZERO)
        .unwrap();
    expect(&channel, EventKind::AddrResolved, 0);
    let anywhere = proc.id_of(&channel, PortSpace::Udp, QpType::Ud);
    anywhere
        .resolve_addr(None, at("239.1.2.3", 0), Duration::ZERO)
        .unwrap();
    expect(&channel, EventKind::AddrError, -libc::ENETUNREACH);
}

#[test]
fn a_left_group_leaves_no_event() {
    let (_proc, channel, id) = bound(&v4(0));
    id.join_multicast(ip("239.1.2.3"), 1).unwrap();
    id.join_multicast(ip("239.1.2.4"), 2).unwrap();
    id.leave_multicast(1);
    let (join, _) = group_of(&expect(&channel, EventKind::MulticastJoin, 0));
    assert_eq!(join, 2);
    expect_nothing(&channel);
}

#[test]
fn groups_are_for_bound_datagram_identifiers() {
    let group = ip("239.1.2.3");
    let (proc, channel, id) = bound(&v4(0));
    expect_errno(id.join_multicast(ip("10.0.0.1"), 1), libc::EINVAL);
    expect_errno(id.join_multicast(ip("0.0.0.0"), 1), libc::EINVAL);
    expect_errno(id.join_multicast(ip("ff0e::1"), 1), libc::EINVAL);
    let unbound = proc.id_of(&channel, PortSpace::Udp, QpType::Ud);
    expect_errno(unbound.join_multicast(group, 1), libc::EINVAL);
    let anywhere = proc.id_of(&channel, PortSpace::Udp, QpType::Ud);
    anywhere.bind(at("0.0.0.0", 0)).unwrap();
    expect_errno(anywhere.join_multicast(group, 1), libc::ENODEV);
    let connected = proc.id(&channel);
    connected.bind(at(&v4(0), 0)).unwrap();
    expect_errno(connected.join_multicast(group, 1), libc::EINVAL);
    expect_nothing(&channel);
}
