//! Datagram services, between processes of one machine and of two.

use std::sync::Arc;
use std::time::Duration;

use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::mad::{CmMad, Message};
use ferroce_proto::verbs::{AttrMask, QpState, QpType};

use super::net::*;
use super::pair::Pair;
use super::program::*;
use crate::base::sync::lock;
use crate::cm::{EventChannel, EventKind, EventParam, Id, PortSpace, UdParam};

const QKEY: u32 = 0x0123_4567;

/// The datagram parameters that an event carries.
#[track_caller]
fn ud_of(event: &crate::cm::Event) -> UdParam {
    match &event.param {
        EventParam::Ud(ud) => ud.clone(),
        other => panic!("{other:?} where datagram parameters are expected"),
    }
}

/// A datagram service and an identifier that has a route to it.
struct Service {
    pair: Pair,
    _listener: Arc<Id>,
    asker: Arc<Id>,
}

impl Service {
    #[track_caller]
    fn new(machine: usize, ip: &str, ps: PortSpace) -> Self {
        let mut pair = Pair::new(machine, ip);
        let id = pair.server.id_of(&pair.server_events, ps, QpType::Ud);
        let (listener, port) = pair.server.listen_as(id, &at(ip, 0).to_string());
        pair.to.set_port(port);
        let id = pair.client.id_of(&pair.client_events, ps, QpType::Ud);
        let asker = pair.client.route_as(id, &pair.client_events, pair.to);
        Self {
            pair,
            _listener: listener,
            asker,
        }
    }

    /// Asks; the identifier that the service got for it.
    #[track_caller]
    fn ask(&self) -> (Arc<Id>, UdParam) {
        self.asker.connect(&param(b"who are you?")).unwrap();
        self.pair.net.settle();
        let event = expect(&self.pair.server_events, EventKind::ConnectRequest, 0);
        let ud = ud_of(&event);
        (event.id, ud)
    }

    fn server_events(&self) -> &EventChannel {
        &self.pair.server_events
    }

    fn client_events(&self) -> &EventChannel {
        &self.pair.client_events
    }
}

#[test]
fn a_service_tells_its_queue_pair() {
    for (machine, ip, ps) in [
        (0, "127.0.0.1".to_string(), PortSpace::Udp),
        (0, v4(0), PortSpace::Ipoib),
        (1, v4(1), PortSpace::Udp),
        (1, v6(1), PortSpace::Udp),
        (1, v4(1), PortSpace::Ib),
    ] {
        let s = Service::new(machine, &ip, ps);
        let (served, asked) = s.ask();
        assert_eq!(asked.private_data.len(), 180);
        assert_eq!(&asked.private_data[..12], b"who are you?");
        assert_eq!(served.peer_addr(), s.asker.local_addr());
        let answer = crate::cm::ConnParam {
            qp_num: Qpn::new(0x77),
            ..param(b"number 77")
        };
        served.accept(&answer).unwrap();
        s.pair.net.settle();
        let ud = ud_of(&expect(s.client_events(), EventKind::Established, 0));
        assert_eq!((ud.qp_num, ud.qkey), (Qpn::new(0x77), QKEY));
        assert_eq!(ud.private_data.len(), 136);
        assert_eq!(&ud.private_data[..9], b"number 77");
        assert!(ud.ah_attr.is_global);
        assert_eq!(ud.ah_attr.grh.dgid, Gid::from_ip(ip.parse().unwrap()));
        s.pair.expect_nothing();
        // Nothing more is to be said; the identifiers stay for their queue pairs.
        s.pair.net.pass(Duration::from_secs(120));
        s.pair.expect_nothing();
        served.disconnect().unwrap();
        s.asker.disconnect().unwrap();
        s.pair.expect_nothing();
    }
}

#[test]
fn a_refusal_makes_the_service_unreachable() {
    for machine in [0, 1] {
        let s = Service::new(machine, &v4(machine), PortSpace::Udp);
        let (served, _) = s.ask();
        served.reject(b"not you").unwrap();
        s.pair.net.settle();
        let ud = ud_of(&expect(s.client_events(), EventKind::Unreachable, 2));
        assert_eq!(&ud.private_data[..7], b"not you");
    }
}

#[test]
fn a_request_that_is_destroyed_is_refused() {
    let s = Service::new(1, &v4(1), PortSpace::Udp);
    let (served, _) = s.ask();
    drop(served);
    s.pair.net.settle();
    expect(s.client_events(), EventKind::Unreachable, 2);
}

#[test]
fn nobody_offers_is_status_1() {
    for machine in [0, 1] {
        let s = Service::new(machine, &v4(machine), PortSpace::Udp);
        let mut to = s.pair.to;
        to.set_port(1);
        let id = s
            .pair
            .client
            .id_of(&s.pair.client_events, PortSpace::Udp, QpType::Ud);
        let id = s.pair.client.route_as(id, &s.pair.client_events, to);
        id.connect(&param(b"")).unwrap();
        s.pair.net.pass(GRACE);
        expect(s.client_events(), EventKind::Unreachable, 1);
    }
}

#[test]
fn a_silent_service_is_unreachable_after_sixteen_requests() {
    let s = Service::new(1, &v4(1), PortSpace::Udp);
    lock(&s.pair.net.lost).push("SIDR_REQ");
    s.asker.connect(&param(b"")).unwrap();
    s.pair.net.pass(Duration::from_millis(16 * 4096));
    expect(s.client_events(), EventKind::Unreachable, -libc::ETIMEDOUT);
    let log = lock(&s.pair.net.wire_log);
    assert_eq!(log.len(), 16);
}

#[test]
fn a_lost_answer_comes_again_without_a_second_request_event() {
    for landing in [0, 1] {
        let s = Service::new(1, &v4(1), PortSpace::Udp);
        // On the server's machine a second process may be the one that receives from the wire.
        let _other = s.pair.net.start(1, 13);
        s.pair
            .net
            .landing
            .store(landing, std::sync::atomic::Ordering::SeqCst);
        let (served, _) = s.ask();
        lock(&s.pair.net.lost).push("SIDR_REP");
        served.accept(&param(b"")).unwrap();
        s.pair.net.settle();
        lock(&s.pair.net.lost).clear();
        drop(served);
        s.pair.net.pass(Duration::from_millis(5000));
        expect(s.client_events(), EventKind::Established, 0);
        expect_nothing(s.server_events());
    }
}

#[test]
fn private_data_has_its_limits() {
    let s = Service::new(1, &v4(1), PortSpace::Udp);
    expect_errno(s.asker.connect(&param(&[1; 181])), libc::EINVAL);
    s.asker.connect(&param(&[1; 180])).unwrap();
    s.pair.net.settle();
    let event = expect(s.server_events(), EventKind::ConnectRequest, 0);
    assert_eq!(ud_of(&event).private_data, [1; 180]);
    expect_errno(event.id.accept(&param(&[2; 137])), libc::EINVAL);
    expect_errno(event.id.reject(&[2; 137]), libc::EINVAL);
    event.id.accept(&param(&[2; 136])).unwrap();
    expect_errno(event.id.accept(&param(b"")), libc::EINVAL);
    expect_errno(event.id.reject(b""), libc::EINVAL);
    s.pair.net.settle();
    let event = expect(s.client_events(), EventKind::Established, 0);
    assert_eq!(ud_of(&event).private_data, [2; 136]);
}

/// Connections and datagrams do not meet, even where port space and port are the same.
#[test]
fn a_listener_takes_its_own_kind_only() {
    let s = Service::new(0, "127.0.0.1", PortSpace::Ib);
    let id = s
        .pair
        .client
        .id_of(&s.pair.client_events, PortSpace::Ib, QpType::Rc);
    let id = s.pair.client.route_as(id, &s.pair.client_events, s.pair.to);
    id.connect(&param(b"")).unwrap();
    s.pair.net.settle();
    expect(s.client_events(), EventKind::Rejected, 9);
    expect_nothing(s.server_events());
}

/// The key belongs to the queue pair, and an identifier has one of those.
#[test]
fn a_service_without_a_usable_key_is_an_address_error() {
    for qkey in [0, 0x55] {
        let s = Service::new(1, &v4(1), PortSpace::Udp);
        lock(&s.pair.net.lost).push("SIDR_REQ");
        if qkey != 0 {
            // What a queue pair is made with settles the key.
            s.asker.settle_qkey().unwrap();
        }
        s.asker.connect(&param(b"")).unwrap();
        s.pair.net.settle();
        let request = lock(&s.pair.net.wire_log)[0].1.clone();
        let Message::SidrReq(asked) = request.message else {
            panic!("{request:?}");
        };
        let mut rep =
            ferroce_proto::mad::SidrRep::refusal(&asked, ferroce_proto::mad::SidrStatus::VALID);
        rep.qkey = qkey;
        let mad = CmMad {
            tid: request.tid,
            message: Message::SidrRep(rep),
        };
        let gid = |ip: String| Gid::from_ip(ip.parse().unwrap());
        let service = s.pair.client.service();
        service.on_mad(gid(v4(1)), gid(v4(0)), &mad.emit(), crate::cm::Via::Wire);
        expect(s.client_events(), EventKind::AddrError, -libc::EINVAL);
    }
}

#[test]
fn queue_pair_attributes_need_no_peer() {
    let s = Service::new(1, &v4(1), PortSpace::Udp);
    let (attr, mask) = s.asker.qp_attr(QpState::Init).unwrap();
    assert_eq!((attr.qkey, attr.port_num), (QKEY, 1));
    assert_eq!(
        mask,
        AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY
    );
    let (_, mask) = s.asker.qp_attr(QpState::Rtr).unwrap();
    assert_eq!(mask, AttrMask::STATE);
    let (_, mask) = s.asker.qp_attr(QpState::Rts).unwrap();
    assert_eq!(mask, AttrMask::STATE | AttrMask::SQ_PSN);
    expect_errno(s.asker.qp_attr(QpState::Sqd), libc::EINVAL);
}
