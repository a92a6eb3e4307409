//! Channels of messages.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::io::ErrorKind;
use std::sync::mpsc;
use std::thread;

use ferroce::Error;
use ferroce::channel::{self, Receiver, Sender};
use ferroce::endpoint::Endpoint;
use ferroce::stream::{Stream, StreamRoom};

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
    assert!(matches!(connecting.join().unwrap(), Error::Rejected { .. }));
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
