//! The one [`Nic`] of a process, and none in a child of `fork` until it asks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use ferroce_os::exit::at_exit;
use ferroce_os::fork::{generation, on_fork_child};
use ferroce_os::thread::uncancellable;

use crate::base::sync::lock;
use crate::{Error, Nic};

/// Children of children that can each start a `Nic` without `exec`.
const GENERATIONS: usize = 256;

/// A cell per generation. The child of a process with threads can neither lock nor drop what other
/// threads may have held at the moment of the `fork`. So it moves on to the next cell and leaves
/// the parent's as it is.
static CELLS: [Mutex<Option<Arc<Nic>>>; GENERATIONS] = [const { Mutex::new(None) }; GENERATIONS];
static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// The cell of this process. A child of a bare `clone` hears here that it is one.
fn current_cell() -> usize {
    let _ = generation();
    GENERATION.load(Ordering::Acquire)
}

/// The `Nic` of this process, started if need be.
pub(super) fn current() -> Result<Arc<Nic>, Error> {
    let cell = CELLS.get(current_cell()).ok_or_else(|| {
        Error::no_memory(format!(
            "forked {GENERATIONS} times in a row, each time with an open device"
        ))
    })?;
    let mut cell = lock(cell);
    if let Some(nic) = &*cell {
        return Ok(Arc::clone(nic));
    }
    on_fork_child(move_on).map_err(|e| Error::system("pthread_atfork", &e))?;
    at_exit(leave).map_err(|e| Error::system("atexit", &e))?;
    // Reading files and writing to stderr are cancellation points, and the cell is locked.
    let nic = uncancellable(Nic::start)?;
    *cell = Some(Arc::clone(&nic));
    Ok(nic)
}

/// The `Nic` of this process if it runs, for a caller that does not want one started.
pub(super) fn running() -> Option<Arc<Nic>> {
    let cell = CELLS.get(current_cell())?;
    // A thread that starts one right now has not answered any caller yet.
    cell.try_lock().ok()?.clone()
}

/// As the process exits. It may do so in a signal handler, while a lock is held.
fn leave() {
    let cell = CELLS.get(current_cell());
    let nic = cell.and_then(|cell| cell.try_lock().ok()?.clone());
    if let Some(nic) = nic {
        nic.leave();
    }
}

/// In the child, right after `fork`.
fn move_on() {
    let generation = GENERATION.load(Ordering::Acquire);
    let untouched = CELLS
        .get(generation)
        .is_none_or(|cell| match cell.try_lock() {
            Ok(cell) => cell.is_none(),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => false,
        });
    if !untouched {
        GENERATION.store(generation + 1, Ordering::Release);
    }
}
