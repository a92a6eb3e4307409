//! Locks in a model checker. In the model of a biased lock, a barrier that one side makes both
//! sides have is a barrier on both sides. In that of a lock that threads sleep for, a sleep that
//! nobody ends lasts for ever: loom reports a lost wake-up as a deadlock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::bias::{NOBODY, PLACES, Words, end, enter};
use super::word::{Futex, LockWord};

/// Two threads, whose places are 0 and 1.
const OWNER: usize = 64;
const NEXT: usize = 128;

struct Modelled {
    owner: AtomicUsize,
    inside: [AtomicBool; PLACES],
    /// The lock's word.
    word: Mutex<()>,
    /// Loom fails the test if two threads are at it at the same time, or one does not know what the
    /// other has written.
    value: UnsafeCell<u32>,
}

impl Words for Modelled {
    fn owner(&self) -> usize {
        self.owner.load(Ordering::Acquire)
    }

    fn lean_to(&self, owner: usize) {
        self.owner.store(owner, Ordering::Release);
    }

    fn is_inside(&self, place: usize) -> bool {
        self.inside[place].load(Ordering::Acquire)
    }

    fn go(&self, place: usize, inside: bool) {
        self.inside[place].store(inside, Ordering::Release);
    }

    fn barrier_here(&self) {
        fence(Ordering::SeqCst);
    }

    fn barrier_for_all(&self) {
        fence(Ordering::SeqCst);
    }
}

impl Modelled {
    /// A lock that leans to the owner.
    #[expect(clippy::arc_with_non_send_sync, reason = "loom's threads take turns")]
    fn new() -> Arc<Self> {
        Arc::new(Self {
            owner: AtomicUsize::new(OWNER),
            inside: [(); PLACES].map(|()| AtomicBool::new(false)),
            word: Mutex::new(()),
            value: UnsafeCell::new(0),
        })
    }

    fn add(&self) {
        // SAFETY: loom finds out if this is wrong.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    /// The caller has the word: takes the lock from its owner, if it has one.
    fn settle(&self) {
        if self.owner() != NOBODY {
            end(self, thread::yield_now);
        }
    }

    fn add_by_word(&self) {
        let _word = self.word.lock().unwrap();
        self.settle();
        self.add();
    }

    fn add_as(&self, thread: usize) {
        if let Some(place) = enter(self, thread) {
            self.add();
            self.go(place, false);
        } else {
            self.add_by_word();
        }
    }

    /// Has it lean to the second thread from now on.
    fn lean_to_next(&self) {
        let _word = self.word.lock().unwrap();
        self.settle();
        self.lean_to(NEXT | 1);
    }
}

#[test]
fn the_owner_and_a_thread_that_takes_its_lock_are_never_inside_together() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let lock = Modelled::new();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || lock.add_by_word())
            })
            .collect();
        for _ in 0..2 {
            lock.add_as(OWNER);
        }
        for other in others {
            other.join().unwrap();
        }
        // SAFETY: the others have ended.
        assert_eq!(lock.value.with(|value| unsafe { *value }), 4);
    });
}

/// A former owner may still be about to say that it is inside when the lock leans to another thread
/// already.
#[test]
fn a_former_owner_does_not_speak_for_the_next() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let lock = Modelled::new();
        let work = [
            |lock: &Modelled| lock.add_as(OWNER),
            |lock: &Modelled| {
                lock.lean_to_next();
                lock.add_as(NEXT);
            },
        ];
        let others = work.map(|work| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || work(&lock))
        });
        lock.add_by_word();
        for other in others {
            other.join().unwrap();
        }
        // SAFETY: the others have ended.
        assert_eq!(lock.value.with(|value| unsafe { *value }), 3);
    });
}

/// A word and its queue in the kernel, which compares the word and queues the thread under a lock.
/// A sleep ends by a wake-up only.
struct Slept {
    word: AtomicU32,
    queue: Mutex<()>,
    woken: Condvar,
}

impl Slept {
    fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            queue: Mutex::new(()),
            woken: Condvar::new(),
        }
    }
}

impl Futex for Slept {
    const SPINS: u32 = 1;

    fn load(&self, order: Ordering) -> u32 {
        self.word.load(order)
    }

    /// By a swap, since loom does not order a store behind the swaps of other threads that found
    /// what the store replaces.
    fn store(&self, value: u32, order: Ordering) {
        self.word.swap(value, order);
    }

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.word.swap(value, order)
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }

    fn sleep(&self, value: u32) {
        let queue = self.queue.lock().unwrap();
        if self.word.load(Ordering::Relaxed) == value {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    fn wake(&self) {
        drop(self.queue.lock().unwrap());
        self.woken.notify_all();
    }
}

/// A lock that leans to nobody.
struct Unbiased {
    word: LockWord<Slept>,
    value: UnsafeCell<u32>,
}

impl Unbiased {
    #[expect(clippy::arc_with_non_send_sync, reason = "loom's threads take turns")]
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: LockWord::of(Slept::new(), Slept::new()),
            value: UnsafeCell::new(0),
        })
    }

    /// Takes the lock some times. The last owner may miss a request that is made at that very
    /// moment, so this looks for it as the next owner does.
    fn add(&self, times: u32) {
        for _ in 0..times {
            self.word.take();
            // SAFETY: loom finds out if this is wrong.
            self.value.with_mut(|value| unsafe { *value += 1 });
            self.word.give_back();
        }
        fence(Ordering::SeqCst);
        self.word.answer();
    }
}

/// Each thread takes the lock some times.
fn sleep_for_it<const THREADS: usize>(preemptions: usize, times: [u32; THREADS]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let lock = Unbiased::new();
        let threads = times.map(|times| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || lock.add(times))
        });
        for thread in threads {
            thread.join().unwrap();
        }
        // SAFETY: the others have ended.
        let value = lock.value.with(|value| unsafe { *value });
        assert_eq!(value, times.iter().sum::<u32>());
    });
}

/// A wake-up may come when the thread that requested it does not sleep yet.
#[test]
fn a_thread_that_is_about_to_sleep_is_woken_though_the_owner_takes_the_lock_again() {
    sleep_for_it(3, [3, 1]);
}

/// A wake-up is for all threads, and those that do not get the lock request another one.
#[test]
fn each_of_several_sleepers_gets_the_lock() {
    sleep_for_it(2, [2, 1, 1]);
}
