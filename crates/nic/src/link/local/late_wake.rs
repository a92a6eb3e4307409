//! Waking the receiver of a short ring, now or a little later.

use super::Outgoing;

/// Whether the receiver of a short ring may sleep and not have seen what was put in.
///
/// To be sure that he is awake this processor would have to wait until the others see what was put
/// in, which takes longer than to put it in. So if the device thread, or the program that polls,
/// comes again soon, that is left to it.
#[derive(Debug, Default)]
pub(crate) struct LateWake {
    /// Something was put in, and the receiver may have gone to sleep at that moment without having
    /// seen it.
    unsure: bool,
}

impl LateWake {
    /// Something was put in: wakes the receiver, if it sleeps. `again`: [`finish`](Self::finish) is
    /// called soon, and before the caller sleeps. Returns whether that call is to be arranged.
    #[inline]
    pub(crate) fn wake(&mut self, link: &Outgoing, again: bool) -> bool {
        if again && !link.seems_asleep() {
            return !std::mem::replace(&mut self.unsure, true);
        }
        link.wake_for_short_ring();
        false
    }

    /// Wakes the receiver, if it sleeps, for what was left.
    pub(crate) fn finish(&mut self, link: &Outgoing) {
        if std::mem::take(&mut self.unsure) {
            link.wake_for_short_ring();
        }
    }
}
