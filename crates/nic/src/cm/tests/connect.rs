//! Connections from the request to timewait.

use std::time::Duration;

use ferroce_proto::ids::Gid;
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{AttrMask, Mtu, QpState};

use super::pair::Pair;
use super::program::*;
use crate::cm::{ConnParam, EventKind};

#[test]
fn a_connection_within_a_host() {
    let p = Pair::new(0, "127.0.0.1");
    let a = p.client.routed(&p.client_events, p.to);
    let (asked, answered) = (param(b"hello"), param_of_server(b"welcome"));
    a.connect(&asked).unwrap();
    p.net.settle();

    let request = expect(&p.server_events, EventKind::ConnectRequest, 0);
    assert_eq!(
        request.listen_id.as_ref().map(|l| l.key()),
        Some(p.listener.key())
    );
    let conn = conn_of(&request);
    assert_eq!(
        (conn.private_data.len(), &conn.private_data[..6]),
        (56, &b"hello\0"[..])
    );
    assert_eq!(
        (conn.responder_resources, conn.initiator_depth),
        (5, 3),
        "as seen by the receiver"
    );
    assert_eq!(
        (conn.retry_count, conn.rnr_retry_count, conn.qp_num),
        (6, 4, asked.qp_num)
    );
    assert!(conn.flow_control && !conn.srq);
    let b = request.id;
    assert_eq!(b.cookie(), 0);
    assert_eq!(
        (b.local_addr(), b.peer_addr()),
        (Some(p.to), a.local_addr())
    );
    assert_eq!(a.peer_addr(), Some(p.to));

    b.accept(&answered).unwrap();
    p.net.settle();
    let response = expect(&p.client_events, EventKind::ConnectResponse, 0);
    let conn = conn_of(&response);
    assert_eq!(
        (conn.private_data.len(), &conn.private_data[..8]),
        (196, &b"welcome\0"[..])
    );
    assert_eq!((conn.responder_resources, conn.initiator_depth), (2, 7));
    assert_eq!(conn.qp_num, answered.qp_num);
    expect_nothing(&p.server_events);

    a.establish().unwrap();
    p.net.settle();
    expect(&p.server_events, EventKind::Established, 0);
    p.expect_nothing();

    a.disconnect().unwrap();
    p.net.settle();
    expect(&p.server_events, EventKind::Disconnected, 0);
    expect_nothing(&p.client_events);
    b.disconnect().unwrap();
    p.net.settle();
    expect(&p.client_events, EventKind::Disconnected, 0);
    p.net.pass(Duration::from_millis(500));
    p.expect_nothing();
    p.net.pass(Duration::from_millis(20));
    expect(&p.client_events, EventKind::TimewaitExit, 0);
    expect(&p.server_events, EventKind::TimewaitExit, 0);
    a.disconnect().unwrap();
    p.net.pass(Duration::from_secs(1000));
    p.expect_nothing();
    assert!(lock_is_empty(&p), "nothing went over the wire");
}

fn lock_is_empty(p: &Pair) -> bool {
    crate::base::sync::lock(&p.net.wire_log).is_empty()
}

#[test]
fn every_pair_of_places_can_connect() {
    for (machine, ip) in [
        (0, "::1"),
        (0, "127.3.2.1"),
        (0, "10.0.0.1"),
        (0, "fd00::1"),
        (1, "10.0.0.2"),
        (1, "fd00::2"),
    ] {
        let p = Pair::new(machine, ip);
        let (a, b) = p.establish();
        assert_eq!(lock_is_empty(&p), machine == 0, "{ip}");
        let device = |id: &crate::Id| id.device().unwrap().netdev().to_owned();
        let loopback = p.to.ip().is_loopback();
        assert_eq!(device(&a), if loopback { "lo" } else { "eth0" });
        assert_eq!(device(&b), if loopback { "lo" } else { "eth0" });
        b.disconnect().unwrap();
        p.net.settle();
        expect(&p.client_events, EventKind::Disconnected, 0);
        a.destroy();
        p.net.settle();
        expect(&p.server_events, EventKind::Disconnected, 0);
        p.net.pass(Duration::from_secs(1));
        expect(&p.server_events, EventKind::TimewaitExit, 0);
        p.expect_nothing();
    }
}

#[test]
fn both_ends_in_one_process() {
    let p = Pair::new(0, "127.0.0.1");
    let a = p.server.connecting(&p.client_events, p.to);
    let b = expect(&p.server_events, EventKind::ConnectRequest, 0).id;
    b.accept(&param_of_server(b"")).unwrap();
    expect(&p.client_events, EventKind::ConnectResponse, 0);
    a.establish().unwrap();
    expect(&p.server_events, EventKind::Established, 0);
    b.destroy();
    expect(&p.client_events, EventKind::Disconnected, 0);
    p.expect_nothing();
}

#[test]
fn what_goes_over_the_wire_is_what_others_expect() {
    let p = Pair::new(1, "10.0.0.2");
    let _ends = p.establish();
    let log = crate::base::sync::lock(&p.net.wire_log);
    let names: Vec<_> = log.iter().map(|(_, mad)| mad.message.name()).collect();
    assert_eq!(names, ["REQ", "REP", "RTU"]);
    let gid = |ip: &str| Gid::from_ip(ip.parse().unwrap());
    let (request, mad) = &log[0];
    assert_eq!(
        (request.src, request.dst, request.hop_limit),
        (gid("10.0.0.1"), gid("10.0.0.2"), 64)
    );
    assert_eq!((log[1].0.src, log[1].0.hop_limit), (gid("10.0.0.2"), 255));
    let ferroce_proto::mad::Message::Req(req) = &mad.message else {
        panic!("{mad:?}")
    };
    assert_eq!(req.service_id.0, 0x0106_0000 | u64::from(p.to.port()));
    assert_eq!(
        (req.primary.local_lid, req.primary.remote_lid),
        (0xffff, 0xffff)
    );
    assert_eq!(
        (req.primary.local_gid, req.primary.remote_gid),
        (request.src, request.dst)
    );
    assert_eq!(
        (
            req.primary.hop_limit,
            req.primary.subnet_local,
            req.primary.packet_rate
        ),
        (64, false, 0)
    );
    assert_eq!(
        (req.primary.local_ack_timeout, req.path_mtu, req.pkey),
        (17, 3, 0xffff)
    );
    assert_eq!(
        (
            req.remote_cm_response_timeout,
            req.local_cm_response_timeout,
            req.max_cm_retries
        ),
        (20, 20, 15)
    );
}

#[test]
fn a_peer_that_tries_without_limit_waits_little_for_a_receiver() {
    for (retries, code) in [(7, 20), (8, 20), (6, 0), (0, 0)] {
        let p = Pair::new(1, "10.0.0.2");
        let a = p.client.routed(&p.client_events, p.to);
        let patient = |param: ConnParam| ConnParam {
            rnr_retry_count: retries,
            ..param
        };
        a.connect(&patient(param(b""))).unwrap();
        p.net.settle();
        let b = expect(&p.server_events, EventKind::ConnectRequest, 0).id;
        let (b_rtr, _) = b.qp_attr(QpState::Rtr).unwrap();
        assert_eq!(b_rtr.min_rnr_timer, 0, "what it will tell is not known");
        b.accept(&patient(param_of_server(b""))).unwrap();
        p.net.settle();
        expect(&p.client_events, EventKind::ConnectResponse, 0);
        let of = [a.qp_attr(QpState::Rtr), b.qp_attr(QpState::Rtr)];
        let codes = of.map(|attr| attr.unwrap().0.min_rnr_timer);
        assert_eq!(codes, [code; 2], "rnr_retry_count {retries}");
    }
}

#[test]
fn the_connection_tells_the_attributes_of_its_queue_pair() {
    let p = Pair::new(1, "10.0.0.2");
    let a = p.client.routed(&p.client_events, p.to);
    let (attr, mask) = a.qp_attr(QpState::Init).unwrap();
    assert_eq!((attr.qp_access_flags, attr.port_num), (Access::empty(), 1));
    assert_eq!(
        mask,
        AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS
    );
    expect_errno(a.qp_attr(QpState::Rtr), libc::EINVAL);
    let (asked, answered) = (param(b""), param_of_server(b""));
    a.connect(&asked).unwrap();
    expect_errno(a.qp_attr(QpState::Rtr), libc::EINVAL);
    p.net.settle();
    let b = expect(&p.server_events, EventKind::ConnectRequest, 0).id;

    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    assert_eq!(b.qp_attr(QpState::Init).unwrap().0.qp_access_flags, rights);
    let (b_rtr, mask) = b.qp_attr(QpState::Rtr).unwrap();
    assert!(
        mask.contains(AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN)
    );
    assert!(mask.contains(AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER));
    assert_eq!(
        (b_rtr.dest_qp_num, b_rtr.path_mtu),
        (asked.qp_num, Mtu::B1024)
    );
    assert_eq!((b_rtr.max_dest_rd_atomic, b_rtr.min_rnr_timer), (5, 0));
    assert!(b_rtr.ah_attr.is_global);
    assert_eq!(
        b_rtr.ah_attr.grh.dgid,
        Gid::from_ip("10.0.0.1".parse().unwrap())
    );
    let (b_rts, _) = b.qp_attr(QpState::Rts).unwrap();
    assert_eq!(
        (
            b_rts.timeout,
            b_rts.retry_cnt,
            b_rts.rnr_retry,
            b_rts.max_rd_atomic
        ),
        (17, 6, 4, 3)
    );

    b.accept(&answered).unwrap();
    assert_eq!(
        b.qp_attr(QpState::Rtr).unwrap().0.max_dest_rd_atomic,
        7,
        "as it was accepted"
    );
    p.net.settle();
    expect(&p.client_events, EventKind::ConnectResponse, 0);
    let (a_rtr, _) = a.qp_attr(QpState::Rtr).unwrap();
    let (a_rts, mask) = a.qp_attr(QpState::Rts).unwrap();
    assert_eq!(
        (a_rtr.dest_qp_num, a_rtr.max_dest_rd_atomic),
        (answered.qp_num, 2)
    );
    assert_eq!(
        (
            a_rts.timeout,
            a_rts.retry_cnt,
            a_rts.rnr_retry,
            a_rts.max_rd_atomic
        ),
        (17, 6, 1, 7)
    );
    assert!(mask.contains(
        AttrMask::SQ_PSN | AttrMask::TIMEOUT | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY
    ));
    assert_eq!(
        (a_rtr.rq_psn, a_rts.sq_psn),
        (b_rts.sq_psn, b_rtr.rq_psn),
        "each side sends what the other expects"
    );
    assert_eq!(a_rtr.ah_attr.grh.flow_label, b_rtr.ah_attr.grh.flow_label);
    expect_errno(a.qp_attr(QpState::Err), libc::EINVAL);
    a.establish().unwrap();
    a.disconnect().unwrap();
    expect_errno(a.qp_attr(QpState::Rts), libc::EINVAL);
    expect_errno(a.qp_attr(QpState::Init), libc::EINVAL);
}

#[test]
fn a_connection_without_reads_gives_no_right_to_read() {
    let p = Pair::new(0, "127.0.0.1");
    let a = p.client.routed(&p.client_events, p.to);
    a.connect(&ConnParam {
        responder_resources: 0,
        ..param(b"")
    })
    .unwrap();
    assert_eq!(
        a.qp_attr(QpState::Init).unwrap().0.qp_access_flags,
        Access::REMOTE_WRITE
    );
}

#[test]
fn calls_out_of_place_are_refused() {
    let p = Pair::new(0, "127.0.0.1");
    let id = p.client.id(&p.client_events);
    expect_errno(id.connect(&param(b"")), libc::EINVAL);
    expect_errno(id.accept(&param(b"")), libc::EINVAL);
    expect_errno(id.reject(b""), libc::EINVAL);
    expect_errno(id.establish(), libc::EINVAL);
    expect_errno(id.notify_established(), libc::EINVAL);
    expect_errno(id.disconnect(), libc::EINVAL);
    expect_errno(id.resolve_route(Duration::ZERO), libc::EINVAL);
    expect_errno(id.qp_attr(QpState::Init), libc::EINVAL);
    expect_errno(p.listener.connect(&param(b"")), libc::EINVAL);
    let routed = p.client.routed(&p.client_events, p.to);
    expect_errno(routed.connect(&param(&[0; 57])), libc::EINVAL);
    routed.connect(&param(&[1; 56])).unwrap();
    p.net.settle();
    let request = expect(&p.server_events, EventKind::ConnectRequest, 0);
    assert_eq!(conn_of(&request).private_data, [1; 56]);
    expect_errno(request.id.accept(&param(&[0; 197])), libc::EINVAL);
    expect_errno(request.id.establish(), libc::EINVAL);
    request.id.accept(&param(&[2; 196])).unwrap();
    expect_errno(routed.accept(&param(b"")), libc::EINVAL);
    p.listener.destroy();
    expect_errno(p.listener.listen(0), libc::EINVAL);
}

#[test]
fn retry_counts_have_three_bits() {
    let p = Pair::new(0, "127.0.0.1");
    let a = p.client.routed(&p.client_events, p.to);
    a.connect(&ConnParam {
        retry_count: 200,
        rnr_retry_count: 8,
        ..param(b"")
    })
    .unwrap();
    p.net.settle();
    let conn = conn_of(&expect(&p.server_events, EventKind::ConnectRequest, 0));
    assert_eq!((conn.retry_count, conn.rnr_retry_count), (7, 7));
}
