//! A lock that leans to a thread, in a model checker. A barrier that one side makes both have is a barrier on both sides.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, AtomicUsize, fence};
use loom::thread;

use super::bias::{Words, end, enter};

const OWNER: usize = 7;

struct Modelled {
    owner: AtomicUsize,
    inside: AtomicBool,
    /// The lock's word.
    word: Mutex<()>,
    /// Loom fails the test if two threads are at it at the same time, or one does not know what the other has written.
    value: UnsafeCell<u32>,
}

impl Words for Modelled {
    fn owner(&self) -> usize {
        self.owner.load(Ordering::Acquire)
    }
    fn lean_to(&self, owner: usize) {
        self.owner.store(owner, Ordering::Release);
    }
    fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Acquire)
    }
    fn go(&self, inside: bool) {
        self.inside.store(inside, Ordering::Release);
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
            inside: AtomicBool::new(false),
            word: Mutex::new(()),
            value: UnsafeCell::new(0),
        })
    }

    fn add(&self) {
        // SAFETY: loom finds out if this is wrong.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn add_by_word(&self) {
        let _word = self.word.lock().unwrap();
        if self.owner() != 0 {
            end(self, thread::yield_now);
        }
        self.add();
    }

    fn add_as_owner(&self) {
        if enter(self, OWNER) {
            self.add();
            self.go(false);
        } else {
            self.add_by_word();
        }
    }
}

#[test]
fn the_owner_and_who_takes_the_lock_from_it_are_never_inside_together() {
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
            lock.add_as_owner();
        }
        for other in others {
            other.join().unwrap();
        }
        // SAFETY: the others have ended.
        assert_eq!(lock.value.with(|value| unsafe { *value }), 4);
    });
}
