//! Work as futures: driven by a thread, by an event loop, by tokio; dropped at any time.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::future::Future;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::pair::{End, connected};
use common::{DEADLINE, block_on};
use ferroce::Error;
use ferroce::cq::{WorkKind, WorkStatus};
use ferroce::mem::Buffer;
use ferroce::qp::Operation;

/// Drives an end's queue in a thread until it is dropped.
struct Driven {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Driven {
    fn new(end: &End) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (driver, told) = (end.completions.driver().unwrap(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let interval = Duration::from_millis(10);
            driver
                .run_blocking(interval, || told.load(Ordering::Acquire))
                .unwrap();
        });
        let thread = Some(thread);
        Self { stop, thread }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn buffer(end: &End, bytes: &[u8]) -> Buffer {
    let mut buffer = Buffer::new(&end.domain, bytes.len().max(64)).unwrap();
    buffer.fill_from(bytes).unwrap();
    buffer
}

#[test]
fn a_buffer_comes_back_with_what_came() {
    let (server, client) = connected();
    let _drivers = [Driven::new(&server), Driven::new(&client)];
    for round in 0..100_u8 {
        let bytes = vec![round; usize::from(round) + 1];
        let receive = server
            .queue_pair
            .receive_buffer(buffer(&server, &[0; 128]))
            .unwrap();
        let send = client
            .queue_pair
            .submit_buffer(Operation::Send, buffer(&client, &bytes))
            .unwrap();
        let (sent, back) = block_on(send);
        assert_eq!(sent.unwrap().what, WorkKind::Send);
        assert_eq!(*back, *bytes);
        let (received, came) = block_on(receive);
        assert_eq!(received.unwrap().what, WorkKind::Receive);
        assert_eq!((*came == *bytes, came.capacity()), (true, 128));
    }
}

#[test]
fn what_a_dropped_future_worked_on_stays_until_the_device_is_done() {
    let (server, client) = connected();
    let region = client.region(&[7; 4096]);
    // The peer has no receive: the work waits in the device when the future goes, and the program's
    // handle of the memory too.
    drop(
        client
            .queue_pair
            .submit(Operation::Send, &[region.slice(0..4096).unwrap()])
            .unwrap(),
    );
    drop(region);
    drop(
        client
            .queue_pair
            .submit_buffer(Operation::Send, buffer(&client, &[9; 4096]))
            .unwrap(),
    );
    for expected in [7, 9] {
        let room = server.region(&[0; 4096]);
        server
            .queue_pair
            .post_receive(1, &[room.slice(0..4096).unwrap()])
            .unwrap();
        server.completions.wait().unwrap().result.unwrap();
        let mut came = [0; 4096];
        room.read(0, &mut came).unwrap();
        assert!(came.iter().all(|&byte| byte == expected));
    }
}

/// Work completes at all moments of a driver's turn. The driver sleeps until there is an event, so
/// a completion whose event is lost, and which none follows, is never seen.
#[test]
fn what_completes_while_a_driver_looks_is_brought() {
    let (server, client) = connected();
    let (from, to) = (client.region(&[5; 64]), server.region(&[0; 64]));
    let there = to.remote().at(0);
    let stop = Arc::new(AtomicBool::new(false));
    let (driver, told) = (client.completions.driver().unwrap(), Arc::clone(&stop));
    let thread = thread::spawn(move || {
        let forever = Duration::from_secs(3600);
        driver.run_blocking(forever, || told.load(Ordering::Acquire))
    });
    let write = || {
        let bytes = [from.slice(0..64).unwrap()];
        client.queue_pair.submit(Operation::Write(there), &bytes)
    };
    let rounds = if common::on_rxe() { 500 } else { 20_000 };
    for round in 0..rounds {
        let first = write().unwrap();
        // From nothing to what a turn takes.
        for _ in 0..round % 300 * 10 {
            std::hint::spin_loop();
        }
        let second = write().unwrap();
        block_on(first).unwrap();
        block_on(second).unwrap();
    }
    stop.store(true, Ordering::Release);
    // Wakes the driver if it sleeps. If it has seen `stop` in the turn before, it is gone, and
    // nothing completes this write's future.
    drop(write().unwrap());
    thread.join().unwrap().unwrap();
}

#[test]
fn futures_and_pollers_share_a_queue() {
    let (server, client) = connected();
    let region = client.region(&[1; 64]);
    for tag in 0..4 {
        let room = server.region(&[0; 64]);
        server
            .queue_pair
            .post_receive(tag, &[room.slice(0..64).unwrap()])
            .unwrap();
    }
    let mut futures = Vec::new();
    for tag in [10, 11] {
        let bytes = [region.slice(0..64).unwrap()];
        client
            .queue_pair
            .post_send(tag, Operation::Send, &bytes)
            .unwrap();
        futures.push(client.queue_pair.submit(Operation::Send, &bytes).unwrap());
    }
    // A poll returns its own completions, and brings the futures theirs.
    assert_eq!(client.completions.wait().unwrap().tag, 10);
    assert_eq!(client.completions.wait().unwrap().tag, 11);
    let begun = Instant::now();
    for future in futures {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                assert_eq!(result.unwrap().what, WorkKind::Send);
                break;
            }
            assert!(begun.elapsed() < DEADLINE, "no completion");
            assert!(client.completions.poll().unwrap().is_none());
        }
    }
}

#[test]
fn work_of_a_queue_pair_that_goes_was_flushed() {
    let (server, client) = connected();
    let receive = server
        .queue_pair
        .receive_buffer(buffer(&server, b"untouched"))
        .unwrap();
    drop(server.queue_pair);
    let (result, back) = block_on(receive);
    assert_eq!(result.unwrap_err().status, WorkStatus::FLUSHED);
    assert_eq!(&*back, b"untouched");
    drop(client);
}

#[test]
fn refused_work_gives_the_buffer_back() {
    let (_server, client) = connected();
    let (_other_server, other) = connected();
    let foreign = buffer(&other, b"of another domain");
    let refused = client
        .queue_pair
        .submit_buffer(Operation::Send, foreign)
        .unwrap_err();
    assert!(matches!(refused.error, Error::Misuse(_)));
    assert_eq!(&*refused.buffer, b"of another domain");
}

#[test]
fn work_refused_while_another_thread_resets_gives_the_buffer_back() {
    let (_server, client) = connected();
    client.queue_pair.reset().unwrap();
    thread::scope(|scope| {
        let posting = scope.spawn(|| {
            let mut bytes = buffer(&client, b"mine");
            for _ in 0..2_000 {
                // In RESET nothing is posted.
                let refused = client.queue_pair.submit_buffer(Operation::Send, bytes);
                bytes = refused.unwrap_err().buffer;
                assert_eq!(&*bytes, b"mine");
            }
        });
        while !posting.is_finished() {
            client.queue_pair.reset().unwrap();
        }
    });
}

#[test]
fn a_queue_has_one_driver_and_no_sleepers_beside_it() {
    let (server, _client) = connected();
    let driver = server.completions.driver().unwrap();
    assert!(matches!(
        server.completions.driver().unwrap_err(),
        Error::Misuse(_)
    ));
    assert!(matches!(
        server.completions.wait().unwrap_err(),
        Error::Misuse(_)
    ));
    drop(driver);
    drop(server.completions.driver().unwrap());
}

/// A task that owns futures, of which a waker is the last owner.
struct Owning {
    _futures: std::sync::Mutex<Vec<ferroce::qp::Pending>>,
}

impl std::task::Wake for Owning {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_may_be_the_last_owner_of_other_futures() {
    let (_server, client) = connected();
    let region = client.region(&[1; 8]);
    let submit = || {
        let bytes = [region.slice(0..8).unwrap()];
        client.queue_pair.submit(Operation::Send, &bytes).unwrap()
    };
    let owning = || {
        let _futures = vec![submit(), submit()].into();
        Waker::from(Arc::new(Owning { _futures }))
    };
    let (mut replaced, mut abandoned) = (submit(), submit());
    // A thread that blocks here blocks for ever: another one tells whether it went on.
    let (done, waiting) = std::sync::mpsc::channel();
    let [first, second] = [owning(), owning()];
    thread::spawn(move || {
        let poll = |future: &mut ferroce::qp::Pending, waker: Waker| {
            let answer = std::pin::Pin::new(future).poll(&mut Context::from_waker(&waker));
            assert!(answer.is_pending());
        };
        poll(&mut replaced, first);
        poll(&mut replaced, Waker::noop().clone());
        poll(&mut abandoned, second);
        drop(abandoned);
        done.send(()).unwrap();
    });
    waiting.recv_timeout(DEADLINE).unwrap();
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn tokio_serves_both_ends_in_one_thread() {
    let (server, client) = connected();
    let drivers = [
        tokio::spawn(server.completions.driver().unwrap().run_on_tokio()),
        tokio::spawn(client.completions.driver().unwrap().run_on_tokio()),
    ];
    let talk = async {
        for round in 0..100_u8 {
            let receive = server
                .queue_pair
                .receive_buffer(buffer(&server, &[0; 64]))
                .unwrap();
            let send = client
                .queue_pair
                .submit_buffer(Operation::Send, buffer(&client, &[round; 33]))
                .unwrap();
            let ((sent, _), (received, came)) = tokio::join!(send, receive);
            sent.unwrap();
            received.unwrap();
            assert_eq!(*came, [round; 33]);
        }
    };
    tokio::time::timeout(DEADLINE, talk).await.unwrap();
    for driver in drivers {
        driver.abort();
    }
}

/// A task that polls a queue when it is woken, as some executors do at once.
struct Polling {
    queue: ferroce::cq::CompletionQueue,
    woken: std::sync::mpsc::Sender<ferroce::Result<Option<ferroce::cq::Completion>>>,
}

impl std::task::Wake for Polling {
    fn wake(self: Arc<Self>) {
        self.woken.send(self.queue.poll()).unwrap();
    }
}

#[test]
fn a_waker_may_poll_the_queue_that_woke_it() {
    let (server, client) = connected();
    let region = server.region(&[0; 8]);
    let receiving = server
        .queue_pair
        .submit_receive(&[region.slice(0..8).unwrap()]);
    let mut receiving = pin!(receiving.unwrap());
    let mut waiting = pin!(client.completions.next());
    let (woken, told) = std::sync::mpsc::channel();
    let waker = |end: &End| {
        Waker::from(Arc::new(Polling {
            queue: end.completions.clone(),
            woken: woken.clone(),
        }))
    };
    let (of_server, of_client) = (waker(&server), waker(&client));
    let of_server = receiving
        .as_mut()
        .poll(&mut Context::from_waker(&of_server));
    let of_client = waiting.as_mut().poll(&mut Context::from_waker(&of_client));
    assert!(of_server.is_pending() && of_client.is_pending());
    let bytes = [1; 8];
    let from = client.region(&bytes);
    let from = [from.slice(0..8).unwrap()];
    client
        .queue_pair
        .post_send(7, Operation::Send, &from)
        .unwrap();
    // A thread that blocks here blocks for ever, so other threads drive.
    for queue in [server.completions.clone(), client.completions.clone()] {
        thread::spawn(move || {
            let driver = queue.driver().unwrap();
            driver.run_blocking(Duration::from_millis(1), || false)
        });
    }
    let polled = [(); 2].map(|()| told.recv_timeout(DEADLINE).unwrap().unwrap());
    // The future has its completion; the waker of the other one took what it was woken for.
    assert_eq!(
        polled.iter().flatten().map(|c| c.tag).collect::<Vec<_>>(),
        [7]
    );
    let received = receiving
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert!(received.is_ready());
}

#[test]
fn tagged_completions_are_awaited_in_their_order() {
    let (server, client) = connected();
    let _drivers = [Driven::new(&server), Driven::new(&client)];
    let (from, to) = (client.region(&[1; 8]), server.region(&[0; 8]));
    // One task waits before anything is posted, another one is given up.
    let mut waiting = pin!(server.completions.next());
    drop(server.completions.next());
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    for tag in 0..4 {
        let bytes = [to.slice(0..8).unwrap()];
        server.queue_pair.post_receive(tag, &bytes).unwrap();
        let bytes = [from.slice(0..8).unwrap()];
        client
            .queue_pair
            .post_send(tag, Operation::Send, &bytes)
            .unwrap();
    }
    assert_eq!(block_on(waiting).unwrap().tag, 0);
    for tag in 1..4 {
        assert_eq!(block_on(server.completions.next()).unwrap().tag, tag);
    }
    for tag in 0..4 {
        assert_eq!(block_on(client.completions.next()).unwrap().tag, tag);
    }
}

#[test]
fn completions_that_were_not_asked_for_are_there_for_others() {
    let (server, client) = connected();
    for tag in 0..2 {
        server.queue_pair.post_receive(tag, &[]).unwrap();
        let posted = client.queue_pair.post_send(tag, Operation::Send, &[]);
        posted.unwrap();
        client.completions.wait().unwrap().result.unwrap();
    }
    let mut taken = server.completions.completions();
    let begun = Instant::now();
    while taken.next().unwrap().is_none() {
        assert!(begun.elapsed() < DEADLINE, "nothing came");
    }
    // The client has both acknowledgements, so both are there, and one was asked for.
    let mut next = pin!(server.completions.next());
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(second) = next.as_mut().poll(&mut context) else {
        panic!("what was not asked for is not to be had");
    };
    assert_eq!(second.unwrap().tag, 1);
    assert!(taken.next().unwrap().is_none());
}

#[cfg(feature = "futures-core")]
#[test]
fn a_queue_is_a_stream_of_completions() {
    use futures_core::Stream;
    let (server, client) = connected();
    let _driver = Driven::new(&client);
    server.queue_pair.post_receive(1, &[]).unwrap();
    client
        .queue_pair
        .post_send(2, Operation::Send, &[])
        .unwrap();
    let mut queue = client.completions.clone();
    let next = std::future::poll_fn(|context| std::pin::Pin::new(&mut queue).poll_next(context));
    assert_eq!(block_on(next).unwrap().unwrap().tag, 2);
}

#[test]
fn solicited_messages_and_failures_make_events_where_others_do_not() {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let (server, client) = connected();
    server.completions.set_solicited_only(true);
    let driver = server.completions.driver().unwrap();
    let readable = |limit: Duration| {
        let limit = PollTimeout::try_from(limit).unwrap();
        poll(&mut [PollFd::new(driver.as_fd(), PollFlags::POLLIN)], limit).unwrap() == 1
    };
    // What is still to be done for the device makes it readable for a moment; an event stays.
    let falls_silent = || {
        let begun = Instant::now();
        while readable(Duration::ZERO) {
            assert!(begun.elapsed() < DEADLINE, "an event has come");
            thread::yield_now();
        }
    };
    for tag in 0..3 {
        server.queue_pair.post_receive(tag, &[]).unwrap();
    }
    driver.dispatch().unwrap();
    let send = |work: ferroce::qp::Work<ferroce::transport::Rc>| {
        client.queue_pair.post_send(9, work, &[]).unwrap();
        client.completions.wait().unwrap().result.unwrap();
    };
    send(Operation::Send.into());
    falls_silent();
    send(ferroce::qp::Work::from(Operation::Send).solicited());
    assert!(readable(DEADLINE));
    driver.dispatch().unwrap();
    let tags = [(); 2].map(|()| server.completions.poll().unwrap().unwrap().tag);
    assert_eq!(tags, [0, 1]);
    falls_silent();
    server.queue_pair.flush().unwrap();
    assert!(readable(DEADLINE));
}
