//! Threads that post while another one resets the queue pair, in a model checker: [`Turns`] as it
//! is, with loom's lock. The steps are those of `QueuePairHandle`'s functions `post_listed`,
//! `post_batch` and `take_back`; the ledger and the device are lists.

mod locks {
    use loom::sync::{Mutex, MutexGuard};

    pub(super) struct Lock<T>(Mutex<T>);
    pub(super) type LockGuard<'l, T> = MutexGuard<'l, T>;

    impl<T> Lock<T> {
        pub(super) fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        pub(super) fn lock(&self) -> LockGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}
#[expect(clippy::duplicate_mod, reason = "the same code on another lock")]
#[path = "turns.rs"]
mod turns;

use loom::sync::{Arc, Mutex};
use loom::thread;

use turns::Turns;

const LET_GO: &str = "the device works on memory that is let go of";

/// How often work has ended for its program: completed, flushed or refused.
#[derive(Default)]
struct Ledger {
    ended: Vec<usize>,
    outstanding: Vec<usize>,
}

impl Ledger {
    fn add(&mut self) -> usize {
        let id = self.ended.len();
        self.ended.push(0);
        self.outstanding.push(id);
        id
    }

    /// Work has ended. Its memory is the program's again. A completion of work that has ended
    /// already is of nobody.
    fn end(&mut self, id: usize) {
        if let Some(at) = self.outstanding.iter().position(|&other| other == id) {
            self.outstanding.swap_remove(at);
            self.ended[id] += 1;
        }
    }
}

/// What the device works on.
#[derive(Default)]
struct Device {
    is_reset: bool,
    works_on: Vec<usize>,
}

struct Modelled {
    turns: Turns,
    ledger: Mutex<Ledger>,
    device: Mutex<Device>,
}

impl Modelled {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            turns: Turns::new(),
            ledger: Mutex::default(),
            device: Mutex::default(),
        })
    }

    fn post_send(&self, is_silent: bool) {
        let mut turn = self.turns.send();
        let id = self.ledger.lock().unwrap().add();
        if self.hand_over(id) {
            *turn = is_silent.then_some(id as u64);
        }
    }

    fn post_receive(&self) {
        let _turn = self.turns.receive();
        let id = self.ledger.lock().unwrap().add();
        self.hand_over(id);
    }

    /// Gives noted work to the device. Returns whether it took the work.
    fn hand_over(&self, id: usize) -> bool {
        let taken = {
            let mut device = self.device.lock().unwrap();
            if !device.is_reset {
                assert!(
                    self.ledger.lock().unwrap().outstanding.contains(&id),
                    "{LET_GO}"
                );
                device.works_on.push(id);
            }
            !device.is_reset
        };
        if !taken {
            self.ledger.lock().unwrap().end(id);
        }
        taken
    }

    fn reset(&self) {
        let (mut last, _receive) = self.turns.both();
        {
            let mut device = self.device.lock().unwrap();
            device.is_reset = true;
            device.works_on.clear();
        }
        *last = None;
        let posted = self.ledger.lock().unwrap().outstanding.clone();
        for id in posted {
            let works_on = self.device.lock().unwrap().works_on.contains(&id);
            assert!(!works_on, "{LET_GO}");
            self.ledger.lock().unwrap().end(id);
        }
    }

    /// The queue pair is used again.
    fn set_up(&self) {
        self.device.lock().unwrap().is_reset = false;
    }

    /// The device completes what it works on.
    fn complete(&self) {
        let done = std::mem::take(&mut self.device.lock().unwrap().works_on);
        for id in done {
            self.ledger.lock().unwrap().end(id);
        }
    }
}

/// A thread acts while this one resets the queue pair and goes on with it.
fn check(act: impl Fn(&Modelled) + Send + Sync + Copy + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let modelled = Modelled::new();
        let poster = {
            let modelled = Arc::clone(&modelled);
            thread::spawn(move || act(&modelled))
        };
        modelled.reset();
        modelled.set_up();
        poster.join().unwrap();
        modelled.complete();
        let ledger = modelled.ledger.lock().unwrap();
        assert!(ledger.outstanding.is_empty(), "work that never ends");
        assert!(ledger.ended.iter().all(|&times| times == 1));
    });
}

#[test]
fn a_send_that_is_posted_beside_a_reset_ends_once() {
    check(|modelled| modelled.post_send(false));
    check(|modelled| {
        modelled.post_send(true);
        modelled.post_send(false);
    });
}

#[test]
fn a_receive_that_is_posted_beside_a_reset_ends_once() {
    check(Modelled::post_receive);
    check(|modelled| {
        modelled.post_receive();
        modelled.post_send(false);
    });
}

#[test]
fn a_completion_beside_a_reset_ends_nothing_twice() {
    check(|modelled| {
        modelled.post_send(false);
        modelled.complete();
        modelled.post_receive();
    });
}
