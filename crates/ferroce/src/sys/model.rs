//! Threads that wait for completions of one queue, in a model checker: [`Sleepers`] as it is, with
//! loom's locks. The steps are those of [`Queue::wait_for`](super::Queue::wait_for) and what it
//! calls; a queue's inbox is a lock, its ledger a list of work that has ended.

mod locks {
    pub(super) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
}
#[expect(clippy::duplicate_mod, reason = "the same code on other locks")]
#[path = "sleep.rs"]
mod sleep;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use sleep::Sleepers;

/// Readers, each with one piece of work.
const READERS: usize = 2;

#[derive(Default)]
struct Modelled {
    sleepers: Sleepers,
    inbox: Mutex<()>,
    /// Work that has ended, by reader.
    ledger: Mutex<[bool; READERS]>,
    device: Mutex<Device>,
    driven: AtomicBool,
}

#[derive(Default)]
struct Device {
    /// Completions that were not fetched, by reader.
    done: [bool; READERS],
    armed: bool,
    /// Events of the channel.
    events: usize,
    /// Whether the queue's signal is raised.
    called: bool,
}

impl Modelled {
    fn complete(&self, reader: usize) {
        let mut device = self.device.lock().unwrap();
        device.done[reader] = true;
        device.events += usize::from(std::mem::take(&mut device.armed));
    }

    fn deliver(&self) {
        let _inbox = self.inbox.lock().unwrap();
        let done = std::mem::take(&mut self.device.lock().unwrap().done);
        if done.contains(&true) {
            self.end(done);
            self.sleepers.delivered();
        }
    }

    /// Notes in the ledger that work has ended.
    fn end(&self, work: [bool; READERS]) {
        let mut ledger = self.ledger.lock().unwrap();
        for (ended, now) in ledger.iter_mut().zip(work) {
            *ended |= now;
        }
    }

    /// Tells the sleepers, as the end of a reset and that of a driver do.
    fn call(&self) {
        {
            let _inbox = self.inbox.lock().unwrap();
            self.sleepers.delivered();
        }
        self.device.lock().unwrap().called = true;
    }

    fn take_back(&self, reader: usize) {
        let mut work = [false; READERS];
        work[reader] = true;
        self.end(work);
        self.call();
    }

    fn is_driven(&self) -> bool {
        self.driven.load(Ordering::Acquire)
    }

    fn wait(&self, reader: usize) {
        loop {
            let seen = self.sleepers.seen();
            if !self.is_driven() {
                self.deliver();
            }
            if self.ledger.lock().unwrap()[reader] {
                return;
            }
            match self.sleepers.try_sleep(|| self.is_driven()) {
                Some(_sleeping) => self.sleep_until(seen),
                None => {
                    let pass_inbox = || drop(self.inbox.lock().unwrap());
                    self.sleepers
                        .wait(seen, None, || self.is_driven(), pass_inbox);
                }
            }
        }
    }

    fn sleep_until(&self, seen: u64) {
        self.device.lock().unwrap().armed = true;
        self.deliver();
        if self.sleepers.seen() == seen {
            while !self.doze() {
                thread::yield_now();
            }
        }
    }

    /// Whether the descriptors have something; takes it.
    fn doze(&self) -> bool {
        let mut device = self.device.lock().unwrap();
        let called = std::mem::take(&mut device.called);
        let event = device.events > 0;
        device.events -= usize::from(event);
        called || event
    }
}

/// Readers wait while this thread acts, in each order of steps with at most that many
/// interruptions. A thread that nothing wakes would be a deadlock or an endless loop, which loom
/// reports.
fn check(readers: usize, interruptions: usize, act: impl Fn(&Modelled) + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(interruptions);
    model.check(move || {
        let queue = Arc::new(Modelled::default());
        let waiting: Vec<_> = (0..readers)
            .map(|reader| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.wait(reader))
            })
            .collect();
        act(&queue);
        for reader in waiting {
            reader.join().unwrap();
        }
    });
}

#[test]
fn one_sleeps_for_all_and_each_is_woken_for_its_work() {
    check(2, 2, |queue| {
        (0..2).for_each(|reader| queue.complete(reader))
    });
}

#[test]
fn work_that_is_taken_back_wakes_its_reader() {
    check(1, 2, |queue| queue.take_back(0));
    check(2, 2, |queue| {
        queue.complete(0);
        queue.take_back(1);
    });
}

/// The thread that slept for both leaves, which the other must hear of: it sleeps by itself from
/// then on.
#[test]
fn a_thread_that_slept_for_another_hands_that_on() {
    check(2, 3, |queue| {
        queue.take_back(0);
        queue.complete(1);
    });
}

/// A driver is refused while a thread sleeps in the kernel; otherwise it brings the completions.
#[test]
fn a_driver_that_comes_and_goes_leaves_no_thread_asleep() {
    check(1, 2, |queue| {
        let begins = {
            let awake = queue.sleepers.keep_awake();
            let begins = awake.is_some();
            if begins {
                queue.driven.store(true, Ordering::Release);
            }
            begins
        };
        if begins {
            queue.driven.store(false, Ordering::Release);
            queue.call();
        }
        queue.complete(0);
    });
}
