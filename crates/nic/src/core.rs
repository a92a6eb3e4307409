//! The process-wide engine (skeleton: the nic helper turns this file into a folder).

use std::sync::Arc;

use crate::{Device, Error};

/// The software RDMA device of this process.
#[derive(Debug)]
pub struct Nic {}

impl Nic {
    /// The process's `Nic`; the first call starts it (slot claim, sockets, progress thread).
    ///
    /// # Errors
    /// No slot left in this namespace, or the kernel refused a socket that nothing works without. UDP 4791 being taken is not
    /// an error here: same-host connections work without it, and one line on stderr says so.
    pub fn get() -> Result<Arc<Self>, Error> {
        todo!()
    }
    /// Devices: interfaces that are up and have an address, in order of index, loopback last.
    #[must_use]
    pub fn devices(&self) -> Vec<Arc<Device>> {
        todo!()
    }
}
