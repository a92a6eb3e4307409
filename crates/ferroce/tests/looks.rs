//! Drivers that look for completions before they sleep: a thread or loop beside one misses nothing,
//! and a driver to which nothing comes takes no processor.
#![cfg(feature = "tokio")]
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::cell::Cell;
use std::future::Future;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::DEADLINE;
use common::door::{connector, endpoint, incoming, listener};
use ferroce::endpoint::{Connection, Endpoint};
use ferroce::mem::Buffer;
use ferroce::qp::{Operation, PendingBuffer};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};

/// Both ends of a connection, of endpoints that nothing serves.
fn pair() -> (Connection, Arc<Connection>) {
    let (here, there) = (endpoint(), endpoint());
    let (listener, address) = listener(&here);
    let client = thread::spawn(move || connector(&there).connect(address).wait().unwrap());
    let server = incoming(&listener).accept().wait().unwrap();
    (server, Arc::new(client.join().unwrap()))
}

fn receive(to: &Connection) -> PendingBuffer {
    let buffer = to.buffer(16).unwrap();
    to.queue_pair().receive_buffer(buffer).unwrap()
}

fn post(from: &Connection, bytes: &[u8]) -> PendingBuffer {
    let buffer = from.buffer_of(bytes).unwrap();
    let queue_pair = from.queue_pair();
    queue_pair.submit_buffer(Operation::Send, buffer).unwrap()
}

/// Sends from an endpoint that this thread serves.
fn send(from: &Connection, bytes: &[u8]) {
    from.wait(post(from, bytes)).unwrap().0.unwrap();
}

fn send_later(from: &Arc<Connection>, bytes: &'static [u8]) -> thread::JoinHandle<()> {
    let from = Arc::clone(from);
    thread::spawn(move || send(&from, bytes))
}

async fn done(work: PendingBuffer) -> Buffer {
    let (result, buffer) = work.await;
    result.unwrap();
    buffer
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// A task that has the first message while the driver looks for more keeps the runtime's only
/// thread until `end` has the second message, which `begin` has begun to wait for elsewhere.
fn beside_a_driver_that_looks<T>(
    begin: impl FnOnce(Endpoint, PendingBuffer) -> T,
    end: impl FnOnce(T),
) {
    let (here, there) = pair();
    let [first, second] = [receive(&here), receive(&here)];
    let waiting = begin(here.endpoint(), second);
    runtime().block_on(async {
        let driver = tokio::spawn(here.endpoint().driver().run_on_tokio());
        // The driver sleeps before anything comes.
        tokio::task::yield_now().await;
        let sending = send_later(&there, b"first");
        assert_eq!(*done(first).await, *b"first");
        sending.join().unwrap();
        let sending = send_later(&there, b"second");
        end(waiting);
        sending.join().unwrap();
        driver.abort();
    });
}

/// Takes the second message in a loop that has dispatched before, and waits for the descriptor.
fn take_in_a_loop(endpoint: &Endpoint, second: PendingBuffer) {
    let mut second = pin!(done(second));
    let begun = Instant::now();
    loop {
        let mut entry = [PollFd::new(endpoint.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut entry, PollTimeout::from(10_000_u16)).unwrap();
        assert!(ready > 0 && begun.elapsed() < DEADLINE, "it sleeps on");
        endpoint.dispatch().unwrap();
        let context = &mut Context::from_waker(Waker::noop());
        if let Poll::Ready(message) = second.as_mut().poll(context) {
            return assert_eq!(*message, *b"second");
        }
    }
}

/// Waits for the second message in a thread.
fn wait_in_a_thread(endpoint: Endpoint, second: PendingBuffer) -> mpsc::Receiver<Buffer> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(endpoint.block_on(done(second)).unwrap()));
    told
}

fn take_of_the_thread(told: mpsc::Receiver<Buffer>) {
    let message = told.recv_timeout(DEADLINE).expect("the thread sleeps on");
    assert_eq!(*message, *b"second");
}

#[test]
fn a_thread_that_waits_beside_a_driver_that_looks_misses_nothing() {
    beside_a_driver_that_looks(wait_in_a_thread, take_of_the_thread);
}

#[test]
fn a_loop_beside_a_driver_that_looks_misses_nothing() {
    let begin = |endpoint: Endpoint, second| {
        endpoint.dispatch().unwrap();
        (endpoint, second)
    };
    beside_a_driver_that_looks(begin, |(endpoint, second)| {
        take_in_a_loop(&endpoint, second)
    });
}

#[test]
fn what_a_driver_leaves_in_the_middle_of_a_look_is_found_after_it() {
    let (here, there) = pair();
    let [first, second] = [receive(&here), receive(&here)];
    let soon = async || {
        tokio::task::yield_now().await;
        Ok(())
    };
    let mut driving = Box::pin(here.endpoint().driver().run(soon));
    let sending = send_later(&there, b"first");
    assert_eq!(*drive(driving.as_mut(), done(first)), *b"first");
    drop(driving);
    sending.join().unwrap();
    let sending = send_later(&there, b"second");
    take_of_the_thread(wait_in_a_thread(here.endpoint(), second));
    sending.join().unwrap();
}

/// Polls a driver until a future is ready.
fn drive<T>(
    mut driving: Pin<&mut impl Future<Output = ferroce::Result<()>>>,
    until: impl Future<Output = T>,
) -> T {
    let context = &mut Context::from_waker(Waker::noop());
    let (mut until, begun) = (pin!(until), Instant::now());
    loop {
        if let Poll::Ready(out) = until.as_mut().poll(context) {
            return out;
        }
        assert!(begun.elapsed() < DEADLINE, "the driver brings nothing");
        assert!(driving.as_mut().poll(context).is_pending());
    }
}

#[test]
fn a_driver_whose_descriptor_always_seems_readable_brings_everything() {
    let (here, there) = pair();
    let both = [receive(&here), receive(&here)];
    let always = async || Ok(());
    let mut driving = pin!(here.endpoint().driver().run(always));
    let sending = thread::spawn(move || {
        send(&there, b"first");
        send(&there, b"second");
        there
    });
    let [first, second] = both.map(done);
    drive(driving.as_mut(), async {
        assert_eq!(*first.await, *b"first");
        assert_eq!(*second.await, *b"second");
    });
    sending.join().unwrap();
}

/// Looks become rare where they bring nothing; the pauses do not.
#[test]
fn a_driver_whose_descriptor_always_seems_readable_lets_others_run_each_time() {
    let (here, _there) = pair();
    let (waits, polls) = (Cell::new(0), Cell::new(0));
    let always = async || {
        waits.set(waits.get() + 1);
        assert!(waits <= polls, "it goes on without a pause");
        Ok(())
    };
    let mut driving = pin!(here.endpoint().driver().run(always));
    let context = &mut Context::from_waker(Waker::noop());
    while polls.get() < 2000 {
        polls.set(polls.get() + 1);
        assert!(driving.as_mut().poll(context).is_pending());
    }
    assert!(waits.get() > 100);
}

/// The task never sleeps, so the thread never looks before a sleep.
#[test]
fn a_thread_whose_task_is_always_awake_brings_everything() {
    let (here, there) = pair();
    let both = [receive(&here), receive(&here)];
    let (first_came, is_first_there) = mpsc::channel();
    let sending = thread::spawn(move || {
        send(&there, b"first");
        is_first_there.recv_timeout(DEADLINE).unwrap();
        send(&there, b"second");
        there
    });
    let [first, second] = both.map(done);
    let awake = async {
        let begun = Instant::now();
        while begun.elapsed() < DEADLINE {
            tokio::task::yield_now().await;
        }
    };
    let messages = async {
        assert_eq!(*first.await, *b"first");
        first_came.send(()).unwrap();
        assert_eq!(*second.await, *b"second");
    };
    let first_ready = async {
        tokio::select! {
            () = messages => true,
            () = awake => false,
        }
    };
    let came = here.endpoint().block_on(first_ready).unwrap();
    assert!(came, "the second message stays away");
    sending.join().unwrap();
}

/// A thread that has taken an event and goes on at once leaves no queue unarmed for a driver.
#[test]
fn a_driver_beside_a_thread_that_computes_misses_nothing() {
    for _ in 0..50 {
        let (here, there) = pair();
        let [first, second] = [receive(&here), receive(&here)];
        let (tell, told) = mpsc::channel();
        let (driver_sleeps, is_asleep) = mpsc::channel();
        let endpoint = here.endpoint();
        let driving = thread::spawn(move || {
            runtime().block_on(async {
                let driver = tokio::spawn(endpoint.driver().run_on_tokio());
                tokio::task::yield_now().await;
                driver_sleeps.send(()).unwrap();
                tell.send(done(second).await).unwrap();
                driver.abort();
            });
        });
        is_asleep.recv().unwrap();
        let sending = send_later(&there, b"first");
        let message = here.endpoint().block_on(async {
            assert_eq!(*done(first).await, *b"first");
            let sending = send_later(&there, b"second");
            let message = told.recv_timeout(DEADLINE).expect("the driver sleeps on");
            sending.join().unwrap();
            message
        });
        assert_eq!(*message.unwrap(), *b"second");
        sending.join().unwrap();
        driving.join().unwrap();
    }
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .unwrap()
        .into()
}

/// A look lasts for 50 µs. The first one is always tried, whatever else the machine does.
#[test]
fn a_driver_to_which_nothing_comes_takes_no_processor() {
    const IDLE: Duration = Duration::from_millis(300);
    let (here, there) = pair();
    let message = receive(&here);
    let taken = runtime().block_on(async {
        let driver = tokio::spawn(here.endpoint().driver().run_on_tokio());
        let sending = send_later(&there, b"the only one");
        assert_eq!(*done(message).await, *b"the only one");
        sending.join().unwrap();
        let before = processor_time();
        tokio::time::sleep(IDLE).await;
        let taken = processor_time() - before;
        driver.abort();
        taken
    });
    assert!(taken < IDLE / 20, "{taken:?} in {IDLE:?}");
}
