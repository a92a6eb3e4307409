//! The bytes behind a [`Span`].

use alloc::vec::Vec;

use smallvec::SmallVec;

use super::Span;

/// The memory behind a span is not there any more: the program unmapped it, or took the permission
/// away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("registered memory is not mapped any more")]
pub struct Unmapped;

/// Copies to and from registered memory. The device implements it on raw memory, tests on vectors.
///
/// A span was checked against the rights table while that table is borrowed, so its bytes are
/// registered for as long as the call lasts. The program may have unmapped them all the same: that
/// is an error value and never a fault. Of a copy that fails, a part may have happened. Programs
/// change registered memory at any time: implementations must not make `&mut [u8]` of it.
pub trait Memory {
    /// Copies the span's bytes into `to`, which has the span's length.
    ///
    /// # Errors
    /// [`Unmapped`].
    fn read(&self, span: Span<'_>, to: &mut [u8]) -> Result<(), Unmapped>;
    /// Appends the span's bytes to `to`. An implementation on raw memory can do that without
    /// filling the place first.
    ///
    /// # Errors
    /// [`Unmapped`].
    fn append(&self, span: Span<'_>, to: &mut Vec<u8>) -> Result<(), Unmapped> {
        let at = to.len();
        to.resize(at + span.len(), 0);
        self.read(span, &mut to[at..])
            .inspect_err(|_| to.truncate(at))
    }

    /// Copies `from`, which has the span's length, into the span.
    ///
    /// # Errors
    /// [`Unmapped`].
    fn write(&self, span: Span<'_>, from: &[u8]) -> Result<(), Unmapped>;
    /// Atomic compare-and-swap on an 8-byte span; returns the original value. Host byte order.
    ///
    /// # Errors
    /// [`Unmapped`].
    fn compare_swap(&self, span: Span<'_>, compare: u64, swap: u64) -> Result<u64, Unmapped>;
    /// Atomic fetch-and-add on an 8-byte span; returns the original value. Host byte order.
    ///
    /// # Errors
    /// [`Unmapped`].
    fn fetch_add(&self, span: Span<'_>, add: u64) -> Result<u64, Unmapped>;
}

/// Bytes of this process for a copy that does not go through packets.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Registered memory.
    Registered(Span<'a>),
    /// Inline data, to read from.
    Inline(&'a [u8]),
}

/// Bytes of another process, by their address there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRange {
    /// The first byte.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
}

/// Pieces that a copy is made of. One piece, the usual number, takes no memory of its own.
pub type Pieces<'a> = SmallVec<[Piece<'a>; 1]>;

impl Piece<'_> {
    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a length, not a collection")]
    pub const fn len(&self) -> usize {
        match self {
            Self::Registered(span) => span.len(),
            Self::Inline(bytes) => bytes.len(),
        }
    }
}
