//! Channels of messages.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use ferroce::Error;
use ferroce::channel::{self, Receiver, Sender, StreamRoom};
use ferroce::endpoint::Endpoint;
use ferroce::stream::Stream;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use common::door::{connector, endpoint, incoming, listener};
use common::{DEADLINE, on_rxe};

type Ends = (Sender, Receiver);

/// Two ends, of endpoints of their own.
fn pair(one: StreamRoom, other: StreamRoom) -> (Ends, Ends) {
    pair_of((&endpoint(), one), (endpoint(), other))
}

/// Two ends, of these endpoints.
fn pair_of(
    (server, one): (&Endpoint, StreamRoom),
    (client, other): (Endpoint, StreamRoom),
) -> (Ends, Ends) {
    let (listener, address) = listener(server);
    let connecting = thread::spawn(move || {
        channel::connect(&connector(&client), address, other)
            .wait()
            .unwrap()
    });
    let server = channel::accept(incoming(&listener), one).wait().unwrap();
    (server, connecting.join().unwrap())
}

/// Each length up to the longest, again and again. Fewer on rxe, where a message takes long.
fn messages(longest: usize) -> impl Iterator<Item = Vec<u8>> {
    let count = if on_rxe() { 100 } else { 2000_usize };
    (0..count).map(move |number| {
        let length = number % (longest + 1);
        number
            .to_ne_bytes()
            .into_iter()
            .cycle()
            .take(length)
            .collect()
    })
}

/// Both ends send all, with the least room there is, while others receive: nothing stands still,
/// and messages come whole and in order, empty ones too.
#[test]
fn messages_come_whole_and_in_order_with_any_room() {
    for (one, other) in [((1, 1), (1, 3)), ((2, 9), (5, 4)), ((64, 100), (1, 100))] {
        let (one, other) = (
            StreamRoom::new(one.0, one.1),
            StreamRoom::new(other.0, other.1),
        );
        let (server, client) = pair(one, other);
        let ends = [server, client].map(|(mut sender, mut receiver)| {
            let longest = sender.max_len();
            assert_eq!(longest, one.bytes.min(other.bytes) as usize);
            let sending = thread::spawn(move || {
                for message in messages(longest) {
                    sender.send_blocking(&message).unwrap();
                }
            });
            let receiving = thread::spawn(move || {
                for message in messages(longest) {
                    assert_eq!(receiver.recv_blocking().unwrap(), Some(message));
                }
                assert_eq!(receiver.recv_blocking().unwrap(), None);
            });
            [sending, receiving]
        });
        ends.into_iter()
            .flatten()
            .for_each(|end| end.join().unwrap());
    }
}

/// What is sent is borrowed for the call only, and may be of any kind.
#[test]
fn parts_of_a_buffer_are_sent() {
    let room = StreamRoom::new(4, 16);
    let ((mut sender, _answers), (_sender, mut receiver)) = pair(room, room);
    let mut buffer = [0; 16];
    for length in [3, 0, 16] {
        buffer.fill(u8::try_from(length).unwrap());
        sender.send_blocking(&buffer[..length]).unwrap();
        let sent = buffer[..length].to_vec();
        buffer.fill(0xff);
        assert_eq!(receiver.recv_blocking().unwrap(), Some(sent));
    }
    sender.try_send("text").unwrap();
    sender.send_blocking(String::from("more")).unwrap();
    for expected in [b"text", b"more"] {
        let came = receiver.recv_blocking().unwrap();
        assert_eq!(came.as_deref(), Some(&expected[..]));
    }
}

/// A sender has as much room as the peer said, and has it again when the peer has received.
#[test]
fn a_sender_waits_for_room() {
    let room = StreamRoom::new(3, 8);
    let ((mut sender, _), (_, mut receiver)) = pair(room, room);
    let message = vec![7; 8];
    for _ in 0..3 {
        sender.try_send(&message).unwrap();
    }
    assert_eq!(
        sender.try_send(&message).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    let too_long = sender.send_blocking([0; 9]).unwrap_err();
    assert_eq!(too_long.kind(), ErrorKind::InvalidInput, "{too_long}");
    let receiving = thread::spawn(move || {
        while receiver.recv_blocking().unwrap().is_some() {}
        assert_eq!(receiver.try_recv().unwrap(), None);
    });
    for _ in 0..10 {
        sender.send_blocking(&message).unwrap();
    }
    drop(sender);
    receiving.join().unwrap();
}

/// Nothing takes messages for bytes, or bytes for messages.
#[test]
fn a_stream_is_no_channel() {
    let (listener, address) = listener(&endpoint());
    let room = StreamRoom::default();
    let connecting = thread::spawn(move || {
        let stream = Stream::connect(&connector(&endpoint()), address, room).wait();
        stream.unwrap_err()
    });
    let refused = channel::accept(incoming(&listener), room).wait();
    assert!(matches!(refused.unwrap_err(), Error::Protocol(_)));
    let told = connecting.join().unwrap();
    assert!(matches!(told, Error::Rejected { .. }));
    assert!(
        told.to_string()
            .contains("a ferroce channel is wanted here")
    );
}

/// An end that is dropped arrives whole, though its program has not received all.
#[test]
fn a_dropped_end_arrives_whole() {
    let room = StreamRoom::new(4, 8);
    let ((mut sender, _other), (mut answers, mut receiver)) = pair(room, room);
    sender.send_blocking(b"last").unwrap();
    answers.send_blocking(b"unread").unwrap();
    drop((sender, _other));
    assert_eq!(
        receiver.recv_blocking().unwrap().as_deref(),
        Some(&b"last"[..])
    );
    assert_eq!(receiver.recv_blocking().unwrap(), None);
}

/// A receiver that is dropped holds its peer up no more, though the sender beside it is there and
/// does nothing; and that one still sends.
#[test]
fn a_dropped_receiver_discards_what_comes() {
    let room = StreamRoom::new(2, 8);
    // One endpoint for both ends: what the other one waits for serves this one.
    let here = endpoint();
    let ((mut sender, receiver), (mut peer, mut answers)) =
        pair_of((&here, room), (here.clone(), room));
    let (done, waiting) = mpsc::channel();
    thread::spawn(move || {
        // Some before it is dropped, and many times the room behind it.
        peer.send_blocking(b"unread").unwrap();
        peer.send_blocking(b"unread").unwrap();
        drop(receiver);
        for _ in 0..20 {
            peer.send_blocking(b"unread").unwrap();
        }
        done.send(peer).unwrap();
    });
    let peer = waiting.recv_timeout(DEADLINE).unwrap();
    sender.send_blocking(b"answer").unwrap();
    drop((sender, peer));
    assert_eq!(
        answers.recv_blocking().unwrap().as_deref(),
        Some(&b"answer"[..])
    );
    assert_eq!(answers.recv_blocking().unwrap(), None);
}

/// Does what a loop does until something answers: asks, sleeps for the endpoint's descriptor, and
/// serves the endpoint.
fn until<T>(endpoint: &Endpoint, mut ask: impl FnMut() -> io::Result<T>) -> T {
    loop {
        endpoint.dispatch().unwrap();
        match ask() {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            answer => return answer.unwrap(),
        }
        let mut descriptor = [PollFd::new(endpoint.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(DEADLINE).unwrap();
        assert_eq!(
            poll(&mut descriptor, limit).unwrap(),
            1,
            "nothing happened at the endpoint"
        );
    }
}

/// Threads that block send, flush and close, and know then that all is with the peer.
#[test]
fn threads_that_block_end_a_channel_in_order() {
    let room = StreamRoom::new(2, 8);
    let ((mut sender, _), (_, mut receiver)) = pair(room, room);
    let address = common::address();
    assert_eq!(sender.peer_addr().unwrap().ip(), address);
    assert_eq!(receiver.peer_addr().unwrap().ip(), address);
    sender.send_blocking("first").unwrap();
    sender.flush_blocking().unwrap();
    sender.send_blocking("").unwrap();
    sender.close_blocking().unwrap();
    let mut place = b"what was there".to_vec();
    for expected in [&b"first"[..], b""] {
        assert!(receiver.recv_into_blocking(&mut place).unwrap());
        assert_eq!(place, expected);
    }
    assert!(!receiver.recv_into_blocking(&mut place).unwrap());
}

/// A loop sleeps for the endpoint's descriptor where something answers `WouldBlock`, and is woken
/// when it can go on: more is sent than there is room for.
#[test]
fn loops_send_receive_and_end_a_channel_in_order() {
    let room = StreamRoom::new(2, 8);
    let ((mut sender, _answers), (_sender, mut receiver)) = pair(room, room);
    let (here, there) = [sender.connection(), receiver.connection()]
        .map(|connection| connection.endpoint())
        .into();
    let sending = thread::spawn(move || {
        for number in 0..100_u8 {
            until(&here, || sender.try_send([number]));
        }
        until(&here, || sender.try_flush());
        until(&here, || sender.try_close());
        sender.try_send([1]).unwrap_err().kind()
    });
    let mut place = Vec::new();
    for number in 0..100 {
        assert!(until(&there, || receiver.try_recv_into(&mut place)));
        assert_eq!(place, [number]);
    }
    assert_eq!(until(&there, || receiver.try_recv()), None);
    assert_eq!(sending.join().unwrap(), ErrorKind::BrokenPipe);
}

/// Futures of one's own ask by `poll_*`, as `send` and `recv` do.
/// A thread that waits serves the endpoint meanwhile, as the crate's own does that finishes dropped
/// streams. It takes events of the loop, and the loop must be woken even so.
#[test]
fn a_loop_misses_nothing_beside_a_thread_that_waits() {
    let rounds = if on_rxe() { 100 } else { 2000_u32 };
    let (here, there) = (endpoint(), endpoint());
    let room = StreamRoom::new(1, 8);
    let ((mut answers, mut requests), (mut asks, mut hears)) =
        pair_of((&here, room), (there.clone(), room));
    let (listener, address) = listener(&here);
    let waiting = thread::spawn(move || drop(incoming(&listener)));
    let client = thread::spawn(move || {
        for number in 0..rounds {
            asks.send_blocking(number.to_ne_bytes()).unwrap();
            let answer = hears.recv_blocking().unwrap();
            assert_eq!(answer.as_deref(), Some(&number.to_ne_bytes()[..]));
        }
    });
    for _ in 0..rounds {
        let request = until(&here, || requests.try_recv()).unwrap();
        until(&here, || answers.try_send(&request));
    }
    client.join().unwrap();
    connector(&there).connect(address).wait().unwrap_err();
    waiting.join().unwrap();
}

#[test]
fn halves_can_be_polled() {
    let room = StreamRoom::new(1, 8);
    let ((mut sender, _answers), (_sender, mut receiver)) = pair(room, room);
    let context = &mut Context::from_waker(Waker::noop());
    assert!(sender.poll_send(context, b"one").is_ready());
    assert!(sender.poll_send(context, b"two").is_pending());
    assert!(sender.poll_send(context, &[0; 9]).is_ready(), "too long");
    let endpoint = receiver.connection().endpoint();
    let polled = std::future::poll_fn(|context| receiver.poll_recv(context));
    let came = endpoint.block_on(polled).unwrap().unwrap();
    assert_eq!(came.as_deref(), Some(&b"one"[..]));
    let endpoint = sender.connection().endpoint();
    let flushed = std::future::poll_fn(|context| sender.poll_flush(context));
    endpoint.block_on(flushed).unwrap().unwrap();
    let closed = std::future::poll_fn(|context| sender.poll_close(context));
    endpoint.block_on(closed).unwrap().unwrap();
}

/// Either half can abort: the other one, and the peer, find the end of the connection.
#[test]
fn an_aborted_channel_ends_at_once() {
    let room = StreamRoom::new(2, 8);
    for by_sender in [true, false] {
        let ((mut sender, mut receiver), (mut peer, mut there)) = pair(room, room);
        sender.send_blocking("all").unwrap();
        sender.flush_blocking().unwrap();
        sender.set_linger(Duration::from_secs(1));
        let (kind, reason) = if by_sender {
            sender.abort();
            let lost = receiver.recv_blocking().unwrap_err();
            (lost.kind(), lost.to_string())
        } else {
            receiver.abort();
            let lost = sender.send_blocking("more").unwrap_err();
            (lost.kind(), lost.to_string())
        };
        let expected = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
        assert_eq!(kind, expected[usize::from(by_sender)]);
        assert!(reason.contains("aborted at this end"), "{reason}");
        // The peer has what came before, and then an error that begins with what has happened.
        assert_eq!(there.recv_blocking().unwrap().as_deref(), Some(&b"all"[..]));
        let lost = there.recv_blocking().unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::ConnectionReset);
        let text = lost.to_string();
        assert!(text.starts_with("the connection has ended"), "{text}");
        assert!(!text.contains("IBV_WC"), "{text}");
        let work = lost
            .source()
            .and_then(|e| e.downcast_ref::<ferroce::cq::WorkError>());
        assert_eq!(work.unwrap().kind(), ErrorKind::ConnectionReset);
        let refused = peer.send_blocking("more").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
    }
}

/// A room of nothing is refused before anything is asked of the peer, and one that no queue pair
/// holds is named, with its limit.
#[test]
fn a_room_that_cannot_be_is_refused() {
    let (here, there) = (endpoint(), endpoint());
    let (listener, address) = listener(&there);
    for room in [StreamRoom::new(0, 8), StreamRoom::new(8, 0)] {
        let refused = channel::connect(&connector(&here), address, room).wait();
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::Misuse(_)));
        assert!(refused.to_string().starts_with("a channel needs"));
        let refused = Stream::connect(&connector(&here), address, room).wait();
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .starts_with("a stream needs")
        );
    }
    there.dispatch().unwrap();
    assert!(listener.try_accept().unwrap().is_none());
    let vast = StreamRoom::new(u16::MAX, 8);
    let refused = channel::connect(&connector(&here), address, vast).wait();
    let refused = refused.unwrap_err();
    let words = ["StreamRoom", "65535 messages"];
    assert!(
        words.iter().all(|word| refused.to_string().contains(word)),
        "{refused}"
    );
}
