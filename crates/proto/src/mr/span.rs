//! Bytes that a key opened.

use core::marker::PhantomData;

use super::{Backing, Rights};

/// Bytes as a key names them, before it opened them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddrRange {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

/// Bytes that a key opened. It borrows the rights table, so it cannot outlive the registration
/// (promise 1).
#[derive(Clone, Copy, Debug)]
pub struct Span<'t> {
    addr: u64,
    len: usize,
    backing: Backing,
    _table: PhantomData<&'t Rights>,
}

impl Span<'_> {
    /// Only the rights table makes one, after its checks.
    pub(super) const fn new(addr: u64, len: usize, backing: Backing) -> Self {
        Self {
            addr,
            len,
            backing,
            _table: PhantomData,
        }
    }

    /// No bytes: they need no key.
    pub(super) const EMPTY: Self = Self::new(0, 0, Backing::Mapped);

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

    /// The first `len` bytes, or all if there are fewer, and the others.
    #[must_use]
    pub fn split_at(self, len: usize) -> (Self, Self) {
        let len = len.min(self.len);
        let rest = Self {
            addr: self.addr.wrapping_add(len as u64),
            len: self.len - len,
            ..self
        };
        (Self { len, ..self }, rest)
    }

    /// Returns the kind of memory behind the addresses.
    #[must_use]
    pub const fn backing(&self) -> Backing {
        self.backing
    }
}
