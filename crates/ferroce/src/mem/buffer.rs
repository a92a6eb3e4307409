//! Buffers: memory that is given away with the work and comes back with its completion.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::mem::ProtectionDomain;
use crate::sys::{Exclusive, Given};
use crate::{Error, Result};

/// Registered memory with one owner: the program, or the work that it was given to. No peer can
/// reach it but by the program's own work, so it is ordinary bytes: `&[u8]` and `&mut [u8]`.
///
/// Its length says how much of it is sent or read. A receive takes as much as its
/// [capacity](Self::capacity) holds, whatever its length was, and makes the length what came.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::Buffer;
/// let pair = pair()?;
/// let mut buffer = Buffer::new(&pair.domain, 64)?;
/// buffer.fill_from(b"hello")?;
/// assert_eq!((buffer.len(), buffer.capacity()), (5, 64));
/// buffer[0] = b'j';
/// buffer.set_len(4)?;
/// assert_eq!(&*buffer, b"jell");
/// // A receive takes as much as the capacity.
/// let _received = pair.far.receive_buffer(buffer)?;
/// # Ok(())
/// # }
/// ```
pub struct Buffer {
    memory: Exclusive,
    length: usize,
    capacity: usize,
}

impl Buffer {
    /// Registers that many bytes, zeroed. A buffer of no bytes, for empty messages, has the
    /// capacity of one.
    ///
    /// # Errors
    /// [`Error::Misuse`] for 4 GiB and more; ENOMEM at the device's limit.
    pub fn new(domain: &ProtectionDomain, length: usize) -> Result<Self> {
        u32::try_from(length).map_err(|_| Error::Misuse("a buffer has less than 4 GiB"))?;
        let capacity = length.max(1);
        Exclusive::new(&domain.0, capacity).map(|memory| Self::from_parts(memory, length, capacity))
    }

    #[inline]
    pub(crate) fn from_parts(memory: Exclusive, length: usize, capacity: usize) -> Self {
        Self {
            memory,
            length,
            capacity,
        }
    }

    /// Bytes that it can have.
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes it shorter or longer; its bytes stay what they were.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] beyond its capacity.
    pub fn set_len(&mut self, length: usize) -> Result<()> {
        if length > self.capacity {
            return Err(Error::OutOfRange {
                start: 0,
                end: length,
                length: self.capacity,
            });
        }
        self.length = length;
        Ok(())
    }

    /// Makes these its bytes.
    ///
    /// # Errors
    /// As [`set_len`](Self::set_len).
    pub fn fill_from(&mut self, bytes: &[u8]) -> Result<()> {
        self.set_len(bytes.len())?;
        self.copy_from_slice(bytes);
        Ok(())
    }

    /// Gives the bytes away, for work on them.
    #[inline]
    pub(crate) fn give(self) -> Given {
        let length = self.length;
        self.give_part(length)
    }

    /// For a receive: all of it.
    #[inline]
    pub(crate) fn give_room(self) -> Given {
        let capacity = self.capacity;
        self.give_part(capacity)
    }

    #[inline]
    fn give_part(self, length: usize) -> Given {
        Given {
            memory: self.memory,
            length: u32::try_from(length).expect("invariant: shorter than 4 GiB"),
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.memory.bytes(self.length)
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut(self.length)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("length", &self.length)
            .field("capacity", &self.capacity)
            .finish()
    }
}

/// Without a copy. The memory stays registered, or goes back to its pool, when the last clone and
/// part is dropped.
#[cfg(feature = "bytes")]
impl From<Buffer> for bytes::Bytes {
    fn from(buffer: Buffer) -> Self {
        Self::from_owner(buffer)
    }
}
