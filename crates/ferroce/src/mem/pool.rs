//! Buffers that are used again.

use std::fmt;
use std::sync::Arc;

use crate::Result;
use crate::mem::{Buffer, ProtectionDomain};
use crate::sys::Shelf;

/// Registered memory for [`Buffer`]s that come and go: to register memory for each message costs
/// more than to send it. A buffer comes back to its pool when it is dropped, also by work that
/// holds it. Clones are the same pool.
///
/// Memory is kept in powers of two from 4 KiB on. What lies idle is deregistered when the limit
/// would be passed otherwise, and with the pool.
///
/// ```
/// # use ferroce::Provider;
/// # use ferroce::endpoint::Endpoint;
/// # use ferroce::mem::BufferPool;
/// # let endpoint = Endpoint::new(&Provider::software())?;
/// # let listener = endpoint.listen("127.0.0.1:0")?;
/// # let address = listener.local_addr().unwrap();
/// # let server = std::thread::spawn(move || listener.accept().wait()?.accept().wait());
/// # let connection = endpoint.connect(address).wait()?;
/// let pool = BufferPool::new(connection.domain(), 64 << 20);
/// let mut request = pool.buffer(5)?;
/// request.copy_from_slice(b"hello");
/// let first = request.as_ptr();
/// drop(request);
/// // The same memory, registered once.
/// assert_eq!(pool.buffer(4096)?.as_ptr(), first);
/// assert_eq!(pool.bytes().to_string(), "4096 bytes registered, 4096 of them idle");
/// # drop((connection, server.join().unwrap()?));
/// # Ok::<(), ferroce::Error>(())
/// ```
#[derive(Clone)]
pub struct BufferPool(Arc<Shelf>);

impl BufferPool {
    /// A pool of a domain for at most that many bytes, those in use included. It registers nothing
    /// until it is asked for a buffer.
    #[must_use]
    pub fn new(domain: &ProtectionDomain, limit: usize) -> Self {
        Self(Shelf::new(&domain.0, limit, false))
    }

    /// The same, whose buffers of 2 MiB and more lie in huge pages where the system has them
    /// (`MADV_HUGEPAGE` of `madvise(2)`).
    #[must_use]
    pub fn with_huge_pages(domain: &ProtectionDomain, limit: usize) -> Self {
        Self(Shelf::new(&domain.0, limit, true))
    }

    /// A buffer of that length, whose capacity is the next power of two, 4 KiB at least. Its bytes
    /// are zeros, or those of an earlier buffer.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) if too much is in use,
    /// [`Error::Misuse`](crate::Error::Misuse) beyond 2 GiB; as [`Buffer::new`].
    pub fn buffer(&self, length: usize) -> Result<Buffer> {
        let (memory, capacity) = self.0.take(length)?;
        Ok(Buffer::from_parts(memory, length, capacity))
    }

    /// Bytes that are registered, and those of them that lie idle.
    #[must_use]
    pub fn bytes(&self) -> PoolBytes {
        let (registered, idle) = self.0.bytes();
        PoolBytes { registered, idle }
    }
}

/// Statistics of a [`BufferPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolBytes {
    /// Bytes that are registered.
    pub registered: usize,
    /// Those of them that no buffer has.
    pub idle: usize,
}

impl fmt::Display for PoolBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { registered, idle } = self;
        write!(f, "{registered} bytes registered, {idle} of them idle")
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BufferPool").field(&self.bytes()).finish()
    }
}
