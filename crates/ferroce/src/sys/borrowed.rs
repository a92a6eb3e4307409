//! Memory of the program that is registered for as long as it is borrowed, and the work on it.

use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use ferroce_abi::types::{IBV_ACCESS_LOCAL_WRITE, ibv_mr, ibv_sge};
use ferroce_os::lock::Lock;

use super::{Domain, Queue, QueuePairHandle};
use crate::{Error, Result};

/// Registered bytes of the program.
pub(crate) struct BorrowedRegion {
    domain: Arc<Domain>,
    /// None after the borrow has ended.
    raw: Mutex<Option<NonNull<ibv_mr>>>,
    start: NonNull<u8>,
    lkey: u32,
    rkey: u32,
}

// SAFETY: the bytes are reached through `BorrowedMut` and the device only; C's regions may be used
// by several threads at once.
unsafe impl Send for BorrowedRegion {}
// SAFETY: the bytes are reached through `BorrowedMut` and the device only; C's regions may be used
// by several threads at once.
unsafe impl Sync for BorrowedRegion {}

impl BorrowedRegion {
    /// For sending from. The bytes are borrowed for longer than the region is registered.
    pub(crate) fn shared(domain: &Arc<Domain>, bytes: &[u8]) -> Result<Arc<Self>> {
        // Never written through: registered without any access but reading.
        Self::register(domain, NonNull::from(bytes), 0)
    }

    /// For peers: others may change the bytes at any time, and see what is done to them.
    pub(crate) fn exposed(
        domain: &Arc<Domain>,
        bytes: &[AtomicU8],
        access: i32,
    ) -> Result<Arc<Self>> {
        let bytes = NonNull::slice_from_raw_parts(NonNull::from(bytes).cast(), bytes.len());
        Self::register(domain, bytes, access)
    }

    fn register(domain: &Arc<Domain>, bytes: NonNull<[u8]>, access: i32) -> Result<Arc<Self>> {
        if bytes.is_empty() {
            return Err(Error::Misuse("a memory region has at least one byte"));
        }
        let start = bytes.cast::<u8>();
        start.as_ptr().expose_provenance();
        // SAFETY: a live domain, and bytes that the caller keeps borrowed until `end`.
        let raw = unsafe {
            (domain.device.verbs.ibv_reg_mr)(
                domain.raw.as_ptr(),
                start.as_ptr().cast(),
                bytes.len(),
                access,
            )
        };
        let raw = NonNull::new(raw).ok_or_else(|| {
            Error::last("ibv_reg_mr").about(|| format!("{} borrowed bytes", bytes.len()))
        })?;
        // SAFETY: a live region; nobody else has it yet.
        let (lkey, rkey) = unsafe { ((*raw.as_ptr()).lkey, (*raw.as_ptr()).rkey) };
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            raw: Mutex::new(Some(raw)),
            start,
            lkey,
            rkey,
        }))
    }

    /// Returns the protection domain.
    #[inline(always)]
    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// A piece of it as work requests name it.
    #[inline(always)]
    pub(super) fn element(&self, start: usize, length: u32) -> ibv_sge {
        ibv_sge {
            addr: self.address() + start as u64,
            length,
            lkey: self.lkey,
        }
    }

    /// Address of the first byte, as peers and work requests name it.
    #[inline(always)]
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    /// Key for peers.
    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Takes the registration back: nobody reaches the bytes any more. If the device refuses, the
    /// process ends: the bytes are about to be someone else's, and the device could still write
    /// there.
    pub(crate) fn end(&self) {
        let raw = self
            .raw
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(raw) = raw else { return };
        // SAFETY: a live region; work requests with its key fail from now on.
        let errno = unsafe { (self.domain.device.verbs.ibv_dereg_mr)(raw.as_ptr()) };
        if errno != 0 {
            let error = std::io::Error::from_raw_os_error(errno);
            eprintln!("ferroce: borrowed memory cannot be taken back from the device: {error}");
            std::process::abort();
        }
    }
}

/// Bytes of a borrowed region that nobody else has: neither the program nor work that was posted.
pub(crate) struct BorrowedMut {
    region: Arc<BorrowedRegion>,
    start: usize,
    length: usize,
}

impl BorrowedMut {
    /// Registers bytes for the device to write into. They are borrowed for longer than this, or a
    /// part of it, is there.
    pub(crate) fn lend(domain: &Arc<Domain>, bytes: &mut [u8]) -> Result<Self> {
        let length = bytes.len();
        let access = IBV_ACCESS_LOCAL_WRITE.cast_signed();
        Ok(Self {
            region: BorrowedRegion::register(domain, NonNull::from(bytes), access)?,
            start: 0,
            length,
        })
    }

    /// Its region, the first byte in it, and how many.
    #[inline(always)]
    pub(crate) fn piece(&self) -> (&Arc<BorrowedRegion>, usize, usize) {
        (&self.region, self.start, self.length)
    }

    /// In two; the first has `at` bytes, which must not be more than there are.
    pub(crate) fn split(self, at: usize) -> (Self, Self) {
        assert!(
            at <= self.length,
            "{at} is behind the {} bytes",
            self.length
        );
        let second = Self {
            region: Arc::clone(&self.region),
            start: self.start + at,
            length: self.length - at,
        };
        (Self { length: at, ..self }, second)
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: borrowed bytes of which `self` alone has this part; while the device works on
        // them, the work owns `self`.
        unsafe { slice::from_raw_parts(self.region.start.add(self.start).as_ptr(), self.length) }
    }

    /// As [`bytes`](Self::bytes).
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: no other value has this part of the borrowed bytes, and `self` is borrowed
        // mutably: neither the device nor a reader has them meanwhile.
        unsafe {
            slice::from_raw_parts_mut(self.region.start.add(self.start).as_ptr(), self.length)
        }
    }
}

/// Regions, and work on them, that must end together.
#[derive(Default)]
pub(crate) struct Posts {
    regions: Mutex<Vec<Arc<BorrowedRegion>>>,
    work: Lock<Work>,
}

/// Work by where it was posted.
#[derive(Default)]
struct Work {
    places: Vec<PostedTo>,
    /// The number of the one that was used last.
    last: usize,
    /// The numbers of places, and the `wr_id`s.
    posts: Vec<(usize, u64)>,
}

/// A queue pair and one of its queues.
struct PostedTo {
    queue_pair: Weak<QueuePairHandle>,
    queue: Arc<Queue>,
}

impl PostedTo {
    #[inline(always)]
    fn is(&self, queue_pair: &Arc<QueuePairHandle>, queue: &Arc<Queue>) -> bool {
        ptr::eq(self.queue_pair.as_ptr(), Arc::as_ptr(queue_pair))
            && Arc::ptr_eq(&self.queue, queue)
    }
}

impl Work {
    /// The number of a place, which becomes known.
    #[inline(always)]
    fn place(&mut self, queue_pair: &Arc<QueuePairHandle>, queue: &Arc<Queue>) -> usize {
        let last = self.places.get(self.last);
        if !last.is_some_and(|last| last.is(queue_pair, queue)) {
            self.last = self.other_place(queue_pair, queue);
        }
        self.last
    }

    #[inline(never)]
    fn other_place(&mut self, queue_pair: &Arc<QueuePairHandle>, queue: &Arc<Queue>) -> usize {
        let known = self.places.iter().position(|p| p.is(queue_pair, queue));
        known.unwrap_or_else(|| {
            self.places.push(PostedTo {
                queue_pair: Arc::downgrade(queue_pair),
                queue: Arc::clone(queue),
            });
            self.places.len() - 1
        })
    }

    /// Makes room for one more: what has ended is of no interest.
    #[cold]
    fn make_room(&mut self) {
        let Self { places, posts, .. } = self;
        posts.retain(|&(place, id)| places[place].queue.ledger().is_posted(id));
        // Not again with the next one, where nearly all go on.
        posts.reserve(posts.len().max(4));
    }

    /// What the device may work on.
    fn posted(&self) -> impl Iterator<Item = (&PostedTo, u64)> {
        let posts = self
            .posts
            .iter()
            .map(|&(place, id)| (&self.places[place], id));
        posts.filter(|(place, id)| place.queue.ledger().is_posted(*id))
    }
}

impl Posts {
    /// Takes charge of a region.
    pub(crate) fn add_region(&self, region: &Arc<BorrowedRegion>) {
        self.regions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(region));
    }

    /// Takes charge of work.
    #[inline]
    pub(crate) fn add(&self, queue_pair: &Arc<QueuePairHandle>, queue: &Arc<Queue>, id: u64) {
        let mut work = self.work.lock();
        let place = work.place(queue_pair, queue);
        if work.posts.len() == work.posts.capacity() {
            work.make_room();
        }
        work.posts.push((place, id));
    }

    /// Waits that long for the work, and flushes what is left of it. The registrations end when
    /// this is dropped.
    pub(crate) fn end(&self, limit: Duration) {
        let work = std::mem::take(&mut *self.work.lock());
        if !wait(&work, limit) {
            // What is flushed completes soon; the rest is taken away.
            each_queue_pair(&work, |queue_pair| drop(queue_pair.flush()));
            if !wait(&work, FLUSH_LIMIT) {
                each_queue_pair(&work, |queue_pair| drop(queue_pair.reset()));
            }
        }
        for &(place, id) in &work.posts {
            // Its reader is gone, or was leaked.
            work.places[place].queue.ledger().abandon(id);
        }
    }
}

impl Drop for Posts {
    /// Takes the registrations back, also where waiting panicked (wakers are anyone's code): after
    /// that the device reaches nothing.
    fn drop(&mut self) {
        let regions = self.regions.get_mut();
        for region in regions.unwrap_or_else(PoisonError::into_inner).iter() {
            region.end();
        }
    }
}

/// What a device needs at most to flush its work: it does so at once.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);
/// Waits until the device works on none of it; whether it came to that.
fn wait(work: &Work, limit: Duration) -> bool {
    let deadline = Instant::now().checked_add(limit);
    work.posts
        .iter()
        .all(|&(place, id)| wait_for(&work.places[place].queue, id, deadline))
}

/// Waits until the device no longer works on `id`. Returns false at the deadline.
fn wait_for(queue: &Queue, id: u64, deadline: Option<Instant>) -> bool {
    let ended = || !queue.ledger().is_posted(id);
    // None at the deadline, or an error where the queue is lost.
    let waited = queue.wait_for_work(deadline, || ended().then_some(()));
    matches!(waited, Ok(Some(()))) || ended()
}

/// The queue pairs that the device works for, once each. Those that are gone have let go of their
/// memory.
fn each_queue_pair(work: &Work, mut act: impl FnMut(&QueuePairHandle)) {
    let mut seen = Vec::new();
    for (place, _) in work.posted() {
        let Some(queue_pair) = place.queue_pair.upgrade() else {
            continue;
        };
        if !seen.contains(&queue_pair.number()) {
            seen.push(queue_pair.number());
            act(&queue_pair);
        }
    }
}
