//! What work requests hold until they complete.

use std::mem::forget;
use std::ptr;
use std::sync::Arc;

use super::{AddressObject, Exclusive, Region, Window};
use crate::Error;

/// Something that must not go before a work request has completed.
///
/// What is held may be let go of under the locks of completions. So these are objects of this
/// module alone, whose ends call C and nothing of the program's, and take no such lock.
pub(crate) trait Hold: Send + Sync {}

impl Hold for Region {}
impl Hold for AddressObject {}
impl Hold for Window {}

type Thing = Arc<dyn Hold>;

/// Objects that are held for the device.
#[derive(Default)]
pub(crate) struct Held {
    /// A region, that others may have too: what most work needs.
    region: Option<Arc<Region>>,
    /// Something else, or another region: few have more.
    thing: Option<Thing>,
    #[expect(clippy::box_collection, reason = "one word, since few have more")]
    more: Option<Box<Vec<Thing>>>,
    /// Memory that the program gave away until the work completes.
    exclusive: Option<Exclusive>,
}

impl Held {
    /// Takes charge of memory that the program gave away.
    #[inline(always)]
    pub(super) fn keep(&mut self, memory: Exclusive) {
        debug_assert!(self.exclusive.is_none(), "work has memory of its own once");
        forget(self.exclusive.replace(memory));
    }

    /// The memory that the program gave away.
    #[inline(always)]
    pub(crate) fn take_exclusive(&mut self) -> Option<Exclusive> {
        self.exclusive.take()
    }

    /// Whether it is a region at most.
    #[inline(always)]
    pub(super) fn is_simple(&self) -> bool {
        self.thing.is_none() && self.more.is_none() && self.exclusive.is_none()
    }

    /// Lets go of the region, which is all that is held.
    #[inline(always)]
    pub(super) fn release_region(&mut self) {
        debug_assert!(self.is_simple(), "only simple work is let go of like this");
        drop(self.region.take());
    }

    /// Lets go of all of it.
    #[inline(always)]
    pub(super) fn release(&mut self) {
        drop(self.region.take());
        if !self.is_simple() {
            self.release_more();
        }
    }

    #[inline(never)]
    fn release_more(&mut self) {
        *self = Self::default();
    }

    /// Holds a region as the first thing.
    #[inline(always)]
    pub(super) fn hold_first(&mut self, region: &Arc<Region>) {
        debug_assert!(self.region.is_none(), "it is the first");
        // There is nothing to drop.
        forget(self.region.replace(Arc::clone(region)));
    }

    /// Holds a region.
    pub(super) fn hold_region(&mut self, region: &Arc<Region>) {
        match &self.region {
            None => self.hold_first(region),
            // Pieces of one region need it once.
            Some(known) if Arc::ptr_eq(known, region) => {}
            Some(_) => self.hold(region),
        }
    }

    /// Holds one thing more.
    pub(super) fn hold<T: Hold + 'static>(&mut self, thing: &Arc<T>) {
        match &self.thing {
            None => self.thing = Some(Arc::clone(thing) as Thing),
            Some(known) if is(known, thing) => {}
            Some(_) => {
                let more = self.more.get_or_insert_default();
                if !more.last().is_some_and(|known| is(known, thing)) {
                    more.push(Arc::clone(thing) as Thing);
                }
            }
        }
    }
}

fn is<T>(known: &Thing, thing: &Arc<T>) -> bool {
    ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(thing))
}

/// Work that was not posted: why, and what it would have held.
pub(crate) struct Refused {
    pub(crate) error: Error,
    pub(crate) held: Held,
}

impl Refused {
    /// In a box, so that what is not refused need not leave room for it.
    #[cold]
    pub(super) fn new(error: Error, held: Held) -> Box<Self> {
        Box::new(Self { error, held })
    }

    /// Why. What it would have held is let go of.
    #[cold]
    pub(crate) fn into_error(self) -> Error {
        self.error
    }
}

impl From<Box<Refused>> for Error {
    fn from(refused: Box<Refused>) -> Self {
        refused.into_error()
    }
}
