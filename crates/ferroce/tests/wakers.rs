//! Wakers are anyone's code: they may come back to what woke them, own other futures, and panic.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use common::DEADLINE;
use common::door::{connect, connector, endpoint, incoming, listener};
use ferroce::endpoint::{Awaitable, Connection, Endpoint, Incoming, Listener};
use ferroce::qp::Operation;
use ferroce::stream::{Stream, StreamRoom};

/// A task that serves an endpoint when it is woken, and when it ends.
struct Serving {
    endpoint: Endpoint,
    woken: Sender<&'static str>,
    what: &'static str,
}

impl Wake for Serving {
    fn wake(self: Arc<Self>) {
        self.endpoint.dispatch().unwrap();
        self.woken.send(self.what).unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.endpoint.dispatch().unwrap();
    }
}

/// Runs what may block for ever in another thread, and waits for it with a deadline.
fn elsewhere(work: impl FnOnce() + Send + 'static) {
    let (done, waiting) = channel();
    thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    waiting.recv_timeout(DEADLINE).unwrap();
}

/// Until a task was woken.
fn until(told: &Receiver<&'static str>, what: &str) {
    while told.recv_timeout(DEADLINE).unwrap() != what {}
}

fn pending<F: Future + Unpin>(future: &mut F, waker: &Waker) {
    let polled = Pin::new(future).poll(&mut Context::from_waker(waker));
    assert!(polled.is_pending());
}

/// A wait for a connection, with a limit that is over soon, but was not when it was first polled:
/// on a slow machine that takes a while.
fn timed(listener: &'static Listener, waker: &Waker) -> Awaitable<'static, Incoming> {
    let mut limit = Duration::from_millis(1);
    loop {
        let mut late = listener.accept().within(limit);
        let polled = Pin::new(&mut late).poll(&mut Context::from_waker(waker));
        if polled.is_pending() {
            return late;
        }
        limit *= 2;
    }
}

/// Wakers that serve an endpoint, by what they wait for, and what tells of them.
fn serving(
    endpoint: &Endpoint,
) -> (
    impl Fn(&'static str) -> Waker + use<>,
    Receiver<&'static str>,
) {
    let (woken, told) = channel();
    let endpoint = endpoint.clone();
    let waker = move |what| {
        let (endpoint, woken) = (endpoint.clone(), woken.clone());
        Waker::from(Arc::new(Serving {
            endpoint,
            woken,
            what,
        }))
    };
    (waker, told)
}

/// Both ends of a connection, of these endpoints.
fn connected(server: &Endpoint, client: &Endpoint) -> (Connection, Connection) {
    let (listener, address) = listener(server);
    let client = client.clone();
    let asking = thread::spawn(move || connect(&client, address).wait().unwrap());
    let server = incoming(&listener).accept().wait().unwrap();
    (server, asking.join().unwrap())
}

#[test]
fn a_waker_may_serve_the_endpoint_that_woke_it() {
    let (here, there) = (endpoint(), endpoint());
    let (near, far) = connected(&here, &there);
    let (listener, address) = listener(&here);
    let listener: &'static Listener = Box::leak(Box::new(listener));
    let (waker, told) = serving(&here);
    // A time limit, an event of the connection manager, and a completion.
    let late = timed(listener, &waker("limit"));
    let mut asked = listener.accept();
    let mut received = near
        .queue_pair()
        .receive_buffer(near.buffer(64).unwrap())
        .unwrap();
    pending(&mut received, &waker("completion"));
    let serving = here.clone();
    thread::spawn(move || {
        let driver = serving.driver();
        driver.run_blocking(Duration::from_millis(1), || false)
    });
    until(&told, "limit");
    drop(late);
    pending(&mut asked, &waker("event"));
    let asking = thread::spawn(move || connect(&there, address).wait().map(drop));
    until(&told, "event");
    let bytes = far.buffer_of(b"wake").unwrap();
    let sent = far.queue_pair().submit_buffer(Operation::Send, bytes);
    far.wait(sent.unwrap()).unwrap().0.unwrap();
    until(&told, "completion");
    let Poll::Ready(Ok(incoming)) =
        Pin::new(&mut asked).poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("woken for nothing");
    };
    incoming.reject(&[]).unwrap();
    asking.join().unwrap().unwrap_err();
}

/// A task that owns what it waited for once.
struct Owning {
    _waits: Mutex<Vec<Awaitable<'static, ()>>>,
}

impl Wake for Owning {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_may_be_the_last_owner_of_other_waits() {
    let here = endpoint();
    let (near, far) = connected(&here, &here);
    let near: &'static Connection = Box::leak(Box::new(near));
    let wait = move || near.disconnected().within(DEADLINE);
    let owning = || {
        let mut waits = vec![wait(), wait()];
        for wait in &mut waits {
            pending(wait, Waker::noop());
        }
        let _waits = waits.into();
        Waker::from(Arc::new(Owning { _waits }))
    };
    let (first, second) = (owning(), owning());
    elsewhere(move || {
        let mut replaced = wait();
        pending(&mut replaced, &first);
        drop(first);
        pending(&mut replaced, Waker::noop());
        let mut abandoned = wait();
        pending(&mut abandoned, &second);
        drop(second);
        drop(abandoned);
    });
    drop(far);
}

#[test]
fn a_task_that_ends_may_serve_the_endpoint_of_the_stream_that_it_read() {
    let (here, there) = (endpoint(), endpoint());
    let (listener, address) = listener(&here);
    let asking = thread::spawn(move || {
        let room = StreamRoom::default();
        Stream::connect(&connector(&there), address, room)
            .wait()
            .unwrap()
    });
    let mut near = Stream::accept(incoming(&listener), StreamRoom::default())
        .wait()
        .unwrap();
    let mut far = asking.join().unwrap();
    let (waker, _told) = serving(&here);
    elsewhere(move || {
        let mut byte = [0];
        let waiting = near.poll_read(&mut Context::from_waker(&waker("byte")), &mut byte);
        assert!(waiting.is_pending());
        {
            use std::io::Write;
            far.blocking().write_all(&[7]).unwrap();
            // It is in the memory here, and the endpoint here was not served since.
            far.blocking().flush().unwrap();
        }
        let read = near.poll_read(&mut Context::from_waker(Waker::noop()), &mut byte);
        if read.is_pending() {
            here.block_on(near.read(&mut byte)).unwrap().unwrap();
        }
        assert_eq!(byte, [7]);
    });
}

/// A task that uses one half of a channel when it is woken, and when it ends.
struct UsingHalf {
    half: Mutex<ferroce::channel::Receiver>,
    woken: Sender<()>,
}

impl UsingHalf {
    fn use_it(&self) {
        // It may be woken by what it does here.
        if let Ok(mut half) = self.half.try_lock() {
            drop(half.try_recv());
        }
    }
}

impl Wake for UsingHalf {
    fn wake(self: Arc<Self>) {
        self.use_it();
        self.woken.send(()).unwrap();
    }
}

impl Drop for UsingHalf {
    fn drop(&mut self) {
        self.use_it();
    }
}

type Channel = (ferroce::channel::Sender, ferroce::channel::Receiver);

/// Both ends of a channel, of this endpoint and another.
fn channels(here: &Endpoint) -> [Channel; 2] {
    let (listener, address) = listener(here);
    let room = StreamRoom::default();
    let asking = thread::spawn(move || {
        let connector = connector(&endpoint());
        ferroce::channel::connect(&connector, address, room)
            .wait()
            .unwrap()
    });
    let near = ferroce::channel::accept(incoming(&listener), room).wait();
    [near.unwrap(), asking.join().unwrap()]
}

#[test]
fn a_task_of_one_half_of_a_channel_may_use_the_other() {
    elsewhere(|| {
        let here = endpoint();
        let [(mut sender, half), far] = channels(&here);
        let (woken, told) = channel();
        let half = Mutex::new(half);
        let task = Waker::from(Arc::new(UsingHalf { half, woken }));
        let mut poll = |waker: &Waker| {
            let sending = pin!(sender.send(vec![1]));
            drop(sending.poll(&mut Context::from_waker(waker)));
        };
        drop(far);
        // The half that finds the end of the connection wakes the tasks of both.
        while told.try_recv().is_err() {
            poll(Waker::noop());
            here.dispatch().unwrap();
            poll(&task);
            thread::yield_now();
        }
        // It ends when another one takes its place.
        poll(&task);
        drop(task);
        poll(Waker::noop());
        told.iter().for_each(drop);
    });
}

/// A task that counts, and panics.
struct Panicking(Arc<AtomicUsize>);

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("on purpose");
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_from_being_woken() {
    const POSTED: usize = 4;
    let (near, far) = common::pair::connected();
    let region = near.region(&[0; 8]);
    let woken = Arc::new(AtomicUsize::new(0));
    let mut receiving: Vec<_> = (0..POSTED)
        .map(|_| {
            let bytes = [region.slice(0..8).unwrap()];
            near.queue_pair.submit_receive(&bytes).unwrap()
        })
        .collect();
    for future in &mut receiving {
        pending(
            future,
            &Waker::from(Arc::new(Panicking(Arc::clone(&woken)))),
        );
    }
    // All complete before anyone looks.
    near.queue_pair.flush().unwrap();
    let looked = catch_unwind(AssertUnwindSafe(|| near.completions.poll()));
    looked.unwrap_err();
    assert_eq!(woken.load(Ordering::SeqCst), POSTED);
    for future in &mut receiving {
        let polled = Pin::new(future).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready());
    }
    drop(far);
}

/// Descriptors that this process has open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn who_waits_in_vain_again_and_again_leaves_nothing_behind() {
    const AGAIN: usize = 100;
    let here = endpoint();
    let (near, far) = connected(&here, &here);
    let (listener, _) = listener(&here);
    let limit = Duration::from_millis(1);
    let before = descriptors();
    for _ in 0..AGAIN {
        listener.accept().within(limit).wait().unwrap_err();
        near.disconnected().within(limit).wait().unwrap_err();
        let mut next = pin!(near.completions().next());
        let limited = std::future::poll_fn(|context| {
            let polled = next.as_mut().poll(context);
            assert!(polled.is_pending());
            Poll::Ready(())
        });
        here.block_on(limited).unwrap();
    }
    // Other tests of this program open some, too.
    let after = descriptors();
    assert!(
        after < before + AGAIN,
        "{before} descriptors became {after}"
    );
    drop(far);
}
