//! Windows in the rights table: bound, taken back, and what they open.

use alloc::vec::Vec;

use hashbrown::hash_map::Entry;

use super::super::window::{Bound, OpenWindow, WindowState};
use super::super::{Access, Backing, BindError, Region, WINDOW_KEY_BITS, WindowBind, WindowType};
use super::{Accessor, Rights, RightsError, window_number};
use crate::ids::{Key, PdId, Qpn};

impl Rights {
    /// Adds a window that is not bound, with its first key. Returns whether that was free. The
    /// owner gives regions other numbers than windows: no region may have a key with the same upper
    /// bits.
    pub fn insert_window(&mut self, key: Key, kind: WindowType, pd: PdId) -> bool {
        match self.windows.entry(window_number(key)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(WindowState::new(kind, pd, key));
                true
            }
        }
    }

    /// Removes a window, bound or not. Returns the key that has opened something until now, if it
    /// was bound.
    pub fn remove_window(&mut self, key: Key) -> Option<Key> {
        let window = self.windows.remove(&window_number(key))?;
        let open = window.bound().map(|_| window.key);
        self.release(&window);
        open
    }

    /// The windows of a queue pair that is gone are bound no longer. Returns the keys that have
    /// opened something until now.
    pub fn unbind_windows_of(&mut self, qpn: Qpn) -> Vec<Key> {
        let is_its = |bound: &Bound| bound.qpn == Some(qpn);
        let closed = self.open_windows(is_its);
        for window in self.windows.values() {
            if window.bound().is_some_and(is_its) {
                self.release(window);
            }
        }
        closed
    }

    /// The keys of the windows that are bound to a region.
    #[must_use]
    pub fn windows_on(&self, region: Key) -> Vec<Key> {
        self.open_windows(|bound| bound.region == region)
    }

    fn open_windows(&self, which: impl Fn(&Bound) -> bool) -> Vec<Key> {
        let open = |window: &&WindowState| window.bound().is_some_and(&which);
        let windows = self.windows.values().filter(open);
        windows.map(|window| window.key).collect()
    }

    /// Bytes and rights that a window opens now; `key` is any of its keys.
    #[must_use]
    pub fn open_window(&self, key: Key) -> Option<OpenWindow> {
        let window = self.windows.get(&window_number(key))?;
        let bound = window.bound()?;
        let region = Region::new(window.pd, bound.addr, bound.length, bound.access);
        Some(OpenWindow {
            key: window.key,
            region: region.with_iova(bound.iova).with_backing(bound.backing),
            qpn: bound.qpn,
        })
    }

    /// Takes a window back and counts it off its region.
    fn release(&self, window: &WindowState) {
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

    /// Bytes and rights that the window will open, if the region allows it.
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

    /// Makes the key of a type 2 window open nothing any more (local invalidate, SEND with
    /// invalidate).
    ///
    /// # Errors
    /// The key is that of something else, or not the window's present one; or the window is not
    /// bound, or not by this queue pair.
    pub fn invalidate(&self, key: Key, by: Accessor) -> Result<(), RightsError> {
        self.release(self.invalidatable(key, by)?);
        Ok(())
    }

    /// Whether [`invalidate`](Self::invalidate) would succeed.
    #[must_use]
    pub fn may_invalidate(&self, key: Key, by: Accessor) -> bool {
        self.invalidatable(key, by).is_ok()
    }

    fn invalidatable(&self, key: Key, by: Accessor) -> Result<&WindowState, RightsError> {
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
        Ok(window)
    }

    /// The bound window that has this key now.
    pub(super) fn window(
        &self,
        key: Key,
        by: Accessor,
    ) -> Result<(&WindowState, &Bound), RightsError> {
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
