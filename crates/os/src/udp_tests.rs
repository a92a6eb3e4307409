use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::poll::{Interest, Poller};

/// What is sure to come takes no longer.
const LONG: Duration = Duration::from_secs(60);

fn datagram<'a>(to: &UdpSocket, ip: &str, payload: &'a [u8]) -> UdpDatagram<'a> {
    let ip: IpAddr = ip.parse().expect("an address");
    UdpDatagram {
        dst: ip,
        port: to.port(),
        src: ip,
        ifindex: 0,
        ttl: 7,
        tos: 0x68,
        flow_label: 0xa_bcde,
        payload,
        segment: 0,
    }
}

/// Receives what is there, or comes within a long time. Returns whether anything is.
fn receive_some(socket: &UdpSocket, ring: &mut RecvRing) -> bool {
    let (poller, mut events) = (Poller::new().expect("epoll"), Vec::new());
    let readable = poller.add(socket.as_raw_fd(), 0, Interest::READ);
    readable.expect("add");
    poller.wait(&mut events, Some(LONG)).expect("wait");
    socket.recv_many(ring).expect("receive") > 0
}

/// Receives until `n` datagrams have come, or fails after a while.
fn receive(socket: &UdpSocket, n: usize) -> Vec<Vec<u8>> {
    let mut ring = RecvRing::new(8, 2048);
    let mut all = Vec::new();
    while all.len() < n {
        let came = receive_some(socket, &mut ring);
        assert!(came, "{} of {n} datagrams came", all.len());
        all.extend(
            ring.iter()
                .flat_map(|r| r.segments().map(<[u8]>::to_vec).collect::<Vec<_>>()),
        );
    }
    all
}

fn one_way(a: &UdpSocket, b: &UdpSocket, ip: &str) {
    assert_eq!(
        a.send_many(&[datagram(b, ip, b"hello, world")])
            .expect("send"),
        1
    );
    let mut ring = RecvRing::new(4, 64);
    assert!(receive_some(b, &mut ring), "it did not come");
    let got = ring.iter().next().expect("one");
    let ip: IpAddr = ip.parse().expect("an address");
    assert_eq!(got.payload, b"hello, world");
    assert_eq!((got.src, got.src_port, got.dst), (ip, a.port(), ip));
    assert_eq!((got.ttl, got.tos, got.truncated), (7, 0x68, false));
    assert_eq!(got.flow_label, if ip.is_ipv6() { 0xa_bcde } else { 0 });
    assert!(got.ifindex > 0);
    assert_eq!(b.recv_many(&mut ring).expect("receive"), 0);
    assert_eq!(ring.iter().count(), 0);
}

#[test]
fn everything_about_an_ipv4_datagram_arrives() {
    let (a, b) = (
        UdpSocket::bind_v4(0).expect("bind"),
        UdpSocket::bind_v4(0).expect("bind"),
    );
    one_way(&a, &b, "127.0.0.1");
    one_way(&b, &a, "127.1.2.3");
}

#[test]
fn everything_about_an_ipv6_datagram_arrives() {
    let (Ok(a), Ok(b)) = (UdpSocket::bind_v6(0), UdpSocket::bind_v6(0)) else {
        return;
    };
    if source_for("::1".parse().expect("an address"), 0).is_ok() {
        one_way(&a, &b, "::1");
    }
}

#[test]
fn many_arrive_in_order() {
    let (a, b) = (
        UdpSocket::bind_v4(0).expect("bind"),
        UdpSocket::bind_v4(0).expect("bind"),
    );
    let contents: Vec<[u8; 4]> = (0u32..100).map(u32::to_be_bytes).collect();
    let datagrams: Vec<_> = contents
        .iter()
        .map(|c| datagram(&b, "127.0.0.1", c))
        .collect();
    let deadline = Instant::now() + LONG;
    loop {
        let mut sent = 0;
        while sent < datagrams.len() {
            sent += a.send_many(&datagrams[sent..]).expect("send");
        }
        let mut came = receive(&b, 100);
        if came == contents {
            return;
        }
        // A kernel that puts delivery off does so on each processor by itself, so a thread that
        // moves to another one may overtake itself. Not each time: what we put out of order would
        // never come in order.
        came.sort_unstable();
        assert_eq!(came, contents, "each comes once");
        assert!(Instant::now() < deadline, "never in order");
    }
}

#[test]
fn what_cannot_go_is_an_error_of_its_own() {
    let (a, b) = (
        UdpSocket::bind_v4(0).expect("bind"),
        UdpSocket::bind_v4(0).expect("bind"),
    );
    let good = datagram(&b, "127.0.0.1", b"good");
    let huge = vec![0; 65_530];
    let huge = datagram(&b, "127.0.0.1", &huge);
    let alien = datagram(&b, "::1", b"");
    let mut foreign = good;
    foreign.src = "192.0.2.1".parse().expect("an address");
    for (bad, errno) in [
        (huge, libc::EMSGSIZE),
        (alien, libc::EAFNOSUPPORT),
        (foreign, libc::EINVAL),
    ] {
        assert_eq!(a.send_many(&[good, bad, good]).expect("the first goes"), 1);
        let e = a.send_many(&[bad, good]).expect_err("refused");
        assert!(
            e.raw_os_error() == Some(errno) || e.raw_os_error() == Some(libc::ENETUNREACH),
            "{e}"
        );
    }
    assert_eq!(a.send_many(&[]).expect("nothing"), 0);
    assert_eq!(receive(&b, 3), [b"good"; 3]);
}

#[test]
fn a_datagram_longer_than_a_slot_is_marked() {
    let (a, b) = (
        UdpSocket::bind_v4(0).expect("bind"),
        UdpSocket::bind_v4(0).expect("bind"),
    );
    a.send_many(&[datagram(&b, "127.0.0.1", b"0123456789")])
        .expect("send");
    let mut ring = RecvRing::new(1, 4);
    assert!(receive_some(&b, &mut ring), "it did not come");
    let got = ring.iter().next().expect("one");
    assert!(got.truncated);
    assert_eq!(got.payload, b"0123");
}

#[test]
fn a_port_can_be_shared() {
    let a = UdpSocket::bind_v4(0).expect("bind");
    let b = UdpSocket::bind_v4(a.port()).expect("a second socket on the same port");
    assert_eq!(a.port(), b.port());
    assert!(a.receive_buffer() > 0);
}

#[test]
fn the_source_toward_loopback_is_loopback() {
    let local: IpAddr = "127.0.0.1".parse().expect("an address");
    assert_eq!(source_for(local, 0).expect("route"), local);
    let nowhere: IpAddr = "fe80::1".parse().expect("an address");
    assert!(source_for(nowhere, 0).is_err());
}

#[test]
fn a_socket_that_left_gets_nothing_and_keeps_what_it_had() {
    let stays = UdpSocket::bind_v4(0).expect("bind");
    let leaves = UdpSocket::bind_v4(stays.port()).expect("bind");
    let senders: Vec<UdpSocket> = (0..32)
        .map(|_| UdpSocket::bind_v4(0).expect("bind"))
        .collect();
    let send_all = |text: &[u8]| {
        for sender in &senders {
            let sent = sender.send_many(&[datagram(&stays, "127.0.0.1", text)]);
            assert_eq!(sent.expect("send"), 1);
        }
    };
    send_all(b"to either");
    leaves.leave().expect("leave");
    send_all(b"to who stays");
    // Delivery may be put off, so which of them has how many shows only when all have come.
    let (mut ring, mut kept, mut got) = (RecvRing::new(8, 64), Vec::new(), Vec::new());
    let deadline = Instant::now() + LONG;
    while kept.len() + got.len() < 64 {
        assert!(Instant::now() < deadline, "kept {kept:?}, got {got:?}");
        for (socket, all) in [(&leaves, &mut kept), (&stays, &mut got)] {
            socket.recv_many(&mut ring).expect("receive");
            all.extend(ring.iter().map(|r| r.payload.to_vec()));
        }
        thread::yield_now();
    }
    assert!(kept.iter().all(|text| text == b"to either"), "{kept:?}");
    assert_eq!(leaves.recv_many(&mut ring).expect("receive"), 0);
}

#[test]
fn a_run_arrives_as_the_datagrams_that_it_is_made_of() {
    let (a, b) = (
        UdpSocket::bind_v4(0).expect("bind"),
        UdpSocket::bind_v4(0).expect("bind"),
    );
    assert!(a.can_segment());
    let bytes: Vec<u8> = (0..250).collect();
    let run = UdpDatagram {
        segment: 100,
        ..datagram(&b, "127.0.0.1", &bytes)
    };
    assert_eq!(a.send_many(&[run]).expect("send"), 1);
    assert_eq!(
        receive(&b, 3),
        [&bytes[..100], &bytes[100..200], &bytes[200..]]
    );
}

#[test]
fn datagrams_that_found_no_room_are_told_of() {
    let [a, b, other] = [(); 3].map(|()| UdpSocket::bind_v4(0).expect("bind"));
    sys::set_option(b.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 1).expect("a small buffer");
    let mut ring = RecvRing::new(8, 2048);
    let mut sent = vec![datagram(&b, "127.0.0.1", &[7; 1000]); 64];
    sent.push(datagram(&other, "127.0.0.1", b"the end"));
    let deadline = Instant::now() + LONG;
    let mut is_told = false;
    while !is_told {
        assert!(
            Instant::now() < deadline,
            "nothing was lost, or nobody said so"
        );
        assert_eq!(a.send_many(&sent).expect("send"), 65);
        // Delivery may be put off: once the last has come the others have found room or not.
        receive(&other, 1);
        // The count comes with a datagram that came after the loss.
        while b.recv_many(&mut ring).expect("receive") > 0 {
            is_told |= ring.iter().any(|r| r.lost > 0);
        }
    }
}
