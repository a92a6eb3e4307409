//! The rights table: which key opens which bytes, to whom, for what.

use core::marker::PhantomData;
use core::sync::atomic::AtomicBool;

use hashbrown::HashMap;

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

/// The table of all regions of one process.
#[derive(Debug, Default)]
pub struct Rights {
    regions: HashMap<Key, Region>,
}

impl Rights {
    /// Adds a region under a key that must be unused. Returns whether it was.
    pub fn insert(&mut self, _key: Key, _region: Region) -> bool {
        todo!()
    }
    /// Removes a region.
    pub fn remove(&mut self, _key: Key) -> Option<Region> {
        todo!()
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
    /// Makes a key open nothing to peers any more (SEND with invalidate, local invalidate).
    ///
    /// # Errors
    /// The key is unknown or belongs to another protection domain.
    pub fn invalidate(&self, _key: Key, _pd: PdId) -> Result<(), RightsError> {
        todo!()
    }
    /// Opens `len` bytes at `addr` if `key` allows `need` (empty: local read) to protection domain `pd`.
    ///
    /// # Errors
    /// [`RightsError`] says why not.
    pub fn open(
        &self,
        _key: Key,
        _pd: PdId,
        _addr: u64,
        _len: u64,
        _need: Access,
    ) -> Result<Span<'_>, RightsError> {
        todo!()
    }
}
