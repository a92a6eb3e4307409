//! Random programs of the connection manager: listeners, connects, requests, connections and
//! streams are polled, answered, dropped, given up and unwound in any order, by one thread that
//! never waits.
//!
//! What must hold whatever the order: a buffer that came back holds one whole message of some
//! connection, or what it held before, and is nobody else's; a stream's bytes are those that were
//! written, in order, without a gap; of a connection that is gone every future is ready; and when
//! all is gone its port is free.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use common::door::{connect, connector};
use common::{DEADLINE, provider};
use ferroce::Error;
use ferroce::endpoint::{Awaitable, Connection, Endpoint, Incoming, Listener, Prepared};
use ferroce::mem::Buffer;
use ferroce::qp::{Operation, PendingBuffer};
use ferroce::stream::{Stream, StreamRoom};
use proptest::prelude::*;
use proptest::test_runner::Config;

/// Bytes of buffers.
const BYTES: usize = 48;
const ROOM: StreamRoom = StreamRoom::new(2, 50);

/// What a program does next. Numbers choose among what is there.
#[derive(Clone, Copy, Debug)]
enum Step {
    Connect(usize),
    ConnectStream(usize),
    Listen(usize),
    DropListener(usize),
    Accept(usize),
    Answer(usize),
    AnswerStream(usize),
    Prepare(usize),
    Establish(usize),
    Reject(usize),
    /// Something that is under way is dropped.
    GiveUp(usize, usize),
    /// The same, by a panic.
    Panic(usize, usize),
    /// Endpoints are served, and what is under way is polled.
    Serve(usize),
    Send(usize),
    Receive(usize),
    Take,
    Write(usize),
    Read(usize),
    Close(usize),
    Disconnect(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..8_usize;
    prop_oneof![
        4 => which().prop_map(Step::Connect),
        3 => which().prop_map(Step::ConnectStream),
        2 => which().prop_map(Step::Listen),
        1 => which().prop_map(Step::DropListener),
        5 => which().prop_map(Step::Accept),
        3 => which().prop_map(Step::Answer),
        3 => which().prop_map(Step::AnswerStream),
        2 => which().prop_map(Step::Prepare),
        2 => which().prop_map(Step::Establish),
        1 => which().prop_map(Step::Reject),
        2 => (which(), which()).prop_map(|(a, b)| Step::GiveUp(a, b)),
        1 => (which(), which()).prop_map(|(a, b)| Step::Panic(a, b)),
        16 => which().prop_map(Step::Serve),
        5 => which().prop_map(Step::Send),
        5 => which().prop_map(Step::Receive),
        5 => Just(Step::Take),
        5 => which().prop_map(Step::Write),
        5 => which().prop_map(Step::Read),
        1 => which().prop_map(Step::Close),
        1 => which().prop_map(Step::Disconnect),
    ]
}

/// A stream, how many bytes were written and how many read.
struct Flow {
    stream: Stream,
    written: usize,
    read: usize,
}

struct World {
    endpoints: [Endpoint; 2],
    address: SocketAddr,
    listeners: Vec<Listener>,
    incoming: Vec<Incoming>,
    prepared: Vec<Prepared>,
    connecting: Vec<Awaitable<'static, Connection>>,
    beginning: Vec<Awaitable<'static, Stream>>,
    connections: Vec<Connection>,
    flows: Vec<Flow>,
    posted: Vec<PendingBuffer>,
    /// Buffers that are the program's, and the byte that all of each are.
    own: Vec<(Buffer, u8)>,
    messages: u8,
    /// Why connections were not made: the peer's refusal, its absence, or that it gave up.
    refused: Vec<Error>,
}

fn choose<T>(of: &[T], number: usize) -> Option<usize> {
    (!of.is_empty()).then(|| number % of.len())
}

fn take<T>(of: &mut Vec<T>, number: usize) -> Option<T> {
    choose(of, number).map(|at| of.swap_remove(at))
}

fn once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    }
}

/// Polls futures; those that are ready are taken out, and what came of them.
fn ready<F: Future + Unpin>(futures: &mut Vec<F>) -> Vec<F::Output> {
    let mut out = Vec::new();
    futures.retain_mut(|future| match once(future) {
        Some(result) => {
            out.push(result);
            false
        }
        None => true,
    });
    out
}

/// The byte at a place of a stream.
fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13).to_le_bytes()[0]
}

impl World {
    fn new() -> Self {
        let endpoints = [(); 2].map(|()| Endpoint::new(&provider()).unwrap());
        let first = endpoints[0].listen((common::address(), 0)).unwrap();
        Self {
            address: (common::address(), first.port()).into(),
            listeners: vec![first],
            endpoints,
            incoming: Vec::new(),
            prepared: Vec::new(),
            connecting: Vec::new(),
            beginning: Vec::new(),
            connections: Vec::new(),
            flows: Vec::new(),
            posted: Vec::new(),
            own: Vec::new(),
            messages: 0,
            refused: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Connect(n) => self
                .connecting
                .push(connect(&self.endpoints[n % 2], self.address)),
            Step::ConnectStream(n) => {
                let connector = connector(&self.endpoints[n % 2]);
                self.beginning
                    .push(Stream::connect(&connector, self.address, ROOM));
            }
            // Only if nobody listens there.
            Step::Listen(n) => self
                .listeners
                .extend(self.endpoints[n % 2].listen(self.address)),
            Step::DropListener(n) => drop(take(&mut self.listeners, n)),
            Step::Accept(n) => self.accept(n),
            Step::Answer(n) => {
                let answered = take(&mut self.incoming, n).map(Incoming::accept);
                self.connecting.extend(answered);
            }
            Step::AnswerStream(n) => {
                let incoming = take(&mut self.incoming, n);
                self.beginning
                    .extend(incoming.map(|incoming| Stream::accept(incoming, ROOM)));
            }
            Step::Prepare(n) => {
                // The peer may have given up.
                let prepared = take(&mut self.incoming, n).and_then(|i| i.prepare().ok());
                self.prepared.extend(prepared);
            }
            Step::Establish(n) => {
                let establishing = take(&mut self.prepared, n).map(Prepared::establish);
                self.connecting.extend(establishing);
            }
            Step::Reject(n) => {
                if let Some(incoming) = take(&mut self.incoming, n) {
                    drop(incoming.reject(b"no"));
                }
            }
            Step::GiveUp(what, n) => drop(self.remove(what, n)),
            Step::Panic(what, n) => {
                let removed = self.remove(what, n);
                let unwound = catch_unwind(AssertUnwindSafe(move || {
                    let _dropped_by_the_panic = removed;
                    std::panic::resume_unwind(Box::new(()));
                }));
                assert!(unwound.is_err());
            }
            Step::Serve(n) => self.serve(n),
            Step::Send(n) => self.send(n),
            Step::Receive(n) => self.receive(n),
            Step::Take => self.take_buffers(),
            Step::Write(n) => self.write(n),
            Step::Read(n) => self.read(n),
            Step::Close(n) => {
                if let Some(at) = choose(&self.flows, n) {
                    drop(once(self.flows[at].stream.close()));
                }
            }
            Step::Disconnect(n) => {
                if let Some(at) = choose(&self.connections, n) {
                    drop(once(self.connections[at].disconnect()));
                }
            }
        }
        self.check_own();
    }

    fn accept(&mut self, n: usize) {
        if let Some(at) = choose(&self.listeners, n)
            && let Some(incoming) = once(self.listeners[at].accept())
        {
            self.incoming.push(incoming.unwrap().timeout(DEADLINE));
        }
    }

    /// Takes out something that is there.
    fn remove(&mut self, what: usize, n: usize) -> Option<Box<dyn std::any::Any>> {
        fn some<T: 'static>(of: &mut Vec<T>, n: usize) -> Option<Box<dyn std::any::Any>> {
            take(of, n).map(|one| Box::new(one) as _)
        }
        match what {
            0 => some(&mut self.connecting, n),
            1 => some(&mut self.beginning, n),
            2 => some(&mut self.incoming, n),
            3 => some(&mut self.prepared, n),
            4 => some(&mut self.posted, n),
            5 => take(&mut self.flows, n).map(|flow| Box::new(flow.stream) as _),
            _ => some(&mut self.connections, n),
        }
    }

    fn serve(&mut self, n: usize) {
        self.endpoints[n % 2].dispatch().unwrap();
        for connected in ready(&mut self.connecting) {
            match connected {
                Ok(connection) => self.connections.push(connection),
                Err(e) => self.refused.push(e),
            }
        }
        for begun in ready(&mut self.beginning) {
            match begun {
                Ok(stream) => self.flows.push(Flow {
                    stream,
                    written: 0,
                    read: 0,
                }),
                Err(e) => self.refused.push(e),
            }
        }
    }

    fn send(&mut self, n: usize) {
        let Some(at) = choose(&self.connections, n) else {
            return;
        };
        self.messages = self.messages % 100 + 1;
        let message = vec![self.messages; 1 + usize::from(self.messages) % BYTES];
        let buffer = self.connections[at].buffer_of(&message).unwrap();
        match self.connections[at]
            .queue_pair()
            .submit_buffer(Operation::Send, buffer)
        {
            Ok(pending) => self.posted.push(pending),
            Err(refused) => self.keep(refused.buffer),
        }
    }

    fn receive(&mut self, n: usize) {
        let Some(at) = choose(&self.connections, n) else {
            return;
        };
        let buffer = self.connections[at].buffer(BYTES).unwrap();
        match self.connections[at].queue_pair().receive_buffer(buffer) {
            Ok(pending) => self.posted.push(pending),
            Err(refused) => self.keep(refused.buffer),
        }
    }

    fn take_buffers(&mut self) {
        for (result, buffer) in ready(&mut self.posted) {
            let length = 1 + usize::from(buffer[0]) % BYTES;
            let is_message = buffer[..length.min(buffer.len())]
                .iter()
                .all(|b| *b == buffer[0]);
            let rest = buffer[length.min(buffer.len())..]
                .iter()
                .all(|byte| *byte == 0);
            assert!(is_message && rest && buffer[0] <= 100, "{:?}", &*buffer);
            assert!(result.is_err() || buffer.len() == length, "{:?}", &*buffer);
            self.keep(buffer);
        }
    }

    /// From now on it is the program's alone.
    fn keep(&mut self, mut buffer: Buffer) {
        let mark = 101 + u8::try_from(self.own.len() % 100).unwrap();
        buffer.fill(mark);
        self.own.push((buffer, mark));
    }

    fn check_own(&self) {
        for (buffer, mark) in &self.own {
            assert!(buffer.iter().all(|byte| byte == mark), "{:?}", &**buffer);
        }
    }

    fn write(&mut self, n: usize) {
        if let Some(at) = choose(&self.flows, n) {
            let flow = &mut self.flows[at];
            let bytes: Vec<u8> = (flow.written..flow.written + 70).map(byte).collect();
            if let Some(Ok(count)) = once(flow.stream.write(&bytes)) {
                flow.written += count;
            }
        }
    }

    fn read(&mut self, n: usize) {
        if let Some(at) = choose(&self.flows, n) {
            let flow = &mut self.flows[at];
            let mut room = [0; 33];
            match once(flow.stream.read(&mut room)) {
                Some(Ok(count)) => {
                    let expected = (flow.read..flow.read + count).map(byte);
                    assert!(
                        room[..count].iter().copied().eq(expected),
                        "at {}",
                        flow.read
                    );
                    flow.read += count;
                }
                Some(Err(e)) => assert_eq!(e.kind(), io::ErrorKind::ConnectionReset, "{e}"),
                None => {}
            }
        }
    }

    /// All goes, in an order that nobody prescribes; then the port is free.
    fn end(mut self) {
        self.connections.clear();
        self.take_buffers();
        assert!(
            self.posted.is_empty(),
            "work of a connection that is gone waits"
        );
        self.check_own();
        let address = self.address;
        drop(self);
        let endpoint = Endpoint::new(&provider()).unwrap();
        let begun = Instant::now();
        while let Err(e) = endpoint.listen(address) {
            // Another test may have it for a moment.
            assert!(begun.elapsed() < DEADLINE, "the port is still taken: {e}");
            std::thread::yield_now();
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: common::seeds(32), failure_persistence: None, ..Config::default() })]

    #[test]
    fn memory_and_streams_are_whole_whatever_is_given_up_when(
        steps in proptest::collection::vec(step(), 0..160),
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.end();
    }
}

/// The seeds of programs that connect at all: without such the test above would show nothing.
#[test]
fn a_program_of_this_kind_gets_its_bytes_through() {
    let mut world = World::new();
    world.step(Step::Connect(1));
    world.step(Step::ConnectStream(1));
    let begun = Instant::now();
    while world.connections.len() < 2 || world.flows.len() < 2 {
        assert!(begun.elapsed() < DEADLINE, "not connected");
        world.step(Step::Serve(0));
        world.step(Step::Serve(1));
        assert!(world.refused.is_empty(), "{:?}", world.refused);
        world.step(Step::Accept(0));
        // A stream is told by what it says.
        let stream = |i: &Incoming| i.peer_parameters().private_data.starts_with(b"FeSt");
        match world.incoming.first().map(stream) {
            Some(true) => world.step(Step::AnswerStream(0)),
            Some(false) => world.step(Step::Answer(0)),
            None => {}
        }
    }
    for n in [0, 1] {
        world.step(Step::Receive(n));
        world.step(Step::Send(1 - n));
        world.step(Step::Write(n));
    }
    let read = |world: &World| world.flows.iter().all(|flow| flow.read > 0);
    while world.own.len() < 4 || !read(&world) {
        assert!(begun.elapsed() < DEADLINE, "nothing came");
        for n in [0, 1] {
            world.step(Step::Serve(n));
            world.step(Step::Take);
            world.step(Step::Read(n));
        }
    }
    world.end();
}
