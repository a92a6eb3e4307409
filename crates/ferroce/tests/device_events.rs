//! Asynchronous events of a device: by polling, by waiting, as futures.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::os::fd::AsFd;
use std::thread;

use common::bare::Bare;
use common::door::{connect, endpoint, incoming, listener};
use ferroce::device::{DeviceEvent, DeviceEventKind, DeviceEvents, EventSubject};
use ferroce::endpoint::Connection;
use ferroce::mem::Access;
use ferroce::qp::{Operation, QueuePairBuilder};
use ferroce::srq::SharedReceiveQueue;
use ferroce::transport::Rc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Server and client.
fn connected() -> (Connection, Connection) {
    let (listener, address) = listener(&endpoint());
    let client = thread::spawn(move || connect(&endpoint(), address).wait().unwrap());
    let server = incoming(&listener).accept().wait().unwrap();
    (server, client.join().unwrap())
}

/// The peer reaches for what it must not have: the server's device reports that.
fn transgress(server: &Connection, client: &Connection) {
    let closed = server.region(8, Access::LocalWrite).unwrap();
    let write = Operation::Write(closed.remote().at(0));
    let bytes = client.buffer_of(b"forbidden").unwrap();
    let work = client.queue_pair().submit_buffer(write, bytes).unwrap();
    let (refused, _) = client.wait(work).unwrap();
    refused.unwrap_err();
}

fn is_it(event: &DeviceEvent, server: &Connection) -> bool {
    let number = server.queue_pair().number();
    event.kind() == DeviceEventKind::QueuePairAccessError
        && event.subject() == EventSubject::QueuePair(number)
}

/// One test: all connections of a process are on one context, whose events come once.
#[test]
fn who_asks_in_whatever_way_is_told_and_destruction_waits_for_the_acknowledgement() {
    if common::on_rxe() {
        // That driver refuses what a peer must not have, and tells nobody.
        return;
    }
    let (server, client) = connected();
    let context = server.context();
    let events = DeviceEvents::new(&context).unwrap();
    while events.try_next().unwrap().is_some() {}

    // By waiting in a thread.
    transgress(&server, &client);
    let event = loop {
        let event = events.wait().unwrap();
        if is_it(&event, &server) {
            break event;
        }
    };
    assert!(!event.is_about(server.completions()));
    let gone = thread::spawn(move || drop(server));
    // It is not gone before this: the subject is still there to be read.
    let EventSubject::QueuePair(number) = event.subject() else {
        panic!("{event}");
    };
    let said = format!("queue pair {number:#08x}: queue pair access error");
    assert_eq!(event.to_string(), said);
    drop(event);
    gone.join().unwrap();

    // When the descriptor says so.
    let (server, client) = connected();
    transgress(&server, &client);
    loop {
        let mut entry = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
        assert!(poll(&mut entry, PollTimeout::from(20_000_u16)).unwrap() > 0);
        if events
            .try_next()
            .unwrap()
            .is_some_and(|event| is_it(&event, &server))
        {
            break;
        }
    }

    // As a future of any runtime; here one that blocks.
    let (server, client) = connected();
    let endpoint = client.endpoint();
    transgress(&server, &client);
    loop {
        let next = events.next(|| async {
            let mut entry = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
            poll(&mut entry, PollTimeout::from(20_000_u16))?;
            Ok(())
        });
        if is_it(&endpoint.block_on(next).unwrap().unwrap(), &server) {
            break;
        }
    }

    #[cfg(feature = "tokio")]
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (server, client) = connected();
        runtime.block_on(async {
            let limit = std::time::Duration::from_secs(20);
            tokio::time::timeout(limit, async {
                let (told, ()) = tokio::join!(
                    async {
                        while !is_it(&events.next_on_tokio().await.unwrap(), &server) {}
                        true
                    },
                    async { transgress(&server, &client) },
                );
                assert!(told);
            })
            .await
            .unwrap();
        });
    }
}

#[test]
fn a_shared_queue_that_runs_low_says_which_it_is() {
    let bare = Bare::new();
    let events = DeviceEvents::new(&bare.context).unwrap();
    let shared = || SharedReceiveQueue::new(&bare.domain, 8, 1).unwrap();
    let (low, other) = (shared(), shared());
    let room = bare.region(&[0; 16]);
    for tag in 0..2 {
        low.post_receive(tag, &[room.slice(0..8).unwrap()]).unwrap();
    }
    low.set_limit(2).unwrap();
    let builder = || QueuePairBuilder::<Rc>::new(&bare.domain, &bare.completions);
    let (sender, receiver) = (
        builder().build().unwrap(),
        builder().shared_receives(&low).build().unwrap(),
    );
    bare.connect(&sender, &receiver);
    for tag in 0..2 {
        let bytes = [room.slice(8..16).unwrap()];
        sender.post_send(tag, Operation::Send, &bytes).unwrap();
    }
    let event = loop {
        let mut entry = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
        assert!(poll(&mut entry, PollTimeout::from(20_000_u16)).unwrap() > 0);
        let event = events.try_next().unwrap();
        if let Some(event) = event.filter(|e| e.subject() == EventSubject::SharedReceiveQueue) {
            break event;
        }
    };
    assert_eq!(
        event.kind(),
        DeviceEventKind::SharedReceiveQueueLimitReached
    );
    assert!(event.is_about_shared(&low) && !event.is_about_shared(&other));
    // The queue's end waits for this.
    drop(event);
}
