//! Protection domains and memory regions.

use std::sync::Arc;

use ferroce_proto::ids::Key;
use ferroce_proto::mr::Access;

use crate::{Context, Error};

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    context: Arc<Context>,
}

impl Pd {
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// ENOMEM at the device's limit.
    pub fn alloc(_context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        todo!()
    }
    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

/// A memory region. Dropping it deregisters: when the drop returns, no peer touches the memory any more (promise 1).
#[derive(Debug)]
pub struct Mr {
    pd: Arc<Pd>,
}

impl Mr {
    /// Registers `length` bytes at `addr`, known to work requests and peers as `iova`.
    ///
    /// # Errors
    /// EFAULT if the range is not mapped (or not writable where the access asks for it); EINVAL for remote write or atomic
    /// without local write; ENOMEM at the device's limit.
    pub fn register(_pd: &Arc<Pd>, _addr: u64, _length: u64, _iova: u64, _access: Access) -> Result<Arc<Self>, Error> {
        todo!()
    }
    /// Changes what is given (`ibv_rereg_mr`); the key stays.
    ///
    /// # Errors
    /// As [`register`](Self::register); the region is unchanged then.
    pub fn reregister(&self, _range: Option<(u64, u64)>, _pd: Option<&Arc<Pd>>, _access: Option<Access>) -> Result<(), Error> {
        todo!()
    }
    /// The key, both local and remote.
    #[must_use]
    pub fn key(&self) -> Key {
        todo!()
    }
    /// The protection domain at registration.
    #[must_use]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }
}
