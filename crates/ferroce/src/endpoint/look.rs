//! Looks before a sleep: what completes is looked for, and wakes nobody.
//!
//! A queue that has raised an event raises no other one until it is armed. So a thread or task that
//! serves the endpoint leaves it unarmed, and polls it for a while before it sleeps, as long as
//! experience says that this pays ([`Looks`]).
//!
//! Invariant: while a server or a loop sleeps, all queues are armed.
//! Enforced by: a server or a loop arms all listed queues before it sleeps. After it has listed
//! queues, a server leaves them unarmed only while it is the only one and there is no loop. Another
//! one that comes meanwhile is counted before it arms: it finds the queues listed, or it is seen.
//! If broken: a future or a loop is not woken for a completion (`tests/looks.rs`).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ferroce_os::linger::Looks;
use smallvec::SmallVec;

use super::shared::Runtime;
use crate::Result;
use crate::sys::Queue;

/// Most queues that are looked at. If more are busy, a wake-up finds something in many of them.
const MOST: usize = 8;

/// The queues of an endpoint that are not armed, and the threads and tasks that may sleep.
#[derive(Default)]
pub(super) struct Unarmed {
    queues: Mutex<SmallVec<[Weak<Queue>; MOST]>>,
    /// Drivers, and threads that wait and serve the endpoint meanwhile.
    servers: AtomicUsize,
    /// Whether a loop waits for the endpoint's descriptor.
    has_loop: AtomicBool,
    pub(super) experience: Looks,
}

impl Unarmed {
    fn queues(&self) -> MutexGuard<'_, SmallVec<[Weak<Queue>; MOST]>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a queue that has raised its event.
    pub(super) fn list(&self, queue: &Arc<Queue>) {
        self.queues().push(Arc::downgrade(queue));
    }

    /// Delivers what has completed.
    pub(super) fn deliver(&self) -> Result<()> {
        let queues = live(&self.queues());
        each(&queues, |queue| queue.deliver()).map(drop)
    }

    /// Arms all, and delivers what completed before that.
    pub(super) fn arm(&self) -> Result<()> {
        let queues = live(&std::mem::take(&mut *self.queues()));
        // All are armed before a task is woken, which may come back here, and sleep.
        let armed = each(&queues, |queue| queue.arm().map(|()| false));
        let delivered = each(&queues, |queue| queue.deliver());
        armed.and(delivered).map(drop)
    }

    /// Whether nothing else may sleep while the caller, a server, leaves queues unarmed.
    pub(super) fn is_alone(&self) -> bool {
        self.servers.load(Ordering::Acquire) == 1 && !self.has_loop.load(Ordering::Acquire)
    }

    /// The queues to look at; none if the caller is not the only server.
    fn to_look_at(&self) -> SmallVec<[Arc<Queue>; MOST]> {
        let queues = self.queues();
        let may_look = self.is_alone() && queues.len() <= MOST;
        live(if may_look { &queues } else { &[] })
    }

    /// Whether there is a queue to look at.
    pub(super) fn can_look(&self) -> bool {
        !self.to_look_at().is_empty()
    }

    /// Looks once. Returns whether anything has completed; none if there is no queue to look at.
    pub(super) fn look(&self) -> Result<Option<bool>> {
        let queues = self.to_look_at();
        let any = each(&queues, |queue| queue.deliver())?;
        Ok((!queues.is_empty()).then_some(any))
    }

    /// Whether a driver or a waiting thread serves the endpoint now.
    pub(super) fn has_servers(&self) -> bool {
        self.servers.load(Ordering::Acquire) > 0
    }

    /// A loop waits for the endpoint's descriptor from now on.
    pub(super) fn note_loop(&self) {
        self.has_loop.store(true, Ordering::Release);
    }
}

/// Those that are not gone.
fn live(queues: &[Weak<Queue>]) -> SmallVec<[Arc<Queue>; MOST]> {
    queues.iter().filter_map(Weak::upgrade).collect()
}

/// Does the same with each, whatever becomes of the others. Returns whether any brought something,
/// or the first error.
fn each(queues: &[Arc<Queue>], does: impl Fn(&Arc<Queue>) -> Result<bool>) -> Result<bool> {
    let mut result = Ok(false);
    for queue in queues {
        let found = does(queue);
        result = result.and_then(|any| found.map(|found| any || found));
    }
    result
}

/// Something that serves an endpoint, as long as it lives.
pub(crate) struct Server(pub(super) Arc<Runtime>);

impl Server {
    pub(crate) fn new(runtime: &Arc<Runtime>) -> Self {
        runtime.unarmed.servers.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(runtime))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let unarmed = &self.0.unarmed;
        let others = unarmed.servers.fetch_sub(1, Ordering::AcqRel) - 1;
        // If there are none, the next one finds the queues listed.
        if others > 0 || unarmed.has_loop.load(Ordering::Acquire) {
            // Queues that fail have told the futures that wait for them.
            let _ = unarmed.arm();
        }
    }
}

#[cfg(all(test, feature = "software"))]
mod tests {
    use super::*;
    use crate::cq::Timestamps;
    use crate::endpoint::Endpoint;
    use crate::{Provider, sys::CompletionChannel};

    #[test]
    fn only_a_server_that_is_alone_leaves_queues_unarmed() {
        let provider = Provider::software();
        let context = provider.devices().unwrap()[0].open().unwrap();
        let channel = CompletionChannel::new(&context.0).unwrap();
        let queue = Queue::shared(&channel, 1, Timestamps::None).unwrap();
        let Endpoint(runtime) = Endpoint::new(&provider).unwrap();
        let unarmed = &runtime.unarmed;
        let first = Server::new(&runtime);
        assert!(!unarmed.can_look(), "all are armed");
        unarmed.list(&queue);
        assert!(unarmed.can_look());
        let second = Server::new(&runtime);
        assert_eq!(unarmed.look().unwrap(), None, "the other one may sleep");
        drop(second);
        assert!(
            !unarmed.can_look(),
            "a server that leaves another one arms all"
        );
        unarmed.list(&queue);
        drop(first);
        let _next = Server::new(&runtime);
        assert_eq!(unarmed.look().unwrap(), Some(false), "nothing has come");
        unarmed.note_loop();
        assert!(!unarmed.can_look(), "the loop may sleep");
        drop(queue);
        unarmed.arm().unwrap();
    }
}
