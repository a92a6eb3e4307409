//! What threads do as long as experience says that it pays. The device thread and a leader look on
//! for a little before they sleep, and so do threads and tasks that serve an endpoint. The device
//! thread leaves the work to a program that polls now and then.
//!
//! What comes while it looks costs its peer no wake-up and the thread no sleep, which are most of
//! the time of a short exchange. But a thread that looks on keeps a processor: if a program on the
//! same one has to answer first, nothing can come, and the program loses that time. So a thread
//! goes by experience: after looks that brought nothing it leaves out more and more chances, and
//! comes back to them now and then.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use ferroce_proto::time::Time;

use crate::clock;

/// How a thread looks on while nothing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// The thread keeps the processor: longer than a peer takes to answer, shorter than a sleep and
    /// a wake-up take.
    Spinning,
    /// The thread gives the processor to any other that waits for it, between two looks. A peer
    /// that is asleep has to wake up, and perhaps to copy 64 KiB: if the look ended before that,
    /// neither of two sleeping programs would begin. And the kernel likes to wake a receiver on the
    /// processor of its sender.
    Yielding,
}

impl Patience {
    const fn lasts(self) -> Duration {
        Duration::from_micros(match self {
            Self::Spinning => 12,
            Self::Yielding => 50,
        })
    }

    fn pause(self) {
        match self {
            Self::Spinning => std::hint::spin_loop(),
            Self::Yielding => std::thread::yield_now(),
        }
    }
}

/// Longest look: descriptors are not looked at meanwhile.
const LONGEST: Duration = Duration::from_millis(1);
/// Most chances that are left out between two tries, as a power of 2.
const RAREST: u32 = 6;
/// Chances that are left out after a try in which another program had the processor.
const CROWDED: u32 = 1 << 12;
/// Length from which on another program had the processor during a try: far longer than a look,
/// shorter than the time that the kernel gives a program.
pub const SLICE: Duration = Duration::from_millis(1);
/// Length from which on another program had the processor during a pause: some times what the
/// system call takes, less than a short run of another program between two switches.
pub const SWITCH: Duration = Duration::from_nanos(1500);

/// What experience says of something that pays or does not.
#[derive(Debug, Default)]
pub struct Habit {
    /// Tries that did not pay; one that did halves the number.
    misses: u32,
    /// Chances to be left out.
    skip: u32,
}

impl Habit {
    const NEW: Self = Self { misses: 0, skip: 0 };

    /// There is a chance: whether to take it.
    pub fn tries(&mut self) -> bool {
        let tries = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        tries
    }

    /// A try is over.
    pub fn learn(&mut self, paid: bool) {
        if paid {
            self.misses /= 2;
        } else {
            self.misses = (self.misses + 1).min(RAREST);
            self.skip = 1 << self.misses;
        }
    }

    /// A try is over that gave the processor away between its looks, and lasted for so long. If
    /// another program had it meanwhile, a sleep would have ended earlier.
    pub fn learn_yielding(&mut self, paid: bool, lasted: Duration) {
        if lasted < SLICE {
            self.learn(paid);
        } else {
            (self.misses, self.skip) = (RAREST, CROWDED);
        }
    }
}

/// Looks with `look` for as long as `patience` lasts since the last that came, but at most for
/// a millisecond.
/// `look` takes the time and says whether anything came; `None`: it is no longer this thread's
/// matter. Returns whether anything came at all.
pub fn look_on(
    patience: Patience,
    mut now: impl FnMut() -> Time,
    mut look: impl FnMut(Time) -> Option<bool>,
) -> bool {
    let start = now();
    let (mut last, mut any) = (start, false);
    loop {
        let at = now();
        match look(at) {
            Some(true) if at.since(start) < LONGEST => (last, any) = (at, true),
            Some(true) => return true,
            Some(false) if at.since(last) < patience.lasts() => patience.pause(),
            Some(false) | None => return any,
        }
    }
}

/// What experience says of looks before a sleep, in each way. For a leader, and for threads and
/// tasks that wait for more than the device's events.
///
/// No call waits for another thread: a chance at which the value is in use is left out. So signal
/// handlers may look, too, and children of `fork` whose parent had a thread in a call.
#[derive(Debug, Default)]
pub struct Looks(Mutex<Habits>);

#[derive(Debug, Default)]
struct Habits {
    spinning: Habit,
    yielding: Habit,
}

impl Looks {
    /// No experience yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Habits {
            spinning: Habit::NEW,
            yielding: Habit::NEW,
        }))
    }

    fn habits(&self) -> Option<MutexGuard<'_, Habits>> {
        match self.0.try_lock() {
            Ok(habits) => Some(habits),
            Err(TryLockError::Poisoned(habits)) => Some(habits.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Begins a look in the ways that pay; `spins` if the first may be one that keeps the
    /// processor. `None`: it does not pay now.
    pub fn begin(&self, spins: bool) -> Option<Look<'_>> {
        let mut habits = self.habits()?;
        let way = if spins && habits.spinning.tries() {
            Patience::Spinning
        } else if habits.yielding.tries() {
            Patience::Yielding
        } else {
            return None;
        };
        drop(habits);
        Some(self.look(way, way.lasts()))
    }

    /// Begins a look that yields and lasts for so long, less than a millisecond. `None`: it does
    /// not pay now.
    pub fn begin_yielding(&self, lasts: Duration) -> Option<Look<'_>> {
        let tries = self.habits()?.yielding.tries();
        tries.then(|| self.look(Patience::Yielding, lasts))
    }

    fn look(&self, way: Patience, lasts: Duration) -> Look<'_> {
        Look {
            of: self,
            way,
            lasts,
            since: clock::monotonic(),
            gave: false,
        }
    }

    /// Looks with `look` until it finds something. `None`: nothing came, or it does not pay now to
    /// look.
    pub fn until<T>(&self, spins: bool, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let mut begun = self.begin(spins)?;
        loop {
            let found = look();
            if found.is_some() {
                begun.end(true);
                return found;
            }
            if !begun.goes_on() {
                return None;
            }
        }
    }
}

/// A look that has begun, and ends when something comes.
#[derive(Debug)]
pub struct Look<'a> {
    of: &'a Looks,
    way: Patience,
    lasts: Duration,
    since: Time,
    /// Whether another program had the processor in the last pause.
    gave: bool,
}

impl Look<'_> {
    /// Nothing has come. Returns whether to look again, after a pause that is made here; if not,
    /// that is learnt.
    pub fn goes_on(&mut self) -> bool {
        let now = clock::monotonic();
        if now.since(self.since) >= self.lasts {
            self.learn(false, || now);
            if self.way == Patience::Yielding || !self.yields_next() {
                return false;
            }
            (self.way, self.since) = (Patience::Yielding, now);
            self.lasts = self.way.lasts();
        }
        self.way.pause();
        self.gave = self.way == Patience::Yielding && clock::monotonic().since(now) >= SWITCH;
        true
    }

    fn yields_next(&self) -> bool {
        let habits = self.of.habits();
        habits.is_some_and(|mut habits| habits.yielding.tries())
    }

    /// When it began.
    #[must_use]
    pub fn since(&self) -> Time {
        self.since
    }

    /// How long it has lasted.
    #[must_use]
    pub fn lasted(&self) -> Duration {
        clock::monotonic().since(self.since)
    }

    /// The look is over. `paid`: something came.
    pub fn end(self, paid: bool) {
        self.learn(paid, clock::monotonic);
    }

    /// Something came, for which a sleep would have cost this thread little more than a pause. So
    /// the look paid only if the peer did not run on this processor in the last pause: if it did,
    /// the peer's wake-up and the switches were the same as with a sleep. Returns whether it paid.
    pub fn end_beside_peer(self) -> bool {
        let paid = !self.gave;
        self.learn(paid, clock::monotonic);
        paid
    }

    fn learn(&self, paid: bool, now: impl Fn() -> Time) {
        let Some(mut habits) = self.of.habits() else {
            return;
        };
        match self.way {
            Patience::Spinning => habits.spinning.learn(paid),
            Patience::Yielding => habits
                .yielding
                .learn_yielding(paid, now().since(self.since)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `chances` are taken. Each look ends with its first try.
    fn looks(of: &Looks, chances: usize, paid: bool) -> usize {
        let look = |_: &usize| of.begin(true).map(|look| look.end(paid)).is_some();
        (0..chances).filter(look).count()
    }

    #[test]
    fn looks_that_bring_nothing_become_rare_and_those_that_bring_something_go_on() {
        let of = Looks::default();
        let looked = looks(&of, 1000, false);
        assert!((1..500).contains(&looked), "{looked} of 1000");
        let looked = looks(&of, 10_000, true);
        assert!(looked > 9000, "{looked} of 10000");
    }

    #[test]
    fn a_look_spins_first_and_yields_then_where_that_pays() {
        let of = Looks::default();
        let mut ways = Vec::new();
        let mut look = of.begin(true).unwrap();
        loop {
            ways.push(look.way);
            if !look.goes_on() {
                break;
            }
        }
        ways.dedup();
        assert_eq!(ways, [Patience::Spinning, Patience::Yielding]);
        assert!(of.begin(true).is_none(), "neither has paid");
        assert_eq!(
            Looks::default().begin(false).unwrap().way,
            Patience::Yielding
        );
    }

    #[test]
    fn a_look_at_a_value_in_use_is_left_out() {
        let of = Looks::new();
        let look = of.begin_yielding(Duration::from_micros(1)).unwrap();
        let used = of.0.lock();
        look.end(false);
        assert!(of.begin(true).is_none() && of.begin_yielding(SLICE).is_none());
        drop(used);
        assert!(of.begin_yielding(SLICE).is_some(), "nothing was learnt");
    }

    #[test]
    fn a_look_whose_peer_ran_on_the_same_processor_does_not_pay() {
        let of = Looks::new();
        let begun = |gave| {
            let mut look = of.begin_yielding(SLICE).unwrap();
            look.gave = gave;
            look
        };
        assert!(begun(false).end_beside_peer());
        assert!(!begun(true).end_beside_peer());
        assert!(of.begin_yielding(SLICE).is_none());
    }

    #[test]
    fn a_look_lasts_as_long_as_its_caller_says() {
        let of = Looks::new();
        let lasts = Duration::from_micros(300);
        let mut look = of.begin_yielding(lasts).unwrap();
        while look.goes_on() {}
        assert!(look.lasted() >= lasts);
    }

    #[test]
    fn what_does_not_pay_becomes_rare_and_what_pays_goes_on() {
        let mut habit = Habit::default();
        let mut tries = 0;
        for _ in 0..100_000 {
            if habit.tries() {
                habit.learn(false);
                tries += 1;
            }
        }
        assert!((100..2000).contains(&tries), "{tries} of 100000");
        while !habit.tries() {}
        habit.learn_yielding(true, Duration::ZERO);
        assert!((0..100).all(|_| {
            let tries = habit.tries();
            habit.learn(true);
            tries
        }));
    }

    #[test]
    fn a_try_in_which_another_program_had_the_processor_does_not_pay() {
        let mut habit = Habit::default();
        habit.learn_yielding(true, SLICE);
        assert!((0..CROWDED).all(|_| !habit.tries()));
        assert!(habit.tries());
    }

    #[test]
    fn it_ends_when_nothing_comes_for_long() {
        let mut clock = 0;
        let mut looks = 0_u64;
        let any = look_on(
            Patience::Spinning,
            || {
                clock += 1000;
                Time(clock)
            },
            |_| {
                looks += 1;
                Some(looks == 5)
            },
        );
        assert!(any);
        assert!((5..=20).contains(&looks), "{looks} looks");
        assert!(
            !look_on(Patience::Yielding, || Time(0), |_| None),
            "somebody else is at it"
        );
    }

    #[test]
    fn it_ends_however_much_comes() {
        let mut clock = 0;
        let tick = || {
            clock += 1000;
            Time(clock)
        };
        assert!(look_on(Patience::Spinning, tick, |_| Some(true)));
    }
}
