//! Unreliable datagrams: what goes into a packet, what a receiver makes of it, and what is dropped.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use std::net::Ipv4Addr;

use common::bytes;
use common::loose::{End, config};
use ferroce_proto::ids::{Gid, Key, Psn, Qpn};
use ferroce_proto::rc::SharedRecv;
use ferroce_proto::testkit::{PD, Rng, sge, wr};
use ferroce_proto::ud::{GrhRoute, UdQp};
use ferroce_proto::verbs::{
    AttrMask, Datagram, Mtu, Payload, PostError, QpAttr, QpEvent, QpState, QpType, RecvWr,
    SendFlags, SendOp, SendTo, SendWr, WcFlags, WcImm, WcOpcode, WcStatus,
};
use ferroce_proto::wire::{Opcode, Packet};

const QKEY: u32 = 0x1111_1111;
const MTU: u32 = 1024;

fn v4() -> GrhRoute {
    GrhRoute {
        src: Gid::from(Ipv4Addr::new(10, 0, 0, 1)),
        dst: Gid::from(Ipv4Addr::new(10, 0, 0, 2)),
        hop_limit: 63,
        traffic_class: 0x2c,
        flow_label: 0,
    }
}

fn v6() -> GrhRoute {
    GrhRoute {
        src: Gid([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        dst: Gid([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]),
        flow_label: 0x9_8765,
        ..v4()
    }
}

fn end(qpn: u32, qkey: u32, shared_recv: bool) -> End<UdQp> {
    let mut config = config(QpType::Ud, qpn);
    config.shared_recv = shared_recv;
    let mut end = End::new(UdQp::new(config, Mtu::B1024), qpn);
    let attr = QpAttr {
        qp_state: QpState::Init,
        qkey,
        ..QpAttr::default()
    };
    let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY;
    end.modify(&attr, mask);
    end.go(QpState::Rtr);
    let attr = QpAttr {
        qp_state: QpState::Rts,
        sq_psn: Psn::new(0xff_ffff),
        ..QpAttr::default()
    };
    end.modify(&attr, AttrMask::STATE | AttrMask::SQ_PSN);
    end
}

fn pair() -> [End<UdQp>; 2] {
    [end(0x4011, QKEY, false), end(0x8022, QKEY, false)]
}

fn take(end: &mut End<UdQp>, bytes: &[u8], route: &GrhRoute) -> bool {
    let packet = Packet::parse(bytes).expect("well-formed");
    end.with(|qp, cx| qp.on_packet(cx, &packet, route))
}

fn to(qpn: u32, qkey: u32) -> SendTo {
    SendTo::Datagram(Datagram {
        ah: 3,
        qpn: Qpn::new(qpn),
        qkey,
    })
}

fn datagram(from: &End<UdQp>, wr_id: u64, len: u32) -> SendWr {
    SendWr {
        to: to(0x8022, QKEY),
        ..wr(wr_id, SendOp::Send, vec![from.sge(0, len)])
    }
}

#[test]
fn a_packet_names_its_sender_and_its_key() {
    let [mut a, _] = pair();
    let (imm, flags) = ([9, 8, 7, 6], SendFlags::SOLICITED);
    for (op, opcode, flags) in [
        (SendOp::Send, Opcode::UD_SEND_ONLY, SendFlags::empty()),
        (SendOp::SendImm(imm), Opcode::UD_SEND_ONLY_IMM, flags),
    ] {
        for len in [0, 1, 2, 3, 4, MTU] {
            let data = bytes(&mut Rng::new(u64::from(len)), len as usize);
            a.put(0, &data);
            let psn = a.node.qp.query().sq_psn;
            a.send(SendWr {
                op,
                flags,
                ..datagram(&a, 1, len)
            });
            let next = a.node.qp.next_datagram().unwrap();
            assert_eq!(SendTo::Datagram(next), to(0x8022, QKEY));
            let bytes = a.packet().unwrap();
            assert_eq!(bytes.len() % 4, 0);
            let packet = Packet::parse(&bytes).unwrap();
            assert_eq!((packet.bth.opcode, packet.bth.psn), (opcode, psn));
            assert_eq!(packet.bth.dest_qp, Qpn::new(0x8022));
            assert_eq!(packet.bth.solicited, !flags.is_empty());
            let deth = packet.ext.deth.unwrap();
            assert_eq!((deth.qkey, deth.src_qp), (QKEY, Qpn::new(0x4011)));
            let is_imm = opcode == Opcode::UD_SEND_ONLY_IMM;
            assert_eq!(packet.ext.imm, is_imm.then_some(imm));
            assert_eq!(packet.payload, data);
            assert_eq!(a.node.qp.query().sq_psn, psn.plus(1));
        }
    }
    assert!(a.node.results.send.is_empty(), "nothing was signalled");
}

#[test]
fn a_key_with_the_highest_bit_stands_for_the_queue_pairs_own() {
    let mut a = end(0x4011, 0x8765_4321, false);
    a.send(SendWr {
        to: to(0x8022, 0x8000_0000),
        ..datagram(&a, 1, 4)
    });
    let bytes = a.packet().unwrap();
    let deth = Packet::parse(&bytes).unwrap().ext.deth.unwrap();
    assert_eq!(deth.qkey, 0x8765_4321);
}

#[test]
fn a_receive_gets_the_header_of_the_way_and_the_payload_behind_it() {
    for (route, len) in [(v4(), 0), (v4(), 5), (v6(), 1), (v6(), MTU)] {
        let [mut a, mut b] = pair();
        let data = bytes(&mut Rng::new(7), len as usize);
        a.put(0, &data);
        a.send(SendWr {
            op: SendOp::SendImm([1, 2, 3, 4]),
            flags: SendFlags::SIGNALED | SendFlags::SOLICITED,
            ..datagram(&a, 1, len)
        });
        let packet = a.packet().unwrap();
        assert_eq!(a.node.results.send_statuses(), [(1, WcStatus::Success)]);
        // Elements that split the header, and the payload.
        b.recv(2, vec![b.sge(0, 30), b.sge(100, 12), b.sge(200, MTU)]);
        assert!(take(&mut b, &packet, &route));
        let (wc, solicited) = b.node.results.recv[0];
        assert_eq!((wc.wr_id, wc.status), (2, WcStatus::Success));
        assert_eq!((wc.opcode, wc.byte_len), (WcOpcode::Recv, len + 40));
        assert_eq!(wc.src_qp, Qpn::new(0x4011));
        assert_eq!(wc.flags, WcFlags::GRH);
        assert_eq!(wc.sl, if route == v4() { 10 } else { 9 });
        assert_eq!(wc.imm, Some(WcImm::Imm([1, 2, 3, 4])));
        assert!(solicited);
        let all = [b.get(0, 30), b.get(100, 12), b.get(200, MTU as usize)].concat();
        assert_eq!(all[40..40 + len as usize], data);
        check_header(&all[..40], &route, packet.len());
    }
}

/// Holds the 40 bytes against what they should say.
fn check_header(header: &[u8], route: &GrhRoute, packet: usize) {
    let udp = (8 + packet + 4) as u16;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    if route.src.ip().is_ipv4() {
        assert_eq!(header[..20], [0; 20]);
        assert_eq!((header[20], header[21]), (0x45, route.traffic_class));
        assert_eq!((word(22), word(26)), (udp + 20, 0x4000));
        assert_eq!((header[28], header[29]), (route.hop_limit, 17));
        assert_eq!(header[32..36], route.src.0[12..]);
        assert_eq!(header[36..40], route.dst.0[12..]);
        let sum: u32 = (20..40).step_by(2).map(|at| u32::from(word(at))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "checksum");
    } else {
        let first = 0x6000_0000 | u32::from(route.traffic_class) << 20 | route.flow_label;
        assert_eq!(u32::from(word(0)) << 16 | u32::from(word(2)), first);
        assert_eq!(word(4), udp);
        assert_eq!((header[6], header[7]), (17, route.hop_limit));
        assert_eq!(header[8..24], route.src.0);
        assert_eq!(header[24..40], route.dst.0);
    }
}

#[test]
fn what_does_not_fit_the_receiver_is_dropped() {
    let [mut a, mut b] = pair();
    a.send(datagram(&a, 1, 8));
    let packet = a.packet().unwrap();
    // No receive: dropped without a word, and not kept.
    assert!(take(&mut b, &packet, &v4()));
    b.recv(1, vec![b.sge(0, 100)]);
    assert!(b.node.results.recv.is_empty());
    // Another Q_Key.
    let mut wrong = packet.clone();
    wrong[12] ^= 1;
    assert!(!take(&mut b, &wrong, &v4()));
    // Another service.
    let mut rc = packet.clone();
    rc[0] = 0x04;
    assert!(!take(&mut b, &rc, &v4()));
    assert!(b.node.results.recv.is_empty());
    assert!(take(&mut b, &packet, &v4()));
    assert_eq!(b.node.results.recv_statuses(), [(1, WcStatus::Success)]);
    // States that do not receive.
    b.go(QpState::Err);
    assert!(!take(&mut b, &packet, &v4()));
    b.go(QpState::Reset);
    assert!(!take(&mut b, &packet, &v4()));
}

#[test]
fn a_receive_that_is_too_small_fails_and_ends_the_queue_pair() {
    let [mut a, mut b] = pair();
    b.recv(1, vec![b.sge(0, 47)]);
    b.recv(2, vec![b.sge(0, 100)]);
    b.send(datagram(&b, 3, 8));
    a.send(datagram(&a, 1, 8));
    let packet = a.packet().unwrap();
    assert!(take(&mut b, &packet, &v4()));
    assert_eq!(
        b.node.results.recv_statuses(),
        [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)]
    );
    assert_eq!(
        b.node.results.send_statuses(),
        [(3, WcStatus::WrFlushErr)],
        "what waited to be sent is flushed too"
    );
    assert_eq!(b.state(), QpState::Err);
    let [_, mut c] = pair();
    c.recv(1, vec![sge(Key(9), 0, 100)]);
    assert!(take(&mut c, &packet, &v4()));
    assert_eq!(c.node.results.recv_statuses(), [(1, WcStatus::LocProtErr)]);
}

#[test]
fn a_payload_longer_than_the_largest_mtu_is_dropped() {
    let [mut a, mut b] = pair();
    a.send(datagram(&a, 1, 8));
    let packet = a.packet().unwrap();
    let with_payload = |len: usize| {
        let mut long = packet.clone();
        long.resize(packet.len() - 8 + len, 0);
        long
    };
    b.recv(1, vec![b.sge(0, 40 + MTU)]);
    assert!(!take(&mut b, &with_payload(4100), &v4()));
    assert!(b.node.results.recv.is_empty());
    assert_eq!(b.state(), QpState::Rts);
    // The port's own MTU is no limit: it may have shrunk since the packet left.
    assert!(take(&mut b, &with_payload(MTU as usize), &v4()));
    b.recv(2, vec![b.sge(0, 48)]);
    assert!(take(&mut b, &with_payload(4096), &v4()));
    assert_eq!(
        b.node.results.recv_statuses(),
        [(1, WcStatus::Success), (2, WcStatus::LocLenErr)]
    );
}

#[test]
fn shared_receives_are_used_and_their_end_is_an_event() {
    let mut a = end(0x4011, QKEY, false);
    let mut b = end(0x8022, QKEY, true);
    let refused = b.with(|qp, cx| {
        let sges = vec![].into();
        qp.post_recv(cx, RecvWr { wr_id: 1, sges })
    });
    assert!(matches!(refused, Err(PostError::Invalid(_))));
    a.send(datagram(&a, 1, 8));
    let packet = a.packet().unwrap();
    assert!(take(&mut b, &packet, &v4()), "an empty queue drops");
    let sges = vec![b.sge(0, 100)].into();
    let recv = SharedRecv {
        wr: RecvWr { wr_id: 5, sges },
        pd: PD,
    };
    b.node.results.shared_recv.push_back(recv);
    assert!(take(&mut b, &packet, &v4()));
    assert_eq!(b.node.results.recv_statuses(), [(5, WcStatus::Success)]);
    b.go(QpState::Err);
    assert!(b.node.results.events.contains(&QpEvent::LastWqeReached));
}

#[test]
fn only_sends_with_a_destination_are_accepted() {
    let [mut a, b] = pair();
    let place = ferroce_proto::testkit::remote(b.key, 0);
    for op in [
        SendOp::Write(place),
        SendOp::WriteImm(place, [0; 4]),
        SendOp::Read(place),
        SendOp::SendInvalidate(b.key),
        SendOp::LocalInvalidate(a.key),
    ] {
        let work = SendWr {
            op,
            ..datagram(&a, 1, 8)
        };
        let refused = a.try_send(work);
        assert!(matches!(refused, Err(PostError::Invalid(_))), "{refused:?}");
    }
    let work = SendWr {
        to: SendTo::Peer,
        ..datagram(&a, 1, 8)
    };
    assert!(matches!(a.try_send(work), Err(PostError::Invalid(_))));
    let inline = SendWr {
        payload: Payload::Inline(vec![1; 64].into()),
        ..datagram(&a, 1, 0)
    };
    a.send(inline);
    let packet = a.packet().unwrap();
    assert_eq!(Packet::parse(&packet).unwrap().payload, [1; 64]);
}

#[test]
fn a_message_longer_than_a_packet_fails_and_only_the_send_queue_stops() {
    let [mut a, mut b] = pair();
    a.recv(1, vec![a.sge(0, 100)]);
    a.send(datagram(&a, 1, MTU));
    a.send(datagram(&a, 2, MTU + 1));
    a.send(datagram(&a, 3, 8));
    assert_eq!(a.packets().len(), 1);
    assert_eq!(
        a.node.results.send_statuses(),
        [
            (1, WcStatus::Success),
            (2, WcStatus::LocLenErr),
            (3, WcStatus::WrFlushErr)
        ]
    );
    assert_eq!(a.state(), QpState::Sqe);
    a.send(datagram(&a, 4, 8));
    assert_eq!(a.node.results.send_statuses()[3], (4, WcStatus::WrFlushErr));
    b.send(SendWr {
        to: to(0x4011, QKEY),
        ..datagram(&b, 1, 8)
    });
    let packet = b.packet().unwrap();
    assert!(take(&mut a, &packet, &v4()), "receiving goes on");
    assert_eq!(a.node.results.recv_statuses(), [(1, WcStatus::Success)]);
    let attr = QpAttr {
        qp_state: QpState::Rts,
        cur_qp_state: QpState::Sqe,
        qkey: 5,
        ..QpAttr::default()
    };
    let mask = AttrMask::STATE | AttrMask::CUR_STATE | AttrMask::QKEY;
    a.modify(&attr, mask);
    assert_eq!(a.node.qp.query().qkey, 5);
    a.send(datagram(&a, 5, 8));
    assert_eq!(a.packets().len(), 1);
    assert_eq!(a.node.results.send_statuses()[4], (5, WcStatus::Success));
}

#[test]
fn a_drained_queue_holds_what_is_posted() {
    let [mut a, _] = pair();
    let attr = QpAttr {
        qp_state: QpState::Sqd,
        en_sqd_async_notify: true,
        ..QpAttr::default()
    };
    a.modify(&attr, AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY);
    assert_eq!(a.node.results.events, [QpEvent::SqDrained]);
    a.send(datagram(&a, 1, 8));
    assert_eq!(a.packet(), None);
    a.go(QpState::Rts);
    assert!(a.packet().is_some());
}
