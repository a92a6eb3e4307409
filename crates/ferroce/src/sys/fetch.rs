//! Taking completions off the device, by the plain interface or the extended one.

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use ferroce_abi::types::{
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    IBV_WC_STANDARD_FLAGS, ibv_comp_channel, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex,
    ibv_poll_cq_attr, ibv_wc,
};

use super::extended::extended;
use super::place::{BATCH, Fetched, PollBuffer};
use super::{OpenDevice, limits};
use crate::cq::{Timestamp, Timestamps};
use crate::{Error, Result};

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
            Error::last("ibv_create_cq_ex").about(|| {
                let limit = limits::of_queue(device, entries);
                format!("{entries} entries, timestamps: {timestamps:?}{limit}")
            })
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
            Error::last("ibv_create_cq").about(|| {
                let limit = limits::of_queue(device, entries.cast_unsigned());
                format!("completion queue of {entries} entries{limit}")
            })
        })?;
        Ok((raw, Self::Plain))
    }

    /// Takes up to a batch of completions of a live queue, into the place of those that were read.
    /// One thread at a time.
    #[inline(always)]
    pub(super) fn fetch(
        &self,
        device: &OpenDevice,
        queue: NonNull<ibv_cq>,
        place: &mut PollBuffer,
    ) -> Result<()> {
        place.clear();
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
fn fetch_plain(device: &OpenDevice, queue: NonNull<ibv_cq>, place: &mut PollBuffer) -> Result<()> {
    // SAFETY: an open context has its operations filled in, and does not change them.
    let poll_cq = unsafe { (*device.raw.as_ptr()).ops.poll_cq };
    let poll_cq = poll_cq.ok_or(Error::Misuse("the device has no ibv_poll_cq"))?;
    // SAFETY: a live queue and room for that many completions.
    let count = unsafe { poll_cq(queue.as_ptr(), ROOM, place.room().as_mut_ptr()) };
    match usize::try_from(count) {
        Ok(count) => {
            place.filled(count);
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
    place: &mut PollBuffer,
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
            place.clear();
            return Err(MISSING);
        };
        place.push(&fetched);
        if place.len() == BATCH {
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
