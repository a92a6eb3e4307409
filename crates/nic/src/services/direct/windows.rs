//! Memory windows on the board: published when they are bound, and taken back.
//!
//! A window's key is withdrawn before the operation that takes it back completes, and that waits
//! for peers in the middle of using it. The operation has the queue pair's lock, so it does not
//! wait there: it is tried again ([`Boards::close_window`] tells). What a peer invalidates by a
//! SEND nobody else uses, and that peer has done all that it had to do before.

use ferroce_proto::ids::Key;
use ferroce_proto::mr::OpenWindow;

use super::Boards;
use super::layout::Serves;
use super::withdraw::Withdrawn;
use crate::base::sync::lock;

impl Boards {
    /// Publishes what a window opens, unless it is. The caller has the rights table alone.
    pub(crate) fn open_window(&self, window: &OpenWindow) {
        let serves = window.qpn.map_or(Serves::Domain, Serves::QueuePair);
        if let Some(own) = self.own().filter(|own| !own.has(window.key)) {
            own.publish(window.key, &window.region, serves);
        }
    }

    /// Withdraws a window's key: nobody begins to use it any more. Returns whether nobody is in the
    /// middle of it; if somebody is, ask again. The caller has the rights table.
    pub(crate) fn close_window(&self, key: Key) -> bool {
        let Some(own) = self.own() else { return true };
        let mut closing = lock(&self.closing);
        if let Some(place) = own.withdraw(key) {
            closing.push(Withdrawn {
                key,
                place: Some(place),
            });
        }
        if closing.is_empty() {
            return true;
        }
        for window in closing.extract_if(.., |window| !self.in_use(|named| named.key == window.key))
        {
            self.free(window);
        }
        closing.iter().all(|window| window.key != key)
    }

    /// Waits until nobody is in the middle of using a window that was withdrawn since it goes. The
    /// caller has no lock.
    pub(crate) fn settle_window(&self, window: Withdrawn) {
        let key = window.key;
        self.settle(window);
        let mut closing = lock(&self.closing);
        let before: Vec<_> = closing.extract_if(.., |window| window.key == key).collect();
        drop(closing);
        for window in before {
            self.settle(window);
        }
    }
}
