//! Leader, followers, device thread and a thread that has work for them, in a model checker:
//! [`LeadWords`] and [`Until`] as they are, beside descriptors of loom's. The steps are those of
//! [`Lead`](super::Lead) and of the threads that use it. The checker fails where a thread sleeps
//! for ever.

use std::sync::atomic::Ordering;

use ferroce_proto::time::Time;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::super::alarm::Until;
use super::words::{LeadWords, Wakes};
use crate::base::atomics::{Atomics, Modelled};

/// A descriptor that becomes readable, and that the waiting thread reads.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn take(&self) -> bool {
        std::mem::take(&mut self.rung.lock().unwrap())
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !std::mem::take(&mut *rung) {
            rung = self.changed.wait(rung).unwrap();
        }
    }
}

#[derive(Default)]
struct World {
    words: LeadWords<Modelled>,
    vacancy: Bell,
    /// Ends the device thread's sleep.
    patience: Bell,
    /// The leader's alarm.
    alarm: Bell,
    until: Until<Modelled>,
    /// The next deadline, 0 for none.
    due: <Modelled as Atomics>::Long,
    work: Bell,
}

impl World {
    fn end_sleeps(&self, wakes: Wakes) {
        if wakes.device_thread {
            self.patience.ring();
        }
        if wakes.leader {
            self.alarm.ring();
        }
    }

    /// The device thread relies on the leader once.
    fn rely(&self) {
        self.patience.take();
        self.words.rely(|| self.patience.wait());
    }

    fn deadline(&self) -> Option<Time> {
        Some(Time(self.due.load(Ordering::Relaxed))).filter(|due| due.0 != 0)
    }

    /// Moves the deadline, and wakes the thread that would sleep past it.
    fn set_deadline(&self, due: Option<Time>) {
        self.due
            .store(due.map_or(0, |due| due.0), Ordering::Relaxed);
        Modelled::fence();
        if due.is_some_and(|due| self.until.is_past(due)) {
            self.alarm.ring();
        }
    }

    fn end_wait(&self) {
        if self.words.end_wait() {
            self.patience.ring();
        }
    }

    /// A leader that gives way waits until another thread wants the lead.
    fn lead_until_followed(&self) {
        self.words.give_way();
        while !self.words.has_followers() {
            self.words.begin_wait();
            self.alarm.wait();
            self.end_wait();
        }
        if self.words.give_back() {
            self.vacancy.ring();
        }
    }

    /// Waits for the lead as a thread that waits for completions does.
    fn want_lead(&self, own: usize) {
        while !self.words.take(own) {
            if let Some(wakes) = self.words.follow(true) {
                self.end_sleeps(wakes);
                self.vacancy.wait();
                self.words.end_follow();
            }
        }
    }

    /// Gives the leader work, as `Sleeper::wake_for` does.
    fn give_work(&self) {
        self.work.ring();
        Modelled::fence();
        if self.until.is_past(Time(1)) {
            self.alarm.ring();
        }
    }
}

fn check(scene: impl Fn(&Arc<World>) + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || scene(&Arc::default()));
}

fn beside<T: 'static>(
    world: &Arc<World>,
    does: impl FnOnce(&World) -> T + 'static,
) -> thread::JoinHandle<T> {
    let world = Arc::clone(world);
    thread::spawn(move || does(&world))
}

/// The leader has its event, and does not come back.
#[test]
fn the_device_thread_that_relies_on_a_leader_wakes_when_that_leaves() {
    check(|world| {
        assert!(world.words.take(1));
        world.words.begin_wait();
        let device = beside(world, World::rely);
        world.end_wait();
        assert!(!world.words.give_back());
        device.join().unwrap();
    });
}

/// A second thread waits: the leader would not wake it, so the device thread has to.
#[test]
fn the_device_thread_that_relies_on_a_leader_wakes_for_a_follower() {
    check(|world| {
        assert!(world.words.take(1));
        world.words.begin_wait();
        let device = beside(world, World::rely);
        let wakes = world.words.follow(false).expect("it would not lead");
        world.end_sleeps(wakes);
        device.join().unwrap();
        assert!(!world.words.take(2), "a thread follows");
    });
}

#[test]
fn a_leader_that_gives_way_is_followed_by_the_thread_that_waits() {
    check(|world| {
        assert!(world.words.take(1));
        let leader = beside(world, World::lead_until_followed);
        world.want_lead(2);
        assert!(world.words.take(2), "it leads");
        leader.join().unwrap();
    });
}

/// The leader has its event, and leaves without having been followed.
#[test]
fn a_thread_that_comes_when_the_leader_leaves_gets_the_lead() {
    check(|world| {
        assert!(world.words.take(1));
        let leader = beside(world, |world| {
            world.words.give_way();
            if world.words.give_back() {
                world.vacancy.ring();
            }
        });
        world.want_lead(2);
        leader.join().unwrap();
    });
}

/// As in the one before the last, while the device thread relies on the first leader.
#[test]
fn the_device_thread_wakes_when_one_leader_follows_another() {
    check(|world| {
        assert!(world.words.take(1));
        let leader = beside(world, World::lead_until_followed);
        let device = beside(world, World::rely);
        world.want_lead(2);
        leader.join().unwrap();
        device.join().unwrap();
    });
}

/// The leader announces its sleep, and looks for work once more before it sleeps.
#[test]
fn a_leader_that_looks_before_it_sleeps_misses_no_work() {
    check(|world| {
        let giver = beside(world, World::give_work);
        while !world.work.take() {
            let _ = world.until.announce(None);
            if !world.work.take() {
                world.alarm.wait();
                world.until.up();
                continue;
            }
            world.until.up();
            break;
        }
        giver.join().unwrap();
    });
}

/// A round takes one deadline back and sets a later one, while a thread is about to sleep until the
/// first.
#[test]
fn a_deadline_that_is_taken_back_prolongs_no_announced_sleep() {
    const LATER: Time = Time(20);
    check(|world| {
        world.due.store(10, Ordering::Relaxed);
        let round = beside(world, |world| {
            world.set_deadline(None);
            world.set_deadline(Some(LATER));
        });
        let announced = world.until.announce(world.deadline());
        let end = announced.end(world.deadline());
        round.join().unwrap();
        assert!(end.is_some_and(|end| end <= LATER) || world.alarm.take());
    });
}
