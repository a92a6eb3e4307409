//! Connections over TCP, by loopback sockets. Queue pairs are played.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferroce_os::clock;
use ferroce_proto::iwarp::mpa::Ready;

use super::net::Net;
use super::process::Proc;
use super::program::{conn_of, expect, expect_errno, expect_nothing, next, param, param_of_server};
use crate::base::denials::{Asker, Denial};
use crate::base::sync::lock;
use crate::cm::{Event, EventChannel, EventKind, Id, PortSpace};
use crate::objects::device::{Protocols, Shapes};

/// How long loopback may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The reason in the status of the event: invalid service ID.
const REFUSED_SERVICE_ID: i32 = 8;

fn start(protocols: Protocols) -> (Arc<Net>, Arc<Proc>) {
    let net = Net::new();
    let proc = net.start_with(0, 1, &Shapes::of_protocols(protocols));
    (net, proc)
}

/// Serves sockets until the channel has an event.
#[track_caller]
fn await_event(proc: &Proc, channel: &EventChannel, kind: EventKind, status: i32) -> Event {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(event) = next(channel) {
            assert_eq!((event.kind, event.status), (kind, status));
            return event;
        }
        assert!(Instant::now() < until, "no event, but {kind:?} expected");
        proc.serve_streams(Duration::from_millis(10));
    }
}

/// A listener, an identifier that connects to it, and the request.
#[track_caller]
fn asked(proc: &Proc, channel: &Arc<EventChannel>) -> (Arc<Id>, Arc<Id>, Event) {
    let (listener, port) = proc.listen(channel, "127.0.0.1:0");
    let to: SocketAddr = ([127, 0, 0, 1], port).into();
    let client = proc.connecting(channel, to);
    let request = await_event(proc, channel, EventKind::ConnectRequest, 0);
    (listener, client, request)
}

#[test]
fn both_ends_agree_and_hear_of_the_end() {
    let (_net, proc) = start(Protocols::IWARP);
    let channel = proc.channel();
    let (_listener, client, request) = asked(&proc, &channel);
    let conn = conn_of(&request);
    assert_eq!(conn.private_data, b"hello");
    // What the initiator serves and wants, as this end sees it.
    assert_eq!((conn.initiator_depth, conn.responder_resources), (3, 5));
    assert!(request.id.route().is_none(), "iWARP has no path record");
    assert_eq!(request.id.peer_addr(), client.local_addr());
    assert_eq!(request.id.local_addr(), client.peer_addr());
    let answer = param_of_server(b"welcome");
    request.id.accept(&answer).unwrap();
    let established = expect(&channel, EventKind::Established, 0);
    let conn = conn_of(&established);
    assert_eq!((conn.initiator_depth, conn.responder_resources), (7, 2));
    let established = await_event(&proc, &channel, EventKind::Established, 0);
    assert!(Arc::ptr_eq(&established.id, &client));
    let conn = conn_of(&established);
    assert_eq!(conn.private_data, b"welcome");
    assert_eq!((conn.initiator_depth, conn.responder_resources), (2, 5));
    let connections = std::mem::take(&mut *lock(&proc.connections));
    assert_eq!(connections[0].0, answer.qp_num);
    for (qpn, connection) in connections {
        assert!(connection.agreement.is_ferroce_peer && !connection.agreement.crc);
        proc.service().on_stream_ended(connection.id);
        assert!(lock(&proc.ended).iter().all(|ended| *ended != qpn));
        proc.service().on_deadline(clock::monotonic());
        expect(&channel, EventKind::Disconnected, 0);
    }
    client.disconnect().unwrap();
    expect_nothing(&channel);
}

#[test]
fn a_refusal_is_told_with_its_data() {
    let (_net, proc) = start(Protocols::IWARP);
    let channel = proc.channel();
    let (_listener, client, request) = asked(&proc, &channel);
    request.id.reject(b"no").unwrap();
    let refused = await_event(&proc, &channel, EventKind::Rejected, -libc::ECONNRESET);
    assert!(Arc::ptr_eq(&refused.id, &client));
    assert_eq!(conn_of(&refused).private_data, b"no");
    expect_errno(request.id.accept(&param(b"")), libc::EINVAL);
    assert!(lock(&proc.connections).is_empty());
}

/// A request without private data (RFC 5044, 7.1), from a peer of another make.
const PLAIN_REQUEST: &[u8; 20] = b"MPA ID Req Frame\x00\x01\x00\x00";

/// A peer that the program has refused, with the reply read.
fn refused(proc: &Proc, channel: &Arc<EventChannel>) -> TcpStream {
    let (listener, port) = proc.listen(channel, "127.0.0.1:0");
    let mut peer = stranger(port);
    peer.write_all(PLAIN_REQUEST).unwrap();
    let request = await_event(proc, channel, EventKind::ConnectRequest, 0);
    request.id.reject(b"no").unwrap();
    let mut reply = [0; 22];
    peer.read_exact(&mut reply).unwrap();
    assert_eq!(&reply[20..], b"no");
    drop((request, listener));
    peer
}

#[test]
fn a_refused_connection_stays_for_its_peer_to_close_but_not_for_long() {
    let (net, proc) = start(Protocols::IWARP);
    let channel = proc.channel();
    let mut patient = refused(&proc, &channel);
    patient.set_nonblocking(true).unwrap();
    let early = patient.read(&mut [0; 1]).unwrap_err();
    assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock);
    assert!(proc.service().refused_stay_until().is_some());
    patient.set_nonblocking(false).unwrap();
    net.pass(Duration::from_millis(50));
    assert!(is_closed(&mut patient));
    let prompt = refused(&proc, &channel);
    drop(prompt);
    assert!(proc.serve_streams(PATIENCE), "no end came");
    assert_eq!(proc.service().refused_stay_until(), None);
}

/// An enhanced request (RFC 6581, 4) that wants to begin with a first message of one of these kinds
/// (C, D of the ORD word), and the words of the reply.
fn words_of_reply(proc: &Proc, channel: &Arc<EventChannel>, offered: u16) -> [u16; 2] {
    let (_listener, port) = proc.listen(channel, "127.0.0.1:0");
    let mut peer = stranger(port);
    let [a, b] = (offered | 3).to_be_bytes();
    let words = [0x80, 2, a, b];
    let start = b"MPA ID Req Frame\x10\x02\x00\x04";
    peer.write_all(&[&start[..], &words].concat()).unwrap();
    let request = await_event(proc, channel, EventKind::ConnectRequest, 0);
    request.id.accept(&param_of_server(b"")).unwrap();
    expect(channel, EventKind::Established, 0);
    let mut reply = [0; 24];
    peer.read_exact(&mut reply).unwrap();
    assert_eq!(&reply[..20], b"MPA ID Rep Frame\x10\x02\x00\x04");
    [20, 22].map(|at| u16::from_be_bytes([reply[at], reply[at + 1]]))
}

#[test]
fn a_responder_grants_a_first_message_that_the_initiator_offers() {
    const FIRST: u16 = 0x8000;
    const KINDS: u16 = 0xc000;
    let (_net, proc) = start(Protocols::IWARP);
    let channel = proc.channel();
    for (offered, granted, ready) in [
        (0xc000, 0x8000, Some(Ready::Write)),
        (0x4000, 0x4000, Some(Ready::Read)),
        // A SEND only, which would take a receive of the program.
        (0, 0, None),
    ] {
        let [ird, ord] = words_of_reply(&proc, &channel, offered);
        assert_eq!(ird & FIRST != 0, ready.is_some(), "{offered:#x}");
        assert_eq!(ord & KINDS, granted, "{offered:#x}");
        let connections = std::mem::take(&mut *lock(&proc.connections));
        assert_eq!(connections[0].1.agreement.ready, ready);
    }
}

/// A port that nobody listens on, and an identifier that connects to it.
fn unanswered(proc: &Proc, channel: &Arc<EventChannel>) -> (SocketAddr, Arc<Id>) {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = held.local_addr().unwrap();
    drop(held);
    let client = proc.connecting(channel, to);
    assert!(proc.serve_streams(PATIENCE), "TCP was not refused");
    (to, client)
}

#[test]
fn nobody_listening_is_a_rejection_after_a_while() {
    let (net, proc) = start(Protocols::IWARP);
    let channel = proc.channel();
    let (_, _client) = unanswered(&proc, &channel);
    let mut asked_again = 0;
    let refused = loop {
        if let Some(event) = next(&channel) {
            break event;
        }
        net.pass(Duration::from_millis(50));
        asked_again += u32::from(proc.serve_streams(PATIENCE));
    };
    let kind_and_status = (refused.kind, refused.status);
    assert_eq!(kind_and_status, (EventKind::Rejected, -libc::ECONNREFUSED));
    assert!(asked_again >= 5, "{asked_again}");
}

#[test]
fn a_connection_finds_a_listener_that_comes_a_moment_later() {
    let (net, proc) = start(Protocols::IWARP);
    let channel = proc.channel();
    let (to, client) = unanswered(&proc, &channel);
    let listener = TcpListener::bind(to).unwrap();
    net.pass(Duration::from_millis(50));
    assert!(proc.serve_streams(PATIENCE), "TCP was not asked again");
    let (_stream, peer) = listener.accept().unwrap();
    assert_eq!(Some(peer), client.local_addr());
    expect_nothing(&channel);
}

#[test]
fn a_bound_identifier_asks_again_from_its_port_and_one_that_ends_does_not() {
    let (net, proc) = start(Protocols::IWARP);
    let channel = proc.channel();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = held.local_addr().unwrap();
    drop(held);
    let client = proc.id(&channel);
    client.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let bound = client.local_addr();
    let client = proc.route_as(client, &channel, to);
    client.connect(&param(b"hello")).unwrap();
    assert!(proc.serve_streams(PATIENCE), "TCP was not refused");
    let listener = TcpListener::bind(to).unwrap();
    net.pass(Duration::from_millis(50));
    assert!(proc.serve_streams(PATIENCE), "TCP was not asked again");
    let (stream, peer) = listener.accept().unwrap();
    assert_eq!(Some(peer), bound);
    drop((stream, listener, client));
    let (_, client) = unanswered(&proc, &channel);
    drop(client);
    net.pass(Duration::from_millis(500));
    assert!(!proc.serve_streams(Duration::ZERO), "asked for nobody");
    expect_nothing(&channel);
}

#[test]
fn a_listener_owns_its_tcp_port() {
    let held = TcpListener::bind("0.0.0.0:0").unwrap();
    let taken = held.local_addr().unwrap();
    for (protocols, errno) in [
        (Protocols::default(), None),
        (Protocols::IWARP, Some(libc::EADDRINUSE)),
        // The port is the other devices' then.
        (Protocols::BOTH, None),
    ] {
        let (_net, proc) = start(protocols);
        let channel = proc.channel();
        let id = proc.id(&channel);
        assert_eq!(id.bind(taken).err().map(|e| e.errno), errno);
        if errno.is_none() {
            id.listen(0).unwrap();
        }
    }
    let (_net, proc) = start(Protocols::IWARP);
    let channel = proc.channel();
    let (listener, port) = proc.listen(&channel, "0.0.0.0:0");
    assert!(TcpListener::bind(("127.0.0.1", port)).is_err());
    drop(listener);
    TcpListener::bind(("127.0.0.1", port)).expect("free with the identifier");
}

/// A server of the same host that has iWARP only: it cannot accept what comes over RoCEv2.
#[test]
fn a_request_over_rocev2_does_not_reach_a_server_of_iwarp() {
    let net = Net::new();
    let server = net.start_with(0, 1, &Shapes::of_protocols(Protocols::IWARP));
    let client = net.start_with(0, 2, &Shapes::of_protocols(Protocols::BOTH));
    let (served, events) = (server.channel(), client.channel());
    let (_listener, port) = server.listen(&served, "127.0.0.1:0");
    let id = client.connecting(&events, ([127, 0, 0, 1], port).into());
    net.settle();
    let refused = expect(&events, EventKind::Rejected, REFUSED_SERVICE_ID);
    assert!(Arc::ptr_eq(&refused.id, &id));
    expect_nothing(&served);
}

#[test]
fn what_iwarp_does_not_have_is_refused() {
    let (_net, proc) = start(Protocols::IWARP);
    let channel = proc.channel();
    let datagrams = proc.id_of(&channel, PortSpace::Udp, ferroce_proto::verbs::QpType::Ud);
    let bound = datagrams.bind("127.0.0.1:0".parse().unwrap());
    expect_errno(bound, libc::ENODEV);
    let (_listener, client, request) = asked(&proc, &channel);
    expect_errno(client.establish(), libc::EINVAL);
    let long = param(&[0; 256]);
    expect_errno(request.id.accept(&long), libc::EINVAL);
    request.id.accept(&param(&[0; 255])).unwrap();
}

/// Connects to a listener as something else does.
fn stranger(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Whether the service has closed a stranger's connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    let closed = stream.read(&mut [0; 1]);
    match closed {
        Ok(0) => true,
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => true,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_peer_that_speaks_something_else_is_closed_and_counted() {
    let (_net, proc) = start(Protocols::IWARP);
    let channel = proc.channel();
    let (_listener, port) = proc.listen(&channel, "127.0.0.1:0");
    let mut stream = stranger(port);
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let until = Instant::now() + PATIENCE;
    while lock(&proc.refused).is_empty() {
        assert!(Instant::now() < until, "not refused");
        proc.serve_streams(Duration::from_millis(10));
    }
    assert_eq!(*lock(&proc.refused), [(Asker::Host, Denial::Malformed)]);
    assert!(is_closed(&mut stream));
    expect_nothing(&channel);
}

#[test]
fn silent_peers_are_closed_in_time_and_the_oldest_when_there_are_too_many() {
    const MOST: usize = super::super::iwarp::MAX_UNOWNED;
    let (net, proc) = start(Protocols::IWARP);
    let channel = proc.channel();
    let (_listener, port) = proc.listen(&channel, "127.0.0.1:0");
    let mut silent: Vec<_> = (0..=MOST)
        .map(|_| {
            let stream = stranger(port);
            assert!(proc.serve_streams(PATIENCE), "nothing came");
            stream
        })
        .collect();
    assert_eq!(*lock(&proc.refused), [(Asker::Host, Denial::Quota)]);
    assert!(is_closed(&mut silent[0]));
    net.pass(Duration::from_secs(6));
    for stream in &mut silent[1..] {
        assert!(is_closed(stream));
    }
    assert_eq!(lock(&proc.refused).len(), 1 + MOST);
    expect_nothing(&channel);
}
