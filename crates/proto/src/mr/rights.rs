//! The rights table: which key opens which bytes, to whom, for what.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::Access;
use crate::ids::{Key, PdId};

/// A registered region. The key serves as `lkey` and `rkey`.
#[derive(Debug)]
pub struct Region {
    /// Protection domain.
    pub pd: PdId,
    /// First address that work requests and peers use.
    pub iova: u64,
    /// Bytes.
    pub length: u64,
    /// First byte in this process's memory.
    pub addr: u64,
    /// What is allowed.
    pub access: Access,
    /// Cleared by an invalidate: the key then opens nothing to peers. Local use goes on.
    pub remote_valid: AtomicBool,
}

/// Bytes that a key opened. It borrows the rights table, so it cannot outlive the registration (promise 1).
#[derive(Clone, Copy, Debug)]
pub struct Span<'t> {
    addr: u64,
    len: usize,
    _table: PhantomData<&'t Rights>,
}

impl Span<'_> {
    /// First byte in this process's memory.
    #[must_use]
    pub const fn addr(&self) -> u64 {
        self.addr
    }
    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a length, not a collection")]
    pub const fn len(&self) -> usize {
        self.len
    }
}

/// Why a key does not open a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RightsError {
    /// No such key, or it was invalidated.
    #[error("{0:?} names no registered memory")]
    UnknownKey(Key),
    /// The region belongs to another protection domain.
    #[error("{0:?} belongs to another protection domain")]
    WrongPd(Key),
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

/// Access flags that only peers need. Asking for one of them makes an access a remote one.
const REMOTE: Access = Access::REMOTE_READ
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);

/// The table of all regions of one process.
#[derive(Debug, Default)]
pub struct Rights {
    regions: HashMap<Key, Region>,
}

impl Rights {
    /// Adds a region under a key that must be unused. Returns whether it was; if not, the table is unchanged.
    pub fn insert(&mut self, key: Key, region: Region) -> bool {
        match self.regions.entry(key) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(region);
                true
            }
        }
    }

    /// Removes a region. Since this takes the table mutably, no [`Span`] of it is left when it returns.
    pub fn remove(&mut self, key: Key) -> Option<Region> {
        self.regions.remove(&key)
    }

    /// The region of a key, valid or not.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&Region> {
        self.regions.get(&key)
    }

    /// Changes a region in place (`ibv_rereg_mr`).
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

    /// Makes a key open nothing to peers any more (SEND with invalidate, local invalidate).
    ///
    /// # Errors
    /// The key is unknown, was invalidated before, or belongs to another protection domain.
    pub fn invalidate(&self, key: Key, pd: PdId) -> Result<(), RightsError> {
        let region = self.regions.get(&key).ok_or(RightsError::UnknownKey(key))?;
        if region.pd != pd {
            return Err(RightsError::WrongPd(key));
        }
        if region.remote_valid.swap(false, Ordering::AcqRel) {
            Ok(())
        } else {
            Err(RightsError::UnknownKey(key))
        }
    }

    /// Opens `len` bytes at `addr` if `key` allows `need` (empty: local read) to protection domain `pd`.
    ///
    /// `addr` is in the region's `iova` range; for a zero-based region that starts at 0. An access that needs any
    /// `REMOTE_*` or `FLUSH_*` flag is a peer's, and an invalidated key refuses it. No bytes need no key: with `len` 0 the
    /// key, the protection domain and the address are not looked at, as zero-length READs, WRITEs and scatter/gather
    /// elements demand.
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
            return Ok(Span {
                addr: 0,
                len: 0,
                _table: PhantomData,
            });
        }
        let region = self.regions.get(&key).ok_or(RightsError::UnknownKey(key))?;
        if need.intersects(REMOTE) && !region.remote_valid.load(Ordering::Acquire) {
            return Err(RightsError::UnknownKey(key));
        }
        if region.pd != pd {
            return Err(RightsError::WrongPd(key));
        }
        let missing = need.difference(region.access);
        if !missing.is_empty() {
            return Err(RightsError::Access { key, missing });
        }
        region
            .place(addr, len)
            .ok_or(RightsError::OutOfBounds { key, addr, len })
    }
}

impl Region {
    /// Where the bytes `addr .. addr + len` of the region's `iova` range lie, if all of them are inside. No sum here can
    /// wrap unnoticed, whatever a peer asks for.
    fn place(&self, addr: u64, len: u64) -> Option<Span<'_>> {
        let offset = addr.checked_sub(self.iova)?;
        if len > self.length.checked_sub(offset)? {
            return None;
        }
        let start = self.addr.checked_add(offset)?;
        start.checked_add(len - 1)?;
        Some(Span {
            addr: start,
            len: usize::try_from(len).ok()?,
            _table: PhantomData,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = Key(0xdead_beef);
    const PD: PdId = PdId(3);

    fn region(iova: u64, length: u64, addr: u64, access: Access) -> Region {
        Region {
            pd: PD,
            iova,
            length,
            addr,
            access,
            remote_valid: AtomicBool::new(true),
        }
    }

    fn table(region: Region) -> Rights {
        let mut rights = Rights::default();
        assert!(rights.insert(KEY, region));
        rights
    }

    #[test]
    fn bytes_inside_the_region_open_at_their_place_in_memory() {
        let rights = table(region(0x1000, 0x100, 0x7000_0000, Access::LOCAL_WRITE));
        let span = rights
            .open(KEY, PD, 0x10f0, 0x10, Access::LOCAL_WRITE)
            .unwrap();
        assert_eq!((span.addr(), span.len()), (0x7000_00f0, 0x10));
    }

    #[test]
    fn each_refusal_names_its_cause() {
        let rights = table(region(0x1000, 0x100, 0x7000, Access::REMOTE_READ));
        let open = |key, pd, need| rights.open(key, pd, 0x1000, 1, need).unwrap_err();
        assert_eq!(
            open(Key(1), PD, Access::empty()),
            RightsError::UnknownKey(Key(1))
        );
        assert_eq!(
            open(KEY, PdId(4), Access::empty()),
            RightsError::WrongPd(KEY)
        );
        let missing = Access::REMOTE_WRITE;
        assert_eq!(
            open(KEY, PD, missing | Access::REMOTE_READ),
            RightsError::Access { key: KEY, missing }
        );
        let (addr, len) = (0x10ff, 2);
        assert_eq!(
            rights
                .open(KEY, PD, addr, len, Access::REMOTE_READ)
                .unwrap_err(),
            RightsError::OutOfBounds {
                key: KEY,
                addr,
                len
            }
        );
    }

    #[test]
    fn no_bytes_need_no_key() {
        let span = Rights::default();
        let span = span
            .open(Key(7), PD, u64::MAX, 0, Access::REMOTE_WRITE)
            .unwrap();
        assert_eq!(span.len(), 0);
    }

    #[test]
    fn an_invalidated_key_is_closed_to_peers_only() {
        let rights = table(region(
            0,
            16,
            0x7000,
            Access::REMOTE_READ | Access::LOCAL_WRITE,
        ));
        assert_eq!(
            rights.invalidate(KEY, PdId(9)),
            Err(RightsError::WrongPd(KEY))
        );
        assert!(rights.open(KEY, PD, 0, 16, Access::REMOTE_READ).is_ok());
        assert_eq!(rights.invalidate(KEY, PD), Ok(()));
        assert_eq!(
            rights
                .open(KEY, PD, 0, 16, Access::REMOTE_READ)
                .unwrap_err(),
            RightsError::UnknownKey(KEY)
        );
        assert!(rights.open(KEY, PD, 0, 16, Access::LOCAL_WRITE).is_ok());
        assert_eq!(
            rights.invalidate(KEY, PD),
            Err(RightsError::UnknownKey(KEY))
        );
        assert_eq!(
            rights.invalidate(Key(1), PD),
            Err(RightsError::UnknownKey(Key(1)))
        );
    }

    #[test]
    fn a_key_is_used_once_until_it_is_removed() {
        let mut rights = table(region(0, 1, 1, Access::empty()));
        assert!(!rights.insert(KEY, region(0, 2, 2, Access::empty())));
        assert_eq!(rights.get(KEY).map(|r| r.length), Some(1));
        assert!(rights.remove(KEY).is_some_and(|r| r.length == 1));
        assert!(rights.remove(KEY).is_none());
        assert!(rights.is_empty());
    }

    /// Numbers near the ends of the range, where sums wrap, and small ones.
    fn edgy() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..40_u64,
            (0..40_u64).prop_map(|n| u64::MAX - n),
            (0..40_u64).prop_map(|n| (1 << 63) + n - 20),
            any::<u64>()
        ]
    }

    proptest! {
        #[test]
        fn a_span_never_leaves_its_region(iova in edgy(), length in edgy(), base in edgy(), addr in edgy(), len in edgy()) {
            let rights = table(region(iova, length, base, Access::all()));
            let (wide_addr, wide_len) = (u128::from(addr), u128::from(len));
            let inside = addr >= iova && wide_addr + wide_len <= u128::from(iova) + u128::from(length);
            let mapped = inside && u128::from(base) + u128::from(addr - iova) + wide_len <= 1 << 64;
            match rights.open(KEY, PD, addr, len, Access::REMOTE_WRITE) {
                Ok(span) if len > 0 => {
                    prop_assert!(mapped);
                    prop_assert_eq!(span.addr(), base + (addr - iova));
                    prop_assert_eq!(span.len() as u64, len);
                }
                Ok(span) => prop_assert_eq!(span.len(), 0),
                Err(_) => prop_assert!(!mapped),
            }
        }
    }
}
