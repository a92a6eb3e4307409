//! Sixteen threads that post, lend, connect, give up, drop, panic and reset at random: each message
//! is whole, and in the end the device holds nothing.
//!
//! `FERROCE_SEEDS=N` runs N storms, of some seconds each. `cargo xtask system` runs two with
//! address sanitizer; `cargo xtask release-check bookworm storm`, and `.github/workflows/storm.yml`
//! once a week, run ten minutes of them.
#![cfg(feature = "software")]
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use ferroce::cq::CompletionQueue;
use ferroce::endpoint::{Awaitable, Connection, Endpoint, Listener};
use ferroce::mem::{Access, Buffer, BufferPool, MemoryRegion, ProtectionDomain, RemoteAccess};
use ferroce::qp::{LinkParameters, Operation, PendingBuffer, QueuePair, QueuePairBuilder};
use ferroce::transport::Rc;
use ferroce_abi::verbs::{ibv_alloc_pd, ibv_dealloc_pd};

use common::bare::{Bare, PORT};
use common::door::{connector, endpoint, listener};
use common::seeds;

const THREADS: u64 = 16;
/// What each thread does.
const STEPS: u32 = 2_000;
const PAIRS: usize = 3;
/// Bytes of a buffer.
const ROOM: usize = 256;
/// How long a scope lets work go on that nothing waits for.
const LENT: Duration = Duration::from_millis(1);

/// Numbers that a seed decides.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // Xorshift: Marsaglia, "Xorshift RNGs", 2003.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % limit
    }
}

/// What all threads use.
struct Sea {
    bare: Bare,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    pool: BufferPool,
    pairs: Vec<[QueuePair<Rc>; 2]>,
    /// Held by the thread that connects a pair anew.
    connecting: Vec<Mutex<()>>,
    endpoint: Endpoint,
    listener: Listener,
    /// Messages that came whole, and connections that were made.
    messages: AtomicU32,
    connections: AtomicU32,
}

impl Sea {
    fn new(bare: Bare, domain: ProtectionDomain) -> Self {
        let completions = CompletionQueue::new(&bare.context, 1024).unwrap();
        let build = || {
            let builder = QueuePairBuilder::<Rc>::new(&domain, &completions).inline(64);
            builder.build().unwrap()
        };
        let pairs: Vec<_> = (0..PAIRS).map(|_| [build(), build()]).collect();
        for [a, b] in &pairs {
            bare.connect(a, b);
        }
        let endpoint = endpoint();
        let (listener, _) = listener(&endpoint);
        Self {
            endpoint,
            listener,
            messages: AtomicU32::new(0),
            connections: AtomicU32::new(0),
            pool: BufferPool::new(&domain, 1 << 20),
            connecting: (0..PAIRS).map(|_| Mutex::default()).collect(),
            bare,
            domain,
            completions,
            pairs,
        }
    }

    /// Takes both queue pairs of a pair back while the others post, and connects them again.
    fn reset(&self, pair: usize) {
        // A thread that panics here has failed the test.
        let _connecting = self.connecting[pair].lock().unwrap();
        let [a, b] = &self.pairs[pair];
        a.reset().unwrap();
        b.reset().unwrap();
        // Fails where a scope ends meanwhile, which flushes: the next reset connects them.
        let _connected = self.connect(a, b);
    }

    fn connect(&self, a: &QueuePair<Rc>, b: &QueuePair<Rc>) -> ferroce::Result<()> {
        let init = |end: &QueuePair<Rc>| end.init(PORT, &self.bare.gid, RemoteAccess::ALL);
        let (end_a, end_b) = (init(a)?, init(b)?);
        let parameters = LinkParameters::default();
        a.connect(&end_b, &parameters)?;
        b.connect(&end_a, &parameters)
    }
}

/// A thread, and its work that has not ended.
struct Sailor<'s> {
    sea: &'s Sea,
    random: Random,
    receiving: Vec<PendingBuffer>,
    sending: Vec<PendingBuffer>,
    /// Connections that it asked for, or accepted.
    calls: Vec<Awaitable<'static, Connection>>,
}

impl<'s> Sailor<'s> {
    fn queue_pair(&mut self) -> &'s QueuePair<Rc> {
        &self.sea.pairs[self.random.below(PAIRS)][self.random.below(2)]
    }

    /// A buffer of a random length, filled with one byte.
    fn buffer(&mut self) -> Buffer {
        let length = 1 + self.random.below(ROOM - 1);
        let pooled = match self.random.below(2) {
            // None at the pool's limit: buffers of work that has not been asked for are out.
            0 => self.sea.pool.buffer(length).ok(),
            _ => None,
        };
        let mut buffer = pooled.unwrap_or_else(|| Buffer::new(&self.sea.domain, length).unwrap());
        let byte = u8::try_from(self.random.below(256)).unwrap();
        buffer.fill(byte);
        buffer
    }

    fn receive(&mut self) {
        let room = Buffer::new(&self.sea.domain, ROOM).unwrap();
        // Full, or in RESET: it is refused, and the buffer has come back.
        if let Ok(pending) = self.queue_pair().receive_buffer(room) {
            self.receiving.push(pending);
        }
    }

    fn send(&mut self) {
        let buffer = self.buffer();
        if let Ok(pending) = self.queue_pair().submit_buffer(Operation::Send, buffer) {
            self.sending.push(pending);
        }
    }

    /// Sends from a region, which is dropped while the work goes on.
    fn send_and_drop(&mut self) {
        let region = MemoryRegion::new(&self.sea.domain, ROOM, Access::LocalWrite).unwrap();
        region.write(0, &[9; ROOM]).unwrap();
        let bytes = [region.slice(0..ROOM).unwrap()];
        let _ = self.queue_pair().post_send(1, Operation::Send, &bytes);
    }

    /// Asks one of its futures. A message that came is of one sender.
    fn ask(&mut self) {
        let all = match self.random.below(2) {
            0 => &mut self.receiving,
            _ => &mut self.sending,
        };
        if all.is_empty() {
            return;
        }
        let one = self.random.below(all.len());
        if let Some((result, buffer)) = all[one].try_wait() {
            drop(all.swap_remove(one));
            if result.is_ok() {
                assert!(buffer.iter().all(|byte| *byte == buffer[0]), "{buffer:?}");
                self.sea.messages.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn give_up(&mut self) {
        let random = self.random.next();
        let all = match random % 2 {
            0 => &mut self.receiving,
            _ => &mut self.sending,
        };
        all.pop();
    }

    /// Panics with work in hand, whose futures go while it unwinds.
    fn panic(&mut self) {
        let buffer = self.buffer();
        let queue_pair = self.queue_pair();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _sending = queue_pair.submit_buffer(Operation::Send, buffer);
            // As a panic unwinds, but without its message.
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(panicked.is_err());
    }

    /// Lends bytes of the stack to a queue pair, and waits for nothing.
    fn lend(&mut self) {
        let queue_pair = self.queue_pair();
        let (said, mut room) = ([3; ROOM], [0; ROOM]);
        self.sea.domain.scope(LENT, |scope| {
            let said = scope.register(&said).unwrap();
            let room = scope.register_mut(&mut room).unwrap();
            let _receiving = scope.receive(queue_pair, room);
            let _sending = scope.send(queue_pair, Operation::Send, &[said]);
        });
    }

    /// Asks for a connection or accepts one, and looks what has become of all of them. Some are
    /// given up.
    fn call(&mut self) {
        let sea = self.sea;
        if self.calls.len() < 4 {
            let at = sea.listener.local_addr().unwrap();
            self.calls.push(connector(&sea.endpoint).connect(at));
        }
        sea.endpoint.dispatch().unwrap();
        if let Some(incoming) = sea.listener.try_accept().unwrap() {
            match self.random.below(8) {
                // Rejected.
                0 => drop(incoming),
                _ => self.calls.push(incoming.accept()),
            }
        }
        for mut call in std::mem::take(&mut self.calls) {
            match call.try_wait() {
                Some(Ok(connection)) => {
                    sea.connections.fetch_add(1, Ordering::Relaxed);
                    use_once(&connection);
                }
                Some(Err(_)) => {}
                None if self.random.below(16) == 0 => {}
                None => self.calls.push(call),
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(64) {
            0..16 => self.receive(),
            16..30 => self.send(),
            30..34 => self.send_and_drop(),
            34..46 => self.ask(),
            46..50 => self.give_up(),
            50..52 => self.panic(),
            52 => self.sea.reset(self.random.below(PAIRS)),
            53 => self.lend(),
            54 | 55 => self.call(),
            _ => {
                // Some fail: they were flushed, or the peer had been reset.
                let _completion = self.sea.completions.poll().unwrap();
            }
        }
    }
}

/// Work of a connection that goes with it.
fn use_once(connection: &Connection) {
    let queue_pair = connection.queue_pair();
    let _receiving = queue_pair.receive_buffer(connection.buffer(ROOM).unwrap());
    let said = connection.buffer_of(&[5; ROOM]).unwrap();
    let _sending = queue_pair.submit_buffer(Operation::Send, said);
}

/// Runs one storm; `seed` decides what each thread does, not in which order they come.
fn storm(seed: u64) {
    let bare = Bare::new();
    // SAFETY: a live context.
    let raw = NonNull::new(unsafe { ibv_alloc_pd(bare.context.as_raw()) }).unwrap();
    // SAFETY: of the context, and destroyed below.
    let domain = unsafe { ProtectionDomain::borrow_raw(&bare.context, raw) };
    let sea = Sea::new(bare, domain);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let sea = &sea;
            scope.spawn(move || {
                let mut sailor = Sailor {
                    sea,
                    random: Random((seed << 8 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
                    receiving: Vec::new(),
                    sending: Vec::new(),
                    calls: Vec::new(),
                };
                for _ in 0..STEPS {
                    sailor.step();
                }
            });
        }
    });
    for what in [&sea.messages, &sea.connections] {
        assert!(what.load(Ordering::Relaxed) > 0, "nothing went well");
    }
    let context = sea.bare.context.clone();
    drop(sea);
    // SAFETY: nothing is of the domain any more, or it is refused.
    let refused = unsafe { ibv_dealloc_pd(raw.as_ptr()) };
    assert_eq!(refused, 0, "all was let go of");
    drop(context);
}

#[test]
fn nothing_is_torn_lost_or_kept_whatever_threads_do_at_once() {
    if std::env::var("FERROCE_TEST_PROVIDER").as_deref() == Ok("system") {
        return;
    }
    for seed in 1..=u64::from(seeds(2)) {
        println!("seed {seed}");
        storm(seed);
    }
}
