//! The ring's protocol in a model checker: all orders of the steps of both sides, and all values
//! that the memory model allows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::protocol::{Area, Consumer, LINE, Popped, Producer, Pushed, Word};

/// One byte per line stands for a record's content. Loom finds it out if both sides touch a cell at
/// the same time.
struct Modelled<const LINES: usize> {
    sleeps: AtomicU32,
    read: AtomicU32,
    waits: AtomicU32,
    lengths: [AtomicU32; LINES],
    content: [UnsafeCell<u8>; LINES],
}

impl<const LINES: usize> Modelled<LINES> {
    #[expect(clippy::arc_with_non_send_sync, reason = "loom's threads take turns")]
    fn new() -> Arc<Self> {
        Arc::new(Self {
            sleeps: AtomicU32::new(0),
            read: AtomicU32::new(0),
            waits: AtomicU32::new(0),
            lengths: std::array::from_fn(|_| AtomicU32::new(0)),
            content: std::array::from_fn(|_| UnsafeCell::new(0)),
        })
    }

    fn word(&self, word: Word) -> &AtomicU32 {
        match word {
            Word::Sleeps => &self.sleeps,
            Word::Read => &self.read,
            Word::Waits => &self.waits,
            Word::ShortRings => unreachable!("a ring without short rings"),
            Word::Length(at) => &self.lengths[line::<LINES>(at)],
        }
    }
}

fn line<const LINES: usize>(at: u32) -> usize {
    (at / LINE) as usize % LINES
}

impl<const LINES: usize> Area for Arc<Modelled<LINES>> {
    fn capacity(&self) -> u32 {
        u32::try_from(LINES).unwrap() * LINE
    }

    fn is_ours(&self) -> bool {
        true
    }

    fn load(&self, word: Word, order: Ordering) -> u32 {
        self.word(word).load(order)
    }

    fn store(&self, word: Word, value: u32, order: Ordering) {
        self.word(word).store(value, order);
    }

    fn swap(&self, word: Word, value: u32, order: Ordering) -> u32 {
        self.word(word).swap(value, order)
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn write(&self, at: u32, bytes: &[u8]) {
        // SAFETY: loom fails the test if the other side looks at the cell meanwhile.
        self.content[line::<LINES>(at)].with_mut(|cell| unsafe { *cell = bytes[0] });
    }

    fn read(&self, at: u32, to: &mut [u8]) {
        // SAFETY: loom fails the test if the other side looks at the cell meanwhile.
        to[0] = self.content[line::<LINES>(at)].with(|cell| unsafe { *cell });
    }
}

/// A wake-up by other means (the socket): what is written there is there until it is read.
pub(super) struct Wake {
    came: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    pub(super) fn new() -> Self {
        Self {
            came: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    pub(super) fn wake(&self) {
        *self.came.lock().unwrap() = true;
        self.changed.notify_one();
    }

    pub(super) fn wait(&self) {
        let mut came = self.came.lock().unwrap();
        while !*came {
            came = self.changed.wait(came).unwrap();
        }
        *came = false;
    }
}

pub(super) fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// Every record arrives, in order, though both sides sleep whenever they can: a lost wake-up would
/// be a deadlock, which loom reports; content that is read while it is written, as a violation.
fn pass<const LINES: usize>(records: u8) {
    check(move || {
        let area = Modelled::<LINES>::new();
        let wakes = Arc::new([Wake::new(), Wake::new()]);
        let (mut producer, theirs) = (Producer::new(Arc::clone(&area)), Arc::clone(&wakes));
        let other = thread::spawn(move || {
            for content in 1..=records {
                while producer.push(&[&[content]]) == Ok(Pushed::Full) {
                    if producer.wait(1) == Ok(false) {
                        theirs[1].wait();
                    }
                }
                if producer.wakes() {
                    theirs[0].wake();
                }
            }
        });
        let (mut consumer, mut room) = (Consumer::new(area), [0]);
        for expected in 1..=records {
            while consumer.pop(&mut room) == Ok(Popped::Empty) {
                if consumer.sleep() {
                    wakes[0].wait();
                }
            }
            assert_eq!(room[0], expected);
            if consumer.wakes() {
                wakes[1].wake();
            }
        }
        other.join().unwrap();
    });
}

/// The ring has room for three records of one line, and the length behind them.
#[test]
fn nobody_sleeps_for_ever_and_nothing_is_torn() {
    pass::<4>(4);
}

/// The consumer asks after every other record only whether the producer waits.
#[test]
fn a_producer_that_waits_is_woken_though_it_is_seldom_asked_for() {
    pass::<8>(9);
}
