//! The memory of short rings that are idle is given back.
//!
//! A run is the beginning of use: from then on there is a look at all short rings every now and
//! then, as long as any of them has pages. One that carried nothing from one look to the next, and
//! has been read, gives its pages back and ends its run. So the next message that seeks it makes
//! the next look due.

use std::sync::Mutex;
use std::time::Duration;

use ferroce_os::clock;
use ferroce_proto::time::Time;

use super::send::Sending;
use crate::base::sync::lock;
use crate::objects::qp::Qp;
use crate::objects::services::Services;
use crate::services::timers::IDLE_SHORT_RINGS;

/// From one look to the next. Pages are given back after one to two of these.
const PERIOD: Duration = Duration::from_secs(5);

/// When the short rings that are sent by are looked at next, if any of them has pages.
#[derive(Debug, Default)]
pub(crate) struct IdleLook(Mutex<Option<Time>>);

impl Services {
    /// A short ring has pages from here on.
    pub(super) fn expect_idle_short_rings(&self) {
        let mut due = lock(&self.idle_look.0);
        if due.is_none() {
            let at = clock::monotonic() + PERIOD;
            self.set_timer(IDLE_SHORT_RINGS, None, Some(at));
            *due = Some(at);
        }
    }

    /// A look begins that is due.
    pub(super) fn begin_idle_look(&self) {
        let due = lock(&self.idle_look.0).take();
        self.set_timer(IDLE_SHORT_RINGS, due, None);
    }
}

impl Sending {
    /// Gives pages back, if nothing was put in since the last call of this, and everything was
    /// read. Returns whether there are pages left.
    fn give_idle_memory_back(&mut self) -> bool {
        let at = self.sender.position();
        let is_idle = std::mem::replace(&mut self.looked_at, at) == at;
        if !self.sender.holds_memory() {
            return false;
        }
        if !is_idle || !self.sender.give_memory_back() {
            return true;
        }
        self.end_run();
        false
    }
}

impl Qp {
    /// As [`Sending::give_idle_memory_back`], for the short ring that it sends by, if there is one.
    pub(super) fn give_idle_memory_back(&self) -> bool {
        let mut locked = self.lock();
        let out = locked.short_rings.out.as_deref_mut();
        out.is_some_and(Sending::give_idle_memory_back)
    }
}
