//! The words by which the leader, the threads that follow it and the device thread find each other.
//!
//! Each of them writes its own word, passes a fence, and looks at the words of the others. So of
//! two that meet, at least one sees the other.
//!
//! | thread | writes | looks at | then |
//! |---|---|---|---|
//! | device thread | `relied_on` | `waits`, `followers` | sleeps if a leader waits for everything |
//! | leader, after a wait | `waits` | `relied_on` | sets the end of that sleep |
//! | leader that gives way | `gives_way`, `owner` | `followers` | leaves the lead to them |
//! | follower | `followers` | `relied_on`, `gives_way`, `owner` | ends the others' sleep |

use std::sync::atomic::Ordering;

use crate::base::atomics::{Atomic as _, AtomicNumber as _, Atomics, Machine};

/// No thread leads.
const NOBODY: usize = 0;

/// Which threads lead, wait, follow and rely on that. A model checker runs it on words of its own.
#[derive(Debug, Default)]
pub(super) struct LeadWords<M: Atomics = Machine> {
    /// The thread that leads.
    owner: M::Number,
    /// The leader waits, or is about to.
    waits: M::Flag,
    /// The leader gives the lead back when another thread waits for completions.
    gives_way: M::Flag,
    /// The device thread sleeps until a leader has been away for a while.
    relied_on: M::Flag,
    /// Threads that wait for completion events and do not lead.
    followers: M::Number,
}

/// Whose sleep a follower has to end before it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wakes {
    pub(super) device_thread: bool,
    pub(super) leader: bool,
}

impl<M: Atomics> LeadWords<M> {
    /// A thread leads from here on, unless another one does or follows.
    pub(super) fn take(&self, own: usize) -> bool {
        if self.has_followers() {
            return false;
        }
        let taken = self.owner.compare_exchange(NOBODY, own);
        // A signal handler may have left the wait by a jump.
        taken.is_ok() || taken == Err(own)
    }

    /// The leader gives way to the next thread that waits for completions. It looks for followers
    /// before each sleep from here on.
    pub(super) fn give_way(&self) {
        self.gives_way.store(true, Ordering::Relaxed);
        // Orders this before the look for followers, as `follow` orders the two the other way
        // round.
        M::fence();
    }

    /// The thread that leads does not any more. Returns whether threads follow that wait for the
    /// lead.
    pub(super) fn give_back(&self) -> bool {
        // Only the leader writes it: no locked instruction.
        let gave_way = self.gives_way.load(Ordering::Relaxed);
        self.gives_way.store(false, Ordering::Relaxed);
        self.owner.store(NOBODY, Ordering::Release);
        if !gave_way {
            return false;
        }
        // Orders the end of the lead before the look, as `follow` orders the two the other way
        // round.
        M::fence();
        self.has_followers()
    }

    /// The leader is about to wait for its event and for work of the device.
    pub(super) fn begin_wait(&self) {
        self.waits.store(true, Ordering::Relaxed);
    }

    /// The leader does not wait any more. Returns whether the device thread has relied on it.
    pub(super) fn end_wait(&self) -> bool {
        self.waits.store(false, Ordering::Relaxed);
        // Orders the end of the wait before the look, as `rely` orders the two the other way round.
        M::fence();
        self.relied_on.load(Ordering::Relaxed) && self.relied_on.swap(false, Ordering::Relaxed)
    }

    /// In the device thread: calls `sleep` if it may rely on a leader that waits.
    pub(super) fn rely(&self, sleep: impl FnOnce()) {
        // A store would do; the model checker orders it with the swap of a follower only if it is
        // one as well.
        self.relied_on.swap(true, Ordering::Relaxed);
        M::fence();
        if self.waits() && !self.has_followers() {
            sleep();
        }
        self.relied_on.store(false, Ordering::Relaxed);
    }

    /// A thread follows from here on, until [`end_follow`](Self::end_follow). `None`: it
    /// `would_lead`, and may try that again, since nobody leads or follows.
    pub(super) fn follow(&self, would_lead: bool) -> Option<Wakes> {
        let others = self.followers.fetch_add(1);
        M::fence();
        if would_lead && others == 0 && !self.is_taken() {
            self.end_follow();
            return None;
        }
        Some(Wakes {
            device_thread: self.relied_on.swap(false, Ordering::Relaxed),
            leader: self.gives_way.load(Ordering::Relaxed),
        })
    }

    /// A thread that follows does not any more.
    pub(super) fn end_follow(&self) {
        self.followers.fetch_sub(1);
    }

    /// Whether threads wait for completion events that the leader would have to wake.
    pub(super) fn has_followers(&self) -> bool {
        self.followers.load(Ordering::Relaxed) > 0
    }

    /// Whether a thread leads.
    pub(super) fn is_taken(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != NOBODY
    }

    /// Whether a leader waits.
    pub(super) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }
}
