//! Borrowed memory while the device has it, or the program.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use crate::sys::{BorrowedMut, BorrowedRegion, Memory, Pieces};
use crate::{Error, Result};

use super::{Receiving, Waiting, length};

/// Bytes that are shared with the device until the scope ends.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ferroce::qp::Operation;
/// let pair = pair()?;
/// let text = String::from("good morning");
/// let mut room = [0; 16];
/// pair.domain.scope(Duration::from_secs(1), |scope| {
///     let receiving = scope.receive(&pair.far, scope.register_mut(&mut room)?)?;
///     let text = scope.register(text.as_bytes())?;
///     let part = text.slice(5..12)?;
///     scope.send(&pair.near, Operation::Send, &[part])?.wait()?;
///     let (done, room) = receiving.wait()?;
///     assert_eq!(&room[..done?.bytes as usize], b"morning");
///     assert_eq!(&text[..4], b"good"); // the program reads them meanwhile
///     Ok::<_, ferroce::Error>(())
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ScopedBytes<'scope> {
    pub(super) bytes: &'scope [u8],
    pub(super) region: Arc<BorrowedRegion>,
    pub(super) offset: usize,
}

impl ScopedBytes<'_> {
    /// A part of them.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        let bytes = self.bytes.get(range.clone()).ok_or(Error::OutOfRange {
            start: range.start,
            end: range.end,
            length: self.bytes.len(),
        })?;
        Ok(Self {
            bytes,
            region: Arc::clone(&self.region),
            offset: self.offset + range.start,
        })
    }
}

impl Deref for ScopedBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl fmt::Debug for ScopedBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScopedBytes({} bytes)", self.bytes.len())
    }
}

/// Bytes that the program and the device have in turn, until the scope ends. While the program has
/// this, they are ordinary bytes; work takes it away and gives it back.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ferroce::qp::Operation;
/// let pair = pair()?;
/// let mut room = [0; 8];
/// pair.domain.scope(Duration::from_secs(1), |scope| {
///     // The device gets one half, the program keeps the other.
///     let (lent, mut kept) = scope.register_mut(&mut room)?.split_at(4);
///     let receiving = scope.receive(&pair.far, lent)?;
///     kept.fill(b'.');
///     let text = scope.register(b"here")?;
///     scope.send(&pair.near, Operation::Send, &[text])?.wait()?;
///     receiving.wait()?.0?;
///     Ok::<_, ferroce::Error>(())
/// })?;
/// assert_eq!(&room, b"here....");
/// # Ok(())
/// # }
/// ```
pub struct ScopedBytesMut<'scope> {
    pub(super) memory: BorrowedMut,
    pub(super) scope: PhantomData<&'scope mut [u8]>,
}

impl<'scope> ScopedBytesMut<'scope> {
    /// In two parts, the first of `at` bytes, which go their own ways.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn split_at(self, at: usize) -> (Self, Self) {
        let (first, second) = self.memory.split(at);
        let lent = |memory| Self {
            memory,
            scope: PhantomData,
        };
        (lent(first), lent(second))
    }

    #[inline(always)]
    pub(super) fn pieces(&self) -> Result<impl Memory> {
        let (region, start, bytes) = self.memory.piece();
        Ok(Pieces(std::iter::once((region, start, length(bytes)?))))
    }

    #[inline(always)]
    pub(super) fn receiving(
        self,
        posted: Result<Waiting>,
    ) -> std::result::Result<Receiving<'scope>, RefusedBytes<'scope>> {
        match posted {
            Ok(waiting) => Ok(Receiving {
                waiting,
                lent: Some(self),
            }),
            Err(error) => Err(RefusedBytes { error, bytes: self }),
        }
    }
}

impl Deref for ScopedBytesMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.bytes()
    }
}

impl DerefMut for ScopedBytesMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }
}

impl fmt::Debug for ScopedBytesMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScopedBytesMut({} bytes)", self.len())
    }
}

/// Work that was not posted, and its bytes.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct RefusedBytes<'scope> {
    /// Reason for the failure.
    #[source]
    pub error: Error,
    /// The bytes.
    pub bytes: ScopedBytesMut<'scope>,
}

impl From<RefusedBytes<'_>> for Error {
    fn from(refused: RefusedBytes<'_>) -> Self {
        refused.error
    }
}

/// Of the [error](RefusedBytes::error); the bytes are dropped.
impl From<RefusedBytes<'_>> for io::Error {
    fn from(refused: RefusedBytes<'_>) -> Self {
        refused.error.into()
    }
}
