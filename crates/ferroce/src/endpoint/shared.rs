//! What the parts of an endpoint share, and how it is served.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use ferroce_os::linger::Looks;

use super::background::Background;
use super::line::Line;
use super::look::{Server, Unarmed};
use super::timers::Timers;
use crate::Result;
use crate::cm::{Event, EventChannel, IdKey};
use crate::device::Context;
use crate::driver::Drive;
use crate::mem::ProtectionDomain;
use crate::sys::{Alarm, CompletionChannel, Poller, Signal};
use crate::wake::wake_all;

/// Names of descriptors in the poller; devices have their index.
const EVENTS: u64 = u64::MAX;
const ALARM: u64 = u64::MAX - 1;
const NUDGE: u64 = u64::MAX - 2;

pub(crate) struct Runtime {
    pub(super) channel: EventChannel,
    /// What loops and drivers wait for.
    poller: Poller,
    /// The same without `nudged`, for threads that serve the endpoint while they wait.
    waiters: OnceLock<Poller>,
    alarm: Alarm,
    /// Raised for a loop when another thread has taken what it waits for.
    nudged: Signal,
    /// The lines that get the events of an identifier.
    lines: Mutex<HashMap<IdKey, Weak<Line>>>,
    timers: Mutex<Timers>,
    homes: Mutex<Vec<Arc<Home>>>,
    /// Times that the endpoint was served: tells time limits whether it was at all.
    turns: AtomicU64,
    /// Raises `nudged`.
    nudge: OnceLock<Waker>,
    /// One thread at a time takes events, so that those of one identifier keep their order.
    turning: Mutex<()>,
    pub(super) background: Background,
    pub(super) unarmed: Unarmed,
}

/// What the connections on one device share.
pub(super) struct Home {
    context: Context,
    pub(super) domain: ProtectionDomain,
    pub(super) channel: Arc<CompletionChannel>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runtime {
    pub(super) fn new(channel: EventChannel) -> Result<Self> {
        channel.0.set_nonblocking(true);
        let (poller, alarm, nudged) = (Poller::new()?, Alarm::new()?, Signal::new()?);
        poller.add(channel.as_fd(), EVENTS)?;
        poller.add(alarm.as_fd(), ALARM)?;
        poller.add(nudged.as_fd(), NUDGE)?;
        Ok(Self {
            channel,
            poller,
            waiters: OnceLock::new(),
            alarm,
            nudged,
            lines: Mutex::default(),
            timers: Mutex::default(),
            homes: Mutex::default(),
            turns: AtomicU64::new(0),
            nudge: OnceLock::new(),
            turning: Mutex::default(),
            background: Background::default(),
            unarmed: Unarmed::default(),
        })
    }

    pub(super) fn lines(&self) -> MutexGuard<'_, HashMap<IdKey, Weak<Line>>> {
        lock(&self.lines)
    }

    pub(super) fn timers(&self) -> MutexGuard<'_, Timers> {
        lock(&self.timers)
    }

    /// Times that it was served until now.
    pub(super) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Acquire)
    }

    /// The waker of a loop that waits for the descriptor, and asks for what it waits for when it
    /// has [dispatched](super::Endpoint::dispatch). Another thread that serves the endpoint takes
    /// what made the descriptor readable, so this makes it so again.
    pub(super) fn nudge(self: &Arc<Self>) -> &Waker {
        let new = || Waker::from(Arc::new(Nudge(Arc::downgrade(self))));
        self.nudge.get_or_init(new)
    }

    /// Has the alarm go off at the earliest of the times.
    pub(super) fn set_alarm(&self, timers: &Timers) -> Result<()> {
        let after = timers
            .earliest()
            .map(|at| at.saturating_duration_since(Instant::now()));
        self.alarm.set(after)
    }

    /// What connections on this device share.
    pub(super) fn home(&self, context: &Context) -> Result<Arc<Home>> {
        let mut homes = lock(&self.homes);
        if let Some(home) = homes.iter().find(|home| home.context.0.is(&context.0)) {
            return Ok(Arc::clone(home));
        }
        let channel = CompletionChannel::new(&context.0)?;
        channel.set_nonblocking(true)?;
        self.poller.add(channel.as_fd(), homes.len() as u64)?;
        if let Some(waiters) = self.waiters.get() {
            waiters.add(channel.as_fd(), homes.len() as u64)?;
        }
        let home = Arc::new(Home {
            context: context.clone(),
            domain: ProtectionDomain::new(context)?,
            channel,
        });
        homes.push(Arc::clone(&home));
        Ok(home)
    }

    /// While the answer is held, events that were taken have been brought to whom they are for.
    pub(super) fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.turning)
    }

    /// What is readable while there is something to serve, for threads that wait.
    pub(super) fn waiters(&self) -> Result<BorrowedFd<'_>> {
        if self.waiters.get().is_none() {
            // Under this lock no device is added meanwhile.
            let homes = lock(&self.homes);
            let waiters = Poller::new()?;
            waiters.add(self.channel.as_fd(), EVENTS)?;
            waiters.add(self.alarm.as_fd(), ALARM)?;
            for (device, home) in (0..).zip(&*homes) {
                waiters.add(home.channel.as_fd(), device)?;
            }
            // Another thread was first: then this one is closed.
            let _ = self.waiters.set(waiters);
        }
        Ok(self.waiters.get().unwrap_or(&self.poller).as_fd())
    }

    /// Serves what there is to serve, without waiting, in a loop that waits for the descriptor and
    /// asks what has become of everything afterwards.
    pub(super) fn dispatch(self: &Arc<Self>) -> Result<()> {
        self.unarmed.note_loop();
        let served = self.serve(true);
        let armed = self.unarmed.arm();
        served.and(armed)
    }

    /// Serves what there is to serve, without waiting, and leaves queues unarmed, of which it
    /// delivers what completed. No lock is held while tasks are woken: they may come back here. A
    /// thread that is no loop leaves `nudged` to the loop.
    pub(super) fn serve(self: &Arc<Self>, is_loop: bool) -> Result<()> {
        self.turns.fetch_add(1, Ordering::AcqRel);
        let heard = self.hear(is_loop);
        let delivered = self.unarmed.deliver();
        heard.and(delivered)
    }

    /// Learns what the descriptor tells.
    fn hear(self: &Arc<Self>, is_loop: bool) -> Result<()> {
        for name in self.poller.readable()? {
            match name {
                NUDGE if is_loop => self.nudged.lower(),
                NUDGE => {}
                EVENTS => self.take_events()?,
                ALARM => self.wake_expired()?,
                device => self.complete(device)?,
            }
        }
        Ok(())
    }

    /// Brings events of the connection manager to whom they are for.
    fn take_events(self: &Arc<Self>) -> Result<()> {
        loop {
            match self.take_event() {
                Ok(heard) => {
                    if let Some((_line, waiting)) = heard {
                        wake_all(waiting);
                    }
                }
                Err(e) if e.would_block() => return Ok(()),
                Err(e) if e.is_interrupted() => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Takes one event. Returns the line that it is for, and the tasks to be woken.
    fn take_event(self: &Arc<Self>) -> Result<Option<(Arc<Line>, Vec<Waker>)>> {
        let _alone = lock(&self.turning);
        let look = |id| self.lines().get(&IdKey(id)).and_then(Weak::upgrade);
        let (fetched, line) = self.channel.0.next_event(look)?;
        // The event of an identifier that is going away is nobody's.
        let Some(line) = line else { return Ok(None) };
        let mut event = Event::new(fetched);
        // Before the next event is fetched, which may be of the new identifier.
        let new = event
            .request
            .take()
            .map(|(_, id)| Line::attend(Arc::clone(self), id));
        let waiting = line.hear(event, new);
        Ok(Some((line, waiting)))
    }

    fn wake_expired(&self) -> Result<()> {
        let expired = {
            let mut timers = self.timers();
            let expired = timers.expired(Instant::now());
            self.set_alarm(&timers)?;
            expired
        };
        wake_all(expired);
        Ok(())
    }

    /// Lists the queues of a device that have raised an event.
    fn complete(&self, device: u64) -> Result<()> {
        let home = usize::try_from(device)
            .ok()
            .and_then(|device| lock(&self.homes).get(device).cloned());
        let Some(home) = home else { return Ok(()) };
        loop {
            match home.channel.next_queue() {
                Ok(None) => {}
                Ok(Some(queue)) => self.unarmed.list(&queue),
                Err(e) if e.would_block() => return Ok(()),
                Err(e) if e.is_interrupted() => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// What [`Runtime::nudge`] wakes.
struct Nudge(Weak<Runtime>);

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(runtime) = self.0.upgrade() else {
            return;
        };
        if super::is_dispatching(&runtime) {
            return; // the loop itself, which asks next
        }
        runtime.nudged.raise();
    }
}

impl AsFd for Runtime {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

impl Drive for Server {
    fn serve(&self) -> Result<()> {
        self.0.serve(true)
    }

    fn arm(&self) -> Result<()> {
        self.0.unarmed.arm()
    }

    fn can_look(&self) -> bool {
        self.0.unarmed.can_look()
    }

    fn look(&self) -> Result<Option<bool>> {
        self.0.unarmed.look()
    }

    fn experience(&self) -> &Looks {
        &self.0.unarmed.experience
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn wait_readable(&self, limit: Duration) -> Result<()> {
        crate::sys::wait_one(self.0.as_fd(), limit)
    }
}
