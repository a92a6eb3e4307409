//! Ports of single processes, and sockets of single flows.

use super::*;

/// A link with private ports that nobody else on this host uses, the port of one, and `others`
/// links on the same port of both versions.
fn with_private_port(others: usize) -> (WireLink, u16, Vec<WireLink>) {
    // Nobody else can get its port as long as it is open.
    let first = link_of_one_port();
    let shared = first.v4.as_ref().unwrap().port();
    let open = |slot| WireLink::open_at(shared, Some(slot), None).unwrap();
    // Whose ports are usually not among those that the kernel gives to everybody.
    let (sender, slot) = (750..1000)
        .map(|slot| (open(slot), slot))
        .find(|(link, _)| has_all_private_ports(link))
        .expect("private ports that are free");
    let links = (600..).map(open).take(others).collect();
    (
        sender,
        private_ports::private_port_number(slot, PRIVATE_PORT),
        links,
    )
}

/// A link whose port is the same in both versions.
fn link_of_one_port() -> WireLink {
    let draw = || {
        let v4 = link(None);
        let both = WireLink::open_at(v4.v4.as_ref().unwrap().port(), None, None);
        both.inspect_err(|e| assert_eq!(e.errno, libc::EADDRINUSE, "{e}"))
    };
    let drawn = (0..100).find_map(|_| draw().ok());
    drawn.expect("a port that is free in both versions")
}

/// Whether all private ports of a link are its own, which holds their ports, too.
fn has_all_private_ports(link: &WireLink) -> bool {
    let to = |ip| addressing(ip).dst;
    let versions = [Some(to("127.0.0.1")), link.v6.as_ref().map(|_| to("::1"))];
    let all = |dst| {
        (0..private_ports::PRIVATE_PORTS)
            .all(|private_port| link.has_private_port(dst, private_port))
    };
    versions.into_iter().flatten().all(all)
}

const PRIVATE_PORT: u8 = 5;

/// What comes by one flow's socket, or by the shared one: so many packets at least, and what else
/// is there.
fn take(link: &WireLink, of: Of, count: usize) -> Vec<(u16, Vec<u8>)> {
    let mut got = Vec::new();
    until(|| {
        while link.recv(of, 1000, &mut |run| {
            let singly = run.expect("undamaged").singly();
            got.extend(singly.map(|inbound| (inbound.src_port, inbound.packet.to_vec())));
        }) {}
        got.len() >= count
    });
    got
}

#[test]
fn a_private_port_that_nobody_asked_for_reaches_one_of_all() {
    let (sender, port, links) = with_private_port(3);
    let mut sent = batch(addressing("127.0.0.1"), &[vec![7; 64]]);
    assert_eq!(sender.send(Some(PRIVATE_PORT), &mut sent), Sent::All);
    let all = || links.iter().chain([&sender]);
    let mut got = Vec::new();
    until(|| {
        got.extend(all().flat_map(|link| take(link, Of::Shared, 0)));
        !got.is_empty()
    });
    assert_eq!(got, [(port, vec![7; 64])]);
}

#[test]
fn a_private_port_reaches_the_process_that_asked_for_it() {
    let (sender, port, links) = with_private_port(6);
    let packets: Vec<Vec<u8>> = (0..100u32).map(|n| n.to_be_bytes().repeat(200)).collect();
    for ip in ["127.0.0.1", "127.1.2.3", "::1"] {
        let to = addressing(ip);
        let flow = private_ports::PortFlow {
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
        assert_eq!(sender.send(Some(PRIVATE_PORT), &mut sent), Sent::All);
        let expected: Vec<_> = packets.iter().map(|p| (port, p.clone())).collect();
        let got = take(receiver, Of::Flow(number), expected.len());
        assert_eq!(got, expected, "{ip}");
        let none = |link| take(link, Of::Shared, 0).is_empty();
        assert!(links.iter().all(none));
        assert_eq!(take(receiver, Of::Flow(number + 1000), 0), []);
    }
}

#[test]
fn a_taken_port_is_no_private_port() {
    let (sender, port, _) = with_private_port(0);
    let slot = (port - 0xC000) >> 4;
    let second = WireLink::open_at(0, Some(slot), None).unwrap();
    let to = addressing("127.0.0.1");
    assert!(!second.has_private_port(to.dst, PRIVATE_PORT));
    assert_eq!(
        second.send(Some(PRIVATE_PORT), &mut batch(to, &[vec![1; 16]])),
        Sent::All
    );
    let shared = second.v4.as_ref().unwrap().port();
    assert_eq!(
        take(&second, Of::Shared, 1),
        [(shared, vec![1; 16])],
        "from the shared port"
    );
    assert!(sender.has_private_port(to.dst, PRIVATE_PORT));
}

#[test]
fn what_is_sent_to_a_private_ports_port_vanishes() {
    let (sender, port, _) = with_private_port(0);
    let to = addressing("127.0.0.1").dst;
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for to in [port, other.local_addr().unwrap().port()] {
        stranger
            .send_to(&[1; 100], (Ipv4Addr::LOCALHOST, to))
            .unwrap();
    }
    // What was sent before has come by then, where a socket takes it.
    other.recv(&mut [0; 100]).unwrap();
    let poller = Poller::new().unwrap();
    poller
        .add(
            sender.fd_to(to, Some(PRIVATE_PORT)).unwrap(),
            0,
            Interest::READ,
        )
        .unwrap();
    let mut events = Vec::new();
    poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
    assert!(events.is_empty());
}

#[test]
fn flows_have_a_bounded_number_of_sockets() {
    let (_, _, links) = with_private_port(1);
    let to = addressing("127.0.0.1");
    let flow = |port| private_ports::PortFlow {
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
    let (sender, port, links) = with_private_port(1);
    let (to, receiver) = (addressing("127.0.0.1"), &links[0]);
    let flow = |port| private_ports::PortFlow {
        local: to.dst,
        peer: to.src,
        port,
    };
    let first = port - u16::from(PRIVATE_PORT);
    let mut numbers = Vec::new();
    for private_port in 0..private_ports::PRIVATE_PORTS {
        let port = first + u16::from(private_port);
        numbers.push(receiver.receive_flow(flow(port), 0).unwrap().0);
        let mut sent = batch(to, &[vec![private_port; 64]]);
        assert_eq!(sender.send(Some(private_port), &mut sent), Sent::All);
    }
    let has_come = |number: &u32| {
        let flow = receiver.receivers.find(*number);
        flow.is_some_and(|flow| flow.socket.has_waiting())
    };
    until(|| numbers.iter().all(has_come));
    // Many times as many as there is room for.
    for port in 2000..4000 {
        receiver.receive_flow(flow(port), 0);
    }
    let known = |number: &u32| receiver.receivers.find(*number).is_some();
    assert!(numbers.iter().all(known), "something waits in each");
    for (private_port, &number) in (0..).zip(&numbers) {
        let came = (first + u16::from(private_port), vec![private_port; 64]);
        assert_eq!(take(receiver, Of::Flow(number), 1), [came]);
    }
    for port in 4000..6000 {
        receiver.receive_flow(flow(port), 0);
    }
    assert!(!numbers.iter().all(known), "nothing waits any more");
}
