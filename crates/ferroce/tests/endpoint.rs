//! Endpoints: connections made, refused, ended and given up, by threads that block and by futures.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::future::Future;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::door::{connect, connector, endpoint, incoming, listener};
use common::{DEADLINE, address, on_rxe, provider};
use ferroce::Error;
use ferroce::cm::{ConnectionParameters, Id, RejectReason};
use ferroce::cq::{CompletionQueue, Timestamps, WorkKind, WorkStatus};
use ferroce::endpoint::{Connection, Endpoint, Incoming};
use ferroce::mem::{Access, MemoryRegion};
use ferroce::qp::{Operation, QueuePairBuilder, Work};
use ferroce::srq::SharedReceiveQueue;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A request to a listener, and what the asking side waits for.
fn asked(of: &Endpoint) -> (Incoming, thread::JoinHandle<ferroce::Result<Connection>>) {
    let (listener, address) = listener(of);
    let client = thread::spawn(move || {
        let connector = connector(&endpoint()).private_data(b"please");
        connector.connect(address).wait()
    });
    (incoming(&listener), client)
}

/// Both ends of a connection, of endpoints of their own: server and client.
fn connected() -> (Connection, Connection) {
    let (incoming, client) = asked(&endpoint());
    let server = incoming.accept().wait().unwrap();
    (server, client.join().unwrap().unwrap())
}

/// Sends bytes from one end to the other, in one thread.
fn send(from: &Connection, to: &Connection, bytes: &[u8]) {
    let receive = to.queue_pair().receive_buffer(to.buffer(256).unwrap());
    let sent = from
        .queue_pair()
        .submit_buffer(Operation::Send, from.buffer_of(bytes).unwrap());
    let (result, _) = from.wait(sent.unwrap()).unwrap();
    assert_eq!(result.unwrap().what, WorkKind::Send);
    let (result, came) = to.wait(receive.unwrap()).unwrap();
    result.unwrap();
    assert_eq!(*came, *bytes);
}

#[test]
fn threads_that_block_connect_with_private_data_both_ways_and_disconnect() {
    let (incoming, client) = asked(&endpoint());
    let asked = &incoming.peer_parameters().private_data;
    assert!(asked.starts_with(b"please"), "{asked:?}");
    assert_eq!(
        incoming.peer_addr().unwrap().ip().to_string(),
        address().to_string()
    );
    let server = incoming.private_data(b"welcome").accept().wait().unwrap();
    let client = client.join().unwrap().unwrap();
    let answer = &client.peer_parameters().private_data;
    assert!(answer.starts_with(b"welcome"), "{answer:?}");
    send(&client, &server, b"there");
    send(&server, &client, b"and back");
    let posted = server
        .queue_pair()
        .receive_buffer(server.buffer(8).unwrap());
    let end = thread::spawn(move || {
        client.disconnect().wait().unwrap();
        assert!(client.is_disconnected());
    });
    server.disconnected().within(DEADLINE).wait().unwrap();
    end.join().unwrap();
    let (result, _buffer) = server.wait(posted.unwrap()).unwrap();
    assert_eq!(result.unwrap_err().status, WorkStatus::FLUSHED);
    // A second call is told the same.
    server.disconnect().wait().unwrap();
}

#[test]
fn a_receive_posted_before_the_connection_is_made_is_there_for_the_first_message() {
    let (incoming, client) = asked(&endpoint());
    let prepared = incoming.prepare().unwrap();
    let receive = {
        let early = prepared.connection();
        early.queue_pair().receive_buffer(early.buffer(8).unwrap())
    };
    let server = prepared.establish().wait().unwrap();
    let client = client.join().unwrap().unwrap();
    let hello = client.buffer_of(b"hello").unwrap();
    let sent = client.queue_pair().submit_buffer(Operation::Send, hello);
    client.wait(sent.unwrap()).unwrap().0.unwrap();
    let (result, came) = server.wait(receive.unwrap()).unwrap();
    result.unwrap();
    assert_eq!(&*came, b"hello");
}

#[test]
fn a_buffer_that_came_back_takes_a_longer_message_again() {
    let (server, client) = connected();
    let mut buffer = server.buffer(64).unwrap();
    for message in [&b"short"[..], b"a good deal longer", b"again"] {
        let receive = server.queue_pair().receive_buffer(buffer).unwrap();
        let sent = client.buffer_of(message).unwrap();
        let sent = client.queue_pair().submit_buffer(Operation::Send, sent);
        client.wait(sent.unwrap()).unwrap().0.unwrap();
        let (result, came) = server.wait(receive).unwrap();
        result.unwrap();
        assert_eq!(&*came, message);
        buffer = came;
    }
}

#[test]
fn flushed_work_names_what_ended_the_connection_at_both_ends() {
    let (server, client) = connected();
    let receive = |of: &Connection, room| {
        let buffer = of.buffer(room).unwrap();
        of.queue_pair().receive_buffer(buffer).unwrap()
    };
    let (short, next, answer) = (
        receive(&server, 4),
        receive(&server, 64),
        receive(&client, 64),
    );
    let message = client.buffer_of(b"too long").unwrap();
    let sent = client.queue_pair().submit_buffer(Operation::Send, message);
    for (end, fails, flushed, status) in [
        (&server, short, next, WorkStatus::LOCAL_LENGTH),
        (
            &client,
            sent.unwrap(),
            answer,
            WorkStatus::REMOTE_INVALID_REQUEST,
        ),
    ] {
        let first = end.wait(fails).unwrap().0.unwrap_err();
        // rxe gives both ends the same status.
        assert!(first.status == status || on_rxe(), "{first}");
        let then = end.wait(flushed).unwrap().0.unwrap_err();
        assert_eq!(then.status, WorkStatus::FLUSHED);
        assert_eq!(then.cause.map(|cause| cause.status), Some(first.status));
    }
}

#[test]
fn the_program_has_the_last_word_on_the_queue_pair() {
    let here = endpoint();
    let (listener, address) = listener(&here);
    let client = thread::spawn(move || {
        let connector = connector(&endpoint()).type_of_service(32);
        let connector = connector.queue_pair(|builder| Ok(builder.inline(16).unsignalled(true)));
        connector.connect(address).wait()
    });
    let receives = Arc::new(OnceLock::new());
    let made = Arc::clone(&receives);
    let finish = move |builder: QueuePairBuilder| {
        let shared = SharedReceiveQueue::new(builder.domain(), 8, 1)?;
        let shared = made.get_or_init(|| shared);
        Ok(builder.shared_receives(shared))
    };
    let prepared = incoming(&listener).queue_pair(finish).prepare().unwrap();
    let receives = receives.get().unwrap();
    let came = receives.receive_buffer(prepared.connection().buffer(16).unwrap());
    let server = prepared.establish().wait().unwrap();
    let client = client.join().unwrap().unwrap();
    assert!(client.queue_pair().inline_capacity() >= 16);
    let work = Work::from(Operation::Send).unsignalled();
    client.queue_pair().post_inline(1, work, b"silent").unwrap();
    let (result, came) = server.wait(came.unwrap()).unwrap();
    result.unwrap();
    assert_eq!(&*came, b"silent");
}

/// Receives complete in a queue of the program's own, which the endpoint leaves alone; sends in the
/// endpoint's.
#[test]
fn receives_of_a_connection_complete_in_a_queue_of_their_own() {
    let here = endpoint();
    let (listener, address) = listener(&here);
    let client = thread::spawn(move || connect(&endpoint(), address).wait());
    let received = Arc::new(OnceLock::new());
    let made = Arc::clone(&received);
    let finish = move |builder: QueuePairBuilder| {
        let own = CompletionQueue::new(&builder.domain().context(), 8)?;
        Ok(builder.receive_completions(made.get_or_init(|| own)))
    };
    let prepared = incoming(&listener).queue_pair(finish).prepare().unwrap();
    let receives = received.get().unwrap();
    let room = MemoryRegion::new(prepared.connection().domain(), 16, Access::LocalWrite).unwrap();
    let queue_pair = prepared.connection().queue_pair();
    let bytes = [room.slice(0..16).unwrap()];
    queue_pair.post_receive(7, &bytes).unwrap();
    let server = prepared.establish().wait().unwrap();
    let client = client.join().unwrap().unwrap();
    let message = client.buffer_of(b"to the queue").unwrap();
    let sent = client.queue_pair().submit_buffer(Operation::Send, message);
    client.wait(sent.unwrap()).unwrap().0.unwrap();
    // No driver has it: it is waited for.
    let completion = receives.wait_timeout(DEADLINE).unwrap().unwrap();
    assert_eq!((completion.tag, completion.result.unwrap().bytes), (7, 12));
    let mut came = [0; 12];
    room.read(0, &mut came).unwrap();
    assert_eq!(&came, b"to the queue");
    let receive = client
        .queue_pair()
        .receive_buffer(client.buffer(8).unwrap());
    let answer = server.buffer_of(b"answer").unwrap();
    let sent = server.queue_pair().submit_buffer(Operation::Send, answer);
    server.wait(sent.unwrap()).unwrap().0.unwrap();
    assert_eq!(receives.poll().unwrap(), None);
    let (result, came) = client.wait(receive.unwrap()).unwrap();
    result.unwrap();
    assert_eq!(&*came, b"answer");
}

/// Each side says how often the other tries again while it has no receive; the one that connects
/// says for both how often they try after a loss.
#[test]
fn both_sides_set_how_often_is_tried_again() {
    let (listener, address) = listener(&endpoint());
    let client = thread::spawn(move || {
        let counts = ConnectionParameters::default()
            .retry_count(3)
            .rnr_retry_count(5);
        let connector = connector(&endpoint()).parameters(counts);
        connector.connect(address).wait().unwrap()
    });
    let counts = ConnectionParameters::default().rnr_retry_count(0);
    let server = incoming(&listener).parameters(counts).accept().wait();
    let (server, client) = (server.unwrap(), client.join().unwrap());
    let of = |connection: &Connection| {
        let info = connection.queue_pair().query().unwrap();
        (info.retry_count, info.rnr_retry_count)
    };
    assert_eq!((of(&client), of(&server)), ((3, 0), (3, 5)));
    // The client finds no receive and may not try again.
    let message = client.buffer_of(b"too early").unwrap();
    let sent = client.queue_pair().submit_buffer(Operation::Send, message);
    let (result, _) = client.wait(sent.unwrap()).unwrap();
    let status = result.unwrap_err().status;
    assert_eq!(status, WorkStatus::RECEIVER_NOT_READY);
}

#[test]
fn completions_of_a_connection_carry_the_time_if_asked() {
    let (listener, address) = listener(&endpoint());
    let client = thread::spawn(move || connect(&endpoint(), address).wait());
    let server = incoming(&listener).timestamps(Timestamps::Device).accept();
    let server = server.wait();
    if on_rxe() {
        let refused = server.unwrap_err().raw_os_error();
        assert!(matches!(refused, Some(22 | 95)), "{refused:?}");
        client.join().unwrap().unwrap_err();
        return;
    }
    let (server, client) = (server.unwrap(), client.join().unwrap().unwrap());
    let region = server.region(8, Access::LocalWrite).unwrap();
    let slice = region.slice(0..8).unwrap();
    server.queue_pair().post_receive(7, &[slice]).unwrap();
    let sent = client.buffer_of(b"now").unwrap();
    let sent = client.queue_pair().submit_buffer(Operation::Send, sent);
    client.wait(sent.unwrap()).unwrap().0.unwrap();
    let received = server.wait(server.completions().next()).unwrap().unwrap();
    assert_eq!(received.tag, 7);
    assert!(received.timestamp.is_some());
}

#[test]
fn a_loop_of_its_own_takes_connect_requests_without_waiting() {
    let here = endpoint();
    let (listener, address) = listener(&here);
    assert!(listener.try_accept().unwrap().is_none());
    let client = thread::spawn(move || connector(&endpoint()).connect(address).wait());
    let begun = Instant::now();
    let incoming = loop {
        here.dispatch().unwrap();
        if let Some(incoming) = listener.try_accept().unwrap() {
            break incoming;
        }
        assert!(begun.elapsed() < DEADLINE, "no request came");
        thread::yield_now();
    };
    let server = incoming.accept().wait().unwrap();
    send(&client.join().unwrap().unwrap(), &server, b"hello");
}

#[test]
fn a_rejection_brings_its_reason_and_its_words() {
    let (incoming, client) = asked(&endpoint());
    incoming.reject(b"full").unwrap();
    match client.join().unwrap() {
        Err(Error::Rejected {
            reason: RejectReason::CONSUMER,
            private_data,
        }) => assert!(private_data.starts_with(b"full"), "{private_data:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_that_is_dropped_is_rejected() {
    let (incoming, client) = asked(&endpoint());
    drop(incoming);
    let refused = client.join().unwrap().unwrap_err();
    assert!(matches!(refused, Error::Rejected { .. }), "{refused}");
}

#[test]
fn where_nobody_listens_says_so() {
    // A port that is held is given to no other test.
    let channel = provider().event_channel().unwrap();
    let id = Id::new(&channel).unwrap();
    id.bind((address(), 0)).unwrap();
    let nobody = (address(), id.port()).into();
    let refused = connect(&endpoint(), nobody).wait().unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Rejected {
                reason: RejectReason::NO_LISTENER,
                ..
            }
        ),
        "{refused}"
    );
    assert!(refused.to_string().contains("nobody listens"), "{refused}");
}

#[test]
fn what_takes_too_long_times_out() {
    let endpoint = endpoint();
    let (listener, address) = listener(&endpoint);
    let limit = Duration::from_millis(30);
    let nobody = listener.accept().within(limit).wait().unwrap_err();
    assert!(matches!(nobody, Error::TimedOut { .. }), "{nobody}");
    // The listener hears the request but does not answer.
    let unanswered = endpoint.connector().timeout(limit).connect(address).wait();
    let unanswered = unanswered.unwrap_err();
    assert!(matches!(unanswered, Error::TimedOut { .. }), "{unanswered}");
    assert!(unanswered.to_string().contains("30ms"), "{unanswered}");
}

#[test]
fn the_peer_of_a_connect_that_was_given_up_cannot_accept_it() {
    let endpoint = endpoint();
    let (listener, address) = listener(&endpoint);
    let mut connecting = connect(&endpoint, address);
    let incoming = endpoint.block_on(async {
        let mut accepting = listener.accept();
        std::future::poll_fn(|context| {
            assert!(
                std::pin::Pin::new(&mut connecting)
                    .poll(context)
                    .is_pending()
            );
            std::pin::Pin::new(&mut accepting).poll(context)
        })
        .await
    });
    let incoming = incoming.unwrap().unwrap().timeout(DEADLINE);
    drop(connecting);
    let gone = incoming.accept().wait().unwrap_err();
    assert!(
        !matches!(gone, Error::TimedOut { .. }),
        "the peer was not told: {gone}"
    );
}

#[test]
fn a_listener_that_goes_rejects_who_waits() {
    let (listener, address) = listener(&endpoint());
    let clients = [(); 3].map(|()| thread::spawn(move || connect(&endpoint(), address).wait()));
    let first = incoming(&listener);
    // The others have been heard, or will find nobody.
    drop(listener);
    drop(first);
    for client in clients {
        let refused = client.join().unwrap().unwrap_err();
        assert!(matches!(refused, Error::Rejected { .. }), "{refused}");
    }
}

#[test]
fn a_dropped_connection_ends_at_its_peer() {
    let (server, client) = connected();
    drop(client);
    server.disconnected().within(DEADLINE).wait().unwrap();
}

#[test]
fn threads_wait_on_one_endpoint_and_none_misses_what_another_served() {
    const THREADS: usize = 6;
    let shared = endpoint();
    let (listener, address) = listener(&shared);
    let clients: Vec<_> = (0..THREADS)
        .map(|i| {
            let shared = shared.clone();
            thread::spawn(move || {
                let connection = connect(&shared, address).wait().unwrap();
                for round in 0..50 {
                    let bytes = [u8::try_from(i * 30 + round % 7).unwrap(); 32];
                    let receive = connection
                        .queue_pair()
                        .receive_buffer(connection.buffer(32).unwrap());
                    let sent = connection
                        .queue_pair()
                        .submit_buffer(Operation::Send, connection.buffer_of(&bytes).unwrap());
                    connection.wait(sent.unwrap()).unwrap().0.unwrap();
                    let (result, came) = connection.wait(receive.unwrap()).unwrap();
                    result.unwrap();
                    assert_eq!(*came, bytes);
                }
                connection.disconnect().wait().unwrap();
            })
        })
        .collect();
    let servers: Vec<_> = (0..THREADS)
        .map(|_| {
            let prepared = incoming(&listener).prepare().unwrap();
            thread::spawn(move || echo(prepared))
        })
        .collect();
    for thread in clients.into_iter().chain(servers) {
        thread.join().unwrap();
    }
}

/// Sends back what comes, until the peer disconnects.
fn echo(prepared: ferroce::endpoint::Prepared) {
    let first = {
        let early = prepared.connection();
        early.queue_pair().receive_buffer(early.buffer(32).unwrap())
    };
    let connection = prepared.establish().wait().unwrap();
    let mut receive = first.unwrap();
    loop {
        let (result, buffer) = connection.wait(receive).unwrap();
        if result.is_err() {
            return;
        }
        let again = connection.buffer(32).unwrap();
        receive = connection.queue_pair().receive_buffer(again).unwrap();
        let sent = connection
            .queue_pair()
            .submit_buffer(Operation::Send, buffer);
        // The peer may have the last message, and disconnect, before its acknowledgement is here:
        // that SEND is flushed. It checks what comes.
        if connection.wait(sent.unwrap()).unwrap().0.is_err() {
            return;
        }
    }
}

struct Noted(AtomicBool);

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn an_event_loop_needs_the_descriptor_only() {
    let endpoint = endpoint();
    let (listener, address) = listener(&endpoint);
    let noted = Arc::new(Noted(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&noted));
    let mut both = pin!(async {
        let mut connecting = connect(&endpoint, address);
        let mut accepting =
            pin!(async { listener.accept().await?.timeout(DEADLINE).accept().await });
        let (mut client, mut server) = (None, None);
        std::future::poll_fn(|context| {
            if client.is_none()
                && let Poll::Ready(made) = std::pin::Pin::new(&mut connecting).poll(context)
            {
                client = Some(made.unwrap());
            }
            if server.is_none()
                && let Poll::Ready(made) = accepting.as_mut().poll(context)
            {
                server = Some(made.unwrap());
            }
            match (client.take(), server.take()) {
                (Some(client), Some(server)) => Poll::Ready((client, server)),
                (one, other) => {
                    (client, server) = (one, other);
                    Poll::Pending
                }
            }
        })
        .await
    });
    let begun = Instant::now();
    endpoint.dispatch().unwrap();
    let (client, server) = loop {
        if noted.0.swap(false, Ordering::AcqRel)
            && let Poll::Ready(pair) = both.as_mut().poll(&mut Context::from_waker(&waker))
        {
            break pair;
        }
        assert!(begun.elapsed() < DEADLINE, "an event was lost");
        let mut entry = [PollFd::new(endpoint.as_fd(), PollFlags::POLLIN)];
        poll(&mut entry, PollTimeout::from(10_000_u16)).unwrap();
        endpoint.dispatch().unwrap();
    };
    send(&client, &server, b"through one descriptor");
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn tokio_serves_many_connections_in_one_thread() {
    const CLIENTS: usize = 100;
    let endpoint = endpoint();
    let driver = tokio::spawn(endpoint.driver().run_on_tokio());
    let (listener, address) = listener(&endpoint);
    let work = async {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..CLIENTS {
            let connector = connector(&endpoint).private_data(&number.to_be_bytes());
            tasks.spawn(async move {
                let connection = connector.connect(address).await.unwrap();
                connection.disconnected().await.unwrap();
            });
        }
        let mut seen = [false; CLIENTS];
        for _ in 0..CLIENTS {
            let incoming = listener.accept().await.unwrap();
            let said = &incoming.peer_parameters().private_data;
            let number = usize::from_be_bytes(*said.first_chunk().unwrap());
            assert!(!std::mem::replace(&mut seen[number], true), "came twice");
            tasks.spawn(async move {
                let connection = incoming.timeout(DEADLINE).accept().await.unwrap();
                connection.disconnect().await.unwrap();
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    };
    tokio::time::timeout(DEADLINE, work).await.unwrap();
    driver.abort();
}

#[test]
fn a_connector_with_a_source_connects_from_there() {
    let endpoint = endpoint();
    let (listener, address) = listener(&endpoint);
    let connector = connector(&endpoint).source((common::address(), 0));
    let client = thread::spawn(move || connector.connect(address).wait());
    let incoming = incoming(&listener);
    let from = incoming.peer_addr().unwrap();
    assert_eq!(from.ip(), common::address());
    let server = incoming.accept().wait().unwrap();
    send(&client.join().unwrap().unwrap(), &server, b"from there");
    // An address that is not of this host is none to connect from.
    let foreign = endpoint.connector().source("192.0.2.1:0");
    let refused = foreign.connect(address).wait().unwrap_err();
    assert!(!matches!(refused, Error::TimedOut { .. }), "{refused}");
}

#[test]
fn both_sides_say_how_long_they_wait_for_an_acknowledgement() {
    let (listener, address) = listener(&endpoint());
    let client = thread::spawn(move || {
        let connector = connector(&endpoint()).type_of_service(0x20);
        let beyond = connector.clone().ack_timeout(32).connect(address).wait();
        let connection = connector.ack_timeout(19).connect(address).wait();
        (beyond, connection)
    });
    let server = incoming(&listener).ack_timeout(18).accept().wait().unwrap();
    let (beyond, client) = client.join().unwrap();
    assert!(matches!(beyond, Err(Error::Misuse(_))), "{beyond:?}");
    let client = client.unwrap();
    let of = |connection: &Connection| {
        let info = connection.queue_pair().query().unwrap();
        (info.timeout, info.path.traffic_class)
    };
    assert_eq!((of(&client).0, of(&server).0), (19, 18));
    if !on_rxe() {
        // The connector says it for both.
        assert_eq!((of(&client).1, of(&server).1), (0x20, 0x20));
    }
    send(&client, &server, b"in time");
}

#[test]
fn a_listener_for_ipv6_leaves_the_port_of_ipv4_to_another() {
    let here = endpoint();
    let only_v6 = here.listener().ipv6_only(true).listen("[::]:0").unwrap();
    // With that port of all families the other could not be bound.
    let v4 = here.listen((Ipv4Addr::UNSPECIFIED, only_v6.port()));
    let both = here.listen("[::]:0").unwrap();
    let taken = here.listen((Ipv4Addr::UNSPECIFIED, both.port()));
    assert!(taken.is_err());
    assert_eq!(v4.unwrap().port(), only_v6.port());
}

#[test]
fn a_connection_shares_the_port_that_it_comes_from_if_all_allow_it() {
    let holder = Id::new(&provider().event_channel().unwrap()).unwrap();
    holder.set_reuse_address(true).unwrap();
    holder.bind((address(), 0)).unwrap();
    let from = holder.local_addr().unwrap();
    let (listener, to) = listener(&endpoint());
    let alone = connector(&endpoint()).source(from).connect(to).wait();
    assert_eq!(alone.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    let client = thread::spawn(move || {
        let connector = connector(&endpoint()).source(from);
        connector.reuse_address(true).connect(to).wait()
    });
    let server = incoming(&listener).accept().wait().unwrap();
    assert_eq!(server.peer_addr().unwrap(), from);
    send(&client.join().unwrap().unwrap(), &server, b"from there");
}

#[test]
fn sizes_and_times_beyond_everything_are_errors_or_no_limit() {
    let (listener, address) = listener(&endpoint());
    let client = thread::spawn(move || {
        let connector = connector(&endpoint());
        let huge = ferroce::qp::QueuePairCapacities::new(u32::MAX, 1 << 31);
        let refused = connector.clone().capacities(huge).connect(address).wait();
        let limited = matches!(refused.unwrap_err(), Error::Limit { .. });
        let connected = connector.connect(address).within(Duration::MAX).wait();
        (limited, connected.unwrap())
    });
    let incoming = listener.accept().within(Duration::MAX).wait().unwrap();
    let server = incoming.timeout(Duration::MAX).accept().wait().unwrap();
    let (limited, connection) = client.join().unwrap();
    assert!(limited);
    send(&connection, &server, b"no limit");
}
