//! Looks before a call of the program's sleeps for a stand-in.
//!
//! A wake-up takes longer than a peer takes to answer. So the thread makes the call without a wait
//! first, and again and again for a little, and gives its processor to others in between
//! ([`Looks`]). Experience belongs to a number, as it is the peer behind it that answers soon or
//! late: the descriptor of a receive, the set of an `epoll_wait`, the first stand-in of a `poll`.
//! Two threads with one number share it.
//!
//! Invariant: a signal that comes to this thread during a look ends the call that it would have
//! ended. (One that comes between the look's end and the sleep is one that came before the call.)
//! Enforced by: signals are blocked during a look, and looked for at its end.
//! If broken: a program that stops a thread by a signal waits for ever.
//!
//! A signal for the process goes to the first thread, unless that has blocked it. So the first of
//! several threads looks only where no signal has a handler: another thread would run it meanwhile.
//! `hooks/signal.rs` says which handlers are seen. What signals do without a handler, they do to
//! all threads.
//!
//! A look resolves its number anew each time, where a call that sleeps stays with the open file
//! that it began with. So a look ends (EBADF) when another thread closes the number: a connection
//! that gets it next keeps its bytes. A `poll` goes on, as it takes nothing.
//!
//! A receive in a signal handler may come here: nothing is allocated, and no lock is waited for.

use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use ferroce_os::environment::variable;
use ferroce_os::linger::{Look, Looks};

use crate::signals::{self, Blocked};
use crate::table::{self, Kind, NUMBERS};
use crate::{errno, filter, sys};

/// The variable: microseconds.
const VARIABLE: &str = "FERROCE_SOCKETS_LOOK";
/// Two wake-ups of a machine on which they take long.
const USUAL: u64 = 50;
/// Signals wait for the end of a look.
const MOST: u64 = 500;
/// Most stand-ins of a call that looks. One that waits for many has much to do when it wakes up:
/// a sleep gathers what comes, and a look would take it one by one.
const FEW: usize = 4;

static LONGEST: OnceLock<Duration> = OnceLock::new();
/// `__libc_single_threaded` of glibc, from 2.32 on: 0 if there may be several threads.
static IS_ALONE: OnceLock<Option<&AtomicU8>> = OnceLock::new();
static LOOKS: [Looks; NUMBERS] = [const { Looks::new() }; NUMBERS];

unsafe extern "C" {
    fn pthread_testcancel();
}

/// Reads the variable. There are no looks before.
pub(crate) fn find_out() {
    LONGEST.get_or_init(|| {
        let text = variable(VARIABLE).and_then(|value| value.into_string().ok());
        let said = text.and_then(|text| text.parse().ok());
        Duration::from_micros(said.unwrap_or(USUAL).min(MOST))
    });
    IS_ALONE.get_or_init(|| {
        let name = c"__libc_single_threaded".as_ptr();
        // SAFETY: a string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name) };
        // SAFETY: null, or the C library's variable: a byte that lives as long as the process, and
        // that other threads change.
        unsafe { found.cast::<AtomicU8>().as_ref() }
    });
    signals::find_handlers();
}

/// Whether the calling thread is the first of several, or may be.
fn is_first_of_several() -> bool {
    let is_alone = IS_ALONE.get().copied().flatten();
    if is_alone.is_some_and(|alone| alone.load(Ordering::Relaxed) != 0) {
        return false;
    }
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_gettid) == libc::syscall(libc::SYS_getpid) }
}

/// How long a look lasts, at the longest. `None`: there are none.
pub(crate) fn longest() -> Option<Duration> {
    LONGEST.get().copied().filter(|longest| !longest.is_zero())
}

/// What ends the call, if it sleeps, besides what it waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ends {
    /// A signal whose handler has not `SA_RESTART`, and every one with a handler if the socket has
    /// a time for receives (signal(7)).
    Receive(RawFd),
    /// Every signal with a handler.
    Wait,
}

impl Ends {
    fn ended(self, signals: &Blocked) -> bool {
        match self {
            Self::Receive(fd) => signals.ended(|| has_timeout(fd)),
            Self::Wait => signals.ended(|| true),
        }
    }
}

fn has_timeout(fd: RawFd) -> bool {
    let none = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let time = sys::option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, none);
    time.is_ok_and(|time| time.tv_sec != 0 || time.tv_usec != 0)
}

/// The stand-in whose experience counts of those that a call waits for, if they are few.
pub(crate) fn first_of_few(mut stand_ins: impl Iterator<Item = RawFd>) -> Option<RawFd> {
    let first = stand_ins.next();
    first.filter(|_| stand_ins.nth(FEW - 1).is_none())
}

/// Whether an epoll set watches stand-ins, and few.
pub(crate) fn watches_few(set: RawFd) -> bool {
    (1..=FEW).contains(&usize::from(table::watched(set)))
}

/// How a look ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked<T> {
    /// It found something.
    Found(T),
    /// A signal has come, whose handler has run: EINTR.
    Interrupted,
    /// Another thread has closed the number of the call, or put another file there.
    Closed,
    /// Nothing came for so long: the call is to sleep.
    Nothing(Duration),
}

/// Looks with `look`, which makes the call without a wait, as long as experience says that it pays.
/// `sleeps` is asked once if there is nothing: whether the call would sleep.
pub(crate) fn on<T>(
    number: RawFd,
    ends: Ends,
    sleeps: impl FnOnce() -> bool,
    look: impl FnMut() -> Option<T>,
) -> Looked<T> {
    let looks = usize::try_from(number).ok().and_then(|at| LOOKS.get(at));
    let begun = looks.zip(longest());
    let Some(begun) = begun.and_then(|(looks, longest)| looks.begin_yielding(longest)) else {
        return Looked::Nothing(Duration::ZERO);
    };
    let entry = table::get(number);
    let takes = matches!(ends, Ends::Receive(_)) || entry.kind == Kind::Watcher;
    // With a filter the table says nothing.
    let is_closed =
        || takes && !table::get(number).is_of_same_file(&entry) && !filter::is_installed();
    // The call that sleeps is a place where a thread may be cancelled.
    // SAFETY: this thread holds nothing.
    unsafe { pthread_testcancel() };
    errno::kept(|| go_on(begun, ends, is_closed, sleeps, look))
}

fn go_on<T>(
    mut begun: Look<'_>,
    ends: Ends,
    is_closed: impl Fn() -> bool,
    sleeps: impl FnOnce() -> bool,
    mut look: impl FnMut() -> Option<T>,
) -> Looked<T> {
    // What is there already says nothing about looks.
    if let Some(found) = look() {
        return Looked::Found(found);
    }
    if !sleeps() {
        return Looked::Nothing(Duration::ZERO);
    }
    let has_handlers = signals::have_handlers();
    if has_handlers && is_first_of_several() {
        begun.end(false);
        return Looked::Nothing(Duration::ZERO);
    }
    let signals = signals::block();
    while begun.goes_on() {
        // Another thread may change both. A filter may forbid the questions below.
        if filter::is_installed() {
            return Looked::Nothing(begun.lasted());
        }
        // The new handler's signal may have come already.
        if signals::have_handlers() != has_handlers {
            break;
        }
        if is_closed() {
            return Looked::Closed;
        }
        if let Some(found) = look() {
            begun.end_beside_peer();
            return Looked::Found(found);
        }
    }
    let lasted = begun.lasted();
    let ended = ends.ended(&signals);
    drop(signals);
    if ended {
        Looked::Interrupted
    } else if is_closed() {
        Looked::Closed
    } else {
        Looked::Nothing(lasted)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicI32;
    use std::sync::{Mutex, PoisonError};
    use std::time::Instant;

    use super::*;

    extern "C" fn handle(_signal: libc::c_int) {}

    /// Runs a test that looks, beside no other one that does. A handler that is new ends looks, and
    /// the first thread of a process may not look.
    fn alone(test: impl FnOnce() + Send) {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a handler that does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
        }
        find_out();
        assert!(signals::have_handlers());
        std::thread::scope(|scope| {
            scope.spawn(test);
        });
        drop(turn);
    }

    /// A number of which nothing is known.
    fn number() -> RawFd {
        static NEXT: AtomicI32 = AtomicI32::new(40_000);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(number < 50_000, "other tests use the next ones");
        number
    }

    /// Looks with one number after the other, until a look asks at least so often: a thread that
    /// gives its processor away may get it back when the look's time is over. `before` has the
    /// number before the look, `during` when it asks for the second time. Returns how the look
    /// ended, and how often it asked.
    fn look_often(
        least: usize,
        ends: Ends,
        before: impl Fn(RawFd),
        during: impl Fn(RawFd),
    ) -> (Looked<()>, usize) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            assert!(Instant::now() < until, "a look goes on");
            let (number, mut looks) = (number(), 0);
            before(number);
            let look = || {
                looks += 1;
                // The first one is made before signals are blocked.
                if looks == 2 {
                    during(number);
                }
                None
            };
            let looked = on(number, ends, || true, look);
            if looks >= least {
                return (looked, looks);
            }
        }
    }

    /// Sends this thread a signal.
    fn raise() {
        // SAFETY: takes no pointers.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
    }

    /// Looks in which a signal comes whose handler has `SA_RESTART`.
    fn interrupted(ends: Ends) -> Looked<()> {
        match look_often(2, ends, |_| {}, |_| raise()).0 {
            Looked::Nothing(lasted) => {
                assert!(lasted >= Duration::from_micros(USUAL));
                Looked::Nothing(Duration::ZERO)
            }
            other => other,
        }
    }

    #[test]
    fn a_handler_that_lets_calls_go_on_ends_those_that_it_would_end_without_a_look() {
        alone(|| {
            let nothing = Looked::Nothing(Duration::ZERO);
            let (socket, _other) = UnixStream::pair().expect("sockets");
            let fd = socket.as_raw_fd();
            assert_eq!(interrupted(Ends::Receive(fd)), nothing);
            assert_eq!(interrupted(Ends::Wait), Looked::Interrupted);
            let time = Some(Duration::from_secs(1));
            socket.set_read_timeout(time).expect("an option");
            assert_eq!(interrupted(Ends::Receive(fd)), Looked::Interrupted);
        });
    }

    #[test]
    fn a_signal_ends_the_look_in_which_it_gets_the_first_handler() {
        alone(|| {
            let handle = |_| {
                signals::note_handler(libc::SIGUSR2);
                raise();
            };
            let looked = look_often(2, Ends::Wait, |_| signals::forget_handlers(), handle);
            assert_eq!(looked.0, Looked::Interrupted);
        });
    }

    #[test]
    fn a_call_that_waits_for_many_does_not_look() {
        let of = |count: usize| first_of_few((7..).take(count));
        assert_eq!(
            [of(0), of(1), of(FEW), of(FEW + 1)],
            [None, Some(7), Some(7), None]
        );
        let set = number();
        assert!(!watches_few(set));
        (0..FEW).for_each(|_| table::watches(set, true));
        assert!(watches_few(set));
        table::watches(set, true);
        assert!(!watches_few(set));
    }

    #[test]
    fn a_look_ends_when_its_number_is_closed_or_another_files() {
        let entry = |cookie| table::Entry {
            kind: Kind::StandIn,
            cookie,
            ..table::Entry::default()
        };
        let closed = |least, next: Option<u64>| {
            let close = |number| {
                table::take(number);
                next.into_iter()
                    .for_each(|cookie| table::set(number, entry(cookie)));
            };
            let open = |number| table::set(number, entry(7));
            look_often(least, Ends::Receive(-1), open, close)
        };
        alone(|| {
            let held = crate::lock::hold();
            assert_eq!(closed(2, None), (Looked::Closed, 2));
            assert_eq!(closed(2, Some(8)), (Looked::Closed, 2));
            let same = closed(3, Some(7)).0;
            assert!(matches!(same, Looked::Nothing(_)), "{same:?}");
            drop(held);
        });
    }

    #[test]
    fn a_call_that_would_not_sleep_does_not_look() {
        find_out();
        let (number, mut looks) = (number(), 0);
        let looked: Looked<()> = on(
            number,
            Ends::Wait,
            || false,
            || {
                looks += 1;
                None
            },
        );
        assert_eq!((looked, looks), (Looked::Nothing(Duration::ZERO), 1));
        let looked = on(number, Ends::Wait, || panic!("it has found"), || Some(7));
        assert_eq!(looked, Looked::Found(7));
        assert_eq!(
            on(-1, Ends::Wait, || true, || Some(7)),
            Looked::Nothing(Duration::ZERO)
        );
    }
}
