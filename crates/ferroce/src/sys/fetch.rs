//! Taking completions off the device, by the plain interface or the extended one.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr::{self, NonNull};

use ferroce_abi::types::{
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    IBV_WC_STANDARD_FLAGS, IBV_WC_WR_FLUSH_ERR, ibv_comp_channel, ibv_cq, ibv_cq_ex,
    ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc,
};

use super::OpenDevice;
use super::extended::extended;
use crate::{Error, Result, Timestamp, Timestamps};

/// Completions that one call takes at most.
pub(super) const BATCH: usize = 16;

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

impl Fetched {
    #[inline(always)]
    pub(crate) fn view(&self) -> View<'_> {
        View {
            wc: &self.wc,
            timestamp: &self.timestamp,
        }
    }

    /// Of work whose queue pair was destroyed.
    pub(super) fn flushed(wr_id: u64, queue_pair: u32) -> Self {
        let mut wc = ibv_wc::zeroed();
        (wc.wr_id, wc.status, wc.qp_num) = (wr_id, IBV_WC_WR_FLUSH_ERR, queue_pair);
        Self {
            wc,
            timestamp: None,
        }
    }
}

/// Where the device writes completions, and whoever polls reads them. C may leave fields out that have no meaning, so all of it is
/// initialised once.
pub(super) struct Place {
    wcs: [ibv_wc; BATCH],
    timestamps: [Option<Timestamp>; BATCH],
    /// Those from here on were not read yet.
    next: usize,
    /// Those from here on mean nothing: at most `BATCH`.
    end: usize,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            wcs: [ibv_wc::zeroed(); BATCH],
            timestamps: [None; BATCH],
            next: 0,
            end: 0,
        }
    }
}

impl Place {
    /// How many were not read yet.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.end - self.next
    }

    /// Whether all were read.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.end
    }

    /// The oldest one that was not read yet. There must be one.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> View<'_> {
        let at = self.next % BATCH;
        self.next += 1;
        View {
            wc: &self.wcs[at],
            timestamp: &self.timestamps[at],
        }
    }

    /// Puts one behind those that were not read, of which there are less than `BATCH`. They begin at the first place.
    fn push(&mut self, new: &Fetched) {
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
        Fetched {
            wc: self.wcs[at],
            timestamp: self.timestamps[at],
        }
    }

    /// Keeps those that `keep` says of what was just fetched.
    #[inline(always)]
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&mut ibv_wc, &Option<Timestamp>) -> bool) {
        let mut kept = 0;
        let fetched = self.wcs.iter_mut().zip(&self.timestamps).take(self.end);
        // Mostly all of them, which stay where they are.
        for (wc, timestamp) in fetched {
            if !keep(wc, timestamp) {
                break;
            }
            kept += 1;
        }
        if kept < self.end {
            kept = self.close_gaps(kept, keep);
        }
        self.end = kept;
    }

    /// Keeps those behind `gap` that `keep` says, without gaps: how many there are then.
    #[inline(never)]
    fn close_gaps(
        &mut self,
        gap: usize,
        mut keep: impl FnMut(&mut ibv_wc, &Option<Timestamp>) -> bool,
    ) -> usize {
        let mut kept = gap;
        for at in gap + 1..self.end {
            if keep(&mut self.wcs[at], &self.timestamps[at]) {
                self.wcs[kept] = self.wcs[at];
                self.timestamps[kept] = self.timestamps[at];
                kept += 1;
            }
        }
        kept
    }
}

/// How the completions of a queue are taken.
pub(super) enum Fetcher {
    /// `ibv_poll_cq`
    Plain,
    /// `ibv_start_poll` and its like, with the time of each completion.
    Extended(NonNull<ibv_cq_ex>, Timestamps),
}

impl Fetcher {
    /// `ibv_create_cq`, or `ibv_create_cq_ex` where timestamps are wanted.
    pub(super) fn create(
        device: &OpenDevice,
        entries: u32,
        channel: NonNull<ibv_comp_channel>,
        timestamps: Timestamps,
    ) -> Result<(NonNull<ibv_cq>, Self)> {
        let wc_flags = match timestamps {
            Timestamps::None => return Self::plain(device, entries, channel),
            Timestamps::Device => IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
            Timestamps::WallClock => IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
        };
        let mut attr = ibv_cq_init_attr_ex::zeroed();
        attr.cqe = entries;
        attr.channel = channel.as_ptr();
        attr.wc_flags = u64::from(IBV_WC_STANDARD_FLAGS | wc_flags);
        let create = extended!(device, create_cq_ex)?;
        // SAFETY: a live context and a channel of it.
        let raw = unsafe { create(device.raw.as_ptr(), &raw mut attr) };
        let raw = NonNull::new(raw).ok_or_else(|| {
            Error::last("ibv_create_cq_ex").about(|| format!("{entries} entries, {timestamps:?}"))
        })?;
        Ok((raw.cast(), Self::Extended(raw, timestamps)))
    }

    fn plain(
        device: &OpenDevice,
        entries: u32,
        channel: NonNull<ibv_comp_channel>,
    ) -> Result<(NonNull<ibv_cq>, Self)> {
        let entries = c_int::try_from(entries)
            .map_err(|_| Error::Misuse("a completion queue of this size is impossible"))?;
        // SAFETY: a live context and a channel of it.
        let raw = unsafe {
            (device.verbs.ibv_create_cq)(
                device.raw.as_ptr(),
                entries,
                ptr::null_mut(),
                channel.as_ptr(),
                0,
            )
        };
        let raw = NonNull::new(raw).ok_or_else(|| {
            Error::last("ibv_create_cq").about(|| format!("completion queue of {entries} entries"))
        })?;
        Ok((raw, Self::Plain))
    }

    /// Takes up to a batch of completions of a live queue, into the place of those that were read. One thread at a time.
    #[inline(always)]
    pub(super) fn fetch(
        &self,
        device: &OpenDevice,
        queue: NonNull<ibv_cq>,
        place: &mut Place,
    ) -> Result<()> {
        (place.next, place.end) = (0, 0);
        match self {
            Self::Plain => fetch_plain(device, queue, place),
            // SAFETY: a live extended queue.
            Self::Extended(queue, timestamps) => unsafe {
                fetch_extended(*queue, *timestamps, place)
            },
        }
    }
}

/// `ibv_poll_cq`
#[inline(always)]
fn fetch_plain(device: &OpenDevice, queue: NonNull<ibv_cq>, place: &mut Place) -> Result<()> {
    // SAFETY: an open context has its operations filled in, and does not change them.
    let poll_cq = unsafe { (*device.raw.as_ptr()).ops.poll_cq };
    let poll_cq = poll_cq.ok_or(Error::Misuse("the device has no ibv_poll_cq"))?;
    // SAFETY: a live queue and room for that many completions.
    let count = unsafe { poll_cq(queue.as_ptr(), ROOM, place.wcs.as_mut_ptr()) };
    match usize::try_from(count) {
        Ok(count) => {
            place.end = count.min(BATCH);
            Ok(())
        }
        Err(_) => Err(Error::last("ibv_poll_cq")),
    }
}

/// [`BATCH`] as C has it.
const ROOM: c_int = 16;
const _: () = assert!(ROOM as usize == BATCH);

/// `ibv_start_poll`, `ibv_next_poll`, `ibv_end_poll`
///
/// # Safety
/// A live extended queue, which no other thread polls.
unsafe fn fetch_extended(
    queue: NonNull<ibv_cq_ex>,
    timestamps: Timestamps,
    place: &mut Place,
) -> Result<()> {
    const MISSING: Error = Error::Misuse("the device's extended queue lacks a function");
    let raw = queue.as_ptr();
    // SAFETY: the functions are set when the queue is made, and stay.
    let (start, next, end) = unsafe { ((*raw).start_poll, (*raw).next_poll, (*raw).end_poll) };
    let (Some(start), Some(next), Some(end)) = (start, next, end) else {
        return Err(MISSING);
    };
    let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: a live queue that nobody is polling.
    let mut errno = unsafe { start(raw, &raw mut attr) };
    if errno == libc::ENOENT {
        return Ok(());
    }
    Error::check("ibv_start_poll", errno)?;
    while errno == 0 {
        // SAFETY: between start and end, with a completion to read.
        let Some(fetched) = (unsafe { read(queue, timestamps) }) else {
            // SAFETY: polling has begun.
            unsafe { end(raw) };
            place.end = 0;
            return Err(MISSING);
        };
        place.push(&fetched);
        if place.end == BATCH {
            break;
        }
        // SAFETY: polling has begun.
        errno = unsafe { next(raw) };
    }
    // SAFETY: polling has begun.
    unsafe { end(raw) };
    // An error of `ibv_next_poll` comes again at the next start, and nothing that was read is lost.
    Ok(())
}

/// The completion that a queue shows.
///
/// # Safety
/// Between `ibv_start_poll` and `ibv_end_poll`, after one of them or `ibv_next_poll` gave 0.
unsafe fn read(queue: NonNull<ibv_cq_ex>, timestamps: Timestamps) -> Option<Fetched> {
    let raw = queue.as_ptr();
    let mut wc = ibv_wc::zeroed();
    // SAFETY: the caller's promise.
    unsafe {
        (wc.wr_id, wc.status) = ((*raw).wr_id, (*raw).status);
        wc.qp_num = (*raw).read_qp_num?(raw);
        wc.vendor_err = (*raw).read_vendor_err?(raw);
        let mut timestamp = None;
        // Of work that failed nothing else is valid.
        if wc.status == 0 {
            wc.opcode = (*raw).read_opcode?(raw);
            wc.byte_len = (*raw).read_byte_len?(raw);
            wc.wc_flags = (*raw).read_wc_flags?(raw);
            wc.imm_data = (*raw).read_imm_data?(raw);
            wc.src_qp = (*raw).read_src_qp?(raw);
            wc.sl = (*raw).read_sl?(raw);
            wc.dlid_path_bits = (*raw).read_dlid_path_bits?(raw);
            wc.slid = u16::try_from((*raw).read_slid?(raw)).unwrap_or(0);
            timestamp = match timestamps {
                Timestamps::None => None,
                Timestamps::Device => Some(Timestamp::Ticks((*raw).read_completion_ts?(raw))),
                Timestamps::WallClock => Some(Timestamp::Nanoseconds((*raw)
                    .read_completion_wallclock_ns?(
                    raw
                ))),
            };
        }
        Some(Fetched { wc, timestamp })
    }
}
