//! Work on borrowed memory, within a scope.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::cq::{Done, WorkError};
use crate::mem::{Access, ProtectionDomain, RemoteAccess, RemoteRegion};
use crate::qp::pending::Ticket;
use crate::qp::{Operation, QueuePair, Work};
use crate::sys::{BorrowedMut, BorrowedRegion, Memory, Order, Pieces, Posts, Queue, Reader};
use crate::transport::{Receives, Sends};
use crate::{Error, Result};

mod memory;

pub use memory::{RefusedBytes, ScopedBytes, ScopedBytesMut};

/// A scope in which borrowed memory can be sent from and received into: see
/// [`ProtectionDomain::scope`].
///
/// Peers reach what is exposed, and bytes that were read come back:
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::atomic::AtomicU8;
/// use std::time::Duration;
/// use ferroce::mem::RemoteAccess;
/// use ferroce::qp::Operation;
/// let pair = pair()?;
/// let board = [5, 6, 7].map(AtomicU8::new);
/// let mut copy = [0; 3];
/// pair.domain.scope(Duration::from_secs(1), |scope| {
///     let remote = scope.expose(&board, RemoteAccess::READ)?;
///     let copy = scope.register_mut(&mut copy)?;
///     let reading = scope.fetch(&pair.near, Operation::Read(remote.at(0)), copy)?;
///     let (done, copy) = reading.wait()?;
///     done?;
///     assert_eq!(*copy, [5, 6, 7]);
///     Ok::<_, ferroce::Error>(())
/// })?;
/// assert_eq!(copy, [5, 6, 7]);
/// # Ok(())
/// # }
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    domain: &'scope ProtectionDomain,
    posts: &'scope Posts,
    /// Neither lifetime may be shortened or lengthened, as in [`std::thread::Scope`].
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl ProtectionDomain {
    /// Runs `work` with a scope, in the manner of [`std::thread::scope`]. Inside, memory that lives
    /// longer than the scope (of the stack, the heap, or wherever) is made known to the device with
    /// [`register`](Scope::register), [`register_mut`](Scope::register_mut) or
    /// [`expose`](Scope::expose), and queue pairs of this domain work on it.
    ///
    /// When `work` has returned, the scope waits up to `limit` for what it posted. Queue pairs
    /// whose work is not done by then go to the error state, which flushes it; so do they at once
    /// if `work` panics. Then all registrations end, and the memory is the program's again. This
    /// holds whatever became of the scope's values, also if they were leaked with
    /// [`std::mem::forget`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ferroce::qp::Operation;
    /// let pair = pair()?;
    /// let mut room = [0; 64];
    /// let bytes = pair.domain.scope(std::time::Duration::from_secs(1), |scope| {
    ///     let receiving = scope.receive(&pair.far, scope.register_mut(&mut room)?)?;
    ///     let hello = scope.register(b"hello")?;
    ///     scope.send(&pair.near, Operation::Send, &[hello])?.wait()?;
    ///     let (done, _room) = receiving.wait()?;
    ///     Ok::<_, ferroce::Error>(done?.bytes)
    /// })?;
    /// assert_eq!(&room[..bytes as usize], b"hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Aborts
    /// If the device refuses to end a registration, which no device does for memory without
    /// windows: it could still write there.
    pub fn scope<'env, R>(
        &self,
        limit: Duration,
        work: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    ) -> R {
        let posts = Posts::default();
        let scope = Scope {
            domain: self,
            posts: &posts,
            scope: PhantomData,
            env: PhantomData,
        };
        let result = catch_unwind(AssertUnwindSafe(|| work(&scope)));
        match result {
            Ok(result) => {
                posts.end(limit);
                result
            }
            Err(panic) => {
                posts.end(Duration::ZERO);
                resume_unwind(panic)
            }
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Registers bytes to send from (`ibv_reg_mr(3)`, without access).
    ///
    /// # Errors
    /// [`Error::Misuse`] for no bytes, ENOMEM at the device's limit.
    pub fn register(&'scope self, bytes: &'scope [u8]) -> Result<ScopedBytes<'scope>> {
        let region = BorrowedRegion::shared(&self.domain.0, bytes)?;
        self.posts.add_region(&region);
        Ok(ScopedBytes {
            bytes,
            region,
            offset: 0,
        })
    }

    /// Registers bytes to receive and to read into (`ibv_reg_mr(3)`, `IBV_ACCESS_LOCAL_WRITE`).
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn register_mut(&'scope self, bytes: &'scope mut [u8]) -> Result<ScopedBytesMut<'scope>> {
        let memory = BorrowedMut::lend(&self.domain.0, bytes)?;
        self.posts.add_region(memory.piece().0);
        Ok(ScopedBytesMut {
            memory,
            scope: PhantomData,
        })
    }

    /// Registers bytes for peers, until the scope ends. Peers may change them at any time, so they
    /// are atomics.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn expose(
        &'scope self,
        bytes: &'scope [AtomicU8],
        access: RemoteAccess,
    ) -> Result<RemoteRegion> {
        let access = Access::Peers(access).flags();
        let region = BorrowedRegion::exposed(&self.domain.0, bytes, access)?;
        self.posts.add_region(&region);
        Ok(RemoteRegion {
            address: region.address(),
            length: bytes.len() as u64,
            rkey: region.rkey(),
        })
    }

    /// Posts work that sends or writes shared bytes.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`]; [`Error::Misuse`] for READ and atomics, which write to the
    /// bytes: [`fetch`](Self::fetch) is for those.
    #[inline(always)]
    pub fn send<T: Sends>(
        &'scope self,
        queue_pair: &QueuePair<T>,
        work: impl Into<Work<T>>,
        pieces: &[ScopedBytes<'scope>],
    ) -> Result<Sending<'scope>> {
        let order = work.into().order;
        if fetches(&order) {
            return Err(Error::Misuse(
                "READ and atomics write to the bytes, which are only shared",
            ));
        }
        for piece in pieces {
            length(piece.bytes.len())?;
        }
        let listed = pieces.iter().map(|piece| {
            let length = length(piece.bytes.len()).unwrap_or_default();
            (&piece.region, piece.offset, length)
        });
        let waiting = self.post_send(queue_pair, Pieces(listed), order)?;
        Ok(Sending {
            waiting,
            scope: PhantomData,
        })
    }

    /// Posts a READ or an atomic operation, into lent bytes.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`], with the bytes; [`Error::Misuse`] for other operations.
    pub fn fetch<T: Sends>(
        &'scope self,
        queue_pair: &QueuePair<T>,
        work: impl Into<Work<T>>,
        into: ScopedBytesMut<'scope>,
    ) -> std::result::Result<Receiving<'scope>, RefusedBytes<'scope>> {
        let order = work.into().order;
        let error = Error::Misuse("only READ and atomics bring bytes");
        if !fetches(&order) {
            return Err(RefusedBytes { error, bytes: into });
        }
        let posted = into
            .pieces()
            .and_then(|memory| self.post_send(queue_pair, memory, order));
        into.receiving(posted)
    }

    /// Posts a receive into lent bytes.
    ///
    /// # Errors
    /// As [`QueuePair::post_receive`], with the bytes.
    #[inline(always)]
    pub fn receive<T: Receives>(
        &'scope self,
        queue_pair: &QueuePair<T>,
        into: ScopedBytesMut<'scope>,
    ) -> std::result::Result<Receiving<'scope>, RefusedBytes<'scope>> {
        let handle = &queue_pair.handle;
        let posted = into.pieces().and_then(|memory| {
            let id = handle.post_receive((0, Reader::Future), memory)?;
            self.posts.add(handle, handle.receive_queue(), id);
            Ok(Waiting(Ticket::new(handle.receive_queue(), id)))
        });
        into.receiving(posted)
    }

    #[inline(always)]
    fn post_send<T: Sends>(
        &self,
        queue_pair: &QueuePair<T>,
        memory: impl Memory,
        order: Order,
    ) -> Result<Waiting> {
        let handle = &queue_pair.handle;
        let id = handle.post_send((0, Reader::Future), memory, order)?;
        self.posts.add(handle, handle.send_queue(), id);
        Ok(Waiting(Ticket::new(handle.send_queue(), id)))
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scope")
    }
}

/// Whether work writes to its own bytes.
#[inline(always)]
fn fetches(order: &Order) -> bool {
    matches!(
        order.what,
        Operation::Read(_) | Operation::FetchAdd { .. } | Operation::CompareSwap { .. }
    )
}

#[inline(always)]
fn length(bytes: usize) -> Result<u32> {
    u32::try_from(bytes).map_err(|_| Error::Misuse("a piece of 4 GiB and more is impossible"))
}

/// A completion that someone waits for.
struct Waiting(Ticket<Arc<Queue>>);

impl Waiting {
    /// How it ended, as far as its queue has brought it.
    fn brought(&mut self) -> Option<std::result::Result<Done, WorkError>> {
        let context = Context::from_waker(Waker::noop());
        match self.0.poll(&context, |view, _| view.result()) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    /// How it ended, if it has.
    fn try_wait(&mut self) -> Result<Option<std::result::Result<Done, WorkError>>> {
        // Often it was brought along with another's.
        if let Some(result) = self.brought() {
            return Ok(Some(result));
        }
        self.0.home().deliver()?;
        Ok(self.brought())
    }

    fn wait(&mut self) -> Result<std::result::Result<Done, WorkError>> {
        if let Some(result) = self.brought() {
            return Ok(result);
        }
        let queue = Arc::clone(self.0.home());
        let found = queue.wait_for_work(None, || self.brought())?;
        Ok(found.expect("invariant: without a deadline it waits until the work has ended"))
    }
}

/// Work on shared bytes. Dropping it takes nothing back.
#[must_use = "the work is done either way, but nobody learns how it ended"]
pub struct Sending<'scope> {
    waiting: Waiting,
    scope: PhantomData<&'scope [u8]>,
}

impl Sending<'_> {
    /// Sleeps until it has completed.
    ///
    /// # Errors
    /// [`Error::Work`] if the work failed, or the queue overflowed.
    pub fn wait(mut self) -> Result<Done> {
        Ok(self.waiting.wait()??)
    }

    /// [`wait`](Self::wait) without waiting, for loops of one's own: how it ended, if it has. Not
    /// to be asked or waited for again when it has answered.
    ///
    /// # Panics
    /// If it has answered before.
    pub fn try_wait(&mut self) -> Option<Result<Done>> {
        match self.waiting.try_wait() {
            Ok(ended) => ended.map(|result| Ok(result?)),
            Err(error) => Some(Err(error)),
        }
    }
}

impl fmt::Debug for Sending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sending").field(&self.waiting.0).finish()
    }
}

/// Work on lent bytes. If it is dropped, the bytes come back when the scope ends.
#[must_use = "the bytes come back through it"]
pub struct Receiving<'scope> {
    waiting: Waiting,
    /// There until they come back.
    lent: Option<ScopedBytesMut<'scope>>,
}

/// How work on lent bytes ended, and the bytes.
pub type Returned<'scope> = (std::result::Result<Done, WorkError>, ScopedBytesMut<'scope>);

impl<'scope> Receiving<'scope> {
    /// Sleeps until it has completed; the bytes come back.
    ///
    /// # Errors
    /// The queue overflowed; the bytes come back when the scope ends. How the work ended is the
    /// inner result.
    pub fn wait(mut self) -> Result<Returned<'scope>> {
        let result = self.waiting.wait()?;
        Ok((result, self.take()))
    }

    /// [`wait`](Self::wait) without waiting, for loops of one's own: how it ended and the bytes, if
    /// it has. Not to be asked or waited for again when it has answered.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ferroce::qp::Operation;
    /// let pair = pair()?;
    /// let mut room = [0; 8];
    /// pair.domain.scope(std::time::Duration::from_secs(1), |scope| {
    ///     let mut receiving = scope.receive(&pair.far, scope.register_mut(&mut room)?)?;
    ///     assert!(receiving.try_wait().is_none()); // nothing was sent yet
    ///     let hello = scope.register(b"hello")?;
    ///     scope.send(&pair.near, Operation::Send, &[hello])?.wait()?;
    ///     let (done, bytes) = loop {
    ///         // A loop does other work here.
    ///         if let Some(ended) = receiving.try_wait() {
    ///             break ended?;
    ///         }
    ///     };
    ///     assert_eq!(&bytes[..done?.bytes as usize], b"hello");
    ///     Ok::<_, ferroce::Error>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Panics
    /// If it has answered before.
    pub fn try_wait(&mut self) -> Option<Result<Returned<'scope>>> {
        match self.waiting.try_wait() {
            Ok(ended) => ended.map(|result| Ok((result, self.take()))),
            Err(error) => Some(Err(error)),
        }
    }

    fn take(&mut self) -> ScopedBytesMut<'scope> {
        let lent = self.lent.take();
        lent.expect("invariant: the ticket of work answers once")
    }
}

impl fmt::Debug for Receiving<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiving")
            .field("ticket", &self.waiting.0)
            .field("lent", &self.lent)
            .finish()
    }
}
