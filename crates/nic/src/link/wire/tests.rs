//! One link that sends to itself over loopback, on a port of its own instead of 4791.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ferroce_os::poll::{Interest, Poller};

use ferroce_proto::wire::icrc::{self, Addresses, Encapsulation, Ident};

use super::send::datagram;
use super::*;
use crate::link::{Addressing, Batch, Sent};

/// A packet as [`Inbound`] shows it, kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    addressing: Addressing,
    packet: Vec<u8>,
}

fn link(fault: Option<&str>) -> WireLink {
    WireLink::open_at(0, None, fault.map(|text| Fault::parse(text).unwrap())).unwrap()
}

fn addressing(ip: &str) -> Addressing {
    let gid = Gid::from_ip(ip.parse().unwrap());
    Addressing {
        src: gid,
        dst: gid,
        hop_limit: 3,
        traffic_class: 0x28,
        flow_label: if gid.ip().is_ipv6() { 0x1_2345 } else { 0 },
        ifindex: 0,
    }
}

fn batch(addressing: Addressing, packets: &[Vec<u8>]) -> Batch {
    let mut batch = Batch {
        addressing,
        trailer: icrc::LEN,
        ..Batch::default()
    };
    for packet in packets {
        batch.bytes.extend_from_slice(packet);
        batch.end_packet();
    }
    batch
}

/// Packets of all lengths, each beginning with its number.
fn packets(count: u32) -> Vec<Vec<u8>> {
    let packet = |n: u32| {
        let mut bytes = n.to_be_bytes().repeat(4);
        bytes.resize(16 + usize::try_from(n * 52 % 4100).unwrap() / 4 * 4, 0xa5);
        bytes
    };
    (0..count).map(packet).collect()
}

fn fds(link: &WireLink) -> Vec<RawFd> {
    let sockets = ["127.0.0.1", "::1"].map(|ip| link.fd_to(addressing(ip).dst, None));
    sockets
        .into_iter()
        .chain([link.timer_fd()])
        .flatten()
        .collect()
}

/// Receives `count` datagrams, or fails after a while. Returns the packets, and how many were none.
#[track_caller]
fn receive_all(link: &WireLink, count: usize) -> (Vec<Kept>, usize) {
    let (poller, mut events) = (Poller::new().unwrap(), Vec::new());
    for fd in fds(link) {
        poller.add(fd, 0, Interest::READ).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    let (mut all, mut damaged) = (Vec::new(), 0);
    while all.len() + damaged < count {
        assert!(
            Instant::now() < deadline,
            "{} packets and {damaged} damaged came",
            all.len()
        );
        let mut keep = |run: Option<InboundRun<'_>>| match run {
            Some(run) => all.extend(run.singly().map(|inbound| Kept {
                addressing: Addressing {
                    ifindex: 0,
                    ..inbound.addressing
                },
                packet: inbound.packet.to_vec(),
            })),
            None => damaged += 1,
        };
        if !link.recv(Of::Shared, 40, &mut keep) && all.len() + damaged < count {
            poller
                .wait(&mut events, Some(Duration::from_millis(100)))
                .unwrap();
        }
    }
    (all, damaged)
}

/// As [`receive_all`], and none may be damaged.
#[track_caller]
fn receive(link: &WireLink, count: usize) -> Vec<Kept> {
    let (all, damaged) = receive_all(link, count);
    assert_eq!(damaged, 0);
    all
}

/// Sends all, receiving now and then so that the socket buffer never overflows.
fn exchange(link: &WireLink, to: Addressing, packets: &[Vec<u8>]) -> Vec<Kept> {
    let mut all = Vec::new();
    for part in packets.chunks(20) {
        let mut batch = batch(to, part);
        assert_eq!(link.send(None, &mut batch), Sent::All);
        assert!(batch.bytes.is_empty() && batch.ends.is_empty());
        all.extend(receive(link, part.len()));
    }
    all
}

#[test]
fn packets_arrive_with_their_addresses() {
    let link = link(None);
    let packets = packets(200);
    let expected = |to| {
        packets
            .iter()
            .map(|p| Kept {
                addressing: to,
                packet: p.clone(),
            })
            .collect::<Vec<_>>()
    };
    let to = addressing("127.0.0.1");
    assert_eq!(exchange(&link, to, &packets), expected(to));
    let to = addressing("127.3.2.1");
    assert_eq!(exchange(&link, to, &packets), expected(to));
    if link.v6.is_some() && std::net::UdpSocket::bind("[::1]:0").is_ok() {
        let to = addressing("::1");
        assert_eq!(exchange(&link, to, &packets), expected(to));
    }
}

#[test]
fn what_the_kernel_refuses_is_lost_and_the_rest_goes() {
    let link = link(None);
    let mut packets = packets(5);
    packets[2] = vec![0; 66_000];
    let mut sent = batch(addressing("127.0.0.1"), &packets);
    assert_eq!(link.send(None, &mut sent), Sent::All);
    packets.remove(2);
    let got: Vec<_> = receive(&link, 4).into_iter().map(|k| k.packet).collect();
    assert_eq!(got, packets);
    let mut mixed = addressing("127.0.0.1");
    mixed.dst = Gid::from_ip("::1".parse().unwrap());
    assert_eq!(
        link.send(None, &mut batch(mixed, &[vec![0; 16]])),
        Sent::All
    );
}

#[test]
fn datagrams_without_a_right_icrc_are_no_packets() {
    let link = link(None);
    let port = link.v4.as_ref().unwrap().port();
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for junk in [&[][..], &[1, 2, 3], &[0; 16], &[7; 2000], &[7; 5000]] {
        stranger.send_to(junk, (Ipv4Addr::LOCALHOST, port)).unwrap();
    }
    assert_eq!(receive_all(&link, 5), (vec![], 5));
}

#[test]
fn a_peer_is_held_to_the_identification_that_it_uses() {
    let link = link(None);
    let socket = link.v4.as_ref().unwrap();
    exchange(&link, addressing("127.0.0.1"), &packets(20));
    let addresses = Addresses::V4 {
        src: Ipv4Addr::LOCALHOST,
        dst: Ipv4Addr::LOCALHOST,
    };
    let encap = Encapsulation {
        addresses,
        src_port: socket.port(),
    };
    let packet = [5; 16];
    let ident = Ident {
        id: 0x1234,
        dont_fragment: true,
    };
    let crc = icrc::compute(&encap, ident, &packet);
    let to = addressing("127.0.0.1");
    assert_eq!(
        socket
            .send_many(&[datagram(
                socket.port(),
                &to,
                &[packet.as_slice(), &crc].concat()
            )])
            .unwrap(),
        1
    );
    assert_eq!(
        receive_all(&link, 1),
        (vec![], 1),
        "the peer has always used 0"
    );
}

#[test]
fn a_counting_peer_that_is_new_is_believed() {
    let link = link(None);
    let socket = link.v4.as_ref().unwrap();
    let addresses = Addresses::V4 {
        src: Ipv4Addr::LOCALHOST,
        dst: Ipv4Addr::LOCALHOST,
    };
    let encap = Encapsulation {
        addresses,
        src_port: socket.port(),
    };
    let to = addressing("127.0.0.1");
    for id in 0x1234..0x1250 {
        let packet = [5; 16];
        let crc = icrc::compute(
            &encap,
            Ident {
                id,
                dont_fragment: true,
            },
            &packet,
        );
        assert_eq!(
            socket
                .send_many(&[datagram(
                    socket.port(),
                    &to,
                    &[packet.as_slice(), &crc].concat()
                )])
                .unwrap(),
            1
        );
        assert_eq!(receive(&link, 1)[0].packet, packet);
    }
}

#[test]
fn a_bad_network_delays_and_doubles() {
    let link = link(Some("delay=2ms,dup=100%"));
    let packets = packets(10);
    assert_eq!(
        link.send(None, &mut batch(addressing("127.0.0.1"), &packets)),
        Sent::All
    );
    let got: Vec<_> = receive(&link, 20).into_iter().map(|k| k.packet).collect();
    let twice: Vec<_> = packets
        .iter()
        .flat_map(|p| [p.clone(), p.clone()])
        .collect();
    assert_eq!(got, twice);
}

#[test]
fn what_a_bad_network_damages_is_noticed() {
    let link = link(Some("corrupt=100%,seed=11"));
    assert_eq!(
        link.send(None, &mut batch(addressing("127.0.0.1"), &packets(50))),
        Sent::All
    );
    let (undamaged, _) = receive_all(&link, 50);
    assert!(
        undamaged.len() < 3,
        "flips may cancel, or hit the congestion bits"
    );
}

#[test]
fn a_port_that_another_owns_is_an_error_that_says_so() {
    let owner = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let error = WireLink::open_at(owner.local_addr().unwrap().port(), None, None).unwrap_err();
    assert_eq!(error.errno, libc::EADDRINUSE);
    assert!(error.reason.contains("owned by another"), "{error}");
}

#[test]
fn each_ip_version_has_its_descriptor() {
    let link = link(Some("delay=1ms"));
    assert!(link.receive_buffer() > 4096);
    let to = |ip| link.fd_to(addressing(ip).dst, None);
    assert_ne!(to("127.0.0.1"), to("::1"));
    assert_eq!(fds(&link).len(), 1 + link.sockets().count());
}

#[test]
fn a_batch_gives_up_packets_from_its_front() {
    let packets = packets(4);
    let whole = batch(Addressing::default(), &packets);
    for count in 0..=5 {
        let mut rest = whole.clone();
        rest.discard(count);
        let kept: Vec<_> = rest.packets().map(<[u8]>::to_vec).collect();
        assert_eq!(kept, packets[count.min(4)..]);
    }
}

#[test]
fn runs_of_packets_of_one_length_arrive() {
    let link = link(None);
    let mut packets: Vec<Vec<u8>> = (0..200u32).map(|n| n.to_be_bytes().repeat(259)).collect();
    // Longer, shorter and the shortest in between.
    packets[3].extend([1; 16]);
    packets[70].truncate(500);
    packets[71].truncate(16);
    for ip in ["127.0.0.1", "::1"] {
        if ip == "::1" && (link.v6.is_none() || std::net::UdpSocket::bind("[::1]:0").is_err()) {
            continue;
        }
        let mut sent = batch(addressing(ip), &packets);
        assert_eq!(link.send(None, &mut sent), Sent::All);
        let got: Vec<_> = receive(&link, 200).into_iter().map(|k| k.packet).collect();
        assert_eq!(got, packets);
        assert!(link.cuts.load(Ordering::Relaxed), "the kernel cuts them");
    }
}

#[test]
fn packets_of_a_run_are_handed_on_together() {
    let link = link(None);
    let packets: Vec<Vec<u8>> = (0..40u32).map(|n| n.to_be_bytes().repeat(50)).collect();
    let mut sent = batch(addressing("127.0.0.1"), &packets);
    assert_eq!(link.send(None, &mut sent), Sent::All);
    let (mut together, mut got) = (Vec::new(), Vec::new());
    link.recv(Of::V4, 1000, &mut |run| {
        let packets = run.expect("undamaged").packets;
        together.push(packets.len());
        got.extend(packets.iter().map(|packet| packet.to_vec()));
    });
    assert_eq!(got, packets);
    assert_eq!(together, [16, 16, 8]);
}

#[test]
fn a_network_that_only_loses_takes_packets_out_of_runs() {
    let link = link(Some("drop=30%,seed=4"));
    let packets: Vec<Vec<u8>> = (0..60u32).map(|n| n.to_be_bytes().repeat(100)).collect();
    let mut sent = batch(addressing("127.0.0.1"), &packets);
    assert_eq!(link.send(None, &mut sent), Sent::All);
    let mut got = Vec::new();
    link.recv(Of::V4, 1000, &mut |run| {
        let packets = run.expect("undamaged").packets;
        got.extend(packets.iter().map(|packet| packet.to_vec()));
    });
    assert!((20..60).contains(&got.len()), "{} came", got.len());
    let mut all = packets.iter();
    assert!(got.iter().all(|p| all.any(|sent| sent == p)), "in order");
}

/// A link with a lane that nobody else on this host uses, its lane's port, and `others` links on the same port of both versions.
fn with_lane(others: usize) -> (WireLink, u16, Vec<WireLink>) {
    let dst = addressing("127.0.0.1").dst;
    let shared = link(None).v4.as_ref().unwrap().port();
    let open = |slot| WireLink::open_at(shared, Some(slot), None).unwrap();
    let (sender, slot) = (600..700)
        .map(|slot| (open(slot), slot))
        .find(|(link, _)| link.has_lane(dst, LANE))
        .unwrap();
    let links = (700..).map(open).take(others).collect();
    (sender, lanes::lane_port(slot, LANE), links)
}

const LANE: u8 = 5;

/// What has come by one flow's socket, or by the shared one.
fn take(link: &WireLink, of: Of) -> Vec<(u16, Vec<u8>)> {
    let mut got = Vec::new();
    while link.recv(of, 1000, &mut |run| {
        let singly = run.expect("undamaged").singly();
        got.extend(singly.map(|inbound| (inbound.src_port, inbound.packet.to_vec())));
    }) {}
    got
}

#[test]
fn a_lane_reaches_the_process_that_asked_for_it() {
    let (sender, port, links) = with_lane(6);
    let packets: Vec<Vec<u8>> = (0..100u32).map(|n| n.to_be_bytes().repeat(200)).collect();
    for ip in ["127.0.0.1", "127.1.2.3", "::1"] {
        let to = addressing(ip);
        let flow = lanes::Flow {
            local: to.dst,
            peer: to.src,
            port,
        };
        if ip == "::1" && std::net::UdpSocket::bind("[::1]:0").is_err() {
            continue;
        }
        let receiver = &links[3];
        let (number, _) = receiver.receive_flow(flow, 0).unwrap();
        assert_eq!(receiver.receive_flow(flow, 0), None, "once is enough");
        let mut sent = batch(to, &packets);
        assert_eq!(sender.send(Some(LANE), &mut sent), Sent::All);
        let expected: Vec<_> = packets.iter().map(|p| (port, p.clone())).collect();
        assert_eq!(take(receiver, Of::Flow(number)), expected, "{ip}");
        assert!(links.iter().all(|link| take(link, Of::Shared).is_empty()));
        assert_eq!(take(receiver, Of::Flow(number + 1000)), []);
    }
}

#[test]
fn a_lane_that_nobody_asked_for_reaches_one_of_all() {
    let (sender, port, links) = with_lane(3);
    let mut sent = batch(addressing("127.0.0.1"), &[vec![7; 64]]);
    assert_eq!(sender.send(Some(LANE), &mut sent), Sent::All);
    let all = links.iter().chain([&sender]);
    let got: Vec<_> = all.flat_map(|link| take(link, Of::Shared)).collect();
    assert_eq!(got, [(port, vec![7; 64])]);
}

#[test]
fn a_taken_port_is_no_lane() {
    let (sender, port, _) = with_lane(0);
    let slot = (port - 0xC000) >> 4;
    let second = WireLink::open_at(0, Some(slot), None).unwrap();
    let to = addressing("127.0.0.1");
    assert!(!second.has_lane(to.dst, LANE));
    assert_eq!(
        second.send(Some(LANE), &mut batch(to, &[vec![1; 16]])),
        Sent::All
    );
    let shared = second.v4.as_ref().unwrap().port();
    assert_eq!(
        take(&second, Of::Shared),
        [(shared, vec![1; 16])],
        "from the shared port"
    );
    assert!(sender.has_lane(to.dst, LANE));
}

#[test]
fn what_is_sent_to_a_lanes_port_vanishes() {
    let (sender, port, _) = with_lane(0);
    let to = addressing("127.0.0.1").dst;
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger
        .send_to(&[1; 100], (Ipv4Addr::LOCALHOST, port))
        .unwrap();
    let poller = Poller::new().unwrap();
    poller
        .add(sender.fd_to(to, Some(LANE)).unwrap(), 0, Interest::READ)
        .unwrap();
    let mut events = Vec::new();
    poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
    assert!(events.is_empty());
}

#[test]
fn flows_have_a_bounded_number_of_sockets() {
    let (_, _, links) = with_lane(1);
    let to = addressing("127.0.0.1");
    let flow = |port| lanes::Flow {
        local: to.dst,
        peer: to.src,
        port,
    };
    let made = (2000..2300)
        .filter(|&port| links[0].receive_flow(flow(port), 0).is_some())
        .count();
    assert!((128..300).contains(&made), "silent ones make room: {made}");
    let sockets = (0..300).filter(|&n| links[0].receivers.find(n).is_some());
    assert_eq!(sockets.count(), 128);
}

#[test]
fn what_has_come_is_not_lost_with_a_flows_socket() {
    let (sender, port, links) = with_lane(1);
    let (to, receiver) = (addressing("127.0.0.1"), &links[0]);
    let flow = |port| lanes::Flow {
        local: to.dst,
        peer: to.src,
        port,
    };
    let first = port - u16::from(LANE);
    let mut numbers = Vec::new();
    for lane in 0..lanes::LANES {
        let port = first + u16::from(lane);
        numbers.push(receiver.receive_flow(flow(port), 0).unwrap().0);
        let mut sent = batch(to, &[vec![lane; 64]]);
        assert_eq!(sender.send(Some(lane), &mut sent), Sent::All);
    }
    // Many times as many as there is room for.
    for port in 2000..4000 {
        receiver.receive_flow(flow(port), 0);
    }
    let known = |number: &u32| receiver.receivers.find(*number).is_some();
    assert!(numbers.iter().all(known), "something waits in each");
    for (lane, &number) in (0..).zip(&numbers) {
        let came = (first + u16::from(lane), vec![lane; 64]);
        assert_eq!(take(receiver, Of::Flow(number)), [came]);
    }
    for port in 4000..6000 {
        receiver.receive_flow(flow(port), 0);
    }
    assert!(!numbers.iter().all(known), "nothing waits any more");
}
