//! What waits for room, for a turn or for a time.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use ferroce_proto::time::Time;

/// An object that waits in a list of a service or of a link.
///
/// The lists know no objects. What takes a waiter out of a list, because there is room, or a turn
/// or a time has come, calls it once, without the list's lock.
pub(crate) trait Waiter: fmt::Debug + Send + Sync {
    /// The wait is over.
    fn on_turn(&self, now: Time);
}

/// Ends the wait of one: takes it out of a list.
pub(crate) fn remove(waiting: &mut Vec<Arc<dyn Waiter>>, one: &dyn Waiter) {
    waiting.retain(|other| !ptr::addr_eq(Arc::as_ptr(other), one));
}
