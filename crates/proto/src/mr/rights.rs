//! The rights table: which key opens which bytes, to whom, for what.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::window::{Bound, Window};
use super::{
    Access, Backing, BindError, Region, Span, Unmapped, WINDOW_KEY_BITS, WindowBind, WindowType,
};
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
    /// Its protection domain.
    pub pd: PdId,
    /// Its number.
    pub qpn: Qpn,
}

/// The table of all regions and windows of one process.
///
/// Whoever changes it has it alone, so when a change returns nobody is in the middle of a copy that was allowed before it.
/// The invalidate of a peer alone works on the shared table: it closes a window that only the invalidating queue pair uses.
#[derive(Debug, Default)]
pub struct Rights {
    regions: HashMap<Key, Region>,
    /// By what all keys of a window have in common.
    windows: HashMap<u32, Window>,
}

/// What all keys of a window have in common.
const fn window_number(key: Key) -> u32 {
    key.0 >> WINDOW_KEY_BITS
}

/// Regions.
impl Rights {
    /// Adds a region under a key that must be unused. Returns whether it was; if not, the table is unchanged.
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

    /// Removes a region; windows that are bound to it are so no longer. Since this takes the table mutably, no [`Span`] of it
    /// is left when it returns.
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

/// Windows.
impl Rights {
    /// Adds a window that is not bound, with its first key. Returns whether that was free. The owner gives regions other
    /// numbers than windows: no region may have a key with the same upper bits.
    pub fn insert_window(&mut self, key: Key, kind: WindowType, pd: PdId) -> bool {
        match self.windows.entry(window_number(key)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(Window::new(kind, pd, key));
                true
            }
        }
    }

    /// Removes a window, bound or not.
    pub fn remove_window(&mut self, key: Key) {
        if let Some(window) = self.windows.remove(&window_number(key)) {
            self.release(&window);
        }
    }

    /// The windows of a queue pair that is gone are bound no longer.
    pub fn unbind_windows_of(&mut self, qpn: Qpn) {
        for window in self.windows.values() {
            if window.bound().is_some_and(|bound| bound.qpn == Some(qpn)) {
                self.release(window);
            }
        }
    }

    /// Takes a window back and counts it off its region.
    fn release(&self, window: &Window) {
        if let Some(bound) = window.unbind()
            && let Some(region) = self.regions.get(&bound.region)
        {
            region.window_unbound();
        }
    }

    /// Binds a window for a queue pair.
    ///
    /// # Errors
    /// [`BindError`]; the window stays as it was.
    pub fn bind(&mut self, by: Accessor, bind: &WindowBind) -> Result<(), BindError> {
        let number = window_number(bind.window);
        let window = self.windows.get(&number);
        let window = window
            .filter(|window| window.kind == bind.kind)
            .ok_or(BindError::NoWindow(bind.window))?;
        if window.pd != by.pd {
            return Err(BindError::WrongPd);
        }
        if window.kind == WindowType::Two && window.bound().is_some() {
            return Err(BindError::Bound(window.key));
        }
        let bound = match bind.region {
            Some(region) if !bind.is_empty() => Some(self.check_bind(by, bind, region)?),
            _ if bind.kind == WindowType::Two => return Err(BindError::NoBytes),
            _ => None,
        };
        self.release(window);
        if let Some(region) = bound.and_then(|bound| self.regions.get(&bound.region)) {
            region.window_bound();
        }
        if let Some(window) = self.windows.get_mut(&number) {
            let low = bind.key.0 & ((1 << WINDOW_KEY_BITS) - 1);
            window.bind(Key(number << WINDOW_KEY_BITS | low), bound);
        }
        Ok(())
    }

    /// What the window will open, if the region allows it.
    fn check_bind(&self, by: Accessor, bind: &WindowBind, key: Key) -> Result<Bound, BindError> {
        let region = self.regions.get(&key);
        let region = region
            .filter(|region| region.backing != Backing::Null)
            .ok_or(BindError::NoRegion(key))?;
        if region.pd != by.pd {
            return Err(BindError::WrongPd);
        }
        let missing = bind.needs().difference(region.access);
        if !missing.is_empty() {
            return Err(BindError::Access(missing));
        }
        let (addr, length) = (bind.addr, bind.length);
        let place = region
            .place(addr, length)
            .ok_or(BindError::OutOfBounds { addr, length })?;
        let zero_based = bind.access.contains(Access::ZERO_BASED);
        Ok(Bound {
            region: key,
            iova: if zero_based { 0 } else { addr },
            length,
            addr: place.addr(),
            backing: place.backing(),
            access: bind.granted(),
            qpn: (bind.kind == WindowType::Two).then_some(by.qpn),
        })
    }

    /// Makes the key of a type 2 window open nothing any more (local invalidate, SEND with invalidate).
    ///
    /// # Errors
    /// The key is that of something else, or not the window's present one; or the window is not bound, or not by this queue
    /// pair.
    pub fn invalidate(&self, key: Key, by: Accessor) -> Result<(), RightsError> {
        if self.regions.contains_key(&key) {
            return Err(RightsError::NotInvalidatable(key));
        }
        let (window, bound) = self.window(key, by)?;
        if window.kind != WindowType::Two {
            return Err(RightsError::NotInvalidatable(key));
        }
        if !bound.serves(by.qpn) {
            return Err(RightsError::WrongQp(key));
        }
        self.release(window);
        Ok(())
    }

    /// The bound window that has this key now.
    fn window(&self, key: Key, by: Accessor) -> Result<(&Window, &Bound), RightsError> {
        let window = self.windows.get(&window_number(key));
        let window = window.filter(|window| window.key == key);
        let (window, bound) = window
            .and_then(|window| Some((window, window.bound()?)))
            .ok_or(RightsError::UnknownKey(key))?;
        if window.pd == by.pd {
            Ok((window, bound))
        } else {
            Err(RightsError::WrongPd(key))
        }
    }
}

/// Opening.
impl Rights {
    /// Opens `len` bytes at `addr` of a region if `key` allows `need` (empty: local read) to protection domain `pd`.
    ///
    /// `addr` is in the region's `iova` range; for a zero-based region that starts at 0. No bytes need no key: with `len` 0 the
    /// key, the protection domain and the address are not looked at, as zero-length READs, WRITEs and scatter/gather
    /// elements demand. Windows have no local keys: they open by [`open_remote`](Self::open_remote) only.
    ///
    /// # Errors
    /// [`RightsError`] says why not.
    pub fn open(
        &self,
        key: Key,
        pd: PdId,
        addr: u64,
        len: u64,
        need: Access,
    ) -> Result<Span<'_>, RightsError> {
        if len == 0 {
            return Ok(Span::EMPTY);
        }
        let region = self.regions.get(&key).ok_or(RightsError::UnknownKey(key))?;
        if region.pd != pd {
            return Err(RightsError::WrongPd(key));
        }
        allow(key, region.access, need)?;
        region
            .place(addr, len)
            .ok_or(RightsError::OutOfBounds { key, addr, len })
    }

    /// As [`open`](Self::open) for the peer of a queue pair: `key` is that of a region or of a window.
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
        if len == 0 || self.windows.is_empty() || self.regions.contains_key(&key) {
            return self.open(key, by.pd, addr, len, need);
        }
        let (_, bound) = self.window(key, by)?;
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
        if region.pd != by.pd {
            return Err(RightsError::WrongPd(key));
        }
        allow(key, region.access, need)
    }
}

fn allow(key: Key, access: Access, need: Access) -> Result<(), RightsError> {
    let missing = need.difference(access);
    if missing.is_empty() {
        Ok(())
    } else {
        Err(RightsError::Access { key, missing })
    }
}

#[cfg(test)]
mod tests;
