//! Completion channels that owe counts of events ([`EventQueue::push_owing`]).
//!
//! A thread that leads and makes an event itself is about to ask for it: most are of work that it
//! has posted and that completes at once (a WRITE within the host, say). While the device thread
//! naps the count is owed: to put it on the descriptor and take it from there costs two system
//! calls. If the program does something else, the device thread pays at the end of its nap.
//!
//! [`EventQueue::push_owing`]: crate::base::events::EventQueue::push_owing

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, Weak};

use super::channel::CompChannel;
use crate::base::sync::lock;

/// The channels of a device that have ever owed a count.
///
/// Invariant: what is owed when the device thread sleeps is paid.
/// Enforced by: the order of two words. A thread that owes a count asks then whether the device
/// thread naps, and pays at once if not; that one says that its nap has ended, and pays then.
/// If broken: a program that waits in a `poll` of its own does not see its event.
#[derive(Debug, Default)]
pub(crate) struct OwingChannels {
    channels: Mutex<Vec<Weak<CompChannel>>>,
    any: AtomicBool,
}

impl OwingChannels {
    /// One that may owe counts from here on.
    pub(super) fn add(&self, channel: Weak<CompChannel>) {
        lock(&self.channels).push(channel);
        self.any.store(true, Ordering::Relaxed);
    }

    /// A nap of the device thread has ended: puts on descriptors what is owed.
    pub(crate) fn pay(&self) {
        fence(Ordering::SeqCst);
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        lock(&self.channels).retain(|channel| {
            let channel = channel.upgrade();
            if let Some(channel) = &channel {
                channel.pay();
            }
            channel.is_some()
        });
    }
}
