//! Event channels.

use crate::object::{self, Handle, refuse_inherited};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_nic as nic;
use ferroce_nic::Error;

use super::lock;
use super::types::rdma_event_channel;
use crate::errno::{invalid, result_as_null};
use crate::verbs::engine;

/// What lies behind a `struct rdma_event_channel`: the number under which [`CHANNELS`] knows it.
pub(crate) struct EventChannelPrivate {
    serial: u64,
}

impl Handle for rdma_event_channel {
    type Public = Self;
    type Private = EventChannelPrivate;
}

/// All channels that exist.
static CHANNELS: Mutex<Channels> = Mutex::new(Channels {
    by_serial: BTreeMap::new(),
    serials: BTreeMap::new(),
});

/// See [`CHANNELS`].
struct Channels {
    /// A thread that sleeps on a channel's descriptor holds nothing but this number (it may be
    /// cancelled there, and the channel destroyed under it), and looks the channel up again when it
    /// wakes.
    by_serial: BTreeMap<u64, Arc<nic::EventChannel>>,
    /// The numbers by the address of the program's structure, which is not looked into: the program
    /// may have destroyed it.
    serials: BTreeMap<usize, u64>,
}

static NEXT_SERIAL: AtomicU64 = AtomicU64::new(1);

/// Names a channel without keeping it alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelRef {
    /// `None`: it was destroyed already.
    serial: Option<u64>,
}

impl ChannelRef {
    /// Names the program's channel.
    ///
    /// # Errors
    /// EINVAL for NULL.
    pub(super) fn new(channel: *const rdma_event_channel) -> Result<Self, Error> {
        if channel.is_null() {
            return Err(invalid("no event channel was given"));
        }
        let serial = lock(&CHANNELS).serials.get(&channel.addr()).copied();
        Ok(Self { serial })
    }

    /// The channel, unless it was destroyed.
    pub(super) fn get(self) -> Option<Arc<nic::EventChannel>> {
        lock(&CHANNELS).by_serial.get(&self.serial?).cloned()
    }

    /// The channel.
    ///
    /// # Errors
    /// EINVAL if it was destroyed.
    pub(super) fn live(self) -> Result<Arc<nic::EventChannel>, Error> {
        self.get()
            .ok_or_else(|| invalid("the event channel was destroyed"))
    }
}

/// Makes a channel.
///
/// # Errors
/// As [`nic::EventChannel::new`].
pub(super) fn create() -> Result<*mut rdma_event_channel, Error> {
    // Through this door, so that the log is on from a program's first call.
    engine::nic()?;
    let channel = nic::EventChannel::new()?;
    let serial = NEXT_SERIAL.fetch_add(1, Ordering::Relaxed);
    let public = rdma_event_channel { fd: channel.fd() };
    let handle = object::create::<rdma_event_channel>(public, EventChannelPrivate { serial });
    let mut channels = lock(&CHANNELS);
    channels.by_serial.insert(serial, channel);
    channels.serials.insert(handle.addr(), serial);
    Ok(handle)
}

/// Destroys a channel. A thread that is blocked in its descriptor stays there, as with the
/// kernel's.
///
/// # Safety
/// `channel` is a live channel that nobody uses any more, except for threads that are blocked in
/// it.
pub(super) unsafe fn destroy(channel: *mut rdma_event_channel) {
    // Before the structure is freed, or a new channel might have its address.
    lock(&CHANNELS).serials.remove(&channel.addr());
    // SAFETY: the caller hands the channel over.
    let EventChannelPrivate { serial } = unsafe { object::take(channel) };
    let removed = lock(&CHANNELS).by_serial.remove(&serial);
    // Closes the descriptor, with the lock free again.
    drop(removed);
}

/// `rdma_create_event_channel(3)`: a channel, or NULL with ENODEV if there is no device.
pub unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    result_as_null("rdma_create_event_channel", create())
}

/// `rdma_destroy_event_channel(3)`
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    refuse_inherited!(channel);
    if channel.is_null() {
        return;
    }
    // SAFETY: the caller hands over a live channel.
    unsafe { destroy(channel) };
}

/// What a thread does whose channel was destroyed while it slept, or just before it was going to:
/// it sleeps on, as it would in the kernel if it had been a little quicker, until a signal
/// interrupts it. (rping destroys the channel of a thread that is about to fetch the next event,
/// and takes an error for a failure of its own.) `errno` is EINTR then.
pub(super) fn stay_blocked() {
    // SAFETY: `pause` has no arguments; it is a cancellation point and nothing is held.
    unsafe { libc::pause() };
}
