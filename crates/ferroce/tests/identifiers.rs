//! Identifiers of the connection manager: services of datagrams, groups, moving to another channel,
//! addresses and options.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use common::door::{self, endpoint};
use common::pair::{TIMEOUT, listener, resolved};
use common::{DEADLINE, address, on_rxe, provider};
use ferroce::Error;
use ferroce::cm::{ConnectionParameters, Event, EventChannel, EventKind, Id, Membership};
use ferroce::cq::{Completion, CompletionQueue};
use ferroce::device::GidType;
use ferroce::mem::{Access, Buffer, MemoryRegion, ProtectionDomain};
use ferroce::qp::{QueuePair, QueuePairBuilder};
use ferroce::transport::{Rc, Ud};
use ferroce::ud::{AddressHandle, Datagram, GRH_BYTES};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Each run of the test has its own.
fn group() -> IpAddr {
    let last = u8::try_from(std::process::id() % 256).unwrap();
    Ipv4Addr::new(239, 7, 2, last).into()
}

/// The next event, which must come in time.
#[track_caller]
fn next(channel: &EventChannel) -> Event {
    let mut fds = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(DEADLINE).unwrap();
    assert_eq!(poll(&mut fds, limit).unwrap(), 1, "no event in time");
    channel.next_event().unwrap()
}

#[track_caller]
fn expect(channel: &EventChannel, kind: EventKind) -> Event {
    let event = next(channel);
    assert_eq!((event.kind, event.status), (kind, 0), "{event:?}");
    event
}

fn private(parameters: &ConnectionParameters, length: usize) -> &[u8] {
    &parameters.private_data[..length]
}

fn saying(words: &[u8]) -> ConnectionParameters {
    ConnectionParameters::default().private_data(words)
}

/// An end for datagrams.
struct Datagrams {
    channel: EventChannel,
    id: Id,
    queue_pair: Option<QueuePair<Ud>>,
    region: MemoryRegion,
    domain: ProtectionDomain,
    completions: CompletionQueue,
}

impl Datagrams {
    /// Of an identifier that has met its device.
    fn of(channel: EventChannel, id: Id) -> Self {
        let context = id.context().unwrap();
        let domain = ProtectionDomain::new(&context).unwrap();
        let completions = CompletionQueue::new(&context, 16).unwrap();
        let builder = QueuePairBuilder::<Ud>::new(&domain, &completions);
        let queue_pair = builder.build_for(&id).unwrap();
        let region = MemoryRegion::new(&domain, 256, Access::LocalWrite).unwrap();
        queue_pair
            .post_receive(1, &[region.slice(0..128).unwrap()])
            .unwrap();
        Self {
            channel,
            id,
            queue_pair: Some(queue_pair),
            region,
            domain,
            completions,
        }
    }

    /// One that knows the way to a port of this host.
    fn resolved(port: u16) -> Self {
        let channel = provider().event_channel().unwrap();
        let id = Id::for_datagrams(&channel).unwrap();
        id.resolve_address((address(), port), TIMEOUT).unwrap();
        expect(&channel, EventKind::AddressResolved);
        id.resolve_route(TIMEOUT).unwrap();
        expect(&channel, EventKind::RouteResolved);
        Self::of(channel, id)
    }

    /// One that is bound.
    fn bound() -> Self {
        let channel = provider().event_channel().unwrap();
        let id = Id::for_datagrams(&channel).unwrap();
        id.bind((address(), 0)).unwrap();
        Self::of(channel, id)
    }

    fn queue_pair(&self) -> &QueuePair<Ud> {
        self.queue_pair.as_ref().unwrap()
    }

    fn send(&self, to: Datagram, words: &[u8]) {
        self.region.write(128, words).unwrap();
        let bytes = self.region.slice(128..128 + words.len()).unwrap();
        self.queue_pair().post_send(2, to, &[bytes]).unwrap();
        let sent = self.completion();
        assert_eq!(sent.tag, 2);
        sent.result.unwrap();
    }

    fn completion(&self) -> Completion {
        self.completions
            .wait_timeout(DEADLINE)
            .unwrap()
            .expect("a completion in time")
    }

    /// Waits for the datagram, which is of these words.
    fn received(&self, words: &[u8]) -> Completion {
        let received = self.completion();
        assert_eq!(received.tag, 1);
        let done = received.result.unwrap();
        assert_eq!(done.bytes as usize, GRH_BYTES + words.len());
        let mut came = vec![0; words.len()];
        self.region.read(GRH_BYTES, &mut came).unwrap();
        assert_eq!(came, words);
        received
    }

    /// What answers the sender of a datagram.
    fn back(&self, received: &Completion) -> Datagram {
        let mut header = [0; GRH_BYTES];
        self.region.read(0, &mut header).unwrap();
        let to = AddressHandle::of_sender(&self.domain, 1, received, &header).unwrap();
        let sender = received.result.unwrap().origin.queue_pair;
        Datagram::new(&to, sender, Id::QKEY)
    }
}

fn service() -> (EventChannel, Id) {
    let channel = provider().event_channel().unwrap();
    let id = Id::for_datagrams(&channel).unwrap();
    id.bind((address(), 0)).unwrap();
    id.listen(8).unwrap();
    (channel, id)
}

#[test]
fn a_service_of_datagrams_is_found_by_its_port() {
    let (channel, listening) = service();
    assert!(listening.is_for_datagrams() && listening.context().is_some());
    let client = Datagrams::resolved(listening.port());
    client.id.connect(&saying(b"who is there?")).unwrap();
    let asked = expect(&channel, EventKind::ConnectRequest);
    assert_eq!(private(&asked.parameters, 13), b"who is there?");
    assert!(asked.datagrams.is_none());
    let (listener, id) = asked.request.unwrap();
    assert_eq!(listener, listening.key());
    assert_eq!(asked.peer.map(|peer| peer.ip()), Some(address()));
    let server = Datagrams::of(channel, id);
    server
        .id
        .accept_datagrams(server.queue_pair(), b"it is me")
        .unwrap();
    let told = expect(&client.channel, EventKind::Established);
    assert_eq!(private(&told.parameters, 8), b"it is me");
    let service = told.datagrams.unwrap();
    assert_eq!(
        (service.queue_pair, service.qkey),
        (server.queue_pair().number(), Id::QKEY)
    );
    client.send(service.datagram(&client.domain).unwrap(), b"hello");
    let asked = server.received(b"hello");
    server.send(server.back(&asked), b"hello yourself");
    client.received(b"hello yourself");
}

#[test]
fn one_queue_pair_serves_all_who_ask() {
    let (channel, listening) = service();
    let context = listening.context().unwrap();
    let domain = ProtectionDomain::new(&context).unwrap();
    let completions = CompletionQueue::new(&context, 16).unwrap();
    let queue_pair = QueuePairBuilder::<Ud>::new(&domain, &completions)
        .build()
        .unwrap();
    let gids = context.gids(1).unwrap();
    let own = |gid: &&ferroce::device::GidEntry| {
        gid.kind == GidType::RoceV2 && gid.gid.ipv4().map(IpAddr::V4) == Some(address())
    };
    let gid = gids.iter().find(own).unwrap();
    queue_pair.activate(1, gid, Id::QKEY).unwrap();
    for word in [b"one", b"two"] {
        let receive = queue_pair.receive_buffer(Buffer::new(&domain, 64).unwrap());
        let receive = receive.unwrap();
        let client = Datagrams::resolved(listening.port());
        client.id.connect(&saying(b"")).unwrap();
        let (_, id) = expect(&channel, EventKind::ConnectRequest).request.unwrap();
        id.accept_datagrams(&queue_pair, b"").unwrap();
        let service = expect(&client.channel, EventKind::Established)
            .datagrams
            .unwrap();
        client.send(service.datagram(&client.domain).unwrap(), word);
        let driver = completions.driver().unwrap();
        let (received, buffer) = common::block_on_driving(receive, || driver.dispatch().unwrap());
        received.unwrap();
        assert_eq!(&buffer[GRH_BYTES..], word);
    }
}

#[test]
fn a_service_says_no_with_its_reason() {
    let (channel, listening) = service();
    let client = Datagrams::resolved(listening.port());
    client.id.connect(&saying(b"")).unwrap();
    let (_, id) = expect(&channel, EventKind::ConnectRequest).request.unwrap();
    id.reject(b"not today").unwrap();
    let told = next(&client.channel);
    assert_eq!(told.kind, EventKind::Unreachable, "{told:?}");
    assert_ne!(told.status, 0);
    assert_eq!(private(&told.parameters, 9), b"not today");
    assert!(told.datagrams.is_none());
}

#[test]
fn datagrams_and_connections_are_not_mixed() {
    let (_, connection) = resolved(listener().1.port());
    let datagrams = Datagrams::bound();
    let of = |id: &Id| {
        let context = id.context().unwrap();
        let domain = ProtectionDomain::new(&context).unwrap();
        (domain, CompletionQueue::new(&context, 16).unwrap())
    };
    let (domain, queue) = of(&connection);
    let refused = QueuePairBuilder::<Ud>::new(&domain, &queue).build_for(&connection);
    assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
    let refused = connection.accept_datagrams(datagrams.queue_pair(), b"");
    assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
    let other = Datagrams::bound();
    drop(other.queue_pair);
    let (domain, queue) = of(&other.id);
    let refused = QueuePairBuilder::<Rc>::new(&domain, &queue).build_for(&other.id);
    assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
}

#[test]
fn members_of_a_group_hear_what_is_sent_to_it() {
    let (mut member, sender) = (Datagrams::bound(), Datagrams::bound());
    let join = |end: &Datagrams, membership| {
        end.id.join_multicast(group(), membership).unwrap();
        let joined = expect(&end.channel, EventKind::MulticastJoin);
        joined.datagrams.unwrap()
    };
    let joined = join(&member, Membership::Full);
    assert_eq!(joined.queue_pair, Datagram::MULTICAST);
    let seen_by_sender = join(&sender, Membership::SendOnly);
    assert_eq!(
        (joined.path.gid, joined.qkey),
        (seen_by_sender.path.gid, seen_by_sender.qkey)
    );
    let to = seen_by_sender.datagram(&sender.domain).unwrap();
    sender.send(to, b"to all");
    // The kernel's driver does not bring it to members on the sender's host.
    if !on_rxe() {
        member.received(b"to all");
    }
    sender.id.leave_multicast(group()).unwrap();
    let refused = sender.id.leave_multicast(group()).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EADDRNOTAVAIL));
    // It leaves by itself; a queue pair that stayed attached could not go.
    drop(member.queue_pair.take());
    assert!(member.id.leave_multicast(group()).is_err());
}

#[test]
fn an_identifier_moves_to_another_channel_with_what_is_waiting() {
    let (channel, listening) = listener();
    let (first, id) = resolved(listening.port());
    let second = provider().event_channel().unwrap();
    id.migrate(&second).unwrap();
    id.migrate(&second).unwrap(); // where it is already
    let end = common::pair::End::new(second, id);
    end.id.connect(&ConnectionParameters::default()).unwrap();
    let (_, accepted) = expect(&channel, EventKind::ConnectRequest).request.unwrap();
    // Of a server that has a channel for each thread.
    let own = provider().event_channel().unwrap();
    accepted.migrate(&own).unwrap();
    let server = common::pair::End::new(own, accepted);
    server.id.accept(&ConnectionParameters::default()).unwrap();
    expect(&end.channel, EventKind::Established);
    expect(&server.channel, EventKind::Established);
    end.id.disconnect().unwrap();
    // What waits at a channel goes along.
    let third = provider().event_channel().unwrap();
    let mut waiting = [PollFd::new(server.channel.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(DEADLINE).unwrap();
    assert_eq!(poll(&mut waiting, limit).unwrap(), 1);
    server.id.migrate(&third).unwrap();
    expect(&third, EventKind::Disconnected);
    server.id.disconnect().unwrap(); // the answer
    expect(&end.channel, EventKind::Disconnected);
    for left in [&first, &channel, &server.channel] {
        // It does not wait, though these channels do.
        assert!(left.try_next_event().unwrap().is_none());
    }
}

#[test]
fn a_request_is_handed_to_another_endpoint() {
    let (door, worker) = (endpoint(), endpoint());
    let (listener, to) = door::listener(&door);
    let connecting = door::connect(&endpoint(), to);
    let client = std::thread::spawn(move || connecting.wait().unwrap());
    let incoming = door::incoming(&listener).migrate(&worker).unwrap();
    drop((listener, door));
    let server = incoming.accept().wait().unwrap();
    let client = client.join().unwrap();
    assert_eq!(server.local_addr().ok(), Some(to));
    assert_eq!(client.peer_addr().ok(), Some(to));
    assert_eq!(server.peer_addr().ok(), client.local_addr().ok());
    drop(client);
    server.disconnected().within(DEADLINE).wait().unwrap();
}

#[test]
fn ports_and_addresses_are_told() {
    let channel = provider().event_channel().unwrap();
    let id = Id::new(&channel).unwrap();
    assert_eq!(
        (id.port(), id.local_addr().ok(), id.peer_addr().ok()),
        (0, None, None)
    );
    id.set_reuse_address(true).unwrap();
    id.bind((address(), 0)).unwrap();
    assert_ne!(id.port(), 0);
    assert_eq!(id.local_addr().ok(), Some((address(), id.port()).into()));
    id.listen(1).unwrap();
    let (_other, client) = resolved(id.port());
    client.set_type_of_service(0x20).unwrap();
    client.set_ack_timeout(16).unwrap();
    assert!(client.set_ack_timeout(32).is_err());
    assert_eq!(client.peer_addr().ok(), id.local_addr().ok());
    let second = Id::new(&channel).unwrap();
    assert_eq!(
        second
            .bind((address(), id.port()))
            .unwrap_err()
            .raw_os_error(),
        Some(libc::EADDRINUSE)
    );
    let v6 = Id::new(&channel).unwrap();
    v6.set_ipv6_only(true).unwrap();
    v6.bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    assert!(
        v6.local_addr()
            .ok()
            .is_some_and(|a| a.is_ipv6() && a.port() == v6.port())
    );
}
