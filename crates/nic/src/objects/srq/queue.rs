//! What the lock of a shared receive queue guards.

use std::collections::{HashSet, VecDeque};
use std::sync::Weak;

use ferroce_proto::ids::Qpn;
use ferroce_proto::verbs::{PostError, RecvWr};

use crate::objects::xrc::Borrower;
use crate::{Error, Qp};

/// A queue pair, or a process, that found nothing in a queue.
#[derive(Clone, Debug)]
pub(super) enum ReceiveWaiter {
    /// A queue pair of this process.
    Qp(Weak<Qp>),
    /// Queue pair of another process.
    Borrower(Borrower),
}

/// Work requests, the limit, and what waits for some.
#[derive(Debug)]
pub(super) struct ReceiveQueue {
    wrs: VecDeque<RecvWr>,
    max_wr: u32,
    /// 0: not armed.
    limit: u32,
    /// Queue pairs that found nothing, longest waiting first, each once.
    waiting: VecDeque<(Qpn, ReceiveWaiter)>,
    is_waiting: HashSet<Qpn>,
    retired: bool,
}

impl ReceiveQueue {
    pub(super) fn new(max_wr: u32) -> Self {
        Self {
            wrs: VecDeque::new(),
            max_wr,
            limit: 0,
            waiting: VecDeque::new(),
            is_waiting: HashSet::new(),
            retired: false,
        }
    }

    pub(super) fn max_wr(&self) -> u32 {
        self.max_wr
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Changes all that is given, or nothing.
    pub(super) fn modify(&mut self, max_wr: Option<u32>, limit: Option<u32>) -> Result<(), Error> {
        let new_max = max_wr.unwrap_or(self.max_wr);
        let new_limit = limit.unwrap_or(self.limit);
        if self.wrs.len() > new_max as usize {
            return Err(Error::invalid(format!(
                "the shared receive queue holds {} work requests, more than the max_wr of {new_max}",
                self.wrs.len()
            )));
        }
        if new_limit > new_max {
            return Err(Error::invalid(format!(
                "srq_limit {new_limit} is above the max_wr of {new_max}"
            )));
        }
        (self.max_wr, self.limit) = (new_max, new_limit);
        Ok(())
    }

    /// Adds a work request.
    pub(super) fn push(&mut self, wr: RecvWr, max_sge: u32) -> Result<(), Error> {
        let (errno, refusal) = if self.wrs.len() >= self.max_wr as usize {
            (libc::ENOMEM, PostError::QueueFull(self.max_wr))
        } else if wr.sges.len() > max_sge as usize {
            let got = wr.sges.len();
            (libc::EINVAL, PostError::TooManySges { got, max: max_sge })
        } else {
            self.wrs.push_back(wr);
            return Ok(());
        };
        Err(Error::new(errno, refusal.to_string()))
    }

    /// Takes the oldest work request.
    pub(super) fn pop(&mut self) -> Option<RecvWr> {
        self.wrs.pop_front()
    }

    /// After a [`pop`](Self::pop): whether the limit was armed and fewer are left now. That disarms
    /// it.
    pub(super) fn fell_below_limit(&mut self) -> bool {
        let fell = !self.retired && self.wrs.len() < self.limit as usize;
        if fell {
            self.limit = 0;
        }
        fell
    }

    /// A queue pair found nothing.
    pub(super) fn note_waiting(&mut self, qpn: Qpn, waiter: ReceiveWaiter) {
        if self.is_waiting.insert(qpn) {
            self.waiting.push_back((qpn, waiter));
        }
    }

    pub(super) fn is_awaited_by(&self, qpn: Qpn) -> bool {
        self.is_waiting.contains(&qpn)
    }

    /// The queue pair that has waited longest, off the list.
    pub(super) fn next_waiting(&mut self) -> Option<ReceiveWaiter> {
        let (qpn, waiter) = self.waiting.pop_front()?;
        self.is_waiting.remove(&qpn);
        Some(waiter)
    }

    /// A work request that was taken and not used is the oldest again.
    pub(super) fn put_back(&mut self, wr: RecvWr) {
        if !self.retired {
            self.wrs.push_front(wr);
        }
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired
    }

    /// The queue ends. Returns false if it had ended before.
    pub(super) fn retire(&mut self) -> bool {
        self.wrs.clear();
        !std::mem::replace(&mut self.retired, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wr(wr_id: u64) -> RecvWr {
        RecvWr {
            wr_id,
            sges: Default::default(),
        }
    }

    fn filled(max_wr: u32, count: u64) -> ReceiveQueue {
        let mut queue = ReceiveQueue::new(max_wr);
        for id in 0..count {
            queue.push(wr(id), 1).unwrap();
        }
        queue
    }

    #[test]
    fn the_limit_speaks_once_when_fewer_are_left() {
        let mut queue = filled(8, 4);
        queue.modify(None, Some(3)).unwrap();
        let mut spoke = Vec::new();
        while queue.pop().is_some() {
            spoke.push(queue.fell_below_limit());
        }
        assert_eq!(spoke, [false, true, false, false]);
        assert_eq!(queue.limit(), 0);
    }

    #[test]
    fn a_change_is_made_whole_or_not_at_all() {
        let mut queue = filled(8, 4);
        for (max_wr, limit) in [(Some(3), None), (Some(16), Some(17)), (None, Some(9))] {
            assert_eq!(queue.modify(max_wr, limit).unwrap_err().errno, libc::EINVAL);
            assert_eq!((queue.max_wr(), queue.limit()), (8, 0));
        }
        queue.modify(Some(4), Some(4)).unwrap();
        assert_eq!(queue.push(wr(9), 1).unwrap_err().errno, libc::ENOMEM);
        // The limit that is armed already counts too.
        assert!(queue.modify(Some(3), None).is_err());
    }

    #[test]
    fn a_waiting_queue_pair_is_listed_once_and_in_order() {
        let mut queue = ReceiveQueue::new(1);
        for qpn in [5, 7, 5] {
            queue.note_waiting(Qpn::new(qpn), ReceiveWaiter::Qp(Weak::new()));
        }
        assert!(queue.next_waiting().is_some());
        queue.note_waiting(Qpn::new(5), ReceiveWaiter::Qp(Weak::new()));
        let order: Vec<_> = queue.waiting.iter().map(|(qpn, _)| qpn.get()).collect();
        assert_eq!(order, [7, 5]);
    }
}
