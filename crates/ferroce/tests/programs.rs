//! Random programs: work is posted on buffers and regions, and everything is dropped, leaked,
//! flushed, reset or unwound in any order.
//!
//! What must hold whatever the order: a buffer that came back is nobody else's, so its bytes change
//! no more; it holds what was sent, or a message of the peer, or what it held before; and of a
//! queue pair that is gone every future is ready.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::collections::BTreeSet;
use std::future::Future;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use common::bare::{Bare, contents};
use ferroce::Driver;
use ferroce::mem::{Buffer, MemoryRegion};
use ferroce::qp::{Operation, Pending, PendingBuffer, QueuePair};
use ferroce::transport::Rc;
use proptest::prelude::*;
use proptest::test_runner::Config;

/// Bytes of buffers and regions.
const BYTES: usize = 64;

/// What a program does next. Numbers choose among what is there.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize),
    SendRegion(usize),
    Receive(usize),
    Write(usize, usize),
    Read(usize, usize),
    /// Completions go to their futures.
    Drive(usize),
    Take(usize),
    DropFuture(usize),
    ForgetFuture(usize),
    /// A future is dropped by a panic.
    Panic(usize),
    DropRegion(usize),
    NewRegion(usize),
    Flush(usize),
    Reset(usize),
    DropQueuePair(usize),
    /// The handles of domain, queue and context; what was made from them stays.
    DropHandles(usize),
    Driver(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..8_usize;
    prop_oneof![
        6 => which().prop_map(Step::Send),
        2 => which().prop_map(Step::SendRegion),
        6 => which().prop_map(Step::Receive),
        3 => (which(), which()).prop_map(|(a, b)| Step::Write(a, b)),
        3 => (which(), which()).prop_map(|(a, b)| Step::Read(a, b)),
        5 => which().prop_map(Step::Drive),
        5 => which().prop_map(Step::Take),
        2 => which().prop_map(Step::DropFuture),
        1 => which().prop_map(Step::ForgetFuture),
        1 => which().prop_map(Step::Panic),
        1 => which().prop_map(Step::DropRegion),
        1 => which().prop_map(Step::NewRegion),
        1 => which().prop_map(Step::Flush),
        1 => which().prop_map(Step::Reset),
        1 => which().prop_map(Step::DropQueuePair),
        1 => which().prop_map(Step::DropHandles),
        1 => which().prop_map(Step::Driver),
    ]
}

/// Work that was posted.
enum Posted {
    Sent(PendingBuffer, Vec<u8>),
    Received(PendingBuffer),
    Fetched(PendingBuffer),
    OfRegion(Pending),
}

/// Two sides, connected twice.
struct World {
    sides: [Side; 2],
    posted: Vec<Posted>,
    /// Buffers that are the program's, and the byte that all of each are.
    own: Vec<(Buffer, u8)>,
    /// Bytes that messages and regions may consist of.
    written: BTreeSet<u8>,
}

struct Side {
    handles: Option<Bare>,
    driver: Option<Driver>,
    queue_pairs: Vec<QueuePair<Rc>>,
    regions: Vec<MemoryRegion>,
    spare: Vec<Buffer>,
}

impl Side {
    fn new() -> Self {
        let bare = Bare::new();
        let spare = (0..16).map(|_| Buffer::new(&bare.domain, BYTES).unwrap());
        Self {
            driver: None,
            queue_pairs: Vec::new(),
            regions: vec![bare.region(&[0; BYTES]), bare.region(&[0; BYTES])],
            spare: spare.collect(),
            handles: Some(bare),
        }
    }

    fn queue_pair(&self) -> QueuePair<Rc> {
        self.handles.as_ref().unwrap().builder().build().unwrap()
    }
}

fn choose<T>(of: &[T], number: usize) -> Option<usize> {
    (!of.is_empty()).then(|| number % of.len())
}

impl World {
    fn new() -> Self {
        let mut sides = [Side::new(), Side::new()];
        for _ in 0..2 {
            let pair = [sides[0].queue_pair(), sides[1].queue_pair()];
            let bare = sides[0].handles.as_ref().unwrap();
            bare.connect(&pair[0], &pair[1]);
            let [a, b] = pair;
            sides[0].queue_pairs.push(a);
            sides[1].queue_pairs.push(b);
        }
        Self {
            sides,
            posted: Vec::new(),
            own: Vec::new(),
            written: BTreeSet::from([0]),
        }
    }

    /// A byte that nothing was made of before, as long as there are such.
    fn fresh(&mut self) -> u8 {
        let next = self.written.last().map_or(1, |last| last.wrapping_add(1));
        self.written.insert(next);
        next
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send(n) => self.send(n),
            Step::SendRegion(n) => self.of_region(n, n / 2, |_| Operation::Send),
            Step::Receive(n) => self.receive(n),
            Step::Write(n, place) => self.write(n, place),
            Step::Read(n, place) => self.read(n, place),
            Step::Drive(n) => self.drive(n),
            Step::Take(n) => self.take(n),
            Step::DropFuture(n) => drop(self.remove(n)),
            Step::ForgetFuture(n) => forget(self.remove(n)),
            Step::Panic(n) => {
                let future = self.remove(n);
                let unwound = catch_unwind(AssertUnwindSafe(move || {
                    let _dropped_by_the_panic = future;
                    std::panic::resume_unwind(Box::new(()));
                }));
                assert!(unwound.is_err());
            }
            Step::DropRegion(n) => {
                let regions = &mut self.sides[n % 2].regions;
                if let Some(at) = choose(regions, n / 2) {
                    drop(regions.swap_remove(at));
                }
            }
            Step::NewRegion(n) => self.new_region(n),
            Step::Flush(n) => self.with_queue_pair(n, |queue_pair| drop(queue_pair.flush())),
            Step::Reset(n) => self.with_queue_pair(n, |queue_pair| queue_pair.reset().unwrap()),
            Step::DropQueuePair(n) => {
                let queue_pairs = &mut self.sides[n % 2].queue_pairs;
                if let Some(at) = choose(queue_pairs, n / 2) {
                    drop(queue_pairs.swap_remove(at));
                }
            }
            Step::DropHandles(n) => drop(self.sides[n % 2].handles.take()),
            Step::Driver(n) => self.change_driver(n),
        }
        self.check_own();
    }

    fn with_queue_pair(&self, n: usize, act: impl FnOnce(&QueuePair<Rc>)) {
        let queue_pairs = &self.sides[n % 2].queue_pairs;
        if let Some(at) = choose(queue_pairs, n / 2) {
            act(&queue_pairs[at]);
        }
    }

    fn remove(&mut self, n: usize) -> Option<Posted> {
        choose(&self.posted, n).map(|at| self.posted.swap_remove(at))
    }

    fn new_region(&mut self, n: usize) {
        if let Some(bare) = &self.sides[n % 2].handles {
            let region = bare.region(&[0; BYTES]);
            self.sides[n % 2].regions.push(region);
        }
    }

    fn change_driver(&mut self, n: usize) {
        let side = &mut self.sides[n % 2];
        side.driver = match (side.driver.take(), &side.handles) {
            (None, Some(bare)) => Some(bare.completions.driver().unwrap()),
            _ => None,
        };
    }

    fn drive(&mut self, n: usize) {
        let side = &self.sides[n % 2];
        match (&side.driver, &side.handles) {
            (Some(driver), _) => driver.dispatch().unwrap(),
            (None, Some(bare)) => assert_eq!(bare.completions.poll().unwrap(), None),
            _ => {}
        }
    }

    /// A buffer of a side, and which of its queue pairs is to have it.
    fn spare(&mut self, n: usize) -> Option<(Buffer, usize)> {
        let side = &mut self.sides[n % 2];
        let at = choose(&side.queue_pairs, n / 2)?;
        Some((side.spare.pop()?, at))
    }

    fn send(&mut self, n: usize) {
        let byte = self.fresh();
        let Some((mut buffer, at)) = self.spare(n) else {
            return;
        };
        let message = vec![byte; 1 + usize::from(byte) % BYTES];
        buffer.fill_from(&message).unwrap();
        let queue_pair = &self.sides[n % 2].queue_pairs[at];
        match queue_pair.submit_buffer(Operation::Send, buffer) {
            Ok(pending) => self.posted.push(Posted::Sent(pending, message)),
            Err(refused) => self.keep(refused.buffer, &[message]),
        }
    }

    fn receive(&mut self, n: usize) {
        let Some((mut buffer, at)) = self.spare(n) else {
            return;
        };
        buffer.fill_from(&[0; BYTES]).unwrap();
        match self.sides[n % 2].queue_pairs[at].receive_buffer(buffer) {
            Ok(pending) => self.posted.push(Posted::Received(pending)),
            Err(refused) => self.keep(refused.buffer, &[vec![0; BYTES]]),
        }
    }

    /// A region of the other side.
    fn there(&self, n: usize, place: usize) -> Option<ferroce::mem::RemoteAddress> {
        let regions = &self.sides[1 - n % 2].regions;
        choose(regions, place).map(|at| regions[at].remote().at(0))
    }

    fn write(&mut self, n: usize, place: usize) {
        let byte = self.fresh();
        let regions = &self.sides[n % 2].regions;
        if let (Some(there), Some(from)) = (self.there(n, place), choose(regions, place)) {
            regions[from].write(0, &[byte; BYTES]).unwrap();
            self.of_region(n, place, |_| Operation::Write(there));
        }
    }

    fn of_region(&mut self, n: usize, place: usize, what: impl FnOnce(()) -> Operation) {
        let side = &self.sides[n % 2];
        let queue_pair = choose(&side.queue_pairs, n / 2).map(|at| &side.queue_pairs[at]);
        let region = choose(&side.regions, place).map(|at| &side.regions[at]);
        let (Some(queue_pair), Some(region)) = (queue_pair, region) else {
            return;
        };
        let bytes = [region.slice(0..BYTES).unwrap()];
        if let Ok(pending) = queue_pair.submit(what(()), &bytes) {
            self.posted.push(Posted::OfRegion(pending));
        }
    }

    fn read(&mut self, n: usize, place: usize) {
        let (Some(there), Some((mut buffer, at))) = (self.there(n, place), self.spare(n)) else {
            return;
        };
        buffer.fill_from(&[0; BYTES]).unwrap();
        let queue_pair = &self.sides[n % 2].queue_pairs[at];
        match queue_pair.submit_buffer(Operation::Read(there), buffer) {
            Ok(pending) => self.posted.push(Posted::Fetched(pending)),
            Err(refused) => self.keep(refused.buffer, &[vec![0; BYTES]]),
        }
    }

    /// Looks whether a future is ready, and at what it brings.
    fn take(&mut self, n: usize) {
        let Some(at) = choose(&self.posted, n) else {
            return;
        };
        if let Some(posted) = self.try_take(at) {
            self.posted.push(posted);
        }
    }

    /// Takes work out; gives it back if it is not ready.
    fn try_take(&mut self, at: usize) -> Option<Posted> {
        match self.posted.swap_remove(at) {
            Posted::OfRegion(mut pending) => match ready(&mut pending) {
                Poll::Ready(_) => None,
                Poll::Pending => Some(Posted::OfRegion(pending)),
            },
            Posted::Sent(mut pending, message) => match ready(&mut pending) {
                Poll::Ready((_, buffer)) => {
                    self.keep(buffer, &[message]);
                    None
                }
                Poll::Pending => Some(Posted::Sent(pending, message)),
            },
            Posted::Received(mut pending) => match ready(&mut pending) {
                Poll::Ready((result, buffer)) => {
                    self.check_received(&buffer, result.is_ok());
                    self.keep_any(buffer);
                    None
                }
                Poll::Pending => Some(Posted::Received(pending)),
            },
            Posted::Fetched(mut pending) => match ready(&mut pending) {
                Poll::Ready((_, buffer)) => {
                    let known = buffer.iter().all(|byte| self.written.contains(byte));
                    assert!(known && buffer.len() == BYTES, "{:?}", &*buffer);
                    self.keep_any(buffer);
                    None
                }
                Poll::Pending => Some(Posted::Fetched(pending)),
            },
        }
    }

    /// A whole message: of one byte, and as long as that says, or from a region. If the receive was
    /// flushed, perhaps nothing.
    fn check_received(&self, bytes: &[u8], came: bool) {
        let first = bytes.first().copied().unwrap_or_default();
        let length = 1 + usize::from(first) % BYTES;
        let message = bytes.iter().take_while(|byte| **byte == first).count();
        let of_buffer = message == length && bytes[length..].iter().all(|byte| *byte == 0);
        let of_region = bytes.len() == BYTES && bytes.iter().all(|b| self.written.contains(b));
        let exact = !came || bytes.len() == length || of_region;
        assert!((of_buffer || of_region) && exact, "{bytes:?}, {came}");
    }

    /// A buffer that came back must be one of these.
    fn keep(&mut self, buffer: Buffer, expected: &[Vec<u8>]) {
        assert!(expected.contains(&buffer.to_vec()), "{:?}", &*buffer);
        self.keep_any(buffer);
    }

    /// From now on it is the program's alone.
    fn keep_any(&mut self, mut buffer: Buffer) {
        buffer.set_len(BYTES).unwrap();
        let mark = !u8::try_from(self.own.len() % 100).unwrap();
        buffer.fill(mark);
        self.own.push((buffer, mark));
    }

    fn check_own(&self) {
        for (buffer, mark) in &self.own {
            assert!(buffer.iter().all(|byte| byte == mark), "{:?}", &**buffer);
        }
    }

    /// The queue pairs go, and with them all work.
    fn end(mut self) {
        for side in &mut self.sides {
            side.queue_pairs.clear();
        }
        while !self.posted.is_empty() {
            let waits = self.try_take(0);
            assert!(waits.is_none(), "work of a queue pair that is gone waits");
        }
        self.check_own();
        for region in self.sides.iter().flat_map(|side| &side.regions) {
            let known = contents(region).iter().all(|b| self.written.contains(b));
            assert!(known, "{:?}", contents(region));
        }
    }
}

fn ready<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

proptest! {
    #![proptest_config(Config { cases: common::seeds(48), failure_persistence: None, ..Config::default() })]

    #[test]
    fn memory_is_where_it_should_be_whatever_is_dropped_when(
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.end();
    }
}
