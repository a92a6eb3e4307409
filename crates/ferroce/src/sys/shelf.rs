//! Memory of a pool, between its uses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferroce_abi::types::IBV_ACCESS_LOCAL_WRITE;

use super::{Domain, Exclusive, Region};
use crate::{Error, Result};

/// Shortest memory, as a power of two: a page.
const SHORTEST: u32 = 12;
/// Longest memory, as a power of two: buffers are shorter than 4 GiB.
const LONGEST: u32 = 31;
const CLASSES: usize = (LONGEST - SHORTEST + 1) as usize;

/// Registered memory that waits to be used again, by powers of two.
pub(crate) struct Shelf {
    domain: Arc<Domain>,
    limit: usize,
    huge: bool,
    stock: Mutex<Stock>,
}

#[derive(Default)]
struct Stock {
    idle: [Vec<Arc<Region>>; CLASSES],
    /// Bytes of all memory, idle or in use.
    bytes: usize,
}

impl Shelf {
    /// A shelf with room for `limit` bytes, in huge pages if that is asked for and the system has
    /// them.
    pub(crate) fn new(domain: &Arc<Domain>, limit: usize, huge: bool) -> Arc<Self> {
        Arc::new(Self {
            domain: Arc::clone(domain),
            limit,
            huge,
            stock: Mutex::default(),
        })
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of all memory, and of what is idle.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let stock = self.stock();
        (stock.bytes, stock.idle_bytes())
    }

    /// Memory of at least that many bytes, and how many it has. Its bytes may be those of an
    /// earlier use.
    pub(crate) fn take(self: &Arc<Self>, capacity: usize) -> Result<(Exclusive, usize)> {
        if capacity > 1 << LONGEST {
            return Err(Error::Misuse("a buffer of a pool has 2 GiB at most"));
        }
        let class = class_of(capacity);
        let size = size_of_class(class);
        let dropped = {
            let mut stock = self.stock();
            if let Some(region) = stock.idle[class].pop() {
                return Ok((Exclusive::of_shelf(region, self), size));
            }
            let dropped = stock.make_room(size, self.limit)?;
            stock.bytes += size;
            dropped
        };
        // Without the lock: to deregister memory takes a while, and so does registering it.
        drop(dropped);
        let access = IBV_ACCESS_LOCAL_WRITE.cast_signed();
        match Region::new_on(&self.domain, size, access, self.huge) {
            Ok(region) => Ok((Exclusive::of_shelf(region, self), size)),
            Err(error) => {
                self.stock().bytes -= size;
                Err(error)
            }
        }
    }

    /// Nobody uses it any more.
    pub(super) fn put_back(&self, region: Arc<Region>) {
        self.stock().idle[class_of(region.size())].push(region);
    }
}

impl Stock {
    fn idle_bytes(&self) -> usize {
        let of_class = |(class, idle): (usize, &Vec<_>)| idle.len() * size_of_class(class);
        self.idle.iter().enumerate().map(of_class).sum()
    }

    /// Takes idle memory out, the longest first, until there is room for that much more. If all of
    /// it does not make enough, none is taken.
    fn make_room(&mut self, size: usize, limit: usize) -> Result<Vec<Arc<Region>>> {
        let needed = self.bytes - self.idle_bytes() + size;
        if needed > limit {
            return Err(Error::Limit {
                object: "buffer pool",
                what: "bytes in use with those that were asked for",
                asked: needed as u64,
                limit: limit as u64,
            });
        }
        let mut dropped = Vec::new();
        for class in (0..CLASSES).rev() {
            while self.bytes + size > limit {
                let Some(region) = self.idle[class].pop() else {
                    break;
                };
                self.bytes -= size_of_class(class);
                dropped.push(region);
            }
        }
        Ok(dropped)
    }
}

/// The class with the least power of two, from [`SHORTEST`] on, that has room for a `capacity` of
/// at most the longest.
fn class_of(capacity: usize) -> usize {
    let power = capacity.max(1).next_power_of_two().trailing_zeros();
    power.saturating_sub(SHORTEST) as usize
}

fn size_of_class(class: usize) -> usize {
    1 << (class + SHORTEST as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_room_for_its_sizes() {
        for (capacity, size) in [
            (0, 4096),
            (1, 4096),
            (4096, 4096),
            (4097, 8192),
            (1 << 31, 1 << 31),
        ] {
            assert_eq!(size_of_class(class_of(capacity)), size);
        }
    }
}
