//! Sleeping until something happens on rsockets and other descriptors.
//!
//! Each thread that sleeps has an eventfd of its own, and is in the list of each rsocket that it
//! waits for. A thread that has taken something off a completion queue wakes the others of the
//! list.
//!
//! Invariant: a thread that is about to sleep has armed the completion queue and looked once more,
//! and what happens after that makes its eventfd or the channel's descriptor readable.
//! Enforced by: a thread that takes a channel's events, completions or a change of state wakes the
//! other threads of the list, under the lock under which they look.
//! If broken: a call sleeps although it could return.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use ferroce_os::eventfd::EventFd;
use ferroce_os::fork;
use ferroce_os::linger::Looks;
use ferroce_os::thread::uncancellable;
use ferroce_os::waiter::{SignalWatch, Woken};
use libc::{nfds_t, pollfd, timespec};

use super::errno::{Errno, Result};
use super::settings;
use crate::rdmacm::lock;

/// What wakes a thread.
#[derive(Debug)]
pub(super) struct Waker {
    event: EventFd,
    generation: usize,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Waker>>> = const { RefCell::new(None) };
}

impl Waker {
    fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            event: EventFd::counter()?,
            generation: fork::generation(),
        }))
    }

    /// The calling thread's.
    fn current() -> Result<Arc<Self>> {
        let kept = CURRENT.try_with(|current| {
            let mut current = current.borrow_mut();
            if let Some(waker) = &*current
                && fork::is_current(waker.generation)
            {
                return Ok(Arc::clone(waker));
            }
            let waker = Self::new()?;
            *current = Some(Arc::clone(&waker));
            Ok(waker)
        });
        // The program may call from a destructor that runs at the thread's end, after ours.
        kept.unwrap_or_else(|_| Self::new())
    }

    fn wake(&self) {
        // It cannot fail: the count is far from its limit.
        let _ = self.event.add(1);
    }
}

/// The threads that sleep for an rsocket.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    count: AtomicUsize,
    list: Mutex<Vec<Arc<Waker>>>,
    looks: Looks,
}

impl Waiters {
    fn add(&self, waker: &Arc<Waker>) {
        let mut list = lock(&self.list);
        list.push(Arc::clone(waker));
        self.count.store(list.len(), Ordering::SeqCst);
    }

    fn remove(&self, waker: &Arc<Waker>) {
        let mut list = lock(&self.list);
        if let Some(at) = list.iter().position(|other| Arc::ptr_eq(other, waker)) {
            list.swap_remove(at);
        }
        self.count.store(list.len(), Ordering::SeqCst);
    }

    /// Wakes all threads but the calling one.
    pub(super) fn wake_others(&self) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        // At the thread's end nothing is kept. The thread then wakes itself too: no harm is done.
        let me = CURRENT.try_with(|current| current.borrow().as_ref().map(Arc::as_ptr));
        let me = me.ok().flatten();
        for waker in lock(&self.list).iter() {
            if Some(Arc::as_ptr(waker)) != me {
                waker.wake();
            }
        }
    }

    /// Wakes all threads.
    pub(super) fn wake_all(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            lock(&self.list).iter().for_each(|waker| waker.wake());
        }
    }
}

/// Which signals end a call that sleeps (signal(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signals {
    /// Those with a handler, as for `poll(2)`.
    AsPoll,
    /// Those with a handler without `SA_RESTART`, as for `read(2)`. For calls that wait for one
    /// rsocket and nothing else.
    AsRead,
}

impl Signals {
    /// What sees the signals that a handler lets a call go on after. `None`: every signal ends the
    /// call; in a sandbox without `signalfd(2)` that is so for all calls.
    fn waiter(self) -> Option<&'static SignalWatch> {
        static WAITER: OnceLock<Option<SignalWatch>> = OnceLock::new();
        match self {
            Self::AsPoll => None,
            Self::AsRead => WAITER.get_or_init(|| SignalWatch::new().ok()).as_ref(),
        }
    }
}

/// What a thread can sleep for.
pub(super) trait Awaited {
    /// Its threads.
    fn waiters(&self) -> &Waiters;
    /// Has what comes next make [`fds`](Self::fds) readable.
    fn arm(&self);
    /// Adds the descriptors to sleep on.
    fn fds(&self, add: &mut dyn FnMut(RawFd));
    /// Takes the events of its descriptors, and wakes the other threads if there were any.
    fn take_events(&self);
}

/// A thread in the lists of what it waits for.
struct Enlisted<'a> {
    waker: Arc<Waker>,
    awaited: &'a [&'a dyn Awaited],
}

impl<'a> Enlisted<'a> {
    fn new(awaited: &'a [&'a dyn Awaited]) -> Result<Self> {
        let waker = Waker::current()?;
        for one in awaited {
            one.waiters().add(&waker);
        }
        Ok(Self { waker, awaited })
    }

    /// Sleeps until something happens, at most until `deadline`.
    fn sleep(&self, others: &[pollfd], deadline: Option<Instant>, signals: Signals) -> Result<()> {
        let mut fds = vec![readable(self.waker.event.as_raw_fd())];
        for one in self.awaited {
            one.fds(&mut |fd| fds.push(readable(fd)));
        }
        fds.extend_from_slice(others);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match signals.waiter() {
            Some(waiter) => read_like(waiter, &mut fds, left)?,
            None => poll(&mut fds, left).map(drop)?,
        }
        if fds[0].revents != 0 {
            self.waker.event.try_take()?;
        }
        self.awaited.iter().for_each(|one| one.take_events());
        Ok(())
    }
}

impl Drop for Enlisted<'_> {
    fn drop(&mut self) {
        for one in self.awaited {
            one.waiters().remove(&self.waker);
        }
    }
}

/// Sleeps until one of at most three descriptors is readable, as if in `read(2)`.
///
/// # Errors
/// EINTR after a signal with a handler without `SA_RESTART`.
fn read_like(waiter: &SignalWatch, fds: &mut [pollfd], timeout: Option<Duration>) -> Result<()> {
    let at = |index: usize| fds.get(index).unwrap_or(&fds[0]).fd;
    match waiter.wait([at(0), at(1), at(2)], timeout, &|_| ()) {
        Woken::Interrupted => Err(Errno(libc::EINTR)),
        Woken::Ready(ready) => {
            for (fd, is_ready) in fds.iter_mut().zip(ready) {
                fd.revents = if is_ready { libc::POLLIN } else { 0 };
            }
            Ok(())
        }
    }
}

fn readable(fd: RawFd) -> pollfd {
    pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// `ppoll(2)`, as a bare system call: a preloaded library may have put itself before the function.
///
/// # Errors
/// EINTR, EINVAL, ENOMEM.
pub(super) fn poll(fds: &mut [pollfd], timeout: Option<Duration>) -> Result<usize> {
    let timeout = timeout.map(|timeout| timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let place = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = nfds_t::try_from(fds.len()).unwrap_or(nfds_t::MAX);
    // SAFETY: the array is live and so long; the time is NULL or live; no signal mask is given.
    let ready = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            fds.as_mut_ptr(),
            count,
            place,
            ptr::null::<libc::sigset_t>(),
            size_of::<u64>(),
        )
    };
    usize::try_from(ready).map_err(|_| Errno::last())
}

/// Tries until `attempt` gives something: busily for a moment, for a little longer where that has
/// paid, then asleep between attempts. `None` at the deadline. `others` are descriptors that wake
/// it too.
///
/// # Errors
/// EINTR after a signal that `signals` has end the call.
pub(super) fn until<T>(
    awaited: &[&dyn Awaited],
    others: &[pollfd],
    deadline: Option<Instant>,
    signals: Signals,
    mut attempt: impl FnMut() -> Option<T>,
) -> Result<Option<T>> {
    if let Some(done) = attempt() {
        return Ok(Some(done));
    }
    let start = Instant::now();
    let is_past = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= Instant::now());
    while !is_past(deadline) && start.elapsed() < settings::polling_time() {
        if let Some(done) = attempt() {
            return Ok(Some(done));
        }
        std::hint::spin_loop();
    }
    if is_past(deadline) {
        return Ok(None);
    }
    // A peer that sleeps takes longer to answer than a call polls. If this thread slept as well,
    // each message would find its receiver asleep.
    let looks = awaited.first().map(|one| &one.waiters().looks);
    if let Some(looks) = looks.filter(|_| !settings::polling_time().is_zero())
        && let Some(done) = looks.until(false, &mut attempt)
    {
        return Ok(Some(done));
    }
    // A thread that is cancelled must not leave the lists with itself in them.
    uncancellable(|| {
        let enlisted = Enlisted::new(awaited)?;
        loop {
            if let Some(done) = attempt() {
                return Ok(Some(done));
            }
            if is_past(deadline) {
                return Ok(None);
            }
            awaited.iter().for_each(|one| one.arm());
            if let Some(done) = attempt() {
                return Ok(Some(done));
            }
            enlisted.sleep(others, deadline, signals)?;
        }
    })
}

/// Tries until `attempt` gives something, asleep in between; once only for a call that does not
/// block.
///
/// # Errors
/// EAGAIN if that one try gave nothing. EINTR after a signal with a handler without `SA_RESTART`.
pub(super) fn wait_unless<T>(
    nonblocking: bool,
    awaited: &dyn Awaited,
    mut attempt: impl FnMut() -> Option<T>,
) -> Result<T> {
    if nonblocking {
        return attempt().ok_or(Errno(libc::EAGAIN));
    }
    let done = until(&[awaited], &[], None, Signals::AsRead, attempt)?;
    Ok(done.expect("invariant: without a deadline only success ends the wait"))
}
