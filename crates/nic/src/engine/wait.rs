//! A thread of the program that waits for completion events does the device's work meanwhile.
//!
//! What comes wakes that thread and no other one. It makes the round that makes the event, and
//! returns with it. Where it cannot lead (another thread waits as well, or a sandbox is in the
//! way), it sleeps, and the device thread does the work.
//!
//! A thread that waits for events of the connection manager leads as well, but steps back for one
//! that deals with completions: those come more often.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::eventfd;
use ferroce_os::lock::LockGuard;
use ferroce_os::thread::uncancellable;
use ferroce_os::waiter::Woken;
use ferroce_proto::time::Time;

use super::progress::RoundState;
use crate::base::events::{EventQueue, Owned};
use crate::cm::QueuedEvent;
use crate::objects::cq::DirectDelivery;
use crate::services::doors::Door;
use crate::services::lead::LingersFor;
use crate::{EventChannel, Nic};

/// Rounds that a program makes before it sleeps, as long as there is more.
const ROUNDS_AT_DOOR: usize = 4;

/// What a thread that leads waits for.
trait Awaited {
    /// Of what it is learnt whether it pays to look on before a sleep.
    const LINGERS_FOR: LingersFor;

    /// The descriptor that is readable while there is an event.
    fn fd(&self) -> RawFd;

    /// Whether the thread is to lead on.
    fn leads_on(&self, nic: &Nic, now: Time) -> bool;

    /// What its rounds deliver to the program.
    fn delivery() -> DirectDelivery<'static>;

    /// Whether there is an event.
    fn has_events(&self) -> bool;

    /// The descriptor is readable, or was. What the wait ends with: whether a count was taken.
    /// `None`: it does not end.
    fn on_ready(&self) -> io::Result<Option<bool>>;

    /// As [`EventQueue::take_count_of`], of work that may ask whether there is an event.
    fn take_count_of(&self, work: impl FnOnce(&dyn Fn() -> bool)) -> bool;
}

impl<T: Owned> Awaited for EventQueue<T> {
    const LINGERS_FOR: LingersFor = LingersFor::Completions;

    fn fd(&self) -> RawFd {
        self.fd()
    }

    fn leads_on(&self, nic: &Nic, now: Time) -> bool {
        !nic.services.sleeper.polls().is_polled(now)
    }

    fn delivery() -> DirectDelivery<'static> {
        DirectDelivery::awaited()
    }

    fn has_events(&self) -> bool {
        self.has_events()
    }

    fn on_ready(&self) -> io::Result<Option<bool>> {
        Ok(eventfd::try_take(self.fd())?.then_some(true))
    }

    fn take_count_of(&self, work: impl FnOnce(&dyn Fn() -> bool)) -> bool {
        uncancellable(|| self.take_count_of(|| work(&|| self.has_events())))
    }
}

/// Events of a channel that another thread may destroy: a thread that sleeps has no part of it.
struct Connections<'a> {
    fd: RawFd,
    find: &'a dyn Fn() -> Option<Arc<EventChannel>>,
}

impl Connections<'_> {
    /// Does something with the channel, unless it is gone. It may go meanwhile, and its end here
    /// must not be cancelled.
    fn with<R>(&self, f: impl FnOnce(Option<&EventQueue<QueuedEvent>>) -> R) -> R {
        uncancellable(|| {
            let channel = (self.find)();
            f(channel.as_ref().map(|channel| channel.events()))
        })
    }
}

impl Awaited for Connections<'_> {
    const LINGERS_FOR: LingersFor = LingersFor::Connections;

    fn fd(&self) -> RawFd {
        self.fd
    }

    /// Not beside a thread that deals with completions: it is woken for the same, or looks for it.
    fn leads_on(&self, nic: &Nic, now: Time) -> bool {
        let sleeper = &nic.services.sleeper;
        let is_alone = !sleeper.lead().has_followers()
            && !sleeper.doors().any_open()
            && !sleeper.polls().was_polled(now);
        is_alone && self.with(|events| events.is_some_and(|events| !events.has_events()))
    }

    fn delivery() -> DirectDelivery<'static> {
        DirectDelivery::default()
    }

    fn has_events(&self) -> bool {
        self.with(|events| events.is_some_and(EventQueue::has_events))
    }

    /// The caller reads it. It may be a count of an event that is gone.
    fn on_ready(&self) -> io::Result<Option<bool>> {
        Ok(Some(false))
    }

    fn take_count_of(&self, work: impl FnOnce(&dyn Fn() -> bool)) -> bool {
        self.with(|events| match events {
            Some(events) => events.take_count_of(|| work(&|| events.has_events())),
            None => {
                work(&|| true);
                false
            }
        })
    }
}

impl Nic {
    /// Does what [`EventChannel::take_count_as_leader`] says.
    pub(super) fn lead_for_connections(
        &self,
        fd: RawFd,
        find: &dyn Fn() -> Option<Arc<EventChannel>>,
    ) -> io::Result<bool> {
        let sleeper = &self.services.sleeper;
        if sleeper.polls().are_own() {
            sleeper.end_streak();
        }
        if !sleeper.lead().take_until_followed() {
            return Ok(false);
        }
        let taken = self.lead_until_taken(&Connections { fd, find }, || Ok(()));
        sleeper.lead().give_back();
        taken
    }

    /// Does what `Engine::take_count` says, for any events.
    pub(super) fn wait_for_count<T: Owned>(
        &self,
        events: &EventQueue<T>,
        door: &Door,
    ) -> io::Result<Option<bool>> {
        if events.try_take_count()? {
            return Ok(None);
        }
        if door.is_open() && door.wants_look() && self.take_at_door(events)? {
            return Ok(Some(true));
        }
        if !door.blocked_last() {
            door.check_blocks()?;
        }
        door.on_wait();
        let sleeper = &self.services.sleeper;
        if sleeper.polls().are_own() {
            // It has polled on after it armed the queue, and sleeps now.
            sleeper.end_streak();
        }
        let fd = events.fd();
        let lead = self.services.sleeper.lead();
        if !lead.is_possible() {
            door.check_blocks()?;
            return eventfd::wait(fd).map(|()| Some(false));
        }
        loop {
            let would_lead = events.leads_on(self, clock::monotonic());
            if would_lead && lead.take() {
                let taken = self.lead_until_taken(events, || door.check_blocks());
                lead.give_back();
                if taken? {
                    return Ok(Some(true));
                }
            }
            door.check_blocks()?;
            // The leader may have gone on with its event, and this one's is the thread's work then.
            sleeper.end_nap();
            if lead.follow(fd, would_lead) == Woken::Interrupted {
                return Err(io::Error::from_raw_os_error(libc::EINTR));
            }
            if eventfd::try_take(fd)? {
                return Ok(Some(false));
            }
        }
    }

    /// Does what `Engine::expect_at_door` says.
    pub(super) fn begin_rest_at_door(&self, door: &Door) {
        if door.on_armed() {
            uncancellable(|| self.make_round(&mut DirectDelivery::about_to_answer()));
        }
        self.make_rest_at_door();
    }

    /// Does what `Engine::rest_at_door` says.
    pub(super) fn make_rest_at_door(&self) {
        self.rest(
            |progress| progress.rest_rings(self),
            DirectDelivery::about_to_answer,
        );
    }

    /// Does what `Engine::rests_at_door` says.
    pub(super) fn is_at_rest(&self) -> bool {
        let rests = |progress: LockGuard<'_, RoundState>| !progress.watches_rings();
        self.progress.try_lock().is_some_and(rests)
    }

    /// Makes rounds until `is_quiet`, but not for ever.
    fn rest(
        &self,
        is_quiet: impl Fn(&mut RoundState) -> bool,
        delivery: fn() -> DirectDelivery<'static>,
    ) {
        for _ in 0..ROUNDS_AT_DOOR {
            if uncancellable(|| is_quiet(&mut self.progress.lock())) {
                return;
            }
            uncancellable(|| self.make_round(&mut delivery()));
        }
        // There is always more: the device thread goes on.
        self.services.sleeper.end_polling();
    }

    /// A program was woken, perhaps for the device's work, and asks for an event. Returns whether
    /// it has taken one.
    fn take_at_door<T: Owned>(&self, events: &EventQueue<T>) -> io::Result<bool> {
        let lead = self.services.sleeper.lead();
        let round = || {
            self.make_round(&mut DirectDelivery::about_to_answer());
        };
        let taken = if lead.take() {
            let taken = uncancellable(|| events.take_count_of(round));
            lead.give_back();
            taken
        } else {
            uncancellable(round);
            false
        };
        if taken || events.try_take_count()? {
            return Ok(true);
        }
        // It sleeps without an answer.
        self.rest(
            |progress| progress.sleep_rings(self),
            DirectDelivery::awaited,
        );
        // Another thread may make the round, perhaps on this very processor.
        std::thread::yield_now();
        // A round of another thread may have brought it.
        events.try_take_count()
    }

    /// Makes rounds, and sleeps between them as long as it `may_sleep`, until there is a count.
    /// Returns false if the thread is not to lead on: another one polls, say, and does the work.
    fn lead_until_taken<E: Awaited>(
        &self,
        events: &E,
        may_sleep: impl Fn() -> io::Result<()>,
    ) -> io::Result<bool> {
        let (lead, fd) = (self.services.sleeper.lead(), events.fd());
        loop {
            if !events.leads_on(self, clock::monotonic()) {
                return Ok(false);
            }
            // A thread that is cancelled with a lock in hand would stop the device. To print a line
            // of the log, say, is a cancellation point.
            let looked = uncancellable(|| self.may_linger()).is_some_and(|spins| {
                events.take_count_of(|is_there| {
                    lead.linger(E::LINGERS_FOR, spins, |now| {
                        let looked = self.look_as_leader(now, &mut E::delivery());
                        looked.map(|()| is_there())
                    });
                })
            });
            if looked {
                lead.on_visit();
                return Ok(true);
            }
            may_sleep()?;
            let timeout = uncancellable(|| self.leaders_sleep());
            let mut is_ready = events.has_events();
            if timeout != Some(Duration::ZERO) {
                match lead.wait(fd, self.services.poller.as_raw_fd(), timeout) {
                    Woken::Interrupted => return Err(io::Error::from_raw_os_error(libc::EINTR)),
                    Woken::Ready([event, ..]) => is_ready = event,
                }
            }
            lead.alarm().up();
            if is_ready && let Some(taken) = events.on_ready()? {
                return Ok(taken);
            }
            if events.take_count_of(|_| self.make_leaders_round(&mut E::delivery())) {
                return Ok(true);
            }
        }
    }

    /// How long the leader may sleep, which it announces.
    ///
    /// Deadlines are the device thread's, which naps meanwhile, but for what is to be done at once:
    /// to set a timer for each sleep takes longer than the rest of it.
    fn leaders_sleep(&self) -> Option<Duration> {
        let has_thread = self.leaving.has_thread();
        let due = if has_thread {
            Some(clock::monotonic())
        } else {
            self.next_due()
        };
        let announced = self.services.sleeper.lead().alarm().announce(due);
        if !self.progress.lock().sleep_rings(self) {
            return Some(Duration::ZERO);
        }
        if has_thread {
            let is_due = |due: Time| due <= clock::monotonic();
            return self
                .next_due()
                .is_some_and(is_due)
                .then_some(Duration::ZERO);
        }
        self.time_left(announced)
    }

    fn make_leaders_round(&self, delivery: &mut DirectDelivery<'_>) {
        if !self.make_round(delivery) {
            // Another thread may make one, perhaps on this very processor.
            std::thread::yield_now();
        }
    }

    /// Makes a round, unless another thread makes one. Returns whether there was anything to do.
    fn make_round(&self, delivery: &mut DirectDelivery<'_>) -> bool {
        let round = |mut progress: LockGuard<'_, RoundState>| {
            progress.run_awaited(self, clock::monotonic(), delivery)
        };
        let any = self.progress.try_lock().is_some_and(round);
        self.services.sleeper.lead().on_visit();
        any
    }

    /// Whether the leader may spin when it looks on before it sleeps: not if each look is a system
    /// call. `None`: nothing is likely to come soon.
    fn may_linger(&self) -> Option<bool> {
        let progress = self.progress.lock();
        let is_wire = progress.has_hot_socket();
        (is_wire || progress.watches_rings()).then_some(!is_wire)
    }

    /// A look of a leader that lingers, and a round if there is something. `None`: nothing is
    /// likely to come soon.
    fn look_as_leader(&self, now: Time, delivery: &mut DirectDelivery<'_>) -> Option<()> {
        let Some(mut progress) = self.progress.try_lock() else {
            return Some(());
        };
        progress.run_lingering(self, now, delivery)
    }
}
