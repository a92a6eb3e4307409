//! Descriptors on which programs wait for completion events in a `poll` or `epoll` of their own.
//!
//! A door is readable while its channel has an event. While it is *open* it is readable also while
//! the device has work: the program, which is woken for that, makes the round that makes the event
//! when it asks for one (`engine/wait.rs`). Only a program that has set `O_NONBLOCK` can be woken
//! without an event: there the call says EAGAIN. The example of `ibv_get_cq_event(3)` takes EAGAIN
//! for an error, since it calls only when `poll` has told of an event. So a door opens when a
//! program that has heard EAGAIN before arms a queue of a channel in that mode.
//!
//! Work that wakes several threads is done by one of them, and the others wake for nothing. So only
//! the doors of one thread are open. Where several threads arm queues the device thread does the
//! work, and tells each of them by its events.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferroce_os::fd::is_nonblocking;
use ferroce_os::poll::{Interest, Poller};
use ferroce_proto::time::Time;

use super::lead::this_thread;
use crate::base::sync::lock;

/// Most doors that are open. Each of the device's descriptors wakes all of them, and the kernel
/// limits how many ways lead from a descriptor through others (`epoll_ctl(2)`, EINVAL).
const MOST: usize = 8;
/// How long all doors stay shut after a second thread has armed a queue.
const SHUT: Duration = Duration::from_millis(100);

/// Calls for an event that a program makes after it has taken one, the last of which says that it
/// has answered that one, or will not.
const CALLS: u8 = 2;
/// Polls of an empty queue after an event, the last of which says the same.
const POLLS: u8 = 8;

/// The descriptor of a completion channel.
#[derive(Debug)]
pub(crate) struct Door {
    entrance: Poller,
    is_open: AtomicBool,
    /// Calls of [`CALLS`] that are still to come.
    calls: AtomicU8,
    /// Polls of [`POLLS`] that are still to come.
    polls: AtomicU8,
    /// The last event was there already, and nobody has looked for work since.
    owes_look: AtomicBool,
    /// A queue was armed, and no poll has found it empty since.
    was_armed: AtomicBool,
    /// The program has heard EAGAIN when there was no event, and went on.
    knows_eagain: AtomicBool,
    /// The program was to sleep for an event when that was asked last.
    blocked_last: AtomicBool,
}

impl Door {
    /// A door that is readable while a descriptor of events is.
    pub(crate) fn new(events: RawFd) -> io::Result<Arc<Self>> {
        let entrance = Poller::handed_out()?;
        entrance.add(events, 0, Interest::READ)?;
        Ok(Arc::new(Self {
            entrance,
            is_open: AtomicBool::new(false),
            calls: AtomicU8::new(0),
            polls: AtomicU8::new(0),
            owes_look: AtomicBool::new(false),
            was_armed: AtomicBool::new(false),
            knows_eagain: AtomicBool::new(false),
            blocked_last: AtomicBool::new(false),
        }))
    }

    /// Returns the descriptor that the program waits on.
    pub(crate) fn fd(&self) -> RawFd {
        self.entrance.as_raw_fd()
    }

    /// There is no event: whether the program sleeps until there is one, or hears so at once.
    ///
    /// # Errors
    /// EAGAIN, which it hears.
    pub(crate) fn check_blocks(&self) -> io::Result<()> {
        let blocks = !is_nonblocking(self.fd());
        self.blocked_last.store(blocks, Ordering::Relaxed);
        if blocks {
            return Ok(());
        }
        self.knows_eagain.store(true, Ordering::Relaxed);
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }

    /// What [`check_blocks`](Self::check_blocks) said last. That takes a system call, so a program
    /// that blocks is asked again before it sleeps only: until then it looks on.
    pub(crate) fn blocked_last(&self) -> bool {
        self.blocked_last.load(Ordering::Relaxed)
    }

    /// Whether the program may be woken without an event.
    pub(crate) fn may_open(&self) -> bool {
        self.knows_eagain.load(Ordering::Relaxed) && is_nonblocking(self.fd())
    }

    /// Whether it is readable while the device has work.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// The program has taken an event, after a look for work or not.
    pub(crate) fn on_taken(&self, looked: bool) {
        self.calls.store(CALLS, Ordering::Relaxed);
        self.polls.store(POLLS, Ordering::Relaxed);
        self.owes_look.store(!looked, Ordering::Relaxed);
    }

    /// A queue is polled, and empty. Returns whether the program may still answer what it has taken
    /// an event for.
    #[inline]
    pub(crate) fn awaits_answer(&self) -> bool {
        let polls = self.polls.load(Ordering::Relaxed);
        self.polls.store(polls.saturating_sub(1), Ordering::Relaxed);
        polls > 0 && self.calls.load(Ordering::Relaxed) > 0
    }

    /// The program waits for the next event: it has answered, or will not.
    pub(crate) fn on_wait(&self) {
        self.calls.store(0, Ordering::Relaxed);
    }

    /// The program asks for an event, and there is none. Returns whether to look for work first. A
    /// program that takes events until there is none has just been served: it arms the queue next,
    /// and polls, and what it answers then is on its way earlier.
    pub(crate) fn wants_look(&self) -> bool {
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls.saturating_sub(1), Ordering::Relaxed);
        calls < CALLS
    }

    /// A queue was armed. Returns whether to look for work: the program may sleep next, and would
    /// not be woken for what was there when it was woken last.
    pub(crate) fn on_armed(&self) -> bool {
        self.was_armed.store(true, Ordering::Relaxed);
        self.owes_look.swap(false, Ordering::Relaxed)
    }

    /// An armed queue is empty. Returns whether this is the first time since it was armed.
    #[inline]
    pub(crate) fn on_empty(&self) -> bool {
        self.was_armed.swap(false, Ordering::Relaxed)
    }

    fn open(&self, device: &Poller) -> bool {
        let added = self
            .entrance
            .add(device.as_raw_fd(), 1, Interest::READ)
            .is_ok();
        self.is_open.store(added, Ordering::Relaxed);
        added
    }

    fn shut(&self, device: &Poller) {
        if self.is_open.swap(false, Ordering::Relaxed) {
            // It fails only if it is not there.
            let _ = self.entrance.remove(device.as_raw_fd());
        }
    }
}

/// The doors of a device that are open.
#[derive(Debug)]
pub(crate) struct Doors {
    /// Thread of the open doors.
    owner: AtomicUsize,
    open: Mutex<Open>,
    /// Number of open doors.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Open {
    doors: Vec<Arc<Door>>,
    shut_until: Time,
}

impl Doors {
    pub(crate) fn new() -> Self {
        Self {
            owner: AtomicUsize::new(0),
            open: Mutex::default(),
            count: AtomicUsize::new(0),
        }
    }

    /// Whether any is open.
    pub(crate) fn any_open(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// The calling thread has armed a queue of a channel, whose door `may` open or not:
    /// opens its door, if it may be open. Returns whether it is. `now` is asked only if it is not
    /// open yet.
    pub(crate) fn on_armed(
        &self,
        door: &Arc<Door>,
        may: bool,
        device: &Poller,
        now: impl FnOnce() -> Time,
    ) -> bool {
        let own = this_thread();
        if may && door.is_open() && self.owner.load(Ordering::Relaxed) == own {
            return true;
        }
        let mut open = lock(&self.open);
        let result = if may {
            self.admit(&mut open, door, device, own, now())
        } else {
            open.shut(door, device);
            false
        };
        self.count.store(open.doors.len(), Ordering::Relaxed);
        result
    }

    /// The channel of a door is gone.
    pub(crate) fn forget(&self, door: &Arc<Door>, device: &Poller) {
        if door.is_open() {
            let mut open = lock(&self.open);
            open.shut(door, device);
            self.count.store(open.doors.len(), Ordering::Relaxed);
        }
    }

    fn admit(
        &self,
        open: &mut Open,
        door: &Arc<Door>,
        device: &Poller,
        own: usize,
        now: Time,
    ) -> bool {
        let is_only = match open.doors.as_slice() {
            [] => true,
            [only] => Arc::ptr_eq(only, door),
            _ => false,
        };
        if !is_only && self.owner.load(Ordering::Relaxed) != own {
            open.shut_all(device);
            open.shut_until = now + SHUT;
        }
        if now < open.shut_until {
            return false;
        }
        self.owner.store(own, Ordering::Relaxed);
        if door.is_open() {
            return true;
        }
        if open.doors.len() >= MOST || !door.open(device) {
            return false;
        }
        open.doors.push(Arc::clone(door));
        true
    }
}

impl Open {
    fn shut(&mut self, door: &Arc<Door>, device: &Poller) {
        door.shut(device);
        self.doors.retain(|other| !Arc::ptr_eq(other, door));
    }

    fn shut_all(&mut self, device: &Poller) {
        for door in self.doors.drain(..) {
            door.shut(device);
        }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_os::eventfd::EventFd;

    use super::*;

    struct Room {
        doors: Doors,
        device: Poller,
        work: EventFd,
        now: Time,
    }

    impl Room {
        fn new() -> Self {
            let (device, work) = (Poller::new().unwrap(), EventFd::counter().unwrap());
            device.add(work.as_raw_fd(), 0, Interest::READ).unwrap();
            Self {
                doors: Doors::new(),
                device,
                work,
                now: Time(1_000_000_000),
            }
        }

        fn arm(&self, door: &Arc<Door>, nonblocking: bool) -> bool {
            self.doors
                .on_armed(door, nonblocking, &self.device, || self.now)
        }

        fn arm_elsewhere(&self, door: &Arc<Door>) -> bool {
            std::thread::scope(|scope| scope.spawn(|| self.arm(door, true)).join().unwrap())
        }
    }

    fn door(events: &EventFd) -> Arc<Door> {
        Door::new(events.as_raw_fd()).unwrap()
    }

    fn is_readable(door: &Door) -> bool {
        let mut ready = Vec::new();
        door.entrance
            .wait(&mut ready, Some(Duration::ZERO))
            .unwrap();
        !ready.is_empty()
    }

    #[test]
    fn a_door_shows_events_and_work_only_if_the_program_hears_eagain() {
        let (room, events) = (Room::new(), EventFd::semaphore().unwrap());
        room.work.add(1).unwrap();
        let door = door(&events);
        assert!(!room.arm(&door, false) && !is_readable(&door));
        events.add(1).unwrap();
        assert!(is_readable(&door));
        assert!(events.try_take().unwrap());
        assert!(room.arm(&door, true) && is_readable(&door));
        assert!(!room.arm(&door, false) && !is_readable(&door) && !room.doors.any_open());
    }

    #[test]
    fn one_thread_has_open_doors() {
        let (mut room, events) = (Room::new(), EventFd::semaphore().unwrap());
        let [a, b] = [(); 2].map(|()| door(&events));
        assert!(room.arm(&a, true) && room.arm(&b, true));
        assert!(!room.arm_elsewhere(&a), "both are another thread's");
        assert!(!a.is_open() && !b.is_open() && !room.doors.any_open());
        assert!(!room.arm(&a, true), "not yet");
        room.now = room.now + SHUT;
        assert!(room.arm_elsewhere(&a));
        assert!(
            room.arm(&a, true),
            "the only one may go from thread to thread"
        );
        room.doors.forget(&a, &room.device);
        assert!(!room.doors.any_open());
        assert!(room.arm_elsewhere(&b), "its thread's doors are gone");
    }

    #[test]
    fn the_call_after_an_event_need_not_look() {
        let events = EventFd::semaphore().unwrap();
        let door = door(&events);
        assert!(door.wants_look() && !door.on_armed());
        door.on_taken(true);
        assert!(!door.wants_look() && door.awaits_answer() && !door.on_armed());
        assert!(door.wants_look() && !door.awaits_answer());
        door.on_taken(true);
        assert!((0..POLLS).all(|_| door.awaits_answer()));
        assert!(!door.awaits_answer(), "it polls on, and will not answer");
        door.on_taken(false);
        assert!(!door.wants_look() && door.on_armed() && !door.on_armed());
        assert!(door.on_empty() && !door.on_empty());
    }
}
