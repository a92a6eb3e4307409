//! What threads do as long as experience says that it pays. The device thread and a leader look on
//! for a little before they sleep, and the device thread leaves the work to a program that polls
//! now and then.
//!
//! What comes while it looks costs its peer no wake-up and the thread no sleep, which are most of
//! the time of a short exchange. But a thread that looks on keeps a processor: if a program on the
//! same one has to answer first, nothing can come, and the program loses that time. So a thread
//! goes by experience: after looks that brought nothing it leaves out more and more chances, and
//! comes back to them now and then.

use std::sync::Mutex;
use std::time::Duration;

use ferroce_os::clock;
use ferroce_proto::time::Time;

use crate::base::sync::lock;

/// How a thread looks on while nothing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
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
const SLICE: Duration = Duration::from_millis(1);

/// What experience says of something that pays or does not.
#[derive(Debug, Default)]
pub(crate) struct Habit {
    /// Tries that did not pay; one that did halves the number.
    misses: u32,
    /// Chances to be left out.
    skip: u32,
}

impl Habit {
    /// There is a chance: whether to take it.
    pub(crate) fn tries(&mut self) -> bool {
        let tries = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        tries
    }

    /// A try is over.
    pub(crate) fn learn(&mut self, paid: bool) {
        if paid {
            self.misses /= 2;
        } else {
            self.misses = (self.misses + 1).min(RAREST);
            self.skip = 1 << self.misses;
        }
    }

    /// A try is over that gave the processor away between its looks, and lasted for so long. If
    /// another program had it meanwhile, a sleep would have ended earlier.
    pub(crate) fn learn_yielding(&mut self, paid: bool, lasted: Duration) {
        if lasted < SLICE {
            self.learn(paid);
        } else {
            (self.misses, self.skip) = (RAREST, CROWDED);
        }
    }
}

/// Looks with `look` for as long as `patience` lasts since the last that came, but at most for
/// [`LONGEST`].
/// `look` takes the time and says whether anything came; `None`: it is no longer this thread's
/// matter. Returns whether anything came at all.
pub(crate) fn look_on(
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

/// Looks before a sleep that give the processor away in between, as long as experience says that
/// they pay. For a thread that waits for more than the device's events, as a leader looks on.
#[derive(Debug, Default)]
pub struct YieldingLook(Mutex<Habit>);

impl YieldingLook {
    /// Looks for as long as a peer may take that is asleep. `None`: nothing came, or it does not
    /// pay now to look.
    pub fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        if !lock(&self.0).tries() {
            return None;
        }
        let (begun, mut found) = (clock::monotonic(), None);
        look_on(Patience::Yielding, clock::monotonic, |_| {
            found = look();
            found.is_none().then_some(false)
        });
        let lasted = clock::monotonic().since(begun);
        lock(&self.0).learn_yielding(found.is_some(), lasted);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_bring_nothing_become_rare_and_those_that_bring_something_go_on() {
        let (look, mut looked) = (YieldingLook::default(), 0);
        for _ in 0..1000 {
            let mut is_first = true;
            let none: Option<()> = look.until(|| {
                looked += i32::from(std::mem::take(&mut is_first));
                None
            });
            assert_eq!(none, None);
        }
        assert!((1..500).contains(&looked), "{looked} of 1000");
        let mut paid = 0;
        for _ in 0..10_000 {
            paid += look.until(|| Some(1)).unwrap_or(0);
        }
        assert!(paid > 1000, "{paid} of 10000");
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
