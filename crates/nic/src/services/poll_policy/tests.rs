//! Schedules: what programs do, in microseconds, and what that makes the device thread do.

use super::*;

/// What happens in a line of a schedule.
enum Do {
    /// The program polls for so long, in microseconds, as close as programs that do nothing else.
    PollsFor(u64),
    /// It polls many times, so far apart on average, in nanoseconds, and tells of each lot of 8.
    PollsInLots { apart: u64, lots: u32 },
    /// It polls once.
    PollsOnce,
    /// It polls once while another thread has the lock.
    PollsInVain,
    /// It does something else for so long, in microseconds.
    Computes(u64),
    /// It makes a copy of the device's, or yields, which takes so long, in microseconds.
    Copies(u64),
    /// It begins a copy of the device's, which takes so long, in microseconds.
    BeginsCopy(u64),
    /// The copy ends.
    EndsCopy,
    /// The device thread works on the program's processor, for so long, in microseconds.
    ThreadWorks(u64),
    /// It has looked for an answer in vain, and watches its memory.
    Watches,
    /// It goes to sleep on a channel.
    Sleeps,
    /// The process exits.
    Exits,
}
use Do::{
    BeginsCopy, Computes, Copies, EndsCopy, Exits, PollsFor, PollsInLots, PollsInVain, PollsOnce,
    Sleeps, ThreadWorks, Watches,
};

/// A virtual day, in which a program does one thing after the other.
struct Day {
    polls: Polls,
    now: Time,
}

impl Day {
    fn advance(&mut self, ns: u64) {
        self.now = self.now + Duration::from_nanos(ns);
    }

    fn live(&mut self, what: &Do) {
        match *what {
            PollsFor(us) => {
                let end = self.now + Duration::from_micros(us);
                while self.now < end {
                    self.advance(500);
                    self.polls.on_polls(1, Duration::ZERO, self.now);
                }
            }
            PollsInLots { apart, lots } => {
                for _ in 0..lots {
                    self.advance(8 * apart);
                    self.polls.on_polls(8, Duration::ZERO, self.now);
                }
            }
            PollsOnce => {
                self.polls.on_polls(1, Duration::ZERO, self.now);
            }
            PollsInVain => {
                self.polls.on_slow_poll(self.now);
            }
            Computes(us) => self.advance(1000 * us),
            Copies(us) => {
                let counts = self.polls.begin_errand(self.now);
                self.advance(1000 * us);
                if counts {
                    self.polls.end_errand(self.now);
                }
            }
            BeginsCopy(us) => {
                assert!(self.polls.begin_errand(self.now), "it has just polled");
                self.advance(1000 * us);
            }
            EndsCopy => self.polls.end_errand(self.now),
            ThreadWorks(us) => {
                let woken = self.now;
                self.advance(1000 * us);
                self.polls.on_thread_worked(woken, self.now);
            }
            Watches => self.polls.end_visits(),
            Sleeps => self.polls.end_streak(),
            Exits => self.polls.leave(),
        }
    }

    /// For what the thread may nap now, and whether the program is away.
    fn says(&self) -> &'static str {
        let may = |nap| self.polls.allow(nap, self.now);
        let is_away = self.polls.is_away(self.now);
        match (may(NapFor::Polling), may(NapFor::Visits), is_away) {
            (true, true, false) => "polls",
            (true, true, true) => "polls, away",
            (false, true, false) => "visits",
            (false, true, true) => "visits, away",
            (false, false, false) => "nothing",
            other => unreachable!("{other:?}"),
        }
    }
}

fn run(schedule: &[(Do, &str)]) {
    let mut day = Day {
        polls: Polls::new(),
        now: Time(1_000_000_000),
    };
    for (line, (what, says)) in schedule.iter().enumerate() {
        day.live(what);
        assert_eq!(day.says(), *says, "line {line}");
    }
}

#[test]
fn a_program_that_polls_all_the_time() {
    run(&[
        (PollsOnce, "visits"),
        (PollsFor(49), "visits"),
        (PollsFor(1), "polls"),
        (PollsFor(1000), "polls"),
        (Computes(19), "polls"),
        (Computes(1), "polls, away"),
        (Computes(30), "visits, away"),
        (Computes(250), "nothing"),
    ]);
}

/// A message of 1 MiB takes longer than polls may be apart.
#[test]
fn a_program_that_copies_long_messages_between_its_polls() {
    run(&[
        (PollsFor(60), "polls"),
        (BeginsCopy(100), "polls"),
        (EndsCopy, "polls"),
        (PollsFor(1), "polls"),
        (Copies(1000), "polls"),
        (Computes(30), "polls, away"),
        (PollsOnce, "visits"),
        (BeginsCopy(1000), "visits"),
        (Exits, "nothing"),
    ]);
}

/// Its work completes as it is posted, so its polls make no round.
#[test]
fn a_program_that_copies_and_does_not_poll() {
    run(&[
        (PollsFor(60), "polls"),
        (Copies(100), "polls"),
        (Copies(100), "visits, away"),
        (Copies(200), "nothing"),
        (PollsOnce, "visits"),
        // One that blocks, say.
        (BeginsCopy(1999), "visits"),
        (Computes(1), "nothing"),
    ]);
}

#[test]
fn a_copy_makes_no_polls() {
    run(&[
        (PollsOnce, "visits"),
        (Computes(5000), "nothing"),
        (Copies(100), "nothing"),
        (PollsFor(60), "polls"),
        (Sleeps, "nothing"),
        (Copies(100), "nothing"),
        (PollsFor(60), "polls"),
    ]);
}

#[test]
fn a_program_that_looks_elsewhere_for_a_moment_is_not_at_it() {
    let mut day = Day {
        polls: Polls::new(),
        now: Time(1_000_000_000),
    };
    day.live(&PollsFor(40));
    assert!(!day.polls.is_at_it(day.now), "too early to say");
    day.live(&PollsFor(20));
    assert!(day.polls.is_at_it(day.now));
    day.live(&Computes(5));
    assert!(!day.polls.is_at_it(day.now));
    assert_eq!(day.says(), "polls");
}

#[test]
fn a_copy_of_another_thread_is_no_poll() {
    let (polls, now) = (Polls::new(), Time(1_000_000_000));
    polls.on_polls(1, Duration::ZERO, now);
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(!polls.begin_errand(now)));
    });
    assert!(polls.begin_errand(now), "its own is");
}

#[test]
fn a_program_that_sleeps_between_its_polls() {
    run(&[
        (PollsOnce, "visits"),
        (PollsFor(60), "polls"),
        (Sleeps, "nothing"),
        // It was woken, and polls once or twice per event.
        (Computes(40), "nothing"),
        (PollsOnce, "visits"),
        (Sleeps, "nothing"),
    ]);
}

#[test]
fn a_program_that_watches_its_memory_between_its_polls() {
    run(&[
        (
            PollsInLots {
                apart: 1500,
                lots: 1,
            },
            "visits",
        ),
        (Computes(10), "visits"),
        (PollsOnce, "visits"),
        (Computes(10), "visits"),
        (PollsOnce, "visits"),
        (Computes(10), "visits"),
        (PollsOnce, "visits"),
        (Computes(10), "visits"),
        (PollsOnce, "visits"),
        (Computes(10), "visits"),
        (PollsOnce, "visits"),
    ]);
}

#[test]
fn a_program_that_lost_its_processor_once_polls_on() {
    run(&[
        (PollsOnce, "visits"),
        (
            PollsInLots {
                apart: 999,
                lots: 7,
            },
            "polls",
        ),
        // 8 polls in 307 us: 300 of them without a processor.
        (
            PollsInLots {
                apart: 38_400,
                lots: 1,
            },
            "polls",
        ),
        (
            PollsInLots {
                apart: 999,
                lots: 1,
            },
            "polls",
        ),
        // 308 us: it did something else.
        (
            PollsInLots {
                apart: 38_500,
                lots: 1,
            },
            "visits",
        ),
    ]);
}

#[test]
fn a_program_that_finds_the_lock_taken_polls_all_the_same() {
    run(&[
        (PollsInVain, "visits"),
        (Computes(49), "visits, away"),
        (PollsInVain, "visits"),
        (Computes(1), "visits"),
        (PollsInVain, "polls"),
        (Computes(50), "visits, away"),
        (PollsInVain, "visits"),
    ]);
}

#[test]
fn a_process_that_exits_keeps_the_thread_from_nothing() {
    run(&[
        (PollsFor(100), "polls"),
        (Exits, "nothing"),
        (PollsFor(100), "nothing"),
    ]);
}

#[test]
fn naps_grow_to_what_their_reason_bears() {
    let lengths = |what| {
        let mut naps = Naps::of(what);
        std::array::from_fn::<_, 6, _>(|_| {
            let length = naps.length().as_micros();
            naps.grow();
            length
        })
    };
    assert_eq!(lengths(NapFor::Polling), [50, 100, 200, 400, 800, 800]);
    assert_eq!(lengths(NapFor::Leader), [50, 100, 200, 400, 800, 800]);
    assert_eq!(lengths(NapFor::Visits), [50, 100, 200, 200, 200, 200]);
    let mut naps = Naps::of(NapFor::Leader);
    naps.grow();
    naps.restart();
    assert_eq!(naps.length(), FIRST_NAP);
}

#[test]
fn a_program_that_visits_is_left_alone_until_it_leaves_something_undone() {
    let mut naps = VisitedNaps::new();
    // Length of the nap, whether the program came by, what waits at its end, and what that shows.
    let schedule = [
        (50, true, None, Shown::Visit),
        (100, false, None, Shown::NothingWaits),
        (200, false, Some(3), Shown::SomethingWaits),
        (40, false, Some(2), Shown::SomethingWaits),
        (40, true, Some(9), Shown::Visit),
        (200, false, Some(1), Shown::SomethingWaits),
        (40, false, None, Shown::NothingWaits),
        (200, false, Some(4), Shown::SomethingWaits),
        (40, false, Some(4), Shown::Undone),
    ];
    for (line, (length, visited, waits, shown)) in schedule.into_iter().enumerate() {
        assert_eq!(naps.length().as_micros(), length, "line {line}");
        assert_eq!(naps.on_end(visited, || waits), shown, "line {line}");
        assert_eq!(naps.was_visited(), visited, "line {line}");
    }
}

/// A program that polls. Says which of its polls make rounds.
struct RoundsDay {
    day: Day,
    rounds: PolledRounds,
}

impl RoundsDay {
    fn new() -> Self {
        Self {
            day: Day {
                polls: Polls::new(),
                now: Time(1_000_000_000),
            },
            rounds: PolledRounds::new(),
        }
    }

    /// Polls `count` times, `apart` nanoseconds from each other, and finds nothing. Returns how
    /// many of the polls made rounds.
    fn poll(&mut self, count: u32, apart: u64) -> u32 {
        let mut rounds = 0;
        for _ in 0..count {
            self.day.advance(apart);
            if self.rounds.may_be_silent() {
                let Day { polls, now } = &self.day;
                self.rounds.on_silent_poll(polls, false, || *now);
            } else {
                rounds += 1;
                self.look(TimedPoll::Plain);
            }
        }
        rounds
    }

    fn look(&mut self, poll: TimedPoll) {
        let Day { polls, now } = &self.day;
        self.rounds.on_timed_poll(polls, poll, *now);
        self.rounds.on_round(false, true);
    }
}

#[test]
fn one_of_32_close_polls_makes_a_round() {
    let mut program = RoundsDay::new();
    assert_eq!(
        program.poll(2, 500),
        2,
        "the second one is close to the first"
    );
    assert_eq!(program.poll(3200, 500), 100);
    // It does something else: the next look at the clock shows that, after 20 polls.
    program.day.live(&Computes(400));
    assert_eq!(program.poll(20, 500), 0);
    assert_eq!(program.poll(32, 500), 1);
    // 32 polls in 96 us may be close ones and a lost processor.
    assert_eq!(program.poll(64, 3000), 2);
    program.day.live(&Sleeps);
    program.look(TimedPoll::BeforeSleep);
    assert_eq!(program.poll(4, 3000), 4, "each by itself is not close");
}

/// A long message in each poll is no reason to take the program for one that is away.
#[test]
fn polls_that_are_apart_look_at_the_clock_as_often_as_close_ones() {
    for apart in [300, 1000, 2000, 4000, 9000] {
        let mut program = RoundsDay::new();
        program.poll(1000, 300);
        program.poll(100, apart);
        for _ in 0..100 {
            program.poll(1, apart);
            assert_eq!(program.day.says(), "polls", "polls {apart} ns apart");
        }
    }
}

/// Of one that works between its polls, each makes a round, as nobody else would soon.
#[test]
fn polls_of_a_program_that_does_more_make_rounds() {
    for apart in [12_000, 30_000, 100_000, 250_000] {
        let mut program = RoundsDay::new();
        program.poll(1000, 300);
        program.poll(100, 4000);
        program.poll(64, apart);
        assert_eq!(program.poll(100, apart), 100, "polls {apart} ns apart");
        assert_ne!(program.day.says(), "polls");
    }
}

/// A record of a ring may ask for a round right after a look at the clock.
#[test]
fn a_round_between_close_polls_ends_nothing() {
    for before in 1..31 {
        let mut program = RoundsDay::new();
        program.poll(1000, 300);
        while program.poll(1, 4000) == 0 {}
        program.poll(before, 4000);
        program.day.advance(4000);
        program.look(TimedPoll::Plain);
        program.poll(1, 4000);
        program.poll(1, 4000);
        assert_eq!(program.day.says(), "polls", "after {before} polls");
    }
}

#[test]
fn polls_over_tcp_are_close_though_each_takes_microseconds() {
    for (poll, says) in [(TimedPoll::Plain, "visits"), (TimedPoll::OverTcp, "polls")] {
        let mut program = RoundsDay::new();
        for _ in 0..100 {
            program.look(poll);
            program.day.live(&Computes(4));
        }
        assert_eq!(program.day.says(), says, "{poll:?}");
        program.day.live(&Computes(50));
        program.look(poll);
        assert_eq!(program.day.says(), "visits", "it was away");
    }
}

#[test]
fn a_program_that_watches_its_memory_has_ended_its_visits_and_begins_anew() {
    run(&[
        (PollsFor(100), "polls"),
        (Copies(5), "polls"),
        (Watches, "nothing"),
        (PollsInVain, "visits"),
        (PollsFor(49), "visits"),
        (PollsFor(1), "polls"),
    ]);
}

#[test]
fn a_program_that_has_slept_and_polls_on_without_a_gap_polls() {
    run(&[
        (PollsFor(100), "polls"),
        (Sleeps, "nothing"),
        (PollsInVain, "visits"),
        (Computes(20), "visits, away"),
        (PollsInVain, "visits"),
        (Computes(31), "visits, away"),
        (PollsInVain, "polls"),
    ]);
}

#[test]
fn a_program_that_takes_queued_completions_for_long_looks_at_the_clock() {
    let mut program = RoundsDay::new();
    program.poll(2, 500);
    program.poll(31, 500);
    // Its polls are close, but none of them makes a round.
    program.day.live(&PollsFor(400));
    assert_eq!(
        program.poll(2, 500),
        2,
        "the clock was not looked at for 400 us"
    );
    assert_eq!(program.poll(32, 500), 1);
}

/// Two programs that poll on one processor give it to each other after a few polls.
#[test]
fn yields_between_polls_are_polls() {
    let mut schedule = vec![(PollsOnce, "visits")];
    for _ in 0..10 {
        schedule.extend([(PollsFor(2), "visits"), (Copies(8), "visits")]);
    }
    // 52 µs since the first poll: the next one says so.
    schedule.truncate(11);
    schedule.extend([(PollsFor(2), "polls"), (Copies(100), "polls")]);
    run(&schedule);
}

/// Idle rounds until the program yields, for so long in microseconds.
fn until_yield(rounds: &mut PolledRounds, watches_rings: bool, lasts: u64) -> u32 {
    let idle = |_: &u32| {
        rounds.on_round(false, watches_rings);
        rounds.gives_way()
    };
    let count = (1..).find(idle).unwrap();
    rounds.on_back(Duration::from_micros(lasts));
    count
}

/// The thread is woken for each message, and works for longer each time than the program polls.
#[test]
fn a_program_that_the_device_thread_keeps_from_its_polls_polls_all_the_same() {
    run(&[
        (PollsFor(20), "visits"),
        (ThreadWorks(65), "visits"),
        // It takes some time until the program has its processor back.
        (Computes(4), "visits"),
        (PollsFor(20), "polls"),
        (ThreadWorks(65), "polls"),
        (Computes(30), "polls, away"),
        (PollsOnce, "visits"),
    ]);
}

#[test]
fn the_work_of_the_device_thread_makes_no_polls() {
    run(&[
        (PollsFor(60), "polls"),
        (ThreadWorks(20), "polls"),
        (Computes(20), "polls, away"),
        (ThreadWorks(20), "polls"),
        (Computes(10), "polls"),
        // Its last poll is too long ago.
        (ThreadWorks(20), "polls, away"),
        (ThreadWorks(20), "visits, away"),
        (ThreadWorks(250), "nothing"),
        (Sleeps, "nothing"),
        (ThreadWorks(1), "nothing"),
    ]);
}

/// A poll that makes no round.
fn silent_poll(rounds: &mut PolledRounds, served: bool) {
    rounds.on_silent_poll(&Polls::new(), served, || Time(0));
}

#[test]
fn a_program_that_finds_nothing_yields_now_and_then() {
    // Number of rounds without a system call, then with one, until the program yields.
    for (watches_rings, each) in [(true, 128), (false, 16)] {
        let mut rounds = PolledRounds::new();
        for _ in 0..3 {
            assert_eq!(until_yield(&mut rounds, watches_rings, 0), each);
        }
        rounds.on_round(true, watches_rings);
        assert!(!rounds.gives_way());
        rounds.on_served();
        silent_poll(&mut rounds, false);
        assert!(!rounds.gives_way());
    }
}

#[test]
fn a_program_whose_peer_shares_its_processor_yields_soon() {
    let mut rounds = PolledRounds::new();
    until_yield(&mut rounds, true, 10);
    for _ in 0..10 {
        // The peer has worked meanwhile, and yields in turn.
        silent_poll(&mut rounds, true);
        assert_eq!(until_yield(&mut rounds, true, 10), 8);
    }
    // Another program has had the processor, and then none.
    for (lasts, next) in [(10, 16), (0, 32), (0, 64), (10, 128), (0, 128)] {
        let rounds = until_yield(&mut rounds, true, lasts);
        assert_eq!(rounds, next);
    }
}

#[test]
fn a_program_that_loses_its_processor_for_long_yields_seldom() {
    let mut rounds = PolledRounds::new();
    until_yield(&mut rounds, true, 1000);
    silent_poll(&mut rounds, true);
    assert_eq!(until_yield(&mut rounds, true, 3000), 1024);
    assert_eq!(until_yield(&mut rounds, true, 0), 1024);
    assert_eq!(until_yield(&mut rounds, true, 0), 128);
}

#[test]
fn naps_grow_longer_only_for_what_is_within_this_host_and_comes_by_often() {
    for what in [NapFor::Leader, NapFor::Polling] {
        let mut naps = Naps::of(what);
        for _ in 0..10 {
            naps.grow();
        }
        assert_eq!(naps.length(), LONGEST_NAP);
        let often = |naps: &Naps| u64::try_from(naps.length().as_micros() / 500).unwrap();
        for _ in 0..10 {
            naps.grow_within_host(often(&naps));
        }
        assert_eq!(naps.length(), LONGEST_NAP_WITHIN_HOST);
        naps.grow_within_host(1);
        assert_eq!(naps.length(), LONGEST_NAP, "it computes");
    }
}
