//! Atomic operations on a peer's memory.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::cq::WorkError;
use crate::mem::{RemoteAddress, RemoteRegion};
use crate::qp::pending::Ticket;
use crate::qp::{Operation, QueuePair, Work};
use crate::sys::{Domain, Exclusive, Given, Reader};
use crate::transport::Reads;
use crate::{Error, Result};

/// Eight bytes of a peer's memory region that atomic operations can reach: they are aligned, and
/// lie within the region.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::{Access, MemoryRegion};
/// let pair = pair()?;
/// let counter = MemoryRegion::new(&pair.domain, 8, Access::Remote)?;
/// let old = MemoryRegion::new(&pair.domain, 8, Access::LocalWrite)?;
/// let place = counter.remote().atomic(0).ok_or("not at a multiple of 8")?;
/// for tag in 0..3 {
///     pair.near.post_send(tag, place.fetch_add(7), &[old.slice(0..8)?])?;
///     pair.completions.wait()?.result?;
/// }
/// // What was there before the last one.
/// assert_eq!(old.load(0)?, 14);
/// assert_eq!(counter.load(0)?, 21);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAtomic(RemoteAddress);

impl RemoteRegion {
    /// The eight bytes that are `offset` bytes from its start. None if they are not within it, or
    /// their address is not a multiple of 8.
    #[must_use]
    pub fn atomic(self, offset: u64) -> Option<RemoteAtomic> {
        let place = self.at(offset);
        let within = offset.checked_add(8)? <= self.length;
        (within && place.address.is_multiple_of(8)).then_some(RemoteAtomic(place))
    }
}

impl RemoteAtomic {
    /// Adds, wrapping around at 2^64, and gives what was there before
    /// (`IBV_WR_ATOMIC_FETCH_AND_ADD`).
    #[must_use]
    pub fn fetch_add(self, add: u64) -> Operation {
        let target = self.0;
        Operation::FetchAdd { target, add }
    }

    /// Sets it to `swap` if it is `compare`, and gives what was there before
    /// (`IBV_WR_ATOMIC_CMP_AND_SWP`).
    #[must_use]
    pub fn compare_swap(self, compare: u64, swap: u64) -> Operation {
        Operation::CompareSwap {
            target: self.0,
            compare,
            swap,
        }
    }

    /// Sets it in one step (ATOMIC WRITE, IBTA 1.5 annex A19): the value is the work request's 8
    /// bytes.
    #[must_use]
    pub fn write(self) -> Operation {
        Operation::AtomicWrite(self.0)
    }

    /// The place.
    #[must_use]
    pub fn address(self) -> RemoteAddress {
        self.0
    }
}

/// Registered memory for the results of a queue pair's atomic operations, used again and again.
#[derive(Default)]
pub(crate) struct Results(Mutex<Vec<Exclusive>>);

impl Results {
    fn take(&self, domain: &Arc<Domain>) -> Result<Exclusive> {
        let free = { self.0.lock().unwrap_or_else(PoisonError::into_inner).pop() };
        free.map_or_else(|| Exclusive::new(domain, size_of::<u64>()), Ok)
    }

    fn give_back(&self, memory: Exclusive) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(memory);
    }
}

impl<T: Reads> QueuePair<T> {
    /// Posts an atomic operation, as a future of the value that was there before, in the machine's
    /// byte order. The memory for the result is the queue pair's own.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send); [`Error::Misuse`] for other operations than compare and
    /// swap, and fetch and add.
    pub fn submit_atomic(&self, work: impl Into<Work<T>>) -> Result<PendingAtomic> {
        let order = work.into().order;
        if !matches!(
            order.what,
            Operation::FetchAdd { .. } | Operation::CompareSwap { .. }
        ) {
            return Err(Error::Misuse("only atomic operations give a value"));
        }
        let domain = self
            .handle
            .domain()
            .ok_or(Error::Misuse("the queue pair has no protection domain"))?;
        let memory = self.results.take(domain)?;
        let memory = Given { memory, length: 8 };
        match self.handle.post_send((0, Reader::Future), memory, order) {
            Ok(id) => Ok(PendingAtomic {
                ticket: Ticket::new(self.handle.send_queue().ledger(), id),
                results: Arc::clone(&self.results),
            }),
            Err(mut refused) => {
                if let Some(memory) = refused.held.take_exclusive() {
                    self.results.give_back(memory);
                }
                Err(refused.into_error())
            }
        }
    }
}

/// An atomic operation; ready with the old value when it has completed. See
/// [`Pending`](crate::qp::Pending).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::{Access, MemoryRegion};
/// let pair = pair()?;
/// let counter = MemoryRegion::new(&pair.domain, 8, Access::Remote)?;
/// let add = counter.remote().atomic(0).ok_or("not aligned")?.fetch_add(5);
/// let mut adding = pair.near.submit_atomic(add)?;
/// let before = loop {
///     pair.completions.poll()?;
///     if let Some(ended) = adding.try_wait() {
///         break ended?;
///     }
/// };
/// assert_eq!(before, 0);
/// # Ok(())
/// # }
/// ```
#[must_use = "the operation is done either way, but nobody learns the value"]
pub struct PendingAtomic {
    ticket: Ticket,
    results: Arc<Results>,
}

impl PendingAtomic {
    /// How it ended, if it has, for loops of one's own that poll or drive its completion queue. Not
    /// to be asked or awaited again when it has answered.
    ///
    /// # Panics
    /// If it has answered before.
    pub fn try_wait(&mut self) -> Option<std::result::Result<u64, WorkError>> {
        match Pin::new(self).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        }
    }
}

impl Future for PendingAtomic {
    type Output = std::result::Result<u64, WorkError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let answer = this
            .ticket
            .poll(context, |view, held| (view.result(), held.take_exclusive()));
        answer.map(|(result, memory)| {
            let memory = memory.expect("invariant: the operation was posted with its memory");
            let mut value = [0; 8];
            value.copy_from_slice(memory.bytes(8));
            this.results.give_back(memory);
            result.map(|_| u64::from_ne_bytes(value))
        })
    }
}

impl fmt::Debug for PendingAtomic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PendingAtomic").field(&self.ticket).finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::mem::RemoteRegion;

    #[test]
    fn an_atomic_is_aligned_and_within_its_region() {
        let region = RemoteRegion {
            address: 0x1004,
            length: 20,
            rkey: 1,
        };
        assert_eq!(region.atomic(4).unwrap().address().address, 0x1008);
        assert_eq!(region.atomic(0), None);
        assert_eq!(region.atomic(12).unwrap().address().address, 0x1010);
        assert_eq!(region.atomic(20), None);
        assert_eq!(region.atomic(u64::MAX), None);
    }
}
