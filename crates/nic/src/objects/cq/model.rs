//! Arming, pushing and polling in a model checker: [`Ring`] and [`RingFlags`] as they are, under a
//! lock and beside a channel of loom's. The steps are those of [`Cq`](super::Cq).

use ferroce_proto::verbs::WcStatus;
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::CompletionTimes;
use super::ring::tests::wc;
use super::ring::{PushOutcome, Ring};
use super::ring_flags::RingFlags;
use crate::base::atomics;

/// Events of a channel.
#[derive(Default)]
struct Events {
    waiting: usize,
    /// Raised, less those taken back.
    raised: usize,
}

struct Modelled {
    ring: Mutex<Ring>,
    flags: RingFlags<atomics::Modelled>,
    events: Mutex<Events>,
    /// Other queues use the channel.
    shared: bool,
}

impl Modelled {
    fn new(shared: bool) -> Arc<Self> {
        Arc::new(Self {
            shared,
            ring: Mutex::new(Ring::new(8, false)),
            flags: RingFlags::default(),
            events: Mutex::default(),
        })
    }

    fn change<R>(&self, change: impl FnOnce(&mut Ring) -> R) -> R {
        let mut ring = self.ring.lock().unwrap();
        let result = change(&mut ring);
        self.flags.show(&ring);
        result
    }

    fn raise(&self) {
        let mut events = self.events.lock().unwrap();
        events.waiting += 1;
        events.raised += 1;
    }

    fn push(&self, wr_id: u64) {
        let mut ring = self.ring.lock().unwrap();
        let wc = wc(wr_id, WcStatus::Success);
        if ring.push_if_idle(wc, false, CompletionTimes::default()) {
            self.flags.show_news();
            return;
        }
        let now = || unreachable!("nothing is moderated");
        let pushed = ring.push(wc, false, CompletionTimes::default(), now);
        self.flags.show(&ring);
        if pushed == PushOutcome::Notify {
            self.raise();
        }
    }

    fn arm(&self) {
        self.change(|ring| {
            if ring.arm(false, !self.shared) {
                self.raise();
            }
        });
    }

    fn take_back(&self) -> bool {
        let mut events = self.events.lock().unwrap();
        let there = events.waiting > 0;
        events.waiting -= usize::from(there);
        events.raised -= usize::from(there);
        there
    }

    /// Takes at most `max` completions. Returns how many.
    fn poll(&self, max: usize) -> usize {
        if !self.flags.has_news() {
            return 0;
        }
        self.change(|ring| {
            let mut taken = 0;
            while taken < max && ring.front().is_some() {
                ring.drop_front();
                taken += 1;
            }
            if let Some(kind) = ring.end_of_repeat() {
                ring.repeat_ended(kind, self.take_back());
            }
            taken
        })
    }

    fn take_event(&self) -> bool {
        let mut events = self.events.lock().unwrap();
        let there = events.waiting > 0;
        events.waiting -= usize::from(there);
        there
    }

    fn sleep(&self) {
        while !self.take_event() {
            thread::yield_now();
        }
    }

    fn raised(&self) -> usize {
        self.events.lock().unwrap().raised
    }

    fn push_all(queue: &Arc<Self>, count: u64) -> thread::JoinHandle<()> {
        let queue = Arc::clone(queue);
        thread::spawn(move || (0..count).for_each(|wr_id| queue.push(wr_id)))
    }
}

fn check(scene: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(scene);
}

/// UCX, asleep: events are drained, the queue is armed, and the next thing is to sleep. The checker
/// fails if the program sleeps for ever.
#[test]
fn a_program_that_drains_arms_and_sleeps_is_woken_for_each_completion() {
    check(|| {
        let queue = Modelled::new(false);
        let device = Modelled::push_all(&queue, 2);
        let (mut taken, mut armed) = (0, 0);
        while taken < 2 {
            while queue.take_event() {}
            queue.arm();
            armed += 1;
            queue.sleep();
            // One at a time: the next arming finds what is left.
            taken += queue.poll(1);
        }
        device.join().unwrap();
        assert!(queue.raised() <= armed);
    });
}

/// The order of `ibv_get_cq_event(3)`: armed, polled until nothing is left, and asleep.
#[test]
fn a_program_that_arms_drains_and_sleeps_is_woken() {
    arms_drains_and_sleeps(false);
}

#[test]
fn so_it_is_on_a_channel_of_several_queues() {
    arms_drains_and_sleeps(true);
}

fn arms_drains_and_sleeps(shared: bool) {
    check(move || {
        let queue = Modelled::new(shared);
        let device = Modelled::push_all(&queue, 2);
        let mut taken = 0;
        loop {
            queue.arm();
            while queue.poll(1) > 0 {
                taken += 1;
            }
            if taken == 2 {
                break;
            }
            queue.sleep();
        }
        device.join().unwrap();
    });
}

/// perftest: an event, then the next arming, then one completion. No event lacks its completion.
fn takes_one_completion_an_event(shared: bool) {
    check(move || {
        let queue = Modelled::new(shared);
        queue.arm();
        let device = Modelled::push_all(&queue, 2);
        for _ in 0..2 {
            queue.sleep();
            queue.arm();
            assert_eq!(queue.poll(1), 1);
        }
        device.join().unwrap();
        assert!(!queue.take_event(), "an event without a completion");
    });
}

#[test]
fn a_program_that_takes_one_completion_an_event_finds_one_each_time() {
    takes_one_completion_an_event(false);
}

#[test]
fn so_it_does_on_a_channel_of_several_queues() {
    takes_one_completion_an_event(true);
}

#[test]
fn a_program_that_only_polls_finds_everything() {
    check(|| {
        let queue = Modelled::new(false);
        let device = Modelled::push_all(&queue, 2);
        let mut taken = 0;
        while taken < 2 {
            taken += queue.poll(2);
            thread::yield_now();
        }
        device.join().unwrap();
    });
}

/// A thread polls while another arms: each arming raises one event at most, and what is queued in
/// the end has one.
#[test]
fn a_poll_beside_an_arming_loses_no_event() {
    check(|| {
        let queue = Modelled::new(false);
        queue.push(0);
        queue.arm();
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.poll(1))
        };
        let device = Modelled::push_all(&queue, 1);
        assert!(queue.take_event());
        queue.arm();
        let left = 2 - other.join().unwrap();
        device.join().unwrap();
        assert!(queue.raised() <= 2);
        // The queue was armed after the first event was taken.
        assert!(left == 0 || queue.take_event(), "{left} completions");
    });
}
