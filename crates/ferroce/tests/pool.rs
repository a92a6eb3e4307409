//! Pools of buffers.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::thread;

use common::door::{connect, endpoint, incoming, listener};
use ferroce::Error;
use ferroce::endpoint::Connection;
use ferroce::mem::{Buffer, BufferPool};
use ferroce::qp::Operation;

const LIMIT: usize = 64 << 10;

/// Both ends of a connection.
fn connected() -> (Connection, Connection) {
    let (listener, address) = listener(&endpoint());
    let client = thread::spawn(move || connect(&endpoint(), address).wait().unwrap());
    let server = incoming(&listener).accept().wait().unwrap();
    (server, client.join().unwrap())
}

#[test]
fn memory_that_comes_back_is_used_again_and_idle_memory_makes_room() {
    let (server, _client) = connected();
    let pool = BufferPool::new(server.domain(), LIMIT);
    let sizes = || (pool.bytes().registered, pool.bytes().idle);
    let small: Vec<_> = (0..8).map(|_| pool.buffer(100).unwrap()).collect();
    assert_eq!((small[0].len(), small[0].capacity()), (100, 4096));
    assert_eq!(sizes(), (32 << 10, 0));
    let large = pool.buffer(32 << 10).unwrap();
    match pool.buffer(1).unwrap_err() {
        Error::Limit { asked, limit, .. } => assert_eq!((asked, limit), (68 << 10, 64 << 10)),
        other => panic!("{other}"),
    }
    drop(small);
    assert_eq!(sizes(), (64 << 10, 32 << 10));
    // Idle memory of another size makes room.
    let more = pool.buffer(16 << 10).unwrap();
    assert_eq!(sizes(), (64 << 10, 16 << 10));
    let first = more.as_ptr();
    drop(more);
    assert_eq!(pool.buffer(9 << 10).unwrap().as_ptr(), first);
    drop(large);
    assert!(pool.buffer(LIMIT + 1).is_err());
    for longer in [(2 << 30) + 1, usize::MAX] {
        assert!(matches!(pool.buffer(longer), Err(Error::Misuse(_))));
    }
}

#[test]
fn work_brings_buffers_back_to_their_pool_whether_it_is_awaited_or_not() {
    let (server, client) = connected();
    let (there, here) = (
        BufferPool::new(server.domain(), LIMIT),
        BufferPool::with_huge_pages(client.domain(), 4 << 20),
    );
    for round in 0..100_u32 {
        let receive = there.buffer(0).unwrap();
        let receive = server.queue_pair().receive_buffer(receive).unwrap();
        // Some fill a huge page.
        let mut message = here
            .buffer(if round % 10 == 0 { 2 << 20 } else { 4 })
            .unwrap();
        message.set_len(4).unwrap();
        message.copy_from_slice(&round.to_be_bytes());
        let sent = client.queue_pair().submit_buffer(Operation::Send, message);
        if round % 2 == 0 {
            client.wait(sent.unwrap()).unwrap().0.unwrap();
        } else {
            drop(sent.unwrap());
        }
        let (result, came) = server.wait(receive).unwrap();
        result.unwrap();
        assert_eq!(*came, round.to_be_bytes());
    }
    assert_eq!(there.bytes().registered, 4096);
    assert_eq!(there.bytes().idle, 4096);
    drop(client);
    // What was not awaited may have been under way when the next was asked for.
    let bytes = here.bytes();
    assert!(bytes.registered <= (2 << 20) + (64 << 10), "{bytes:?}");
    assert_eq!(bytes.registered, bytes.idle);
}

/// Buffers that fill a huge page begin where one can, those of a plain pool where any page can.
#[test]
fn long_buffers_of_a_pool_with_huge_pages_begin_at_a_huge_page() {
    const HUGE: usize = 2 << 20;
    let (server, client) = connected();
    let pool = BufferPool::with_huge_pages(client.domain(), 6 * HUGE);
    let misplaced = |buffer: &Buffer| buffer.as_ptr().addr() % HUGE;
    // One beside the other, and once more from what came back.
    for _ in 0..2 {
        let long = [HUGE, HUGE - 1, HUGE + 1].map(|length| pool.buffer(length).unwrap());
        assert_eq!(long.each_ref().map(misplaced), [0; 3]);
        let capacities = long.each_ref().map(Buffer::capacity);
        assert_eq!(capacities, [HUGE, HUGE, 2 * HUGE]);
    }
    let short = pool.buffer(HUGE / 2).unwrap();
    assert_eq!(short.capacity(), HUGE / 2);
    // What fills it arrives whole.
    let mut message = pool.buffer(HUGE).unwrap();
    message.fill(7);
    let receive = server.buffer(HUGE).unwrap();
    let receive = server.queue_pair().receive_buffer(receive).unwrap();
    let sent = client.queue_pair().submit_buffer(Operation::Send, message);
    client.wait(sent.unwrap()).unwrap().0.unwrap();
    let (result, came) = server.wait(receive).unwrap();
    result.unwrap();
    assert!(came.len() == HUGE && came.iter().all(|byte| *byte == 7));
}
