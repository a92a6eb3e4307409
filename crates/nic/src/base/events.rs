//! Events on a descriptor: a queue whose length a semaphore eventfd shows.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ferroce_os::eventfd::EventFd;

use super::sync::lock;
use crate::Error;

/// What can be queued: it is about something, with which it goes.
pub(crate) trait Owned {
    /// Tells what an event is about.
    type Owner: Copy + Eq + Hash + Debug;

    /// Object that the event is about.
    fn owner(&self) -> Self::Owner;
}

/// A queue of events with a descriptor that is readable while it is not empty. A consumer reads one
/// count (8 bytes, outside of any lock, so that it can block there), then [`pop`](Self::pop)s. One
/// count stands for one queued event, so every kind of waiting (blocking, `O_NONBLOCK`, poll, epoll
/// in both modes) loses no wake-up.
///
/// A count may be *owed*: the thread that pushes the event is about to take it, and then it costs
/// no system call. Somebody [pays](Self::pay) in a while what was not taken.
#[derive(Debug)]
pub(crate) struct EventQueue<T: Owned> {
    fd: EventFd,
    queue: Mutex<Queue<T>>,
    /// Events that were pushed and neither popped nor taken out: a look at it costs no system call.
    /// Changed under the lock.
    len: AtomicUsize,
    /// Counts that are not on the descriptor, though nobody has taken them. Changed under the lock.
    owed: AtomicUsize,
    /// A consumer is awake and waits for the next event: it takes no count of the descriptor.
    awaited: AtomicBool,
}

impl<T: Owned> EventQueue<T> {
    /// An empty queue.
    pub(crate) fn new() -> Result<Self, Error> {
        let fd = EventFd::semaphore().map_err(|e| Error::system("eventfd", &e))?;
        Ok(Self {
            fd,
            queue: Mutex::new(Queue::new()),
            len: AtomicUsize::new(0),
            owed: AtomicUsize::new(0),
            awaited: AtomicBool::new(false),
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Adds an event.
    pub(crate) fn push(&self, event: T) {
        self.push_with(event, || self.add(1));
    }

    /// Adds an event, whose count is owed: the caller sees to it that somebody [pays](Self::pay).
    pub(crate) fn push_owing(&self, event: T) {
        self.push_with(event, || {
            self.owed.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// Adds an event, and what `tells` of it under the lock unless it is awaited.
    fn push_with(&self, event: T, tells: impl FnOnce()) {
        let mut queue = lock(&self.queue);
        queue.push(event);
        self.len.fetch_add(1, Ordering::Relaxed);
        if self.awaited.load(Ordering::Relaxed) && self.awaited.swap(false, Ordering::Relaxed) {
            return;
        }
        tells();
    }

    fn add(&self, count: usize) {
        // It fails only if a stranger has written 2^64 to the descriptor: then it is readable
        // anyway.
        let _ = self.fd.add(count as u64);
    }

    /// Puts what is owed on the descriptor.
    pub(crate) fn pay(&self) {
        if self.owed.load(Ordering::Relaxed) > 0 {
            let _queue = lock(&self.queue);
            self.add(self.owed.swap(0, Ordering::Relaxed));
        }
    }

    /// Takes one count that is owed. Returns whether there was one.
    fn take_owed(&self) -> bool {
        self.owed.load(Ordering::Relaxed) > 0 && {
            let _queue = lock(&self.queue);
            self.take_owed_of_locked()
        }
    }

    /// [`take_owed`](Self::take_owed), by a caller that has the lock.
    fn take_owed_of_locked(&self) -> bool {
        let owed = self.owed.load(Ordering::Relaxed);
        self.owed.store(owed.saturating_sub(1), Ordering::Relaxed);
        owed > 0
    }

    /// Takes a count back, by a caller that has the lock.
    fn take_any_of_locked(&self) -> bool {
        self.take_owed_of_locked() || self.fd.try_take().unwrap_or(false)
    }

    /// Takes one count, as a consumer's read does. Returns whether there was one.
    #[cfg(test)]
    pub(crate) fn take_count(&self) -> bool {
        self.fd.try_take().expect("an eventfd can be read")
    }

    /// Takes one count, if there is an event.
    pub(crate) fn try_take_count(&self) -> io::Result<bool> {
        Ok(self.has_events() && (self.take_owed() || self.fd.try_take()?))
    }

    /// Takes the oldest event; the caller has taken its count.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut queue = lock(&self.queue);
        let event = queue.pop()?;
        self.len.fetch_sub(1, Ordering::Relaxed);
        Some(event)
    }

    /// Runs `work`, and hands the count of the first event that is pushed meanwhile to the caller,
    /// past the descriptor: two system calls less. Returns whether there was one. One caller at a
    /// time.
    pub(crate) fn take_count_of(&self, work: impl FnOnce()) -> bool {
        self.awaited.store(true, Ordering::Relaxed);
        work();
        !self.awaited.swap(false, Ordering::Relaxed)
    }

    /// Whether there is an event. One whose count was taken counts until it is popped.
    pub(crate) fn has_events(&self) -> bool {
        self.len.load(Ordering::Relaxed) > 0
    }

    /// Removes the newest event of an owner with its count. Returns false if there is none, or if
    /// consumers have taken the counts of all events: one of them is about to pop it.
    pub(crate) fn take_back(&self, owner: T::Owner) -> bool {
        let mut queue = lock(&self.queue);
        let is_back = queue.places.contains_key(&owner)
            && self.take_any_of_locked()
            && queue.remove_newest(owner);
        self.len.fetch_sub(usize::from(is_back), Ordering::Relaxed);
        is_back
    }

    /// Removes an owner's events, with their counts. A count that a consumer has already taken
    /// stays taken: its [`pop`](Self::pop) finds nothing and it waits again.
    pub(crate) fn forget(&self, owner: T::Owner) {
        drop(self.extract(owner, |_| true));
    }

    /// Removes those of an owner's events that match, with their counts, and hands them over in
    /// order.
    pub(crate) fn extract(&self, owner: T::Owner, matches: impl Fn(&T) -> bool) -> Vec<T> {
        let mut queue = lock(&self.queue);
        let taken = queue.extract(owner, matches);
        self.len.fetch_sub(taken.len(), Ordering::Relaxed);
        for _ in &taken {
            if !self.take_any_of_locked() {
                break;
            }
        }
        taken
    }
}

/// Gaps that are left alone.
const FEW_GAPS: usize = 32;
/// Lists that are kept: as many as a channel's queues have events at once, as a rule.
const SPARES: usize = 4;

/// The events in order, and where each owner's are: an identifier among thousands goes without a
/// look at the others' events.
#[derive(Debug)]
struct Queue<T: Owned> {
    /// With gaps where events were taken out before their turn.
    events: VecDeque<Option<T>>,
    /// Number of the first place; they are numbered in order.
    first: u64,
    places: HashMap<T::Owner, VecDeque<u64>>,
    /// Empty lists of owners that have no more events, for the next owners: an event allocates
    /// nothing in steady state. At most [`SPARES`].
    spares: Vec<VecDeque<u64>>,
    gaps: usize,
}

impl<T: Owned> Queue<T> {
    fn new() -> Self {
        Self {
            events: VecDeque::new(),
            first: 0,
            places: HashMap::new(),
            spares: Vec::with_capacity(SPARES),
            gaps: 0,
        }
    }

    fn push(&mut self, event: T) {
        let place = self.first + self.events.len() as u64;
        let owner = event.owner();
        let spare = || self.spares.pop().unwrap_or_default();
        let places = self.places.entry(owner).or_insert_with(spare);
        places.push_back(place);
        self.events.push_back(Some(event));
    }

    fn pop(&mut self) -> Option<T> {
        while let Some(place) = self.events.pop_front() {
            self.first += 1;
            let Some(event) = place else {
                self.gaps -= 1;
                continue;
            };
            let owner = event.owner();
            if let Some(places) = self.places.get_mut(&owner) {
                // The oldest of all is the oldest of its owner's.
                places.pop_front();
                if places.is_empty() {
                    self.remove_owner(owner);
                }
            }
            self.close_gaps();
            return Some(event);
        }
        None
    }

    fn extract(&mut self, owner: T::Owner, matches: impl Fn(&T) -> bool) -> Vec<T> {
        let (mut taken, mut kept) = (Vec::new(), VecDeque::new());
        for place in self.places.remove(&owner).unwrap_or_default() {
            let index = usize::try_from(place - self.first);
            let event = index.ok().and_then(|index| self.events.get_mut(index));
            match event.and_then(|event| event.take_if(|event| matches(event))) {
                Some(event) => taken.push(event),
                None => kept.push_back(place),
            }
        }
        if !kept.is_empty() {
            self.places.insert(owner, kept);
        }
        self.gaps += taken.len();
        self.close_gaps();
        taken
    }

    /// Removes the newest event of an owner. Returns whether there was one.
    fn remove_newest(&mut self, owner: T::Owner) -> bool {
        let Some(places) = self.places.get_mut(&owner) else {
            return false;
        };
        let newest = places.pop_back();
        if places.is_empty() {
            self.remove_owner(owner);
        }
        let index = newest.and_then(|place| usize::try_from(place - self.first).ok());
        let event = index.and_then(|index| self.events.get_mut(index));
        let removed = event.is_some_and(|event| event.take().is_some());
        self.gaps += usize::from(removed);
        self.close_gaps();
        removed
    }

    /// An owner has no more events.
    fn remove_owner(&mut self, owner: T::Owner) {
        let spare = self.places.remove(&owner);
        self.spares
            .extend(spare.filter(|_| self.spares.len() < SPARES));
    }

    /// Keeps the gaps fewer than the events, but for a few.
    fn close_gaps(&mut self) {
        while let Some(None) = self.events.front() {
            self.events.pop_front();
            self.first += 1;
            self.gaps -= 1;
        }
        if self.gaps <= FEW_GAPS || 2 * self.gaps <= self.events.len() {
            return;
        }
        self.places.clear();
        self.gaps = 0;
        for event in std::mem::take(&mut self.events).into_iter().flatten() {
            self.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event (first) of an owner (second).
    impl Owned for (u32, u32) {
        type Owner = u32;

        fn owner(&self) -> u32 {
            self.1
        }
    }

    fn filled(count: u32, owners: u32) -> EventQueue<(u32, u32)> {
        let queue = EventQueue::new().unwrap();
        for i in 0..count {
            queue.push((i, i % owners));
        }
        queue
    }

    fn drain(queue: &EventQueue<(u32, u32)>) -> Vec<u32> {
        let mut all = Vec::new();
        while queue.take_count() {
            all.push(queue.pop().unwrap().0);
        }
        assert!(queue.pop().is_none() && !queue.has_events());
        all
    }

    #[test]
    fn an_owner_goes_with_its_events_and_counts() {
        let queue = filled(9, 3);
        queue.forget(1);
        assert_eq!(queue.extract(2, |(i, _)| *i > 2), [(5, 2), (8, 2)]);
        assert_eq!(queue.extract(7, |_| true), []);
        assert_eq!(drain(&queue), [0, 2, 3, 6]);
    }

    #[test]
    fn a_count_that_was_taken_finds_nothing_once_its_event_is_gone() {
        let queue = filled(1, 1);
        assert!(queue.take_count());
        queue.forget(0);
        assert!(queue.pop().is_none() && !queue.take_count());
    }

    #[test]
    fn the_newest_event_is_taken_back_unless_its_count_is_taken() {
        let queue = filled(5, 2);
        assert!(queue.take_back(0) && queue.take_back(1));
        assert!(!queue.take_back(7));
        assert_eq!(drain(&queue), [0, 1, 2]);
        queue.push((9, 0));
        assert!(queue.take_count());
        assert!(!queue.take_back(0), "a consumer is about to pop it");
        assert_eq!(queue.pop(), Some((9, 0)));
        assert!(!queue.take_back(0));
    }

    #[test]
    fn a_count_is_handed_over_once_and_the_next_is_on_the_descriptor() {
        let queue = filled(0, 1);
        assert!(!queue.take_count_of(|| ()));
        assert!(queue.take_count_of(|| {
            queue.push((1, 0));
            queue.push((2, 0));
        }));
        assert_eq!(queue.pop(), Some((1, 0)));
        queue.push((3, 0));
        assert_eq!(drain(&queue), [2, 3]);
    }

    #[test]
    fn a_count_that_is_owed_is_taken_without_the_descriptor_or_paid() {
        let queue = filled(0, 1);
        for i in 0..4 {
            queue.push_owing((i, i));
        }
        assert!(!queue.take_count(), "nothing is on the descriptor");
        assert!(queue.try_take_count().unwrap());
        assert_eq!(queue.pop(), Some((0, 0)));
        assert!(queue.take_back(3), "as any other");
        queue.forget(2);
        queue.pay();
        queue.pay();
        assert_eq!(drain(&queue), [1]);
        assert!(queue.take_count_of(|| queue.push_owing((5, 5))));
        queue.pay();
        assert!(!queue.take_count(), "it was handed over");
    }

    /// In any order of pushes, pops and ends of owners the events that are left come in the order
    /// in which they were pushed.
    #[test]
    fn the_order_is_kept_and_gaps_do_not_pile_up() {
        let queue = filled(0, 1);
        let mut model: VecDeque<(u32, u32)> = VecDeque::new();
        let mut state = 1_u32;
        for i in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (kind, owner) = (state >> 30, state >> 20 & 63);
            if kind < 2 {
                queue.push((i, owner));
                model.push_back((i, owner));
            } else if kind == 2 {
                queue.forget(owner);
                model.retain(|event| event.1 != owner);
            } else if state & 1 << 19 == 0 {
                assert_eq!(queue.take_count(), !model.is_empty());
                assert_eq!(queue.pop(), model.pop_front());
            }
            let inner = lock(&queue.queue);
            assert_eq!(inner.events.len(), model.len() + inner.gaps);
            assert!(inner.gaps <= FEW_GAPS.max(model.len()));
        }
        let rest: Vec<u32> = model.into_iter().map(|(i, _)| i).collect();
        assert_eq!(drain(&queue), rest);
        assert!(lock(&queue.queue).places.is_empty());
    }
}
