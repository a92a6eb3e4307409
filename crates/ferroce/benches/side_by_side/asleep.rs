//! Two tokio programs that sleep until a message comes: by an [`Endpoint`], and by eventfds, which
//! is the least that waking each other costs on that runtime.
#![allow(unsafe_code, reason = "tokio's watch of a descriptor")]

use std::future::Future;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ferroce::Provider;
use ferroce::endpoint::{Connection, Endpoint, Prepared};
use ferroce::mem::Buffer;
use ferroce::qp::{Operation, PendingBuffer};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::{read, write};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::ROUNDS;

/// Messages of a run, there and back.
const MESSAGES: u32 = 1000;
const SIZE: usize = 64;

fn block_on<F: Future>(work: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(work)
}

/// Times of a message, one way, between this process and the peer that the command starts.
pub(crate) fn by_eventfd(mut peer: Command) -> Vec<Duration> {
    let event = || EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK).unwrap();
    let (there, back) = (event(), event());
    let copy = |event: &EventFd| event.as_fd().try_clone_to_owned().unwrap();
    peer.stdin(copy(&there)).stdout(copy(&back));
    let mut peer = peer.spawn().unwrap();
    let times = block_on(async {
        let back = watch(back.as_fd());
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            for _ in 0..MESSAGES {
                add(&there);
                take(&back).await;
            }
            times.push(begun.elapsed() / (2 * MESSAGES));
        }
        times
    });
    assert!(peer.wait().unwrap().success());
    times
}

/// The peer of [`by_eventfd`].
pub(crate) fn answer_by_eventfd() {
    block_on(async {
        let there = watch(io::stdin().as_fd());
        for _ in 0..ROUNDS * MESSAGES as usize {
            take(&there).await;
            add(&io::stdout());
        }
    });
}

/// A duplicate of an event's descriptor, registered for reading.
fn watch(event: BorrowedFd<'_>) -> AsyncFd<OwnedFd> {
    let event = event.try_clone_to_owned().unwrap();
    // SAFETY: an owned descriptor is open, and the same one, for as long as it is registered.
    let watched = unsafe { AsyncFd::register_with_interest(event, Interest::READABLE) };
    watched.unwrap()
}

fn add(event: &impl AsFd) {
    assert_eq!(write(event, &1_u64.to_ne_bytes()).unwrap(), 8);
}

async fn take(event: &AsyncFd<OwnedFd>) {
    loop {
        let mut ready = event.readable().await.unwrap();
        let took = ready.try_io(|event| {
            let mut count = [0; 8];
            read(event.get_ref(), &mut count).map_err(io::Error::from)
        });
        if let Ok(took) = took {
            assert_eq!(took.unwrap(), 8);
            return;
        }
    }
}

/// As [`by_eventfd`], by an endpoint.
pub(crate) fn by_endpoint(mut peer: Command) -> Vec<Duration> {
    let mut peer = peer.stdout(Stdio::piped()).spawn().unwrap();
    let address = port_of(&mut peer);
    let times = block_on(async {
        let endpoint = Endpoint::new(&Provider::software()).unwrap();
        let driver = tokio::spawn(endpoint.driver().run_on_tokio());
        let prepared = endpoint.connector().prepare(address).await.unwrap();
        let (connection, mut receive) = establish(prepared).await;
        let mut message = connection.buffer(SIZE).unwrap();
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            for _ in 0..MESSAGES {
                let spare = send(&connection, message).await;
                message = take_message(receive).await;
                receive = connection.queue_pair().receive_buffer(spare).unwrap();
            }
            times.push(begun.elapsed() / (2 * MESSAGES));
        }
        connection.disconnect().await.unwrap();
        driver.abort();
        times
    });
    assert!(peer.wait().unwrap().success());
    times
}

/// The peer of [`by_endpoint`].
pub(crate) fn answer_by_endpoint() {
    block_on(async {
        let endpoint = Endpoint::new(&Provider::software()).unwrap();
        let driver = tokio::spawn(endpoint.driver().run_on_tokio());
        let listener = endpoint.listen("127.0.0.1:0").unwrap();
        println!("127.0.0.1:{}", listener.port());
        io::stdout().flush().unwrap();
        let prepared = listener.accept().await.unwrap().prepare().unwrap();
        let (connection, mut receive) = establish(prepared).await;
        let mut spare = connection.buffer(SIZE).unwrap();
        for _ in 0..ROUNDS * MESSAGES as usize {
            let message = take_message(receive).await;
            receive = connection.queue_pair().receive_buffer(spare).unwrap();
            spare = send(&connection, message).await;
        }
        connection.disconnected().await.unwrap();
        driver.abort();
    });
}

/// The address that the peer listens at, which it prints.
fn port_of(peer: &mut Child) -> String {
    let mut line = String::new();
    let told = peer.stdout.take().unwrap();
    BufReader::new(told).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Establishes a connection whose first receive is posted before the peer can send.
async fn establish(prepared: Prepared) -> (Connection, PendingBuffer) {
    let buffer = prepared.connection().buffer(SIZE).unwrap();
    let queue_pair = prepared.connection().queue_pair();
    let receive = queue_pair.receive_buffer(buffer).unwrap();
    (prepared.establish().await.unwrap(), receive)
}

/// Waits for a message.
async fn take_message(receive: PendingBuffer) -> Buffer {
    let (received, message) = receive.await;
    received.unwrap();
    message
}

/// Sends a message. Returns its buffer, when it is free again.
async fn send(connection: &Connection, message: Buffer) -> Buffer {
    let queue_pair = connection.queue_pair();
    let work = queue_pair.submit_buffer(Operation::Send, message).unwrap();
    let (sent, buffer) = work.await;
    sent.unwrap();
    buffer
}
