//! The queue inside a completion queue.

use std::collections::VecDeque;

use ferroce_proto::ids::Qpn;
use ferroce_proto::verbs::{Wc, WcStatus};

/// Which completion makes the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Armed {
    #[default]
    No,
    Solicited,
    Any,
}

/// What a pushed completion calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// Queued.
    Quiet,
    /// Queued, and it was waited for: one event on the channel.
    Notify,
    /// The queue was full: this completion is lost and the queue is dead from here.
    Overflowed,
    /// The queue had overflowed before.
    Dead,
}

/// Completions between a device and its program: bounded, one-shot armed, dead after the first overflow.
#[derive(Debug)]
pub(super) struct Ring {
    queue: VecDeque<Wc>,
    capacity: usize,
    armed: Armed,
    overflowed: bool,
}

impl Ring {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            capacity,
            armed: Armed::No,
            overflowed: false,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn overflowed(&self) -> bool {
        self.overflowed
    }

    pub(super) fn push(&mut self, wc: Wc, solicited: bool) -> Pushed {
        if self.overflowed {
            return Pushed::Dead;
        }
        if self.queue.len() >= self.capacity {
            self.overflowed = true;
            return Pushed::Overflowed;
        }
        // An error counts as solicited.
        let solicited = solicited || wc.status != WcStatus::Success;
        self.queue.push_back(wc);
        if self.armed == Armed::Any || (self.armed == Armed::Solicited && solicited) {
            self.armed = Armed::No;
            return Pushed::Notify;
        }
        Pushed::Quiet
    }

    pub(super) fn pop(&mut self) -> Option<Wc> {
        self.queue.pop_front()
    }

    /// Drops what is queued for a queue pair.
    pub(super) fn forget(&mut self, qpn: Qpn) {
        self.queue.retain(|wc| wc.qp_num != qpn);
    }

    /// Whether the next completion, or the next solicited one, makes an event.
    pub(super) fn is_armed(&self) -> bool {
        self.armed != Armed::No
    }

    /// Arms for the next completion. Asking for any completion wins over asking for a solicited one, in whatever order.
    pub(super) fn arm(&mut self, solicited_only: bool) {
        self.armed = self.armed.max(if solicited_only {
            Armed::Solicited
        } else {
            Armed::Any
        });
    }

    /// Changes the capacity unless more is queued than would fit; then it says how much.
    pub(super) fn resize(&mut self, capacity: usize) -> Result<(), usize> {
        if self.queue.len() > capacity {
            return Err(self.queue.len());
        }
        self.capacity = capacity;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ferroce_proto::verbs::{WcFlags, WcOpcode};

    use super::*;

    fn wc(wr_id: u64, status: WcStatus) -> Wc {
        Wc {
            wr_id,
            status,
            opcode: WcOpcode::Send,
            vendor_err: 0,
            byte_len: 0,
            imm: None,
            qp_num: Qpn::new(5),
            src_qp: Qpn::new(0),
            flags: WcFlags::empty(),
        }
    }

    #[test]
    fn holds_exactly_its_capacity_then_dies() {
        let mut ring = Ring::new(2);
        assert_eq!(ring.push(wc(1, WcStatus::Success), false), Pushed::Quiet);
        assert_eq!(ring.push(wc(2, WcStatus::Success), false), Pushed::Quiet);
        assert_eq!(
            ring.push(wc(3, WcStatus::Success), false),
            Pushed::Overflowed
        );
        assert_eq!(ring.pop().map(|wc| wc.wr_id), Some(1));
        assert_eq!(ring.push(wc(4, WcStatus::Success), false), Pushed::Dead);
        assert_eq!(ring.pop().map(|wc| wc.wr_id), Some(2));
        assert_eq!(ring.pop(), None);
        assert!(ring.overflowed());
    }

    #[test]
    fn arming_is_one_shot_and_says_nothing_about_what_is_queued() {
        let mut ring = Ring::new(8);
        ring.push(wc(1, WcStatus::Success), true);
        ring.arm(false);
        assert_eq!(ring.push(wc(2, WcStatus::Success), false), Pushed::Notify);
        assert_eq!(ring.push(wc(3, WcStatus::Success), false), Pushed::Quiet);
    }

    #[test]
    fn solicited_arming_waits_for_solicited_or_error() {
        let mut ring = Ring::new(8);
        ring.arm(true);
        assert_eq!(ring.push(wc(1, WcStatus::Success), false), Pushed::Quiet);
        assert_eq!(ring.push(wc(2, WcStatus::Success), true), Pushed::Notify);
        ring.arm(true);
        assert_eq!(
            ring.push(wc(3, WcStatus::WrFlushErr), false),
            Pushed::Notify
        );
        ring.arm(false);
        ring.arm(true);
        assert_eq!(ring.push(wc(4, WcStatus::Success), false), Pushed::Notify);
    }

    #[test]
    fn forgets_one_queue_pair_and_keeps_the_others_in_order() {
        let mut ring = Ring::new(8);
        let other = |wr_id| Wc {
            qp_num: Qpn::new(6),
            ..wc(wr_id, WcStatus::Success)
        };
        ring.push(other(1), false);
        ring.push(wc(2, WcStatus::WrFlushErr), false);
        ring.push(other(3), false);
        ring.forget(Qpn::new(5));
        assert_eq!(ring.pop().map(|wc| wc.wr_id), Some(1));
        assert_eq!(ring.pop().map(|wc| wc.wr_id), Some(3));
        assert_eq!(ring.pop(), None);
    }

    #[test]
    fn shrinks_only_to_what_is_queued() {
        let mut ring = Ring::new(8);
        ring.push(wc(1, WcStatus::Success), false);
        ring.push(wc(2, WcStatus::Success), false);
        assert_eq!(ring.resize(1), Err(2));
        assert_eq!(ring.resize(2), Ok(()));
        assert_eq!(ring.capacity(), 2);
    }
}
