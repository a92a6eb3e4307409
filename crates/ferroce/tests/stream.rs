//! Streams: every byte once and in order, whatever is dropped; room that runs out; ends of every
//! kind.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use common::door::{connect, connector, endpoint, incoming, listener};
use ferroce::Error;
use ferroce::cm::RejectReason;
use ferroce::stream::{Stream, StreamRoom};

const SMALL: StreamRoom = StreamRoom::new(4, 100);

/// Two ends, of endpoints of their own.
fn pair(one: StreamRoom, other: StreamRoom) -> (Stream, Stream) {
    let (listener, address) = listener(&endpoint());
    let connecting = thread::spawn(move || {
        Stream::connect(&connector(&endpoint()), address, other)
            .wait()
            .unwrap()
    });
    let accepted = Stream::accept(incoming(&listener), one).wait().unwrap();
    (accepted, connecting.join().unwrap())
}

/// A small generator of numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

/// The byte at a place of the stream: no other place nearby has the same neighbourhood.
fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13).to_le_bytes()[0]
}

fn bytes(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(byte).collect()
}

#[test]
fn threads_that_block_exchange_and_both_directions_end_by_themselves() {
    let (mut server, mut client) = pair(StreamRoom::default(), SMALL);
    let length = 300_000;
    let echo = thread::spawn(move || {
        let mut all = Vec::new();
        server.blocking().read_to_end(&mut all).unwrap();
        // The other direction is still open.
        let mut server = server.blocking();
        server.write_all(&all).unwrap();
        server.close().unwrap();
    });
    let mut client = client.blocking();
    client.write_all(&bytes(0, length)).unwrap();
    client.flush().unwrap();
    client.close().unwrap();
    assert_eq!(
        client.write(b"more").unwrap_err().kind(),
        io::ErrorKind::BrokenPipe
    );
    let mut back = Vec::new();
    client.read_to_end(&mut back).unwrap();
    assert!(back == bytes(0, length));
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
    echo.join().unwrap();
}

/// Polls a future once and drops it, as `select!` does with the one that was too slow.
fn once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    }
}

/// One end of the soak: writes and reads random amounts, drops futures that are not ready, closes
/// at the end.
fn wander(mut stream: Stream, seed: u64, length: usize) {
    let mut random = Random(seed);
    let endpoint = stream.connection().endpoint();
    let (mut written, mut read, mut room) = (0, 0, vec![0; 1000]);
    while written < length || read < length {
        let some = bytes(written, (random.below(700) + 1).min(length - written));
        let to = random.below(700) + 1;
        let (mut sent, mut came) = (0, 0);
        match random.below(4) {
            0 => sent = once(stream.write(&some)).transpose().unwrap().unwrap_or(0),
            1 => {
                came = once(stream.read(&mut room[..to]))
                    .transpose()
                    .unwrap()
                    .unwrap_or(0)
            }
            2 => drop(once(stream.flush())),
            // Whichever goes on first.
            _ => endpoint
                .block_on(poll_fn(|context| {
                    if !some.is_empty()
                        && let Poll::Ready(count) = stream.poll_write(context, &some)
                    {
                        sent = count.unwrap();
                        return Poll::Ready(());
                    }
                    stream
                        .poll_read(context, &mut room[..to])
                        .map(|count| came = count.unwrap())
                }))
                .unwrap(),
        }
        assert!(room[..came] == bytes(read, came), "wrong bytes at {read}");
        (written, read) = (written + sent, read + came);
    }
    endpoint
        .block_on(async {
            stream.close().await?;
            assert_eq!(stream.read(&mut room).await?, 0);
            io::Result::Ok(())
        })
        .unwrap()
        .unwrap();
}

#[test]
fn random_sizes_rooms_and_dropped_futures_lose_and_repeat_nothing() {
    for seed in 1..=u64::from(common::seeds(6)) {
        println!("seed {seed}");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut room = || {
            let buffers = u16::try_from(random.below(6) + 1).unwrap();
            StreamRoom::new(buffers, u32::try_from(random.below(300) + 1).unwrap())
        };
        let (server, client) = pair(room(), room());
        let length = 40_000;
        let ends = [(server, seed * 2 + 1), (client, seed * 2 + 2)];
        for end in ends.map(|(end, seed)| thread::spawn(move || wander(end, seed, length))) {
            end.join().unwrap();
        }
    }
}

/// Writes as long as there is room; how much.
fn fill(stream: &mut Stream) -> usize {
    let mut all = 0;
    loop {
        stream.connection().endpoint().dispatch().unwrap();
        match once(stream.write(&[1; 100])) {
            Some(written) => all += written.unwrap(),
            // What is on its way has to arrive before there is certainly no room.
            None => match stream.connection().endpoint().block_on(stream.flush()) {
                Ok(flushed) => {
                    flushed.unwrap();
                    match once(stream.write(&[1; 100])) {
                        Some(written) => all += written.unwrap(),
                        None => return all,
                    }
                }
                Err(e) => panic!("{e}"),
            },
        }
    }
}

#[test]
fn who_does_not_read_holds_up_one_direction_and_not_the_other() {
    let (mut silent, mut eager) = pair(SMALL, SMALL);
    let full = fill(&mut eager);
    assert_eq!(full, 400, "4 messages of 100 bytes");
    // The other way, many times the room.
    let writer = thread::spawn(move || {
        silent.blocking().write_all(&bytes(0, 20_000)).unwrap();
        silent
    });
    let mut came = vec![0; 20_000];
    eager.blocking().read_exact(&mut came).unwrap();
    assert!(came == bytes(0, 20_000));
    let mut silent = writer.join().unwrap();
    assert!(once(eager.write(&[2; 100])).is_none(), "still no room");
    // Once it reads there is room again.
    let mut held = vec![0; full];
    silent.blocking().read_exact(&mut held).unwrap();
    eager.blocking().write_all(&[3; 400]).unwrap();
    drop(silent);
}

#[test]
fn a_connection_that_ends_without_a_close_is_an_error_behind_all_that_came() {
    let (mut reader, mut writer) = pair(StreamRoom::default(), StreamRoom::default());
    writer.blocking().write_all(b"the last words").unwrap();
    writer.blocking().flush().unwrap();
    writer.abort();
    reader.connection().disconnected().wait().unwrap();
    let mut all = Vec::new();
    let cut = reader.blocking().read_to_end(&mut all).unwrap_err();
    assert_eq!(
        (cut.kind(), &all[..]),
        (io::ErrorKind::ConnectionReset, &b"the last words"[..])
    );
    let refused = reader.blocking().write(b"hello?").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
    assert!(reader.blocking().close().is_err());
}

#[test]
fn a_peer_that_has_closed_and_gone_leaves_everything_and_the_end() {
    let (mut reader, mut writer) = pair(SMALL, SMALL);
    writer.blocking().write_all(&bytes(0, 350)).unwrap();
    writer.blocking().close().unwrap();
    drop(writer);
    reader.connection().disconnected().wait().unwrap();
    let mut all = Vec::new();
    reader.blocking().read_to_end(&mut all).unwrap();
    assert!(all == bytes(0, 350));
    reader.blocking().close().unwrap();
}

#[test]
fn a_waiting_reader_and_a_waiting_writer_learn_that_the_peer_is_gone() {
    for closes in [false, true] {
        let (peer, mut stream) = pair(SMALL, SMALL);
        fill(&mut stream);
        let gone = thread::spawn(move || {
            let mut peer = peer;
            if closes {
                peer.blocking().close().unwrap();
            }
            peer.abort();
        });
        let endpoint = stream.connection().endpoint();
        let written = endpoint.block_on(stream.write(b"x")).unwrap();
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let read = endpoint.block_on(stream.read(&mut [0])).unwrap();
        assert_eq!(read.is_ok(), closes, "{read:?}");
        gone.join().unwrap();
    }
}

#[test]
fn what_is_no_stream_is_told_so() {
    let (listener, address) = listener(&endpoint());
    let other = thread::spawn(move || connect(&endpoint(), address).wait());
    let refused = Stream::accept(incoming(&listener), SMALL).wait();
    let refused = refused.unwrap_err();
    assert!(matches!(refused, Error::Protocol(_)), "{refused}");
    assert!(matches!(
        other.join().unwrap().unwrap_err(),
        Error::Rejected {
            reason: RejectReason::CONSUMER,
            ..
        }
    ));
    let stream =
        thread::spawn(move || Stream::connect(&connector(&endpoint()), address, SMALL).wait());
    let plain = incoming(&listener).accept().wait();
    let refused = stream.join().unwrap().unwrap_err();
    assert!(matches!(refused, Error::Protocol(_)), "{refused}");
    drop(plain);
}

#[test]
fn bytes_can_be_looked_at_before_they_are_taken() {
    let (mut reader, mut writer) = pair(SMALL, SMALL);
    writer.blocking().write_all(b"abcdef").unwrap();
    let endpoint = reader.connection().endpoint();
    for expected in [&b"abcdef"[..], b"cdef"] {
        let seen = endpoint.block_on(poll_fn(|context| {
            reader.poll_fill(context).map_ok(<[u8]>::to_vec)
        }));
        assert_eq!(seen.unwrap().unwrap(), expected);
        reader.consume(2);
    }
    reader.consume(usize::MAX);
    writer.blocking().close().unwrap();
    assert_eq!(reader.blocking().read(&mut [0; 9]).unwrap(), 0);
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn tokio_copies_through_a_stream_whose_halves_are_in_two_tasks() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let endpoint = endpoint();
    let driver = tokio::spawn(endpoint.driver().run_on_tokio());
    let work = async {
        let (listener, address) = listener(&endpoint);
        let connector = connector(&endpoint);
        let accepting = async {
            let incoming = listener.accept().await.unwrap().timeout(common::DEADLINE);
            Stream::accept(incoming, SMALL).await
        };
        let (server, client) =
            tokio::join!(accepting, Stream::connect(&connector, address, SMALL),);
        let (mut from, mut to) = tokio::io::split(server.unwrap());
        let echo = tokio::spawn(async move {
            tokio::io::copy(&mut from, &mut to).await.unwrap();
            to.shutdown().await.unwrap();
        });
        let (mut read, mut write) = tokio::io::split(client.unwrap());
        let writer = tokio::spawn(async move {
            write.write_all(&bytes(0, 100_000)).await.unwrap();
            write.shutdown().await.unwrap();
        });
        let mut back = Vec::new();
        read.read_to_end(&mut back).await.unwrap();
        assert!(back == bytes(0, 100_000));
        echo.await.unwrap();
        writer.await.unwrap();
    };
    tokio::time::timeout(common::DEADLINE, work).await.unwrap();
    driver.abort();
}

#[cfg(feature = "futures-io")]
#[test]
fn the_traits_of_the_futures_family_are_there() {
    fn has<S: futures_io::AsyncBufRead + futures_io::AsyncWrite + Unpin + Send>() {}
    has::<Stream>();
}
