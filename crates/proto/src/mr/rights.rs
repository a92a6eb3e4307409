//! The rights table: which key opens which bytes, to whom, for what.

mod windows;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::window::WindowState;
use super::{Access, AddrRange, BindError, Region, Span, Unmapped, WINDOW_KEY_BITS};
use crate::ids::{Key, PdId, Qpn};

/// Why a key does not open a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RightsError {
    /// No such key, or it was invalidated.
    #[error("{0:?} names no registered memory")]
    UnknownKey(Key),
    /// The region or window belongs to another protection domain.
    #[error("{0:?} belongs to another protection domain")]
    WrongPd(Key),
    /// The window was bound by another queue pair.
    #[error("{0:?} is the key of a window that another queue pair has bound")]
    WrongQp(Key),
    /// Regions and type 1 windows cannot be invalidated by work requests.
    #[error("{0:?} is not the key of a type 2 window")]
    NotInvalidatable(Key),
    /// The key opens the range, but the memory is not mapped any more.
    #[error("{0}")]
    Unmapped(Unmapped),
    /// A bind was refused.
    #[error("{0}")]
    Bind(BindError),
    /// The range is not inside the region.
    #[error("{len} bytes at {addr:#x} are not inside the region of {key:?}")]
    OutOfBounds {
        /// The key.
        key: Key,
        /// First address asked for.
        addr: u64,
        /// Bytes asked for.
        len: u64,
    },
    /// The region lacks an access flag.
    #[error("{key:?} lacks {missing:?}")]
    Access {
        /// The key.
        key: Key,
        /// Flags that are needed and absent.
        missing: Access,
    },
}

impl From<Unmapped> for RightsError {
    fn from(error: Unmapped) -> Self {
        Self::Unmapped(error)
    }
}

/// The queue pair that asks for something, for itself or for its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessor {
    /// Protection domain of the queue pair.
    pub pd: PdId,
    /// Queue pair that asks.
    pub qpn: Qpn,
}

/// The table of all regions and windows of one process.
///
/// A change has the table alone, so when it returns no copy goes on that was allowed before it. The
/// invalidate of a peer alone works on the shared table: it closes a window that only the
/// invalidating queue pair uses.
#[derive(Debug, Default)]
pub struct Rights {
    regions: HashMap<Key, Region>,
    /// By what all keys of a window have in common.
    windows: HashMap<u32, WindowState>,
}

/// Bits that all keys of a window have in common.
const fn window_number(key: Key) -> u32 {
    key.0 >> WINDOW_KEY_BITS
}

/// Regions.
impl Rights {
    /// Adds a region under a key that must be unused. Returns whether it was; if not, the table is
    /// unchanged.
    pub fn insert(&mut self, key: Key, region: Region) -> bool {
        if self.windows.contains_key(&window_number(key)) {
            return false;
        }
        match self.regions.entry(key) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(region);
                true
            }
        }
    }

    /// Removes a region; windows that are bound to it are so no longer. Since this takes the table
    /// mutably, no [`Span`] of it is left when it returns.
    pub fn remove(&mut self, key: Key) -> Option<Region> {
        let region = self.regions.remove(&key)?;
        if region.bound_windows() > 0 {
            for window in self.windows.values_mut() {
                if window.bound.is_some_and(|bound| bound.region == key) {
                    window.bind(window.key, None);
                }
            }
        }
        Some(region)
    }

    /// The region of a key.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&Region> {
        self.regions.get(&key)
    }

    /// Changes a region in place (`ibv_rereg_mr`). Not for one that windows are bound to.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Region> {
        self.regions.get_mut(&key)
    }

    /// Number of regions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether nothing is registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }
}

/// Opening.
impl Rights {
    /// Opens `len` bytes at `addr` of a region if `key` allows `need` (empty: local read) to
    /// protection domain `pd`.
    ///
    /// `addr` is in the region's `iova` range; for a zero-based region that starts at 0. No bytes
    /// need no key. With `len` 0 the key, the protection domain and the address are not looked at,
    /// as zero-length READs, WRITEs and scatter/gather elements demand. Windows have no local keys:
    /// they open by [`open_remote`](Self::open_remote) only.
    ///
    /// # Errors
    /// [`RightsError`] says why not.
    #[inline]
    pub fn open(
        &self,
        key: Key,
        pd: PdId,
        addr: u64,
        len: u64,
        need: Access,
    ) -> Result<Span<'_>, RightsError> {
        // A message without bytes needs no key. For a peer's request IBTA C9-88 says so.
        if len == 0 {
            return Ok(Span::EMPTY);
        }
        let region = self.regions.get(&key).ok_or(RightsError::UnknownKey(key))?;
        region.open(key, pd, AddrRange { addr, len }, need)
    }

    /// As [`open`](Self::open) for the peer of a queue pair: `key` is that of a region or of a
    /// window.
    ///
    /// # Errors
    /// [`RightsError`] says why not.
    pub fn open_remote(
        &self,
        key: Key,
        by: Accessor,
        addr: u64,
        len: u64,
        need: Access,
    ) -> Result<Span<'_>, RightsError> {
        // Regions and windows share one number space, so a key is one of the two.
        if len == 0 || self.windows.is_empty() || self.regions.contains_key(&key) {
            return self.open(key, by.pd, addr, len, need);
        }
        let (_, bound) = self.window(key, by)?;
        // A window of type 2 is for one queue pair (IBTA volume 1, chapter 10.6.7).
        if !bound.serves(by.qpn) {
            return Err(RightsError::WrongQp(key));
        }
        allow(key, bound.access, need)?;
        bound
            .place(addr, len)
            .ok_or(RightsError::OutOfBounds { key, addr, len })
    }

    /// Whether `key` allows `need` to the peer of a queue pair at all, whatever the range.
    ///
    /// # Errors
    /// [`RightsError`] says why not.
    pub fn check_remote(&self, key: Key, by: Accessor, need: Access) -> Result<(), RightsError> {
        let Some(region) = self.regions.get(&key) else {
            let (_, bound) = self.window(key, by)?;
            if !bound.serves(by.qpn) {
                return Err(RightsError::WrongQp(key));
            }
            return allow(key, bound.access, need);
        };
        // Queue pair and region must have one protection domain (IBTA volume 1, chapter 10).
        if region.pd != by.pd {
            return Err(RightsError::WrongPd(key));
        }
        allow(key, region.access, need)
    }
}

#[inline]
pub(super) fn allow(key: Key, access: Access, need: Access) -> Result<(), RightsError> {
    let missing = need.difference(access);
    if missing.is_empty() {
        Ok(())
    } else {
        Err(RightsError::Access { key, missing })
    }
}

#[cfg(test)]
mod tests;
