//! Completions as the device gave them, and a place for as many as one call takes.

use std::collections::VecDeque;

use ferroce_abi::types::{IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR, ibv_wc};

use crate::cq::Timestamp;

/// Completions that one call takes at most.
pub(crate) const BATCH: usize = 16;

/// A completion as the device gave it; when it has come to its reader, its `wr_id` is the tag.
#[derive(Clone, Copy)]
pub(crate) struct Fetched {
    pub(crate) wc: ibv_wc,
    pub(crate) timestamp: Option<Timestamp>,
}

/// The same, where it is: what is not looked at is not read.
#[derive(Clone, Copy)]
pub(crate) struct View<'f> {
    pub(crate) wc: &'f ibv_wc,
    pub(crate) timestamp: &'f Option<Timestamp>,
}

impl View<'_> {
    #[inline(always)]
    pub(crate) fn copy(self) -> Fetched {
        Fetched {
            wc: *self.wc,
            timestamp: *self.timestamp,
        }
    }
}

impl Fetched {
    #[inline(always)]
    pub(crate) fn view(&self) -> View<'_> {
        View {
            wc: &self.wc,
            timestamp: &self.timestamp,
        }
    }

    /// Of work whose queue pair was destroyed.
    pub(crate) fn flushed(wr_id: u64, queue_pair: u32) -> Self {
        let mut wc = ibv_wc::zeroed();
        (wc.wr_id, wc.status, wc.qp_num) = (wr_id, IBV_WC_WR_FLUSH_ERR, queue_pair);
        Self {
            wc,
            timestamp: None,
        }
    }
}

/// Where the device writes completions, and a poller reads them. C may leave fields out that
/// have no meaning, so all of it is initialised once.
pub(crate) struct PollBuffer {
    wcs: [ibv_wc; BATCH],
    timestamps: [Option<Timestamp>; BATCH],
    /// Index of the first completion that was not read yet.
    next: usize,
    /// Those from here on mean nothing: at most `BATCH`.
    end: usize,
}

impl Default for PollBuffer {
    fn default() -> Self {
        Self {
            wcs: [ibv_wc::zeroed(); BATCH],
            timestamps: [None; BATCH],
            next: 0,
            end: 0,
        }
    }
}

impl PollBuffer {
    /// Returns the number of completions that have not been read yet.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.end - self.next
    }

    /// Whether all were read.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.end
    }

    /// Returns the completions that have not been read yet.
    #[inline(always)]
    pub(crate) fn views(&self) -> impl ExactSizeIterator<Item = View<'_>> {
        let unread = self.next..self.end;
        let wcs = self.wcs[unread.clone()].iter();
        wcs.zip(&self.timestamps[unread])
            .map(|(wc, timestamp)| View { wc, timestamp })
    }

    /// The oldest one that was not read yet. There must be one.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> View<'_> {
        let at = self.next % BATCH;
        self.next += 1;
        self.view(at)
    }

    /// Nothing is in it.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        (self.next, self.end) = (0, 0);
    }

    /// All of it, for the device to write to.
    #[inline(always)]
    pub(super) fn room(&mut self) -> &mut [ibv_wc; BATCH] {
        &mut self.wcs
    }

    /// The device has written so many into a place in which nothing was.
    #[inline(always)]
    pub(super) fn filled(&mut self, count: usize) {
        self.end = count.min(BATCH);
    }

    /// Puts one behind those that were not read, of which there are less than `BATCH`. They begin
    /// at the first place.
    pub(super) fn push(&mut self, new: &Fetched) {
        self.wcs[self.end] = new.wc;
        self.timestamps[self.end] = new.timestamp;
        self.end += 1;
    }

    /// Takes the oldest of a list, as many as there is place for; all were read before.
    pub(super) fn refill(&mut self, from: &mut VecDeque<Fetched>) {
        (self.next, self.end) = (0, 0);
        let count = from.len().min(BATCH);
        from.drain(..count).for_each(|fetched| self.push(&fetched));
    }

    /// Puts those that were not read in front of a list.
    pub(super) fn put_in_front_of(&mut self, list: &mut VecDeque<Fetched>) {
        for at in (self.next..self.end).rev() {
            list.push_front(self.fetched(at));
        }
        (self.next, self.end) = (0, 0);
    }

    /// Puts those that were not read behind a list.
    pub(super) fn put_behind(&mut self, list: &mut VecDeque<Fetched>) {
        list.extend((self.next..self.end).map(|at| self.fetched(at)));
        (self.next, self.end) = (0, 0);
    }

    fn fetched(&self, at: usize) -> Fetched {
        self.view(at).copy()
    }

    #[inline(always)]
    fn view(&self, at: usize) -> View<'_> {
        View {
            wc: &self.wcs[at],
            timestamp: &self.timestamps[at],
        }
    }

    /// Whether work failed of which was just fetched.
    #[inline(always)]
    pub(super) fn has_failed(&self) -> bool {
        let fetched = &self.wcs[..self.end];
        fetched.iter().any(|wc| wc.status != IBV_WC_SUCCESS)
    }

    /// What was just fetched.
    #[inline(always)]
    pub(super) fn fetched_mut(&mut self) -> &mut [ibv_wc] {
        &mut self.wcs[..self.end]
    }

    /// Of what was just fetched, keeps those before `first`, and those from there on that `keep`
    /// says, without gaps.
    pub(super) fn retain_from(
        &mut self,
        first: usize,
        mut keep: impl FnMut(&mut ibv_wc, Option<Timestamp>) -> bool,
    ) {
        let mut kept = first;
        for at in first..self.end {
            if keep(&mut self.wcs[at], self.timestamps[at]) {
                self.wcs[kept] = self.wcs[at];
                self.timestamps[kept] = self.timestamps[at];
                kept += 1;
            }
        }
        self.end = kept;
    }
}
