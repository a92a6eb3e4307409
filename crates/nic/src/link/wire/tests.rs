//! One link that sends to itself over loopback, on a port of its own instead of 4791.

mod flows;
mod identity;
mod network;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ferroce_os::poll::{Interest, Poller};

use ferroce_proto::wire::icrc::{self, Addresses, Encapsulation, Ident};

use super::send::datagram;
use super::*;
use crate::base::addressing::Addressing;
use crate::link::fault::tests::link_fault;
use crate::link::{Batch, Sent};

/// Nothing here takes this long.
const DEADLINE: Duration = Duration::from_secs(60);

/// A packet as [`Inbound`] shows it, kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    addressing: Addressing,
    packet: Vec<u8>,
}

fn link(fault: Option<&str>) -> WireLink {
    WireLink::open_at(0, None, fault.map(link_fault)).unwrap()
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

/// Looks again and again until something is so, or for a while: not every kernel has delivered what
/// is sent over loopback when `send` returns. The caller then says what is missing.
fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() && Instant::now() < deadline {
        std::thread::yield_now();
    }
}

/// Receives `count` datagrams, or fails after a while. Returns the packets, and how many were none.
#[track_caller]
fn receive_all(link: &WireLink, count: usize) -> (Vec<Kept>, usize) {
    let (poller, mut events) = (Poller::new().unwrap(), Vec::new());
    for fd in fds(link) {
        poller.add(fd, 0, Interest::READ).unwrap();
    }
    let deadline = Instant::now() + DEADLINE;
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
    assert_eq!(fds(&link).len(), 1 + link.ports().count());
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
    until(|| {
        link.recv(Of::V4, 1000, &mut |run| {
            let packets = run.expect("undamaged").packets;
            together.push(packets.len());
            got.extend(packets.iter().map(|packet| packet.to_vec()));
        });
        got.len() >= 40
    });
    assert_eq!(got, packets);
    assert_eq!(together, [16, 16, 8]);
}
