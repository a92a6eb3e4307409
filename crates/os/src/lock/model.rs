//! A lock that leans to a thread, in a model checker. A barrier that one side makes both have is a
//! barrier on both sides.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, AtomicUsize, fence};
use loom::thread;

use super::bias::{NOBODY, PLACES, Words, end, enter};

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
