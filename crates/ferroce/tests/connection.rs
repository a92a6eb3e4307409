//! Connections between two ends in this process, at the loopback address.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::thread;

use ferroce::Error;
use ferroce::cm::{ConnectionParameters, EventKind};
use ferroce::cq::{WorkKind, WorkStatus};
use ferroce::mem::{Access, BufferPool, MemoryRegion, RemoteRegion};
use ferroce::qp::{Operation, QueuePair};

use common::door;
use common::pair::{CAPACITIES, End, connected, listener, resolved};

const SIZE: usize = 10_000;

fn bytes(seed: u8) -> Vec<u8> {
    (0..SIZE)
        .map(|i| {
            u8::try_from(i % 251)
                .unwrap()
                .wrapping_mul(7)
                .wrapping_add(seed)
        })
        .collect()
}

fn contents(region: &MemoryRegion) -> Vec<u8> {
    let mut out = vec![0; region.len()];
    region.read(0, &mut out).unwrap();
    out
}

#[test]
fn a_send_arrives_in_the_pieces_of_the_receive() {
    let (server, client) = connected();
    let (first, second) = (server.region(&[0; 4_001]), server.region(&[0; 8_000]));
    server
        .queue_pair
        .post_receive(
            7,
            &[
                first.slice(0..4_001).unwrap(),
                second.slice(3..8_000).unwrap(),
            ],
        )
        .unwrap();
    let sent = client.region(&bytes(1));
    client
        .queue_pair
        .post_send(
            9,
            Operation::SendImmediate(0x0102_0304),
            &[sent.slice(0..SIZE).unwrap()],
        )
        .unwrap();
    let received = server.completions.wait().unwrap();
    let done = received.result.unwrap();
    assert_eq!(
        (received.tag, done.what, done.bytes as usize),
        (7, WorkKind::Receive, SIZE)
    );
    assert_eq!(done.immediate, Some(0x0102_0304));
    assert_eq!(contents(&first), bytes(1)[..4_001]);
    assert_eq!(contents(&second)[3..3 + SIZE - 4_001], bytes(1)[4_001..]);
    let completion = client.completions.wait().unwrap();
    assert_eq!(
        (completion.tag, completion.queue_pair),
        (9, client.queue_pair.number())
    );
    assert_eq!(completion.result.unwrap().what, WorkKind::Send);
}

#[test]
fn reads_writes_and_atomics_reach_the_peer_while_it_does_nothing() {
    let (server, client) = connected();
    let (remote, local) = (server.region(&bytes(2)), client.region(&bytes(3)));
    let place = RemoteRegion::from_bytes(&remote.remote().to_bytes()).unwrap();
    let perform = |operation, range| {
        client
            .queue_pair
            .post_send(0, operation, &[local.slice(range).unwrap()])
            .unwrap();
        client.completions.wait().unwrap().result.unwrap().what
    };
    assert_eq!(
        perform(Operation::Write(place.at(16)), 0..5_000),
        WorkKind::Write
    );
    assert_eq!(contents(&remote)[16..5_016], bytes(3)[..5_000]);
    assert_eq!(
        perform(Operation::Read(place.at(5_016)), 1..4_985),
        WorkKind::Read
    );
    assert_eq!(contents(&local)[1..4_985], bytes(2)[5_016..]);
    remote.store(8, 40).unwrap();
    let add = Operation::FetchAdd {
        target: place.at(8),
        add: 2,
    };
    assert_eq!(perform(add, 0..8), WorkKind::FetchAdd);
    assert_eq!((local.load(0).unwrap(), remote.load(8).unwrap()), (40, 42));
    let swap = Operation::CompareSwap {
        target: place.at(8),
        compare: 42,
        swap: 1,
    };
    assert_eq!(perform(swap, 0..8), WorkKind::CompareSwap);
    assert_eq!((local.load(0).unwrap(), remote.load(8).unwrap()), (42, 1));
}

#[test]
fn posted_memory_lives_until_its_completion_was_polled() {
    let (server, client) = connected();
    let region = server.region(&[0; SIZE]);
    server
        .queue_pair
        .post_receive(0, &[region.slice(0..SIZE).unwrap()])
        .unwrap();
    drop(region); // were it deregistered now, the receive would fail
    let region = client.region(&bytes(4));
    client
        .queue_pair
        .post_send(0, Operation::Send, &[region.slice(0..SIZE).unwrap()])
        .unwrap();
    drop(region);
    assert_eq!(
        server.completions.wait().unwrap().result.unwrap().bytes as usize,
        SIZE
    );
    assert!(client.completions.wait().unwrap().result.is_ok());
}

#[test]
fn a_wrong_key_fails_and_flushes_what_follows() {
    let (server, client) = connected();
    let (remote, local) = (server.region(&bytes(5)), client.region(&bytes(6)));
    let mut wrong = remote.remote();
    wrong.rkey ^= 1;
    let slice = [local.slice(0..64).unwrap()];
    client.queue_pair.post_receive(3, &slice).unwrap();
    client
        .queue_pair
        .post_send(1, Operation::Write(wrong.at(0)), &slice)
        .unwrap();
    let failed = client.completions.wait().unwrap();
    assert_eq!(
        failed.result.unwrap_err().status.to_string(),
        "IBV_WC_REM_ACCESS_ERR"
    );
    let flushed = client.completions.wait().unwrap();
    assert_eq!(
        (flushed.tag, flushed.result.unwrap_err().status),
        (3, WorkStatus::FLUSHED)
    );
    assert_eq!(contents(&remote), bytes(5));
}

#[test]
fn completions_of_a_queue_pair_that_is_gone_are_not_shown() {
    let (server, client) = connected();
    let region = client.region(&bytes(7));
    client
        .queue_pair
        .post_receive(0, &[region.slice(0..SIZE).unwrap()])
        .unwrap();
    client.id.disconnect().unwrap();
    server.channel.expect(EventKind::Disconnected).unwrap();
    // The peer's answer: without it the client would ask for a minute.
    server.id.disconnect().unwrap();
    client.channel.expect(EventKind::Disconnected).unwrap();
    let End {
        queue_pair,
        completions,
        ..
    } = client;
    drop(queue_pair);
    assert_eq!(completions.poll().unwrap(), None);
}

#[test]
fn a_dropped_connect_request_is_rejected() {
    let (channel, listener) = listener();
    let (client_channel, id) = resolved(listener.port());
    let end = End::new(client_channel, id);
    end.id.connect(&ConnectionParameters::default()).unwrap();
    drop(channel.expect(EventKind::ConnectRequest).unwrap());
    let answer = end.channel.expect(EventKind::Established).unwrap_err();
    assert!(
        matches!(
            answer,
            Error::Unexpected {
                event: EventKind::Rejected,
                ..
            }
        ),
        "{answer}"
    );
}

#[test]
fn a_rejection_carries_a_word() {
    let (channel, listener) = listener();
    let (client_channel, id) = resolved(listener.port());
    let end = End::new(client_channel, id);
    end.id.connect(&ConnectionParameters::default()).unwrap();
    let (of, request) = channel
        .expect(EventKind::ConnectRequest)
        .unwrap()
        .request
        .unwrap();
    assert_eq!(of, listener.key());
    request.reject(b"no room").unwrap();
    let event = end.channel.next_event().unwrap();
    assert_eq!((event.kind, event.id), (EventKind::Rejected, end.id.key()));
    assert!(event.parameters.private_data.starts_with(b"no room"));
}

#[test]
fn mistakes_are_refused_before_they_reach_the_device() {
    let (server, client) = connected();
    let region = server.region(&bytes(8));
    assert!(matches!(
        region.slice(1..SIZE + 1),
        Err(Error::OutOfRange { end: 10_001, .. })
    ));
    assert!(matches!(region.load(4), Err(Error::Unaligned { start: 4 })));
    assert!(matches!(
        region.read(SIZE, &mut [0]),
        Err(Error::OutOfRange { .. })
    ));
    let foreign = client
        .queue_pair
        .post_receive(0, &[region.slice(0..8).unwrap()]);
    assert!(matches!(foreign, Err(Error::Misuse(_))), "{foreign:?}");
    let second = QueuePair::new(
        &server.id,
        &server.domain,
        &server.completions,
        &server.completions,
        CAPACITIES,
    );
    assert!(matches!(second, Err(Error::Misuse(_))), "{second:?}");
    assert!(matches!(
        MemoryRegion::new(&server.domain, 0, Access::Remote),
        Err(Error::Misuse(_))
    ));
}

#[test]
fn a_full_queue_refuses_and_keeps_what_it_has() {
    let (server, _client) = connected();
    let region = server.region(&bytes(9));
    let room = server.queue_pair.capacities().receive;
    // rxe takes some more than it says.
    let spare = if common::on_rxe() { 3 * room } else { 0 };
    let mut posted = 0;
    let refused = loop {
        let bytes = [region.slice(0..8).unwrap()];
        match server.queue_pair.post_receive(posted, &bytes) {
            Ok(()) => posted += 1,
            Err(refused) => break refused,
        }
        assert!(posted <= u64::from(room + spare), "{posted} of {room}");
    };
    assert!(posted >= u64::from(room), "{posted} of {room}");
    assert!(
        matches!(
            refused,
            Error::System {
                call: "ibv_post_recv",
                ..
            }
        ),
        "{refused}"
    );
    server.id.disconnect().unwrap();
    for tag in 0..posted {
        let flushed = server.completions.wait().unwrap();
        assert_eq!(
            (flushed.tag, flushed.result.unwrap_err().status),
            (tag, WorkStatus::FLUSHED)
        );
    }
}

/// A buffer may have no bytes, however it was made.
#[test]
fn empty_messages_are_sent_and_received() {
    let (listener, address) = door::listener(&door::endpoint());
    let asking = thread::spawn(move || door::connect(&door::endpoint(), address).wait().unwrap());
    let prepared = door::incoming(&listener).prepare().unwrap();
    let receiver = prepared.connection();
    let pool = BufferPool::new(receiver.domain(), 1 << 20);
    let receives = [receiver.buffer(0), receiver.buffer_of(b""), pool.buffer(0)].map(|buffer| {
        receiver
            .queue_pair()
            .receive_buffer(buffer.unwrap())
            .unwrap()
    });
    let receiver = prepared.establish().wait().unwrap();
    let sender = asking.join().unwrap();
    for receive in receives {
        let empty = sender.buffer_of(b"").unwrap();
        assert!(empty.is_empty());
        let sent = sender.queue_pair().submit_buffer(Operation::Send, empty);
        sender.complete(sent.unwrap()).unwrap();
        let (done, came) = receiver.complete(receive).unwrap();
        assert_eq!((done.bytes, came.len()), (0, 0));
    }
}
